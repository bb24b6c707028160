"""The index file: header, hash slots, units, key hashes, and position arithmetic.

Source: IndexFile, IndexHeader, IndexService (RocketMQ 4.3 to 5.4.0).
"""

from __future__ import annotations

from datetime import datetime, tzinfo

from construct import Int32sb, Int64sb

from rmqstore.formats.javatext import java_string_hash
from rmqstore.formats.layout import Field, Layout

HEADER = Layout(
    "index header",
    "IndexHeader, RocketMQ 5.4.0",
    Field("begin_timestamp", Int64sb, "Store time of the first entry.", "ms"),
    Field("end_timestamp", Int64sb, "Store time of the last entry.", "ms"),
    Field("begin_phy_offset", Int64sb, "Commitlog position of the first entry.", "bytes"),
    Field("end_phy_offset", Int64sb, "Commitlog position of the last entry.", "bytes"),
    Field("hash_slot_count", Int32sb, "Slots in use (up to 4.7.0: puts).", "slots"),
    Field("index_count", Int32sb, "Entries + 1; 0 in a file never written to.", "units"),
    about="A new file takes over the end values of the previous file.",
)
SLOT = Layout(
    "index slot",
    "IndexFile#putKey, RocketMQ 5.4.0",
    Field("newest", Int32sb, "Number of the newest unit of the chain; 0: empty.", "units"),
)
UNIT = Layout(
    "index unit",
    "IndexFile#putKey, RocketMQ 5.4.0",
    Field("key_hash", Int32sb, "Hash of topic, '#' and key."),
    Field("phy_offset", Int64sb, "Where the message starts in the commitlog.", "bytes"),
    Field("time_diff", Int32sb, "Store time after the header's begin.", "s"),
    Field("prev_index", Int32sb, "Number of the previous unit in the slot's chain; 0: none.", "units"),
    about="Unit 0 is never used.",
)

NAME_DIGITS = 17
"""Length of a file name: the time at which the broker created the file, as yyyyMMddHHmmssSSS."""
DEFAULT_SLOTS = 5_000_000
DEFAULT_UNITS = 20_000_000
INVALID_INDEX = 0
_INT_MAX = (1 << 31) - 1


def key_hash(text: str) -> int:
    """Hash a key text (`topic#key`): Math.abs of String.hashCode, and 0 for Integer.MIN_VALUE, which has no abs.

    Source: IndexFile#indexKeyHashMethod
    """
    h = abs(java_string_hash(text))
    return 0 if h > _INT_MAX else h


def key_text(topic: str, key: str) -> str:
    """Return the text that is hashed for a key of a topic.

    Source: IndexService#buildKey
    """
    return f"{topic}#{key}"


def slot_of(hash_value: int, slots: int) -> int:
    """Return the number of the slot for a key hash."""
    return hash_value % slots


def slot_at(slot: int) -> int:
    """Return the position of a slot in the file, in bytes."""
    return HEADER.size + slot * SLOT.size


def unit_at(unit: int, slots: int) -> int:
    """Return the position of a unit in the file, in bytes."""
    return HEADER.size + slots * SLOT.size + unit * UNIT.size


def file_size(slots: int = DEFAULT_SLOTS, units: int = DEFAULT_UNITS) -> int:
    """Return the size of an index file in bytes."""
    return unit_at(units, slots)


def units_in(size: int, slots: int) -> int:
    """Return how many units, including unit 0, fit into a file of `size` bytes with `slots` slots; never negative."""
    return max(0, (size - unit_at(0, slots)) // UNIT.size)


def entries(index_count: int) -> int:
    """Return the number of entries for the header's index count, which starts at 1."""
    return max(0, index_count - 1)


def time_diff(store_timestamp: int, begin_timestamp: int) -> int:
    """Return the time difference (s) that putKey stores for a store time and the header's begin time (both ms).

    Source: IndexFile#putKey
    """
    if begin_timestamp <= 0:
        return 0
    millis = store_timestamp - begin_timestamp
    # Java's integer division rounds towards zero
    seconds = abs(millis) // 1000 * (1 if millis >= 0 else -1)
    return min(max(seconds, 0), _INT_MAX)


def file_name(time: int, zone: tzinfo | None = None) -> str:
    """Return the 17-digit name of an index file created at `time` (ms) in the broker's zone (default: local).

    Source: UtilAll#timeMillisToHumanString
    """
    moment = datetime.fromtimestamp(time // 1000, zone)
    return f"{moment.year:04d}{moment:%m%d%H%M%S}{time % 1000:03d}"
