"""Changes the offsets of consumer groups in a RocksDB of the configuration, which is replaced as a whole.

Source: RocksDBConsumerOffsetManager#decodeOffset, #putWriteBatch, ConsumerOffsetManagerV2#commitOffset (RocketMQ 5.5.1)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

from rmqstore.append.rocksdb import NewDatabase
from rmqstore.files.config import OFFSETS, Committed, committed_offsets
from rmqstore.files.rocksdb.database import CHUNK, CannotRead, Database, is_readable, open_database
from rmqstore.files.rocksdb.rows import build_offsets, family_of, offset_key, parse_row, stored_table
from rmqstore.formats.configuration import JsonValue
from rmqstore.repair.journal.disk import ScratchFolder
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.rebuild.rocksdb_swap import StagedDatabase, swap_in, unwritten
from rmqstore.texts import Text

_REDUCED = Text("offsets reduced to the end of their queues")
Rows = Iterator[tuple[bytes, bytes]]


def reduce_offsets(draft: PlanBuilder, directory: Path, end_of: Callable[[str, int], int | None]) -> None:
    """Plan a new database in which no offset is after `end_of` its queue.

    A database that cannot be read stays unchanged: no broker starts with it. Errors: NoSpace, NotReadable.
    """
    if not is_readable():
        return
    try:
        table = stored_table(draft.store, directory.name, OFFSETS)
    except CannotRead as e:
        draft.notes.append(Text("offsets in {path}/ stay unchanged: {e}", path=draft.path(directory), e=e))
        return
    reduced = []
    for one in committed_offsets(table.as_json) or ():
        end = end_of(one.topic, one.queue_id)
        if end is not None and one.offset > end:
            reduced.append(one._replace(offset=end))
    if reduced:
        change_offsets(draft, directory, reduced, _REDUCED)


def change_offsets(draft: PlanBuilder, directory: Path, offsets: Iterable[Committed], why: str) -> None:
    """Plan a new database with the rows of the old one and these offsets. Errors: NoSpace, NotReadable."""
    folder = ScratchFolder()
    try:
        old = open_database(draft.store.files, directory)
        own = family_of(directory.name, OFFSETS)
        families = list(dict.fromkeys((*old.families, own)))
        new = NewDatabase(folder.path / "database", families)
        for family in families:
            rows = _rows(old, family) if family in old.families else iter(())
            if family == own:
                rows = _changed(rows, directory.name, offsets)
            while chunk := list(islice(rows, CHUNK)):
                new.put(family, [key for key, _ in chunk], [value for _, value in chunk])
        files = new.finish()
    except CannotRead as e:
        raise unwritten(e) from e
    swap_in(draft, directory, StagedDatabase(new, files, folder), why)


def _rows(old: Database, family: str) -> Rows:
    for keys, values in old.chunks(family):
        yield from zip(keys, values, strict=True)


def _changed(rows: Rows, directory: str, offsets: Iterable[Committed]) -> Rows:
    """Yield the rows in key order with the new offsets; other queues in the same row keep theirs."""
    new: dict[bytes, dict[str, JsonValue]] = defaultdict(dict)
    for one in offsets:
        new[offset_key(directory, one.group, one.topic, one.queue_id)][str(one.queue_id)] = one.offset
    left = sorted(new, reverse=True)
    for key, value in rows:
        while left and left[-1] < key:
            added = left.pop()
            yield added, build_offsets(directory, new[added])
        if left and left[-1] == key:
            left.pop()
            found = parse_row(directory, OFFSETS, key, value)
            known = found[1] if found is not None and isinstance(found[1], dict) else {}
            yield key, build_offsets(directory, known | new[key])
        else:
            yield key, value
    for added in reversed(left):
        yield added, build_offsets(directory, new[added])
