"""Rows of an export: a message converted to a row and back is equal, whatever it contains."""

from __future__ import annotations

import base64
import binascii
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.append import exchange, exported_files
from rmqstore.append.encoder import Limits, NewMessage, encode_table, messages_of, place_records, prepare
from rmqstore.append.exchange import message_of, table_of_messages, table_of_rows
from rmqstore.append.exported_files import tables_of
from rmqstore.errors import BadRow, RmqStoreError
from rmqstore.messages.lines import MessageLines
from rmqstore.messages.rows import BodyStyle
from rmqstore.messages.schema import BODY, EXPORTED, SIDE
from rmqstore.messages.table import NUMBERS, MessageTable
from rmqstore.scan import native
from rmqstore.scan.columns import Columns
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.kernels import U8

SOUND = {
    "topic": "T",
    "queue_id": 0,
    "queue_offset": 3,
    "store_host": "127.0.0.1:1",
    "born_host": "[::1]:2",
    "body_base64": "aGk=",
    "properties": {"TAGS": "a"},
}
I32 = st.integers(-(1 << 31), (1 << 31) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
HOST = st.tuples(st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)), I32).map(
    lambda pair: pair[0] + pair[1].to_bytes(4, "big", signed=True)
)
PROPERTIES = st.one_of(
    st.binary(max_size=60),
    st.lists(st.sampled_from([b"TAGS", b"\x01", b"\x02", b"a", b"\xff", b"\x00", "中".encode()]), max_size=12).map(
        b"".join
    ),
)


MESSAGES = st.lists(
    st.builds(
        NewMessage,
        topic=st.sampled_from([b"T", b"U", b"\xff", "用".encode(), b"a\x1b"]).map(
            lambda raw: raw.decode("utf-8", "surrogateescape")
        ),
        body=st.binary(max_size=50),
        properties=PROPERTIES,
        queue_id=st.integers(0, 3),
        flag=I32,
        sys_flag=st.sampled_from([0, 1, 8, 0x700, -1 ^ 0x30]),
        born_timestamp=I64,
        born_host=HOST,
        store_timestamp=I64,
        store_host=HOST,
        reconsume_times=I32,
        prepared_transaction_offset=I64,
        queue_offset=I64,
        append_crc=st.sampled_from([None, True]),
        version=st.sampled_from([None, 2]),
    ),
    min_size=1,
    max_size=6,
)


def records_of(messages: list[NewMessage]) -> Columns:
    """Return the records of messages, as a store appends them one by one."""
    data, at = b"", []
    for message in messages:
        at.append(len(data))
        data += prepare(message, Limits()).record(len(data), message.queue_offset or 0, message.store_timestamp)
    return Columns(bytearray(data + bytes(64)), 0, np.array(at, dtype=np.int64))


def placed(table: MessageTable) -> bytes:
    """Return the records of a table, with consecutive physical offsets."""
    columns = encode_table(table, Limits())
    numbers = table.numbers
    columns.set(queue_offset=numbers["queue_offset"], store_timestamp=numbers["store_timestamp"])
    place_records(columns, columns.at)
    return bytes(columns.raw[: int(columns.at[-1] + columns.size[-1])])


def exported(columns: Columns, path: Path, style: BodyStyle) -> None:
    """Write the file of an export in the format given by its suffix."""
    from rmqstore.messages import arrow

    kind = path.suffix[1:]
    with path.open("wb") as file:
        if kind in ("ndjson", "csv"):
            lines = MessageLines(style, csv=kind == "csv", export=True)
            pieces: list[U8] = []

            def sink(size: int) -> U8:
                pieces.append(np.empty(size, dtype=np.uint8))
                return pieces[-1]

            lines.text(columns, "f", None, sink)
            file.write((lines.header() if kind == "csv" else b"") + b"".join(p.tobytes() for p in pieces))
        else:
            rows = arrow.ArrowRows(style)
            batch = rows.batch(columns)
            arrow.write_file(file, kind, rows, [batch], frozenset(batch.schema.names))


