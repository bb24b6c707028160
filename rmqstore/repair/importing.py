"""Append messages to an existing store: in a copy of links, from which a plan is made, which the journal applies.

Until the plan is applied, the store is unchanged. An interrupted append goes on in its copy, an interrupted apply in
its journal: every message is appended once. `undo` of the journal restores every byte.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from rmqstore.append.exchange import TableChunk
from rmqstore.append.importing import (
    Addition,
    Imported,
    ImportOptions,
    StoreEnds,
    check_messages,
    import_rest,
    space_for,
)
from rmqstore.append.message_store import MessageStore
from rmqstore.append.store_options import StoreOptions, options_of_store
from rmqstore.append.topics import add_topics
from rmqstore.documents.content import Json
from rmqstore.documents.journal import State
from rmqstore.documents.paths import PlanPaths
from rmqstore.documents.plan import Plan
from rmqstore.documents.steps import Overwrite, Step
from rmqstore.errors import BrokenPlan, Refused
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.journals import IMPORT_FACT
from rmqstore.files.mapped_file_queue import file_name_to_offset
from rmqstore.files.store import Store
from rmqstore.files.users import Snapshot
from rmqstore.formats.consumequeue import UNIT
from rmqstore.repair.journal.disk import Disk
from rmqstore.repair.journal.folder import JournalFolder
from rmqstore.repair.journal.journal import Applied, apply_made, find_made, resume
from rmqstore.repair.journal.linked_copy import LinkedCopy, fingerprint_of, plan_to_start
from rmqstore.repair.journal.lock import refuse_in_use
from rmqstore.repair.journal.staging import refuse_too_full
from rmqstore.texts import Text

_SLACK = 4 << 20
"""Space for the journal, links and directories, bytes."""


class IntoStore(NamedTuple):
    """The result of an import into a store: what was imported, the journal, and whether an earlier run had ended it."""

    imported: Imported
    applied: Applied
    known: bool = False


@dataclass(frozen=True, slots=True)
class ImportSource:
    """The messages of an import: `chunks` reads them from the start, `mark` identifies them and the settings now."""

    chunks: Callable[[], Iterator[TableChunk]]
    mark: Callable[[], str]


@dataclass(slots=True)
class _Appending:
    """One run of an import into a store."""

    store: Store
    source: ImportSource
    mark: str
    options: ImportOptions
    given: StoreOptions
    config: BrokerConfig
    progress: Callable[[int], None] | None
    begin: Plan
    imported: Imported | None = None

    def make(self, folder: JournalFolder, paths: PlanPaths, files: Snapshot) -> Plan:
        """Append the messages in a copy of the store, and return what has to be changed. Errors: as `import_into`."""
        copy = LinkedCopy(folder, self.begin, paths)
        mark = _read_mark(folder)
        now = fingerprint_of(files)
        if mark is None or mark.store != now:
            mark = None
            copy.make()
        else:
            copy.drop_unfinished()
        where = replace(self.given, directories=copy.directories(self.given.directories))
        limit = mark.end if mark is not None else None
        store = MessageStore.open(copy.root, where, config=self.config, limit=limit)
        try:
            if mark is None:
                growth = check_messages(store, self.source.chunks(), self.options)
                self._check_space(store, growth, copy)
                add_topics(copy.root, growth.units, store.options.dispatch.batch_topics)
                ends = StoreEnds.of(store)
                mark = _Mark(self.mark, now, ends, ends.log)
                mark.save(folder)
        except BaseException:
            store.crash()
            raise
        first = mark

        def saved(end: int) -> None:
            replace(first, end=end).save(folder)

        chunks = self.source.chunks()
        done = import_rest(store, chunks, self.options, mark.before, saved=saved, progress=self.progress)
        if self.source.mark() != self.mark:
            raise Refused(Text("a file changed while it was imported"), Text("run the command again"))
        self.imported = done
        steps = tuple(copy.steps(Text("imported messages")))
        _refuse_rewriting(steps, store, mark.before)
        facts: dict[str, Json] = {
            "command": "import",
            IMPORT_FACT: {"mark": self.mark, "messages": done.messages, "queues": dict(done.queues)},
            "mtime_ns": time.time_ns(),
        }
        return replace(self.begin, steps=steps, facts=facts)

    def _check_space(self, store: MessageStore, growth: Addition, copy: LinkedCopy) -> None:
        """Errors: NoSpace."""
        of_log, of_store = space_for(store, growth)
        log = store.log.queue.files[-1].path.parent if store.log.queue.files else copy.root
        if log.stat().st_dev == copy.root.stat().st_dev:
            refuse_too_full([(self.store.root, of_log + of_store + _SLACK)])
        else:
            refuse_too_full([(log, of_log), (self.store.root, of_store + _SLACK)])


def _refuse_rewriting(steps: Sequence[Step], store: MessageStore, before: StoreEnds) -> None:
    """Refuse a plan that changes messages which the store had before. Errors: BrokenPlan."""
    logs = {file.path.parent.name for file in store.log.queue.files}
    for step in steps:
        parts = PurePosixPath(step.path).parts
        start = file_name_to_offset(parts[-1])
        if not isinstance(step, Overwrite) or start is None:
            continue
        end = before.log if parts[-2] in logs else -1
        if len(parts) == 4 and parts[0] == "consumequeue" and parts[2].isdigit():
            end = before.queues.get((parts[1], int(parts[2])), 0) * UNIT.size
        if start + step.at < end:
            raise BrokenPlan(Text("plan: {path} is changed before its end", path=step.path))


@dataclass(frozen=True, slots=True)
class _Mark:
    """What identifies an unfinished import: that of its messages, the fingerprint of the store, and its ends.

    `end`: the offset up to which the log of the copy is on disk (bytes).
    """

    messages: str
    store: str
    before: StoreEnds
    end: int

    def save(self, folder: JournalFolder) -> None:
        folder.mark_making(json.dumps(self.to_json()).encode())

    def to_json(self) -> dict[str, Json]:
        queues: list[Json] = [[topic, queue_id, end] for (topic, queue_id), end in sorted(self.before.queues.items())]
        log: dict[str, Json] = {"log": self.before.log, "end": self.end}
        return {"import": self.messages, "store": self.store, **log, "queues": queues}


def _read_mark(folder: JournalFolder) -> _Mark | None:
    try:
        row = json.loads(folder.making_mark.read_bytes())
        queues = {(str(topic), int(queue_id)): int(end) for topic, queue_id, end in row["queues"]}
        return _Mark(str(row["import"]), str(row["store"]), StoreEnds(int(row["log"]), queues), int(row["end"]))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def import_into(
    store: Store,
    source: ImportSource,
    options: ImportOptions,
    *,
    check: Callable[[], None],
    roots: Collection[Path] = (),
    progress: Callable[[int], None] | None = None,
) -> IntoStore:
    """Append messages to a store, through a journal; continue an interrupted import of the same messages.

    `check` is called before a new import, and refuses a store with problems. `roots`: directories outside of the store
    that may be changed, besides those of its log.
    Errors: BadRow and MessageRefused with file and line, Refused, NoSpace, StoreIsLive: nothing is changed, and nothing
    is left. HalfApplied: the same call continues, or `undo` restores the store. If the newest journal of the store is
    that of a complete import of the same messages, nothing is done.
    """
    mark = source.mark()
    given = StoreOptions(flush=options.store.flush, dledger=options.store.dledger, limits=options.store.limits)
    outside = [*roots, *store.config.directories]
    found = find_made(store.root, Disk(), outside)
    if found is not None and found.state is State.PREPARING:
        other = _mark_of(found)
        if other != mark:
            raise Refused(
                Text("{journal} is an unfinished import of other files, or with other settings", journal=found.path),
                Text(
                    "finish it with its own command line, or run `rmqstore undo {path}`",
                    path=shlex.quote(str(found.path)),
                ),
            )
    elif found is not None:
        done = _fact(found)
        if done.get("mark") == mark and found.state in (State.APPLYING, State.DONE):
            ended = resume(found.path, roots=outside)
            return IntoStore(_imported(done), ended, known=found.state is State.DONE)
        found = None
    refuse_in_use(store.root, store.places)
    if found is None:
        check()
    complete = options_of_store(store.root, given, store.config)
    begin = plan_to_start(store.root, complete.directories)
    work = _Appending(store, source, mark, options, complete, store.config, progress, begin)
    applied = apply_made(begin, work.make, going_on=found, roots=outside)
    if work.imported is None:  # an interrupted run had made the plan
        folder = find_made(store.root, Disk(), outside)
        return IntoStore(_imported(_fact(folder) if folder is not None else {}), applied)
    return IntoStore(work.imported, applied)


def _mark_of(folder: JournalFolder) -> object:
    mark = _read_mark(folder)
    return mark.messages if mark is not None else _fact(folder).get("mark")


def _fact(folder: JournalFolder) -> Mapping[str, Json]:
    """Return what the plan of a journal says about its import. Errors: CouldNotCheck."""
    if folder.state is State.MISSING or (folder.state is State.PREPARING and not folder.record.staged):
        return {}
    found = folder.load_plan().facts.get(IMPORT_FACT)
    return found if isinstance(found, Mapping) else {}


def _imported(fact: Mapping[str, Json]) -> Imported:
    """Return the result of an import that an earlier run has made."""
    messages, queues = fact.get("messages"), fact.get("queues")
    count = messages if isinstance(messages, int) else 0
    ends = {name: end for name, end in queues.items() if isinstance(end, int)} if isinstance(queues, Mapping) else {}
    return Imported(count, count, ends)
