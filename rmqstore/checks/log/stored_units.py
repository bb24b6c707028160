"""The units of consume queues, by queue and index, that the pass over the log compares messages with.

`BesideSplit` has what a split of the log was compared with: the ranges read beside it, and digests of their content. If
a later run reads the same ranges and gets the same digests, the split is compared with the same bytes.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rmqstore.errors import NotReadable
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.files import Files
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.store import Store, open_store
from rmqstore.formats import consumequeue
from rmqstore.formats.consumequeue import UNIT_SIZE, QueueName
from rmqstore.formats.layout import Layout
from rmqstore.scan.units import UnitArray
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.checks.index.catalog import IndexCatalog, IndexEntries
    from rmqstore.files.rocksdb.queues import RocksDBQueues


_KEPT_QUEUES = 4096
_KEPT_PAGES = 1024
Settings = tuple[tuple[str, str], ...]
Run = tuple[bytes, Path, Settings]
T = TypeVar("T")
_stores: OrderedDict[Run, Store] = OrderedDict()
_units: OrderedDict[Run, UnitFiles] = OrderedDict()
_AHEAD = 204  # units in a page, read at a time from a store that does not change


def opened(path: Path, given: Settings, run_id: bytes, files: Files) -> Store:
    """Open a store, once in a process for each run; `given` are the settings of broker.conf."""
    return _kept(_stores, (run_id, path, given), lambda: open_store(path, BrokerConfig(dict(given)), files), 4)


def units_of(store: Store, run_id: bytes, *, fresh: bool) -> UnitFiles:
    """Return the units of a store that `opened` opened. `fresh`: list the queues again, because the store grows.

    All splits of a run share them, so that each queue directory is listed only once.
    """
    if fresh or store.rocksdb_consume_queue:
        return UnitFiles(store)
    key = (run_id, store.path, tuple(sorted(store.config.given.items())))
    return _kept(_units, key, lambda: UnitFiles(store, ahead=True), 1)


def forget_units() -> None:
    """Forget what `units_of` has made in this process: the later steps of a verification do not need it."""
    _units.clear()


def _kept(known: OrderedDict[Run, T], key: Run, make: Callable[[], T], most: int) -> T:
    """Return what a process has made for a run, and make it first if necessary; only the last `most` are kept."""
    if key not in known:
        known[key] = make()
        if len(known) > most:
            known.popitem(last=False)
    known.move_to_end(key)
    return known[key]


class UnitFiles:
    """Units of consume queues by index. The listings of the first `_KEPT_QUEUES` queues are kept.

    Each window of the log uses all queues in turn, so a cache that replaces the oldest would never have the next one.
    `ahead`: read a page of a queue at a time, and keep the pages of the first `_KEPT_PAGES` queues, because each of
    many small log files has few messages of a queue.
    """

    def __init__(self, store: Store, *, ahead: bool = False) -> None:
        self.store = store
        self._ahead: dict[QueueName, tuple[int, bytes]] | None = {} if ahead else None
        self._kept: dict[QueueName, MappedFileQueue] = {}

    @cached_property
    def _rows(self) -> RocksDBQueues | None:
        """The consume queues in RocksDB; None for a store that has all of them in files, or cannot read others.

        Errors: NotReadable, because an earlier step could read the database, perhaps on another machine.
        """
        store = self.store
        if not store.rocksdb_consume_queue and not store.light_in_rocksdb:
            return None
        from rmqstore.files.rocksdb.database import CannotRead
        from rmqstore.files.rocksdb.queues import RocksDBQueues

        try:
            return RocksDBQueues(store)
        except CannotRead as e:
            if not store.rocksdb_consume_queue:
                return None  # light queues are not compared then
            raise NotReadable(
                f"{store.rocksdb_directory.name}/: {e}",
                Text("run the command again: a process may have changed it, or a worker lacks the extra rocksdb"),
            ) from None

    def queue(self, topic: str, queue_id: int) -> MappedFileQueue:
        """Return the files of a queue; empty if the topic cannot be the name of a directory."""
        found = self._kept.get((topic, queue_id))
        if found is None:
            if self.store.reads_rows(topic) and self._rows is not None:
                found = self._rows.queue(topic, queue_id)
            elif not consumequeue.is_directory_name(topic.encode("utf-8", "surrogatepass")):
                found = MappedFileQueue(topic, [], UNIT_SIZE, [])
            else:
                found = self.store.consume_queue(topic, queue_id).queue
            if len(self._kept) < _KEPT_QUEUES:
                self._kept[topic, queue_id] = found
        return found

    def read(self, topic: str, queue_id: int, first: int, count: int) -> UnitArray:
        """Return units [first, first + count); fewer at the end of the queue, zeros where files are missing before."""
        if self._ahead is None or count > _AHEAD:
            return consumequeue.UNIT.array(self._read(topic, queue_id, first, count))
        start, raw = self._ahead.get((topic, queue_id), (0, b""))
        at = (first - start) * UNIT_SIZE
        if at < 0 or at + count * UNIT_SIZE > len(raw):
            at, raw = 0, self._read(topic, queue_id, first, _AHEAD)
            if len(self._ahead) < _KEPT_PAGES or (topic, queue_id) in self._ahead:
                self._ahead[topic, queue_id] = first, raw
        return consumequeue.UNIT.array(raw[at : at + count * UNIT_SIZE])

    def _read(self, topic: str, queue_id: int, first: int, count: int) -> bytes:
        queue = self.queue(topic, queue_id)
        before = min(count * UNIT_SIZE, max(0, queue.start - first * UNIT_SIZE)) if queue.files else 0
        raw = bytes(before) + queue.pread(count * UNIT_SIZE - before, first * UNIT_SIZE + before)
        stop = min((first + count) * UNIT_SIZE, queue.stop)
        for start, end in queue.holes():
            at = first * UNIT_SIZE + len(raw)
            if start <= at < min(end, stop):
                raw += bytes(min(end, stop) - at)
                raw += queue.pread(stop - min(end, stop), min(end, stop))
        return raw

    def file_of(self, topic: str, queue_id: int, at: int) -> str:
        """Return the name of the file that holds byte `at` of a queue; "" without one."""
        return self.queue(topic, queue_id).name_at(at)


@dataclass(slots=True)
class BesideSplit:
    """The ranges in the order in which they were read, and a digest of each kind's contents ("": none was made).

    `units`: (topic, queue id, first unit, count) of consume queues; `index`: global offsets [low, high) of the log
    whose index entries were read; `entries`: (bytes, offset) of the DLedger index.
    """

    units: list[tuple[str, int, int, int]] = field(default_factory=list)
    index: list[tuple[int, int]] = field(default_factory=list)
    entries: list[tuple[int, int]] = field(default_factory=list)
    digests: tuple[str, str, str] = ("", "", "")


class WatchedReads:
    """Reads beside the log, and notes the ranges. A source is None if the store does not have it.

    `digests`: make a digest of what is read.
    """

    def __init__(
        self,
        units: UnitFiles | None,
        catalog: IndexCatalog | None,
        entry_units: MappedFileQueue | None,
        *,
        digests: bool = True,
    ) -> None:
        self._units, self._catalog, self._entry_units = units, catalog, entry_units
        self._seen = BesideSplit()
        self._hashes = tuple(hashlib.blake2b(digest_size=16) for _ in range(3)) if digests else ()

    def read(self, topic: str, queue_id: int, first: int, count: int) -> UnitArray:
        """Like `UnitFiles.read`."""
        if self._units is None:
            raise ValueError(Text("no consume queues to read"))
        found = self._units.read(topic, queue_id, first, count)
        self._seen.units.append((topic, queue_id, first, count))
        if self._hashes:
            self._hashes[0].update(len(found).to_bytes(8, "big") + found.tobytes())
        return found

    def file_of(self, topic: str, queue_id: int, at: int) -> str:
        """Like `UnitFiles.file_of`."""
        return self._units.file_of(topic, queue_id, at) if self._units is not None else ""

    def index(self, low: int, high: int, entries: IndexEntries, whole: bool) -> None:
        """Note that the index entries of [low, high) were read; the last two are from `IndexCatalog.entries`."""
        self._seen.index.append((low, high))
        if self._hashes and self._catalog is not None:
            self._hashes[1].update(self._catalog.digest(entries, whole))

    def pread(self, size: int, offset: int) -> bytes:
        """Like `MappedFileQueue.pread` of the DLedger index."""
        if self._entry_units is None:
            raise ValueError(Text("no DLedger index to read"))
        found = self._entry_units.pread(size, offset)
        self._seen.entries.append((size, offset))
        if self._hashes:
            self._hashes[2].update(len(found).to_bytes(8, "big") + found)
        return found

    def unit(self, layout: Layout, number: int) -> dict[str, Any] | None:
        """Like `MappedFileQueue.unit` of the DLedger index."""
        raw = self.pread(layout.size, number * layout.size) if number >= 0 else b""
        return layout.unpack(raw) if len(raw) == layout.size else None

    def result(self) -> BesideSplit:
        """Return the ranges read so far, with their digests."""
        if self._hashes:
            a, b, c = (one.hexdigest() for one in self._hashes)
            self._seen.digests = (a, b, c)
        return self._seen

    def digests(self, known: BesideSplit) -> tuple[str, str, str] | None:
        """Return the digests of the ranges of an earlier run as they are now; None if a source is missing."""
        again = WatchedReads(self._units, self._catalog, self._entry_units)
        if (known.units and self._units is None) or (known.entries and self._entry_units is None):
            return None
        for one in known.units:
            again.read(*one)
        for low, high in known.index:
            if self._catalog is None:
                return None
            again.index(low, high, *self._catalog.entries(low, high))
        for size, offset in known.entries:
            again.pread(size, offset)
        return again.result().digests
