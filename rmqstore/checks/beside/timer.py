"""TM-*: timer log, timer wheel and timercheck, compared with each other, the log and the timer queue.

Slots of the wheel and chains of the timer log are judged as they will be after the next start. A broker delivers the
units of a slot backwards from the slot's last position. A start relinks only the units at the end of the timer log
(from one file size before the flushed position on). A slot whose units are all older does not change, nor does one
whose positions both point beyond the end.

The first position and the count of a slot are not checked: a start uses the first position only to decide how far back
it relinks, and counts are a metric that no start corrects after a crash.

Source: TimerMessageStore#recover, #recoverAndRevise, #dequeue, TimerWheel#reviseSlot, #checkPhyPos, #getSlot
(RocketMQ 5.1.4 and 5.4.0)
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from rmqstore.checks.beside.config import broker_has_run
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings, QueueRange
from rmqstore.files.files import Files
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue, message_at, offset_to_file_name
from rmqstore.files.store import Store, StoreKind
from rmqstore.formats import consumequeue, timer
from rmqstore.formats.javatext import parse_long
from rmqstore.formats.message import BLANK_MAGIC, Message
from rmqstore.formats.properties import TIMER_DEL_UNIQKEY, TIMER_OUT_MS, TIMER_TOPIC, parse_properties
from rmqstore.formats.ranges import Ranges
from rmqstore.scan.kernels import I64, Bool, leading, within
from rmqstore.scan.units import file_chunks, last_nonzero_in, unit_chunks
from rmqstore.texts import Text

_UNIT = timer.LOG_UNIT
_LATE = 15_000  # ms; a running broker delivers when a message is due, and writes timercheck every second
_DUE = 2_000  # ms; a running broker delivers a message at most so long after it is due
_READ = 10_000  # messages of the timer queue that are read to count those that were delivered
_AHEAD = 60_000  # ms; how far ahead of this clock, and of the time of the file, the clock of a broker may be


@dataclass(frozen=True, slots=True)
class LogRange:
    """The log that timers point into: [min_offset, wrote), bytes; its latest and its last store time (ms)."""

    min_offset: int
    wrote: int
    latest: int = 0
    last_time: int = 0


@dataclass(slots=True)
class TimerFacts:
    """Number of units in the timer log, and the offset after the last good one (bytes).

    `waiting`: units of messages that are still to be delivered, if the timer log and the wheel are sound.
    """

    units: int = 0
    wrote: int = 0
    waiting: int = 0


def check_timer(
    store: Store,
    log: LogRange | None,
    findings: Findings,
    *,
    queue_range: QueueRange | None = None,
    live: bool = False,
) -> TimerFacts:
    """Check all files of the timer. `log` and `queue_range` None: do not compare with the log, or the timer queue."""
    facts = TimerFacts()
    if store.timer_log is not None:
        _log(store.timer_log, log, findings, facts, live)
    _wheels(store, findings, live)
    if store.timer_log is not None and store.part is None and not live:
        facts.waiting = _slots(store, store.timer_log, findings)
    top = queue_range(TIMER_TOPIC, 0) if queue_range is not None else None
    _timercheck(store, facts, top, findings, live, since=log.latest if log is not None else None)
    if top is not None and log is not None and store.part is None and not live:
        _zeros(store, log, top, findings)
    return facts


# --- timer log ------------------------------------------------------------------------------------------------------


def _log(queue: MappedFileQueue, log: LogRange | None, findings: Findings, facts: TimerFacts, live: bool) -> None:
    facts.wrote = queue.start
    for file in queue.files:
        last = file is queue.files[-1]
        end = _file(file, log, findings, facts, live)
        if end.units or end.closed:
            facts.wrote = file.stop if end.closed and not last else file.start + end.at
        if end.closed or (live and last) or min(file.length, file.file_size) - end.at < _UNIT.size:
            continue
        filled = last_nonzero_in(file, 1)
        if filled is not None and filled >= end.at:
            found: dict[str, Fact] = {"size": end.size, "magic": end.magic, "behind": filled + 1 - end.at}
            if not end.at:  # a start reads the timer queue again from the unit before: without one, from its end
                found["messages"] = -(-(filled + 1) // _UNIT.size)
            findings.add(Finding(codes.TM_LOG, "timerlog", file.name, file.start + end.at, filled + 1 - end.at, found))
        elif any(last_nonzero_in(f, 1) is not None for f in queue.files if f.start > file.start):
            found = {"size": 0, "magic": 0, "behind": 0}
            findings.add(Finding(codes.TM_LOG, "timerlog", file.name, file.start + end.at, _UNIT.size, found))
    for start, stop in queue.holes():
        found = {"missing": (stop - start) // queue.file_size}
        findings.add(Finding(codes.TM_LOG, "timerlog", offset_to_file_name(start), start, stop - start, found))


@dataclass(slots=True)
class _End:
    """The end of the good units of a file: its position, their number, and the next unit's size and magic."""

    at: int = 0
    units: int = 0
    size: int = 0
    magic: int = 0

    @property
    def closed(self) -> bool:
        """Whether a BLANK closes the file there."""
        return self.magic == BLANK_MAGIC


