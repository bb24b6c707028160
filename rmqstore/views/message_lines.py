"""Messages as JSON lines and as rows: the fields of `dump --what messages`, `commitlog` and `dledger`.

`MessageLines.lines` assembles the text of a whole chunk: numbers are turned into text column by column, property texts
by replacing their separators, and one formatted string per record puts it together. Whatever is unusual (quotes,
damaged property texts) takes the way of `row`, which decodes one record; tests hold the two together.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import orjson

from rmqstore.formats import dledger, properties
from rmqstore.formats.bodies import BodyError, decompress
from rmqstore.formats.message import (
    BORN_HOST_V6,
    HEAD,
    STORE_HOST_V6,
    Message,
    body_crc,
    host_text,
    record_crc,
)
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, U8, Bool, u32, u64
from rmqstore.scan.queues import QueueTable

_TAGS = int.from_bytes(b"TAGS", "big")
_KEYS = int.from_bytes(b"KEYS", "big")
_UNIQ_KEY = int.from_bytes(b"UNIQ_KEY", "big")
_BORN_HOST = HEAD.at("born_host")
_STORE_HOST = HEAD.at("store_host")
_HOSTS_V6 = BORN_HOST_V6 | STORE_HOST_V6
BODIES = ("text", "json", "hex", "base64")
FIELDS = (
    "offset",
    "file",
    "size",
    "magic",
    "body_crc",
    "crc_ok",
    "queue_id",
    "flag",
    "queue_offset",
    "physical_offset",
    "sys_flag",
    "born_timestamp",
    "born_host",
    "store_timestamp",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "body_length",
    "topic",
    "tags",
    "keys",
    "unique_key",
    "properties",
    "msg_id",
)
_NUMPY = orjson.OPT_SERIALIZE_NUMPY
_BETWEEN = b'"}\0{"'  # between two property texts
Row = dict[str, Any]


class BodyStyle(NamedTuple):
    """How bodies are shown: None not at all, else one of BODIES; `raw` as stored, not decompressed."""

    style: str | None = None
    raw: bool = False


class _Hosts(dict[int, str]):
    """IPv4 hosts as stored (one 64-bit number) to `ip:port`."""

    def __missing__(self, key: int) -> str:
        text = host_text(key.to_bytes(8, "big"))
        if len(self) > 100_000:
            self.clear()
        self[key] = text
        return text


class _HexHosts(dict[int, str]):
    def __missing__(self, key: int) -> str:
        text = f"{key:016X}"
        self[key] = text
        return text


class MessageLines:
    """Turns chunks of records into JSON lines or rows. One per process: it caches topics and hosts."""

    def __init__(self, body: BodyStyle = BodyStyle()) -> None:  # noqa: B008  # immutable
        self.body = body
        self._table = QueueTable()
        self._topics: list[str] = []
        self._queue_ids: list[str] = []
        self._hosts = _Hosts()
        self._hex_hosts = _HexHosts()

    # --- one record --------------------------------------------------------------------------------------------------

    def row(self, columns: Columns, i: int, file: str, crc_ok: bool) -> Row:
        """One record as a plain dict, in the order of FIELDS."""
        return message_row(columns.message(i), int(columns.offset[i]), file, crc_ok, self.body)

    def entry_row(self, columns: Columns, i: int, file: str, crc_ok: bool) -> Row:
        """One DLedger entry as a plain dict, its message under "message"."""
        header = dledger.ENTRY.parse(columns.buf.data, int(columns.entry_at[i]))
        row: Row = {"offset": int(columns.offset[i]) - dledger.ENTRY.size, **header}
        row["message"] = self.row(columns, i, file, crc_ok)
        return row

    # --- a chunk -----------------------------------------------------------------------------------------------------

    def lines(self, columns: Columns, file: str, crc_ok: Bool | None = None) -> list[str]:
        """JSON text of every record of a chunk; `crc_ok` None: all are."""
        n = len(columns)
        if n == 0:
            return []
        if self.body.style or (columns.sys_flag & _HOSTS_V6).any():
            return [dumps(self.row(columns, i, file, crc_ok is None or bool(crc_ok[i]))) for i in range(n)]
        texts = PropertyTexts(columns)
        oks: Cell = "true" if crc_ok is None else ["true" if ok else "false" for ok in crc_ok.tolist()]
        born, stored, host_hex = self._host_columns(columns)
        offsets = _decimals(columns.offset)
        own = columns.physical_offset
        own_hex = own.astype(">i8").tobytes().hex().upper()
        queue_ids, topics = self._queue_columns(columns)
        return _assemble(
            n,
            ('{"offset":', offsets),
            (',"file":', dumps(file)),
            (',"size":', _decimals(columns.size)),
            (',"magic":', _decimals(columns.magic.astype(np.int32).astype(np.int64))),
            (',"body_crc":', _decimals(columns.body_crc)),
            (',"crc_ok":', oks),
            (',"queue_id":', queue_ids),
            (',"flag":', _decimals(columns.flag)),
            (',"queue_offset":', _decimals(columns.queue_offset)),
            (',"physical_offset":', offsets if np.array_equal(own, columns.offset) else _decimals(own)),
            (',"sys_flag":', _decimals(columns.sys_flag)),
            (',"born_timestamp":', _decimals(columns.born_timestamp)),
            (',"born_host":"', born),
            ('","store_timestamp":', _decimals(columns.store_timestamp)),
            (',"store_host":"', stored),
            ('","reconsume_times":', _decimals(columns.reconsume_times)),
            (',"prepared_transaction_offset":', _decimals(columns.prepared_transaction_offset)),
            (',"body_length":', _decimals(columns.body_length)),
            (',"topic":', topics),
            (',"tags":', texts.tags),
            (',"keys":', texts.keys),
            (',"unique_key":', texts.unique),
            (',"properties":', texts.objects),
            (',"msg_id":"', host_hex),
            ("", [own_hex[k : k + 16] for k in range(0, 16 * n, 16)]),
            ('"}', ""),
        )

    def entry_lines(self, columns: Columns, file: str, crc_ok: Bool | None = None) -> list[str]:
        """JSON text of every DLedger entry of a chunk."""
        at = columns.entry_at
        messages = self.lines(columns, file, crc_ok)
        parts: list[tuple[str, Cell]] = [('{"offset":', _decimals(columns.offset - dledger.ENTRY.size))]
        for field in dledger.ENTRY:
            position = at + dledger.ENTRY.at(field.name)
            number = columns.i64(position) if field.size == 8 else columns.i32(position)
            parts.append((f',"{field.name}":', _decimals(number)))
        return _assemble(len(at), *parts, (',"message":', messages), ("}", ""))

    def _queue_columns(self, columns: Columns) -> tuple[Cell, Cell]:
        """Queue ids and topics, looked up once per queue."""
        numbers = self._table.of(columns)
        while len(self._topics) < len(self._table):
            topic = self._table.topics[len(self._topics)]
            self._topics.append(dumps(topic.decode("utf-8", "backslashreplace")))
            self._queue_ids.append(str(self._table.queue_ids[len(self._queue_ids)]))
        first = int(numbers[0])
        if (numbers == first).all():
            return self._queue_ids[first], self._topics[first]
        listed = numbers.tolist()
        return list(map(self._queue_ids.__getitem__, listed)), list(map(self._topics.__getitem__, listed))

    def _host_columns(self, columns: Columns) -> tuple[Cell, Cell, Cell]:
        words = u64(columns.buf)
        born = words[columns.at + _BORN_HOST]
        stored = words[columns.at + _STORE_HOST]
        hosts, hexes = self._hosts, self._hex_hosts
        first = int(stored[0])
        one = bool((stored == stored[0]).all())
        return (
            list(map(hosts.__getitem__, born.tolist())),
            hosts[first] if one else list(map(hosts.__getitem__, stored.tolist())),
            hexes[first] if one else list(map(hexes.__getitem__, stored.tolist())),
        )


Cell = str | list[str]  # one text for all records, or one for each


def _assemble(n: int, *parts: tuple[str, Cell]) -> list[str]:
    """A text per record: literals and cells in turn; neighbouring constants are put together once."""
    pieces: list[Iterable[str]] = []
    constant = ""
    for literal, cell in parts:
        constant += literal
        if isinstance(cell, str):
            constant += cell
        else:
            pieces += [repeat(constant, n), cell] if constant else [cell]
            constant = ""
    if constant:
        pieces.append(repeat(constant, n))
    return list(map("".join, zip(*pieces, strict=True)))


def _decimals(column: I64) -> Cell:
    """Numbers as text; a column of one value costs nothing."""
    first = column[0]
    if (column == first).all():
        return str(int(first))
    return orjson.dumps(np.ascontiguousarray(column), option=_NUMPY)[1:-1].decode().split(",")


def dumps(value: Any) -> str:
    """JSON text; lone surrogates (from bytes that are no UTF-8) show as escapes."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        import json

        return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


