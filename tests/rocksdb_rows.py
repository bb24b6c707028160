"""Plan for a copied store with RocksDB, and change its rows like bugs of a broker or a bad disk would."""

from __future__ import annotations

import importlib
import struct
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rmqstore.formats.rocksdbkeys import OFFSET_VALUE, UNIT_VALUE, OffsetKey, UnitKey
from tests import damage
from tests.stores import meta

STORE, MESSAGES = "5.4.0-rocksdb", 292
SETTINGS = dict(meta(STORE).oracle_args)


EXTRA = "rocksdict is not installed (the extra rocksdb)"


def need_rocksdict() -> Any:
    """Return the rocksdict module, or skip the test without it."""
    return pytest.importorskip("rocksdict", reason=EXTRA)


@dataclass(frozen=True, slots=True)
class Rows:
    """The column families of a RocksDB of consume queues, opened for writing."""

    units: Any
    offsets: Any

    def get(self, topic: str, queue_id: int, index: int) -> dict[str, Any]:
        return UNIT_VALUE.parse(bytes(self.units[UnitKey(topic.encode(), queue_id, index).build()]))

    def put(self, topic: str, queue_id: int, index: int, **change: int) -> None:
        """Write a row; fields that are not given keep their value, or are zero in a new row."""
        key = UnitKey(topic.encode(), queue_id, index).build()
        old = self.units.get(key)
        values = UNIT_VALUE.parse(bytes(old)) if old is not None else dict.fromkeys([f.name for f in UNIT_VALUE], 0)
        self.units[key] = UNIT_VALUE.build(values | change)

    def drop(self, topic: str, queue_id: int, index: int) -> None:
        del self.units[UnitKey(topic.encode(), queue_id, index).build()]

    def delete(self, topic: str, queue_id: int, rows: int) -> None:
        """Delete rows [0, rows) and the ends of a queue, as a broker deletes it."""
        for index in range(rows):
            self.drop(topic, queue_id, index)
        for bound in ("max", "min"):
            key = OffsetKey(topic.encode(), "max" if bound == "max" else "min", queue_id).build()
            if self.offsets.get(key) is not None:
                del self.offsets[key]

    def end(self, topic: str, queue_id: int, queue_offset: int, commitlog_offset: int, bound: str = "max") -> None:
        """Write the row of the column family `offset` for a queue's last (or first) message."""
        key = OffsetKey(topic.encode(), "max" if bound == "max" else "min", queue_id).build()
        self.offsets[key] = OFFSET_VALUE.build(commitlog_offset=commitlog_offset, queue_offset=queue_offset)


def newer_tables(directory: Path) -> None:
    """Set a format version in every table that no RocksDB knows yet; a footer of format 5 has no checksum."""
    for path in directory.glob("*.sst"):
        damage.overwrite(path, path.stat().st_size - 12, (99).to_bytes(4, "little"))


def newer_manifest(directory: Path) -> None:
    """Append a sound record to the manifest with a tag that no RocksDB knows yet, and that it may not ignore."""
    edit = bytes((0xF4, 0x03, 3)) + b"new"  # tag 500 with a string
    kind = 1  # a whole record in one fragment
    crc = _crc32c(bytes((kind,)) + edit)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    [path] = directory.glob("MANIFEST-*")
    path.write_bytes(path.read_bytes() + struct.pack("<IHB", masked, len(edit), kind) + edit)


NEWER = (newer_tables, newer_manifest)


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@contextmanager
def opened_rows(directory: Path, *families: str) -> Iterator[Any]:
    """Open a database for writing; at the end of the block, all writes are on disk."""
    library = need_rocksdict()
    names = families or tuple(library.Rdict.list_cf(str(directory)))
    options = {name: library.Options(raw_mode=True) for name in names}
    database = library.Rdict(str(directory), options=library.Options(raw_mode=True), column_families=options)
    try:
        yield database
    finally:
        database.close()


@contextmanager
def changing(store: Path, place: str = "consumequeue") -> Iterator[Rows]:
    """Open the rows of a copied store for changes; `place`: the directory of its RocksDB."""
    with opened_rows(store / place) as database:
        rows = Rows(database.get_column_family("default"), database.get_column_family("offset"))
        try:
            yield rows
        finally:
            rows.units.close()
            rows.offsets.close()


def without_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a machine without the extra `rocksdb`."""
    assert importlib.import_module("rmqstore.files.rocksdb.database")
    monkeypatch.setattr("rmqstore.files.rocksdb.database.find_spec", lambda name: None)
    monkeypatch.setattr("rmqstore.files.rocksdb.database._open", OrderedDict())  # an earlier test may have opened it
