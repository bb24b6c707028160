"""Converts a DLedger store to a plain one in a new directory; the source is only read.

First it is checked whether the store can be converted, and up to which entry. DLedger writes committedIndex every 3
seconds, so the value on disk is a lower bound. In a group of one node, every complete entry is committed; in a larger
group, the other nodes' stores decide.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from rmqstore.append.dispatch import DispatchOptions
from rmqstore.append.readdress import (
    WHEEL_TOPIC,
    IdMap,
    Readdressing,
    ReaddressOptions,
    copy_file,
    copy_tree,
    fix_timercheck,
    relay_timer_log,
)
from rmqstore.append.rights import GivenRights, give_rights, rights_of
from rmqstore.brokers.dledger_nodes import written_by_newer
from rmqstore.checks.beside.dledger import committed_index
from rmqstore.checks.beside.index import indexes_tags
from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.checks.problems.report import problem_counts
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.checks.verified import Verified
from rmqstore.documents.content import Json
from rmqstore.errors import NotAStore, PlanStale
from rmqstore.files.disk import existing
from rmqstore.files.files import LOCAL
from rmqstore.files.index import index_sizes
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.files.private import Removed
from rmqstore.files.store import QueueKind, Store
from rmqstore.files.trees import building
from rmqstore.formats.properties import LMQ_PREFIX, is_lmq, is_system_topic
from rmqstore.formats.rocksdbstore import INDEX_FAMILY, TIMER_FAMILY, TRANS_FAMILY
from rmqstore.repair.journal.folder import free_bytes
from rmqstore.repair.migrate_to_dledger import MigrationRefusal, in_use, no_files, recover_first, unsound, words_for
from rmqstore.scan.columns import Columns
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import one_ahead
from rmqstore.texts import Text, joined, many

SCHEMA = "rmqstore.migrate-to-commitlog/1"
COPIED_TREES = ("config", "compaction", "kvStore")
COPIED_FILES = ("timerwheel",)
_LEFT_BEHIND = frozenset(
    {"commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "timerlog", "checkpoint"}
    | {"abort", "abort.bak", "lock", "rocksdbstore", ".rmqstore"}
)
_SLACK = 64 << 20


@dataclass(frozen=True, slots=True)
class GroupNode:
    """Another node of the group: path, index up to which its entries equal this store's (-1: none), last index."""

    path: str
    equal_index: int
    last_index: int


@dataclass(frozen=True, slots=True)
class MigrationChoice:
    """What decides about entries above committedIndex.

    `nodes`: size of the group, None if unknown; `include`: migrate all of them; `only_committed`: migrate none.
    """

    nodes: int | None = None
    replicas: tuple[GroupNode, ...] = ()
    include: bool = False
    only_committed: bool = False


@dataclass(frozen=True, slots=True)
class CommitLogMigration:
    """The result of the checks: refusals, and the entries to migrate, up to `last_index`.

    `start` is the global offset of the first converted record, `file_size` is in bytes; see `GroupNode` for indexes.
    """

    store: str
    refusals: tuple[MigrationRefusal, ...] = ()
    first_index: int = -1
    last_index: int = -1
    last_on_disk: int = -1
    committed_index: int = -1
    decided_by: str = ""
    legacy_messages: int = 0
    start: int = 0
    file_size: int = 0
    notes: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        return not self.refusals

    @property
    def entries(self) -> int:
        """The number of entries to migrate."""
        return self.last_index - self.first_index + 1 if self.first_index >= 0 else 0

    @property
    def left_out(self) -> int:
        """The number of entries on disk that are not migrated."""
        return self.last_on_disk - self.last_index

    def to_json(self) -> dict[str, Json]:
        """Return the JSON object of `migrate-to-commitlog`, without the result of the conversion."""
        return {
            "schema": SCHEMA,
            "store": self.store,
            "ready": self.ready,
            "refusals": [r.to_json() for r in self.refusals],
            "committed_index": self.committed_index,
            "last_index": self.last_index,
            "last_index_on_disk": self.last_on_disk,
            "decided_by": self.decided_by,
            "entries": self.entries,
            "entries_left_out": self.left_out,
            "legacy_messages": self.legacy_messages,
            "first_offset": self.start,
            "notes": list(self.notes),
        }


