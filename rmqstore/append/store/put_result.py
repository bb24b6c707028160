"""The result of a put.

Source: PutMessageResult, PutMessageStatus, Message#isWaitStoreMsgOK (RocketMQ 5.4.0)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rmqstore.append.messages.encoder import NewMessage
from rmqstore.append.store.dispatch import property_value
from rmqstore.formats.messageid import offset_message_id


class PutStatus(StrEnum):
    """The status of a message that was appended to the log. Source: PutMessageStatus"""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """The message was not on disk after syncFlushTimeout."""


@dataclass(frozen=True, slots=True)
class PutResult:
    """The offsets of an appended message; `offset` and `size` in bytes, `queue_offset` in units, times in ms."""

    offset: int
    size: int
    queue_offset: int
    store_timestamp: int
    store_host: bytes
    status: PutStatus = PutStatus.PUT_OK

    @property
    def message_id(self) -> str:
        """The offset message id."""
        return offset_message_id(self.store_host, self.offset)


def waits(message: NewMessage) -> bool:
    """Return whether a synchronous put waits until the message is on disk. Source: Message#isWaitStoreMsgOK"""
    value = property_value(message.properties, b"WAIT")
    return not value or value.lower() == b"true"
