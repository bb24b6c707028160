"""Import exported messages into a new or an open store.

A new store is built in `.NAME.importing` beside its final path and renamed when it is complete. An interrupted import
that is started again with the same files and settings resumes after the last imported message: every row of an export
becomes exactly one record.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rmqstore.append.bulk import EncodedTable
from rmqstore.append.disk import explained, sync_directory, write_all
from rmqstore.append.encoder import RowRefused
from rmqstore.append.exchange import TableChunk
from rmqstore.append.flush import FlushPolicy
from rmqstore.append.mapped_files import WritableMappedFile
from rmqstore.append.message_store import MessageStore, StoreOptions
from rmqstore.append.rights import GivenRights, StoreRights, give_rights
from rmqstore.append.topics import add_topics
from rmqstore.errors import BadRow, MessageRefused, NotReadable, OutputExists, Refused, about
from rmqstore.files.mapped_file_queue import MappedFile as FileToRead
from rmqstore.files.private import PrivateFile, make_private_directories
from rmqstore.files.trees import remove_tree
from rmqstore.files.users import snapshot
from rmqstore.formats.consumequeue import BATCH_UNIT, QueueName
from rmqstore.formats.consumequeue import UNIT as CONSUME_UNIT
from rmqstore.formats.index import SLOT, UNIT
from rmqstore.formats.message import INNER_BATCH
from rmqstore.messages.table import MessageTable
from rmqstore.scan.kernels import keep_freed_memory
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import one_ahead
from rmqstore.texts import Placed, Text

SAVE_EVERY = 2.0  # seconds after which an append into a copy is made durable
_PRIVATE = GivenRights()
_BLOCK = 4096  # of a file system, bytes
_QUEUE_OFFSET_PROPERTIES = (b"INNER_MULTI_QUEUE_OFFSET", b"INNER_BASE")


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """The options of an import.

    With `renumber` the store assigns queue offsets; without, those in the rows must continue their queues.
    `topic_map` renames topics. Without `keep_timestamps` messages get the current time as their store time.
    """

    store: StoreOptions = field(default_factory=StoreOptions)
    renumber: bool = False
    keep_timestamps: bool = True
    topic_map: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import: the number of messages, how many of them an earlier run imported, and the queues.

    `queues` maps `TOPIC/ID` to the next queue offset; `note` says which user can start a broker on a new store.
    """

    messages: int
    resumed: int
    queues: Mapping[str, int]
    note: str | None = None


def fingerprint(sources: Iterable[Path], options: ImportOptions) -> str:
    """Return a short hash that identifies an import by its settings and by name, size and mtime of its files."""
    parts: list[Any] = []
    for path in sources:
        try:
            status = path.stat()
        except OSError as error:
            raise NotReadable(about(path, error)) from error
        parts.append([str(path.absolute()), status.st_size, status.st_mtime_ns])
        if path.is_dir():
            parts.append(sorted((name, size, mtime) for name, (_, _, size, mtime) in snapshot([path]).items()))
    without_flush = replace(options.store, flush=FlushPolicy.ASYNC)  # the flush policy may change between two runs
    parts.append(repr(without_flush))
    parts.append([options.renumber, options.keep_timestamps, sorted(options.topic_map.items())])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def building_of(output: Path) -> Path:
    """Return the path where a store is built before it is renamed to `output`.

    The file with `.json` added to that path has the fingerprint of the import.
    """
    return output.absolute().with_name(f".{output.name}.importing")