def plan_migration_to_commitlog(
    store: Store, verified: Verified, choice: MigrationChoice, output: Path
) -> CommitLogMigration:
    """Plan the conversion of a verified store; obstacles become refusals.

    Errors: NotAStore for a path without DLedger data.
    """
    base = CommitLogMigration(str(store.path))
    refusals = [*in_use(store, verified)]
    if not refusals and (wrong := no_files(store) or _wrong_kind(store)) is not None:
        refusals.append(wrong)
    if refusals:
        return replace(base, refusals=tuple(refusals))
    refusals += _message_rows(verified)
    if written_by_newer(store, verified.dledger.tiling if verified.dledger is not None else None):
        refusals.append(
            MigrationRefusal(
                Text("DLedger 0.4 wrote it, which no RocketMQ release uses"), Text("this is not supported")
            )
        )
    refusals += _unsound(store, verified)
    log, legacy = verified.dledger, verified.legacy
    assert store.dledger is not None
    if legacy is not None and legacy.queue.stop != store.dledger.data.start:
        refusals.append(
            MigrationRefusal(
                Text(
                    "the legacy commitlog ends at {stop}, DLedger begins at {start}: files are missing, or a "
                    "migration was interrupted half-way",
                    stop=legacy.queue.stop,
                    start=store.dledger.data.start,
                ),
                Text("restore the files; see `rmqstore verify {words_for}`", words_for=words_for(store)),
            )
        )
    if log is None:
        raise NotAStore(Text("{path} has no DLedger data", path=store.path))
    first, last = log.entries.first_index, log.entries.last_index
    found = committed_index(store.dledger)
    committed = -1 if found is None else min(found, last)
    chosen, by, problem = _choose(committed, last, choice, words_for(store))
    if problem is not None:
        refusals.append(problem)
    refusals += _space(log, legacy, output)
    return replace(
        base,
        refusals=tuple(refusals),
        first_index=first if chosen >= first else -1,
        last_index=chosen,
        last_on_disk=last,
        committed_index=committed,
        decided_by=by,
        legacy_messages=legacy.messages if legacy is not None else 0,
        start=_start(store, legacy, log),
        file_size=log.queue.file_size,
        notes=tuple(_notes(store, verified)),
    )


def _message_rows(verified: Verified) -> Iterator[MigrationRefusal]:
    """Refuse a store whose services go on from rows in rocksdbstore/, because every record gets another address.

    Without its positions, a broker reads the timer queue from its beginning. Rows that cannot be read are unchecked.
    Source: TimerMessageRocksDBStore#start (RocketMQ 5.4.0 and 5.5.1)
    """
    rows = verified.rows
    if rows is None or not rows.readable:
        return
    if rows.counts[TIMER_FAMILY] or rows.positions[TIMER_FAMILY]:
        count = many(rows.pending_timers, "pending timed message")
        reason = Text(
            "rocksdbstore/ keeps how far the broker has read the timer queue, and the addresses of {count}", count=count
        )
        advice = Text(
            "let the broker deliver its timed messages, and send the other messages to a new broker: `rmqstore send`"
        )
        yield MigrationRefusal(reason, advice)
    if rows.counts[TRANS_FAMILY]:
        count = many(rows.counts[TRANS_FAMILY], "half message")
        advice = Text("let the broker finish the open transactions first")
        yield MigrationRefusal(Text("rocksdbstore/ keeps the addresses of {count}", count=count), advice)


