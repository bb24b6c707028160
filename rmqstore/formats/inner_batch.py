"""The body of a batch record (topics with queue.type=BatchCQ): several messages of one queue, one after the other.

Source: MessageDecoder#encodeMessage, #decodeMessage, #decodeMessages (RocketMQ 5.0.0 to 5.5.1)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from construct import Int16sb, Int32sb

from rmqstore.formats.bodies import BodyError, decompress
from rmqstore.formats.layout import Field, Layout
from rmqstore.formats.message import INNER_BATCH, Message
from rmqstore.texts import Text

HEAD = Layout(
    "inner message",
    "MessageDecoder#encodeMessage, RocketMQ 5.4.0",
    Field("size", Int32sb, "Length of the inner message, with this field.", "bytes"),
    Field("magic", Int32sb, "Always 0."),
    Field("body_crc", Int32sb, "Always 0: brokers check the CRC of the whole body."),
    Field("flag", Int32sb, "Flag of the message."),
    Field("body_length", Int32sb, "Length of the body that follows.", "bytes"),
    about="Followed by the body, the length of the properties (2 bytes), and the properties.",
)
_LENGTH = Layout(
    "inner message properties",
    "MessageDecoder#encodeMessage, RocketMQ 5.4.0",
    Field("properties_length", Int16sb, "Length of the properties.", "bytes"),
)


@dataclass(frozen=True, slots=True)
class InnerMessage:
    """One message of a batch. `properties`: their text, as in a record."""

    flag: int
    properties: bytes
    body: bytes


class BatchError(ValueError):
    """The body is not a batch of messages."""


def inner_messages(body: bytes) -> list[InnerMessage]:
    """Split the body of a batch record, decompressed if it was compressed. Errors: BatchError."""
    return list(_split(body))


def messages_in(message: Message) -> list[InnerMessage]:
    """Return the messages in a batch record; none for another record, or if its body is damaged."""
    if not message.sys_flag & INNER_BATCH:
        return []
    try:
        return inner_messages(decompress(message.sys_flag, message.body))
    except (BatchError, BodyError):
        return []


def _split(body: bytes) -> Iterator[InnerMessage]:
    at = 0
    while at < len(body):
        if len(body) - at < HEAD.size:
            raise BatchError(Text("the batch ends in the head of a message"))
        head = HEAD.unpack(body, at)
        start = at + HEAD.size
        stop = start + head["body_length"]
        if head["body_length"] < 0 or stop + _LENGTH.size > len(body):
            raise BatchError(Text("a message of the batch is longer than the batch"))
        first = stop + _LENGTH.size
        after = first + _LENGTH.unpack(body, stop)["properties_length"]
        if not first <= after <= len(body) or after - at != head["size"]:
            raise BatchError(Text("a message of the batch has a wrong length"))
        yield InnerMessage(head["flag"], body[first:after], body[start:stop])
        at = after