def import_messages(
    chunks: Iterator[TableChunk],
    output: Path,
    options: ImportOptions,
    mark: str,
    *,
    rights: GivenRights = _PRIVATE,
    source: StoreRights | None = None,
    progress: Callable[[int], None] | None = None,
) -> Imported:
    """Build a new store from messages, or resume building it; `mark` is the import's `fingerprint`.

    `source`: rights of the store from which the messages come, if there is one; `rights`: others for the new store.
    Errors: OutputExists; BadRow and MessageRefused with file and line (the unfinished store is removed, because with
    corrected rows or options it is another import); Refused if another import is unfinished; NoSpace, StoreIsLive.
    """
    if output.exists() or output.is_symlink():
        raise OutputExists(Text("{output} already exists", output=output))
    first = list(itertools.islice(chunks, 1))  # fail before anything is created if the input is unreadable
    chunks = itertools.chain(first, chunks)
    building = building_of(output)
    state = building.with_name(f"{building.name}.json")
    if building.is_dir() and any(building.iterdir()):
        _refuse_other(building, state, mark)
        store = MessageStore.open(building, options.store)
        done = _count(store)
    else:
        make_private_directories(building)
        with explained(state), PrivateFile(state) as file:
            write_all(file.descriptor, json.dumps({"import": mark}).encode(), 0)
            file.finish()
        store = MessageStore.create(building, options.store)
        done = 0
    try:
        total = append_chunks(store, chunks, options, done=done, progress=progress)
    except (BadRow, MessageRefused):
        _stop(store)
        with suppress(OSError):
            remove_tree(building)
        state.unlink(missing_ok=True)
        raise
    except BaseException:
        _stop(store)
        raise
    store.close()
    queues = _started(store)
    add_topics(building, queues, options.store.dispatch.batch_topics)
    note = give_rights(building, output, source, rights)
    try:
        building.rename(output)
    except OSError as error:
        raise OutputExists(
            Text("{output} was created in the meantime", output=output),
            Text("the store is in {building}", building=building),
        ) from error
    state.unlink(missing_ok=True)
    sync_directory(output.absolute().parent)
    return Imported(total, done, _ends(store, queues), note)


@dataclass(frozen=True, slots=True)
class StoreEnds:
    """Where a store ends: its log (bytes), and its queues (next queue offsets)."""

    log: int
    queues: Mapping[QueueName, int]

    @staticmethod
    def of(store: MessageStore) -> StoreEnds:
        queues = store.dispatcher.queues.items()
        return StoreEnds(store.log.queue.max_offset, {name: q.next_offset for name, q in queues if q.started})


@dataclass(slots=True)
class Addition:
    """What messages add to a store: bytes of the log, the largest record, units of queues, entries of the index."""

    log: int = 0
    record: int = 0
    entries: int = 0
    units: Counter[QueueName] = field(default_factory=Counter)


def check_messages(store: MessageStore, chunks: Iterable[TableChunk], options: ImportOptions) -> Addition:
    """Check that messages can be appended to an open store, and return what they add; writes nothing.

    Errors: BadRow and MessageRefused with file and line.
    """
    options = _with_dispatch(store, options)
    ends: dict[QueueName, int] = {}
    growth = Addition()
    for table, where in chunks:
        if len(table):
            try:
                _refuse_placed(table)
                encoded = store.encode(prepared(table, options))
                before = dict(ends)
                store.check_table(encoded, ends, renumber=options.renumber)
            except RowRefused as error:
                raise _at(where(error.row), error) from error
            sizes = encoded.columns.size + store.log.body_offset
            growth.log += int(sizes.sum())
            growth.record = max(growth.record, int(sizes.max()))
            growth.entries += store.index_entries(encoded)
            for queue, end in ends.items():
                growth.units[queue] += end - before.get(queue, _first_unit(store, queue, end, len(encoded)))
    return growth


