"""The formats of timer messages: timer log unit, timer wheel slot and timer checkpoint (RocketMQ 5.0 and newer).

Source: TimerLog, TimerMessageStore#doEnqueue, TimerWheel, Slot, TimerCheckpoint (RocketMQ 5.4.0).
"""

from __future__ import annotations

import re

from construct import Int32sb, Int64sb

from rmqstore.formats.layout import Field, Layout
from rmqstore.formats.message import BLANK_MAGIC

LOG_UNIT = Layout(
    "timer log unit",
    "TimerMessageStore#doEnqueue, RocketMQ 5.4.0",
    Field("size", Int32sb, "Length of the unit.", "bytes", const=52),
    Field("prev_pos", Int64sb, "Timer log position of the previous unit in the slot; -1: none.", "bytes"),
    Field("magic", Int32sb, "Kind bits: 1 default, 2 roll, 4 delete."),
    Field("write_time", Int64sb, "Base time of the slot when written.", "ms"),
    Field("delayed_time", Int32sb, "Due time after the write time.", "ms"),
    Field("commitlog_offset", Int64sb, "Message in topic rmq_sys_wheel_timer.", "bytes"),
    Field("message_size", Int32sb, "TOTALSIZE of that message.", "bytes"),
    Field("real_topic_hash", Int32sb, "Java hash of the topic to deliver to."),
    Field("reserved", Int64sb, "Always 0."),
)
LOG_BLANK = Layout(
    "timer log blank",
    "TimerLog#append, RocketMQ 5.4.0",
    Field("size", Int32sb, "Bytes left in the file, counted from here.", "bytes"),
    Field("reserved", Int64sb, "Always 0."),
    Field("magic", Int32sb, "BLANK_MAGIC_CODE (CBD43194).", const=BLANK_MAGIC),
)
WHEEL_SLOT = Layout(
    "timer wheel slot",
    "Slot, TimerWheel#putSlot, RocketMQ 5.4.0",
    Field("time", Int64sb, "Due time divided by the precision.", "s"),
    Field("first_pos", Int64sb, "Timer log position of the oldest unit.", "bytes"),
    Field("last_pos", Int64sb, "Timer log position of the newest unit.", "bytes"),
    Field("num", Int32sb, "Units in the slot.", "units"),
    Field("magic", Int32sb, "Not used."),
)
TIMERCHECK = Layout(
    "timercheck",
    "TimerCheckpoint, RocketMQ 5.4.0",
    Field("last_read_time", Int64sb, "How far the wheel was read.", "ms"),
    Field("last_timer_log_flush_pos", Int64sb, "How far the timer log was flushed.", "bytes"),
    Field("last_timer_queue_offset", Int64sb, "Next unit of queue rmq_sys_wheel_timer.", "units"),
    Field("master_timer_queue_offset", Int64sb, "The same on the master.", "units"),
    Field("state_version", Int64sb, "Data version: state."),
    Field("timestamp", Int64sb, "Data version: time.", "ms"),
    Field("counter", Int64sb, "Data version: counter."),
    about="A file of 4096 bytes; the rest is zero.",
)

TIMERCHECK_FILE_SIZE = 4096
DEFAULT_SLOTS = 7 * 24 * 3600
DEFAULT_PRECISION = 1000  # ms
_SNAPSHOT = re.compile(r"timerwheel\.([0-9]{1,19})")
MAGIC_DEFAULT, MAGIC_ROLL, MAGIC_DELETE = 1, 2, 4


def snapshot_position(name: str) -> int | None:
    """Return the flushed position of the timer log in the name of a snapshot of the wheel; None for other names."""
    found = _SNAPSHOT.fullmatch(name)
    return int(found[1]) if found is not None else None


def is_wheel(name: str) -> bool:
    """Return whether a file with this name is the wheel, or a snapshot of it."""
    return name == "timerwheel" or snapshot_position(name) is not None


def slot_index(time: int, precision: int = DEFAULT_PRECISION) -> int:
    """Return the number of the wheel slot for a due time in ms; `precision` in ms.

    Source: TimerWheel#getSlotIndex
    """
    return time // precision % (2 * DEFAULT_SLOTS)


def slot_at(index: int) -> int:
    """Return the position of a slot in the wheel file, in bytes."""
    return index * WHEEL_SLOT.size


def wheel_size() -> int:
    """Return the size of the wheel file in bytes; a broker does not start with any other non-zero size."""
    return 2 * DEFAULT_SLOTS * WHEEL_SLOT.size


def parse_timercheck(data: bytes) -> dict[str, int]:
    """Parse the timer checkpoint; bytes missing from a short file count as zero."""
    return TIMERCHECK.parse(bytes(data).ljust(TIMERCHECK.size, b"\0"))
