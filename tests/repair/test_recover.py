"""plan_recovery on copies of real stores: strategies, roles, decisions, parts that stay unchanged, and undo."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from rmqstore.errors import Refused, UsageError
from rmqstore.formats.configuration import parse_config_object
from rmqstore.formats.consumequeue import PRE_BLANK
from rmqstore.repair.journal.journal import apply
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.recover import plan_recovery
from tests import damage
from tests.cases.case import locate_record
from tests.checks.looks import records
from tests.command import run, run_json
from tests.planning import counts_of, opened, plan_of
from tests.repair.salvaging import rows
from tests.stores import BROKER_STORES, FINDINGS, copy_store, meta, write_broker_conf
from tests.untouched import assert_untouched


def garble_body(store: Path, record: int, folder: str = "commitlog") -> None:
    path, at = locate_record(store / folder, f"record {record} body")
    damage.garble(path, at, 2)


@pytest.mark.quick_rows(5)
@pytest.mark.parametrize("name", [name for name in BROKER_STORES if name not in FINDINGS])
def test_a_sound_store_needs_nothing(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    conf = write_broker_conf(name, store)
    with assert_untouched(store):
        answer = run_json("recover", str(store), "-c", str(conf), exit_code=0)
    assert (answer["steps"], answer["applied"], answer["loss"]["messages"]) == ([], False, 0)  # type: ignore[index]


def test_truncated_bytes_of_log_and_queues_are_zero(store: Path) -> None:
    garble_body(store, 225)
    apply(plan_of(store, options=RecoverOptions(strategy="truncate")))
    tail = (store / "commitlog" / "00000000000000131072").read_bytes()[166170 - 131072 :]
    assert tail == bytes(len(tail))
    units = (store / "consumequeue" / "log-15445" / "0" / "00000000000000000000").read_bytes()[12 * 20 :]
    assert units == bytes(len(units))


@pytest.mark.parametrize(
    ("settings", "strategy"),
    [
        ({"brokerRole": "SLAVE"}, "truncate"),
        ({"brokerRole": "ASYNC_MASTER"}, "salvage"),
        ({"brokerRole": "SYNC_MASTER", "enableControllerMode": "true"}, "truncate"),
        ({}, "salvage"),
    ],
)
def test_the_role_chooses_the_strategy(settings: dict[str, str], strategy: str, store: Path) -> None:
    garble_body(store, 225)
    assert plan_of(store, settings).facts["strategy"] == strategy


@pytest.mark.parametrize(
    ("name", "folder", "role"),
    [("5.4.0-dledger3-n0", "dledger-n0/data", "dledger-group"), ("5.4.0-slave", "commitlog", "slave")],
)
def test_a_short_file_after_the_cut_is_only_moved_away(name: str, folder: str, role: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    garble_body(store, 60, folder)
    short = store / folder / f"{3 * 65536:020}"
    damage.cut(short, 9000)
    plan = plan_of(store, meta(name).broker_conf, RecoverOptions(role=role))
    assert [step.do for step in plan.steps if step.path.endswith(short.name)] == ["discard"]
    apply(plan, force_digest=plan.digest)
    assert not short.exists()
    assert not counts_of(store)


def test_a_missing_data_path_stops_everything(store: Path) -> None:
    garble_body(store, 225)
    plan = plan_of(store, {"storePathCommitLog": f"{store}/commitlog,{store}/gone"})
    assert plan.steps == ()
    assert "gone is configured but missing" in plan.decisions[0]


def test_queue_files_of_an_assumed_size_need_a_decision(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    answer = run_json("recover", str(store), "--apply", exit_code=5)
    assert answer["error"]["code"] == "refused"  # type: ignore[index]
    assert not (store / "consumequeue").exists()


def test_an_unknown_strategy_is_refused(store: Path) -> None:
    with pytest.raises(UsageError):
        plan_of(store, options=RecoverOptions(strategy="hope"))


def test_a_saved_plan_is_applied_exactly(store: Path, tmp_path: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "Order_11")
    saved = tmp_path / "plan.json"
    run_json("recover", str(store), "--plan-out", str(saved), exit_code=1)
    assert json.loads(saved.read_text())["digest"] == plan_of(store).digest
    run_json("recover", str(store), "--plan", str(saved), "--apply", exit_code=0)
    assert counts_of(store) == {}


def test_a_stale_plan_is_refused(store: Path, tmp_path: Path) -> None:
    queue = store / "consumequeue" / "Order_11" / "0" / "00000000000000000000"
    damage.zero(queue, 20 * 20, 20)
    saved = tmp_path / "plan.json"
    run_json("recover", str(store), "--plan-out", str(saved), exit_code=1)
    damage.overwrite(queue, 20 * 20, b"\1")
    answer = run_json("recover", str(store), "--plan", str(saved), "--apply", exit_code=5)
    assert answer["error"]["code"] == "plan-stale"  # type: ignore[index]


def test_the_text_begins_with_the_loss_and_ends_with_the_next_step(store: Path) -> None:
    garble_body(store, 225)
    lines = run("recover", str(store)).stdout.splitlines()
    assert "Lost: 1 message of 1 topic, 292 bytes." in lines
    assert "commitlog ends at 479,958; its files extend to 524,288" in lines
    assert lines.index("Lost: 1 message of 1 topic, 292 bytes.") < 5
    assert lines[-2:] == ["This plan: 1 message lost.", "Nothing was written. To apply the plan, add --apply"]
    last = run("recover", str(store), "--apply").stdout.splitlines()[-2:]
    assert last[0].startswith("Result: 1 message lost; journal ") and last[1] == "Verified again: no problems."


def test_resume_of_a_finished_repair_does_nothing(store: Path) -> None:
    garble_body(store, 225)
    done = run_json("recover", str(store), "--apply", exit_code=0)
    answer = run_json("resume", str(done["journal"]), exit_code=0)
    assert answer["steps"] == 0


@pytest.mark.parametrize("part", ["commitlog", "consumequeue/Order_11/0", "index"])
def test_a_part_of_a_store_is_refused(part: str, store: Path) -> None:
    with assert_untouched(store):
        for words in (("recover",), ("rebuild", "cq")):
            answer = run_json(words[0], str(store / part), *words[1:], exit_code=5)
            assert answer["error"]["code"] == "refused"  # type: ignore[index]


def test_a_queue_that_a_truncation_leaves_with_pre_blanks_only_is_emptied(store: Path) -> None:
    queue = store / "consumequeue" / "TRANS_CHECK_MAX_TIME_TOPIC" / "0" / "00000000000000000000"
    used = len(queue.read_bytes().rstrip(b"\0")) // 20
    damage.overwrite(queue, 0, PRE_BLANK * used + queue.read_bytes()[: used * 20])
    garble_body(store, 100)
    plan = plan_of(store, options=RecoverOptions(strategy="truncate"))
    apply(plan)
    assert counts_of(store).keys() <= {"CQ-DELETED-TOPIC"}


def test_a_sound_queue_with_nothing_but_pre_blanks_before_the_cut_is_emptied(store: Path) -> None:
    """The first log file has expired; the queue is cut without reading the log, and its consumers begin again."""
    min((store / "commitlog").iterdir()).unlink()
    left = rows(store)
    first = {row.slot[:2]: row for row in reversed(left) if row.slot[0].startswith("Order")}
    (topic, queue_id), row = max(first.items(), key=lambda item: item[1].offset)
    number = row.slot[2]
    assert number > 0 and row.offset > left[2].offset
    queue = store / "consumequeue" / topic / str(queue_id) / f"{0:020d}"
    damage.overwrite(queue, 0, PRE_BLANK * number)
    table = {"offsetTable": {f"{topic}@readers": {str(queue_id): number}}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(table), "utf-8")
    damage.garble(left[1].path, left[1].at, left[1].size)
    plan = plan_of(store, options=RecoverOptions(strategy="truncate"))
    apply(plan, force_digest=plan.digest)
    assert not queue.exists()
    offsets = parse_config_object((store / "config" / "consumerOffset.json").read_bytes())["offsetTable"]
    assert offsets == {f"{topic}@readers": {str(queue_id): 0}}
    assert "CQ-PRE-BLANK-ONLY" not in counts_of(store)


def test_a_truncation_cuts_each_queue_only_once_if_all_are_rebuilt(store: Path) -> None:
    """With more findings than are listed, all queues are rebuilt from the log that ends earlier."""
    garble_body(store, 225)
    for queue in sorted((store / "consumequeue").glob("Order*/*"))[:2]:
        damage.garble(queue / f"{0:020d}", 0, 40)
    one = opened(store)
    verified = examine(one, VerifyOptions(jobs=1, keep=1))
    plan = plan_recovery(one, verified, RecoverOptions(strategy="truncate"))
    apply(plan, force_digest=plan.digest)
    assert counts_of(store) == {}


def test_an_empty_path_of_a_log_with_missing_files_may_be_a_disk_that_is_not_mounted(tmp_path: Path) -> None:
    store, second = copy_store("5.4.0-clean", tmp_path), tmp_path / "second"
    second.mkdir()
    paths = f"{store / 'commitlog'},{second}"
    decision = f"{second} is configured and empty, and files of the log are missing: is a disk not mounted?"
    assert plan_of(store, {"storePathCommitLog": paths}).decisions == ()
    files = sorted((store / "commitlog").iterdir())
    files[-1].rename(second / files[-1].name)
    assert plan_of(store, {"storePathCommitLog": paths}).decisions == ()
    files[-3].rename(second / files[-3].name)
    for path in second.iterdir():
        path.unlink()
    plan = plan_of(store, {"storePathCommitLog": paths})
    assert decision in plan.decisions
    with pytest.raises(Refused, match="is a disk not mounted"):
        apply(plan)


@pytest.mark.parametrize(("percent", "asks"), [(9.5, False), (10.5, True)])
def test_damage_of_more_than_a_tenth_of_the_log_is_a_decision(percent: float, asks: bool, tmp_path: Path) -> None:
    store = copy_store("498_many", tmp_path)
    log = records(store)
    whole = log[-1].offset + log[-1].size
    left = int(whole * percent / 100)
    for record in log[100:]:
        if left < record.size:
            break
        damage.zero(record.file, record.at, record.size)
        left -= record.size
    brakes = run_json("recover", str(store), "--accept-fillers", exit_code=1)["brakes"]
    assert isinstance(brakes, list)
    assert any("of commitlog is damaged" in brake for brake in brakes) is asks