def _first_unit(store: MessageStore, queue: QueueName, end: int, count: int) -> int:
    """Return from where on a queue gets units, at the latest: the first file of a new one begins with pre-blanks."""
    state = store.dispatcher.queue(*queue)
    if state.started:
        return state.next_offset
    return max(0, end - count - store.options.dispatch.consume_queue_file_size // CONSUME_UNIT.size)


def space_for(store: MessageStore, growth: Addition) -> tuple[int, int]:
    """Return the bytes that an append to a copy of links needs, and then a journal of its changes.

    The first number is that for the disk of the log, the second for that of the store. They are upper bounds: a file
    to which something is appended is copied, and its new bytes are in the journal too.
    """
    log, index_of = store.log.queue, store.index
    files = growth.log // log.file_size + 1
    head = log.files[-1:]
    left = head[0].left if head else 0
    of_log = growth.log + files * growth.record + sum(map(_allocated, head)) + min(growth.log, left)
    of_store = 0
    for queue, count in growth.units.items():
        state = store.dispatcher.queues.get(queue)
        known = (state.simple or state.batch) if state is not None else None
        heads = known.queue.files[-1:] if known is not None else []
        of_store += 2 * (count * BATCH_UNIT.size + _BLOCK) + sum(map(_allocated, heads))
    if store.options.dispatch.index:
        slots = index_of.slots * SLOT.size
        new = growth.entries // index_of.units + 2
        names = index_of.files()[-1:]
        copied = sum((index_of.directory / name).stat().st_blocks * 512 for name in names)
        of_store += 3 * growth.entries * UNIT.size + (new + 2) * slots + copied
    return of_log, of_store


def _allocated(file: WritableMappedFile) -> int:
    return file.path.stat().st_blocks * 512


def import_rest(
    store: MessageStore,
    chunks: Iterable[TableChunk],
    options: ImportOptions,
    before: StoreEnds,
    *,
    saved: Callable[[int], None],
    progress: Callable[[int], None] | None = None,
) -> Imported:
    """Append messages to an open store, except those that an interrupted run has appended.

    `before`: the ends of the store before the first run. `saved` is called with the end of the log (bytes) when all up
    to there is on disk: after a kill, the last record after it may lack a part of its properties. `check_messages` must
    have accepted the messages, and their topics must be in topics.json: a recovery takes those of others for deleted
    ones. Closes the store, also after an error: what was appended stays.
    Errors: as `MessageStore.put`.
    """
    done = _count(store, before.log)
    last = time.monotonic()

    def appended(total: int) -> None:
        nonlocal last
        if progress is not None:
            progress(total)
        if time.monotonic() - last >= SAVE_EVERY:
            store.flush()
            saved(store.log.queue.max_offset)
            last = time.monotonic()

    try:
        total = append_chunks(store, chunks, _with_dispatch(store, options), done=done, progress=appended)
    except BaseException:
        store.crash()  # the next run recovers it: a signal may have come between a record and its unit
        raise
    store.close()
    now = {name: store.dispatcher.queues[name].next_offset for name in _started(store)}
    grown = {name for name, end in now.items() if before.queues.get(name) != end}
    add_topics(store.root, grown, store.options.dispatch.batch_topics)
    return Imported(total, done, {f"{topic}/{queue_id}": now[topic, queue_id] for topic, queue_id in sorted(grown)})


def _with_dispatch(store: MessageStore, options: ImportOptions) -> ImportOptions:
    return replace(options, store=replace(options.store, dispatch=store.options.dispatch))


def _at(where: str, error: RowRefused) -> MessageRefused:
    return MessageRefused(Placed("{where}: {error}", where=where, error=error.message), error.advice)


def _refuse_placed(table: MessageTable) -> None:
    """Refuse messages that bring queue offsets of another store in their properties.

    Errors: RowRefused.
    """
    source = table.properties.source.tobytes()
    if any(name in source for name in _QUEUE_OFFSET_PROPERTIES):
        for row, text in enumerate(table.properties.raw()):
            for name in _QUEUE_OFFSET_PROPERTIES:
                if name in text:
                    reason = Text("the property {name} contains queue offsets of another store", name=name.decode())
                    advice = Text("remove the property from the file, or import into a new store (--output)")
                    raise RowRefused(row, MessageRefused(reason, advice))


def _stop(store: MessageStore) -> None:
    """Close a store after an error, so that the import can be resumed."""
    try:
        store.close()
    except Exception:  # noqa: BLE001  # the caller raises the first error
        store.crash()


def _refuse_other(building: Path, state: Path, mark: str) -> None:
    """Refuse to resume an unfinished store of another import.

    Errors: Refused.
    """
    try:
        found = json.loads(state.read_bytes())
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("import") != mark:
        raise Refused(
            Text("{building} is an unfinished import of other files, or with other settings", building=building),
            Text("finish it with its own command line, or remove it"),
        )


def _count(store: MessageStore, since: int = 0) -> int:
    """Count the records from an offset on in a log that was just recovered."""
    count = 0
    end = store.log.queue.max_offset
    for file in store.log.queue.files:
        if file.stop <= since:
            continue
        readable = FileToRead(file.path, file.start, file.file_size, file.file_size)
        for run in scan_file(readable, body_offset=store.log.body_offset, options=ScanOptions(crc=False)):
            if run.kind is Kind.RECORDS and run.columns is not None and run.start < end:
                count += int(np.count_nonzero(run.columns.offset >= since))
    return count


def append_chunks(
    store: MessageStore,
    chunks: Iterable[TableChunk],
    options: ImportOptions,
    *,
    done: int = 0,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Append all messages except the first `done`, and return the number of all messages.

    Errors: MessageRefused with file and line; else as `MessageStore.put`.
    """
    keep_freed_memory()
    total = 0
    with closing(one_ahead(_encoded(store, one_ahead(iter(chunks)), options, done))) as ready:
        for encoded, where, total in ready:
            if encoded is not None:
                try:
                    store.put_table(encoded, renumber=options.renumber)
                except RowRefused as error:
                    raise _at(where(error.row), error) from error
            if progress is not None:
                progress(total)
    return total


def _encoded(
    store: MessageStore, chunks: Iterable[TableChunk], options: ImportOptions, done: int
) -> Iterator[tuple[EncodedTable | None, Callable[[int], str], int]]:
    """Yield the encoded rest of every chunk after the first `done` messages, with the number of messages up to it."""
    total = 0
    for table, where in chunks:
        skipped = min(max(done - total, 0), len(table))
        total += len(table)
        encoded = None
        try:
            if skipped < len(table):
                encoded = store.encode(prepared(table.take(slice(skipped, None)), options))
        except RowRefused as error:
            raise _at(where(skipped + error.row), error) from error

        def place(row: int, where: Callable[[int], str] = where, skipped: int = skipped) -> str:
            return where(skipped + row)

        yield encoded, place, total


def prepared(table: MessageTable, options: ImportOptions) -> MessageTable:
    """Apply the options to a table: rename topics, clear timestamps.

    Errors: RowRefused for an inner batch in a topic that is not a batch topic.
    """
    names = options.topic_map
    if names:
        topics = [topic.decode("utf-8", "surrogateescape") for topic in table.topics]
        renamed = np.array([topic in names for topic in topics], dtype=np.bool_)[table.topic]
        table = replace(
            table,
            topics=[names.get(topic, topic).encode("utf-8", "surrogateescape") for topic in topics],
            numbers={**table.numbers, "version": np.where(renamed, 0, table.numbers["version"])},
        )
    batches = (table.numbers["sys_flag"] & INNER_BATCH) != 0
    for row in np.flatnonzero(batches).tolist():
        topic = table.topics[int(table.topic[row])].decode("utf-8", "surrogateescape")
        if topic not in options.store.dispatch.batch_topics:
            reason = Text("the record is a batch of messages, but {topic} is not a BatchCQ topic", topic=topic)
            advice = Text("add --batch-topic {topic} if its queue.type is BatchCQ", topic=topic)
            raise RowRefused(row, MessageRefused(reason, advice))
    if not options.keep_timestamps:
        table = replace(table, numbers={**table.numbers, "store_timestamp": np.zeros(len(table), dtype=np.int64)})
    return table


def _ends(store: MessageStore, queues: Iterable[QueueName]) -> dict[str, int]:
    return {
        f"{topic}/{queue_id}": store.dispatcher.queues[topic, queue_id].next_offset
        for topic, queue_id in sorted(queues)
    }


def _started(store: MessageStore) -> set[QueueName]:
    return {name for name, state in store.dispatcher.queues.items() if state.started}
