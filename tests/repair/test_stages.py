"""The stages of a recovery: what they share of the log is the log that is there after the plan."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from rmqstore.checks.index.catalog import IndexFile
from rmqstore.files.store import QueueKind, open_store
from rmqstore.formats import consumequeue, dledger
from rmqstore.repair.journal.journal import apply
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.recover import plan_recovery
from rmqstore.repair.recovery import LogAfter, Recovery
from rmqstore.repair.repaired_log import last_record_start
from tests import damage
from tests.cases.case import make, read_case
from tests.planning import look
from tests.repair.salvaging import rows
from tests.seeds import SEED
from tests.stores import copy_store


def _hit(store: Path, chance: random.Random) -> None:
    """Damage records at random places, and sometimes lose a file or the end of one."""
    hit = sorted(chance.sample(rows(store), 4), key=lambda row: row.offset)
    for row in hit:
        at, length = row.at + chance.randrange(row.size - 8), chance.choice((1, 4, 8))
        damage.garble(row.path, at, length, chance.randrange(1 << 30))
    files = sorted({row.path for row in rows(store)})
    fate = chance.randrange(4)
    if fate == 0 and len(files) > 2:
        files[1].unlink()
    elif fate == 1:
        damage.cut(files[0], files[0].stat().st_size - chance.randrange(1, 4000))


@pytest.mark.quick_rows(6)
@pytest.mark.parametrize("strategy", ["salvage", "truncate"])
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("name", ["5.4.0-clean", "5.4.0-formats", "5.4.0-dledger"])
def test_the_planned_log_has_the_records_that_are_there_afterwards(
    name: str, number: int, strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = copy_store(name, tmp_path)
    _hit(store, random.Random(f"{SEED} {name} {number} {strategy}"))
    planned: list[tuple[int, int, int]] = []

    def keep(_: Recovery, __: PlanBuilder, log: LogAfter) -> None:
        for view in log.as_written():
            for columns in view.chunks():
                planned.extend(
                    zip(columns.offset.tolist(), columns.size.tolist(), columns.queue_offset.tolist(), strict=True)
                )

    monkeypatch.setattr("rmqstore.repair.recover.DERIVED", (keep,))
    opened, verified = look(store)
    options = RecoverOptions(strategy=strategy, accept_fillers=True, allow_shift=True, merge_neighbours=True)
    plan = plan_recovery(opened, verified, options)
    apply(plan, force_digest=plan.digest)
    there = [(row.offset, row.size, row.message.queue_offset) for row in rows(store)]
    assert planned == there


def test_an_index_that_fits_the_mended_message_stays(tmp_path: Path) -> None:
    store = make(read_case("CQ-WRONG-TAG--in-the-record"), tmp_path)
    plan = plan_recovery(*look(store))
    assert [step.path for step in plan.steps if step.path.startswith("commitlog/")]
    assert [step.path for step in plan.steps if step.path.startswith("index/")] == []
    apply(plan)
    assert look(store)[1].report.clean
    assert open_store(store).index_files


@pytest.mark.parametrize("gone", ["consumequeue", "index", "neither"])
def test_in_a_group_queues_go_as_far_as_anything_shows_that_entries_were_committed(gone: str, tmp_path: Path) -> None:
    """A killed follower's committedIndex may be far too low: units and index entries count, too."""
    store = copy_store("5.4.0-dledger3-n0", tmp_path)
    found = rows(store)
    shutil.rmtree(store / gone, ignore_errors=True)
    name = next(path.name for path in store.iterdir() if path.name.startswith("dledger-"))
    (store / name / "checkpoint").write_bytes(dledger.DLedgerCheckpoint(0, 0).build())
    units = [
        unit
        for files in open_store(store).consume_queues(QueueKind.SIMPLE)
        for unit in consumequeue.UNIT.array(files.queue.pread(files.queue.stop - files.queue.start, files.queue.start))
        if unit["size"]
    ]
    dispatched = max((int(unit["commitlog_offset"]) + int(unit["size"]) for unit in units), default=0)
    keyed = max(file.end_phy_offset for file in index_files(store)) if gone != "index" else 0
    indexed = next((row.offset + row.size for row in found if row.offset == keyed), 0)
    assert bool(dispatched) is (gone != "consumequeue") and bool(indexed) is (gone != "index")
    opened, verified = look(store)
    limits = {
        role: Recovery.of(opened, verified, RecoverOptions(role=role)).limit for role in ("dledger-group", "single")
    }
    assert limits == {"dledger-group": max(dispatched, indexed), "single": None}