def _wrong_kind(store: Store) -> MigrationRefusal | None:
    if store.dledger is None or not store.dledger.data.files:
        if store.commitlog is not None and store.commitlog.files:
            return MigrationRefusal(Text("this is already a plain store"), Text("nothing to migrate"))
        return MigrationRefusal(
            Text("the store has no DLedger data"),
            Text("give the storePathRootDir of a DLedger broker and -c broker.conf"),
        )
    wanted = store.config.given.get("dLegerSelfId", "").strip()
    if wanted and wanted != store.dledger.self_id and not store.config.paths("storePathDLedgerCommitLog"):
        return MigrationRefusal(
            Text(
                "broker.conf says dLegerSelfId={wanted}, but there is only {directory}",
                wanted=wanted,
                directory=store.dledger.directory.name,
            ),
            Text("this is the directory of another node: correct broker.conf, or give that node's store"),
        )
    if store.other_dledger and not wanted:
        names = ", ".join([store.dledger.directory.name, *store.other_dledger])
        return MigrationRefusal(
            Text("several DLedger directories: {names}", names=names), Text("choose one with --self-id")
        )
    return None


def _unsound(store: Store, verified: Verified) -> Iterator[MigrationRefusal]:
    """Refuse a damaged store: a conversion without its damaged messages would look complete."""
    counts = problem_counts(verified.report)
    bad = [code for code in counts if not PROBLEMS[code].migration_rebuilds]
    others = tuple(store.other_dledger)
    unchecked = [line for line in verified.report.unchecked if not (others and line.startswith(others))]
    return unsound(counts, bad, recover_first(store), unchecked)


def _choose(committed: int, last: int, choice: MigrationChoice, store: str) -> tuple[int, str, MigrationRefusal | None]:
    """Return the index of the last entry to migrate, the reason, and a refusal if there is no reason."""
    ahead = _ahead(choice, last)
    if ahead is not None and not (choice.include or choice.only_committed):
        return committed, "", ahead
    if choice.only_committed:
        if committed < 0 <= last:
            advice = Text(
                "run `rmqstore recover {store} --apply`, or use --include-uncommitted", store=shlex.quote(store)
            )
            return committed, "", MigrationRefusal(Text("no committedIndex on disk: nothing would be migrated"), advice)
        return committed, "--only-committed", None
    if choice.include:
        return last, "--include-uncommitted", None
    if choice.nodes == 1:
        return last, Text("a group of one commits what it appends"), None
    if choice.replicas and choice.nodes is not None:
        need = choice.nodes // 2 + 1
        held = sorted([last, *(r.equal_index for r in choice.replicas)], reverse=True)
        agreed = held[need - 1] if len(held) >= need else -1
        if max(agreed, committed) >= last or len(choice.replicas) >= choice.nodes - 1:
            return max(agreed, committed), Text("{need} of {nodes} nodes", need=need, nodes=choice.nodes), None
    if committed >= last:
        return last, Text("all entries are committed"), None
    return committed, "", _undecided(committed, last, choice)


def _ahead(choice: MigrationChoice, last: int) -> MigrationRefusal | None:
    """Refuse if other nodes have entries that this one lacks, and that may be committed."""
    longer = [r for r in choice.replicas if r.last_index > last]
    nodes = choice.nodes or len(choice.replicas) + 1
    unknown = max(0, nodes - 1 - len(choice.replicas))
    if longer and len(longer) + unknown >= nodes // 2 + 1:
        best = max(longer, key=lambda r: r.last_index)
        return MigrationRefusal(
            Text(
                "{path} ends at index {last_index}, this store at {last}: it lacks messages of the group",
                path=best.path,
                last_index=best.last_index,
                last=last,
            ),
            Text("migrate {path} instead", path=best.path),
        )
    return None


def _undecided(committed: int, last: int, choice: MigrationChoice) -> MigrationRefusal:
    reason = Text(
        "entries {first} to {last} are above the committedIndex on disk ({committed})",
        first=committed + 1,
        last=last,
        committed=committed,
    )
    if choice.nodes is None:
        return MigrationRefusal(
            Text("{reason}, and the size of the group is not known", reason=reason),
            Text(
                "give -c broker.conf or --peers (in a group of one all of them count), or use "
                "--include-uncommitted or --only-committed"
            ),
        )
    return MigrationRefusal(
        Text("{reason}; {nodes} nodes decide by majority", reason=reason, nodes=choice.nodes),
        Text("give the other nodes' stores with --replica, or use --include-uncommitted or --only-committed"),
    )


