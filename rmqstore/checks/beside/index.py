"""IX-*: the structure of every index file. CL-CONTRADICTED: messages that their own index entries contradict.

In a sound file, each unit points to the newest earlier unit of its slot. So one pass in order, with the newest unit of
every slot in memory, checks all chains at once. Only data extents are read, so a sparse file of 420 MB takes little
time. `IndexCatalog` then compares the entries with the messages of the log.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rmqstore.checks.index.catalog import Block, IndexCatalog, IndexFile
from rmqstore.checks.log.logs import Logs
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings
from rmqstore.files.files import Files
from rmqstore.files.index import configured_index_sizes, index_sizes, index_unit, sizes_on_disk
from rmqstore.files.mapped_file_queue import MAX_RECORD, DirEntry, MappedFile
from rmqstore.files.store import Store
from rmqstore.formats import index
from rmqstore.formats.message import TRANSACTION_ROLLBACK, Message
from rmqstore.formats.properties import index_keys, parse_properties
from rmqstore.scan.kernels import Bool
from rmqstore.scan.units import file_chunks, last_nonzero_in
from rmqstore.texts import Text

_BLOCK_UNITS = 4096
_CHUNK_UNITS = 16 * _BLOCK_UNITS
_TRIES, _PAUSE = 10, 0.1  # s, beside a live broker
_MAX_STEPS = 10_000  # along chains with a unit that points up
_HEADER, _SLOT, _UNIT = index.HEADER, index.SLOT, index.UNIT


def check_index(store: Store, findings: Findings, *, live: bool = False) -> IndexCatalog:
    """Check every index file, and return the catalog for the pass over the log.

    On a live store, and after a kill, the last file may be one put ahead of its header.
    """
    catalog = IndexCatalog(complete=not live and not store.abort)
    configured = configured_index_sizes(store)
    sizes = index_sizes(store)
    entries = store.index_files
    for _ in range(_TRIES if live else 0):  # header and entries move, and files expire
        if sizes is not None or not any(_has_content(store.files, e) for e in entries):
            break
        time.sleep(_PAUSE)
        store.relist_index()
        sizes, entries = index_sizes(store), store.index_files
    if sizes is None and any(_has_content(store.files, e) for e in entries):
        catalog.unchecked.append(Text("index/: number of slots not known (give broker.conf with maxHashSlotNum)"))
    set_keys = _other_settings(store, entries)
    if set_keys:
        findings.add(Finding(codes.IX_CONFIG_SIZE, "index", facts={"files": len(entries), "set": ", ".join(set_keys)}))
        configured = None
    for entry in entries:
        last = entry is entries[-1]
        name = entry.path.name
        if entry.length == 0:
            if not (last and (live or store.abort)):
                findings.add(Finding(codes.IX_FILE_LENGTH, "index", name, facts={"length": 0}))
            continue
        if sizes is None:
            continue
        slots, units = sizes
        expected = index.file_size(*(configured or sizes))
        if entry.length != expected and not (live and last):
            facts: dict[str, Fact] = {"length": entry.length, "expected": expected}
            findings.add(Finding(codes.IX_FILE_LENGTH, "index", name, 0, entry.length, facts))
        one = _FileCheck(store, entry, slots, units, findings, moving=live and last)
        catalog.add(one.run(), one.blocks)
    return catalog


def _other_settings(store: Store, entries: list[DirEntry]) -> list[str]:
    """Return the settings (KEY=VALUE) that broker.conf should have, if all files have another size than it gives.

    A single shorter file does not count: it may have been truncated.
    """
    configured = store.config.int("maxHashSlotNum"), store.config.int("maxIndexNum")
    lengths = {entry.length for entry in entries if entry.length}
    if len(lengths) != 1 or not store.config.given.keys() & {"maxHashSlotNum", "maxIndexNum"}:
        return []
    (length,), expected = lengths, index.file_size(*configured)
    found = None if length == expected or (len(entries) == 1 and length < expected) else sizes_on_disk(store)
    if found is None or index.file_size(*found) != length:
        return []
    pairs = zip(("maxHashSlotNum", "maxIndexNum"), found, configured, strict=True)
    return [f"{key}={actual}" for key, actual, given in pairs if actual != given]


def _has_content(files: Files, entry: DirEntry) -> bool:
    file = MappedFile(entry.path, 0, entry.length, entry.length, files=files)
    return last_nonzero_in(file, _SLOT.size, _HEADER.size) is not None


class _FileCheck:
    """One pass over one file; `moving`: a live broker writes to it."""

    def __init__(self, store: Store, entry: DirEntry, slots: int, units: int, findings: Findings, moving: bool) -> None:
        self.name = entry.path.name
        self.files = store.files
        self.file = MappedFile(entry.path, 0, entry.length, entry.length, files=store.files)
        self.slots, self.units = slots, units
        self.findings = findings
        self.moving = moving
        self.base = index.unit_at(0, slots)
        self.blocks: list[Block] = []
        self.newest: npt.NDArray[np.int32] = np.zeros(max(1, slots), dtype=np.int32)  # newest unit of each slot
        self.bad = 0  # units
        self.first_bad: list[int] = []  # the first two of them
        self.up: list[tuple[int, int]] = []  # (unit, predecessor) for predecessors that are later units
        self.first: Any = None
        self.last: Any = None
        self.more: Any = None  # the unit after the last one: an unfinished put

    def run(self) -> IndexFile:
        raw = self.file.read_at(_HEADER.size, 0).ljust(_HEADER.size, b"\0")
        head = _HEADER.parse(raw)
        room = min(self.units, index.units_in(self.file.length, self.slots))
        count = int(head["index_count"])
        filled = last_nonzero_in(self.file, _UNIT.size, self.base)
        top = 0 if filled is None else (filled - self.base) // _UNIT.size
        last = index.entries(count)
        if not 0 <= count <= max(room, 1):
            self._header("index_count", count, Text("0 to {room}", room=room))
            last = top
        elif not self.moving and last != top and self._wrong_count(head, last, top):
            self._header("index_count", count, str(top + 1))
            last = top
        self._units(last)
        if self.first is not None and not self.moving:
            self._content(head, last)
        self._slots(last)
        self._loops(last)
        if self.bad:
            first = self.first_bad[0] if self.first_bad else 0
            at = index.unit_at(first, self.slots)
            facts: dict[str, Fact] = {"what": "unit", "unit": first, "count": self.bad}
            self.findings.add(Finding(codes.IX_BAD_ENTRY, "index", self.name, at, _UNIT.size, facts))
        return IndexFile(
            self.name,
            self.file.path,
            self.slots,
            last,
            head["begin_phy_offset"],
            head["end_phy_offset"],
            head["begin_timestamp"],
            head["end_timestamp"],
            full=count >= self.units,
            moving=self.moving,
            files=self.files,
        )

    def _wrong_count(self, head: dict[str, Any], last: int, top: int) -> bool:
        """Return whether the count in the header is wrong, and not the units after it.

        Units after the count are normal after an unfinished put, or if two files got the same name (two full files in
        one millisecond): then the end offset in the header is that of the last counted entry.
        """
        if last > top:
            return True
        if top <= last + 1:
            return False
        if last == 0:
            return bool(head["end_phy_offset"] == self._offset(top)) and head["end_phy_offset"] > 0
        return bool(head["end_phy_offset"] != self._offset(last))

    def _offset(self, unit: int) -> int:
        found = index_unit(self.files, self.file.path, self.slots, unit)
        return int(found["phy_offset"]) if found is not None else -1

    # --- units ------------------------------------------------------------------------------------------------

    def _units(self, last: int) -> None:
        stop = self.base + (last + 2) * _UNIT.size
        for chunk in file_chunks(
            self.file, _UNIT, base=self.base, start=self.base, stop=stop, chunk=_CHUNK_UNITS * _UNIT.size
        ):
            number = (chunk.start - self.base) // _UNIT.size
            units: Any = chunk.units
            if number <= last + 1 < number + len(units):
                self.more = units[last + 1 - number].copy()
            lo, hi = max(0, 1 - number), max(0, min(len(units), last + 1 - number))
            if hi <= lo:
                continue
            units, number = units[lo:hi], number + lo
            if number == 1:
                self.first = units[0].copy()
            if number + len(units) == last + 1:
                self.last = units[-1].copy()
            self._chain(units, number, last)
            offset = units["phy_offset"].astype(np.int64)
            for at in range(0, len(units), _BLOCK_UNITS):
                part = offset[at : at + _BLOCK_UNITS]
                self.blocks.append(Block(number + at, len(part), int(part.min()), int(part.max())))

    def _chain(self, units: Any, number: int, last: int) -> None:
        """Compare the predecessor of each unit with the newest earlier unit of its slot."""
        key_hash = units["key_hash"].astype(np.int64)
        prev = units["prev_index"].astype(np.int64)
        own = np.arange(number, number + len(units), dtype=np.int64)
        bad: Bool = (key_hash < 0) | (units["phy_offset"] < 0) | (units["time_diff"] < 0)
        slot = np.maximum(key_hash, 0) % self.slots
        order = np.argsort(slot, kind="stable")
        sorted_slot, sorted_own = slot[order], own[order]
        same = np.zeros(len(order), dtype=np.bool_)
        same[1:] = sorted_slot[1:] == sorted_slot[:-1]
        wanted = np.empty(len(order), dtype=np.int64)
        wanted[order] = np.where(same, np.concatenate(([0], sorted_own[:-1])), self.newest[sorted_slot])
        ends = np.append(~same[1:], True)
        self.newest[sorted_slot[ends]] = sorted_own[ends]
        bad |= prev != wanted
        hits = np.flatnonzero(bad)
        self.bad += len(hits)
        self.first_bad = [*self.first_bad, *(number + hits[:2]).tolist()][:2]
        for i in np.flatnonzero((prev > own) & (prev <= last)).tolist():
            if len(self.up) < _MAX_STEPS:
                self.up.append((int(own[i]), int(prev[i])))

    # --- slots ------------------------------------------------------------------------------------------------

    def _slots(self, last: int) -> None:
        """Check that every slot holds the newest unit of its chain; after a kill, it may hold an unfinished put."""
        wrong = 0
        first = -1
        checked = 0
        for chunk in file_chunks(self.file, _SLOT, base=_HEADER.size, start=_HEADER.size, stop=self.base):
            at = (chunk.start - _HEADER.size) // _SLOT.size
            value = chunk.units["newest"].astype(np.int64)
            newest = self.newest[at : at + len(value)]
            checked += int(np.count_nonzero(newest))
            # for a broker, a value above the count is an empty slot, which matters only if the slot has units
            bad = np.flatnonzero((value != newest) & (value != last + 1) & ~((value > last) & (newest == 0)))
            if self.moving:
                bad = bad[:0]
            if len(bad):
                wrong += len(bad)
                first = chunk.start + int(bad[0]) * _SLOT.size if first < 0 else first
        if not self.moving and checked < int(np.count_nonzero(self.newest)):  # slots with units are in a hole
            wrong += int(np.count_nonzero(self.newest)) - checked
            first = _HEADER.size if first < 0 else first
        if wrong:
            facts: dict[str, Fact] = {"what": "slot", "count": wrong}
            self.findings.add(Finding(codes.IX_BAD_ENTRY, "index", self.name, first, _SLOT.size, facts))

    def _content(self, head: dict[str, Any], last: int) -> None:
        """Compare the header with the first and the last unit."""
        if self.last is None:
            return
        ends = {int(self.last["phy_offset"])}
        if self.more is not None and any(self.more.tobytes()):
            ends.add(int(self.more["phy_offset"]))
        if int(self.first["phy_offset"]) != head["begin_phy_offset"]:
            self._header("begin_phy_offset", head["begin_phy_offset"], str(int(self.first["phy_offset"])))
        if head["end_phy_offset"] not in ends:
            self._header("end_phy_offset", head["end_phy_offset"], str(int(self.last["phy_offset"])))
        begin, end = head["begin_timestamp"], head["end_timestamp"]
        if begin < 0 or end < 0:
            name = "begin_timestamp" if begin < 0 else "end_timestamp"
            self._header(name, head[name], Text("a time"))
        elif last > 1 and len(ends) == 1:  # unit 1 was written with the begin time of the previous file
            wanted = index.time_diff(end, begin)
            if int(self.last["time_diff"]) != wanted:
                self._header("end_timestamp", end, str(begin + int(self.last["time_diff"]) * 1000))
        used = int(np.count_nonzero(self.newest))
        # up to 4.7.0, every put was counted; a kill may happen between unit and header
        if not used - 1 <= head["hash_slot_count"] <= max(last, used) + 1:
            self._header("hash_slot_count", head["hash_slot_count"], str(used))

    def _header(self, field: str, value: int, wanted: str) -> None:
        facts: dict[str, Fact] = {"field": field, "value": value, "expected": wanted}
        at = _HEADER.at(field)
        size = 4 if field.endswith("count") else 8
        self.findings.add(Finding(codes.IX_HEADER, "index", self.name, at, size, facts))

    # --- chains that go up ------------------------------------------------------------------------------------

    def _loops(self, last: int) -> None:
        """Find loops. Sound chains only lead to earlier units, so it is enough to follow the units that do not."""
        loops = 0
        first = 0
        steps = 0
        up = dict(self.up)
        for start, to in self.up:
            at, seen = to, {start}
            while at not in seen and 0 < at <= last and steps < _MAX_STEPS:
                seen.add(at)
                steps += 1
                if at in up:
                    at = up[at]
                else:
                    unit = index_unit(self.files, self.file.path, self.slots, at)
                    at = int(unit["prev_index"]) if unit is not None else 0
            if at == start:
                loops += 1
                first = first or start
        if loops:
            facts: dict[str, Fact] = {"unit": first, "loops": loops}
            at = index.unit_at(first, self.slots)
            self.findings.add(Finding(codes.IX_CHAIN_LOOP, "index", self.name, at, _UNIT.size, facts))
            self.bad = max(0, self.bad - loops)  # the loop is not reported as a bad unit too
            if self.first_bad[:1] == [first]:
                del self.first_bad[0]


def report_contradicted(logs: Logs, findings: Findings, only: Collection[int] | None = None) -> None:
    """Report these messages, unless another finding already says that their header or text is damaged.

    `only`: report the messages at these offsets; None: all.
    """
    reported = {(f.queue, f.offset) for f in findings.listed if f.problem.alters_keys}
    for result in logs.results:
        for _, one in sorted(result.index.contradicted.items()):
            start = one.offset - result.body_offset
            if only is not None and one.offset not in only:
                continue
            if (result.name, start) in reported or one.offset in logs.misfiled.offsets:
                continue
            facts: dict[str, Fact] = {
                "topic": one.topic,
                "queue_id": one.queue_id,
                "queue_offset": one.queue_offset,
                "store_timestamp": one.store_timestamp,
                "unique_key": one.unique_key,
                "keys": one.keys,
                "entries": one.entries,
            }
            findings.add(result.finding(codes.CL_CONTRADICTED, start, one.size + result.body_offset, facts))


_SAMPLE = 4096  # entries that are read of a file
_MESSAGES = 64  # messages with tags that are compared; a single one may be damaged, or older than the last upgrade


def indexes_tags(store: Store, logs: Logs, files: Iterable[Path], slots: int) -> bool:
    """Return whether the broker indexes whole TAGS values, as 5.4.0 and newer do.

    `files`: the index files, the most reliable first. The newest entries of a file decide. If no entry does, the
    directory rocksdbstore/ decides, which 5.4.0 creates at every start.
    """
    for path in files:
        compared = 0
        for message, hashes in _newest_messages(store.files, path, slots, logs):
            found = parse_properties(message.properties)
            topic = message.topic_text
            texts = set(index_keys(topic, found, tag_key=True)) - set(index_keys(topic, found, tag_key=False))
            if message.transaction_type == TRANSACTION_ROLLBACK or not texts:
                continue
            compared += 1
            if not hashes.isdisjoint(map(index.key_hash, texts)):
                return True
            if compared >= _MESSAGES:
                break
        if compared:
            return False
    return store.files.is_directory(store.root / "rocksdbstore")


def _newest_messages(files: Files, path: Path, slots: int, logs: Logs) -> Iterator[tuple[Message, set[int]]]:
    """Yield the messages of the newest entries, newest first, with the hashes of their entries."""
    head = files.read_at(path, index.HEADER.size, 0).ljust(index.HEADER.size, b"\0")
    count = int(index.HEADER.unpack(head)["index_count"])
    hashes: dict[int, set[int]] = {}
    for first in dict.fromkeys((max(1, count - _SAMPLE), 1)):  # if the header is damaged, read from the front
        for unit in index.UNIT.array(files.read_at(path, _SAMPLE * index.UNIT.size, index.unit_at(first, slots))):
            hashes.setdefault(int(unit["phy_offset"]), set()).add(int(unit["key_hash"]))
        if len(hashes) > 1:
            break
    for offset in sorted(hashes, reverse=True):
        message = logs.record(offset, MAX_RECORD) if offset >= 0 else None
        if message is not None:
            yield message, hashes[offset]
