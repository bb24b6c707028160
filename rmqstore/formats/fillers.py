"""Fillers: records that a repair wrote in the place of lost messages. They are not messages.

A record tells that it is a filler by the property RMQSTORE_FILLER, by a tag that begins with RMQSTORE-FILLER, by a
topic that only fillers have, or, in an op topic, by a negative number as its body. Only a filler that had no room for
any of these is unmarked; the journal of its repair lists it (`checks.filler_notes`).
"""

from __future__ import annotations

from rmqstore.formats import properties
from rmqstore.formats.message import CRC32_RESERVED_LEN, TRANSACTION_ROLLBACK, Message

WORD = b"RMQSTORE"
"""Eight bytes that the property text of every filler with a mark in it contains."""
FILLER_KEY = "RMQSTORE_FILLER"
"""Property that marks a filler. Its value is the length in bytes."""
FILLER_TAG = "RMQSTORE-FILLER"
"""Tag of a filler without a given tags code; a tag for a given code begins with this text."""
FILLER_TOPICS = (b"RMQSTORE_FILLER", b"_")
"""Topics of fillers that no broker dispatches to a queue."""
OP_TOPICS = (properties.OP_HALF_TOPIC, properties.ROCKSDB_OP_HALF_TOPIC)
OP_BODY = b"-"
"""First byte of the body of a filler in an op topic; queue offsets, which brokers write, are not negative."""


def is_filler(message: Message) -> bool:
    """Return whether a record tells that it is a filler."""
    rolled_back = message.transaction_type == TRANSACTION_ROLLBACK
    if rolled_back and message.topic in FILLER_TOPICS and len(message.properties) <= CRC32_RESERVED_LEN:
        return True  # a client's message has an id
    if message.body[:1] == OP_BODY and message.topic_text in OP_TOPICS:
        return True
    return WORD in message.properties and is_filler_text(message.properties)


def is_filler_text(text: bytes) -> bool:
    """Return whether a property text has the mark of a filler."""
    found = properties.parse_properties(text)
    return FILLER_KEY in found or found.get(properties.TAGS, "").startswith(FILLER_TAG)
