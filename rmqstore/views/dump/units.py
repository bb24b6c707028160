"""Units of everything beside the log, as batches of columns: consume queues, DLedger index, index files, timer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from rmqstore.files.files import SmallReads
from rmqstore.files.index import index_header, index_sizes
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from rmqstore.files.store import QueueKind, Store
from rmqstore.formats import consumequeue, dledger, index, properties, timer
from rmqstore.formats.layout import Layout
from rmqstore.views.dump.batches import Array, Batch, fields_of, wanted_rows, within
from rmqstore.views.dump.selection import Selection

UNITS = 1 << 15  # units read at a time


def unit_arrays(file: MappedFile, layout: Layout, selection: Selection) -> Iterator[tuple[int, Array]]:
    """Yield (position in the file, units) of a file chunk by chunk; chunks of zeros are omitted."""
    size = layout.size
    whole = min(file.length, file.file_size) // size * size
    with SmallReads(file) as f:
        for at in selection.ordered(range(0, whole, UNITS * size)):
            raw = f.pread(min(UNITS * size, whole - at), at)
            if raw.count(0) != len(raw):
                yield at, layout.array(raw)


def consume_queue_units(store: Store, selection: Selection) -> Iterator[Batch]:
    """Yield the units of the selected queues, without zeros and pre-blanks; those in RocksDB come last.

    `selection.start` and `stop` are queue offsets. Tags are compared by their code, store times only in batch queues
    and RocksDB. Errors: CannotRead from RocksDB.
    """
    if not store.rocksdb_consume_queue:
        yield from _units_in_files(store, selection, batch=False)
    if store.rocksdb_consume_queue or store.light_in_rocksdb:
        from rmqstore.views.dump.rocksdb import consume_queue_rows

        yield from consume_queue_rows(store, selection)


def _units_in_files(store: Store, selection: Selection, *, batch: bool) -> Iterator[Batch]:
    kind = QueueKind.BATCH if batch else QueueKind.SIMPLE
    layout = consumequeue.BATCH_UNIT if batch else consumequeue.UNIT
    codes = np.array([properties.tags_code(t) for t in selection.tags], dtype=np.int64)
    queues = [q for q in store.consume_queues(kind) if selection.wants_queue(q.topic, q.queue_id)]
    queues = [q for q in queues if batch or not store.reads_rows(q.topic)]
    for one in selection.ordered(queues):
        for file in selection.ordered(one.queue.files):
            for at, units in unit_arrays(file, layout, selection):
                wanted = (units["size"] != 0) | (units["commitlog_offset"] != 0)
                if batch:
                    position = units["base_offset"].astype(np.int64)
                    wanted &= within(units["store_timestamp"], selection.since, selection.until)
                else:
                    position = (file.start + at) // layout.size + np.arange(len(units))
                    wanted &= ~consumequeue.is_pre_blank(units["commitlog_offset"], units["size"])
                wanted &= within(position, selection.start, selection.stop)
                if len(codes):
                    wanted &= np.isin(units["tags_code"].astype(np.int64), codes)
                columns: dict[str, Array | str | int] = {"topic": one.topic, "queue_id": one.queue_id}
                if not batch:
                    columns["queue_offset"] = position
                yield from wanted_rows({**columns, **fields_of(units, layout)}, wanted, selection)


def dledger_index_units(store: Store, selection: Selection) -> Iterator[Batch]:
    """Yield the units of the DLedger index, without zeros; `selection.start` and `stop` are entry indexes."""
    layout = dledger.INDEX_UNIT
    if store.dledger is not None:
        queue = store.dledger.index
    elif store.part == "dledger-index":
        queue = _part(store, layout.size)
    else:
        return
    for file in selection.ordered(queue.files):
        for _, units in unit_arrays(file, layout, selection):
            wanted = (units["magic"] != 0) | (units["size"] != 0)
            wanted &= within(units["index"], selection.start, selection.stop)
            yield from wanted_rows({"file": file.name, **fields_of(units, layout)}, wanted, selection)


def _part(store: Store, unit: int) -> MappedFileQueue:
    size, name = dledger.INDEX_FILE_SIZE, store.part or ""
    if store.files.is_directory(store.path):
        return MappedFileQueue.open(name, [store.path], default=size, unit=unit, files=store.files)
    return MappedFileQueue.of_file(name, store.path, default=size, unit=unit, files=store.files)


def index_units(store: Store, selection: Selection) -> Iterator[Batch]:
    """Yield per index file its header, then its units with their store time.

    Keys are compared by the hash of `topic#key`. `selection.start` and `stop` are commitlog offsets.
    Units: `timestamp` in ms (to the second), `phy_offset` in bytes.
    """
    hashes = np.array(
        [index.key_hash(index.key_text(t, k)) for t in selection.topics for k in selection.keys], dtype=np.int64
    )
    slots, _ = index_sizes(store) or (store.config.int("maxHashSlotNum"), 0)
    for entry in selection.ordered(store.index_files):
        header = index_header(store.files, entry.path)
        if header is None:
            continue
        name = entry.path.name
        if not selection.keys and selection.limit is None:
            yield {"file": name, "slots": slots, **header}
        count = min(max(header["index_count"], 0), index.units_in(entry.length, slots))
        for first in selection.ordered(range(1, count, UNITS)):
            stop = min(first + UNITS, count)
            size = index.UNIT.size
            raw = store.files.read_at(entry.path, (stop - first) * size, index.unit_at(first, slots))
            units = index.UNIT.array(raw)
            time = header["begin_timestamp"] + units["time_diff"].astype(np.int64) * 1000
            wanted = within(units["phy_offset"], selection.start, selection.stop)
            since = None if selection.since is None else selection.since - 999  # units have whole seconds
            wanted &= within(time, since, selection.until)
            if selection.keys:
                wanted &= np.isin(units["key_hash"].astype(np.int64), hashes)
            batch: Batch = {
                "file": name,
                "unit": np.arange(first, first + len(units)),
                "slot": units["key_hash"].astype(np.int64) % slots,
                **fields_of(units, index.UNIT),
                "timestamp": time,
            }
            yield from wanted_rows(batch, wanted, selection)


def timer_log_units(store: Store, selection: Selection) -> Iterator[Batch]:
    """Yield the units of the timer log with their offset, without BLANKs and zeros."""
    queue = store.timer_log
    layout = timer.LOG_UNIT
    if queue is None:
        return
    for file in selection.ordered(queue.files):
        for at, units in unit_arrays(file, layout, selection):
            position = file.start + at + np.arange(len(units)) * layout.size
            wanted = units["size"] == layout.size
            wanted &= within(position, selection.start, selection.stop)
            wanted &= within(units["write_time"], selection.since, selection.until)
            batch: Batch = {"file": file.name, "offset": position, **fields_of(units, layout)}
            yield from wanted_rows(batch, wanted, selection)


def timer_wheel_slots(store: Store, selection: Selection) -> Iterator[Batch]:
    """Yield the slots of the timer wheel that have been used."""
    path = store.path if store.part == "timerwheel" else store.root / "timerwheel"
    entry = store.files.examined(path)
    length = entry.length if entry is not None else 0
    layout = timer.WHEEL_SLOT
    file = MappedFile(path, 0, length, length, files=store.files)
    for at, slots in unit_arrays(file, layout, selection):
        number = at // layout.size + np.arange(len(slots))
        used = (slots["time"] != 0) | (slots["num"] != 0)
        yield from wanted_rows({"slot": number, **fields_of(slots, layout)}, used, selection)


Reader = Callable[[Store, Selection], Iterator[Batch]]
READERS: Mapping[str, Reader] = {
    "consumequeue": consume_queue_units,
    "batchconsumequeue": partial(_units_in_files, batch=True),
    "dledger-index": dledger_index_units,
    "index": index_units,
    "timerlog": timer_log_units,
    "timerwheel": timer_wheel_slots,
}
