"""Convert rows of exported files to tables of messages, and check every row.

Columns in the form that `rmqstore export` writes are converted as a whole. Anything else is converted row by row, which
also finds the wrong row and the reason.
"""

from __future__ import annotations

import base64
import binascii
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from rmqstore.append.encoder import NewMessage
from rmqstore.errors import BadRow
from rmqstore.formats.message import CRC32_PROPERTY, CRC32_RESERVED_LEN, ends_with_crc, host_bytes
from rmqstore.messages.cells import Spans, listed
from rmqstore.messages.fields import rebuilt
from rmqstore.messages.schema import COLUMNS
from rmqstore.messages.table import NUMBERS, MessageTable
from rmqstore.scan import native
from rmqstore.scan.kernels import I64
from rmqstore.texts import Text

Row = Mapping[str, Any]
_ALWAYS = (*NUMBERS, "topic", "born_host", "store_host")  # in every row of an export
INTEGERS = {name: 32 if COLUMNS[name].type == "int32" else 64 for name in (*NUMBERS, "version")}


class TableChunk(NamedTuple):
    """A table, and a function that returns the file and line of one of its messages."""

    table: MessageTable
    where: Callable[[int], str]


# --- one row ---------------------------------------------------------------------------------------------------------


def _bytes(row: Mapping[str, Any], name: str, where: str) -> bytes | None:
    value = row.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise BadRow(Text("{where}: {name} must be base64 text", where=where, name=name))
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRow(Text("{where}: {name} is not base64: {error}", where=where, name=name, error=error)) from error


def _integer(row: Mapping[str, Any], name: str, where: str, default: int | None) -> int:
    value = row.get(name)
    if value is None or value == "":
        if default is None:
            raise BadRow(Text("{where}: {name} is missing", where=where, name=name))
        return default
    if isinstance(value, str):
        if not value.removeprefix("-").isdecimal() or len(value) > 20:
            raise BadRow(
                Text("{where}: {name} must be an integer, not {value!r}", where=where, name=name, value=value[:40])
            )
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRow(Text("{where}: {name} must be an integer", where=where, name=name))
    top = 1 << INTEGERS[name] - 1
    if not -top <= value < top:
        large = Text("{where}: {name} {value} does not fit into {bits} bits")
        raise BadRow(large.format(where=where, name=name, value=value, bits=INTEGERS[name]))
    return value


def _host(row: Mapping[str, Any], name: str, where: str) -> bytes:
    text = row.get(name)
    if not isinstance(text, str):
        raise BadRow(Text("{where}: {name} must be a string such as 10.0.0.1:10911", where=where, name=name))
    try:
        return host_bytes(text)
    except (ValueError, OverflowError) as error:
        raise BadRow(
            Text("{where}: {name} {text!r} is not an address", where=where, name=name, text=text[:60])
        ) from error


def message_of(row: Mapping[str, Any], where: str) -> NewMessage:
    """Convert one row; `where` is the file and line for errors.

    Errors: BadRow.
    """
    if not isinstance(row, Mapping):
        raise BadRow(Text("{where}: not a JSON object", where=where))
    topic = row.get("topic")
    raw_topic = _bytes(row, "topic_base64", where)
    if not isinstance(topic, str) or not topic:
        raise BadRow(Text("{where}: topic is missing", where=where))
    if raw_topic is not None:
        topic = raw_topic.decode("utf-8", "surrogateescape")
    body = _bytes(row, "body_base64", where)
    if body is None:
        text = row.get("body")
        if text is not None and not isinstance(text, str | bytes):
            raise BadRow(Text("{where}: body must be a string", where=where))
        if text is None and "body_base64" not in row:
            raise BadRow(
                Text("{where}: the row has no body", where=where), Text("import needs an export with message bodies")
            )
        body = text if isinstance(text, bytes) else (text or "").encode("utf-8", "surrogatepass")
    properties = _bytes(row, "properties_base64", where)
    if properties is None:
        pairs = row.get("properties") or {}
        if not isinstance(pairs, Mapping) or not all(
            isinstance(k, str) and isinstance(v, str) for k, v in pairs.items()
        ):
            raise BadRow(Text("{where}: properties must be an object with string values", where=where))
        properties = rebuilt(dict(pairs), last_separator=row.get("last_separator") is not False)
    version = _integer(row, "version", where, 0)
    if version not in (0, 1, 2):
        raise BadRow(Text("{where}: version must be 1 or 2, not {version}", where=where, version=version))
    has_crc = ends_with_crc(properties)
    return NewMessage(
        topic=topic,
        body=body,
        properties=properties[:-CRC32_RESERVED_LEN] if has_crc else properties,
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
        append_crc=has_crc or None,
        version=version or None,
    )


# --- tables of rows --------------------------------------------------------------------------------------------------


class Unusual(Exception):
    """A column is not in the form that `rmqstore export` writes, so its rows must be converted one by one."""


def _numbered(values: Iterable[Any]) -> tuple[list[Any], I64]:
    """Return the distinct values, and the number of each row's value among them."""
    values = list(values)
    distinct = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return list(distinct), np.fromiter(map(distinct.__getitem__, values), dtype=np.int64, count=len(values))


