"""rebuild: consume queues, index, checkpoint and DLedger index built from the log equal those of the broker."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rmqstore.documents.plan import Plan
from rmqstore.errors import Refused, UsageError
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.formats import consumequeue
from rmqstore.formats.checkpoint import parse_checkpoint
from rmqstore.formats.message import HEAD
from rmqstore.repair.journal.journal import apply
from rmqstore.repair.rebuild.index import IndexFileRun, IndexRebuild
from rmqstore.repair.rebuild.unit_buffer import BufferedUnits
from tests import damage
from tests.checks.looks import records
from tests.command import run, run_json
from tests.planning import counts_of, loss_of, plan_of, rebuild_of
from tests.repair.salvaging import rows
from tests.stores import copy_store, write_broker_conf
from tests.untouched import file_bytes

PRE_BLANK = consumequeue.PRE_BLANK
QUEUES = ("consumequeue", "batchconsumequeue")
STORES = (
    "4.9.7-clean",
    "5.1.4-clean",
    "5.1.4-dledger",
    "5.1.4-formats",
    "5.4.0-clean",
    "5.4.0-dledger-mixed",
    "5.4.0-formats",
    "5.4.0-ipv6",
)


@pytest.mark.quick_rows(4)
@pytest.mark.parametrize("name", STORES)
def test_consume_queues_are_byte_for_byte_the_brokers(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    conf = write_broker_conf(name, store)
    before = file_bytes(store, *QUEUES)
    for folder in QUEUES:
        shutil.rmtree(store / folder, ignore_errors=True)
    apply(rebuild_of(store, "cq", BrokerConfig.read(conf).given))
    assert file_bytes(store, *QUEUES) == before


@pytest.mark.quick_rows(4)
@pytest.mark.parametrize("name", STORES)
def test_index_files_are_byte_for_byte_the_brokers(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    conf = write_broker_conf(name, store)
    before = file_bytes(store, "index")
    plan = rebuild_of(store, "index", BrokerConfig.read(conf).given)
    assert not plan.empty
    apply(plan)
    assert file_bytes(store, "index") == before


def test_an_index_that_is_gone_is_made_with_the_configured_sizes(store: Path) -> None:
    conf = write_broker_conf("5.4.0-clean", store)
    before = sorted(file_bytes(store, "index").values())
    shutil.rmtree(store / "index")
    apply(rebuild_of(store, "index", BrokerConfig.read(conf).given))
    assert sorted(file_bytes(store, "index").values()) == before


@pytest.mark.parametrize("length", [1, 40])
def test_an_index_file_is_built_again_only_if_a_repaired_record_changes_its_entries(
    length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[IndexFileRun] = []
    build = IndexRebuild._segment

    def noted(work: IndexRebuild, files: IndexFileRun, tag_keys: bool) -> None:
        built.append(files)
        build(work, files, tag_keys)

    monkeypatch.setattr(IndexRebuild, "_segment", noted)
    store = copy_store("5.4.0-clean", tmp_path)
    record = records(store)[20]
    body = record.at + HEAD.size
    damage.flip(record.file, body) if length == 1 else damage.garble(record.file, body, length)
    plan = plan_of(store)
    mended = length == 1
    assert (loss_of(store).messages, len(built) // 2) == ((0, 0) if mended else (1, 1))  # two plans
    assert any(step.path.startswith("index/") for step in plan.steps) is not mended
    apply(plan)
    assert not counts_of(store)


def test_the_dledger_index_is_byte_for_byte_dledgers(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger", tmp_path)
    index = store / "dledger-n0" / "index" / "00000000000000000000"
    with index.open("rb") as file:
        before = file.read(32 * 600)
    index.unlink()
    apply(rebuild_of(store, "dledger-index"))
    with index.open("rb") as file:
        assert file.read(32 * 600) == before
    assert index.stat().st_size == 167_772_160
    assert index.stat().st_blocks * 512 < 1 << 20


def test_a_second_look_in_one_process_sees_what_was_rebuilt(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger", tmp_path)
    conf = write_broker_conf("5.4.0-dledger", store)
    shutil.rmtree(store / "dledger-n0" / "index")
    words = ("rebuild", str(store), "dledger-index", "-c", str(conf), "--jobs", "1", "--apply")
    assert run_json(*words, exit_code=0)["remaining"] == {"counts": {}}


def test_a_sound_store_has_nothing_to_rebuild(store: Path) -> None:
    assert rebuild_of(store, "cq").empty
    assert rebuild_of(store, "checkpoint").empty


def test_only_the_units_that_differ_are_written(store: Path) -> None:
    queue = store / "consumequeue" / "Order_11" / "0" / "00000000000000000000"
    damage.flip(queue, 7 * 20 + 15)
    damage.flip(queue, 30 * 20 + 9)
    plan = rebuild_of(store, "cq")
    assert [(s["at"], s["length"]) for s in plan.summaries()] == [(7 * 20, 20), (30 * 20, 20)]


def test_one_topic_or_queue_at_a_time(store: Path) -> None:
    for queue_id in (0, 1):
        damage.zero(store / "consumequeue" / "Order_11" / str(queue_id) / "00000000000000000000", 400, 20)
        damage.zero(store / "consumequeue" / "Pay_11_Topic" / str(queue_id) / "00000000000000000000", 400, 20)

    def paths(plan: Plan) -> list[str]:
        return sorted(s.path.removesuffix("/00000000000000000000") for s in plan.steps)

    both = ["consumequeue/Order_11/0", "consumequeue/Order_11/1"]
    assert paths(rebuild_of(store, "cq", topics=frozenset(["Order_11"]))) == both
    assert paths(rebuild_of(store, "cq", queues=frozenset([("Order_11", 1)]))) == both[1:]
    ids = ["consumequeue/Order_11/0", "consumequeue/Pay_11_Topic/0"]
    assert paths(rebuild_of(store, "cq", queue_ids=frozenset([0]))) == ids


def test_a_deleted_topic_comes_back_only_by_name(store: Path) -> None:
    topics = store / "config" / "topics.json"
    topics.write_text(topics.read_text().replace("Order_11", "Order_99"))
    shutil.rmtree(store / "consumequeue" / "Order_11")
    assert rebuild_of(store, "cq").empty
    assert not rebuild_of(store, "cq", topics=frozenset(["Order_11"])).empty


def test_a_queue_whose_head_has_expired_begins_with_pre_blanks(store: Path) -> None:
    folder = store / "consumequeue" / "Order_11" / "0"
    before = (folder / "00000000000000000000").read_bytes()
    for n in (0, 1, 2):
        (store / "commitlog" / f"{65536 * n:020d}").unlink()
    shutil.rmtree(folder)
    apply(rebuild_of(store, "cq"))
    after = (folder / "00000000000000000000").read_bytes()
    kept = next(i for i in range(100) if before[i * 20 : i * 20 + 8] >= (65536 * 3).to_bytes(8, "big"))
    assert 0 < kept < 42
    assert after == PRE_BLANK * kept + before[kept * 20 :]


def test_a_log_without_queue_offsets_needs_a_decision(tmp_path: Path) -> None:
    store = copy_store("498_many", tmp_path)
    log = records(store)
    for record in log[1:]:
        record.put("queue_offset", 0)
    shutil.rmtree(store / "consumequeue")
    for plan in (rebuild_of(store, "cq"), plan_of(store)):
        text = f"the {len(log)} messages of 1 queue all have queue offset 0"
        assert [decision for decision in plan.decisions if decision.startswith(text)]


def test_rebuilt_queues_end_with_the_log_as_it_is(store: Path) -> None:
    """`recover` would mend the last message, but `rebuild` leaves the log alone, and a broker truncates it there."""
    last = rows(store)[-1]
    damage.flip(last.path, last.at + HEAD.at("body_crc"))
    topic, queue_id, number = last.slot
    queue = store / "consumequeue" / topic / str(queue_id) / f"{0:020}"
    before = queue.read_bytes()
    apply(rebuild_of(store, "cq"))
    at = number * consumequeue.UNIT.size
    assert any(before[at : at + consumequeue.UNIT.size])
    assert queue.read_bytes() == before[:at] + bytes(len(before) - at)


def test_a_missing_checkpoint_is_created_with_the_last_time_of_the_log(store: Path) -> None:
    (store / "checkpoint").unlink()
    apply(rebuild_of(store, "checkpoint"))
    made = parse_checkpoint((store / "checkpoint").read_bytes())
    assert (made.physic_msg_timestamp, made.logics_msg_timestamp) == (1795245037698, 1795245037698)
    assert made.index_msg_timestamp == 0


def test_what_cannot_be_rebuilt_is_refused(store: Path) -> None:
    with pytest.raises(Refused):
        rebuild_of(store, "dledger-index")
    with pytest.raises(UsageError):
        rebuild_of(store, "index", topics=frozenset(["Order_11"]))
    with pytest.raises(UsageError):
        rebuild_of(store, "cq", topics=frozenset(["Nothing_11"]))


def test_saved_plan_is_applied_by_the_command_that_made_it(tmp_path: Path) -> None:
    store, saved, journals = copy_store("5.4.0-clean", tmp_path), tmp_path / "plan.json", tmp_path / "new" / "journals"
    shutil.rmtree(store / "consumequeue" / "Order_11")
    words = ("rebuild", str(store), "cq")
    planned = run_json(*words, "--topic", "Order_11", "--plan-out", str(saved), exit_code=1)
    assert run("rebuild", str(store), "index", "--plan", str(saved), "--apply").exit_code == 2
    assert run("expire", str(store), "--plan", str(saved), "--apply").exit_code == 2
    narrowed = run(*words, "--plan", str(saved), "--topic", "Order_11", "--apply")
    assert narrowed.stderr == "error: --plan and --topic exclude each other — the plan decides what is done\n"
    assert not journals.exists()
    applied = run_json(*words, "--plan", str(saved), "--apply", "--journal", str(journals), exit_code=0)
    assert (applied["applied"], applied["digest"]) == (True, planned["digest"])
    assert [Path(str(applied["journal"]))] == list(journals.iterdir())
    assert run_json("verify", str(store), exit_code=0)["clean"] is True
    assert run(*words, "--plan", str(saved), "--apply").exit_code == 5  # the store has changed since


@pytest.mark.parametrize(("log_file_size", "exit_code"), [(1 << 30, 0), (1 << 29, 5)])
def test_queue_files_get_the_default_size_when_log_files_have_theirs(
    log_file_size: int, exit_code: int, tmp_path: Path
) -> None:
    from rmqstore.formats.message import build_message

    log = tmp_path / "store" / "commitlog" / f"{0:020d}"
    log.parent.mkdir(parents=True)
    (tmp_path / "store" / "consumequeue").mkdir()
    log.write_bytes(build_message(topic="T", body=b"x"))
    os.truncate(log, log_file_size)
    assert run("rebuild", str(tmp_path / "store"), "cq", "--apply").exit_code == exit_code
    sizes = [path.stat().st_size for path in (tmp_path / "store" / "consumequeue").rglob(f"{0:020d}")]
    assert sizes == ([6_000_000] if exit_code == 0 else [])


def test_the_first_record_of_a_queue_offset_counts() -> None:
    from rmqstore.append.scratch import Scratch

    spill = Scratch()
    first, second = (consumequeue.UNIT.build(commitlog_offset=at, size=100) for at in (1000, 2000))
    units = BufferedUnits(spill)
    units.segments.extend((5, 1, spill.append(first)))
    units.segments.extend((5, 1, spill.append(second)))
    target = bytearray(40)
    units.fill(target, 4)
    assert target == bytes(20) + first
    assert units.ranges() == [(5, 6)]


def test_a_topic_that_was_created_again_keeps_its_units_where_its_first_message_is_damaged(store: Path) -> None:
    """The log does not show that the queue restarted at 0, and contains two messages for each queue offset."""
    mine = [row for row in rows(store) if (row.message.topic, row.message.queue_id) == (b"Order_11", 0)]
    new = mine[len(mine) // 2 :]
    for number, row in enumerate(new):
        damage.overwrite(row.path, row.at + HEAD.at("queue_offset"), number.to_bytes(8, "big"))
    path = next((store / "consumequeue" / "Order_11" / "0").iterdir())
    units = path.read_bytes()
    start, stop = (len(mine) - len(new)) * 20, len(mine) * 20
    path.write_bytes((units[start:stop]).ljust(len(units), b"\0"))
    before = path.read_bytes()
    assert counts_of(store) == {"CL-QUEUE-RESTARTED": 1, "CFG-OFFSET-BEYOND": 1}
    damage.zero(new[0].path, new[0].at, new[0].stop - new[0].at)
    done = run_json("recover", str(store), "--apply", exit_code=1)
    assert (done["applied"], done["loss"]["messages"]) == (True, 1)  # type: ignore[index]
    assert path.read_bytes() == before


@pytest.mark.parametrize(("by", "kept"), [(-60_000, False), (-59_000, True), (1_000, True), (1_001, False)])
def test_a_due_time_of_another_delay_table_stays(by: int, kept: bool, tmp_path: Path) -> None:
    """A message of level 5 (a minute) is never due before it was stored, and all delays are whole seconds."""
    store = copy_store("5.4.0-formats", tmp_path)
    queue = ("SCHEDULE_TOPIC_XXXX", 4)
    path = store / "consumequeue" / queue[0] / str(queue[1]) / f"{0:020}"
    raw = path.read_bytes()
    due = consumequeue.UNIT.parse(raw, consumequeue.UNIT.size)["tags_code"]
    damage.overwrite(path, consumequeue.UNIT.size + consumequeue.UNIT.at("tags_code"), (due + by).to_bytes(8, "big"))
    settings = {"messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"}
    plan = rebuild_of(store, settings=settings, queues=frozenset({queue}))
    apply(plan, force_digest=plan.digest)
    assert consumequeue.UNIT.parse(path.read_bytes(), consumequeue.UNIT.size)["tags_code"] == (
        due + by if kept else due
    )