@given(MESSAGES)
@settings(deadline=None)
def test_a_table_is_encoded_as_its_messages_one_by_one(messages: list[NewMessage]) -> None:
    columns = records_of(messages)
    expected = bytes(columns.raw[: int(columns.at[-1] + columns.size[-1])])
    assert placed(table_of_messages(messages)) == expected
    assert placed(MessageTable.of(columns, QueueTable())) == expected
    assert placed(table_of_messages(list(messages_of(MessageTable.of(columns, QueueTable()))))) == expected


@given(st.lists(st.binary(max_size=20)), st.integers(0, 100), st.sampled_from(["", "=", "A", "-", "é", "A="]))
def test_base64_in_c_is_decoded_as_by_python_or_refused(texts: list[bytes], at: int, change: str) -> None:
    loops = native.load()
    whole = "".join(base64.b64encode(text).decode() for text in texts).encode()
    stops = np.cumsum([len(base64.b64encode(text)) for text in texts], dtype=np.int64)
    found = loops.decode_base64(whole, stops)
    assert found is not None
    data, ends = found
    assert data[: ends[-1] if texts else 0].tobytes() == b"".join(texts)
    assert np.diff(ends, prepend=0).tolist() == [len(text) for text in texts]
    changed = (whole[: min(at, len(whole))] + change.encode() + whole[at + 1 :]) if whole else change.encode()
    found = loops.decode_base64(changed, np.array([len(changed)], dtype=np.int64))
    try:
        expected = binascii.a2b_base64(changed, strict_mode=True)
    except binascii.Error:
        assert found is None
    else:
        canonical = base64.b64encode(expected) == changed
        assert (None if found is None else found[0][: found[1][0]].tobytes()) == (expected if canonical else None)


def test_a_body_in_unusual_base64_is_read_as_before(tmp_path: Path) -> None:
    path = tmp_path / "some.ndjson"
    rows = [SOUND, SOUND | {"body_base64": "aGl="}, SOUND | {"body_base64": ""}]  # the second one has a surplus bit
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (chunk,) = tables_of(path)
    assert chunk.table.body.raw() == [b"hi", b"hi", b""]


