"""Repairs timer log, timer wheel and timercheck so that they match each other and the end of the log.

Source: TimerMessageStore#recover, #recoverAndRevise, #doEnqueue, TimerWheel#putSlot (RocketMQ 5.4.0).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rmqstore.append.scratch import Scratch, ScratchContent
from rmqstore.checks.beside.timer import (
    Judged,
    due_times,
    good_units,
    judge,
    latest_read_time,
    next_to_enqueue,
    precision,
    read_wheel,
)
from rmqstore.checks.problems import codes
from rmqstore.checks.verified import Verified
from rmqstore.files.mapped_file_queue import DirEntry, MappedFileQueue
from rmqstore.files.store import Store
from rmqstore.formats import timer
from rmqstore.formats.properties import TIMER_TOPIC
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.recovery import LogAfter, Recovery
from rmqstore.scan.kernels import I64
from rmqstore.texts import Text

_UNIT = timer.LOG_UNIT
_SLOT = timer.WHEEL_SLOT
_MARGIN = 10_000  # ms; delivering a message twice is better than not at all
_NEAR = 128  # slots; wrong ones at most this far apart share one step
_WHEEL_WHY = Text("slots rebuilt from the timer log's units")


def plan_timer(case: Recovery, draft: PlanBuilder, log: LogAfter) -> None:
    """Add the steps for TM-* problems: those in `--only`, and all that follow from an earlier end of the log.

    The log ends earlier if the plan truncates it or its last files are missing: new messages will get the offsets
    after that end.
    """
    store, cut, asked = draft.store, log.lost_from, case.asked
    queue = store.timer_log
    shortened = cut is not None
    dangling = shortened or codes.TM_DANGLING in asked
    end = _good_end(queue) if queue is not None else 0
    if queue is not None and (dangling or codes.TM_LOG in asked):
        wrote = cut if cut is not None else max((r.wrote for r in case.results), default=0)
        keep = _first_beyond(queue, end, wrote) if dangling else end
        if _truncate(draft, queue, keep):
            shortened = True
            _rebuild_cut_slots(draft, queue, keep)
        end = keep
    if codes.TM_WHEEL_LENGTH in case.wanted:  # brokers do not start with it
        _replace_wheels(draft, queue, end)
    if queue is not None and not shortened and (codes.TM_WHEEL_SLOT in asked or codes.TM_CHAIN in asked):
        judged = judge(store, queue)
        if judged is not None and codes.TM_WHEEL_SLOT in asked:
            _rebuild_slots(draft, judged)
        if judged is not None and codes.TM_CHAIN in asked:
            _relink_units(draft, queue, judged)
    if codes.TM_CHECK in asked or shortened:
        _timercheck(draft, case.verified, end, log.last_time)


def _good_end(queue: MappedFileQueue) -> int:
    """Return the end of the last good unit (global offset)."""
    end = queue.start
    for at, units in good_units(queue):
        end = at + len(units) * _UNIT.size
    return end


def _first_beyond(queue: MappedFileQueue, end: int, wrote: int) -> int:
    """Return the first unit whose message is after the log's end (`wrote`); units are in log order."""
    for at, units in good_units(queue):
        beyond = units["commitlog_offset"] >= wrote
        if beyond.any():
            return int(at + int(np.argmax(beyond)) * _UNIT.size)
    return end


def _truncate(draft: PlanBuilder, queue: MappedFileQueue, end: int) -> bool:
    """Remove everything after `end`, including a BLANK; return whether there was anything."""
    before = len(draft.steps)
    why = Text("no valid unit, or one whose message is not in the log")
    draft.cut(queue.files, end, why, keep=queue.files[0] if queue.files else None)
    return len(draft.steps) > before


