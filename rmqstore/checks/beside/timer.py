"""TM-*: timer log, timer wheel and timercheck against each other, the log and the timer queue."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmqstore.checks.beside.timer_wheel import good, judge
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings
from rmqstore.files.disk.reading import read_at
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from rmqstore.files.store import Store
from rmqstore.formats import timer
from rmqstore.formats.message import BLANK_MAGIC
from rmqstore.formats.properties import TIMER_TOPIC
from rmqstore.scan.units import file_chunks, last_nonzero_in

QueueRange = Callable[[str, int], tuple[int, int] | None]

_UNIT = timer.LOG_UNIT
_WHEEL = re.compile(r"timerwheel(\.[0-9]{1,19})?")


@dataclass(frozen=True, slots=True)
class LogRange:
    """The log that timers point into: [min_offset, wrote), bytes."""

    min_offset: int
    wrote: int


@dataclass(slots=True)
class TimerFacts:
    """What there is: units of the timer log, and the offset behind the last good one (bytes)."""

    units: int = 0
    wrote: int = 0


def check_timer(
    store: Store,
    log: LogRange | None,
    findings: Findings,
    *,
    queue_range: QueueRange | None = None,
    slave: bool = False,
    live: bool = False,
) -> TimerFacts:
    """Everything of the timer; a store without one gives nothing.

    `queue_range` as in `check_config`, asked for the timer topic only.
    """
    facts = TimerFacts()
    if store.timer_log is not None:
        _log(store.timer_log, log, findings, facts, live)
    _wheels(store, findings, live)
    if store.timer_log is not None and store.part is None and not live:
        _slots(store, store.timer_log, findings)
    top = queue_range(TIMER_TOPIC, 0) if queue_range is not None and not slave else None
    _timercheck(store, facts, top, findings, live)
    return facts


# --- timer log ------------------------------------------------------------------------------------------------------


def _log(queue: MappedFileQueue, log: LogRange | None, findings: Findings, facts: TimerFacts, live: bool) -> None:
    facts.wrote = queue.start
    for file in queue.files:
        last = file is queue.files[-1]
        end = _file(file, log, findings, facts, live)
        filled = last_nonzero_in(file, 1)
        blank = end.closed
        if end.units or end.closed:
            facts.wrote = file.stop if blank and not last else file.start + end.at
        if blank or (live and last):
            continue
        room = (min(file.length, file.file_size) - end.at) >= _UNIT.size
        if filled is not None and filled >= end.at and room:
            found: dict[str, Fact] = {"size": end.size, "magic": end.magic, "behind": filled + 1 - end.at}
            findings.add(Finding(codes.TM_LOG, "timerlog", file.name, file.start + end.at, filled + 1 - end.at, found))
        elif not last and room and any(last_nonzero_in(f, 1) is not None for f in queue.files if f.start > file.start):
            found = {"size": 0, "magic": 0, "behind": 0}
            findings.add(Finding(codes.TM_LOG, "timerlog", file.name, file.start + end.at, _UNIT.size, found))
    for start, stop in queue.holes():
        found = {"missing": (stop - start) // queue.file_size}
        findings.add(Finding(codes.TM_LOG, "timerlog", f"{start:020d}", start, stop - start, found))


@dataclass(slots=True)
class _End:
    """Where the good units of a file end (position in it), why, and whether a BLANK closes it there."""

    at: int = 0
    units: int = 0
    closed: bool = False
    size: int = 0
    magic: int = 0


def _file(file: MappedFile, log: LogRange | None, findings: Findings, facts: TimerFacts, live: bool) -> _End:
    """Walk one file as the timer's recovery does: units of 52 bytes up to the first that is invalid.

    Source: TimerMessageStore#recoverAndRevise, RocketMQ 5.4.0
    """
    end = _End()
    beyond, first, value = 0, -1, 0
    for chunk in file_chunks(file, _UNIT):
        if chunk.start - file.start != end.at:
            break
        units: Any = chunk.units
        taken = good(units)
        n = len(taken) if taken.all() else int(np.argmin(taken))
        if log is not None and not live:
            offset = units["commitlog_offset"][:n].astype(np.int64)
            behind = np.flatnonzero(offset >= log.wrote)
            if len(behind):
                beyond += len(behind)
                if first < 0:
                    first, value = chunk.start + int(behind[0]) * _UNIT.size, int(offset[behind[0]])
        end.at += n * _UNIT.size
        end.units += n
        if n < len(taken):
            end.size, end.magic = int(units["size"][n]), int(units["magic"][n])
            end.closed = end.magic == BLANK_MAGIC
            break
    facts.units += end.units
    if beyond and log is not None:
        about: dict[str, Fact] = {"count": beyond, "commitlog_offset": value, "wrote": log.wrote}
        findings.add(Finding(codes.TM_DANGLING, "timerlog", file.name, first, _UNIT.size, about))
    return end


# --- wheel and timercheck -------------------------------------------------------------------------------------------


def _wheels(store: Store, findings: Findings, live: bool) -> None:
    expected = timer.wheel_size()
    if store.part == "timerwheel":
        lengths = {store.path.name: (store.path.stat().st_size, False)}
    else:
        lengths = {n: (e.length, e.directory) for n, e in store.top.items() if _WHEEL.fullmatch(n)}
    for name, (length, directory) in sorted(lengths.items()):
        # one without length is filled by the broker
        if length == expected or (length == 0 and not directory) or live:
            continue
        facts: dict[str, Fact] = {"length": length, "expected": expected}
        findings.add(Finding(codes.TM_WHEEL_LENGTH, "timerwheel", name, 0, length, facts))


def _slots(store: Store, queue: MappedFileQueue, findings: Findings) -> None:
    """Slots and chains as the next start leaves them; not while the log or the wheel has to be mended first."""
    if codes.TM_LOG in findings.counts or codes.TM_WHEEL_LENGTH in findings.counts:
        return
    judged = judge(store, queue)
    if judged is None:
        return
    for reason, numbers in (("lost", judged.lost), ("foreign", judged.foreign), ("behind the end", judged.behind)):
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
        file = queue.find(first)
        about: dict[str, Fact] = {
            "count": len(judged.at),
            "prev_pos": int(judged.link[0]),
            "expected": int(judged.prev[0]),
            "endless": bool((judged.link >= judged.at).any()),
        }
        findings.add(Finding(codes.TM_CHAIN, "timerlog", file.name if file else "timerlog", first, _UNIT.size, about))


def _timercheck(
    store: Store, timer_log: TimerFacts, top: tuple[int, int] | None, findings: Findings, live: bool
) -> None:
    alone = store.part == "timercheck"
    if store.part is not None and not alone:
        return
    path = store.path if alone else store.root / "config" / "timercheck"
    try:
        length = path.stat().st_size
    except OSError:
        if timer_log.units:
            findings.add(Finding(codes.TM_CHECK, "config", path.name, facts={"reason": "missing"}))
        return
    raw = read_at(path, timer.TIMERCHECK_FILE_SIZE, 0)
    if length != timer.TIMERCHECK_FILE_SIZE:
        findings.add(Finding(codes.TM_CHECK, "config", path.name, 0, length, {"reason": "length", "length": length}))
    values = timer.parse_timercheck(raw)
    limits: dict[str, int | None] = {
        "last_read_time": None,
        "last_timer_log_flush_pos": None if alone else timer_log.wrote,
        "last_timer_queue_offset": top[1] if top else None,
        "master_timer_queue_offset": None,
    }
    for name, limit in limits.items():
        value = values[name]
        at = timer.TIMERCHECK.at(name)
        if value < 0:
            findings.add(
                Finding(
                    codes.TM_CHECK, "config", path.name, at, 8, {"reason": "negative", "field": name, "value": value}
                )
            )
        elif limit is not None and value > limit and not live:
            facts: dict[str, Fact] = {"reason": "behind the end", "field": name, "value": value, "end": limit}
            findings.add(Finding(codes.TM_CHECK, "config", path.name, at, 8, facts))
