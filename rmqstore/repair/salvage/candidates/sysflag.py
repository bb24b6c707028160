"""SYSFLAG of a damaged record: the bits that its body, its properties and its consume queue unit prove.

Source: MessageSysFlag, SendMessageProcessor#sendBatchMessage, ConsumeQueue dispatch (RocketMQ 5.4.0)
"""

from __future__ import annotations

from rmqstore.formats import properties
from rmqstore.formats.bodies import BodyError, Compression, decompress
from rmqstore.formats.message import (
    INNER_BATCH,
    NEED_UNWRAP,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    Message,
)

_WRITTEN = 0x7FF  # all that any version writes: three bits of compression type on top of the lowest byte
_HOSTS = 0x30
UNPROVED = "its other SYSFLAG bits are unknown"


def is_garbage(sys_flag: int) -> bool:
    """Whether a SYSFLAG has bits that nobody writes: then none of the others proves anything."""
    return bool(sys_flag & ~_WRITTEN)


def dispatched_flag(message: Message) -> int:
    """SYSFLAG of a message that a consume queue had: neither a prepared nor a rollback record is put there."""
    if message.is_dispatched:
        return message.sys_flag
    kind = TRANSACTION_COMMIT if message.prepared_transaction_offset else 0
    return message.sys_flag & ~TRANSACTION_MASK | kind


def provable_flag(message: Message) -> int:
    """What can be told of a SYSFLAG that is garbage: the families of the hosts, the packing, an inner batch."""
    found = properties.parse_properties(message.properties)
    batch = INNER_BATCH | NEED_UNWRAP if properties.inner_batch(found) is not None else 0
    commit = TRANSACTION_COMMIT if message.prepared_transaction_offset else 0
    return message.sys_flag & _HOSTS | _packing(message.body) | batch | commit


def _packing(body: bytes) -> int:
    """The bits of the compression that a body unpacks with to its end; 0 for none."""
    for kind in Compression:
        try:
            if body and decompress(kind.sys_flag, body):
                return kind.sys_flag
        except BodyError:
            continue
    return 0
