"""Timer log, wheel and timercheck; compaction files."""

from __future__ import annotations

import os
import shutil
import time
from functools import partial
from pathlib import Path

import pytest

from rmqstore.checks.beside.compaction import check_compaction
from rmqstore.checks.beside.timer import LogRange, TimerFacts, check_lost_timer, check_timer, judge, next_to_enqueue
from rmqstore.checks.examine import verify
from rmqstore.checks.problems.report import Findings
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import Store, open_store
from rmqstore.formats import timer
from rmqstore.formats.compaction import SPARSE_END
from rmqstore.formats.properties import parse_properties
from tests.checks.sound import located, opened, queue_range
from tests.damage import copy_span, cut, flip, garble, grow, overwrite, zero
from tests.repair.salvaging import rows
from tests.stores import STORES, copy_store, unpack

STORE = "5.4.0-formats"

LOG = "00000000000000000000"
UNITS = 129
END = UNITS * 52
ALL = LogRange(0, 1 << 40)


def check(store: Store, log: LogRange = ALL, *, live: bool = False) -> tuple[Findings, TimerFacts]:
    findings = Findings()
    facts = check_timer(store, log, findings, queue_range=lambda topic, qid: queue_range(store, topic, qid), live=live)
    return findings, facts


@pytest.mark.quick_rows(15)
@pytest.mark.parametrize("name", STORES)
def test_a_real_timer_is_sound(name: str) -> None:
    findings, facts = check(opened(name))
    assert findings.listed == []
    assert (facts.units, facts.wrote) == (written_units(name), written_units(name) * 52)


