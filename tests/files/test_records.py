"""The message at an offset of a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.files.mapped_file_queue import message_at
from rmqstore.files.store import open_store
from rmqstore.formats.message import build_message, parse_message
from tests.planning import log_of
from tests.stores import unpack


def test_message_at_reads_the_record_that_starts_there_and_nothing_else() -> None:
    store = open_store(unpack("5.4.0-clean"))
    assert store.commitlog is not None
    log = store.commitlog
    first = message_at(log, 0)
    assert first is not None and first.physical_offset == 0
    second = message_at(log, first.size)
    assert second is not None and second.physical_offset == first.size
    assert message_at(log, 1) is None
    assert message_at(log, 0, most=first.size - 1) is None
    assert message_at(log, 0, most=first.size) == first
    assert message_at(log, log.files[-1].stop) is None


def test_message_at_skips_the_header_of_a_dledger_entry_when_its_offset_does() -> None:
    store = open_store(unpack("5.4.0-dledger"))
    assert store.dledger is not None
    data = store.dledger.data
    assert message_at(data, data.start) is None
    message = message_at(data, data.start + 48)
    assert message is not None and message.physical_offset == data.start + 48


@pytest.mark.parametrize("size", [0, 90, 1 << 30, -1])
def test_an_impossible_size_is_no_message(size: int, store: Path) -> None:
    file = sorted((store / "commitlog").iterdir())[0]
    raw = bytearray(file.read_bytes())
    raw[:4] = size.to_bytes(4, "big", signed=True)
    file.write_bytes(raw)
    log = log_of(store)
    assert message_at(log, 0) is None


def test_a_record_that_contradicts_its_place_is_returned_unchanged(store: Path) -> None:
    file = sorted((store / "commitlog").iterdir())[0]
    raw = bytearray(file.read_bytes())
    record = build_message(topic="T", body=b"x" * 50, physical_offset=777)
    raw[: len(record)] = record
    file.write_bytes(raw)
    log = log_of(store)
    assert message_at(log, 0) == parse_message(record)[0]