def _slots(queue: MappedFileQueue | None, end: int, ms: int, only: I64 | None = None) -> Any:
    """Return the wheel that follows from the timer log's units before `end`; `only`: with these slots alone.

    `ms`: timerPrecisionMs.
    """
    slots = np.zeros(timer.wheel_size() // _SLOT.size, dtype=_SLOT.dtype)
    for at, units in good_units(queue) if queue is not None else ():
        due = due_times(units)
        mine = at + np.arange(len(units), dtype=np.int64) * _UNIT.size < end
        if only is not None:
            mine &= np.isin(due // ms % len(slots), only)
        for k in np.flatnonzero(mine).tolist():
            position = at + k * _UNIT.size
            time = int(due[k]) // ms
            slot = slots[timer.slot_index(int(due[k]), precision=ms)]
            step = -1 if int(units["magic"][k]) & 4 else 1
            if int(slot["time"]) != time or int(slot["num"]) <= 0:
                slot["time"], slot["first_pos"], slot["num"] = time, position, 0
            slot["last_pos"] = position
            slot["num"] += step
    return slots


def _wheels(store: Store) -> list[tuple[str, DirEntry]]:
    """Return the wheel and its snapshots."""
    return sorted((name, entry) for name, entry in store.top.items() if timer.is_wheel(name))


def _replace_wheels(draft: PlanBuilder, queue: MappedFileQueue | None, end: int) -> None:
    """Replace a wheel of a wrong length by one that is rebuilt from the timer log, and discard such snapshots."""
    slots = _slots(queue, end, precision(draft.store, queue, None))
    for name, entry in _wheels(draft.store):
        if entry.length == timer.wheel_size() and not entry.directory:
            continue
        draft.discard(entry.path, Text("wrong length"))
        if name == "timerwheel":
            _create_wheel(draft, entry.path, slots, np.flatnonzero(slots["num"]))


def _create_wheel(draft: PlanBuilder, path: Path, slots: Any, numbers: I64) -> None:
    """Create a wheel with the slots of these numbers."""
    content = ScratchContent(Scratch())
    for number in numbers.tolist():
        content.add(timer.slot_at(number), slots[number : number + 1].tobytes())
    draft.create(path, timer.wheel_size(), content, _WHEEL_WHY)


def _rebuild_cut_slots(draft: PlanBuilder, queue: MappedFileQueue, end: int) -> None:
    """Rebuild the slots that point to positions after the timer log's new end.

    A start corrects only slots that have a unit left. Any other slot would deliver whatever is later written at its
    position.
    """
    ms = precision(draft.store, queue, read_wheel(draft.store))
    for _, entry in _wheels(draft.store):
        if entry.length != timer.wheel_size() or entry.directory:
            continue
        slots: Any = np.array(_SLOT.array(draft.store.files.read_at(entry.path, entry.length, 0)))
        used = (slots["time"] != 0) | (slots["num"] != 0)
        wrong = np.flatnonzero(used & (np.maximum(slots["first_pos"], slots["last_pos"]) >= end))
        if not len(wrong):
            continue
        slots[wrong] = _slots(queue, end, ms, wrong)[wrong]
        _write_slots(draft, entry.path, slots, wrong)


def _write_slots(draft: PlanBuilder, path: Path, slots: Any, numbers: I64) -> None:
    for part in np.split(numbers, np.flatnonzero(np.diff(numbers) > _NEAR) + 1):
        low, high = int(part[0]), int(part[-1]) + 1
        draft.overwrite(path, timer.slot_at(low), slots[low:high].tobytes(), _WHEEL_WHY)


def _rebuild_slots(draft: PlanBuilder, judged: Judged) -> None:
    """Rebuild the wrong slots from the timer log; a slot without a unit becomes empty."""
    path, wrong = judged.wheel.path, judged.slots
    files = draft.store.files
    entry = files.examined(path)
    if entry is None or not entry.length:
        if entry is not None:
            draft.discard(path, Text("an empty wheel"))
        _create_wheel(draft, path, judged.rows, wrong)
        return
    slots: Any = np.array(_SLOT.array(files.read_at(path, timer.wheel_size(), 0)))
    slots[wrong] = judged.rows[wrong]
    _write_slots(draft, path, slots, wrong)


def _relink_units(draft: PlanBuilder, queue: MappedFileQueue, judged: Judged) -> None:
    """Correct the positions of the previous unit in the same slot."""
    for at, prev in zip(judged.at.tolist(), judged.prev.tolist(), strict=True):
        file = queue.find(at)
        if file is not None:
            place = at - file.start + _UNIT.at("prev_pos")
            draft.overwrite(
                file.path, place, prev.to_bytes(8, "big", signed=True), Text("the unit before it in its slot")
            )


def _timercheck(draft: PlanBuilder, verified: Verified, end: int, last_time: int) -> None:
    """Limit positions to the ends of timer log and timer queue; derive a wrong read time from the log's last time.

    Queue offsets are not before the message of the last unit: a start would enqueue these messages again.
    """
    path = draft.store.root / "config" / "timercheck"
    files = draft.store.files
    entry = files.examined(path) if files.is_file(path) else None
    if entry is None and draft.store.timer_log is None:
        return
    values = timer.parse_timercheck(files.read_at(path, timer.TIMERCHECK_FILE_SIZE, 0))
    state = verified.report.queues.get(f"{TIMER_TOPIC}/0")
    top = draft.ends.get(f"{TIMER_TOPIC}/0")
    if top is None and state is not None:
        top = max(state.max, state.expected_max)
    given = dict(values)
    values["last_timer_log_flush_pos"] = max(0, min(values["last_timer_log_flush_pos"], end))
    queue = draft.store.timer_log
    least = (next_to_enqueue(draft.store, queue, end) or 0) if queue is not None else 0
    for name in ("last_timer_queue_offset", "master_timer_queue_offset"):
        offset = max(values[name], least)
        values[name] = max(0, offset if top is None else min(offset, top))
    if not 0 < values["last_read_time"] <= latest_read_time(entry.mtime_ns / 1e9 if entry is not None else 0):
        values["last_read_time"] = max(0, (last_time - _MARGIN) // timer.DEFAULT_PRECISION * timer.DEFAULT_PRECISION)
    content = timer.TIMERCHECK.build({k: max(0, v) for k, v in values.items()}).ljust(timer.TIMERCHECK_FILE_SIZE, b"\0")
    if files.read_at(path, timer.TIMERCHECK_FILE_SIZE + 1, 0) == content:
        return
    timed = values["last_read_time"] != given["last_read_time"]
    moved = values != given | {"last_read_time": values["last_read_time"]}
    if timed and moved:
        why, old = (
            Text("positions and read time that match the timer log, its queue and the log"),
            Text("wrong positions and time"),
        )
    elif timed:
        why, old = Text("a read time before the last message of the log"), Text("wrong read time")
    else:
        why, old = Text("positions within the timer log and its queue"), Text("positions after the end")
        old = old if moved else Text("wrong length")
    draft.replace(path, content, why, old=old)
