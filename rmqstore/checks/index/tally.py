"""What a pass over the log found of the index: messages that lack entries, entries of no message or with another time.

The catalog for counting is in `catalog.py`; a log without an index needs the tally only.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Contradicted:
    """A message whose index entries are of other keys than its properties hold, though they were put for it.

    `offset`, `size` (bytes) of the record; `store_timestamp` in ms. `hashes` are the key hashes of all its entries, in
    their order, `entries` says how many of them its properties do not give.
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
    """What a pass over the log, or over a part of it, found; parts merge to the same whole in any order.

    Messages that lack entries: how many, how many entries, first and last offset. Per file `dangling`, and `late`
    (entries with another time than their message's): entries, first unit and its offset. `contradicted`: messages that
    are damaged, by offset; their entries are neither dangling nor missing.
    """

    messages: int = 0
    entries: int = 0
    first: int = -1
    last: int = -1
    dangling: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    late: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    contradicted: dict[int, Contradicted] = field(default_factory=dict)

    def merge(self, other: IndexTally) -> None:
        """Take over what another part found."""
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
    """Add entries of a file to what is known of it."""
    have = table.get(number)
    table[number] = found if have is None else (have[0] + found[0], *min(have[1:], found[1:]))