def _file(file: MappedFile, log: LogRange | None, findings: Findings, facts: TimerFacts, live: bool) -> _End:
    """Read one file as the timer's recovery does: units of 52 bytes up to the first invalid one.

    Source: TimerMessageStore#recoverAndRevise, RocketMQ 5.4.0
    """
    end = _End()
    beyond, first, value = 0, -1, 0
    for start, units, invalid in good_chunks(file):
        if log is not None and not live:
            offset = units["commitlog_offset"].astype(np.int64)
            after = np.flatnonzero(offset >= log.wrote)
            beyond += len(after)
            if len(after) and first < 0:
                first, value = start + int(after[0]) * _UNIT.size, int(offset[after[0]])
        end.units += len(units)
        if invalid is not None:
            end.size, end.magic = int(invalid["size"]), int(invalid["magic"])
    end.at = end.units * _UNIT.size
    facts.units += end.units
    if beyond and log is not None:
        about: dict[str, Fact] = {"count": beyond, "commitlog_offset": value, "wrote": log.wrote}
        findings.add(Finding(codes.TM_DANGLING, "timerlog", file.name, first, _UNIT.size, about))
    return end


# --- wheel and timercheck -------------------------------------------------------------------------------------------


def _wheels(store: Store, findings: Findings, live: bool) -> None:
    expected = timer.wheel_size()
    if store.part == "timerwheel":
        entry = store.files.examined(store.path)
        lengths = {store.path.name: (entry.length if entry is not None else 0, False)}
    else:
        lengths = {n: (e.length, e.directory) for n, e in store.top.items() if timer.is_wheel(n)}
    for name, (length, directory) in sorted(lengths.items()):
        # the broker fills an empty file
        if length == expected or (length == 0 and not directory) or live:
            continue
        facts: dict[str, Fact] = {"length": length, "expected": expected}
        findings.add(Finding(codes.TM_WHEEL_LENGTH, "timerwheel", name, 0, length, facts))


def _slots(store: Store, queue: MappedFileQueue, findings: Findings) -> int:
    """Check slots and chains as the next start leaves them, unless the timer log or the wheel needs a repair first.

    Return the number of units that are still to be read.
    """
    if codes.TM_LOG in findings.counts or codes.TM_WHEEL_LENGTH in findings.counts:
        return 0
    judged = judge(store, queue)
    if judged is None:
        return 0
    for reason, numbers in (("lost", judged.lost), ("foreign", judged.foreign), (Text("after the end"), judged.beyond)):
        if len(numbers):
            facts: dict[str, Fact] = {"reason": reason, "count": len(numbers)}
            if reason == "lost":
                facts["messages"] = judged.messages
            at = timer.slot_at(int(numbers[0]))
            findings.add(
                Finding(codes.TM_WHEEL_SLOT, "timerwheel", judged.wheel.path.name, at, timer.WHEEL_SLOT.size, facts)
            )
    if len(judged.at):
        first = int(judged.at[0])
        facts = {
            "count": len(judged.at),
            "prev_pos": int(judged.link[0]),
            "expected": int(judged.prev[0]),
            "endless": judged.endless,
            "messages": judged.waiting if judged.endless else judged.unlinked,
        }
        findings.add(Finding(codes.TM_CHAIN, "timerlog", queue.name_at(first), first, _UNIT.size, facts))
    return judged.waiting


def latest_read_time(written: float) -> int:
    """Return the latest time (ms) up to which a broker can have read slots, if it wrote timercheck at `written` (s).

    It reads slots when they are due. After a start, it skips all slots before the time in timercheck.
    Source: TimerMessageStore#recover, #dequeue, RocketMQ 5.4.0
    """
    return round(max(time.time(), written) * 1000) + _AHEAD


