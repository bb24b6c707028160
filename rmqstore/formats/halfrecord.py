"""What is left of a record whose parts do not add up to TOTALSIZE, such as one with a lost page.

If its header and its body are whole, the CRC in the header proves the body. Topic and properties after the body are
taken as far as they can still be read.
"""

from __future__ import annotations

from dataclasses import replace

from rmqstore.formats.layout import Buffer
from rmqstore.formats.message import (
    HEAD,
    HEADS_BY_FLAG,
    MAGIC_V1,
    MAGIC_V2,
    MIN_SIZE,
    Message,
    body_crc,
    parse_message,
)
from rmqstore.formats.properties import property_faults
from rmqstore.formats.services import is_sound_topic


def message_with_body(data: Buffer, at: int = 0) -> Message | None:
    """Return the record at `at` if the CRC proves its body, although its parts do not add up to TOTALSIZE.

    `topic` is empty if its bytes are damaged; `properties` has those that can be read. None for other damage, and for
    an empty body, which proves nothing.
    """
    view = memoryview(data)[at:]
    if len(view) < MIN_SIZE:
        return None
    head = HEAD.parse(view)
    size, magic = head["size"], head["magic"]
    if magic not in (MAGIC_V1, MAGIC_V2) or not MIN_SIZE <= size <= len(view):
        return None
    body_at, wide = HEADS_BY_FLAG[head["sys_flag"] & 0x30].size, 2 if magic == MAGIC_V2 else 1
    length = int.from_bytes(view[body_at - 4 : body_at], "big", signed=True)
    topic_at = body_at + length + wide
    if length <= 0 or topic_at > size or body_crc(view[body_at : body_at + length]) != head["body_crc"]:
        return None
    stop = topic_at + int.from_bytes(view[topic_at - wide : topic_at], "big")
    topic = bytes(view[topic_at:stop]) if stop + 2 <= size else b""
    text = b""
    if is_sound_topic(topic):
        parts = bytes(view[stop + 2 : size]).split(b"\2")
        text = b"\2".join(part for part in parts if part and not property_faults(part))
    else:
        topic = b""
    record = bytearray(view[: body_at + length])
    record += len(topic).to_bytes(wide, "big") + topic + len(text).to_bytes(2, "big") + text
    record[:4] = len(record).to_bytes(4, "big")
    message, _ = parse_message(record)
    return None if message is None else replace(message, size=size)
