"""Keys and values of rocksdbstore/: rows of timed messages, half messages and the index (RocketMQ 5.4 and newer).

The database has the column families `timer`, `trans` and `default` (the index). Every broker since 5.4.0 creates it;
rows are written only with timerRocksDBEnable, transRocksDBEnable or indexRocksDBEnable. Each family also has keys for
positions, whose names are text.

Source: MessageRocksDBStorage, TimerRocksDBRecord, TransRocksDBRecord, IndexRocksDBRecord (RocketMQ 5.4.0 and 5.5.1)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from construct import Int32sb, Int64sb

from rmqstore.formats.layout import Field, Layout

TIMER_FAMILY, TRANS_FAMILY, INDEX_FAMILY = "timer", "trans", "default"
FAMILIES = (INDEX_FAMILY, TIMER_FAMILY, TRANS_FAMILY)
"""The column families in the order in which a broker opens them."""

SCAN_OFFSET = b"sys_topic_scan_offset_checkpoint"
TIMELINE = b"timeline_checkpoint"
LAST_OFFSET = b"lastOffsetPy"
LAST_TIME = b"lastStoreTimeStamp"
POSITION_KEYS = {
    TIMER_FAMILY: (SCAN_OFFSET, TIMELINE),
    TRANS_FAMILY: (LAST_OFFSET,),
    INDEX_FAMILY: (LAST_OFFSET, LAST_TIME),
}
"""The keys of each family that are not rows of messages; their values have the layout `POSITION`."""

FIRST_NAME = b"A"
"""No key before this one is a name. Rows begin with a number of 8 bytes, so that almost all keys are before it."""
_NAME = re.compile(rb"[A-Za-z][A-Za-z0-9_.:$-]*")

HOUR = 3_600_000  # ms
_SPLIT = b"@"

TIMER_KEY = Layout(
    "RocksDB timer key",
    "TimerRocksDBRecord#getKeyBytes, RocketMQ 5.4.0",
    Field("deliver_time", Int64sb, "When the message is due (property TIMER_OUT_MS).", "ms"),
    about="Column family timer of rocksdbstore/. Followed by the message's unique id, without a separator.",
)
TIMER_VALUE = Layout(
    "RocksDB timer value",
    "TimerRocksDBRecord#getValueBytes, RocketMQ 5.4.0",
    Field("size", Int32sb, "TOTALSIZE of the message in rmq_sys_wheel_timer.", "bytes"),
    Field("commitlog_offset", Int64sb, "Where that message starts in the commitlog.", "bytes"),
)
TRANS_KEY = Layout(
    "RocksDB half message key",
    "TransRocksDBRecord#getKeyBytes, RocketMQ 5.4.0",
    Field("commitlog_offset", Int64sb, "Where the half message starts in the commitlog.", "bytes"),
    about="Column family trans of rocksdbstore/. Followed by @, the real topic, @, the unique id.",
)
TRANS_VALUE = Layout(
    "RocksDB half message value",
    "TransRocksDBRecord#getValueBytes, RocketMQ 5.4.0",
    Field("check_times", Int32sb, "How often the broker has asked the producer.", "times"),
    Field("size", Int32sb, "TOTALSIZE of the half message.", "bytes"),
)
INDEX_KEY = Layout(
    "RocksDB index key",
    "IndexRocksDBRecord#getKeyBytes, RocketMQ 5.4.0",
    Field("hour", Int64sb, "Store time of the message, cut to the hour.", "ms"),
    about=(
        "Column family default of rocksdbstore/. Followed by @topic@K@key@uniqueId@, @topic@T@tag@uniqueId@ or "
        "@topic@U@uniqueId@, and by 8 bytes: where the message starts in the commitlog."
    ),
)
INDEX_KEY_TAIL = Layout(
    "RocksDB index key tail",
    "IndexRocksDBRecord#getKeyBytes, RocketMQ 5.4.0",
    Field("commitlog_offset", Int64sb, "Where the message starts in the commitlog.", "bytes"),
)
INDEX_VALUE = Layout(
    "RocksDB index value",
    "IndexRocksDBRecord#getValueBytes, RocketMQ 5.4.0",
    Field("store_timestamp", Int64sb, "Store time of the message.", "ms"),
)
POSITION = Layout(
    "RocksDB position",
    "MessageRocksDBStorage, RocketMQ 5.4.0",
    Field("position", Int64sb, "A log offset (bytes), queue offset (units) or time (ms)."),
    about=(
        "Value of these keys of rocksdbstore/. timer: sys_topic_scan_offset_checkpoint (next queue offset of "
        "rmq_sys_wheel_timer to read) and timeline_checkpoint (all rows that are due before this time are delivered). "
        "trans: lastOffsetPy (start of the last half message). default: lastOffsetPy and lastStoreTimeStamp (of the "
        "last indexed message). Messages before lastOffsetPy never get a row again."
    ),
)


@dataclass(frozen=True, slots=True)
class TimerRow:
    """A timed message: when it is due (ms), its unique id, and its record in rmq_sys_wheel_timer."""

    deliver_time: int
    unique_id: str
    commitlog_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class TransRow:
    """A half message that is neither committed nor rolled back; `check_times`: how often its producer was asked."""

    commitlog_offset: int
    topic: str
    unique_id: str
    size: int
    check_times: int


@dataclass(frozen=True, slots=True)
class IndexRow:
    """An entry of the index; `kind` is K (a key), T (the tag) or U (only the unique id, `word` is "")."""

    hour: int
    topic: str
    kind: Literal["K", "T", "U"]
    word: str
    unique_id: str
    commitlog_offset: int
    store_timestamp: int


def is_name(key: bytes) -> bool:
    """Return whether a key is a name, and so no row: of a position, or of what a newer release may have written.

    As a time or a log offset, the first 8 bytes of such a key would be more than 4 * 10^18.
    """
    return key >= FIRST_NAME and _NAME.fullmatch(key) is not None


def parse_position(value: bytes) -> int | None:
    """Parse the value of a position key; None if it is shorter than 8 bytes, on which brokers fail."""
    return int(POSITION.unpack(value)["position"]) if len(value) >= POSITION.size else None


def parse_timer_row(key: bytes, value: bytes) -> TimerRow | None:
    """Parse a row of the family `timer`; None for anything that a broker does not read."""
    if len(key) <= TIMER_KEY.size or len(value) != TIMER_VALUE.size:
        return None
    fields = TIMER_VALUE.unpack(value)
    due = TIMER_KEY.unpack(key)["deliver_time"]
    return TimerRow(due, _text(key[TIMER_KEY.size :]), fields["commitlog_offset"], fields["size"])


def build_timer_row(row: TimerRow) -> tuple[bytes, bytes]:
    """Return key and value of a row of the family `timer`."""
    key = TIMER_KEY.build(deliver_time=row.deliver_time) + row.unique_id.encode()
    return key, TIMER_VALUE.build(size=row.size, commitlog_offset=row.commitlog_offset)


def parse_trans_row(key: bytes, value: bytes) -> TransRow | None:
    """Parse a row of the family `trans`; None for anything that a broker does not read."""
    if len(key) <= TRANS_KEY.size or len(value) != TRANS_VALUE.size:
        return None
    words = key[TRANS_KEY.size :].split(_SPLIT)
    if len(words) != 3 or words[0]:
        return None
    fields = TRANS_VALUE.unpack(value)
    offset = TRANS_KEY.unpack(key)["commitlog_offset"]
    return TransRow(offset, _text(words[1]), _text(words[2]), fields["size"], fields["check_times"])


def build_trans_row(row: TransRow) -> tuple[bytes, bytes]:
    """Return key and value of a row of the family `trans`."""
    tail = _SPLIT.join((b"", row.topic.encode(), row.unique_id.encode()))
    key = TRANS_KEY.build(commitlog_offset=row.commitlog_offset) + tail
    return key, TRANS_VALUE.build(check_times=row.check_times, size=row.size)


def parse_index_row(key: bytes, value: bytes) -> IndexRow | None:
    """Parse a row of the family `default`; None for any other bytes. A key or tag may contain @."""
    middle = key[INDEX_KEY.size : -INDEX_KEY_TAIL.size]
    if len(middle) < 3 or len(value) != INDEX_VALUE.size or middle[:1] != _SPLIT or middle[-1:] != _SPLIT:
        return None
    words = middle[1:-1].split(_SPLIT)
    kind = words[1] if len(words) > 2 else b""
    if kind not in (b"K", b"T", b"U") or (kind == b"U") != (len(words) == 3):
        return None
    return IndexRow(
        INDEX_KEY.unpack(key)["hour"],
        _text(words[0]),
        "K" if kind == b"K" else "T" if kind == b"T" else "U",
        _text(_SPLIT.join(words[2:-1])),
        _text(words[-1]),
        INDEX_KEY_TAIL.unpack(key[-INDEX_KEY_TAIL.size :])["commitlog_offset"],
        INDEX_VALUE.unpack(value)["store_timestamp"],
    )


def build_index_row(row: IndexRow) -> tuple[bytes, bytes]:
    """Return key and value of a row of the family `default`."""
    words = ("", row.topic, row.kind, *((row.word,) if row.kind != "U" else ()), row.unique_id, "")
    head, tail = INDEX_KEY.build(hour=row.hour), INDEX_KEY_TAIL.build(commitlog_offset=row.commitlog_offset)
    return head + "@".join(words).encode() + tail, INDEX_VALUE.build(store_timestamp=row.store_timestamp)


def is_unique_id_row(key: bytes) -> bool:
    """Return whether a key of the family `default` is the one row of a message that has only its unique id."""
    words = key[INDEX_KEY.size : -INDEX_KEY_TAIL.size].split(_SPLIT)
    return len(words) == 5 and words[2] == b"U"


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
