"""Python access to a DLedger store: entries by index and position, messages through their consume queue units."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.errors import NotAStore
from rmqstore.files.store import open_store
from rmqstore.formats.consumequeue import UNIT
from rmqstore.views.dledger_store import DLedgerCommitLog, DLedgerReader, NoSuchEntry
from tests.repair.migration_stores import dledger_records, plain_records
from tests.stores import copy_store, unpack
from tests.untouched import assert_untouched


def _ledger(store: Path) -> DLedgerReader:
    files = open_store(store).dledger
    assert files is not None
    return DLedgerReader(files)


@pytest.mark.parametrize("name", ["4.9.7-dledger", "5.4.0-dledger-killed", "5.1.4-dledger-mixed", "head_dledger_150"])
def test_every_entry_is_found_by_index_and_by_position(name: str) -> None:
    source = unpack(name)
    with assert_untouched(source):
        ledger = _ledger(source)
        records = list(dledger_records(source))
        assert (ledger.begin_index, ledger.end_index) == (0, len(records) - 1)
        entries = list(ledger.entries())
        assert [entry.body for entry in entries] == [record.data for record in records]
        assert [entry.pos + 48 for entry in entries] == [record.address for record in records]
        for entry in entries[:: max(1, len(entries) // 50)]:
            assert ledger.get(entry.index) == entry
            assert ledger.get_by_position(entry.pos) == entry
            assert ledger.data.pread(entry.size, entry.pos) == entry.build()


def test_ranges_include_both_ends() -> None:
    ledger = _ledger(unpack("4.9.7-dledger"))
    assert [entry.index for entry in ledger.entries(68, 103)] == list(range(68, 104))
    assert list(ledger.entries(5, 4)) == []


@pytest.mark.parametrize("index", [-1, 571, 1 << 40])
def test_index_outside_is_no_such_entry(index: int) -> None:
    with pytest.raises(NoSuchEntry):
        _ledger(unpack("4.9.7-dledger")).get(index)


@pytest.mark.parametrize("pos", [-1, 1, 47, 1 << 50])
def test_position_where_no_entry_starts_is_no_such_entry(pos: int) -> None:
    with pytest.raises(NoSuchEntry):
        _ledger(unpack("4.9.7-dledger")).get_by_position(pos)


def test_entries_are_found_without_the_index(tmp_path: Path) -> None:
    store = copy_store("4.9.7-dledger", tmp_path)
    expected = list(_ledger(store).entries())
    for path in (store / "dledger-n0" / "index").iterdir():
        path.unlink()
    ledger = _ledger(store)
    assert (ledger.end_index, ledger.get(333)) == (570, expected[333])
    assert list(ledger.entries()) == expected


def test_damaged_entry_is_no_such_entry_and_its_neighbours_are_found(tmp_path: Path) -> None:
    store = copy_store("4.9.7-dledger", tmp_path)
    sound = _ledger(store)
    damaged, behind = sound.get(200), sound.get(201)
    file = sound.data.find(damaged.pos)
    assert file is not None
    with file.path.open("r+b") as data:
        data.seek(damaged.pos - file.start)
        data.write(b"\0\0\0\7")
    ledger = _ledger(store)
    with pytest.raises(NoSuchEntry):
        ledger.get(200)
    assert ledger.get(201) == behind


def test_committed_index_is_clamped_to_the_entries(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger3-n2", tmp_path)
    assert _ledger(store).committed_index == 69
    entry = _ledger(store).get(69)
    assert _ledger(store).committed_pos == entry.pos + entry.size
    (store / "dledger-n2" / "checkpoint").write_text("committedIndex=100000\nendIndex=1\n")
    assert _ledger(store).committed_index == 300
    (store / "dledger-n2" / "checkpoint").unlink()
    assert (_ledger(store).committed_index, _ledger(store).committed_pos) == (-1, -1)


def test_messages_are_read_across_the_divided_offset_through_every_unit() -> None:
    source = unpack("5.1.4-dledger-mixed")
    log = DLedgerCommitLog(open_store(source))
    assert (log.divided_commitlog_offset, log.min_offset) == (524288, 0)
    read = set()
    for path in sorted((source / "consumequeue").glob("*/*/*")):
        topic, queue_id = path.parts[-3], int(path.parts[-2])
        raw = path.read_bytes()
        for at in range(0, len(raw), UNIT.size):
            unit = UNIT.parse(raw, at)
            if not unit["size"]:
                continue
            message = log.get_message(unit["commitlog_offset"], unit["size"])
            assert message is not None
            assert (message.topic_text, message.queue_id) == (topic, queue_id)
            assert message.queue_offset == (int(path.name) + at) // UNIT.size
            read.add(unit["commitlog_offset"])
    assert {record.address for record in [*plain_records(source), *dledger_records(source)]} >= read
    assert any(offset >= 524288 for offset in read)
    assert any(offset < 524288 for offset in read)


def test_addresses_between_messages_return_none() -> None:
    log = DLedgerCommitLog(open_store(unpack("5.1.4-dledger-mixed")))
    last = log.max_offset
    for offset in (-1, 1, 524288, last, last + 48, 1 << 60):
        assert log.look_message_by_offset(offset) is None
    assert log.get_message(524288 + 48, 10) is None
    assert log.get_data(0, 1 << 40) == b""


def test_look_message_reads_the_size_itself() -> None:
    log = DLedgerCommitLog(open_store(unpack("5.1.4-dledger-mixed")))
    message = log.look_message_by_offset(524288 + 48)
    assert message is not None
    assert message.physical_offset == 524288 + 48


def test_plain_store_is_read_too_and_an_empty_directory_is_none(tmp_path: Path) -> None:
    log = DLedgerCommitLog(open_store(unpack("4.9.7-clean")))
    assert (log.divided_commitlog_offset, log.max_offset) == (-1, 443387)
    assert log.look_message_by_offset(0) is not None
    (tmp_path / "commitlog").mkdir()
    with pytest.raises(NotAStore):
        DLedgerCommitLog(open_store(tmp_path))
