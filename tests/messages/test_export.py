"""Every field of every message is the same in all export formats, and equals the reference."""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.files.store import open_store
from rmqstore.formats.message import build_message, host_bytes, parse_message
from rmqstore.messages.lines import MessageLines
from rmqstore.messages.rows import BodyStyle
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import U8
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.views.dump.messages import logs_of
from tests import command
from tests.messages.reference import as_json, exported
from tests.planning import log_of
from tests.seeds import examples
from tests.stores import STORES, unpack

WAYS: tuple[list[str], ...] = ([], ["--decode", "--text"])


def expected(store: Path, words: list[str]) -> list[dict[str, Any]]:
    rows = []
    for log in logs_of(open_store(store)):
        for file in log.queue.files:
            for run in scan_file(file, body_offset=log.body_offset):
                if run.kind is Kind.RECORDS and run.columns is not None:
                    messages = [run.columns.message(i) for i in range(len(run.columns))]
                    rows += [exported(m, decode="--decode" in words, text="--text" in words) for m in messages]
    return rows


def export(store: Path, target: Path, words: list[str], exit_code: int = 0) -> Path:
    result = command.run("export", str(store), "-o", str(target), "-q", *words)
    assert result.exit_code == exit_code, result.output
    return target


def from_arrow(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file with the names of NDJSON: a binary body is `body_base64`."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    if path.suffix == ".parquet":
        table = pq.read_table(path)
    else:
        with pa.ipc.open_stream(path) as stream:
            table = stream.read_all()
    for name in ("store_timestamp", "born_timestamp"):
        assert table.schema.field(name).type == pa.timestamp("ms", "UTC")
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table.column(name).cast(pa.int64()))
    assert table.schema.field("properties").type == pa.map_(pa.string(), pa.string())
    always = {"tags", "keys", "unique_key"}
    for row in table.to_pylist():
        row["properties"] = dict(row["properties"])
        if isinstance(row.get("body"), bytes):
            row["body_base64"] = row.pop("body")
        yield {name: value for name, value in row.items() if value is not None or name in always}


def from_csv(path: Path) -> Iterator[dict[str, Any]]:
    numbers = {"queue_id", "queue_offset", "store_timestamp", "born_timestamp", "flag", "sys_flag", "reconsume_times"}
    numbers |= {"prepared_transaction_offset", "version"}
    for row in csv.DictReader(path.open(encoding="utf-8", newline="")):
        out: dict[str, Any] = {k: int(v) if k in numbers and v else v for k, v in row.items()}
        out["properties"] = json.loads(out["properties"])
        for name in ("tags", "keys", "unique_key"):
            out[name] = out[name] or None
        for name in ("topic_base64", "properties_base64"):
            out[name] = base64.b64decode(out[name])
        if not out["body"]:
            out["body_base64"] = base64.b64decode(out["body_base64"])
            del out["body"]
        else:
            del out["body_base64"]
        if out["last_separator"]:
            out["last_separator"] = out["last_separator"] != "false"
        yield {k: v for k, v in out.items() if v not in ("", b"") or k.startswith("body")}


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("words", WAYS, ids=["stored", "decoded"])
def test_every_format_has_the_same_rows_as_the_records(name: str, words: list[str], tmp_path: Path) -> None:
    store = unpack(name)
    rows = expected(store, words)
    code = command.run("export", str(store), "--limit", "1000000", "-q", *words).exit_code
    lines = export(store, tmp_path / "all.ndjson", words, code).read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [as_json(row) for row in rows]
    assert [list(json.loads(line)) for line in lines] == [list(row) for row in rows]
    for kind in ("parquet", "arrow"):
        assert list(from_arrow(export(store, tmp_path / f"all.{kind}", words, code))) == rows
    for row, wanted in zip(from_csv(export(store, tmp_path / "all.csv", words, code)), rows, strict=True):
        if "body" in wanted and "body" not in row:  # empty, or with control characters, which CSV cannot contain
            wanted["body_base64"] = wanted.pop("body").encode()
        assert row == wanted


@pytest.mark.quick_rows(6)
@pytest.mark.parametrize("name", STORES)
def test_dump_and_export_say_the_same_in_the_fields_that_both_have(name: str) -> None:
    store = unpack(name)
    dumped = [json.loads(line) for line in command.run("dump", str(store), "--format", "ndjson").stdout.splitlines()]
    rows = [json.loads(line) for line in command.run("export", str(store), "--offsets").stdout.splitlines()]
    sound = [row for row in dumped if row["crc_ok"]]
    assert len(rows) == len(sound) > 0
    for row, other in zip(rows, sound, strict=True):
        same = row.keys() & other.keys()
        assert len(same) == 18
        assert {name: row[name] for name in same} == {name: other[name] for name in same}


def test_damage_is_skipped_in_every_format_alike(store: Path, tmp_path: Path) -> None:
    log = log_of(store)
    data = bytearray(log.files[1].path.read_bytes())
    data[100] ^= 0xFF
    log.files[1].path.write_bytes(data)
    rows = expected(store, [])
    assert len(rows) == 552
    assert list(from_arrow(export(store, tmp_path / "all.parquet", [], 1))) == rows
    assert list(from_arrow(export(store, tmp_path / "some.arrow", ["--limit", "2"], 0))) == rows[:2]
    result = command.run("export", str(store), "-o", str(tmp_path / "again.arrow"))
    assert (result.exit_code, result.stderr.count("1 damaged place")) == (1, 1)


