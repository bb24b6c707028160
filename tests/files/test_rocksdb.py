"""Reading a RocksDB through hard links, without changes to it and while a broker may change it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from rmqstore.files.files import LOCAL
from rmqstore.files.rocksdb.database import CannotRead, Database, open_database
from rmqstore.files.rocksdb.links import database_files
from rmqstore.files.rocksdb.queues import UNITS, RocksDBQueues
from rmqstore.files.store import open_store
from rmqstore.formats.rocksdbkeys import UnitKey
from tests.rocksdb_rows import changing, need_rocksdict, opened_rows, without_extra
from tests.stores import copy_store, unpack
from tests.untouched import assert_untouched

need_rocksdict()
STORE = "5.4.0-rocksdb"


def rows(database: Database) -> int:
    return sum(len(keys) for keys, _ in database.chunks(UNITS, count=100))


def test_all_rows_come_in_the_order_of_their_keys() -> None:
    database = Database(unpack(STORE) / "consumequeue")
    keys = [key for block, _ in database.chunks(UNITS, count=7) for key in block]
    assert len(keys) == 292
    assert keys == sorted(keys)
    assert sorted(database.families) == ["default", "offset"]


def test_a_range_is_half_open() -> None:
    database = Database(unpack(STORE) / "consumequeue")
    low, high = (UnitKey(b"Order_11", 1, n).build() for n in (3, 6))
    assert [key for block, _ in database.chunks(UNITS, low, high) for key in block] == [
        UnitKey(b"Order_11", 1, n).build() for n in (3, 4, 5)
    ]


def test_what_was_opened_stays_readable_when_a_broker_compacts(tmp_path: Path) -> None:
    directory = copy_store(STORE, tmp_path) / "consumequeue"
    database = Database(directory)
    before = database_files(LOCAL, directory)
    with opened_rows(directory) as writer:
        table = writer.get_column_family(UNITS)
        for index in range(1000):
            table[UnitKey(b"Order_11", 1, 1000 + index).build()] = bytes(28)
        table.flush()
        table.compact_range(None, None)
    after = {name for name, _, _ in database_files(LOCAL, directory)}
    assert not {name for name, _, _ in before if name.endswith(".sst")} <= after
    assert rows(database) == 292
    assert rows(open_database(LOCAL, directory)) == 1292


def test_an_open_database_is_used_again_as_long_as_its_files_are_the_same(store: Path) -> None:
    first = open_database(LOCAL, store / "consumequeue")
    assert open_database(LOCAL, store / "consumequeue") is first
    with changing(store) as written:
        written.put("Order_11", 1, 50, size=1)
    assert open_database(LOCAL, store / "consumequeue") is not first


def test_opening_leaves_no_file_behind(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = tmp_path / "room"
    room.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(room))
    with assert_untouched(store):
        assert rows(Database(store / "consumequeue")) == 292
    assert list(room.iterdir()) == []


def test_without_room_for_links_it_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(CannotRead, match="No such file"):
        Database(unpack(STORE) / "consumequeue")


def test_without_the_extra_it_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    without_extra(monkeypatch)
    with pytest.raises(CannotRead, match=r"pip install .*rocksdict"):
        Database(unpack(STORE) / "consumequeue")


def test_a_database_of_something_else_has_no_queues() -> None:
    store = open_store(unpack(STORE))
    other = Database(store.root / "config" / "topics")
    with pytest.raises(CannotRead, match="no column family offset"):
        list(other.chunks("offset"))


def test_units_read_as_in_files(store: Path) -> None:
    with changing(store) as written:
        written.drop("Order_11", 1, 2)
    queue = RocksDBQueues(open_store(store)).queue("Order_11", 1)
    raw = queue.pread(20 * 30, 0)
    assert (queue.first, queue.behind, len(raw)) == (0, 19, 19 * 20)
    assert [n for n in range(19) if not any(raw[n * 20 : n * 20 + 20])] == [2]
    assert queue.pread(20, 19 * 20) == b""
    assert [(n, len(units)) for n, units, _ in queue.runs(0, 100)] == [(0, 2), (3, 16)]


def test_a_missing_queue_is_empty() -> None:
    queue = RocksDBQueues(open_store(unpack(STORE))).queue("Order_11", 9)
    assert (queue.first, queue.behind, len(queue), queue.unreadable) == (0, 0, 0, [])
    assert queue.pread(20, 0) == b""
