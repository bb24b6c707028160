"""Reconstructs the SYSFLAG of a damaged record from its body, its properties and its consume queue unit.

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
from rmqstore.texts import Text

_WRITTEN = 0x7FF  # all bits that any version sets; the upper three are the compression type
_HOSTS = 0x30  # the address families of both hosts
UNPROVED = Text("its other SYSFLAG bits are unknown")


def is_garbage(sys_flag: int) -> bool:
    """Return whether a SYSFLAG has bits that no version sets: then its other bits prove nothing."""
    return bool(sys_flag & ~_WRITTEN)


def dispatched_flag(message: Message) -> int:
    """Return the SYSFLAG of a message with a consume queue unit, which cannot be a prepared or rollback record."""
    if message.is_dispatched:
        return message.sys_flag
    kind = TRANSACTION_COMMIT if message.prepared_transaction_offset else 0
    return message.sys_flag & ~TRANSACTION_MASK | kind


def provable_flag(message: Message) -> int:
    """Return the provable bits of a garbled SYSFLAG: address families, compression, inner batch, commit."""
    found = properties.parse_properties(message.properties)
    batch = INNER_BATCH | NEED_UNWRAP if properties.inner_batch(found) is not None else 0
    commit = TRANSACTION_COMMIT if message.prepared_transaction_offset else 0
    return message.sys_flag & _HOSTS | _compression_bits(message.body) | batch | commit


def _compression_bits(body: bytes) -> int:
    """Return the bits of the compression with which a body can be decompressed; 0 if there is none."""
    for kind in Compression:
        try:
            if body and decompress(kind.sys_flag, body):
                return kind.sys_flag
        except BodyError:
            continue
    return 0
