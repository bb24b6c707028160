"""Timer log, wheel and timercheck of a store whose messages got new addresses.

A unit of the timer log names its message by address; the wheel and `timercheck` name units by position, and units
stay where they are. So only addresses are rewritten. Units of messages that were left out are at the end: they
are zeroed, and `timercheck` is put back to them, so that the broker reads its queue again from there.
Source: TimerMessageStore#recover, #recoverAndRevise (RocketMQ 5.4.0).
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
_ADDRESS_AT = _UNIT.at("commitlog_offset")
_BLANK_MAGIC_AT = timer.LOG_BLANK.at("magic")


def relay_timer_log(
    queue: MappedFileQueue, root: Path, address: Callable[[int], int | None], moved_from: int
) -> int | None:
    """Copy the timer log with new addresses; the position where it was cut (bytes), None when it was not.

    `address` gives the new address of an old one, None when the message did not come along; addresses below
    `moved_from` stay.
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
            old = int.from_bytes(raw[_ADDRESS_AT : _ADDRESS_AT + 8], "big", signed=True)
            new = address(old) if old >= moved_from else old
            if new is None:
                os.ftruncate(descriptor, at)  # zero what is behind: the file keeps its size
                os.ftruncate(descriptor, size)
                os.fsync(descriptor)
                return start + at
            if new != old:
                write_all(descriptor, new.to_bytes(8, "big"), at + _ADDRESS_AT)
            at += _UNIT.size
        os.fsync(descriptor)
        return None
    except OSError as error:
        raise explain(error, path) from error
    finally:
        os.close(descriptor)


def fix_timercheck(path: Path, cut: int, queue_offset: int) -> None:
    """Put a timercheck back to a shorter timer log (bytes) and to the queue offset (units) to read on from."""
    if not path.is_file():
        return
    values = timer.TIMERCHECK.parse(path.read_bytes().ljust(timer.TIMERCHECK.size, b"\0"))
    values["last_timer_log_flush_pos"] = min(values["last_timer_log_flush_pos"], cut)
    values["last_timer_queue_offset"] = min(values["last_timer_queue_offset"], queue_offset)
    values["master_timer_queue_offset"] = min(values["master_timer_queue_offset"], queue_offset)
    replace_file(path, timer.TIMERCHECK.build(**values).ljust(timer.TIMERCHECK_FILE_SIZE, b"\0"))
