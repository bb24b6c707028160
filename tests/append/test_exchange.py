"""Rows of an export: whatever a message holds comes back from its row."""

from __future__ import annotations

import tempfile
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.append.importing import rows_of
from rmqstore.append.messages.encoder import NewMessage
from rmqstore.append.messages.exchange import COLUMNS, message_of, row_of
from rmqstore.errors import BadRow, RmqStoreError

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


@given(
    topic=st.binary(min_size=1, max_size=30),
    body=st.binary(max_size=50),
    text=PROPERTIES,
    queue_id=I32,
    numbers=st.tuples(I64, I32, I32, I64, I64, I32, I64),
    hosts=st.tuples(HOST, HOST),
    text_body=st.booleans(),
    v2=st.booleans(),
)
def test_a_message_is_the_same_after_its_row_was_written_as_json(
    topic: bytes,
    body: bytes,
    text: bytes,
    queue_id: int,
    numbers: tuple[int, int, int, int, int, int, int],
    hosts: tuple[bytes, bytes],
    text_body: bool,
    v2: bool,
) -> None:
    queue_offset, flag, sys_flag, born, stored, times, prepared = numbers
    row = row_of(
        topic,
        queue_id,
        queue_offset,
        flag,
        sys_flag,
        born,
        hosts[0],
        stored,
        hosts[1],
        times,
        prepared,
        body,
        text,
        text_body=text_body,
        v2=v2,
    )
    back = message_of(orjson.loads(orjson.dumps(row)), "here")
    assert back == NewMessage(
        topic=topic.decode("utf-8", "surrogateescape"),
        body=body,
        properties=text,
        queue_id=queue_id,
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp=born,
        born_host=hosts[0],
        store_timestamp=stored,
        store_host=hosts[1],
        reconsume_times=times,
        prepared_transaction_offset=prepared,
        queue_offset=queue_offset,
        version=2 if v2 else None,
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"topic": None}, "topic is missing"),
        ({"queue_id": None}, "queue_id is missing"),
        ({"queue_id": "x"}, "queue_id must be an integer, not 'x'"),
        ({"queue_id": True}, "queue_id must be an integer"),
        ({"version": 3}, "version must be 1 or 2, not 3"),
        ({"queue_id": 1 << 31}, "queue_id 2147483648 does not fit into 32 bits"),
        ({"store_timestamp": 1 << 63}, "does not fit into 64 bits"),
        ({"store_host": "nowhere"}, "store_host 'nowhere' is not an address"),
        ({"store_host": "1.2.3.4:99999999999"}, "is not an address"),
        ({"born_host": 7}, "born_host must be a text"),
        ({"body_base64": "a"}, "body_base64 is not base64"),
        ({"body_base64": 5}, "body_base64 must be base64 text"),
        ({"properties": ["TAGS"]}, "properties must be an object of texts"),
        ({"properties": {"TAGS": 1}}, "properties must be an object of texts"),
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


@given(kind=st.sampled_from(["ndjson", "csv", "parquet"]), data=ANY_BYTES)
def test_a_file_of_any_bytes_gives_rows_or_an_error_with_advice(kind: str, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"any.{kind}"
        path.write_bytes(data)
        try:
            for where, row in rows_of(path):
                assert str(path) in where
                message_of(row, where)
        except RmqStoreError as error:
            assert error.advice


@given(row=st.dictionaries(st.sampled_from([*COLUMNS, "other"]), ANY_VALUE))
def test_a_row_of_any_values_gives_a_message_or_an_error_with_its_place(row: dict[str, object]) -> None:
    try:
        message_of({**SOUND, **row}, "all.csv:3")
    except BadRow as error:
        assert error.message.startswith("all.csv:3: ")
