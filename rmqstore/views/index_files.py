"""The index files of a store as a look-up: which log offsets they give for a key, and which part of the log they cover.

Direct: it reads a slot and its chain per topic, key and file, whatever the size of the file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rmqstore.files.disk.reading import read_at
from rmqstore.files.index_sizes import index_sizes
from rmqstore.files.index_units import index_chain
from rmqstore.files.mapped_file_queue import DirEntry
from rmqstore.files.store import Store
from rmqstore.formats import index

_UNITS = 1 << 16  # units read at a time


class IndexHit(NamedTuple):
    """An index entry whose hash is that of a topic and a key: `offset` is where the message should be in the log."""

    offset: int
    topic: str
    key: str


class Covered(NamedTuple):
    """The messages whose entries a file holds: from the first to the last indexed message, global offsets."""

    first: int
    last: int


class IndexFiles:
    """All index files of a store. `broken` names the files whose chains or header contradict themselves."""

    def __init__(self, store: Store) -> None:
        self.sizes = index_sizes(store)
        self.broken: set[str] = set()
        self._heads: list[tuple[DirEntry, dict[str, int]]] = []
        for entry in store.index_files if self.sizes is not None else ():
            raw = read_at(entry.path, index.HEADER.size, 0)
            if len(raw) == index.HEADER.size:
                self._heads.append((entry, index.HEADER.parse(raw)))
            if len(raw) < index.HEADER.size or not self._is_plausible(self._heads[-1][1]):
                self.broken.add(entry.path.name)

    def _is_plausible(self, head: dict[str, int]) -> bool:
        assert self.sizes is not None
        return 0 <= head["index_count"] <= self.sizes[1] and 0 <= head["begin_phy_offset"] <= head["end_phy_offset"]

    def __bool__(self) -> bool:
        """Whether there is a file with entries."""
        return any(index.entries(head["index_count"]) for _, head in self._heads)

    def covered(self) -> list[Covered]:
        """What each file covers, in the order of the files; files without entries are left out."""
        return [
            Covered(head["begin_phy_offset"], head["end_phy_offset"])
            for _, head in self._heads
            if index.entries(head["index_count"])
        ]

    def hits(self, topics: Iterable[str], keys: Iterable[str]) -> Iterator[IndexHit]:
        """Entries for any of the keys in any of the topics, the newest message first, each as often as files have it.

        A hash may be that of another key: the message itself decides.
        Source: IndexService#queryOffset
        """
        wanted: dict[int, list[tuple[str, str]]] = {}
        for key in keys:
            for topic in topics:
                wanted.setdefault(index.key_hash(index.key_text(topic, key)), []).append((topic, key))
        for entry, head in reversed(self._heads):
            found = [
                IndexHit(offset, topic, key)
                for key_hash, names in wanted.items()
                for offset in self._chain(entry.path, head, key_hash)
                for topic, key in names
            ]
            yield from sorted(found, reverse=True)

    def holds(self, topic: str, key: str, offset: int) -> bool:
        """Whether a message at this offset is indexed under a key."""
        return any(hit.offset == offset for hit in self.hits((topic,), (key,)))

    def _chain(self, path: Path, head: dict[str, int], wanted: int) -> Iterator[int]:
        """Log offsets of the units of one slot with this hash, newest first; notes what no broker writes."""
        assert self.sizes is not None
        slots, units = self.sizes
        for number, unit in index_chain(path, slots, units, wanted):
            stray = index.slot_of(unit["key_hash"], slots) != index.slot_of(wanted, slots)
            if number > head["index_count"] or unit["prev_index"] >= number or stray or not any(unit.values()):
                self.broken.add(path.name)  # a slot beyond the end, a loop, another slot's chain, or zeros
            if unit["key_hash"] == wanted:
                yield int(unit["phy_offset"])
            if stray:
                return


class Indexed(NamedTuple):
    """What the entries of a message tell: hashes of its keys, and its store time (ms), up to a second too early."""

    hashes: list[int]
    time: int


def entries_at(files: Iterable[Path], sizes: tuple[int, int], offsets: Collection[int]) -> dict[int, Indexed]:
    """The entries for messages at these log offsets, from index files that may lie anywhere.

    Files whose header says that they hold none of them are not read.
    """
    out: dict[int, Indexed] = {}
    wanted = np.array(sorted(offsets), dtype=np.int64)
    slots, units = sizes
    for path in files:
        raw = read_at(path, index.HEADER.size, 0)
        head = index.HEADER.parse(raw) if len(raw) == index.HEADER.size else None
        if head is None or not len(wanted) or head["end_phy_offset"] < wanted[0]:
            continue
        stop = min(max(head["index_count"], 0), units)
        for first in range(1, stop, _UNITS):
            count = min(_UNITS, stop - first)
            rows = index.UNIT.array(read_at(path, count * index.UNIT.size, index.unit_at(first, slots)))
            for i in np.flatnonzero(np.isin(rows["phy_offset"].astype(np.int64), wanted)).tolist():
                # the first entry of a file was put with the begin of the file before
                later = 0 if first + i == 1 else 1000 * int(rows["time_diff"][i])
                found = out.setdefault(int(rows["phy_offset"][i]), Indexed([], head["begin_timestamp"] + later))
                if (key_hash := int(rows["key_hash"][i])) not in found.hashes:
                    found.hashes.append(key_hash)
    return out