def written_units(name: str) -> int:
    """Return the number of units in the timer log of a fixture: 52 bytes each, the first of which are their size."""
    files = sorted((unpack(name) / "timerlog").glob("*"))
    raw = files[0].read_bytes() if files else b""
    assert len(files) <= 1
    return next((at for at in range(len(raw) // 52) if raw[at * 52 : at * 52 + 4] != bytes((0, 0, 0, 52))), 0)


@pytest.mark.parametrize("at", [0, 3, 12, 14, 28, 36])
def test_a_damaged_unit_stops_the_timer_log(store: Path, at: int) -> None:
    flip(store / "timerlog" / LOG, 20 * 52 + at, 7)
    findings, facts = check(open_store(store))
    assert [f for f in located(findings) if f[0] == "TM-LOG"] == [("TM-LOG", "timerlog", LOG, 20 * 52)]
    assert facts.wrote == 20 * 52


def test_zeros_in_the_middle_stop_the_timer_log(tmp_path: Path) -> None:
    store = copy_store("5.1.4-formats", tmp_path)
    zero(store / "timerlog" / LOG, 520, 104)
    findings, _ = check(open_store(store))
    assert located(findings)[0] == ("TM-LOG", "timerlog", LOG, 520)


def test_bytes_after_the_end_are_damage_but_not_beside_a_live_broker(store: Path) -> None:
    overwrite(store / "timerlog" / LOG, END + 100, b"\1")
    findings, facts = check(open_store(store))
    assert located(findings) == [("TM-LOG", "timerlog", LOG, END)]
    assert findings.listed[0].length == 101
    assert facts.wrote == END
    assert check(open_store(store), live=True)[0].listed == []


def test_a_blank_ends_a_file_and_the_next_file_follows(tmp_path: Path) -> None:
    size = 52 * 4 + 30
    unit = timer.LOG_UNIT.build(prev_pos=-1, magic=1, message_size=100)
    first = unit * 3 + timer.LOG_BLANK.build(size=size - 156)
    (tmp_path / "timerlog").mkdir()
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "timercheck").write_bytes(bytes(4096))
    (tmp_path / "timerlog" / LOG).write_bytes(first.ljust(size, b"\0"))
    (tmp_path / "timerlog" / f"{size:020}").write_bytes(unit.ljust(size, b"\0"))
    findings, facts = check(open_store(tmp_path))
    assert findings.listed == []
    assert (facts.units, facts.wrote) == (4, size + 52)
    (tmp_path / "timerlog" / LOG).write_bytes((unit * 3).ljust(size, b"\0"))
    assert located(check(open_store(tmp_path))[0]) == [("TM-LOG", "timerlog", LOG, 156)]


def test_units_after_the_log_dangle(tmp_path: Path) -> None:
    store = open_store(copy_store("5.4.0-formats", tmp_path))
    raw = (store.root / "timerlog" / LOG).open("rb").read(END)
    offsets = timer.LOG_UNIT.array(raw)["commitlog_offset"].tolist()
    cut_at = sorted(offsets)[100]
    findings, _ = check(store, LogRange(0, cut_at))
    first = next(i for i, o in enumerate(offsets) if o >= cut_at)
    assert located(findings) == [("TM-DANGLING", "timerlog", LOG, first * 52)]
    assert findings.listed[0].facts["count"] == UNITS - 100


@pytest.mark.parametrize("change", [-1, 32])
def test_a_wheel_of_another_length_is_named(tmp_path: Path, change: int) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    path = store / "timerwheel"
    if change < 0:
        cut(path, 38_707_199)
    else:
        grow(path, change)
    for place in (store, path):
        findings, _ = check(open_store(place))
        assert located(findings) == [("TM-WHEEL-LENGTH", "timerwheel", "timerwheel", 0)]
        assert findings.listed[0].facts == {"length": 38_707_200 + change, "expected": 38_707_200}


def test_an_empty_wheel_is_filled_by_the_broker(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    cut(store / "timerwheel", 0)
    assert check(open_store(store))[0].listed == []


def test_a_wheel_snapshot_of_another_length_is_named(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    (store / "timerwheel.6708").write_bytes(bytes(64))
    assert located(check(open_store(store))[0]) == [("TM-WHEEL-LENGTH", "timerwheel", "timerwheel.6708", 0)]


def test_a_short_timercheck_is_named(tmp_path: Path) -> None:
    store = copy_store("5.1.4-formats", tmp_path)
    cut(store / "config" / "timercheck", 100)
    assert located(check(open_store(store))[0]) == [("TM-CHECK", "config", "timercheck", 0)]


def test_a_missing_timercheck_matters_only_with_a_timer_log(tmp_path: Path) -> None:
    store = copy_store("5.1.4-formats", tmp_path)
    (store / "config" / "timercheck").unlink()
    assert located(check(open_store(store))[0]) == [("TM-CHECK", "config", "timercheck", 0)]
    assert check(opened("4.9.7-clean"))[0].listed == []


@pytest.mark.parametrize(
    ("at", "value", "field"),
    [
        (8, END + 52, "last_timer_log_flush_pos"),
        (16, UNITS + 1, "last_timer_queue_offset"),
        (16, -1, "last_timer_queue_offset"),
        (24, -9, "master_timer_queue_offset"),
    ],
)
def test_positions_of_timercheck_after_the_end_are_named(store: Path, at: int, value: int, field: str) -> None:
    overwrite(store / "config" / "timercheck", at, value.to_bytes(8, "big", signed=True))
    findings, _ = check(open_store(store))
    assert located(findings) == [("TM-CHECK", "config", "timercheck", at)]
    assert findings.listed[0].facts["field"] == field


def test_read_time_in_the_future_is_named(store: Path) -> None:
    path = store / "config" / "timercheck"
    for seconds, found in ((30, []), (90, [("TM-CHECK", "config", "timercheck", 0)])):
        overwrite(path, 0, round((time.time() + seconds) * 1000).to_bytes(8, "big"))
        findings, _ = check(open_store(store))
        assert located(findings) == found
    assert findings.listed[0].facts["reason"] == "in the future"
    later = time.time() + 90
    os.utime(path, (later, later))  # the clock of this machine is behind that of the broker
    assert located(check(open_store(store))[0]) == []


def test_a_slave_may_know_more_of_the_timer_queue_than_it_has(store: Path) -> None:
    overwrite(store / "config" / "timercheck", 16, (UNITS + 9).to_bytes(8, "big"))
    assert "TM-CHECK" in verify(open_store(store)).findings.counts
    slave = open_store(store, BrokerConfig({"brokerRole": "SLAVE"}))
    assert "TM-CHECK" not in verify(slave).findings.counts


@pytest.mark.parametrize(("name", "waiting"), [("5.4.0-formats", 6), ("5.5.1-pop", 30), ("5.4.0-clean", None)])
def test_messages_that_wait_after_the_next_start_are_counted(name: str, waiting: int | None) -> None:
    store = opened(name)
    judged = judge(store, store.timer_log) if store.timer_log is not None else None
    assert (judged.waiting if judged is not None else None) == waiting


def timed(store: Path) -> list[tuple[int, int]]:
    """Return (global offset, due time in ms) of the messages that the units of the timer log of a store name."""
    raw = (store / "timerlog" / LOG).read_bytes()
    units = [timer.LOG_UNIT.parse(raw, at) for at in range(0, END, 52)]
    return [(unit["commitlog_offset"], unit["write_time"] + unit["delayed_time"]) for unit in units]


def test_zeros_of_timercheck_deliver_again_what_was_due(store: Path) -> None:
    path, units = store / "config" / "timercheck", timed(store)
    due = sorted({time for _, time in units})
    overwrite(path, 0, bytes(8))
    for late in (due[3], due[3] + 1):
        findings, _ = check(open_store(store), LogRange(0, 1 << 40, 0, late + 15_000))
        (found,) = [f for f in findings.listed if f.facts.get("reason") == "zero"]
        assert (found.code, found.facts["field"]) == ("TM-CHECK", "last_read_time")
        assert found.facts["delivered_again"] == sum(time < late for _, time in units)


def test_a_zero_offset_of_the_master_enqueues_again_what_is_due_after_the_read_time(store: Path) -> None:
    path, units = store / "config" / "timercheck", timed(store)
    oldest = next(row for row in rows(store) if row.slot == ("rmq_sys_wheel_timer", 0, 0))
    read = dict(units)[oldest.offset]
    overwrite(path, 0, read.to_bytes(8, "big"))
    overwrite(path, 24, bytes(8))
    told = []
    for stored in (oldest.message.store_timestamp, oldest.message.store_timestamp + 1):
        findings, _ = check(open_store(store), LogRange(0, 1 << 40, 0, stored + 15_000))
        told.append([f.facts["delivered_again"] for f in findings.listed if f.facts.get("reason") == "zero"])
    assert told == [[], [sum(time >= read and at >= oldest.offset for at, time in units)]]


def test_timed_messages_that_were_due_are_delivered_again_without_timer_log_and_timercheck(store: Path) -> None:
    (store / "config" / "timercheck").unlink()
    shutil.rmtree(store / "timerlog")
    found = [parse_properties(row.message.properties) for row in rows(store) if row.slot[0] == "rmq_sys_wheel_timer"]
    due = sorted(int(one["TIMER_OUT_MS"]) for one in found if "TIMER_DEL_UNIQKEY" not in one)
    conf = BrokerConfig({"timerWheelEnable": "true"})
    for late in (due[3], due[3] + 1):
        findings, opened = Findings(), open_store(store, conf)
        log = LogRange(0, 1 << 40, 0, late + 2000)
        check_lost_timer(opened, log, TimerFacts(), partial(queue_range, opened), findings)
        (finding,) = findings.listed
        assert finding.code == "TM-MISSING"
        assert finding.facts == {"in_timer_queue": len(found), "delivered_again": sum(time < late for time in due)}


def test_the_next_message_to_enqueue_follows_the_last_whole_unit(tmp_path: Path) -> None:
    store = open_store(copy_store("5.4.0-formats", tmp_path))
    assert store.timer_log is not None
    ends = (0, 51, 52, 103, 104, END, None)
    assert [next_to_enqueue(store, store.timer_log, end) for end in ends] == [None, None, 1, 1, 2, UNITS, UNITS]


@pytest.mark.parametrize("part", ["timerlog", "timerwheel", "config/timercheck"])
def test_a_part_is_checked_alone(part: str) -> None:
    assert check(open_store(opened("5.4.0-formats").root / part))[0].listed == []


# --- compaction -----------------------------------------------------------------------------------------------------


def compaction(path: Path, *, live: bool = False) -> Findings:
    findings = Findings()
    check_compaction(open_store(path), findings, live=live)
    return findings


def halves(store: Path) -> tuple[Path, Path]:
    below = store / "compaction"
    return below / "compactionLog" / "Compact_11" / "0", below / "compactionCq" / "Compact_11" / "0"


@pytest.mark.parametrize("name", STORES)
def test_real_compacted_queues_are_sound(name: str) -> None:
    findings = Findings()
    count = check_compaction(opened(name), findings)
    assert findings.listed == []
    assert count == (1 if name.endswith("-formats") else 0)


def test_file_names_of_both_halves_must_be_equal(store: Path) -> None:
    _, queue = halves(store)
    (queue / LOG).unlink()
    findings = compaction(store)
    assert located(findings) == [("TM-COMPACTION", "Compact_11/0", LOG, 0)]
    assert findings.listed[0].facts == {"reason": "missing", "in": "compactionCq"}
    assert compaction(store, live=True).listed == []


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    store = copy_store("5.1.4-formats", tmp_path)
    log, _ = halves(store)
    garble(log / LOG, 4 * 263 + 90, 4)
    findings = compaction(store)
    assert located(findings)[0] == ("TM-COMPACTION", "Compact_11/0", LOG, 4 * 263)
    assert findings.listed[0].facts["fault"] == "BODY_CRC"


def test_a_unit_that_points_to_no_record_is_named(tmp_path: Path) -> None:
    store = copy_store("5.1.4-formats", tmp_path)
    _, queue = halves(store)
    flip(queue / LOG, 5 * 46 + 7)
    findings = compaction(store)
    assert located(findings) == [("TM-COMPACTION", "Compact_11/0", LOG, 5 * 46)]
    assert findings.listed[0].facts == {"reason": "unit", "in": "compactionCq", "count": 1}


def test_units_out_of_order_are_named(tmp_path: Path) -> None:
    store = copy_store("5.1.4-formats", tmp_path)
    _, queue = halves(store)
    copy_span(queue / LOG, 3 * 46, 5 * 46, 46)
    findings = compaction(store)
    assert located(findings) == [("TM-COMPACTION", "Compact_11/0", LOG, 5 * 46)]
    assert findings.listed[0].facts["reason"] == "order"


def test_an_end_marker_closes_a_compacted_queue_file(store: Path) -> None:
    _, queue = halves(store)
    overwrite(queue / LOG, 20 * 46, SPARSE_END)
    assert compaction(store).listed == []
    overwrite(queue / LOG, 20 * 46 + 3, b"\0")
    assert located(compaction(store)) == [("TM-COMPACTION", "Compact_11/0", LOG, 20 * 46)]


def test_work_directories_are_normal_and_other_entries_are_not(store: Path) -> None:
    log, _ = halves(store)
    (log / "compacting").mkdir()
    assert compaction(store).listed == []
    (log / "notes.txt").write_text("x")
    assert located(compaction(store)) == [("TM-COMPACTION", "Compact_11/0", "notes.txt", 0)]
