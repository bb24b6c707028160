"""Consume queues, extension files, timer logs and index files of a bundle, with other hashes of tags, topics and keys.

Slots and chains of an index file are computed for the old hashes and for the new ones. Where the file has the computed
old value, the bundle gets the new one; elsewhere, it gets the file's damaged value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from rmqstore.checks.index.keys import KeyReader, Keys
from rmqstore.files.files import Files, OpenFile
from rmqstore.files.mapped_file_queue import MAX_RECORD, MappedFile, MappedFileQueue
from rmqstore.formats import consumequeue, index, timer
from rmqstore.formats.javatext import java_string_hash
from rmqstore.formats.layout import Layout
from rmqstore.formats.message import MIN_SIZE
from rmqstore.scan.columns import Columns, framed
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.kernels import I64, Bool
from rmqstore.scan.window import SLACK
from rmqstore.views.bundle.logs import Piece, byte_noise
from rmqstore.views.bundle.names import Pseudonyms, property_text

_UNITS = 50_000


def unit_pieces(files: Files, path: Path, layout: Layout, names: Pseudonyms) -> Iterator[Piece]:
    """Yield a converted file of consume queue or batch queue units. Errors: OSError if it cannot be read."""
    at = 0
    with files.open(path) as file:
        while block := file.read(_UNITS * layout.size, at):
            whole = len(block) // layout.size * layout.size
            units = layout.array(block).copy()
            codes, inverse = np.unique(units["tags_code"], return_inverse=True)
            units["tags_code"] = np.array([names.code(int(code)) for code in codes], dtype=np.int64)[inverse]
            yield at, units.tobytes() + byte_noise(block[whole:])
            at += len(block)


def ext_pieces(files: Files, path: Path, names: Pseudonyms) -> Iterator[Piece]:
    """Yield a converted consume queue extension file. Errors: OSError if it cannot be read."""
    layout = consumequeue.EXT_UNIT

    def renamed(out: bytearray) -> None:
        at = 0
        while at + layout.size <= len(out):
            unit = layout.unpack(bytes(out[at : at + layout.size]))
            if unit["size"] < layout.size:
                break
            code = names.code(unit["tags_code"]).to_bytes(8, "big", signed=True)
            out[at + layout.at("tags_code") : at + layout.at("tags_code") + 8] = code
            at += unit["size"]

    yield from _whole(files, path, renamed)


def timer_pieces(files: Files, path: Path, topics: Iterable[str], names: Pseudonyms) -> Iterator[Piece]:
    """Yield a converted timer log file. Errors: OSError if it cannot be read."""
    known = {java_string_hash(topic): topic for topic in topics}
    layout = timer.LOG_UNIT

    def renamed(out: bytearray) -> None:
        for at in range(0, len(out) - layout.size + 1, layout.size):
            unit = layout.unpack(bytes(out[at : at + layout.size]))
            if unit["size"] != layout.size:
                break
            topic = known.get(unit["real_topic_hash"])
            if topic is None:
                code = names.key_hash(unit["real_topic_hash"])
            else:
                code = java_string_hash(names.topic(topic.encode()).decode())
            field = at + layout.at("real_topic_hash")
            out[field : field + 4] = code.to_bytes(4, "big", signed=True)

    yield from _whole(files, path, renamed)


def _whole(files: Files, path: Path, change: Callable[[bytearray], None]) -> Iterator[Piece]:
    with files.open(path) as file:
        data = bytearray(file.read(file.length, 0))
    change(data)
    yield 0, bytes(data)


_BLOCK = 1 << 20


class IndexHashes:
    """Replaces the hashes of index entries, according to the keys of the messages to which they point.

    The messages are read in large blocks, as an index file has an entry for each key of each message.
    """

    def __init__(self, logs: Iterable[MappedFileQueue], names: Pseudonyms) -> None:
        self._names = names
        self._logs = list(logs)
        self._old, self._new = QueueTable(), QueueTable()
        self._readers = KeyReader(self._old), KeyReader(self._new)

    def new(self, hashes: I64, offsets: I64) -> I64:
        """Return the hash of the pseudonym of the key with this hash, for each entry; another hash if no key has it.

        Shape: all arrays and the result (n,)
        """
        out = np.full(len(hashes), -1, dtype=np.int64)
        order = np.argsort(offsets, kind="stable")
        ordered = offsets[order]
        for columns in self._messages(np.unique(offsets)):
            row, old, new = self._pairs(columns)
            low, high = np.searchsorted(ordered, [columns.offset[0], columns.offset[-1] + 1])
            mine = order[low:high]
            of = np.searchsorted(columns.offset, offsets[mine])
            exists = columns.offset[of] == offsets[mine]
            mine, wanted = mine[exists], (of << 32 | hashes[mine])[exists]
            known = row << 32 | old
            by = np.argsort(known, kind="stable")
            at = np.minimum(np.searchsorted(known[by], wanted, side="right") - 1, len(by) - 1)
            found = (at >= 0) & (known[by][at] == wanted) if len(by) else np.zeros(len(wanted), dtype=np.bool_)
            out[mine[found]] = new[by][at[found]]
        unknown = np.flatnonzero(out < 0)
        others = {h: self._names.key_hash(h) for h in np.unique(hashes[unknown]).tolist()}
        out[unknown] = [others[h] for h in hashes[unknown].tolist()]
        return out

    def _pairs(self, columns: Columns) -> tuple[I64, I64, I64]:
        """Return (row, hash, hash of the pseudonym) of the keys of all messages of a block."""
        renamed = bytearray(columns.raw)
        spans = (columns.topic_at, columns.topic_length, columns.properties_at, columns.properties_length)
        for topic, length, at, size in zip(*(span.tolist() for span in spans), strict=True):
            renamed[topic : topic + length] = self._names.topic(bytes(columns.raw[topic : topic + length]))
            renamed[at : at + size] = property_text(bytes(columns.raw[at : at + size]), self._names)
        others = Columns(renamed, columns.base, columns.at)
        (rows, old), (other_rows, new) = (
            _in_order(one, reader.keys(one, table.of(one)))
            for one, reader, table in zip((columns, others), self._readers, (self._old, self._new), strict=True)
        )
        if not np.array_equal(rows, other_rows):  # replacing has changed which texts are keys
            _, first, second = np.intersect1d(_numbered(rows), _numbered(other_rows), True, return_indices=True)
            rows, old, new = rows[first], old[first], new[second]
        return rows, old, new

    def _messages(self, wanted: I64) -> Iterator[Columns]:
        """Yield the messages at these sorted global offsets, if there are any."""
        for log in self._logs:
            for file in log.files:
                low, high = np.searchsorted(wanted, [file.start, min(file.stop, file.start + file.length)])
                yield from _read(file, wanted[low:high])


def _read(file: MappedFile, wanted: I64) -> Iterator[Columns]:
    """Yield the messages of a file at these sorted global offsets, block by block."""
    length, block, i = min(file.length, file.file_size), _BLOCK, 0
    while i < len(wanted):
        start = int(wanted[i]) - file.start
        raw = file.read_at(min(block, length - start), start)
        at = wanted[i : int(np.searchsorted(wanted, file.start + start + len(raw) - 4, side="right"))]
        at = at - (file.start + start)
        columns = Columns(bytearray(raw + bytes(SLACK)), file.start + start, at)
        stops = at + (columns.i32(at) if len(at) else at)
        possible = (stops - at >= MIN_SIZE) & (stops - at <= MAX_RECORD) & (stops <= length - start)
        whole = possible & (stops <= len(raw))
        cut = np.flatnonzero(possible & ~whole)
        if len(cut) and cut[0] == 0 and len(raw) == block:
            block = int(stops[0])  # the message is longer than a block
            continue
        block = _BLOCK
        take = len(at) if not len(cut) else max(1, int(cut[0]))
        i += max(take, 1)
        rows = np.flatnonzero(whole[:take])
        some = columns.take(rows)
        if len(rows) and (good := framed(some, stops[rows])).any():
            yield columns.take(rows[good])


def _in_order(columns: Columns, keys: Keys) -> tuple[I64, I64]:
    """Return row and hash of keys in the order of messages; within a message, as brokers write them."""
    rows = np.searchsorted(columns.offset, keys.offset)
    order = np.argsort(rows, kind="stable")
    return rows[order], keys.hash[order]


def _numbered(rows: I64) -> I64:
    """Return a number for each key that identifies its row and its position in the row."""
    which: I64 = np.arange(len(rows)) - np.searchsorted(rows, rows)
    return rows << 32 | which


def index_pieces(files: Files, path: Path, slots: int, hashes: IndexHashes) -> Iterator[Piece]:
    """Yield a converted index file with this number of slots. Errors: OSError if it cannot be read."""
    with files.open(path) as file:
        head = file.read(index.HEADER.size, 0)
        actual = np.frombuffer(file.read(slots * index.SLOT.size, index.HEADER.size), dtype=">i4").astype(np.int64)
        units_at = index.unit_at(0, slots)
        count = max(0, file.length - units_at) // index.UNIT.size
        used = _used(file, units_at, count)
        stop = units_at + used * index.UNIT.size
        units = index.UNIT.array(file.read(stop - units_at, units_at)).copy()
        rest = file.read(index.UNIT.size, stop) if used == count else b""
    old, offsets, previous = (units[name].astype(np.int64) for name in ("key_hash", "phy_offset", "prev_index"))
    new = old.copy()
    real = np.flatnonzero(old >= 0)
    real = real[real > 0]
    new[real] = hashes.new(old[real], offsets[real])
    stated = int(index.HEADER.unpack(head)["index_count"])
    entries = min({stated, used}, key=lambda n: _wrong(*_chains(old, slots, n), actual, previous))
    expected_slots, expected = _chains(old, slots, entries)
    new_slots, chained = _chains(new, slots, entries)
    units["key_hash"] = new
    # a loop must remain one: its unit points to the newest unit of its new chain
    damaged = np.where(_loops(old, previous, slots), new_slots[np.maximum(new, 0) % max(1, slots)], previous)
    units["prev_index"] = np.where(previous == expected, chained, damaged)
    shown = np.where(actual == expected_slots[: len(actual)], new_slots[: len(actual)], actual)
    yield 0, _head(head, int(np.count_nonzero(expected_slots)), int(np.count_nonzero(new_slots)))
    yield index.HEADER.size, shown.astype(">i4").tobytes()
    yield units_at, units.tobytes()
    yield units_at + len(units) * index.UNIT.size, byte_noise(rest)


def _head(head: bytes, old: int, new: int) -> bytes:
    """Return the header with hash_slot_count for the new hashes; an error in it is preserved."""
    at = index.HEADER.at("hash_slot_count")
    count = int.from_bytes(head[at : at + 4], "big", signed=True) + (new - old if any(head) else 0)
    return head[:at] + (count & 0xFFFFFFFF).to_bytes(4, "big") + head[at + 4 :]


def _used(file: OpenFile, start: int, count: int) -> int:
    """Return the number of units up to the last one that is not zero."""
    used = at = 0
    size = count * index.UNIT.size
    while at < size and (block := file.read(min(_BLOCK, size - at), start + at)):
        data = len(block.rstrip(b"\0"))
        used = -(-(at + data) // index.UNIT.size) if data else used
        at += len(block)
    return used


def _loops(hashes: I64, previous: I64, slots: int) -> Bool:
    """Return the mask of units that point to a newer unit of their own chain, so that queries never end."""
    numbers = np.arange(len(hashes))
    up = (previous >= numbers) & (previous < len(hashes)) & (numbers > 0) & (hashes >= 0)
    target = hashes[np.where(up, previous, 0)]
    found: Bool = up & (target >= 0) & (target % max(1, slots) == hashes % max(1, slots))
    return found


def _wrong(expected_slots: I64, expected: I64, slots: I64, previous: I64) -> int:
    """Return in how many places slots and chains of a file differ from the expected ones."""
    return int(np.count_nonzero(expected_slots[: len(slots)] != slots) + np.count_nonzero(expected != previous))


def _chains(hashes: I64, slots: int, entries: int) -> tuple[I64, I64]:
    """Return the slots, and for each unit the previous one in its chain, as a broker writes them for these entries."""
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
