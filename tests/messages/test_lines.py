"""The fast conversion of chunks to text equals decoding record by record."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.files.store import open_store
from rmqstore.formats import dledger
from rmqstore.formats.message import build_message, host_bytes
from rmqstore.messages import lines as message_lines
from rmqstore.messages.cells import csv_cell, dumps
from rmqstore.messages.fields import PropertySpans
from rmqstore.messages.lines import MessageLines
from rmqstore.messages.rows import BODIES, BodyStyle
from rmqstore.messages.schema import DUMPED
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import U8
from rmqstore.scan.records import scan_file
from rmqstore.views.dump.messages import logs_of
from tests.seeds import examples
from tests.stores import STORES, unpack


@pytest.fixture(autouse=True)
def no_chunk_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the fast conversion for any number of records; otherwise a few records would be compared with themselves."""
    monkeypatch.setattr(message_lines, "FEW", 0)


def text_of(lines: MessageLines, columns: Columns, file: str = "f", ok: list[bool] | None = None) -> str:
    pieces: list[U8] = []

    def sink(size: int) -> U8:
        pieces.append(np.empty(size, dtype=np.uint8))
        return pieces[-1]

    lines.text(columns, file, None if ok is None else np.array(ok), sink)
    return b"".join(piece.tobytes() for piece in pieces).decode()


def rows_of(lines: MessageLines, columns: Columns, file: str = "f", *, ok: bool = True) -> list[dict[str, Any]]:
    return [lines.row(columns, i, file, crc_ok=ok) for i in range(len(columns))]


def escaped(text: str) -> str:
    """Escape control characters other than tab and newlines as in JSON."""
    return re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", lambda m: f"\\u{ord(m[0]):04x}", text)


def csv_of(rows: list[dict[str, Any]]) -> str:
    """Write CSV with the standard library, without control characters."""
    lines = []
    for row in rows:
        inner = row.pop("message", {})
        cells = [*row.values(), *inner.values()]
        cells = [str(c).lower() if isinstance(c, bool) else dumps(c) if isinstance(c, dict) else c for c in cells]
        out = io.StringIO()  # with CR LF as line terminator, because some versions quote only its characters
        csv.writer(out, lineterminator="\r\n").writerow(
            ["" if c is None else escaped(c) if isinstance(c, str) else c for c in cells]
        )
        lines.append(out.getvalue().removesuffix("\r\n") + "\n")
    return "".join(lines)


@pytest.mark.quick_rows(6)
@pytest.mark.parametrize("name", STORES)
def test_text_equals_rows_on_real_stores(name: str) -> None:
    compared = 0
    ways = [MessageLines(entries=entries, csv=as_csv) for entries in (False, True) for as_csv in (False, True)]
    for log in logs_of(open_store(unpack(name))):
        for file in log.queue.files:
            for run in scan_file(file, body_offset=log.body_offset):
                if run.columns is None:
                    continue
                for lines in ways[: 4 if log.body_offset else 2]:
                    rows = rows_of(lines, run.columns, file.name)
                    compared += len(rows)
                    text = text_of(lines, run.columns, file.name)
                    assert text == csv_of(rows) if lines.csv else text == "".join(dumps(r) + "\n" for r in rows)
                    if not lines.csv and not lines.entries:
                        assert {tuple(json.loads(line)) for line in text.splitlines()} == {DUMPED}
    assert compared >= 26


@pytest.mark.quick_rows
@pytest.mark.parametrize("style", BODIES)
@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("name", ["5.4.0-formats", "5.1.4-dledger-mixed"])
def test_text_with_bodies_equals_rows(name: str, style: str, raw: bool) -> None:
    seen = 0
    for log in logs_of(open_store(unpack(name))):
        lines = MessageLines(BodyStyle(style, raw), entries=log.body_offset == dledger.ENTRY.size)
        for file in log.queue.files:
            for run in scan_file(file, body_offset=log.body_offset):
                if run.columns is not None:
                    rows = rows_of(lines, run.columns, file.name)
                    seen += sum("body" in key for row in rows for key in row.get("message", row))
                    assert text_of(lines, run.columns, file.name) == "".join(dumps(r) + "\n" for r in rows)
    assert seen > 50


def _columns(texts: list[bytes]) -> Columns:
    data, at = b"", []
    for i, text in enumerate(texts):
        at.append(len(data))
        data += build_message(topic=f"T{i % 3}", body=b"x", properties=text, physical_offset=len(data), queue_offset=i)
    return Columns(bytearray(data + bytes(64)), 0, np.array(at, dtype=np.int64))


