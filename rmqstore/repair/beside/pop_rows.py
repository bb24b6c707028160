"""Removes rows of kvStore/ that name messages which their queue does not have after the repair.

If they stayed, the broker would return a later message with the same queue offset to the group once more.
"""

from __future__ import annotations

from itertools import islice

from rmqstore.append.rocksdb import NewDatabase
from rmqstore.checks.problems import codes
from rmqstore.checks.verify import Verified
from rmqstore.files.rocksdb.database import CHUNK, CannotRead, is_readable, open_database
from rmqstore.files.rocksdb.rows import pop_rows
from rmqstore.formats.pop import KV_DIRECTORY, KV_FAMILY, PopRow
from rmqstore.formats.text import many
from rmqstore.repair.beside.config import Ends, queue_ends
from rmqstore.repair.journal.disk import ScratchFolder
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.rebuild.rocksdb_swap import StagedDatabase, swap_in, unwritten
from rmqstore.texts import Text

_WHY = Text("without the rows of messages that the log no longer has")


def plan_pop_rows(draft: PlanBuilder, verified: Verified, options: RecoverOptions) -> None:
    """Plan a new database for kvStore/ if it has rows after the ends that the queues will have.

    Errors: NoSpace, NotReadable.
    """
    counts = verified.report.findings.counts
    wanted = codes.RDB_POP_BEYOND in counts and options.wants(codes.RDB_POP_BEYOND)
    if verified.report.live or not draft.store.has_pop_rows or not (wanted or draft.ends):
        return
    if not is_readable():
        draft.notes.append(
            Text(
                "{kv_directory}/ is not read: messages received through POP may be delivered again",
                kv_directory=KV_DIRECTORY,
            )
        )
        return
    ends = queue_ends(draft, verified)
    try:
        dropped = sum(_is_beyond(row, ends) for _, _, row in pop_rows(draft.store))
        if dropped:
            _write(draft, ends)
    except CannotRead as e:
        raise unwritten(e) from e
    if dropped:
        draft.notes.append(
            Text(
                "{kv_directory}/: {rows} of lost messages will be removed",
                kv_directory=KV_DIRECTORY,
                rows=many(dropped, "row"),
            )
        )


def _is_beyond(row: PopRow | None, ends: Ends) -> bool:
    end = None if row is None else ends(row.topic, row.queue_id)
    return row is not None and end is not None and row.queue_offset >= end


def _write(draft: PlanBuilder, ends: Ends) -> None:
    directory = draft.store.root / KV_DIRECTORY
    old = open_database(draft.store.files, directory)
    folder = ScratchFolder()
    new = NewDatabase(folder.path / "database", old.families)
    for family in old.families:
        if family != KV_FAMILY:
            for keys, values in old.chunks(family):
                new.put(family, keys, values)
            continue
        rows = ((key, value) for key, value, row in pop_rows(draft.store) if not _is_beyond(row, ends))
        while chunk := list(islice(rows, CHUNK)):
            new.put(family, [key for key, _ in chunk], [value for _, value in chunk])
    swap_in(draft, directory, StagedDatabase(new, new.finish(), folder), _WHY)
