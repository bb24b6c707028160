"""Consume queues: their names, the 20-byte unit, the 46-byte batch unit (BatchCQ), the extension unit.

Source: ConsumeQueue#putMessagePositionInfo, #fillPreBlank; BatchConsumeQueue; SparseConsumeQueue; ConsumeQueueExt
(RocketMQ 4.3 to 5.4.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from construct import Int16sb, Int32sb, Int64sb

from rmqstore.formats.layout import Field, Layout

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.integer]
    Bools = npt.NDArray[np.bool_]

MAX_DIRECTORY_NAME = 255  # bytes
UNIT = Layout(
    "consume queue unit",
    "ConsumeQueue#putMessagePositionInfo, RocketMQ 5.4.0",
    Field("commitlog_offset", Int64sb, "Where the message starts in the commitlog.", "bytes"),
    Field("size", Int32sb, "TOTALSIZE of the message.", "bytes"),
    Field("tags_code", Int64sb, "Hash of TAGS; due time (ms) in the schedule topic; or address in the extension."),
    about="Queue offset of a unit = (number in the file name + position in the file) / 20. "
    "Twenty zero bytes mark the end of data.",
)
BATCH_UNIT = Layout(
    "batch consume queue unit",
    "BatchConsumeQueue#putBatchMessagePositionInfo, RocketMQ 5.4.0",
    Field("commitlog_offset", Int64sb, "Where the message starts in the commitlog.", "bytes"),
    Field("size", Int32sb, "TOTALSIZE of the message.", "bytes"),
    Field("tags_code", Int64sb, "Hash of TAGS."),
    Field("store_timestamp", Int64sb, "Broker's clock at append.", "ms"),
    Field("base_offset", Int64sb, "Queue offset of the first message in the batch.", "units"),
    Field("batch_size", Int16sb, "Messages in the batch.", "messages"),
    Field("compacted_offset", Int32sb, "Always -1.", const=-1),
    Field("reserved", Int32sb, "Always 0."),
    about="File positions do not correspond to queue offsets.",
)
EXT_UNIT = Layout(
    "consume queue extension unit",
    "ConsumeQueueExt.CqExtUnit#write, RocketMQ 5.4.0",
    Field("size", Int16sb, "Length of the unit with its bitmap; -1 closes the file.", "bytes"),
    Field("tags_code", Int64sb, "Hash of TAGS."),
    Field("store_timestamp", Int64sb, "Broker's clock at append.", "ms"),
    Field("bitmap_size", Int16sb, "Length of the filter bitmap that follows.", "bytes"),
    about="Followed by the Bloom filter bitmap.",
)
EXT_END = Layout(
    "consume queue extension end",
    "ConsumeQueueExt#fullFillToEnd, RocketMQ 5.4.0",
    Field("size", Int16sb, "Always -1: the rest of the file is unused.", const=-1),
)

PRE_BLANK_SIZE = 0x7FFFFFFF
UNIT_SIZE, BATCH_UNIT_SIZE = UNIT.size, BATCH_UNIT.size
"""Bytes of a unit of a consume queue, and of one of a BatchCQ."""
PRE_BLANK = UNIT.build(size=PRE_BLANK_SIZE)

EXT_MAX_ADDRESS = -(1 << 31) - 1
_MOST_DIGITS = 10  # of a queue id, an Int32

QueueName = tuple[str, int]
"""A consume queue: topic, queue id."""


def parse_queue_id(text: str) -> int | None:
    """Parse a queue id of digits only; None for any other text, and for more digits than an Int32 has."""
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


def parse_queue_label(text: str) -> QueueName | None:
    """Parse `TOPIC/ID`; None for any other text. An id has digits only."""
    topic, _, digits = text.rpartition("/")
    queue_id = parse_queue_id(digits)
    return (topic, queue_id) if topic and queue_id is not None else None


def split_queue_label(label: str) -> QueueName:
    """Split the `TOPIC/ID` of a queue; the id is negative if a damaged record has one. Errors: ValueError."""
    topic, _, queue_id = label.rpartition("/")
    return topic, int(queue_id)


def topic_of(label: str) -> str:
    """Return TOPIC of `TOPIC/ID`; "" for a text without a slash."""
    return label.rpartition("/")[0]


@overload
def is_unit(commitlog_offset: int, size: int) -> bool: ...
@overload
def is_unit(commitlog_offset: Ints, size: Ints) -> Bools: ...
def is_unit(commitlog_offset: int | Ints, size: int | Ints) -> bool | Bools:
    """Return whether the broker's recovery accepts these fields as a unit or pre-blank. Takes numbers or arrays.

    Source: ConsumeQueue#recover, #truncateDirtyLogicFiles
    """
    return (commitlog_offset >= 0) & (size > 0)


@overload
def is_pre_blank(commitlog_offset: int, size: int) -> bool: ...
@overload
def is_pre_blank(commitlog_offset: Ints, size: Ints) -> Bools: ...
def is_pre_blank(commitlog_offset: int | Ints, size: int | Ints) -> bool | Bools:
    """Return whether a unit is a pre-blank, before the first unit of a queue not starting at 0. Numbers or arrays.

    The tags code is ignored: consumers skip such a unit because no message has this size. Brokers have no check for
    the filler that they write. A unit with this size and another commitlog offset is damaged.
    Source: ConsumeQueue#fillPreBlank, the only code that uses this size (RocketMQ 5.4.0)
    """
    return (commitlog_offset == 0) & (size == PRE_BLANK_SIZE)


@overload
def is_message_unit(commitlog_offset: int, size: int) -> bool: ...
@overload
def is_message_unit(commitlog_offset: Ints, size: Ints) -> Bools: ...
def is_message_unit(commitlog_offset: int | Ints, size: int | Ints) -> bool | Bools:
    """Return whether a unit refers to a message: neither zeros nor a pre-blank. Takes numbers or arrays."""
    return (commitlog_offset >= 0) & (size > 0) & ((commitlog_offset != 0) | (size != PRE_BLANK_SIZE))


@overload
def is_batch_unit(commitlog_offset: int, size: int, base_offset: int, batch_size: int) -> bool: ...
@overload
def is_batch_unit(commitlog_offset: Ints, size: Ints, base_offset: Ints, batch_size: Ints) -> Bools: ...
def is_batch_unit(
    commitlog_offset: int | Ints, size: int | Ints, base_offset: int | Ints, batch_size: int | Ints
) -> bool | Bools:
    """Return whether the broker's recovery accepts these fields as a batch unit. Takes numbers or arrays.

    Source: BatchConsumeQueue#recover
    """
    return (commitlog_offset >= 0) & (size > 0) & (base_offset >= 0) & (batch_size > 0)


def begins_with_batch_unit(raw: bytes) -> bool:
    """Return whether bytes begin with a batch unit; its last two fields, -1 and 0, are no offset of a simple unit."""
    if len(raw) < BATCH_UNIT.size:
        return False
    unit = BATCH_UNIT.unpack(raw[: BATCH_UNIT.size])
    fits = is_batch_unit(unit["commitlog_offset"], unit["size"], unit["base_offset"], unit["batch_size"])
    return bool(fits) and unit["compacted_offset"] == -1 and unit["reserved"] == 0


def round_file_size(size: int) -> int:
    """Round a configured consume queue file size up to whole units, as the broker does; in bytes.

    Source: MessageStoreConfig#getMappedFileSizeConsumeQueue
    """
    return -(-size // UNIT_SIZE) * UNIT_SIZE


def first_file(queue_offset: int, file_size: int) -> int:
    """Return the start offset (bytes), which is also the name, of the file that holds the unit of `queue_offset`."""
    return queue_offset * UNIT_SIZE // file_size * file_size


def pre_blanks(queue_offset: int, file_size: int) -> int:
    """Return how many pre-blank units precede `queue_offset` in the first file of a queue that starts there."""
    return queue_offset * UNIT_SIZE % file_size // UNIT_SIZE


@overload
def is_ext_address(tags_code: int) -> bool: ...
@overload
def is_ext_address(tags_code: Ints) -> Bools: ...
def is_ext_address(tags_code: int | Ints) -> bool | Bools:
    """Return whether a unit's tags code is an address in the consume queue extension, not a hash. Numbers or arrays.

    Source: ConsumeQueueExt#isExtAddr
    """
    return tags_code <= EXT_MAX_ADDRESS


@overload
def ext_offset(address: int) -> int: ...
@overload
def ext_offset(address: Ints) -> Ints: ...
def ext_offset(address: int | Ints) -> int | Ints:
    """Position in the extension (bytes) of an address, or of an array of addresses.

    Source: ConsumeQueueExt#unDecorate
    """
    return address - (-1 << 63)


def is_directory_name(topic: bytes) -> bool:
    """Return whether a topic can name a directory; file-based consume queues need one for each topic.

    Source: ConsumeQueue#<init> (storePath/topic/queueId); the limits are those of Linux file systems
    """
    return b"/" not in topic and topic not in (b"", b".", b"..") and can_be_created(topic, splits_paths=True)


def can_be_created(topic: bytes, *, splits_paths: bool) -> bool:
    """Return whether a broker can create directories for a topic, in which a "/" separates several names.

    `splits_paths`: the broker takes a path with a comma for several directories (4.9.4 and newer).
    Source: DefaultMappedFile#init, UtilAll#ensureDirOK; the limits are those of Linux file systems
    """
    if b"\0" in topic or (splits_paths and b"," in topic):
        return False
    return all(len(name) <= MAX_DIRECTORY_NAME for name in topic.split(b"/"))


def one_bit_apart(a: int, b: int) -> bool:
    """Return whether two 64-bit numbers differ in exactly one bit."""
    return ((a ^ b) & 0xFFFF_FFFF_FFFF_FFFF).bit_count() == 1


def may_be_right(code: int, expected: int) -> bool:
    """Return whether a unit's tags code may be right although its message gives another one (`expected`).

    A tags code is a 32-bit string hash, sign-extended to 64 bits. A damaged code is usually outside the 32-bit range,
    or one bit off; a torn write leaves zero. Any other code is the hash of some tags: either the unit or the message is
    damaged, and the two alone do not show which.
    """
    return -(1 << 31) <= code < 1 << 31 and code not in (0, expected) and not one_bit_apart(code, expected)
