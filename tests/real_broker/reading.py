"""What the real store read from a repaired store, held against what it reads from the sound one."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.real_broker.oracle import OracleResult, Setting, StoredMessage
from tests.real_broker.oracle_server import Cell, OracleServers
from tests.repair.salvaging import rows
from tests.stores import unpack

UNIT = 20
_MOST = 8 << 20  # bytes; no file of a fixture's log or queues is longer

Place = tuple[str, int]
"""Queue ("topic/id") and logical offset."""


@dataclass(frozen=True, slots=True)
class Sound:
    """The records of an undamaged store: global offset → its bytes. In DLedger without the entry's header."""

    records: Mapping[int, bytes]
    homes: Mapping[int, tuple[str, int]]
    """The file of each record, relative to the store, and its position in there."""

    def hit_in(self, damaged: Path) -> frozenset[int]:
        """Offsets of the records of which a byte is another now, or gone: from their file, whatever its name is now."""
        files: dict[Path, list[bytes]] = {}
        out = []
        for offset, record in self.records.items():
            name, at = self.homes[offset]
            path = damaged / name
            if path.parent not in files:
                files[path.parent] = [_head(p) for p in sorted(path.parent.glob("*")) if p.is_file()]
            if not any(content[at : at + len(record)] == record for content in files[path.parent]):
                out.append(offset)
        return frozenset(out)


def _head(path: Path) -> bytes:
    """All of a file that was not extended by a wound."""
    with path.open("rb") as file:
        return file.read(_MOST)


@functools.cache
def sound(name: str) -> Sound:
    """The records of a fixture."""
    store = unpack(name)
    found = rows(store)
    contents = {row.path: row.path.read_bytes() for row in found}
    return Sound(
        {row.offset: contents[row.path][row.at : row.stop] for row in found},
        {row.offset: (row.path.relative_to(store).as_posix(), row.at) for row in found},
    )


def told(name: str, damaged: Path) -> frozenset[Place]:
    """Messages whose unit is the same in the damaged and the undamaged store: their loss can be counted."""
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
    """Every message that was read, through every consume queue."""
    return {(queue, m.queue_offset): m for queue, reading in result.queues.items() for m in reading.messages}


def unreadable(result: OracleResult) -> dict[str, tuple[str, ...]]:
    """Offsets without a whole, right message, with the reasons of the first few."""
    return {name: q.why for name, q in result.queues.items() if q.bad}


def not_the_same(before: OracleResult, after: OracleResult) -> dict[Place, int]:
    """Messages that are gone or other than they were, with the offset of their record in the log."""
    now = messages(after)
    return {
        place: old.commitlog_offset
        for place, old in messages(before).items()
        if (new := now.get(place)) is None or new.digest != old.digest
    }


class Sounds:
    """What every version reads from the undamaged stores; asked once."""

    def __init__(self, servers: OracleServers) -> None:
        self.servers = servers
        self._known: dict[tuple[str, Cell], OracleResult] = {}

    def read(self, name: str, settings: Mapping[str, Setting], cells: Sequence[Cell]) -> dict[Cell, OracleResult]:
        """Per cell what the real store reads from a fixture."""
        new = [cell for cell in cells if (name, cell) not in self._known]
        for cell, result in self.servers.read(unpack(name), settings, new).items():
            self._known[name, cell] = result
        return {cell: self._known[name, cell] for cell in cells}
