"""The fast way to JSON lines gives what decoding record by record gives."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.files.store import open_store
from rmqstore.formats.message import build_message
from rmqstore.scan.columns import Columns
from rmqstore.scan.records import scan_file
from rmqstore.views.message_lines import FIELDS, MessageLines, dumps
from rmqstore.views.messages import logs_of
from tests.stores import STORES, unpack


@pytest.mark.parametrize("name", STORES)
def test_lines_equal_rows_on_real_stores(name: str) -> None:
    compared = 0
    lines = MessageLines()
    for log in logs_of(open_store(unpack(name))):
        for file in log.queue.files:
            for run in scan_file(file, lead=log.lead):
                if run.columns is None:
                    continue
                columns = run.columns
                for i, line in enumerate(lines.lines(columns, file.name)):
                    row = lines.row(columns, i, file.name, crc_ok=True)
                    assert json.loads(line) == row
                    assert tuple(json.loads(line)) == FIELDS
                    compared += 1
                for i, line in enumerate(lines.entry_lines(columns, file.name) if log.lead else []):
                    assert json.loads(line) == lines.entry_row(columns, i, file.name, crc_ok=True)
    assert compared >= 13


def _columns(texts: list[bytes]) -> Columns:
    data, at = b"", []
    for i, text in enumerate(texts):
        at.append(len(data))
        data += build_message(topic=f"T{i % 3}", body=b"x", properties=text, physical_offset=len(data), queue_offset=i)
    return Columns(np.frombuffer(data + bytes(64), dtype=np.uint8), 0, np.array(at, dtype=np.int64))


_PIECES = st.sampled_from(
    [b"TAGS", b"KEYS", b"UNIQ_KEY", b"\1", b"\2", b"\1", b"\2", b"a", b'"', b"\\", b"\0", b"\n", "用".encode(), b"\xff"]
)


@given(st.lists(st.lists(_PIECES, max_size=12).map(b"".join), min_size=1, max_size=6))
@settings(max_examples=300)
def test_lines_equal_rows_for_any_property_text(texts: list[bytes]) -> None:
    columns = _columns(texts)
    lines = MessageLines()
    rows = [lines.row(columns, i, "f", crc_ok=True) for i in range(len(texts))]
    assert [json.loads(line) for line in lines.lines(columns, "f")] == rows


def test_sound_texts_take_the_fast_way(monkeypatch: pytest.MonkeyPatch) -> None:
    from rmqstore.views.message_lines import PropertyTexts

    def refuse(self: PropertyTexts, i: int) -> None:
        raise AssertionError(f"record {i} was decoded on its own")

    monkeypatch.setattr(PropertyTexts, "_set", refuse)
    columns = _columns(
        [b"TAGS\1a\2KEYS\1k1 k2\2", b"", "KEYS\1用户\2TAGS\1b".encode(), b"UNIQ_KEY\x0101\2WAIT\1true\2", b"A\1b"]
    )
    rows = [json.loads(line) for line in MessageLines().lines(columns, "f")]
    assert [r["tags"] for r in rows] == ["a", None, "b", None, None]
    assert [r["keys"] for r in rows] == ["k1 k2", None, "用户", None, None]
    assert [r["unique_key"] for r in rows] == [None, None, None, "01", None]
    assert [r["properties"] for r in rows][1] == {}


def test_dumps_shows_undecodable_names_as_escapes() -> None:
    assert dumps(Path("\udcff").name) == '"\\udcff"'