@pytest.mark.parametrize("kind", ["ndjson", "csv", "parquet", "arrow"])
def test_large_bodies_are_read_a_few_rows_at_a_time(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    from rmqstore.append import from_arrow

    noise = np.random.default_rng(1)
    messages = [NewMessage("T", noise.bytes(10_000), queue_offset=n, store_timestamp=1) for n in range(10)]
    path = tmp_path / f"all.{kind}"
    exported(records_of(messages), path, BodyStyle("base64", True))
    monkeypatch.setattr(exported_files, "STEP", 26_000)
    monkeypatch.setattr(from_arrow, "STEP", 26_000)
    chunks = list(tables_of(path))
    assert [len(table) for table, _ in chunks] == [2, 2, 2, 2, 2]
    assert [body for table, _ in chunks for body in table.body.raw()] == [m.body for m in messages]
    line = {"ndjson": ":{}", "csv": ":{}", "parquet": ": row {}", "arrow": ": row {}"}[kind]
    first = 2 if kind == "csv" else 1  # after the header
    assert [chunk.where(1) for chunk in chunks] == [f"{path}{line.format(n + first)}" for n in (1, 3, 5, 7, 9)]


@given(MESSAGES, st.sampled_from(["ndjson", "csv", "parquet", "arrow"]), st.booleans())
@settings(deadline=None)
def test_messages_are_the_same_after_any_file_of_an_export(messages: list[NewMessage], kind: str, text: bool) -> None:
    pytest.importorskip("pyarrow")
    columns = records_of(messages)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"all.{kind}"
        exported(columns, path, BodyStyle("text" if text else "base64", True))
        chunks = list(tables_of(path))
    assert b"".join(placed(table) for table, _ in chunks[:1]) == bytes(
        columns.raw[: int(columns.at[-1] + columns.size[-1])]
    )
    assert len(chunks) == 1


def test_sound_rows_are_taken_column_by_column(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a row was looked at on its own")

    monkeypatch.setattr(exchange, "message_of", refuse)
    rows = [SOUND | {name: 7 for name in NUMBERS if name not in SOUND} for _ in range(3)]
    assert table_of_rows(rows, str).numbers["queue_offset"].tolist() == [3, 3, 3]


@pytest.mark.parametrize("kind", ["ndjson", "csv", "parquet"])
def test_exports_of_0_1_can_be_imported(kind: str) -> None:
    """rmqstore 0.1 wrote Parquet files with properties as JSON text and with bodies in `body_base64`."""
    path = Path(__file__).parent / "exports-of-0.1" / f"all.{kind}"
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    (table, where), *more = tables_of(path)
    assert more == []
    assert len(table) == 8
    assert where(2).startswith(f"{path}:")
    assert placed(table) == (path.parent / "records.bin").read_bytes()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"topic": None}, "topic is missing"),
        ({"queue_id": None}, "queue_id is missing"),
        ({"queue_id": "x"}, "queue_id must be an integer, not 'x'"),
        ({"queue_id": "²"}, "queue_id must be an integer, not '²'"),
        ({"queue_id": "--5"}, "queue_id must be an integer, not '--5'"),
        ({"queue_id": True}, "queue_id must be an integer"),
        ({"version": 3}, "version must be 1 or 2, not 3"),
        ({"queue_id": 1 << 31}, "queue_id 2147483648 does not fit into 32 bits"),
        ({"store_timestamp": 1 << 63}, "does not fit into 64 bits"),
        ({"store_host": "nowhere"}, "store_host 'nowhere' is not an address"),
        ({"store_host": "1.2.3.4:99999999999"}, "is not an address"),
        ({"born_host": 7}, "born_host must be a string"),
        ({"body_base64": "a"}, "body_base64 is not base64"),
        ({"body_base64": 5}, "body_base64 must be base64 text"),
        ({"properties": ["TAGS"]}, "properties must be an object with string values"),
        ({"properties": {"TAGS": 1}}, "properties must be an object with string values"),
    ],
)
def test_a_bad_row_is_named_with_its_place(changes: dict[str, object], words: str) -> None:
    with pytest.raises(BadRow) as caught:
        message_of({**SOUND, **changes}, "all.ndjson:7")
    assert caught.value.message.startswith("all.ndjson:7: ")
    assert words in caught.value.message


def test_a_row_without_body_cannot_be_imported() -> None:
    with pytest.raises(BadRow, match="has no body"):
        message_of({k: v for k, v in SOUND.items() if k != "body_base64"}, "here")


ANY_BYTES = st.one_of(st.binary(max_size=300), st.text(max_size=200).map(str.encode))
ANY_VALUE = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just([None]))


@given(kind=st.sampled_from(["ndjson", "csv", "parquet", "arrow"]), data=ANY_BYTES)
def test_a_file_of_any_bytes_gives_rows_or_an_error_with_advice(kind: str, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"any.{kind}"
        path.write_bytes(data)
        try:
            for table, where in tables_of(path):
                assert str(path) in where(len(table) - 1)
        except RmqStoreError as error:
            assert error.advice


@given(row=st.dictionaries(st.sampled_from([*EXPORTED, *BODY, *SIDE, "other"]), ANY_VALUE))
def test_a_row_of_any_values_gives_a_message_or_an_error_with_its_place(row: dict[str, object]) -> None:
    try:
        message_of({**SOUND, **row}, "all.csv:3")
    except BadRow as error:
        assert error.message.startswith("all.csv:3: ")
