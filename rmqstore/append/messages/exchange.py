"""A message as a row of an export, and back: nothing is lost on the way.

A row is a flat dict of JSON values. What is text in almost every store is given as text; where bytes are not such text,
or where the property text cannot be rebuilt from its pairs, they are also given in base64, which takes precedence.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from rmqstore.append.messages.encoder import NewMessage
from rmqstore.errors import BadRow
from rmqstore.formats.message import CRC32_PROPERTY, CRC32_RESERVED_LEN, host_bytes, host_text

Row = dict[str, Any]

INTEGERS = {
    "queue_id": 32,
    "queue_offset": 64,
    "flag": 32,
    "sys_flag": 32,
    "born_timestamp": 64,
    "store_timestamp": 64,
    "reconsume_times": 32,
    "prepared_transaction_offset": 64,
    "version": 32,
}
COLUMNS = (
    *("topic", "queue_id", "queue_offset", "store_timestamp", "born_timestamp", "store_host", "born_host"),
    *("tags", "keys", "unique_key", "flag", "sys_flag", "reconsume_times", "prepared_transaction_offset"),
    *("properties", "body", "body_base64", "topic_base64", "properties_base64", "last_separator", "version"),
)
"""Every field that a row may have, in the order of CSV and Parquet columns."""


def properties_of(text: bytes) -> Row:
    """`properties` as pairs, and what is needed to build the same bytes again."""
    try:
        whole = text.decode()
    except UnicodeDecodeError:
        whole = text.decode("utf-8", "replace")
    pairs: dict[str, str] = {}
    for part in whole.split("\x02"):
        name, separator, value = part.partition("\x01")
        if separator and name:
            pairs[name] = value
    row: Row = {"properties": pairs}
    if build_text(pairs, True) != text:
        if pairs and build_text(pairs, False) == text:
            row["last_separator"] = False
        else:
            row["properties_base64"] = base64.b64encode(text).decode()
    return row


def build_text(pairs: Mapping[str, str], last_separator: bool) -> bytes:
    """Property text of pairs in order."""
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs.items())
    return (text + "\x02" if pairs and last_separator else text).encode("utf-8", "surrogatepass")


def row_of(
    topic: bytes,
    queue_id: int,
    queue_offset: int,
    flag: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: bytes | None,
    properties: bytes,
    *,
    text_body: bool = False,
    v2: bool = False,
) -> Row:
    """One message as a row; without a body when it is None. `text_body`: as text where it is UTF-8.

    `v2`: its record is of version 2; without the field, import goes by the topic's length, as a broker does.
    """
    found = properties_of(properties)
    pairs = found["properties"]
    try:
        name, raw_name = topic.decode(), None
    except UnicodeDecodeError:
        name, raw_name = topic.decode("utf-8", "backslashreplace"), base64.b64encode(topic).decode()
    row: Row = {
        "topic": name,
        "queue_id": queue_id,
        "queue_offset": queue_offset,
        "store_timestamp": store_timestamp,
        "born_timestamp": born_timestamp,
        "store_host": host_text(store_host),
        "born_host": host_text(born_host),
        "tags": pairs.get("TAGS"),
        "keys": pairs.get("KEYS"),
        "unique_key": pairs.get("UNIQ_KEY"),
        "flag": flag,
        "sys_flag": sys_flag,
        "reconsume_times": reconsume_times,
        "prepared_transaction_offset": prepared_transaction_offset,
        **found,
    }
    if raw_name is not None:
        row["topic_base64"] = raw_name
    if v2:
        row["version"] = 2
    if body is not None:
        if text_body:
            try:
                row["body"] = body.decode()
                return row
            except UnicodeDecodeError:
                pass
        row["body_base64"] = base64.b64encode(body).decode()
    return row


def _bytes(row: Mapping[str, Any], name: str, where: str) -> bytes | None:
    value = row.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise BadRow(f"{where}: {name} must be base64 text")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRow(f"{where}: {name} is not base64: {error}") from error


def _integer(row: Mapping[str, Any], name: str, where: str, default: int | None) -> int:
    value = row.get(name)
    if value is None or value == "":
        if default is None:
            raise BadRow(f"{where}: {name} is missing")
        return default
    if isinstance(value, str):
        if not value.lstrip("-").isdigit() or len(value) > 20:
            raise BadRow(f"{where}: {name} must be an integer, not {value[:40]!r}")
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRow(f"{where}: {name} must be an integer")
    top = 1 << INTEGERS[name] - 1
    if not -top <= value < top:
        raise BadRow(f"{where}: {name} {value} does not fit into {INTEGERS[name]} bits")
    return value


def _host(row: Mapping[str, Any], name: str, where: str) -> bytes:
    text = row.get(name)
    if not isinstance(text, str):
        raise BadRow(f"{where}: {name} must be a text such as 10.0.0.1:10911")
    try:
        return host_bytes(text)
    except (ValueError, OverflowError) as error:
        raise BadRow(f"{where}: {name} {text[:60]!r} is not an address") from error


def message_of(row: Mapping[str, Any], where: str) -> NewMessage:
    """The message of a row; `where` names file and line.

    Errors: BadRow.
    """
    if not isinstance(row, Mapping):
        raise BadRow(f"{where}: no JSON object")
    topic = row.get("topic")
    raw_topic = _bytes(row, "topic_base64", where)
    if not isinstance(topic, str) or not topic:
        raise BadRow(f"{where}: topic is missing")
    if raw_topic is not None:
        topic = raw_topic.decode("utf-8", "surrogateescape")
    body = _bytes(row, "body_base64", where)
    if body is None:
        text = row.get("body")
        if text is not None and not isinstance(text, str | bytes):
            raise BadRow(f"{where}: body must be a text")
        if text is None and "body_base64" not in row:
            raise BadRow(f"{where}: the row has no body", "import reads what `rmqstore export` writes, bodies and all")
        body = text if isinstance(text, bytes) else (text or "").encode("utf-8", "surrogatepass")
    properties = _bytes(row, "properties_base64", where)
    if properties is None:
        pairs = row.get("properties") or {}
        if not isinstance(pairs, Mapping) or not all(
            isinstance(k, str) and isinstance(v, str) for k, v in pairs.items()
        ):
            raise BadRow(f"{where}: properties must be an object of texts")
        properties = build_text(pairs, row.get("last_separator") is not False)
    version = _integer(row, "version", where, 0)
    if version not in (0, 1, 2):
        raise BadRow(f"{where}: version must be 1 or 2, not {version}")
    crc = properties[-CRC32_RESERVED_LEN:].startswith(CRC32_PROPERTY)
    return NewMessage(
        topic=topic,
        body=body,
        properties=properties[:-CRC32_RESERVED_LEN] if crc else properties,
        queue_id=_integer(row, "queue_id", where, None),
        flag=_integer(row, "flag", where, 0),
        sys_flag=_integer(row, "sys_flag", where, 0),
        born_timestamp=_integer(row, "born_timestamp", where, 0),
        born_host=_host(row, "born_host", where),
        store_timestamp=_integer(row, "store_timestamp", where, 0),
        store_host=_host(row, "store_host", where),
        reconsume_times=_integer(row, "reconsume_times", where, 0),
        prepared_transaction_offset=_integer(row, "prepared_transaction_offset", where, 0),
        queue_offset=_integer(row, "queue_offset", where, 0),
        append_crc=crc or None,
        version=version or None,
    )