def _numbers(values: Sequence[Any], name: str) -> I64:
    if set(map(type, values)) != {int}:
        raise Unusual
    try:
        column = np.frombuffer(array("q", values), dtype=np.int64)
    except OverflowError as error:
        raise Unusual from error
    return in_range(column, name)


def in_range(column: I64, name: str) -> I64:
    """Return the column. Errors: Unusual for a number out of range."""
    limit = 1 << INTEGERS[name] - 1
    low, stop = (0, 3) if name == "version" else (-limit, limit)
    if len(column) and not low <= int(column.min()) <= int(column.max()) < stop:
        raise Unusual
    return column


def assembled(
    numbers: Mapping[str, I64],
    topics: tuple[list[str], I64],
    hosts: tuple[tuple[list[str], I64], tuple[list[str], I64]],
    properties: Spans,
    body: Spans,
) -> MessageTable:
    """Assemble a table from columns; topics and hosts are distinct values with the number of each row's value.

    Errors: Unusual for an invalid host or an empty topic.
    """
    (born_names, born), (store_names, stored) = hosts
    try:
        raw = [host_bytes(name) for name in [*born_names, *store_names]]
        names = [topic.encode("utf-8", "surrogateescape") for topic in topics[0]]
    except (ValueError, OverflowError, AttributeError) as error:
        raise Unusual from error
    if not all(names):
        raise Unusual
    return MessageTable(numbers, names, topics[1], raw, born, stored + len(born_names), properties, body)


def _from_columns(rows: Sequence[Row]) -> MessageTable:
    """Convert rows in the form that an export writes. Errors: Unusual."""
    names = set[str]().union(*rows)
    if "topic_base64" in names:
        raise Unusual
    try:
        columns = dict(zip(_ALWAYS, zip(*map(itemgetter(*_ALWAYS), rows), strict=True), strict=True))
        numbers = {name: _numbers(columns[name], name) for name in NUMBERS}
        numbers["version"] = np.zeros(len(rows), dtype=np.int64)
        if "version" in names:
            versions = [row.get("version") for row in rows]
            numbers["version"] = _numbers([0 if v is None else v for v in versions], "version")
        if "body" in names:
            body = listed([row["body"].encode() if "body" in row else _decoded(row["body_base64"]) for row in rows])
        else:
            body = _all_decoded(list(map(itemgetter("body_base64"), rows)))
        if "properties_base64" in names or "last_separator" in names:
            texts = list(map(_property_text, rows))
        else:
            texts = list(map(_separated, map(itemgetter("properties"), rows)))
        hosts = _numbered(columns["born_host"]), _numbered(columns["store_host"])
        topics = _numbered(columns["topic"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Unusual from error
    return assembled(numbers, topics, hosts, listed(texts), body)


_decoded = partial(binascii.a2b_base64, strict_mode=True)


def _all_decoded(texts: Sequence[str]) -> Spans:
    """Decode texts in base64. Errors: Unusual, TypeError, ValueError."""
    found = native.load().decode_base64(
        "".join(texts).encode("ascii"), np.cumsum(list(map(len, texts)), dtype=np.int64)
    )
    if found is None:
        raise Unusual
    data, ends = found
    return Spans(data, np.append(0, ends[:-1]), ends)


def _separated(pairs: Mapping[str, str]) -> bytes:
    """Return the property text of pairs in order, with the last separator. Errors: TypeError, ValueError."""
    return ("\x02".join(map("\x01".join, pairs.items())) + "\x02").encode() if pairs else b""


def _property_text(row: Row) -> bytes:
    if "properties_base64" in row:
        return _decoded(row["properties_base64"])
    text = _separated(row["properties"])
    return text[:-1] if row.get("last_separator") is False else text


def table_of_messages(messages: Sequence[NewMessage]) -> MessageTable:
    """Convert messages to a table; a queue offset of None becomes 0."""
    numbers = {
        name: np.array([getattr(message, name) or 0 for message in messages], dtype=np.int64)
        for name in (*NUMBERS, "version")
    }
    topics, topic = _numbered(m.topic.encode("utf-8", "surrogateescape") for m in messages)
    hosts, host = _numbered([*(m.born_host for m in messages), *(m.store_host for m in messages)])
    crc = CRC32_PROPERTY + bytes(CRC32_RESERVED_LEN - len(CRC32_PROPERTY))
    texts = [m.properties + crc if m.append_crc else m.properties for m in messages]
    born, stored = host[: len(messages)], host[len(messages) :]
    return MessageTable(numbers, topics, topic, hosts, born, stored, listed(texts), listed([m.body for m in messages]))


def table_of_rows(rows: Sequence[Row], where: Callable[[int], str]) -> MessageTable:
    """Convert rows to a table. Errors: BadRow for the first bad row."""
    try:
        return _from_columns(rows)
    except Unusual:
        return table_of_messages([message_of(row, where(i)) for i, row in enumerate(rows)])