def _never_read(queue: MappedFileQueue, since: int, until: int) -> int:
    """Return how many timed messages are due after `since`, and before `until`, from where a broker reads (ms)."""
    count = 0
    for _, units in good_units(queue):
        due = due_times(units)
        kept = (units["magic"].astype(np.int64) & timer.MAGIC_DELETE) == 0
        count += int(np.count_nonzero(kept & (due > since) & (due < until)))
    return count


def _timercheck(
    store: Store,
    timer_log: TimerFacts,
    top: tuple[int, int] | None,
    findings: Findings,
    live: bool,
    *,
    since: int | None,
) -> None:
    """Check timercheck; `top` is the range of the timer queue, `since` the latest store time (ms) of the log.

    No message that is due after that time has been delivered: it would be in the log.
    """
    alone = store.part == "timercheck"
    if store.part is not None and not alone:
        return
    path = store.path if alone else store.root / "config" / "timercheck"
    entry = store.files.examined(path)
    if entry is None or entry.dangling:
        if timer_log.units:
            findings.add(Finding(codes.TM_CHECK, "config", path.name, facts={"reason": "missing"}))
        return
    length = entry.length
    raw = store.files.read_at(path, timer.TIMERCHECK_FILE_SIZE, 0)
    if length != timer.TIMERCHECK_FILE_SIZE:
        findings.add(Finding(codes.TM_CHECK, "config", path.name, 0, length, {"reason": "length", "length": length}))
    values = timer.parse_timercheck(raw)
    limits: dict[str, int | None] = {
        "last_read_time": latest_read_time(entry.mtime_ns / 1e9),
        "last_timer_log_flush_pos": None if alone else timer_log.wrote,
        "last_timer_queue_offset": top[1] if top else None,
        "master_timer_queue_offset": None,
    }
    for name, limit in limits.items():
        value = values[name]
        facts: dict[str, Fact] = {"reason": "negative", "field": name, "value": value}
        if value >= 0:
            if live or limit is None or value <= limit:
                continue
            if name != "last_read_time":
                facts |= {"reason": Text("after the end"), "end": limit}
            else:
                facts |= {"reason": Text("in the future")}
                if store.timer_log is not None and since is not None:
                    never = _never_read(store.timer_log, since, value)
                    facts |= {"messages": never} if never else {}
        findings.add(Finding(codes.TM_CHECK, "config", path.name, timer.TIMERCHECK.at(name), 8, facts))


def _zeros(store: Store, log: LogRange, top: tuple[int, int], findings: Findings) -> None:
    """Report zeros in timercheck from which a start delivers timed messages again; `top`: range of the timer queue.

    It reads the slots since the read time again. From the master's queue offset on, it enqueues all messages again that
    are due after the read time.
    Source: TimerMessageStore#recover, #enqueue (RocketMQ 5.4.0; seen with whole brokers of 5.1.4 and 5.4.0)
    """
    path, queue = store.root / "config" / "timercheck", store.timer_log
    if queue is None or not store.files.is_file(path):
        return
    values = timer.parse_timercheck(store.files.read_at(path, timer.TIMERCHECK_FILE_SIZE, 0))
    again = {name: 0 for name in ("last_read_time", "master_timer_queue_offset") if not values[name]}
    if not again:
        return
    late = log.last_time - _LATE
    timer_queue = store.consume_queue(TIMER_TOPIC, 0).queue if store.kind is not StoreKind.ROCKSDB else None
    unit = timer_queue.unit(consumequeue.UNIT, top[0]) if timer_queue is not None else None
    oldest = _message(store, unit["commitlog_offset"]) if unit is not None else None
    enqueued = oldest.physical_offset if oldest is not None and oldest.store_timestamp < late else sys.maxsize
    for _, units in good_units(queue):
        due = due_times(units)
        unread = due >= values["last_read_time"]
        for name in again:
            late_units = due < late if name == "last_read_time" else units["commitlog_offset"] >= enqueued
            again[name] += int((unread & late_units).sum())
    for name, messages in again.items():
        if messages:
            facts: dict[str, Fact] = {"reason": "zero", "field": name, "delivered_again": messages}
            findings.add(Finding(codes.TM_CHECK, "config", path.name, timer.TIMERCHECK.at(name), 8, facts))


