"""Look up keys in a store's index files. Reads one slot and its chain per topic, key and file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rmqstore.files.files import Files
from rmqstore.files.index import index_chain, index_header, index_sizes
from rmqstore.files.store import Store
from rmqstore.formats import index

_UNITS = 1 << 16  # units read at a time


class IndexHit(NamedTuple):
    """An index entry with the hash of a topic and key. `offset`: log offset of its message."""

    offset: int
    topic: str
    key: str


class Covered(NamedTuple):
    """The global offsets of the first and the last message that an index file indexes."""

    first: int
    last: int


class IndexFiles:
    """All index files of a store, or other files of the same size (`paths`), such as those that a repair replaced.

    `broken`: names of files with an implausible header or chain.
    """

    def __init__(self, store: Store, paths: Iterable[Path] | None = None) -> None:
        self.files = store.files
        self.sizes = index_sizes(store)
        self.broken: set[str] = set()
        self._heads: list[tuple[Path, dict[str, int]]] = []
        if paths is None:
            paths = [entry.path for entry in store.index_files]
        for path in paths if self.sizes is not None else ():
            head = index_header(self.files, path)
            if head is not None:
                self._heads.append((path, head))
            if head is None or not self._is_plausible(head):
                self.broken.add(path.name)

    def _is_plausible(self, head: dict[str, int]) -> bool:
        assert self.sizes is not None
        return 0 <= head["index_count"] <= self.sizes[1] and 0 <= head["begin_phy_offset"] <= head["end_phy_offset"]

    def __bool__(self) -> bool:
        """Return whether any file has entries."""
        return any(index.entries(head["index_count"]) for _, head in self._heads)

    def covered(self) -> list[Covered]:
        """Return the range of every file that has entries, in the order of the files."""
        return [
            Covered(head["begin_phy_offset"], head["end_phy_offset"])
            for _, head in self._heads
            if index.entries(head["index_count"])
        ]

    def hits(self, topics: Iterable[str], keys: Iterable[str]) -> Iterator[IndexHit]:
        """Yield the entries for any of the keys in any of the topics, newest message first, duplicates included.

        Another key may have the same hash, so callers must compare with the message.
        Source: IndexService#queryOffset
        """
        wanted: dict[int, list[tuple[str, str]]] = {}
        for key in keys:
            for topic in topics:
                wanted.setdefault(index.key_hash(index.key_text(topic, key)), []).append((topic, key))
        for path, head in reversed(self._heads):
            found = [
                IndexHit(offset, topic, key)
                for key_hash, names in wanted.items()
                for offset in self._chain(path, head, key_hash)
                for topic, key in names
            ]
            yield from sorted(found, reverse=True)

    def _chain(self, path: Path, head: dict[str, int], wanted: int) -> Iterator[int]:
        """Yield the log offsets of the units with this hash, newest first; add the file to `broken` if necessary."""
        assert self.sizes is not None
        slots, units = self.sizes
        for number, unit in index_chain(self.files, path, slots, units, wanted):
            stray = index.slot_of(unit["key_hash"], slots) != index.slot_of(wanted, slots)
            if number > head["index_count"] or unit["prev_index"] >= number or stray or not any(unit.values()):
                self.broken.add(path.name)  # a slot beyond the end, a loop, another slot's chain, or zeros
            if unit["key_hash"] == wanted:
                yield int(unit["phy_offset"])
            if stray:
                return


class Indexed(NamedTuple):
    """The contents of a message's index entries: hashes of its keys, and its store time (ms, up to 1 s too early)."""

    hashes: list[int]
    time: int


def entries_at(
    files: Files, paths: Iterable[Path], sizes: tuple[int, int], offsets: Collection[int]
) -> dict[int, Indexed]:
    """Return the index entries of the messages at these log offsets, from any index files.

    Skips files that end before the first of the offsets according to their header.
    """
    out: dict[int, Indexed] = {}
    wanted = np.array(sorted(offsets), dtype=np.int64)
    slots, units = sizes
    for path in paths:
        head = index_header(files, path)
        if head is None or not len(wanted) or head["end_phy_offset"] < wanted[0]:
            continue
        stop = min(max(head["index_count"], 0), units)
        for first in range(1, stop, _UNITS):
            count = min(_UNITS, stop - first)
            rows = index.UNIT.array(files.read_at(path, count * index.UNIT.size, index.unit_at(first, slots)))
            for i in np.flatnonzero(np.isin(rows["phy_offset"].astype(np.int64), wanted)).tolist():
                # the broker computes time_diff of a file's first entry before it sets the file's begin_timestamp
                later = 0 if first + i == 1 else 1000 * int(rows["time_diff"][i])
                found = out.setdefault(int(rows["phy_offset"][i]), Indexed([], head["begin_timestamp"] + later))
                if (key_hash := int(rows["key_hash"][i])) not in found.hashes:
                    found.hashes.append(key_hash)
    return out
