"""Messages as rows (dicts) with the fields of `dump`, one record at a time."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from rmqstore.formats import dledger, properties
from rmqstore.formats.bodies import BodyError, decompress
from rmqstore.formats.message import Message, body_crc, host_text, is_filler, record_crc
from rmqstore.scan.columns import NOTHING, Columns, Repaired

BODIES = ("text", "json", "hex", "base64")
Row = dict[str, Any]
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class BodyStyle(NamedTuple):
    """How bodies are shown. `style`: one of BODIES, or None for no body. `raw`: as stored, not decompressed."""

    style: str | None = None
    raw: bool = False


def row_of(columns: Columns, i: int, file: str, crc_ok: bool, body: BodyStyle, repaired: Repaired = NOTHING) -> Row:
    """Return record i of a chunk as a dict, in the order of `schema.DUMPED`."""
    return message_row(columns.message(i), int(columns.offset[i]), file, crc_ok, body, repaired)


def entry_row_of(
    columns: Columns, i: int, file: str, crc_ok: bool, body: BodyStyle, repaired: Repaired = NOTHING
) -> Row:
    """Return DLedger entry i of a chunk as a dict, with its message as "message"."""
    header = dledger.ENTRY.unpack(columns.buf.data, int(columns.entry_at[i]))
    row: Row = {"offset": int(columns.offset[i]) - dledger.ENTRY.size, **header}
    row["message"] = row_of(columns, i, file, crc_ok, body, repaired)
    return row


def message_row(
    message: Message, offset: int, file: str, crc_ok: bool, body: BodyStyle, repaired: Repaired = NOTHING
) -> Row:
    """Return a record as a dict, in the order of `schema.DUMPED`, with its body if `body` has a style.

    `repaired`: what journals tell about the log.
    """
    filler = is_filler(message) or offset in repaired.fillers
    found = properties.parse_properties(message.properties)
    row: Row = {
        "offset": offset,
        "file": file,
        "size": message.size,
        "magic": message.magic,
        "body_crc": message.body_crc,
        "crc_ok": crc_ok,
        "queue_id": message.queue_id,
        "flag": message.flag,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "sys_flag": message.sys_flag,
        "born_timestamp": message.born_timestamp,
        "born_host": host_text(message.born_host),
        "store_timestamp": message.store_timestamp,
        "store_host": host_text(message.store_host),
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "body_length": message.body_length,
        "topic": message.topic_text,
        "tags": found.get(properties.TAGS),
        "keys": found.get(properties.KEYS),
        "unique_key": found.get(properties.UNIQ_KEY),
        "properties": found,
        "msg_id": message.offset_message_id(),
        "filler": filler,
        "mended": not filler and repaired.wrote(offset, offset + message.size, message.store_timestamp),
    }
    if body.style:
        row.update(body_fields(message.sys_flag, message.body, body))
    return row


def body_fields(sys_flag: int, raw: bytes, body: BodyStyle) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a body: `body` (clean text, or JSON), `body_base64` or `body_hex`; perhaps `body_error`."""
    if not body.raw:
        try:
            raw = decompress(sys_flag, raw)
        except BodyError as e:
            yield "body_error", str(e)
    if body.style == "hex":
        yield "body_hex", raw.hex()
        return
    if body.style == "base64":
        yield "body_base64", base64.b64encode(raw).decode()
        return
    if body.style == "json":
        try:
            yield "body", orjson.loads(raw)
            return
        except orjson.JSONDecodeError:
            pass
    text = clean_text(raw)
    if text is not None:
        yield "body", text
    else:
        yield "body_base64", base64.b64encode(raw).decode()


def clean_text(raw: bytes) -> str | None:
    """Return the text if the bytes are UTF-8 without control characters except tab and line ends, else None."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return None if _CONTROL.search(text) else text


def record_is_sound(columns: Columns, i: int) -> bool:
    """Return whether the body CRC and the record CRC (if any) are correct. For records with another fault."""
    message = columns.message(i)
    if message.body_length > 0 and body_crc(message.body) != message.body_crc:
        return False
    stored, computed = record_crc(columns.buf.data, int(columns.at[i]), message.size)
    return stored is None or stored == computed