def _space(log: LogResult, legacy: LogResult | None, output: Path) -> Iterator[MigrationRefusal]:
    need = log.bytes + (legacy.bytes if legacy is not None else 0) + _SLACK
    place = existing(output.absolute().parent)
    free = free_bytes(place)
    if free < need:
        why = Text("{place}: {need:,} bytes are needed, {free:,} are free", place=place, need=need, free=free)
        yield MigrationRefusal(why, Text("free some space, or choose another --output"))


def _start(store: Store, legacy: LogResult | None, log: LogResult) -> int:
    """Return the global offset of the first converted record: after the legacy part, else where DLedger began.

    If queues begin after 0, a log that begins at 0 would let 5.x find a wrong minimum among the pre-blanks of their
    first files, so the log begins one file later then.
    """
    if legacy is not None or log.queue.start:
        return log.queue.start
    late = any(part.first > 0 for (topic, _), part in log.queues.items() if not is_lmq(topic))
    return log.queue.file_size if late else 0


def _notes(store: Store, verified: Verified) -> list[str]:
    out: list[str] = []
    if verified.rows is not None and verified.rows.counts.get(INDEX_FAMILY):
        out.append(
            Text(
                "index entries in rocksdbstore/ are not copied: with indexRocksDBEnable, queries find new messages only"
            )
        )
    logs = [*store.commitlog_directories, *(store.dledger.data.directories if store.dledger is not None else [])]
    known = _LEFT_BEHIND | set(COPIED_TREES) | set(COPIED_FILES) | {path.name for path in logs}
    strange = [n for n in sorted(store.top) if n not in known and not n.startswith(("dledger-", "timerwheel."))]
    if strange:
        out.append(
            Text("not copied: {strange} …", strange=joined(strange[:5]))
            if len(strange) > 5
            else Text("not copied: {strange}", strange=joined(strange[:5]))
        )
    if store.files.is_directory(store.root / "consumequeue_ext"):
        out.append(Text("consumequeue_ext/ is not copied: brokers then evaluate filters by the messages"))
    return out


Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How to build: with owner and modes of the source, or `rights`; `removed` is told what an interrupted run left."""

    rights: GivenRights = field(default_factory=GivenRights)
    removed: Removed | None = None
    progress: Progress | None = None


@dataclass(slots=True)
class Built:
    """What was built: converted messages, log end (`wrote`), commitlog files, copied files, dangling references."""

    messages: int = 0
    wrote: int = 0
    files: int = 0
    copied: int = 0
    unmapped: int = 0
    notes: list[str] = field(default_factory=list)


def migrate_to_commitlog(
    store: Store,
    verified: Verified,
    migration: CommitLogMigration,
    output: Path,
    id_map: Path | None = None,
    options: BuildOptions | None = None,
) -> Built:
    """Build the plain store at `output`, which appears once it is complete.


    Errors: OutputExists, NoSpace, NotReadable; PlanStale if the source has changed since it was verified.
    """
    log = verified.dledger
    assert log is not None
    assert migration.ready
    how = options or BuildOptions()
    built = Built(notes=list(migration.notes))
    ids = IdMap(id_map) if id_map is not None else None
    try:
        with building(output, how.removed) as place:
            relay = Readdressing(place, _options(store, verified, migration), ids)
            try:
                _relay(relay, verified, migration, how.progress)
                built.wrote = relay.position
                relay.finish()
            except BaseException:
                relay.abandon()
                raise
            built.messages, built.unmapped = relay.messages, relay.unmapped
            built.files = len(LOCAL.list(place / "commitlog"))
            built.copied = _copy_rest(store, place, relay, migration, built)
            if ids is not None:
                ids.finish()
            note = give_rights(place, output, rights_of(store), how.rights)
            built.notes += [note] if note is not None else []
    finally:
        if ids is not None:
            ids.discard()
    return built


def _relay(relay: Readdressing, verified: Verified, migration: CommitLogMigration, progress: Progress | None) -> None:
    legacy, log = verified.legacy, verified.dledger
    assert log is not None
    kept = 0
    if legacy is not None:
        for file in legacy.queue.files:
            relay.copy_legacy(file)
            for columns in one_ahead(_columns(legacy, file)):
                relay.keep(columns)
                kept += len(columns)
            if progress is not None:
                progress(file.length)
    for file in log.queue.files:
        for columns in one_ahead(_columns(log, file)):
            taken = columns.slice(0, int((columns.entry_index <= migration.last_index).sum()))
            if len(taken):
                relay.add(taken)
        if progress is not None:
            progress(file.length)
    if (kept, relay.messages) != (migration.legacy_messages, migration.entries):
        found, wanted = kept + relay.messages, migration.legacy_messages + migration.entries
        raise PlanStale(
            Text(
                "{store} changed while it was read: {found:,} of {messages} found",
                store=migration.store,
                found=found,
                messages=many(wanted, "message"),
            )
        )


def _columns(log: LogResult, file: MappedFile) -> Iterator[Columns]:
    """Yield the good records of one file, up to the log's end."""
    if file.start >= log.wrote:
        return
    for run in scan_file(file, body_offset=log.body_offset, options=ScanOptions()):
        if run.kind is Kind.RECORDS and run.columns is not None and run.start < log.wrote:
            yield run.columns.copied().slice(0, int((run.columns.offset < log.wrote).sum()))