_PIECES = st.sampled_from(
    [
        *(b"TAGS", b"KEYS", b"UNIQ_KEY", b"\1", b"\2", b"\1", b"\2", b"a", b'"', b"\\", b"\0", b"\n"),
        *("用".encode(), b"\xff", b",", b" ", b"}", b"{", b"my UNIQ_KEY", b"x" * 70, b"\x1b[31m", b"\t", b"\r"),
        *(b"\x7f", "\x80".encode(), "\x9f".encode(), "\xa0".encode(), b"\xc2", b"\x9b", "å".encode()),
    ]
)


@given(st.lists(st.lists(_PIECES, max_size=12).map(b"".join), min_size=1, max_size=6))
@settings(max_examples=examples(300))
def test_text_equals_rows_for_any_property_text(texts: list[bytes]) -> None:
    columns = _columns(texts)
    for lines in (MessageLines(), MessageLines(csv=True)):
        rows = rows_of(lines, columns)
        expected = csv_of(rows) if lines.csv else "".join(dumps(r) + "\n" for r in rows)
        assert text_of(lines, columns) == expected


_PAIRS = st.lists(
    st.tuples(
        st.sampled_from(
            ["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "a", "prefixed-name-1-of", "prefixed-name-2-of", "UNIQ_KEY2"]
        ),
        st.sampled_from(["x", "a,b", "true", "7F0000010A2B18B4AAC200006DD3948C", "用户", "v" * 300]),
    ),
    max_size=8,
)


@given(st.lists(_PAIRS, min_size=1, max_size=8), st.booleans())
@settings(max_examples=examples(200))
def test_an_object_has_a_repeated_name_only_once(pairs: list[list[tuple[str, str]]], behind: bool) -> None:
    texts = ["\2".join(f"{k}\1{v}" for k, v in p) + "\2" * behind for p in pairs]
    columns = _columns([t.encode() for t in texts])
    assert text_of(MessageLines(), columns) == "".join(dumps(r) + "\n" for r in rows_of(MessageLines(), columns))
    named = PropertySpans(columns)
    assert [json.loads(o) for o in named.objects.texts()] == [dict(p) for p in pairs]
    assert [json.loads(t) for t in named.tags.texts()] == [dict(p).get("TAGS") for p in pairs]
    assert [json.loads(t) for t in named.keys.texts()] == [dict(p).get("KEYS") for p in pairs]
    assert [json.loads(t) for t in named.unique.texts()] == [dict(p).get("UNIQ_KEY") for p in pairs]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The records whose properties are decoded one by one during a test."""
    found: list[int] = []
    real = PropertySpans._set

    def noted(self: PropertySpans, i: int, raw: bytes) -> None:
        found.append(i)
        real(self, i, raw)

    monkeypatch.setattr(PropertySpans, "_set", noted)
    return found


def test_no_sound_text_is_decoded_on_its_own(slow: list[int]) -> None:
    columns = _columns(
        [b"TAGS\1a\2KEYS\1k1 k2\2", b"", "KEYS\1用户\2TAGS\1b".encode(), b"UNIQ_KEY\x0101\2WAIT\1true\2", b"A\1b,c"]
    )
    rows = [json.loads(line) for line in text_of(MessageLines(), columns).splitlines()]
    assert [r["tags"] for r in rows] == ["a", None, "b", None, None]
    assert [r["keys"] for r in rows] == ["k1 k2", None, "用户", None, None]
    assert [r["unique_key"] for r in rows] == [None, None, None, "01", None]
    assert [r["properties"] for r in rows][1] == {}
    assert text_of(MessageLines(csv=True), columns).count("\n") == 5
    assert slow == []


def test_unusual_texts_leave_the_fast_way_to_the_others(slow: list[int]) -> None:
    columns = _columns([b"TAGS\1a", b"TAGS\1\xff", b"TAGS\1b", b"TAGS\1\0", b'TAGS\1"', b"TAGS\1c\1", b"K\1d"])
    assert text_of(MessageLines(), columns) == "".join(dumps(r) + "\n" for r in rows_of(MessageLines(), columns))
    assert slow == [1, 3, 4, 5]


def test_hosts_of_both_kinds_in_one_chunk() -> None:
    hosts = ["10.0.0.1:10911", "[2001:db8::1]:10911", "127.0.0.1:1", "[::1]:65535"]
    data, at = b"", []
    for i in range(16):
        at.append(len(data))
        born, stored = hosts[i % 4], hosts[i // 4]
        data += build_message(
            topic="T", body=b"x", physical_offset=len(data), born_host=host_bytes(born), store_host=host_bytes(stored)
        )
    columns = Columns(bytearray(data + bytes(64)), 0, np.array(at, dtype=np.int64))
    lines = MessageLines()
    found = [json.loads(line) for line in text_of(lines, columns).splitlines()]
    assert [(r["born_host"], r["store_host"]) for r in found] == [(hosts[i % 4], hosts[i // 4]) for i in range(16)]
    assert found == rows_of(lines, columns)


@pytest.mark.parametrize("as_csv", [False, True])
def test_records_with_wrong_crcs_say_so(as_csv: bool) -> None:
    columns = _columns([b"TAGS\1a"] * 3)
    lines = MessageLines(csv=as_csv)
    text = text_of(lines, columns, ok=[True, False, True]).splitlines()
    rows = [rows_of(lines, columns, ok=ok)[i] for i, ok in enumerate((True, False, True))]
    assert text == (csv_of(rows).splitlines() if as_csv else [dumps(r) for r in rows])


@pytest.mark.parametrize(
    "value", ["", "a", "a,b", 'a"b', "a\nb", "a\rb", "用", "\udcff", " a ", {"a": "b,c"}, {}, None, True, 5]
)
def test_csv_cells_are_what_the_library_writes(value: Any) -> None:
    out = io.StringIO()
    plain = "" if value is None else "true" if value is True else dumps(value) if isinstance(value, dict) else value
    csv.writer(out, lineterminator="\r\n").writerow([plain, "x"])
    assert csv_cell(value) + b",x\r\n" == out.getvalue().encode("utf-8", "backslashreplace")


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("\x1b[31m", b"\\u001b[31m"),
        ("a\0\1\2b,\x1f", b'"a\\u0000\\u0001\\u0002b,\\u001f"'),
        ("\t\r\n", b'"\t\r\n"'),
        ("\x7f\x80\x9f\xa0", b"\\u007f\\u0080\\u009f\xc2\xa0"),
    ],
)
def test_csv_cells_have_no_control_characters_but_tabs_and_line_ends(value: str, cell: bytes) -> None:
    assert csv_cell(value) == cell


@pytest.mark.parametrize("fast", [True, False])
def test_tags_with_an_escape_are_the_same_on_both_ways(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_lines, "FEW", 0 if fast else 100)
    columns = _columns([b"TAGS\1red\x1b[31m\2KEYS\1k\2"])
    (row,) = csv.DictReader(
        io.StringIO(MessageLines(csv=True).header().decode() + text_of(MessageLines(csv=True), columns))
    )
    assert (row["tags"], row["keys"]) == ("red\\u001b[31m", "k")
    assert json.loads(row["properties"]) == {"TAGS": "red\x1b[31m", "KEYS": "k"}


@pytest.mark.parametrize("few", [0, 100])
@pytest.mark.parametrize("export", [True, False])
def test_a_lone_cr_does_not_end_a_row_of_csv(export: bool, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_lines, "FEW", few)
    lines = MessageLines(csv=True, export=export)
    text = lines.header().decode() + text_of(lines, _columns([b"TAGS\1a\rb\2KEYS\1k\2"]))
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    assert (row["tags"], row["keys"]) == ("a\rb", "k")


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("control", ["\x7f", "\x80", "\x9b", "\x9f"])
def test_controls_that_json_allows_are_escaped_on_all_ways(
    control: str, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_lines, "FEW", 0 if fast else 100)
    columns = _columns([f"TAGS\1red{control}31m\2K{control}\1é\xa0\2".encode(), b"TAGS\1blue\2"])
    escaped = f"\\u{ord(control):04x}"
    lines = text_of(MessageLines(), columns)
    assert control not in lines
    assert [json.loads(line)["tags"] for line in lines.splitlines()] == [f"red{control}31m", "blue"]
    assert f'"properties":{{"TAGS":"red{escaped}31m","K{escaped}":"é\xa0"}}' in lines
    table = text_of(MessageLines(csv=True), columns)
    assert control not in table
    assert f",red{escaped}31m," in table


def test_dumps_shows_undecodable_names_as_escapes() -> None:
    assert dumps(Path("\udcff").name) == '"\\udcff"'
