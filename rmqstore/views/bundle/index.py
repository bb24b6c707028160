"""Index files: the hash of every entry follows the pseudonyms, and with it the slots and chains.

What a broker would have written is computed for the old hashes and for the new ones. Where the file is what a broker
writes, the bundle has the new form; where it is not, it has the damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.records import message_at
from rmqstore.formats import index
from rmqstore.formats.message import Message
from rmqstore.formats.properties import index_keys, parse_properties
from rmqstore.scan.kernels import I64, U8, Bool
from rmqstore.views.bundle.logs import Piece
from rmqstore.views.bundle.names import Names
from rmqstore.views.bundle.noise import byte_noise
from rmqstore.views.bundle.texts import property_text

_BLOCK = 1 << 20


class IndexHashes:
    """What becomes of the hash of an entry, by the message that it points to."""

    def __init__(self, logs: Iterable[MappedFileQueue], names: Names) -> None:
        self._names = names
        self._logs = list(logs)
        self._offset = -1
        self._hashes: dict[int, int] = {}

    def new(self, key_hash: int, offset: int) -> int:
        """The hash of the pseudonym of a key, tag or id that has this hash; of none, another hash."""
        if offset != self._offset:
            self._offset = offset
            found = (message_at(log, offset) for log in self._logs)
            self._hashes = next((self._of(message) for message in found if message is not None), {})
        return self._hashes[key_hash] if key_hash in self._hashes else self._names.key_hash(key_hash)

    def _of(self, message: Message) -> dict[int, int]:
        topic = self._names.topic(message.topic).decode("utf-8", "replace")
        new = parse_properties(property_text(message.properties, self._names))
        old_texts = index_keys(message.topic_text, parse_properties(message.properties), tag_key=True)
        new_texts = index_keys(topic, new, tag_key=True)
        return {index.key_hash(a): index.key_hash(b) for a, b in zip(old_texts, new_texts, strict=False)}


def index_pieces(path: Path, slots: int, hashes: IndexHashes) -> Iterator[Piece]:
    """An index file with that many slots. Errors: OSError when it cannot be read."""
    with path.open("rb") as file:
        head = file.read(index.HEADER.size)
        actual = np.frombuffer(file.read(slots * index.SLOT.size), dtype=">i4").astype(np.int64)
        units_at = index.unit_at(0, slots)
        length = path.stat().st_size
        count = max(0, length - units_at) // index.UNIT.size
        used = _used(path, units_at, count)
        file.seek(units_at)
        units = np.frombuffer(file.read(used * index.UNIT.size), dtype=np.uint8).reshape(-1, index.UNIT.size).copy()
        rest = file.read(index.UNIT.size) if used == count else b""
    old = _field(units, "key_hash")
    offsets = _field(units, "phy_offset", 8)
    new = np.array(
        [
            hashes.new(h, p) if i and h >= 0 else h
            for i, (h, p) in enumerate(zip(old.tolist(), offsets.tolist(), strict=True))
        ],
        dtype=np.int64,
    )
    previous = _field(units, "prev_index")
    told = int(index.HEADER.unpack(head)["index_count"])
    entries = min({told, used}, key=lambda n: _wrong(*_chains(old, slots, n), actual, previous))
    expected_slots, expected = _chains(old, slots, entries)
    new_slots, chained = _chains(new, slots, entries)
    _set(units, "key_hash", new)
    damaged = np.where(_loops(old, previous, slots), new_slots[np.maximum(new, 0) % max(1, slots)], previous)
    _set(units, "prev_index", np.where(previous == expected, chained, damaged))
    shown = np.where(actual == expected_slots[: len(actual)], new_slots[: len(actual)], actual)
    yield 0, _head(head, int(np.count_nonzero(expected_slots)), int(np.count_nonzero(new_slots)))
    yield index.HEADER.size, shown.astype(">i4").tobytes()
    yield units_at, units.tobytes()
    yield units_at + len(units) * index.UNIT.size, byte_noise(rest)


def _head(head: bytes, old: int, new: int) -> bytes:
    """The header with as many slots in use as the new hashes take; wrong by as much as it was."""
    at = index.HEADER.at("hash_slot_count")
    count = int.from_bytes(head[at : at + 4], "big", signed=True) + (new - old if any(head) else 0)
    return head[:at] + (count & 0xFFFFFFFF).to_bytes(4, "big") + head[at + 4 :]


def _used(path: Path, start: int, count: int) -> int:
    """Units up to the last one that is not zero."""
    used = 0
    with path.open("rb") as file:
        file.seek(start)
        at = 0
        while at < count * index.UNIT.size and (block := file.read(min(_BLOCK, count * index.UNIT.size - at))):
            data = len(block.rstrip(b"\0"))
            used = -(-(at + data) // index.UNIT.size) if data else used
            at += len(block)
    return used


def _loops(hashes: I64, previous: I64, slots: int) -> Bool:
    """Which units lead up their own chain, for which a query never ends.

    A unit that is the newest of its chain by the new hash leads to itself afterwards: no loop, but wrong as before.
    """
    numbers = np.arange(len(hashes))
    up = (previous >= numbers) & (previous < len(hashes)) & (numbers > 0) & (hashes >= 0)
    target = hashes[np.where(up, previous, 0)]
    found: Bool = up & (target >= 0) & (target % max(1, slots) == hashes % max(1, slots))
    return found


def _wrong(expected_slots: I64, expected: I64, slots: I64, previous: I64) -> int:
    """In how many places a file is not what it would be with a number of entries: a header may be wrong about it."""
    return int(np.count_nonzero(expected_slots[: len(slots)] != slots) + np.count_nonzero(expected != previous))


def _chains(hashes: I64, slots: int, entries: int) -> tuple[I64, I64]:
    """Slots, and the unit before each in its chain, of entries that are put one after the other."""
    numbers = np.flatnonzero(hashes[: max(0, entries)] >= 0)
    numbers = numbers[numbers > 0]
    of = hashes[numbers] % max(1, slots)
    order = np.argsort(of, kind="stable")
    ordered, by_slot = numbers[order], of[order]
    first = np.ones(len(ordered), dtype=np.bool_)
    first[1:] = by_slot[1:] != by_slot[:-1]
    before = np.zeros(len(hashes), dtype=np.int64)
    before[ordered] = np.where(first, 0, np.roll(ordered, 1))
    heads = np.zeros(slots, dtype=np.int64)
    heads[of] = numbers
    return heads, before


def _field(units: U8, name: str, size: int = 4) -> I64:
    at = index.UNIT.at(name)
    return np.ascontiguousarray(units[:, at : at + size]).view(f">i{size}")[:, 0].astype(np.int64)


def _set(units: U8, name: str, values: I64) -> None:
    at = index.UNIT.at(name)
    units[:, at : at + 4] = values.astype(">i4").view(np.uint8).reshape(-1, 4)
