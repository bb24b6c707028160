"""Sort pieces into lives: the logs of brokers, each from one beginning on.

Pieces of one broker name the same store host, or hosts that follow one another within a log. In the order of time the
offsets of a log only grow. Where they fall back, or two different records have the same offset, a log began again: with
a new store, or after a truncation. The newer one is another life. Copies with the same bytes are one. What contradicts
a log while it goes on is a log beside it: brokers of 5.0 and newer keep one for each queue of a compacted topic.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from rmqstore.carving.pieces import LogPiece
from rmqstore.carving.source import RawSource
from rmqstore.carving.state import CarvingState

_CLOCK_STEP = 600_000
"""Milliseconds by which a broker's clock may have been set back."""
_COMPARED = 1 << 20


@dataclass(slots=True)
class Life:
    """One log. `hosts`: stored forms of the store hosts; `covered`: sorted (start, stop) of its strands.

    `beside`: it was written while another log of its broker went on, as that of a compacted topic is.
    """

    number: int
    group: int
    beside: bool = False
    hosts: set[bytes] = field(default_factory=set)
    covered: list[tuple[int, int]] = field(default_factory=list)
    first_time: int = 0
    last_time: int = 0

    @property
    def stop(self) -> int:
        return self.covered[-1][1]

    def cover(self, start: int, stop: int) -> None:
        """Add what is not covered of [start, stop)."""
        i = max(0, bisect_left(self.covered, (start, 0)) - 1)
        gaps, at = [], start
        for low, high in self.covered[i:]:
            if low >= stop:
                break
            if at < low:
                gaps.append((at, low))
            at = max(at, high)
        for gap in [*gaps, (at, stop)]:
            if gap[0] < gap[1]:
                insort(self.covered, gap)


class _Groups:
    """Store hosts that belong to one broker."""

    def __init__(self) -> None:
        self._above: dict[bytes, bytes] = {}
        self.numbers: dict[bytes, int] = {}

    def of(self, host: bytes) -> bytes:
        self._above.setdefault(host, host)
        while self._above[host] != host:
            host = self._above[host]
        return host

    def link(self, one: bytes, other: bytes) -> None:
        self._above[self.of(one)] = self.of(other)

    def number(self, host: bytes) -> int:
        return self.numbers.setdefault(self.of(host), len(self.numbers))


def sort_into_lives(source: RawSource, state: CarvingState) -> list[Life]:
    """Give each piece with records its life, or NULL for a copy; return the lives in the order of their groups."""
    state.change("UPDATE pieces SET life = NULL")
    groups = _Groups()
    _make_strands(state, groups)
    lives: list[Life] = []
    current: dict[int, Life] = {}
    for strand in _strands(state):
        group = groups.number(strand.host)
        life = current.get(group)
        if life is None or not _belongs(source, state, life, strand):
            beside = life is not None and strand.first_time < life.last_time
            others = [one for one in lives if beside and one.beside and one.group == group]
            life = next((one for one in others if _belongs(source, state, one, strand)), None)
            if life is None:
                life = Life(len(lives), group, beside, first_time=strand.first_time)
                lives.append(life)
            if not beside:
                current[group] = life
        life.hosts.update(strand.hosts)
        life.last_time = max(life.last_time, strand.last_time)
        life.cover(strand.start, strand.stop)
        state.change("UPDATE pieces SET life = ? WHERE strand = ?", (life.number, strand.number))
    return sorted(lives, key=lambda life: (life.group, life.number))


# --- strands ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Strand:
    """Pieces that follow one another without a gap."""

    number: int
    start: int
    stop: int
    first_time: int
    last_time: int
    hosts: tuple[bytes, ...]

    @property
    def host(self) -> bytes:
        return self.hosts[0]


def _make_strands(state: CarvingState, groups: _Groups) -> None:
    """Number the pieces by strands: each follows the piece that ends where it starts, best in the source too."""
    state.change("UPDATE pieces SET strand = NULL")
    ends: dict[tuple[int, int], list[tuple[int, int, bytes, int]]] = {}
    count = 0
    with state.transaction():
        for piece in state.pieces("stop > start"):
            before = ends.get((piece.body_offset, piece.start), []) + ends.get((0, piece.start), [])
            mine = [end for end in before if end[1] == piece.source] or before
            if mine:
                end = min(mine, key=lambda one: (one[2] != piece.host, abs(piece.first_time - one[3])))
                strand = end[0]
                groups.link(end[2], piece.host)
                before_ends = ends.get((piece.body_offset, piece.start))
                if before_ends and end in before_ends:
                    before_ends.remove(end)
            else:
                strand, count = count, count + 1
            groups.of(piece.host)
            after = piece.file_end or piece.stop
            last = (strand, piece.source + piece.size, piece.host, piece.last_time)
            ends.setdefault((piece.body_offset, after), []).append(last)
            state.change("UPDATE pieces SET strand = ? WHERE number = ?", (strand, piece.number))


def _strands(state: CarvingState) -> Iterator[_Strand]:
    """Yield the strands in the order of their times."""
    rows = state.rows(
        "SELECT strand, min(start), max(stop), min(first_time), max(last_time) FROM pieces WHERE stop > start "
        "GROUP BY strand ORDER BY min(first_time), min(start)"
    )
    for number, start, stop, first, last in rows:
        hosts = state.rows("SELECT DISTINCT host FROM pieces WHERE strand = ? ORDER BY start", (number,))
        yield _Strand(number, start, stop, first, last, tuple(row[0] for row in hosts))


# --- which life -------------------------------------------------------------------------------------------------------


def _belongs(source: RawSource, state: CarvingState, life: Life, strand: _Strand) -> bool:
    """Return whether a strand, which is no older than those of a life, belongs to it."""
    if strand.start >= life.stop:
        return True
    i = bisect_left(life.covered, (strand.start, 0))
    overlapping = [one for one in life.covered[max(0, i - 1) :] if one[0] < strand.stop and one[1] > strand.start]
    if overlapping:
        return all(
            _same(source, state, life, strand, max(start, strand.start), min(stop, strand.stop))
            for start, stop in overlapping
        )
    above = life.covered[i][0]
    row = state.rows("SELECT min(first_time) FROM pieces WHERE life = ? AND start = ?", (life.number, above))[0]
    return bool(strand.first_time - (row[0] or 0) <= _CLOCK_STEP)


def _same(source: RawSource, state: CarvingState, life: Life, strand: _Strand, start: int, stop: int) -> bool:
    """Return whether a life and a strand have the same bytes where both have some in [start, stop)."""
    ours = state.pieces("life = ? AND stop > ? AND start < ?", (life.number, start, stop))
    theirs = state.pieces("strand = ? AND stop > ? AND start < ?", (strand.number, start, stop))
    mine, other = next(ours, None), next(theirs, None)
    while mine is not None and other is not None:
        low, high = max(mine.start, other.start, start), min(mine.stop, other.stop, stop)
        if low < high and not _equal(source, mine, other, low, high):
            return False
        if mine.stop <= other.stop:
            mine = next(ours, None)
        else:
            other = next(theirs, None)
    return True


def _equal(source: RawSource, one: LogPiece, other: LogPiece, start: int, stop: int) -> bool:
    return all(
        bytes_of(source, one, at, min(at + _COMPARED, stop)) == bytes_of(source, other, at, min(at + _COMPARED, stop))
        for at in range(start, stop, _COMPARED)
    )


def bytes_of(source: RawSource, piece: LogPiece, start: int, stop: int) -> bytes:
    """Return the bytes [start, stop) of the log from a piece."""
    return source.read(stop - start, piece.at(start))