def test_side_columns_are_there_only_where_a_row_needs_them(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    plain = pq.read_schema(export(unpack("5.4.0-clean"), tmp_path / "plain.parquet", []))
    assert "version" not in plain.names and "topic_base64" not in plain.names
    formats = pq.read_schema(export(unpack("5.4.0-formats"), tmp_path / "formats.parquet", []))
    assert {"version", "properties_base64"} & set(formats.names)


_PIECES = st.sampled_from(
    [
        *(b"TAGS", b"KEYS", b"UNIQ_KEY", b"\1", b"\2", b"\1", b"\2", b"a", b'"', b"\\", b"\0", b"\n"),
        *("用".encode(), b"\xff", b",", b" ", b"x" * 70, b"\x1b[31m", b"\t", b"\r", b"\x7f"),
    ]
)
_TEXT = st.lists(_PIECES, max_size=12).map(b"".join)
_HOST = st.sampled_from(["10.0.0.1:10911", "[2001:db8::1]:10911", "127.0.0.1:0"]).map(host_bytes)
_MESSAGE = st.fixed_dictionaries(
    {
        "topic": st.sampled_from([b"T", b"U", b"\xff", "用".encode(), b"a\x1b", b'q"', b"c,d"]),
        "body": st.one_of(_TEXT, st.binary(max_size=80)),
        "properties": _TEXT,
        "queue_id": st.integers(-(1 << 31), (1 << 31) - 1),
        "flag": st.integers(-(1 << 31), (1 << 31) - 1),
        "sys_flag": st.sampled_from([0, 1, 4, 8, 12, 0x101, 0x81]),
        "queue_offset": st.integers(-(1 << 63), (1 << 63) - 1),
        "born_timestamp": st.integers(-(1 << 63), (1 << 63) - 1),
        "store_timestamp": st.integers(0, 1 << 50),
        "born_host": _HOST,
        "store_host": _HOST,
        "v2": st.booleans(),
    }
)


def _columns(messages: list[dict[str, Any]]) -> Columns:
    data, at = b"", []
    for message in messages:
        at.append(len(data))
        data += build_message(**message, physical_offset=len(data))
    return Columns(bytearray(data + bytes(64)), 0, np.array(at, dtype=np.int64))


@given(st.lists(_MESSAGE, min_size=1, max_size=6), st.booleans(), st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_any_messages_are_the_same_in_every_format(messages: list[dict[str, Any]], decode: bool, text: bool) -> None:
    pa = pytest.importorskip("pyarrow")
    from rmqstore.messages.arrow import ArrowRows

    columns = _columns(messages)
    rows = []
    for i in range(len(columns)):
        message, _ = parse_message(columns.buf.data, int(columns.at[i]))
        assert message is not None
        rows.append(exported(message, decode=decode, text=text))
    style = BodyStyle("text" if text else "base64", not decode)
    pieces: list[U8] = []

    def sink(size: int) -> U8:
        pieces.append(np.empty(size, dtype=np.uint8))
        return pieces[-1]

    MessageLines(style, export=True).text(columns, "f", None, sink)
    found = [json.loads(line) for line in b"".join(p.tobytes() for p in pieces).split(b"\n")[:-1]]
    assert found == [as_json(row) for row in rows]
    batch = ArrowRows(style).batch(columns)
    batch.validate(full=True)
    for name in ("store_timestamp", "born_timestamp"):
        at = batch.schema.get_field_index(name)
        batch = batch.set_column(at, name, batch.column(at).cast(pa.int64()))
    for one, wanted in zip(batch.to_pylist(), rows, strict=True):
        one["properties"] = dict(one["properties"])
        if isinstance(one.get("body"), bytes):
            one["body_base64"] = one.pop("body")
        kept = {"tags", "keys", "unique_key"}
        assert {k: v for k, v in one.items() if v is not None or k in kept} == wanted


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("library", ["duckdb", "pandas", "polars"])
def test_other_tools_see_typed_columns_without_a_cast(library: str, tmp_path: Path) -> None:
    tool = pytest.importorskip(library, reason=f"{library} is not installed")
    path = export(unpack("5.4.0-clean"), tmp_path / "all.parquet", [])
    if library == "duckdb":
        query = f"select typeof(store_timestamp), typeof(properties), typeof(body), properties['KEYS'] from '{path}'"
        (found,) = tool.sql(f"{query} where queue_id = 0 limit 1").fetchall()
        assert found[:3] == ("TIMESTAMP WITH TIME ZONE", "MAP(VARCHAR, VARCHAR)", "BLOB")
    elif library == "pandas":
        frame = tool.read_parquet(path)
        assert str(frame.store_timestamp.dtype) == "datetime64[ms, UTC]"
        assert isinstance(frame.body[0], bytes) and str(frame.queue_id.dtype) == "int32"
    else:
        frame = tool.read_parquet(path)
        assert frame.schema["store_timestamp"] == tool.Datetime("ms", "UTC")
        assert (frame.schema["body"], frame.schema["queue_id"]) == (tool.Binary, tool.Int32)