def index_files(store: Path) -> list[IndexFile]:
    catalog = look(store)[1].index
    assert catalog is not None
    return catalog.files


def test_queues_of_another_store_are_compared_as_a_whole(store: Path) -> None:
    shutil.copytree(store / "consumequeue" / "Order_11", store / "consumequeue" / "Elsewhere")
    for path in (store / "consumequeue").rglob("0*"):
        if path.is_file():
            raw = bytearray(path.read_bytes())
            units = consumequeue.UNIT.array(raw)
            units["commitlog_offset"][units["size"] > 0] += 7
            path.write_bytes(raw)
    opened, verified = look(store)
    assert "CQ-FOREIGN" in verified.report.findings.counts
    plan = plan_recovery(opened, verified)
    touched = {tuple(step.path.split("/")[1:3]) for step in plan.steps if step.path.startswith("consumequeue/")}
    there = {(path.parent.name, path.name) for path in (store / "consumequeue").glob("*/*")}
    assert touched == there and ("Elsewhere", "0") in there
    assert plan.decisions


def test_queues_behind_the_log_alone_are_left_to_the_broker(tmp_path: Path) -> None:
    opened, verified = look(copy_store("5.4.0-killed", tmp_path))
    assert any(part.missing for part in verified.logs.queues.values())
    assert not any(step.path.startswith("consumequeue/") for step in plan_recovery(opened, verified).steps)


def test_only_limits_the_repair_of_dledger_files_to_these_codes(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger", tmp_path)
    for name in ("checkpoint", "currterm"):
        (store / "dledger-n0" / name).write_text("")
    opened, verified = look(store)
    assert {"DL-COMMITTED", "DL-TERM"} <= verified.report.findings.counts.keys()
    for code, name in (("DL-COMMITTED", "checkpoint"), ("DL-TERM", "currterm")):
        plan = plan_recovery(opened, verified, RecoverOptions(only=(code,)))
        assert {step.path for step in plan.steps} == {f"dledger-n0/{name}"}


@pytest.mark.parametrize("lags", [False, True])
def test_abort_stays_in_a_dledger_store_whose_queue_lacks_a_committed_message(lags: bool, tmp_path: Path) -> None:
    """A normal start dispatches from the committed position on: only abnormal recovery would add the unit."""
    store = copy_store("5.4.0-dledger", tmp_path)
    (store / "abort").touch()
    topic, queue_id, number = rows(store)[-1].slot
    if lags:
        damage.zero(store / "consumequeue" / topic / str(queue_id) / f"{0:020d}", number * 20, 20)
    assert [step.path for step in plan_recovery(*look(store)).steps] == ([] if lags else ["abort"])


@pytest.mark.parametrize("name", ["5.4.0-clean", "5.4.0-dledger"])
def test_the_last_record_up_to_an_offset_ends_there_or_before_it(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    logs, found = look(store)[1].logs, rows(store)
    before, last = found[-2:]
    end = last.offset + last.size
    ends = (end + 1, end, end - 1, found[0].offset + found[0].size - 1)
    assert [last_record_start(logs, at) for at in ends] == [last.offset, last.offset, before.offset, 0]


@pytest.mark.parametrize("lost", [False, True])
def test_groups_are_unknown_only_to_a_plan_with_fillers(lost: bool, store: Path) -> None:
    for path in (store / "config").glob("consumerOffset.json*"):
        path.write_text("{")
    row = next(row for row in rows(store) if row.slot[0].startswith("Order"))
    if lost:
        damage.garble(row.path, row.at, row.size)
    notes = plan_recovery(*look(store)).notes
    assert any(note.startswith("unknown which groups will get the fillers") for note in notes) is lost