def _options(store: Store, verified: Verified, migration: CommitLogMigration) -> ReaddressOptions:
    config = store.config
    slots, units = _index_sizes(store, verified)
    light = any(topic.startswith(LMQ_PREFIX) for topic, _, _ in store.queue_directories(QueueKind.SIMPLE))
    dispatch = DispatchOptions(
        consume_queue_file_size=store.queue_file_size(QueueKind.SIMPLE),
        batch_file_size=store.queue_file_size(QueueKind.BATCH),
        index=config.bool("messageIndexEnable"),
        tag_key=indexes_tags(store, verified.logs, [e.path for e in reversed(store.index_files)], slots),
        lmq=light or (config.bool("enableLmq") and config.bool("enableMultiDispatch")),
        batch_topics=verified.batch_topics,
        delay_levels=delay_levels(store),
    )
    return ReaddressOptions(migration.file_size, migration.start, dispatch, slots, units, _known(store, verified))


def _index_sizes(store: Store, verified: Verified) -> tuple[int, int]:
    """Return the numbers of slots and units of the store's index files; a setting in broker.conf takes precedence."""
    config = store.config
    slots, units = config.int("maxHashSlotNum"), config.int("maxIndexNum")
    if config.given_int("maxHashSlotNum") is not None or not store.index_files:
        return slots, units
    return index_sizes(store) or (slots, units)


def _known(store: Store, verified: Verified) -> Callable[[str, int], bool]:
    """Return a function that returns whether a queue exists: it has a directory, or its topic was not deleted."""
    there = store.names_in_files()
    types = verified.config.queue_types

    def known(topic: str, queue_id: int) -> bool:
        return (topic, queue_id) in there or types is None or topic in types or is_system_topic(topic) or is_lmq(topic)

    return known


def _copy_rest(store: Store, place: Path, relay: Readdressing, migration: CommitLogMigration, built: Built) -> int:
    """Copy the configuration, and the timers with new addresses; return the number of files."""
    count = 0
    for name in COPIED_TREES:
        source = store.root / name
        if store.files.is_directory(source):
            count += copy_tree(source, place / name)
    timers = [n for n in sorted(store.top) if n in COPIED_FILES or n.startswith("timerwheel.")]
    for name in timers:
        copy_file(store.root / name, place / name)
        count += 1
    if store.timer_log is not None and store.timer_log.files:
        assert store.dledger is not None
        first_moved = store.dledger.data.start  # the old address of the first converted record
        cut = relay_timer_log(store.timer_log, place, relay.find_address, first_moved)
        count += len(store.timer_log.files)
        if cut is not None:
            end = relay.max_offset(WHEEL_TOPIC.decode(), 0)
            fix_timercheck(place / "config" / "timercheck", cut, end)
            built.notes.append(
                Text("the timer log was cut at {cut}: messages of later units were not migrated", cut=cut)
            )
    return count
