"""Slots of the timer wheel and chains of the timer log, as they will be after the next start.

A broker delivers the units of a slot backwards from the slot's last position. A start relinks only the units at the
end of the timer log (from one file size before the flushed position on). A slot whose units are all older does not
change, nor does one whose positions both point beyond the end.

The first position and the count of a slot are not checked: a start uses the first position only to decide how far back
it relinks, and counts are a metric that no start corrects after a crash.

Source: TimerMessageStore#recover, #recoverAndRevise, #dequeue, TimerWheel#reviseSlot, #checkPhyPos, #getSlot
(RocketMQ 5.1.4 and 5.4.0)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rmqstore.files.files import Files
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from rmqstore.files.store import Store
from rmqstore.formats import timer
from rmqstore.formats.message import BLANK_MAGIC
from rmqstore.scan.kernels import I64, Bool, leading
from rmqstore.scan.units import file_chunks

SLOTS = 2 * timer.DEFAULT_SLOTS

_UNIT = timer.LOG_UNIT
_SLOT = timer.WHEEL_SLOT
_SAMPLE = 32  # units that are read to determine the precision
_COMMON = 1024  # units whose times are compared to determine the precision
_NONE = -1


@dataclass(slots=True)
class Wheel:
    """Used slots of a wheel file; `flushed`: the position in the timer log in a snapshot's name (bytes), else None.

    Shape: numbers, time, first, last (slots used,). Units: time in ticks of the precision, positions in bytes.
    """

    path: Path
    flushed: int | None
    numbers: I64
    time: I64
    first: I64
    last: I64


@dataclass(slots=True)
class Judged:
    """Wrong slots by number, and units with a wrong link to the previous unit.

    Shape: lost, foreign, behind (slots,); rows (SLOTS,); at, prev, link (units,). Units: at, prev (correct link) and
    link (actual link) are positions in the timer log, bytes.
    """

    wheel: Wheel
    lost: I64
    """Slots whose units would not all be read."""
    foreign: I64
    """Slots without units that lead to units of other slots."""
    behind: I64
    """Slots without units that point after the end of the timer log."""
    messages: int
    """Number of units of the lost slots; some of them may still be read."""
    rows: Any
    """The slots according to the timer log; empty ones are zero."""
    at: I64
    prev: I64
    link: I64
    unlinked: int
    """Number of units before such a link in their slot; some of them may still be read."""
    waiting: int
    """Number of units that are still to be read."""

    @property
    def endless(self) -> bool:
        """Whether a link leads to its own unit or forward: reading that slot never ends."""
        return bool((self.link >= self.at).any())

    @property
    def slots(self) -> I64:
        """All wrong slots, in order."""
        return np.sort(np.concatenate([self.lost, self.foreign, self.behind]))


@dataclass(slots=True)
class _TimerLogSlots:
    """The slots that are still to be read, according to the timer log.

    Shape: first, last, count, units, unlinked (SLOTS,). Units: positions in bytes, -1 for none.
    """

    oldest: int
    """The first tick that is still to be read."""
    precision: int
    start: int
    first: I64 = field(default_factory=lambda: np.full(SLOTS, _NONE, dtype=np.int64))
    last: I64 = field(default_factory=lambda: np.full(SLOTS, _NONE, dtype=np.int64))
    count: I64 = field(default_factory=lambda: np.zeros(SLOTS, dtype=np.int64))
    units: I64 = field(default_factory=lambda: np.zeros(SLOTS, dtype=np.int64))
    unlinked: I64 = field(default_factory=lambda: np.zeros(SLOTS, dtype=np.int64))
    """The number of units before the last wrong link of the slot."""
    wrong: list[tuple[I64, I64, I64]] = field(default_factory=list)

    def tick(self, numbers: I64) -> I64:
        """Return the tick of each slot, among those still to be read."""
        return self.oldest + (numbers - self.oldest) % SLOTS

    def add(self, at: int, units: Any) -> None:
        """Add consecutive units, the first at `at`, to their slots, and check their links to the previous unit."""
        due = due_times(units)
        tick = due // self.precision
        mine = np.flatnonzero((tick >= self.oldest) & (tick < self.oldest + SLOTS))
        if not len(mine):
            return
        mine = mine[np.argsort(tick[mine], kind="stable")]
        position, number = at + mine * _UNIT.size, tick[mine] % SLOTS
        head = np.ones(len(mine), dtype=np.bool_)
        head[1:] = number[1:] != number[:-1]
        before = np.empty_like(position)
        before[1:] = position[:-1]
        before[head] = self.last[number[head]]
        link = units["prev_pos"][mine].astype(np.int64)
        order = np.arange(len(mine))
        rank = self.units[number] + order - np.maximum.accumulate(np.where(head, order, 0))  # within its slot
        expired = (before == _NONE) & (link >= 0) & (link < self.start)
        bad = np.flatnonzero((link != before) & ~expired)
        if len(bad):
            bad = bad[np.argsort(position[bad])]
            self.wrong.append((position[bad], before[bad], link[bad]))
            self.unlinked[number[bad]] = rank[bad]
        new = head & (before == _NONE)
        self.first[number[new]] = position[new]
        tail = np.append(head[1:], True)
        self.last[number[tail]] = position[tail]
        self.units[number[tail]] = rank[tail] + 1
        step = np.where(units["magic"][mine].astype(np.int64) & timer.MAGIC_DELETE, -1, 1)
        np.add.at(self.count, number, step)

    def rows(self) -> Any:
        """Return the slots that lead to these units."""
        rows = np.zeros(SLOTS, dtype=_SLOT.dtype)
        used = np.flatnonzero(self.last != _NONE)
        rows["time"][used] = self.tick(used)
        rows["first_pos"][used], rows["last_pos"][used] = self.first[used], self.last[used]
        rows["num"][used] = self.count[used]
        return rows


def _good(units: Any) -> Bool:
    """Return which units recovery accepts, and which refer to a message."""
    magic = units["magic"].astype(np.int64)
    taken: Bool = (units["size"] == _UNIT.size) & (magic > 0) & (magic <= 0xF)
    taken &= (units["commitlog_offset"] >= 0) & (units["message_size"] > 0)
    return taken


def good_chunks(file: MappedFile) -> Iterator[tuple[int, Any, Any]]:
    """Yield (position of the first, good units, the first invalid unit or None) of a file, up to the invalid unit."""
    at = file.start
    for chunk in file_chunks(file, _UNIT):
        if chunk.start != at:
            return
        taken = _good(chunk.units)
        n = leading(taken)
        yield at, chunk.units[:n], chunk.units[n] if n < len(taken) else None
        if n < len(taken):
            return
        at += n * _UNIT.size


def due_times(units: Any) -> I64:
    """Return when the messages of units of the timer log are due (ms)."""
    due: I64 = units["write_time"].astype(np.int64) + units["delayed_time"].astype(np.int64)
    return due


def good_units(queue: MappedFileQueue) -> Iterator[tuple[int, Any]]:
    """Yield (position of the first, units) of the good units without gaps from the first file on."""
    for i, file in enumerate(queue.files):
        if i and queue.files[i - 1].stop != file.start:
            return
        at, closed = file.start, False
        for start, units, _ in good_chunks(file):
            yield start, units
            at = start + len(units) * _UNIT.size
        if at + timer.LOG_BLANK.size <= file.stop:
            raw = file.read_at(timer.LOG_BLANK.size, at - file.start).ljust(timer.LOG_BLANK.size, b"\0")
            closed = timer.LOG_BLANK.parse(raw)["magic"] == BLANK_MAGIC
        if not closed and at + _UNIT.size <= file.stop:
            return


def read_wheel(store: Store) -> Wheel | None:
    """Return the wheel that a start loads; None if its length stops the broker, or if it cannot be read.

    A missing wheel counts as empty. A start loads the newest snapshot (5.4.0) if the configuration enables snapshots;
    without a configuration, they count as enabled.
    """
    path, flushed = store.root / "timerwheel", None
    if not store.config.given or store.config.given.get("timerWheelSnapshotFlush") == "true":
        numbers = [at for name in store.top if (at := timer.snapshot_position(name)) is not None]
        if numbers:
            flushed = max(numbers)
            path = store.root / f"timerwheel.{flushed}"
    entry = store.top.get(path.name)
    parts: list[I64] = []
    found: list[Any] = []
    if entry is not None and entry.length:
        if entry.directory or entry.length != timer.wheel_size():
            return None
        for start, slots in _used(store.files, path):
            used = np.flatnonzero((slots["time"] != 0) | (slots["first_pos"] != 0) | (slots["last_pos"] != 0))
            parts.append(start + used)
            found.append(slots[used])
    rows = np.concatenate(found) if found else np.zeros(0, dtype=_SLOT.dtype)
    numbers_used = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
    time, first, last = (rows[name].astype(np.int64) for name in ("time", "first_pos", "last_pos"))
    return Wheel(path, flushed, numbers_used, time, first, last)


def _used(files: Files, path: Path) -> Iterator[tuple[int, Any]]:
    """Yield (number of the first, slots) of the data extents of the file."""
    try:
        file = files.open(path)
    except OSError:
        return
    try:
        at = 0
        for low, high in file.data_extents(0, timer.wheel_size()):
            at = max(at, low // _SLOT.size * _SLOT.size)
            stop = -(-high // _SLOT.size) * _SLOT.size
            slots = _SLOT.array(file.read(max(0, stop - at), at))
            yield at // _SLOT.size, slots
            at = stop
    except OSError:
        return
    finally:
        file.close()


def precision(store: Store, queue: MappedFileQueue | None, wheel: Wheel | None) -> int:
    """Return timerPrecisionMs: as configured, else derived from slots and their units, else from units alone."""
    given = store.config.given_int("timerPrecisionMs")
    if given is not None and given > 0:
        return given
    shown: Counter[int] = Counter()
    if queue is not None and wheel is not None:
        for k in np.argsort(wheel.last)[::-1][:_SAMPLE].tolist():
            raw = queue.pread(_UNIT.size, int(wheel.last[k])) if queue.find(int(wheel.last[k])) else b""
            if len(raw) < _UNIT.size or wheel.time[k] <= 0:
                continue
            unit = _UNIT.unpack(raw)
            due = unit["write_time"] + unit["delayed_time"]
            ms = due // int(wheel.time[k])
            if unit["size"] == _UNIT.size and ms > 0 and due // ms == wheel.time[k]:
                shown[ms] += 1
    if shown:
        return shown.most_common(1)[0][0]
    return _of_units(queue) if queue is not None else timer.DEFAULT_PRECISION


def _of_units(queue: MappedFileQueue) -> int:
    """Return the common divisor of the times of the first units (ms), which are rounded to the precision."""
    for _, units in good_units(queue):
        some = units[:_COMMON]
        both = np.concatenate([some["write_time"].astype(np.int64), some["delayed_time"].astype(np.int64)])
        common = int(np.gcd.reduce(both)) if len(both) else 0
        if common > 0:
            return min(common, timer.DEFAULT_PRECISION)
    return timer.DEFAULT_PRECISION


def judge(store: Store, queue: MappedFileQueue) -> Judged | None:
    """Return what is wrong after the next start; None if unknown: no read time, or a wheel that no start loads."""
    values = timer.parse_timercheck(store.files.read_at(store.root / "config" / "timercheck", timer.TIMERCHECK.size, 0))
    wheel = read_wheel(store)
    if values["last_read_time"] <= 0 or wheel is None or not queue.files:
        return None
    ms = precision(store, queue, wheel)
    log = _TimerLogSlots(values["last_read_time"] // ms, ms, queue.start)
    end = queue.start
    for at, units in good_units(queue):
        log.add(at, units)
        end = at + len(units) * _UNIT.size
    flushed = values["last_timer_log_flush_pos"] if wheel.flushed is None else wheel.flushed
    time, last = _started(wheel, log, queue, max(0, flushed - queue.file_size), end)
    numbers = np.flatnonzero((log.last != _NONE) | (time != 0))
    now, due = time[numbers] == log.tick(numbers), log.last[numbers] != _NONE
    there = last[numbers]
    lost = numbers[due & ~(now & (there == log.last[numbers]))]
    stray = now & ~due & (there >= queue.start)
    none = np.zeros(0, dtype=np.int64)
    wrong_at, prev, link = (np.concatenate([none, *(part[k] for part in log.wrong)]) for k in range(3))
    return Judged(
        wheel,
        lost,
        numbers[stray & (there < end)],
        numbers[stray & (there >= end)],
        int(np.abs(log.count[lost]).sum()),
        log.rows(),
        wrong_at,
        prev,
        link,
        int(log.unlinked.sum()),
        int(log.units.sum()),
    )


def _started(wheel: Wheel, log: _TimerLogSlots, queue: MappedFileQueue, begin: int, end: int) -> tuple[I64, I64]:
    """Return time and last position of all slots after a start, which relinks from the file of `begin` on.

    If slots still point beyond the end, the start relinks again, from the file with the first of their positions on.
    """
    time, first, last = (np.zeros(SLOTS, dtype=np.int64) for _ in range(3))
    time[wheel.numbers], first[wheel.numbers], last[wheel.numbers] = wheel.time, wheel.first, wheel.last

    def link(position: int) -> None:
        start = max((f.start for f in queue.files if f.start <= position), default=queue.start)
        mine = np.flatnonzero(log.last >= start)
        tick = log.tick(mine)
        new = time[mine] != tick
        first[mine[new]] = np.maximum(log.first[mine[new]], start)
        time[mine], last[mine] = tick, log.last[mine]

    link(begin)
    used = np.flatnonzero(time)
    ahead = used[(time[used] == log.tick(used)) & (last[used] > end)]
    if len(ahead) and int(first[ahead].min()) < end:
        link(int(first[ahead].min()))
    return time, last
