"""Reference for exports: rows built record by record with the standard library."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import Any

from rmqstore.formats.bodies import BodyError, decompress
from rmqstore.formats.message import COMPRESSED, COMPRESSION_TYPE_MASK, MAGIC_V2, Message, host_text
from rmqstore.formats.properties import parse_properties


def text_of(pairs: dict[str, str], *, last: bool) -> bytes:
    """Build the text of properties."""
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs.items())
    return (text + "\x02" * (last and bool(pairs))).encode("utf-8", "surrogatepass")


def exported(message: Message, *, decode: bool = False, text: bool = False) -> dict[str, Any]:
    """Return the exported row of a message; bytes are not encoded as base64."""
    pairs = parse_properties(message.properties)
    row: dict[str, Any] = {
        "topic": message.topic.decode("utf-8", "backslashreplace"),
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "store_timestamp": message.store_timestamp,
        "born_timestamp": message.born_timestamp,
        "store_host": host_text(message.store_host),
        "born_host": host_text(message.born_host),
        "tags": pairs.get("TAGS"),
        "keys": pairs.get("KEYS"),
        "unique_key": pairs.get("UNIQ_KEY"),
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "properties": pairs,
    }
    if text_of(pairs, last=True) != message.properties:
        if text_of(pairs, last=False) == message.properties:
            row["last_separator"] = False
        else:
            row["properties_base64"] = message.properties
    if row["topic"].encode() != message.topic:
        row["topic_base64"] = message.topic
    if message.magic == MAGIC_V2:
        row["version"] = 2
    body = message.body
    if decode and message.sys_flag & COMPRESSED:
        with suppress(BodyError):
            body = decompress(message.sys_flag, body)
            row["sys_flag"] = message.sys_flag & ~(COMPRESSED | COMPRESSION_TYPE_MASK)
    if text:
        try:
            return row | {"body": body.decode()}
        except UnicodeDecodeError:
            return row | {"body_base64": body}
    return row | {"body_base64": body}


def as_json(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row as in NDJSON."""
    return {k: base64.b64encode(v).decode() if isinstance(v, bytes) else v for k, v in row.items()}
