"""Compare what the real store reads from a repaired store with what it reads from the sound one."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.real_broker.oracle import OracleResult, Setting, StoredMessage
from tests.real_broker.oracle_server import Cell, OracleServers
from tests.repair.salvaging import rows
from tests.stores import BROKER_STORES, VERSIONS, meta, unpack

UNIT = 20
_MOST = 8 << 20  # bytes; no file of a fixture's log or queues is longer

Place = tuple[str, int]
"""Queue ("topic/id") and logical offset."""


@dataclass(frozen=True, slots=True)
class Sound:
    """The records of an undamaged store by physical offset; in DLedger, without the entry header."""

    records: Mapping[int, bytes]
    homes: Mapping[int, tuple[str, int]]
    """The file of each record, relative to the store, and its position in there."""

    def hit_in(self, damaged: Path) -> frozenset[int]:
        """Return the offsets of records with changed or lost bytes, also in renamed files.

        A copy of its file does not save a record that still looks sound: no CRC covers some of its bytes.
        """
        files: dict[Path, dict[str, bytes]] = {}
        out: list[int] = []
        elsewhere: set[int] = set()
        for offset, record in self.records.items():
            name, at = self.homes[offset]
            path = damaged / name
            if path.parent not in files:
                files[path.parent] = {p.name: _head(p) for p in sorted(path.parent.glob("*")) if p.is_file()}
            contents, part = files[path.parent], slice(at, at + len(record))
            if contents.get(path.name, b"")[part] == record:
                continue
            if any(content[part] == record for content in contents.values()):
                elsewhere.add(offset)
            else:
                out.append(offset)
        unseen = elsewhere & {row.offset for row in rows(damaged)} if elsewhere else set()
        return frozenset((*out, *unseen))


def _head(path: Path) -> bytes:
    """Return the content of a file without an extension by damage."""
    with path.open("rb") as file:
        return file.read(_MOST)


@functools.cache
def sound(name: str) -> Sound:
    """Return the records of a fixture."""
    store = unpack(name)
    found = rows(store)
    contents = {row.path: row.path.read_bytes() for row in found}
    return Sound(
        {row.offset: contents[row.path][row.at : row.stop] for row in found},
        {row.offset: (row.path.relative_to(store).as_posix(), row.at) for row in found},
    )


def versions_reading(name: str) -> tuple[str, ...]:
    """Return the versions that read all of a sound fixture.

    Older ones do not know V2 records and inner batches, or have no classes for rows in RocksDB. 5.5 starts with double
    write only if combineCQUseRocksdbForLmq is set, too (RocksDBLiteLifecycleManager#init).
    """
    if name not in BROKER_STORES:
        return VERSIONS
    settings = meta(name).oracle_args
    if settings.get("storeType") == "defaultRocksDB" and settings.get("useSeparateStorePathForRocksdbCQ") == "true":
        return VERSIONS[3:]
    if "storeType" in settings or any(key.endswith("RocksDBEnable") for key in settings):
        return VERSIONS[2:]
    if settings.get("rocksdbCQDoubleWriteEnable") == "true" and "combineCQUseRocksdbForLmq" not in settings:
        return VERSIONS[:3]
    return VERSIONS[1:] if name.endswith("formats") else VERSIONS


def countable(name: str, damaged: Path) -> frozenset[Place]:
    """Return the messages whose unit is the same in the damaged and the undamaged store: their loss is countable."""
    store, out = unpack(name), set()
    for path in store.glob("consumequeue/*/*/*"):
        other = damaged / path.relative_to(store)
        old, new = path.read_bytes(), _head(other) if other.is_file() else b""
        for at in range(0, len(old), UNIT):
            unit = old[at : at + UNIT]
            if any(unit) and unit == new[at : at + UNIT]:
                out.add((f"{path.parent.parent.name}/{path.parent.name}", (int(path.name) + at) // UNIT))
    return frozenset(out)


def messages(result: OracleResult) -> dict[Place, StoredMessage]:
    """Return all messages that were read through all consume queues."""
    return {(queue, m.queue_offset): m for queue, reading in result.queues.items() for m in reading.messages}


def unreadable(result: OracleResult) -> dict[str, tuple[str, ...]]:
    """Return the queues with offsets without a complete, right message, and the reasons for the first few."""
    return {name: q.why for name, q in result.queues.items() if q.bad}


def not_the_same(before: OracleResult, after: OracleResult) -> dict[Place, int]:
    """Return the lost or changed messages with the physical offsets of their records."""
    now = messages(after)
    return {
        place: old.commitlog_offset
        for place, old in messages(before).items()
        if (new := now.get(place)) is None or new.digest != old.digest
    }


class Sounds:
    """A cache of what every version reads from the undamaged stores."""

    def __init__(self, servers: OracleServers) -> None:
        self.servers = servers
        self._known: dict[tuple[str, Cell], OracleResult] = {}

    def read(self, name: str, settings: Mapping[str, Setting], cells: Sequence[Cell]) -> dict[Cell, OracleResult]:
        """Return what the real store reads from a fixture by cell."""
        new = [cell for cell in cells if (name, cell) not in self._known]
        for cell, result in self.servers.read(unpack(name), settings, new).items():
            self._known[name, cell] = result
        return {cell: self._known[name, cell] for cell in cells}
