"""Update the timer log and timercheck of a store whose messages got new physical offsets.

A timer log unit refers to its message by physical offset. The wheel and `timercheck` refer to units by position, which
does not change, so only the physical offsets in the units are rewritten. If a message was dropped, the timer log is
zeroed from its unit on and `timercheck` reset, so that the broker reads the timer queue again from there.
Source: TimerMessageStore#recover, #recoverAndRevise (RocketMQ 5.4.0)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rmqstore.append.files.disk import explain, replace_file, write_all
from rmqstore.append.readdress.files import copy_file
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.formats import timer
from rmqstore.formats.message import BLANK_MAGIC

_UNIT = timer.LOG_UNIT
_OFFSET_AT = _UNIT.at("commitlog_offset")
_BLANK_MAGIC_AT = timer.LOG_BLANK.at("magic")


def relay_timer_log(
    queue: MappedFileQueue, root: Path, address: Callable[[int], int | None], moved_from: int
) -> int | None:
    """Copy the timer log with new physical offsets, up to the unit of the first dropped message.

    `address` maps an old physical offset to the new one, or to None for a dropped message; offsets below `moved_from`
    do not change. Returns the timer log position (bytes) of the first dropped unit; None without one.
    Errors: NoSpace and others.
    """
    for file in queue.files:
        target = root / "timerlog" / file.name
        copy_file(file.path, target)
        cut = _readdress(target, file.start, address, moved_from)
        if cut is not None:
            return cut
    return None


def _readdress(path: Path, start: int, address: Callable[[int], int | None], moved_from: int) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise explain(error, path) from error
    try:
        size = os.fstat(descriptor).st_size
        at = 0
        while at + _UNIT.size <= size:
            raw = os.pread(descriptor, _UNIT.size, at)
            length = int.from_bytes(raw[:4], "big", signed=True)
            magic = int.from_bytes(raw[_BLANK_MAGIC_AT : _BLANK_MAGIC_AT + 4], "big", signed=True)
            if length != _UNIT.size or magic == BLANK_MAGIC:
                break
            old = int.from_bytes(raw[_OFFSET_AT : _OFFSET_AT + 8], "big", signed=True)
            new = address(old) if old >= moved_from else old
            if new is None:
                os.ftruncate(descriptor, at)  # shrink and extend: the bytes from here on become zero
                os.ftruncate(descriptor, size)
                os.fsync(descriptor)
                return start + at
            if new != old:
                write_all(descriptor, new.to_bytes(8, "big"), at + _OFFSET_AT)
            at += _UNIT.size
        os.fsync(descriptor)
        return None
    except OSError as error:
        raise explain(error, path) from error
    finally:
        os.close(descriptor)


def fix_timercheck(path: Path, cut: int, queue_offset: int) -> None:
    """Reset timercheck to the end `cut` of the shortened timer log (bytes) and to the `queue_offset` to continue at."""
    if not path.is_file():
        return
    values = timer.TIMERCHECK.parse(path.read_bytes().ljust(timer.TIMERCHECK.size, b"\0"))
    values["last_timer_log_flush_pos"] = min(values["last_timer_log_flush_pos"], cut)
    values["last_timer_queue_offset"] = min(values["last_timer_queue_offset"], queue_offset)
    values["master_timer_queue_offset"] = min(values["master_timer_queue_offset"], queue_offset)
    replace_file(path, timer.TIMERCHECK.build(**values).ljust(timer.TIMERCHECK_FILE_SIZE, b"\0"))
