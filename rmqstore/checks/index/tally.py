"""The result of comparing a log with its index. A log without an index needs this module only, not `catalog.py`."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Contradicted:
    """A message whose index entries, though written for it, belong to other keys than its properties contain.

    `offset`, `size`: of the record, bytes; `store_timestamp` in ms. `hashes`: the key hashes of all its entries, in
    order; `entries`: how many of them belong to no key in its properties.
    """

    offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int
    unique_key: str
    keys: str
    hashes: tuple[int, ...]
    entries: int


@dataclass(slots=True)
class IndexTally:
    """The result for a log or a part of it; parts can be merged in any order.

    `messages` lack index entries, `entries` in all, from offset `first` to `last`. By file number, (number of entries,
    first unit, its log offset): `dangling` entries point to no message, `late` ones have another time than their
    message. `contradicted`: damaged messages by offset; their entries are neither dangling nor missing.
    """

    messages: int = 0
    entries: int = 0
    first: int = -1
    last: int = -1
    dangling: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    late: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    contradicted: dict[int, Contradicted] = field(default_factory=dict)

    def merge(self, other: IndexTally) -> None:
        """Add the result of another part."""
        self.messages += other.messages
        self.entries += other.entries
        if other.first >= 0:
            self.first = other.first if self.first < 0 else min(self.first, other.first)
            self.last = max(self.last, other.last)
        for number, found in other.dangling.items():
            add_found(self.dangling, number, found)
        for number, found in other.late.items():
            add_found(self.late, number, found)
        self.contradicted.update(other.contradicted)

    def add_missing(self, messages: int, entries: int, first: int, last: int) -> None:
        """Count messages that lack entries."""
        self.merge(IndexTally(messages, entries, first, last))


def add_found(table: dict[int, tuple[int, int, int]], number: int, found: tuple[int, int, int]) -> None:
    """Add entries of a file to those counted for it."""
    have = table.get(number)
    table[number] = found if have is None else (have[0] + found[0], *min(have[1:], found[1:]))