class PropertyTexts:
    """The property texts of a chunk as JSON objects, and TAGS, KEYS and UNIQ_KEY as JSON values.

    Shape: every list has one text per record.
    """

    def __init__(self, columns: Columns) -> None:
        starts = columns.properties_at
        stops = starts + columns.properties_length
        raw = columns.buf.data
        n = len(columns)
        last = columns.buf[np.maximum(stops - 1, 0)] == 2
        spans = list(zip(starts.tolist(), (stops - last).tolist(), strict=True))
        joined = _BETWEEN + _BETWEEN.join([raw[a:b] for a, b in spans]) + _BETWEEN
        self._raw = raw
        self._spans = spans
        arr = np.frombuffer(joined, dtype=np.uint8)
        at = np.flatnonzero(arr <= 2)
        kinds = arr[at]
        # a text 1-A-2-1-B becomes {"1":"A","2":"B"} by replacing its separators
        try:
            text = joined.replace(b"\1", b'":"').replace(b"\2", b'","').decode()
        except UnicodeDecodeError:
            text = ""
        if not text or int(np.count_nonzero(kinds == 0)) != n + 1:
            self._all_slow(n)
            return
        slow = self._unusual(joined, arr, at, kinds)
        self.objects: list[str] = text.split("\0")[1:-1]
        # bytes and characters are the same only without wide ones
        source = text if text.isascii() else None
        self.tags, self.keys, self.unique = self._named(joined, arr, at, kinds, n, source)
        if '{""}' in text:
            self.objects = ["{}" if o == '{""}' else o for o in self.objects]
        for i in slow:
            self._set(i)

    def _all_slow(self, n: int) -> None:
        blank = [""] * n
        self.objects, self.tags, self.keys, self.unique = blank, blank.copy(), blank.copy(), blank.copy()
        for i in range(n):
            self._set(i)

    def _set(self, i: int) -> None:
        start, stop = self._spans[i]
        found = properties.parse_properties(bytes(self._raw[start:stop]))
        self.objects[i] = dumps(found)
        self.tags[i] = dumps(found.get(properties.TAGS))
        self.keys[i] = dumps(found.get(properties.KEYS))
        self.unique[i] = dumps(found.get(properties.UNIQ_KEY))

    @staticmethod
    def _unusual(joined: bytes, arr: U8, at: I64, kinds: U8) -> list[int]:
        """Records whose text needs escapes, or breaks the pattern name 1 value 2 name 1 value."""
        before, here = kinds[:-1], kinds[1:]
        starts, stops = before != 1, here != 1
        # bytes of text between two separators
        gap = np.diff(at) - 1 - (before == 0) * 2 - (here == 0) * 2
        empty_text = (before == 0) & (here == 0) & (gap == 0)
        # a name stands between 0 or 2 and 1, a value between 1 and 2 or 0; neither is empty
        wrong = ((starts == stops) | (gap == 0)) & ~empty_text
        odd = at[:-1][wrong]
        borders = at[kinds == 0]
        quotes = 2 * len(borders)
        if (
            int(np.count_nonzero(arr < 0x20)) != len(at)
            or b"\\" in joined
            or int(np.count_nonzero(arr == 0x22)) != quotes
        ):
            escapes = ((arr < 0x20) & (arr > 2)) | (arr == 0x5C)
            quoted = arr == 0x22
            quoted[borders - 2] = False
            quoted[borders + 2] = False
            odd = np.concatenate((odd, np.flatnonzero(escapes | quoted)))
        if not len(odd):
            return []
        numbers = np.searchsorted(borders, odd, side="right") - 1
        return np.unique(numbers[(numbers >= 0) & (numbers < len(borders) - 1)]).tolist()

    @staticmethod
    def _named(
        joined: bytes, arr: U8, at: I64, kinds: U8, n: int, text: str | None
    ) -> tuple[list[str], list[str], list[str]]:
        """TAGS, KEYS and UNIQ_KEY of every record, quoted; they are cut out of the finished text."""
        middle = np.flatnonzero(kinds[1:-1] == 1) + 1
        middle = middle[kinds[middle - 1] != 1]
        position = at[middle]
        length = position - at[middle - 1] - 1 - (kinds[middle - 1] == 0) * 2
        end = at[middle + 1] - (kinds[middle + 1] == 0) * 2
        four = np.flatnonzero(length == 4)
        words = u32(arr)[position[four] - 4]
        eight = np.flatnonzero(length == 8)
        eight = eight[u64(arr)[position[eight] - 8] == _UNIQ_KEY]
        record = np.cumsum(kinds == 0) - 1
        grown = np.cumsum(kinds != 0) * 2  # every separator but 0 becomes three characters
        out = []
        for index in (four[words == _TAGS], four[words == _KEYS], eight):
            rows = record[middle[index]]
            first, stop = position[index], end[index]
            if text is not None:
                shift = grown[middle[index]]
                # from the quote before the value to the one behind it
                spans = zip((first + shift).tolist(), (stop + shift + 1).tolist(), strict=True)
                values = [text[a:b] for a, b in spans]
            else:
                spans = zip((first + 1).tolist(), stop.tolist(), strict=True)
                values = [f'"{joined[a:b].decode()}"' for a, b in spans]
            if len(rows) != n or not (rows == np.arange(n)).all():
                filled = ["null"] * n
                for row, value in zip(rows.tolist(), values, strict=True):
                    filled[row] = value
                values = filled
            out.append(values)
        return out[0], out[1], out[2]


def message_row(message: Message, offset: int, file: str, crc_ok: bool, body: BodyStyle) -> Row:
    """One decoded record as a plain dict, in the order of FIELDS, with its body when asked for."""
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
    }
    if body.style:
        row.update(body_fields(message, body))
    return row


def body_fields(message: Message, body: BodyStyle) -> Iterator[tuple[str, Any]]:
    """The body in the style asked for: `body` where it is clean text (or JSON), else `body_base64` or `body_hex`."""
    raw = message.body
    if not body.raw:
        try:
            raw = decompress(message.sys_flag, raw)
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
    """The text of UTF-8 bytes without control characters but tab and line ends, else None."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    if any(ord(c) < 0x20 and c not in "\t\r\n" for c in text) or "\x7f" in text:
        return None
    return text


def record_is_sound(columns: Columns, i: int) -> bool:
    """Whether body CRC and, where there is one, record CRC fit; for records that are wrong in another way."""
    message = columns.message(i)
    if message.body_length > 0 and body_crc(message.body) != message.body_crc:
        return False
    stored, computed = record_crc(columns.buf.data, int(columns.at[i]), message.size)
    return stored is None or stored == computed
