"""Replaces a RocksDB by a new one; refuses or notes a database that a repair does not write.

The files of the old database are moved to quarantine, the manifest first; the new ones are created, the manifest last;
then CURRENT, which is only overwritten, names the new manifest. In between, RocksDB finds no manifest and refuses to
open, so that no broker starts with an incomplete database.

Source: VersionSet::GetCurrentManifestPath (RocksDB 8.4)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from rmqstore.append.rocksdb import NewDatabase
from rmqstore.append.scratch import ScratchFolder
from rmqstore.documents.content import CHUNK, Equivalent, Literal, Reencoded
from rmqstore.documents.steps import Extend
from rmqstore.errors import NoSpace, NotReadable, Refused
from rmqstore.files.files import LOCAL
from rmqstore.files.rocksdb.database import CHUNK as DATABASE_CHUNK
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.rocksdb.written_rows import BEFORE_READING
from rmqstore.files.store import QueueKind, Store, StoreKind
from rmqstore.files.store_queues import QueueHome, configured_home
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.texts import Text

_FILES = re.compile(r"(MANIFEST|OPTIONS)-\d+(\.dbtmp)?|IDENTITY|\d+\.(sst|ldb|log|blob|dbtmp)")


@dataclass(frozen=True, slots=True)
class StagedDatabase:
    """A finished database, its files in the order in which they must be created, and the folder that they are in."""

    database: NewDatabase
    files: list[Path]
    folder: ScratchFolder

    def pieces(self, path: Path, size: int) -> Iterator[bytes]:
        """Return the bytes of one file in chunks."""
        return (LOCAL.read_at(path, min(CHUNK, size - at), at) for at in range(0, size, CHUNK))


@contextmanager
def writing() -> Iterator[None]:
    """Raise a CannotRead of the block, which writes a new database, as NoSpace or NotReadable."""
    try:
        yield
    except CannotRead as error:
        if "No space left" in str(error):
            raise NoSpace(
                Text("no space for the new RocksDB: {error}", error=error),
                Text("set TMPDIR to a directory with more space"),
            ) from error
        raise NotReadable(Text("the new RocksDB cannot be written: {error}", error=error)) from error


def swap_in(
    draft: PlanBuilder, directory: Path, made: StagedDatabase, why: str, *, keeps_options: bool = False
) -> None:
    """Add the steps that replace the database in a directory of the store by a finished one.

    `keeps_options`: leave OPTIONS files, which RocksDB does not read when it opens a database, but which name the
    version of the library that did so last.
    """
    fresh = {path.name for path in made.files}
    there = [entry.path.name for entry in draft.store.files.list(directory)]
    old = [name for name in there if _FILES.fullmatch(name) or name in fresh]
    if keeps_options:
        old = [name for name in old if not name.startswith("OPTIONS-") or name in fresh]
    for name in sorted(old, key=lambda name: not name.startswith("MANIFEST")):
        draft.discard(directory / name, Text("the old RocksDB"))
    for path in made.files:
        size = path.stat().st_size
        content = Reencoded(size, partial(made.pieces, path, size), partial(LOCAL.read_at, path))
        draft.create(directory / path.name, size, Equivalent(content, made.database.identity), why)
    _point(draft, directory / "CURRENT", (made.database.directory / "CURRENT").read_bytes())


def replace_database(
    draft: PlanBuilder,
    directory: Path,
    rows: Mapping[str, Iterable[tuple[bytes, bytes]]],
    why: str,
    *,
    keeps_options: bool = False,
) -> None:
    """Add the steps that replace a database by one with these rows, by column family, in the order of their keys.

    `keeps_options`: as in `swap_in`. Errors: NoSpace, NotReadable if the library fails.
    """
    folder = ScratchFolder()
    with writing():
        new = NewDatabase(folder.path / "database", tuple(rows))
        for family, found in rows.items():
            left = iter(found)
            while chunk := list(islice(left, DATABASE_CHUNK)):
                new.put(family, [key for key, _ in chunk], [value for _, value in chunk])
        files = new.finish()
    swap_in(draft, directory, StagedDatabase(new, files, folder), why, keeps_options=keeps_options)


def _point(draft: PlanBuilder, current: Path, text: bytes) -> None:
    """Make CURRENT name the new manifest, without moving the file."""
    why = Text("points to the new MANIFEST")
    lock = current.with_name("LOCK")
    files = draft.store.files
    if files.is_directory(lock):
        draft.discard(lock, Text("a directory instead of a file"))
    entry = files.examined(current)
    if entry is None or not entry.regular or entry.link is not None:
        if entry is not None:
            draft.discard(current, Text("not a regular file"))
        draft.create(current, len(text), Literal(text), why)
        return
    size = entry.length
    now = files.read_at(current, min(size, len(text)), 0)
    if now != text[: len(now)]:
        draft.overwrite(current, 0, text[: len(now)], why)
    if size < len(text):
        draft.add(Extend(draft.path(current), size, len(text), Literal(text[size:]), why))
    elif size > len(text):
        draft.resize(current, size, len(text), why)


_LEFT = Text(
    "the RocksDB beside the queue files is left unchanged: a broker that writes both aligns its ends with the log at "
    "the next start, and consumers are served from the files; {before_reading}",
    before_reading=BEFORE_READING,
)
_WHICH = Text(
    "the store has queue files and a RocksDB of queues. If consumers are served from the RocksDB "
    "(combineCQPreferCQType), it would no longer match the log: give the broker's broker.conf with -c"
)


def refuse_rows(store: Store) -> None:
    """Refuse a repair after which rows of consume queues would be wrong, if rmqstore cannot write them.

    Errors: Refused.
    """
    if store.queue_home is QueueHome.UNKNOWN and any(store.queue_directories(QueueKind.SIMPLE)):
        raise Refused(
            Text("the store has queues in files and in RocksDB, and nothing says which of them the broker reads"),
            Text("give its broker.conf with -c (storeType, rocksdbCQDoubleWriteEnable)"),
        )
    if store.kind is StoreKind.ROCKSDB and store.dledger is not None and store.dledger.data.files:
        raise Refused(
            Text(
                "the store needs a repair, after which consume queues of DLedger entries in RocksDB would no "
                "longer match the log"
            ),
            Text("use a replica of the store, or export the readable messages"),
        )


def tell_left(draft: PlanBuilder, *, touches_log: bool) -> None:
    """Add notes and a decision for a RocksDB beside queues in files that the plan leaves unchanged."""
    draft.notes.append(_LEFT)
    if touches_log and configured_home(draft.store.config) is not QueueHome.FILES:
        draft.decisions.append(_WHICH)