def check_lost_timer(
    store: Store, log: LogRange, facts: TimerFacts, queue_range: QueueRange | None, findings: Findings
) -> None:
    """Report timed messages that are delivered again because the timer log and timercheck are gone.

    `log` and `facts` are those of `check_timer`, and the broker has no positions of the timer in a RocksDB.
    Source: TimerMessageStore#recover (RocketMQ 5.4.0; seen with whole brokers of 5.1.4, 5.4.0 and 5.5.1)
    """
    top = queue_range(TIMER_TOPIC, 0) if queue_range is not None else None
    if top is None or facts.units or not store.config.bool("timerWheelEnable"):
        return
    if store.files.exists(store.root / "config" / "timercheck") or not broker_has_run(store, [f"{TIMER_TOPIC}/0"]):
        return
    from rmqstore.files.rocksdb.database import CannotRead

    again = 0
    with suppress(CannotRead):
        for message in islice(_timer_messages(store), _READ):
            known = parse_properties(message.properties)
            due = parse_long(known.get(TIMER_OUT_MS, "")) if TIMER_DEL_UNIQKEY not in known else None
            again += due is not None and 0 < due < log.last_time - _DUE
    if again:
        found: dict[str, Fact] = {"in_timer_queue": top[1] - top[0], "delivered_again": again}
        if top[1] - top[0] > _READ:
            found["at_least"] = True
        findings.add(Finding(codes.TM_MISSING, "timerlog", facts=found))


def _timer_messages(store: Store) -> Iterator[Message]:
    """Yield the messages of the timer queue. Errors: CannotRead."""
    from rmqstore.files.rocksdb.queues import simple_queue

    for chunk in unit_chunks(simple_queue(store, TIMER_TOPIC, 0), consumequeue.UNIT):
        for offset in chunk.units["commitlog_offset"][chunk.units["size"] > 0].tolist():
            message = _message(store, offset)
            if message is not None:
                yield message


def next_to_enqueue(store: Store, queue: MappedFileQueue, end: int | None = None) -> int | None:
    """Return the offset in the timer queue after the message of the timer log's last unit before `end` (bytes).

    None if there is no unit, or if its message is not in the log.
    Source: TimerMessageStore#reviseQueueOffset, RocketMQ 5.4.0
    """
    last = None
    for at, units in good_units(queue):
        count = len(units) if end is None else min(len(units), (end - at) // _UNIT.size)
        if count > 0:
            last = int(units["commitlog_offset"][count - 1])
    message = _message(store, last) if last is not None else None
    return message.queue_offset + 1 if message is not None else None


def _message(store: Store, offset: int) -> Message | None:
    found = (message_at(log, offset) for log, _ in store.logs)
    topic = TIMER_TOPIC.encode()
    return next((m for m in found if m is not None and m.physical_offset == offset and m.topic == topic), None)


SLOTS = 2 * timer.DEFAULT_SLOTS

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

    Shape: lost, foreign, beyond (slots,); rows (SLOTS,); at, prev, link (units,). Units: at, prev (correct link) and
    link (actual link) are positions in the timer log, bytes.
    """

    wheel: Wheel
    lost: I64
    """Slots whose units would not all be read."""
    foreign: I64
    """Slots without units that lead to units of other slots."""
    beyond: I64
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
        return np.sort(np.concatenate([self.lost, self.foreign, self.beyond]))


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


def listed_offsets(queue: MappedFileQueue, ranges: Ranges) -> I64:
    """Return the log offsets, in the ranges, of the messages that the units of the timer log have, sorted.

    A broker writes the units in the order of the timer queue, so that their offsets rise: others are wrong.
    """
    found = [np.zeros(0, dtype=np.int64)]
    highest = -1
    for _, units in good_units(queue):
        offset: I64 = units["commitlog_offset"].astype(np.int64)
        rises = offset > np.maximum.accumulate(np.concatenate(([highest], offset[:-1])))
        rises[:-1] &= offset[:-1] < offset[1:]
        offset = offset[rises]
        highest = int(offset[-1]) if len(offset) else highest
        found.append(offset[within(ranges, offset)])
    return np.unique(np.concatenate(found))


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
    with suppress(OSError), files.open(path) as file:
        at = 0
        for low, high in file.data_extents(0, timer.wheel_size()):
            at = max(at, low // _SLOT.size * _SLOT.size)
            stop = -(-high // _SLOT.size) * _SLOT.size
            slots = _SLOT.array(file.read(max(0, stop - at), at))
            yield at // _SLOT.size, slots
            at = stop


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
