"""Timer messages: timer log unit, timer wheel slot and the timer checkpoint (RocketMQ 5.0 and newer).

Source: TimerLog, TimerMessageStore#doEnqueue, TimerWheel, Slot, TimerCheckpoint (RocketMQ 5.4.0).
"""

from __future__ import annotations

from rmqstore.formats.javatext import java_string_hash
from rmqstore.formats.layout import Field, Layout
from rmqstore.formats.message import BLANK_MAGIC

LOG_UNIT = Layout(
    "timer log unit",
    "TimerMessageStore#doEnqueue, RocketMQ 5.4.0",
    Field("size", "i32", "Length of the unit.", "bytes", const=52),
    Field("prev_pos", "i64", "Timer log position of the unit before it in the slot; -1: none.", "bytes"),
    Field("magic", "i32", "Kind bits: 1 default, 2 roll, 4 delete."),
    Field("write_time", "i64", "Base time of the slot when written.", "ms"),
    Field("delayed_time", "i32", "Due time after the write time.", "ms"),
    Field("commitlog_offset", "i64", "Message in topic rmq_sys_wheel_timer.", "bytes"),
    Field("message_size", "i32", "TOTALSIZE of that message.", "bytes"),
    Field("real_topic_hash", "i32", "Java hash of the topic to deliver to."),
    Field("reserved", "i64", "Always 0."),
)
LOG_BLANK = Layout(
    "timer log blank",
    "TimerLog#append, RocketMQ 5.4.0",
    Field("size", "i32", "Bytes left in the file, counted from here.", "bytes"),
    Field("reserved", "i64", "Always 0."),
    Field("magic", "i32", "BLANK_MAGIC_CODE (CBD43194).", const=BLANK_MAGIC),
)
WHEEL_SLOT = Layout(
    "timer wheel slot",
    "Slot, TimerWheel#putSlot, RocketMQ 5.4.0",
    Field("time", "i64", "Due time divided by the precision.", "s"),
    Field("first_pos", "i64", "Timer log position of the oldest unit.", "bytes"),
    Field("last_pos", "i64", "Timer log position of the newest unit.", "bytes"),
    Field("num", "i32", "Units in the slot.", "units"),
    Field("magic", "i32", "Not used."),
)
TIMERCHECK = Layout(
    "timercheck",
    "TimerCheckpoint, RocketMQ 5.4.0",
    Field("last_read_time", "i64", "How far the wheel was read.", "ms"),
    Field("last_timer_log_flush_pos", "i64", "How far the timer log was flushed.", "bytes"),
    Field("last_timer_queue_offset", "i64", "Next unit of queue rmq_sys_wheel_timer.", "units"),
    Field("master_timer_queue_offset", "i64", "The same on the master.", "units"),
    Field("state_version", "i64", "Data version: state."),
    Field("timestamp", "i64", "Data version: time.", "ms"),
    Field("counter", "i64", "Data version: counter."),
    about="A file of 4096 bytes; the rest is zero.",
)

TIMERCHECK_FILE_SIZE = 4096
DEFAULT_LOG_FILE_SIZE = 100 << 20
DEFAULT_SLOTS = 7 * 24 * 3600
DEFAULT_PRECISION = 1000  # ms
MAGIC_DEFAULT, MAGIC_ROLL, MAGIC_DELETE = 1, 2, 4


def is_log_magic(magic: int) -> bool:
    """Magic bits that the reader accepts (TimerMessageStore#isMagicOK)."""
    return (magic & 0xFFFFFFFF) | 0xF == 0xF


def slot_index(time: int, slots: int = DEFAULT_SLOTS, precision: int = DEFAULT_PRECISION) -> int:
    """Number of the wheel slot of a due time in ms; `precision` in ms.

    Source: TimerWheel#getSlotIndex
    """
    return time // precision % (2 * slots)


def slot_at(index: int) -> int:
    """Position of a slot in the wheel file, in bytes."""
    return index * WHEEL_SLOT.size


def wheel_size(slots: int = DEFAULT_SLOTS) -> int:
    """Size of the wheel file in bytes; any other non-zero size stops the broker."""
    return 2 * slots * WHEEL_SLOT.size


def topic_hash(topic: str) -> int:
    """Hash of the real topic in a timer log unit."""
    return java_string_hash(topic)


def parse_timercheck(data: bytes) -> dict[str, int]:
    """The timer checkpoint; what a short file lacks is zero."""
    return TIMERCHECK.parse(bytes(data).ljust(TIMERCHECK.size, b"\0"))
