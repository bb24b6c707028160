"""Consume queues in RocksDB compared with the messages, on a real 5.4.0 store and on copies with changed rows."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.checks.examine import verify
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems.report import Finding, Report
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from tests.checks.sound import above_note
from tests.command import run, run_json
from tests.rocksdb_rows import Rows, changing, need_rocksdict, opened_rows, without_extra
from tests.seeds import fresh
from tests.stores import copy_store, meta, unpack, write_broker_conf
from tests.untouched import assert_untouched

need_rocksdict()
STORE = "5.4.0-rocksdb"
TOPIC, QUEUE, UNITS = "Order_11", 1, 19
LABEL = f"{TOPIC}/{QUEUE}"


def look(store: Path, **options: int) -> Report:
    return verify(open_store(store), VerifyOptions(jobs=options.get("jobs", 1), split_size=options.get("split_size")))


def changed(tmp_path: Path, change: Callable[[Rows], None]) -> Report:
    store = copy_store(STORE, tmp_path)
    with changing(store) as rows:
        change(rows)
    return look(store)


def only(report: Report) -> Finding:
    assert report.unchecked == []
    assert len(above_note(report.findings)) == 1, above_note(report.findings)
    return above_note(report.findings)[0]


def test_every_message_of_a_real_store_has_its_row() -> None:
    report = look(unpack(STORE))
    assert (report.exit_code, dict(report.findings.counts), report.unchecked) == (0, {}, [])
    assert report.commitlog is not None
    assert report.commitlog["messages"] == 292
    assert sum(q.max - q.min for q in report.queues.values()) == 292


def test_queues_have_the_bounds_that_the_broker_reports() -> None:
    told = {name: (q.min, q.max) for name, q in meta(STORE).oracle_load.queues.items()}
    states = look(unpack(STORE)).queues
    assert {name: (q.min, q.max) for name, q in states.items()} == told
    assert all(q.max == q.expected_max for q in states.values())


def test_reading_changes_nothing_and_leaves_nothing(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = tmp_path / "room"
    room.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(room))
    with assert_untouched(store):
        assert look(store).exit_code == 0
    assert list(room.iterdir()) == []


def test_workers_find_the_same_as_one_process(store: Path) -> None:
    with changing(store) as rows:
        rows.drop(TOPIC, QUEUE, 5)
        rows.put(TOPIC, 0, 3, tags_code=1)
    one, several = look(store).to_json(), look(store, jobs=2, split_size=1 << 15).to_json()
    assert {k: v for k, v in one.items() if k != "seconds"} == {k: v for k, v in several.items() if k != "seconds"}
    assert one["counts"] == {"CQ-MISSING-UNIT": 1, "CQ-WRONG-TAG": 1}


def test_missing_rows_are_one_finding(tmp_path: Path) -> None:
    places: list[int] = []

    def change(rows: Rows) -> None:
        for index in (5, 6, 7):
            places.append(rows.get(TOPIC, QUEUE, index)["commitlog_offset"])
            rows.drop(TOPIC, QUEUE, index)

    finding = only(changed(tmp_path, change))
    assert (finding.code, finding.queue, finding.offset, finding.length) == ("CQ-MISSING-UNIT", LABEL, 100, 60)
    assert finding.facts == {"messages": 3, "queue_offset": 5, "first_offset": places[0], "last_offset": places[2]}


@pytest.mark.parametrize(("field", "code"), [("size", "CQ-WRONG-SIZE"), ("tags_code", "CQ-WRONG-TAG")])
def test_a_wrong_field_is_reported_with_the_right_value(field: str, code: str, tmp_path: Path) -> None:
    right: list[int] = []

    def change(rows: Rows) -> None:
        right.append(rows.get(TOPIC, QUEUE, 4)[field])
        rows.put(TOPIC, QUEUE, 4, **{field: right[0] + 1})

    finding = only(changed(tmp_path, change))
    assert (finding.code, finding.queue, finding.offset) == (code, LABEL, 80)
    assert (finding.facts[field], finding.facts["expected"]) == (right[0] + 1, right[0])


def test_a_row_of_another_queues_message_is_reported(tmp_path: Path) -> None:
    def change(rows: Rows) -> None:
        other = rows.get(TOPIC, 0, 2)
        rows.put(TOPIC, QUEUE, 4, commitlog_offset=other["commitlog_offset"], size=other["size"])

    finding = only(changed(tmp_path, change))
    assert (finding.code, finding.queue, finding.offset) == ("CQ-WRONG-QUEUE", LABEL, 80)
    assert (finding.facts["queue_id"], finding.facts["message_queue_offset"]) == (0, 2)


def test_a_row_that_points_into_a_message_is_dangling(tmp_path: Path) -> None:
    finding = only(changed(tmp_path, lambda rows: rows.put(TOPIC, QUEUE, 4, commitlog_offset=11)))
    assert (finding.code, finding.queue, finding.offset) == ("CQ-DANGLING-UNIT", LABEL, 80)
    assert finding.facts["reason"] == "no record starts there"


def test_a_row_of_another_length_is_not_a_unit(tmp_path: Path) -> None:
    def change(rows: Rows) -> None:
        from rmqstore.formats.rocksdbkeys import UnitKey

        rows.units[UnitKey(TOPIC.encode(), QUEUE, 4).build()] = b"short"

    finding = only(changed(tmp_path, change))
    assert (finding.code, finding.queue, finding.offset) == ("CQ-DANGLING-UNIT", LABEL, 80)
    assert finding.facts["reason"] == "no valid unit"


def test_swapped_rows_are_out_of_order(tmp_path: Path) -> None:
    def change(rows: Rows) -> None:
        a, b = rows.get(TOPIC, QUEUE, 4), rows.get(TOPIC, QUEUE, 9)
        rows.put(TOPIC, QUEUE, 4, **b)
        rows.put(TOPIC, QUEUE, 9, **a)

    assert only(changed(tmp_path, change)).code == "CQ-OUT-OF-ORDER"


def _without_queue(rows: Rows) -> None:
    from rmqstore.formats.rocksdbkeys import OffsetKey

    for index in range(UNITS):
        rows.drop(TOPIC, QUEUE, index)
    del rows.offsets[OffsetKey(TOPIC.encode(), "max", QUEUE).build()]
    del rows.offsets[OffsetKey(TOPIC.encode(), "min", QUEUE).build()]


def test_a_queue_without_rows_is_missing(tmp_path: Path) -> None:
    report = changed(tmp_path, _without_queue)
    finding = only(report)
    assert (finding.code, finding.queue, finding.facts["messages"]) == ("CQ-MISSING-QUEUE", LABEL, UNITS)
    assert (report.queues[LABEL].max, report.queues[LABEL].expected_max) == (0, UNITS)


def test_a_topic_that_the_configuration_does_not_know_was_deleted(store: Path) -> None:
    with changing(store) as rows:
        _without_queue(rows)
    with opened_rows(store / "config" / "topics") as database:
        del database.get_column_family("default")[TOPIC.encode()]
    report = look(store)
    counts = {"CFG-UNKNOWN-TOPICS": 1, "CQ-DELETED-TOPIC": 1}  # its other queues are still there
    assert (dict(report.findings.counts), report.exit_code) == (counts, 1)


def test_rows_after_the_queues_end_are_leftovers(tmp_path: Path) -> None:
    report = changed(tmp_path, lambda rows: rows.put(TOPIC, QUEUE, UNITS, commitlog_offset=1 << 40, size=200))
    assert (report.exit_code, dict(report.findings.counts)) == (0, {})
    assert report.queues[LABEL].max == UNITS


def test_a_queue_ahead_of_the_log_is_reported(tmp_path: Path) -> None:
    def change(rows: Rows) -> None:
        rows.put(TOPIC, QUEUE, UNITS, commitlog_offset=1 << 40, size=200)
        rows.end(TOPIC, QUEUE, UNITS, 1 << 40)

    report = changed(tmp_path, change)
    codes = {(f.code, f.offset, f.facts["units"]) for f in above_note(report.findings)}
    assert codes == {("CQ-BEYOND-LOG", UNITS * 20, 1)}
    assert (report.queues[LABEL].max, report.queues[LABEL].expected_max) == (UNITS + 1, UNITS)


def test_an_end_in_front_of_rows_hides_their_messages(tmp_path: Path) -> None:
    report = changed(tmp_path, lambda rows: rows.end(TOPIC, QUEUE, 15, 0))
    finding = only(report)
    assert (finding.code, finding.queue, finding.facts["queue_offset"]) == ("CQ-MISSING-UNIT", LABEL, 16)
    assert (finding.facts["messages"], finding.facts["reason"]) == (3, "the queue ends before it")
    assert (finding.offset, finding.length) == (16 * 20, 3 * 20)
    assert (report.queues[LABEL].max, report.queues[LABEL].expected_max) == (16, UNITS)


def test_a_beginning_after_rows_hides_their_messages(tmp_path: Path) -> None:
    report = changed(tmp_path, lambda rows: rows.end(TOPIC, QUEUE, 2, 0, "min"))
    finding = only(report)
    assert (finding.code, finding.facts["queue_offset"], finding.facts["messages"]) == ("CQ-MISSING-UNIT", 0, 2)
    assert (finding.offset, finding.length) == (0, 2 * 20)
    assert finding.facts["reason"] == "the queue begins after it"
    assert report.verdict == "Consumers do not get all messages; RocketMQ 5.4.0 would start and cut nothing"


@pytest.mark.parametrize("far", [1 << 33, 1 << 58])
def test_a_row_far_away_is_reached_without_a_walk(tmp_path: Path, far: int) -> None:
    def change(rows: Rows) -> None:
        rows.put(TOPIC, QUEUE, far, commitlog_offset=11, size=200)
        rows.end(TOPIC, QUEUE, far, 11)

    report = changed(tmp_path, change)
    assert {(f.code, f.queue, f.facts["queue_offset"]) for f in above_note(report.findings)} == {
        ("CQ-GHOST-UNITS", LABEL, far)
    }
    assert report.to_json()["queues"][LABEL]["max"] == far + 1


@pytest.mark.parametrize("number", [-1, -(1 << 63), (1 << 63) - 1])
def test_a_queue_offset_that_no_queue_can_have_is_dangling(tmp_path: Path, number: int) -> None:
    finding = only(changed(tmp_path, lambda rows: rows.put(TOPIC, QUEUE, number, size=200)))
    assert (finding.code, finding.facts["queue_offset"]) == ("CQ-DANGLING-UNIT", number)
    assert finding.facts["reason"] == "no valid queue offset"


def test_invalid_keys_are_noted(tmp_path: Path) -> None:
    def change(rows: Rows) -> None:
        for key in (b"\0", b"what is this", b"\xff" * 40):
            rows.units[key] = b"x"

    report = changed(tmp_path, change)
    assert (report.exit_code, report.notes) == (
        0,
        ["consumequeue/: the RocksDB has 3 keys of another form than consume queue units; brokers ignore this"],
    )


def test_a_consumer_ahead_of_its_queue_is_reported(store: Path) -> None:
    with opened_rows(store / "config" / "consumerOffsets") as database:
        database.get_column_family("default")[b"Order_11@CG_part_11"] = b'{"offsetTable":{"0":13,"1":1000}}'
    finding = only(look(store))
    assert (finding.code, finding.queue, finding.file) == ("CFG-OFFSET-BEYOND", LABEL, "consumerOffsets")
    assert (finding.facts["offset"], finding.facts["max"]) == (1000, UNITS)


def test_configuration_that_is_not_json_is_not_taken_for_clean(store: Path) -> None:
    with opened_rows(store / "config" / "topics") as database:
        database.get_column_family("default")[b"Order_11"] = b'{"perm":'
    report = look(store)
    assert dict(report.findings.counts) == {"CFG-UNKNOWN-TOPICS": 1}
    assert (report.exit_code, report.unchecked) == (1, ["config/topics/: 1 row of topics cannot be read"])


def test_without_the_extra_everything_in_rocksdb_is_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    without_extra(monkeypatch)
    report = look(unpack(STORE))
    assert (report.exit_code, report.queues, dict(report.findings.counts)) == (4, {}, {})
    assert [text.partition(":")[0] for text in sorted(report.unchecked)] == [
        "config/consumerOffsets/",
        "config/subscriptionGroups/",
        "config/topics/",
        "consumequeue/",
    ]
    assert "rocksdict>=0.3.24" in " ".join(report.unchecked)


def test_a_damaged_block_is_one_finding_and_no_missing_units(store: Path) -> None:
    table = max((store / "consumequeue").glob("*.sst"), key=lambda p: p.stat().st_size)
    raw = bytearray(table.read_bytes())
    raw[100] ^= 0xFF
    table.write_bytes(raw)
    report = look(store)
    assert (report.exit_code, dict(report.findings.counts), report.unchecked) == (1, {"CQ-ROCKSDB": 1}, [])
    [finding] = report.findings.listed
    assert "block checksum mismatch" in str(finding.facts["reason"])
    assert finding.facts["messages"] == 292


_DAMAGED = sorted(
    p.relative_to(unpack(STORE)).as_posix()
    for pattern in ("consumequeue/*", "config/topics/*", "config/consumerOffsets/*")
    for p in unpack(STORE).glob(pattern)
    if p.is_file() and p.name not in ("LOCK", "IDENTITY") and not p.name.startswith("OPTIONS")
)


@pytest.mark.quick_rows
@pytest.mark.quick_rows(9)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", _DAMAGED)
def test_any_damage_of_a_database_is_reported(store: Path, tmp_path: Path, name: str, seed: int) -> None:
    path, chance = store / name, random.Random(f"{name} {fresh(seed)}")
    raw = bytearray(path.read_bytes())
    if seed == 0:
        path.unlink()
    elif seed == 1:
        path.write_bytes(raw[: len(raw) // 2])
    elif seed == 2:
        path.write_bytes(chance.randbytes(len(raw)))
    else:
        for _ in range(seed):
            if raw:
                raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        path.write_bytes(raw)
    with assert_untouched(store):
        report = look(store)
    assert report.exit_code in (0, 1, 4)
    assert report.exit_code == 0 or report.unchecked or report.findings.counts
    assert str(tmp_path) not in " ".join(report.unchecked)


def test_a_database_that_is_a_pipe_is_not_waited_for(store: Path) -> None:
    table = max((store / "consumequeue").glob("*.sst"))
    table.unlink()
    os.mkfifo(table)
    report = look(store)
    assert (report.exit_code, dict(report.findings.counts)) == (1, {"CQ-ROCKSDB": 1})
    answer = run("recover", str(store), "--apply")
    assert (answer.exit_code, "move it away by hand" in answer.output) == (5, True)


def test_the_command_that_cures_it_is_named(tmp_path: Path) -> None:
    report = changed(tmp_path, lambda rows: rows.drop(TOPIC, QUEUE, 5))
    finding = report.to_json()["findings"][0]
    command = f"rmqstore recover {tmp_path / STORE}"
    assert (finding["code"], finding["remedy"], finding["next"]) == ("CQ-MISSING-UNIT", "recover", command)


def test_a_database_without_its_store_is_not_taken_for_clean() -> None:
    report = look(unpack(STORE) / "consumequeue")
    assert (report.exit_code, report.unchecked) == (
        4,
        [
            "consumequeue/: a RocksDB is checked as a part of its whole store only",
            "consumequeue was checked without a log, so not against messages",
        ],
    )


def test_a_batch_has_one_row_and_its_topic_is_not_called_clean(tmp_path: Path) -> None:
    """Observed with whole brokers of 5.4.0: there is one row at the first queue offset of each batch, then a gap.

    Such a broker read only 5 messages from the two queues of a store with 16 batches.
    """
    store = copy_store("5.4.0-formats", tmp_path)
    for directory in ("consumequeue", "batchconsumequeue"):
        shutil.rmtree(store / directory)
    conf = write_broker_conf("5.4.0-formats", store, storeType="defaultRocksDB")
    assert run("rebuild", str(store), "cq", "-c", str(conf), "--apply").exit_code in (0, 4)
    batches = ["BatchCq_11: a broker with its queues in RocksDB does not deliver all messages of a batch topic"]
    report = verify(open_store(store, BrokerConfig.read(conf)), VerifyOptions(jobs=1))
    assert (report.exit_code, dict(report.findings.counts)) == (4, {})
    assert [reason.partition(" (")[0] for reason in report.unchecked] == batches
    assert report.queues["BatchCq_11/0"].max <= report.queues["BatchCq_11/0"].expected_max
    with changing(store) as rows:
        rows.drop("BatchCq_11", 0, 0)
    damaged = run_json("verify", str(store), "-c", str(conf), exit_code=1)
    assert damaged["counts"] == {"BCQ-MISSING-UNIT": 1}
    done = json.loads(run("recover", str(store), "-c", str(conf), "--apply", "--json").stdout)
    assert (done["applied"], done["loss"]["messages"], done["remaining"]["counts"]) == (True, 0, {})
    with changing(store) as rows:  # between the first queue offsets of two batches
        rows.put("BatchCq_11", 0, 1, commitlog_offset=rows.get("BatchCq_11", 0, 0)["commitlog_offset"], size=100)
    damaged = run_json("verify", str(store), "-c", str(conf), exit_code=1)
    assert damaged["counts"] == {"BCQ-DANGLING-UNIT": 1}
    done = json.loads(run("recover", str(store), "-c", str(conf), "--apply", "--json").stdout)
    assert (done["applied"], done["loss"]["messages"], done["remaining"]["counts"]) == (True, 0, {})
