"""Slots of the timer wheel and chains of the timer log: only errors that a broker start does not correct are found."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.checks.beside.timer import LogRange, check_timer, judge, precision, read_wheel
from rmqstore.checks.problems.report import Findings
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from rmqstore.formats import timer
from tests.command import run_json
from tests.damage import overwrite

FILE = 52 * 9 + 52  # 9 units and a BLANK
START = 1_795_000_000  # s
UNITS = 45
OLD = 18  # number of units before those that a start links again


class Timer:
    """A timer log of small files and its wheel: unit k is due `k % 6` ticks after START, `6 + k % 3` from OLD on."""

    def __init__(self, root: Path, *, ms: int = 1000, skip: int = 0) -> None:
        self.root, self.ms = root, ms
        self.base = START * 1000 // ms
        for name in ("commitlog", "config", "timerlog"):
            (root / name).mkdir()
        last: dict[int, int] = {}
        first: dict[int, int] = {}
        log = bytearray()
        for k in range(UNITS):
            if k and k % 9 == 0:
                log += timer.LOG_BLANK.build(size=52).ljust(52, b"\0")
            log += timer.LOG_UNIT.build(
                prev_pos=last.get(self.tick(k), -1),
                magic=1,
                write_time=START * 1000 - 5 * ms,
                delayed_time=(self.tick(k) + 5) * ms,
                commitlog_offset=1000 * k,
                message_size=100,
            )
            last[self.tick(k)] = self.at(k)
            first.setdefault(self.tick(k), self.at(k))
        for n in range(skip * FILE, len(log), FILE):
            (root / "timerlog" / f"{n:020d}").write_bytes(bytes(log[n : n + FILE].ljust(FILE, b"\0")))
        with (root / "timerwheel").open("wb") as wheel:
            wheel.truncate(timer.wheel_size())
        for tick, position in last.items():
            self.slot(tick, first[tick], position)
        self.check()

    @staticmethod
    def tick(k: int) -> int:
        return k % 6 if k < OLD else 6 + k % 3

    @staticmethod
    def at(k: int) -> int:
        return k // 9 * FILE + k % 9 * 52

    @property
    def end(self) -> int:
        return self.at(UNITS - 1) + 52

    def slot(self, tick: int, first: int, last: int, *, name: str = "timerwheel", time: int | None = None) -> None:
        at = (self.base + tick) % (2 * timer.DEFAULT_SLOTS) * 32
        slot = timer.WHEEL_SLOT.build(time=self.base + (tick if time is None else time), first_pos=first, last_pos=last)
        overwrite(self.root / name, at, slot)

    def check(self, *, read: int = START * 1000, flushed: int | None = None) -> None:
        check = timer.TIMERCHECK.build(
            last_read_time=read, last_timer_log_flush_pos=self.end if flushed is None else flushed
        )
        (self.root / "config" / "timercheck").write_bytes(check.ljust(4096, b"\0"))

    def prev(self, k: int, value: int) -> None:
        path = self.root / "timerlog" / f"{self.at(k) // FILE * FILE:020d}"
        overwrite(path, self.at(k) % FILE + 4, value.to_bytes(8, "big", signed=True))

    def found(self, **given: str) -> dict[tuple[str, object], int]:
        store = open_store(self.root, BrokerConfig(given) if given else None)
        findings = Findings()
        check_timer(store, None, findings)
        out: dict[tuple[str, object], int] = {}
        for f in findings.listed:
            count = f.facts["count"]
            assert isinstance(count, int)
            out[f.code, f.facts.get("reason")] = count
        return out


@pytest.fixture
def made(tmp_path: Path) -> Timer:
    return Timer(tmp_path)


def test_a_wheel_as_it_was_written_is_sound(made: Timer) -> None:
    assert made.found() == {}


@pytest.mark.parametrize("ms", [100, 1000, 10])
def test_the_precision_is_learned_from_the_slots(tmp_path: Path, ms: int) -> None:
    made = Timer(tmp_path, ms=ms)
    store = open_store(made.root)
    assert precision(store, store.timer_log, read_wheel(store)) == ms
    assert made.found() == {}
    made.slot(1, 52, 52)
    assert made.found() == {("TM-WHEEL-SLOT", "lost"): 1}


@pytest.mark.parametrize("ms", [100, 1000])
def test_recover_writes_slots_of_the_precision_that_units_have(tmp_path: Path, ms: int) -> None:
    made = Timer(tmp_path, ms=ms)
    slots = [(made.base + tick) % (2 * timer.DEFAULT_SLOTS) for tick in range(9)]
    before = timer.WHEEL_SLOT.array((made.root / "timerwheel").read_bytes())["last_pos"][slots]
    overwrite(made.root / "timerlog" / f"{4 * FILE:020d}", 8 * 52 + 12, b"\1")  # the last unit: it is due at tick 8
    run_json("recover", str(made.root), "--apply", "--only", "TM-LOG", exit_code=0)
    after = timer.WHEEL_SLOT.array((made.root / "timerwheel").read_bytes())["last_pos"][slots]
    assert (after[:8] == before[:8]).all()
    assert after[8] == made.at(UNITS - 1 - 3)
    (made.root / "timerwheel").write_bytes(b"x")
    run_json("recover", str(made.root), "--apply", "--only", "TM-WHEEL-LENGTH", exit_code=0)
    again = timer.WHEEL_SLOT.array((made.root / "timerwheel").read_bytes())["last_pos"][slots]
    assert (again == after).all()


def test_units_of_expired_files_may_be_missing(tmp_path: Path) -> None:
    assert Timer(tmp_path, skip=1).found() == {}


DAMAGES: dict[str, tuple[Callable[[Timer], None], dict[tuple[str, object], int]]] = {
    "emptied": (lambda t: t.slot(0, 0, 0, time=-START), {("TM-WHEEL-SLOT", "lost"): 1}),
    "another turn of the wheel": (
        lambda t: t.slot(0, 0, t.at(12), time=-2 * timer.DEFAULT_SLOTS),
        {("TM-WHEEL-SLOT", "lost"): 1},
    ),
    "not the last unit": (lambda t: t.slot(1, t.at(1), t.at(7)), {("TM-WHEEL-SLOT", "lost"): 1}),
    "not at a unit": (lambda t: t.slot(1, t.at(1), t.at(13) + 26), {("TM-WHEEL-SLOT", "lost"): 1}),
    "after the end": (lambda t: t.slot(2, t.end, t.end + 52), {("TM-WHEEL-SLOT", "lost"): 1}),
    "after the end, and the first position leads back": (lambda t: t.slot(2, t.at(2), t.end + 52), {}),
    "another time's unit": (lambda t: t.slot(3, t.at(3), t.at(16)), {("TM-WHEEL-SLOT", "lost"): 1}),
    "no unit is due": (lambda t: t.slot(9, t.at(3), t.at(15)), {("TM-WHEEL-SLOT", "foreign"): 1}),
    "no unit is due, right after the end": (lambda t: t.slot(9, t.end, t.end), {("TM-WHEEL-SLOT", "after the end"): 1}),
    "no unit is due, in an expired file": (lambda t: t.slot(9, -52, -52), {}),
    "linked again by the start": (lambda t: t.slot(7, 0, 0, time=-START), {}),
    "already read": (lambda t: t.slot(-1, 0, t.end + 52), {}),
    "wrong count and first position": (lambda t: t.slot(4, t.at(8), t.at(16)), {}),
    "chain ends early": (lambda t: t.prev(10, -1), {("TM-CHAIN", None): 1}),
    "chain leads to itself": (lambda t: t.prev(10, t.at(10)), {("TM-CHAIN", None): 1}),
    "chain leads ahead": (lambda t: t.prev(4, t.at(10)), {("TM-CHAIN", None): 1}),
    "chain leaves a unit out": (lambda t: t.prev(14, t.at(2)), {("TM-CHAIN", None): 1}),
    "chain leads into another one": (lambda t: t.prev(4, t.at(3)), {("TM-CHAIN", None): 1}),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_a_start_leaves_wrong_is_named(made: Timer, name: str) -> None:
    change, expected = DAMAGES[name]
    change(made)
    assert made.found() == expected


def test_slots_that_were_already_read_are_ignored(made: Timer) -> None:
    made.slot(0, 0, 0, time=-START)
    made.prev(6, 3)
    made.check(read=(START + 1) * 1000)
    assert made.found() == {}


def test_a_missing_wheel_is_filled_from_what_a_start_links(made: Timer) -> None:
    (made.root / "timerwheel").unlink()
    assert made.found() == {("TM-WHEEL-SLOT", "lost"): 6}
    made.check(flushed=0)
    assert made.found() == {}


def test_the_newest_snapshot_is_the_wheel_where_it_is_used(made: Timer) -> None:
    (made.root / "timerwheel").rename(made.root / f"timerwheel.{made.end}")
    (made.root / "timerwheel.52").write_bytes(bytes(timer.wheel_size()))
    assert made.found() == {}
    assert made.found(timerWheelSnapshotFlush="true", mappedFileSizeTimerLog=str(FILE)) == {}
    assert made.found(mappedFileSizeTimerLog=str(FILE)) == {("TM-WHEEL-SLOT", "lost"): 6}


@pytest.mark.quick_rows(5)
@pytest.mark.parametrize("name", [name for name, (_, expected) in DAMAGES.items() if expected])
def test_recover_writes_the_slots_that_the_log_requires(made: Timer, name: str) -> None:
    change, expected = DAMAGES[name]
    change(made)
    codes = {code for code, _ in expected}
    only = [word for code in codes for word in ("--only", code)]
    run_json("recover", str(made.root), "--apply", *only, exit_code=0)
    assert made.found() == {}
    store = open_store(made.root)
    assert store.timer_log is not None
    judged = judge(store, store.timer_log)
    assert judged is not None
    assert not len(judged.slots)


def test_a_wheel_that_is_gone_is_made_again(made: Timer) -> None:
    whole = timer.WHEEL_SLOT.array((made.root / "timerwheel").read_bytes())
    (made.root / "timerwheel").unlink()
    run_json("recover", str(made.root), "--apply", "--only", "TM-WHEEL-SLOT", exit_code=0)
    again = timer.WHEEL_SLOT.array((made.root / "timerwheel").read_bytes())
    slots = [(made.base + tick) % (2 * timer.DEFAULT_SLOTS) for tick in range(6)]
    assert (again["last_pos"][slots] == whole["last_pos"][slots]).all()
    assert (again["first_pos"][slots] == whole["first_pos"][slots]).all()
    assert (again["num"][slots] == 3).all()
    assert made.found() == {}


def test_a_read_time_in_the_future_skips_what_is_due_until_then(made: Timer) -> None:
    since = round(time.time() * 1000) + 100_000
    until = since + 10_000
    for k, due in enumerate((since, since + 1, until - 1, until)):
        overwrite(
            made.root / "timerlog" / f"{0:020d}", k * 52 + timer.LOG_UNIT.at("write_time"), due.to_bytes(8, "big")
        )
        overwrite(made.root / "timerlog" / f"{0:020d}", k * 52 + timer.LOG_UNIT.at("delayed_time"), bytes(4))
    made.check(read=until)
    findings = Findings()
    check_timer(open_store(made.root), LogRange(0, 1 << 40, since), findings)
    (found,) = [f for f in findings.listed if f.code == "TM-CHECK"]
    assert (found.facts["reason"], found.facts["messages"]) == ("in the future", 2)
