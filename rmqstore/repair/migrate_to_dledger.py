"""Plans what the first start of a broker in DLedger mode does to a plain store: the pad and the first DLedger file.

The broker's own start recovers the log first, and truncates what it does not understand; this plan refuses instead. It
leaves the store byte for byte as the broker's first start leaves a sound store. Writes nothing.

Source: DLedgerCommitLog#recover (RocketMQ 4.9.7, 5.1.4), #dledgerRecoverNormally, #setRecoverPosition (5.4.0); a log
without files: DefaultMessageStore#destroyLogics (4.9.7, 5.1.4), ConsumeQueueStore#destroy (5.4.0).

Whether the store can become a member of a DLedger group is checked first; each refusal says what to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rmqstore.brokers.forecast import StartOptions
from rmqstore.brokers.rules import rules_for
from rmqstore.brokers.simulate import simulate_start
from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.problems.report import problem_counts, store_words
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.checks.verified import Verified
from rmqstore.documents.content import Json, Zeros
from rmqstore.documents.journal import find_unfinished
from rmqstore.documents.plan import Plan
from rmqstore.errors import UsageError
from rmqstore.files.disk import existing
from rmqstore.files.mapped_file_queue import MappedFileQueue, offset_to_file_name
from rmqstore.files.store import QueueKind, Store, StoreKind
from rmqstore.files.versions import RUN_VERSIONS
from rmqstore.formats import checkpoint
from rmqstore.formats.message import BLANK_MAGIC, BLANK_SIZE, MAX_TOPIC_V1, build_blank
from rmqstore.repair.journal.folder import free_bytes
from rmqstore.repair.journal.journal import refusal_of
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.texts import Placed, Text, joined, many

DEFAULT_PORT = 40911
DEFAULT_GROUP = "RaftNode00"
_NODE = re.compile(r"[A-Za-z]\d{1,9}")
_PEER = re.compile(r"([A-Za-z]\d{1,9})-(.+):(\d{1,5})")


@dataclass(frozen=True, slots=True)
class MigrationRefusal:
    """Why a migration is refused, and what to do."""

    reason: str
    advice: str

    def to_json(self) -> dict[str, Json]:
        return {"reason": self.reason, "advice": self.advice}


@dataclass(frozen=True, slots=True)
class ReplicaCheck:
    """The result of comparing another node's store (or its fingerprint file) with this one."""

    name: str
    equal: bool
    difference: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """The node that the store will become: `self_id` such as n0, `peers` such as n0-host:40911;n1-host:40911.

    Errors: UsageError for an id or peers that DLedger cannot parse.
    """

    store: str
    self_id: str
    group: str = DEFAULT_GROUP
    peers: str = ""
    broker: str = ""
    host: str = "127.0.0.1"
    addresses: tuple[tuple[str, str], ...] = field(init=False)

    def __post_init__(self) -> None:
        if not _NODE.fullmatch(self.self_id):
            raise UsageError(
                Text(
                    "--self-id {self_id!r}: DLedger requires a letter followed by a number, such as n0",
                    self_id=self.self_id,
                )
            )
        if not self.group.strip() or any(c in self.group for c in "\r\n"):
            raise UsageError(Text("--dledger-group must not be empty"))
        found: list[tuple[str, str]] = []
        for part in filter(None, (p.strip() for p in self.peers.split(";"))):
            match = _PEER.fullmatch(part)
            if match is None or int(match[3]) > 65535:
                raise UsageError(
                    Text("--peers: {part!r} is not a peer", part=part),
                    Text("write n0-host0:40911;n1-host1:40911;n2-host2:40911"),
                )
            found.append((match[1], part))
        names = [name for name, _ in found]
        if len(set(names)) != len(names):
            raise UsageError(Text("--peers: two peers have the same id"))
        if found and self.self_id not in names:
            raise UsageError(
                Text("--peers: {self_id} is not among them", self_id=self.self_id),
                Text("this node must be one of the peers"),
            )
        object.__setattr__(self, "addresses", tuple(found))

    @property
    def others(self) -> tuple[str, ...]:
        """The ids of the other nodes."""
        return tuple(name for name, _ in self.addresses if name != self.self_id)

    def settings(self, file_size: int | None) -> tuple[str, ...]:
        """Return the lines of broker.conf for a broker with this store; `file_size` in bytes, None if unknown."""
        peers = ";".join(text for _, text in self.addresses) or f"{self.self_id}-{self.host}:{DEFAULT_PORT}"
        lines = (
            "enableDLegerCommitLog=true",
            f"dLegerGroup={self.group}",
            f"dLegerPeers={peers}",
            f"dLegerSelfId={self.self_id}",
        )
        return lines if file_size is None else (*lines, f"mappedFileSizeCommitLog={file_size}")


def preflight(
    store: Store, verified: Verified, target: Target, replicas: Sequence[ReplicaCheck]
) -> tuple[list[MigrationRefusal], list[str]]:
    """Check a store; return refusals and notes."""
    notes: list[str] = []
    refusals = [*in_use(store, verified)]
    if any("journal" in refusal.reason for refusal in refusals):
        return refusals, notes  # an unfinished migration: the store is of neither kind
    kind = no_files(store) or _wrong_kind(store, target)
    if kind is not None:
        return [*refusals, kind], notes
    refusals += [*_settings(store, target), *_versions(store, verified, target), *_unsound(store, verified)]
    if not refusals:
        refusals += _end_of_log(store, verified, target)
    refusals += _space(store, verified)
    refusals += _replicas(target, replicas)
    if store.abort and not refusals:
        notes.append(
            Text("abort file present: the store is sound, but the broker's next start will recover as after a crash")
        )
    if verified.legacy is not None:
        notes.append(Text("keep the files of commitlog/ where they are: old messages are read from them"))
    return refusals, notes


def recover_first(store: Store) -> str:
    """Return the advice for a store that must be repaired first."""
    return Text("run `rmqstore recover {words_for} --apply`, then this command again", words_for=words_for(store))


def _rebuild(store: Store) -> str:
    return Text("run `rmqstore rebuild {words_for} cq --apply`, then this command again", words_for=words_for(store))


def words_for(store: Store) -> str:
    """Return the arguments for another command: the store, and its broker.conf."""
    return store_words(str(store.path), store.config.source)


def _wrong_kind(store: Store, target: Target) -> MigrationRefusal | None:
    """Refuse a DLedger store, and one with an unfinished migration."""
    own = f"dledger-{target.self_id}"
    nodes = [store.dledger.directory.name] if store.dledger is not None else []
    for name in [*nodes, *store.other_dledger]:
        entries = store.files.list(store.root / name)
        filled = [e for e in entries if not e.directory or store.files.list(e.path)]
        has_data = store.dledger is not None and store.dledger.directory.name == name and bool(store.dledger.data.files)
        if name != own and (filled or has_data):
            return MigrationRefusal(
                Text("{name} is the DLedger directory of another node", name=name),
                Text(
                    "use --self-id {removeprefix}, or move {name} away",
                    removeprefix=name.removeprefix("dledger-"),
                    name=name,
                ),
            )
        if has_data:
            return _already(store)
        if filled:
            return MigrationRefusal(
                Text(
                    "{name} has no data, but {path}: a migration or the setup of a node was interrupted half-way",
                    name=name,
                    path=filled[0].path.name,
                ),
                Text(
                    "run `rmqstore undo` if a migration was interrupted, else move {root} away", root=store.root / name
                ),
            )
    return None


def _already(store: Store) -> MigrationRefusal:
    assert store.dledger is not None
    first = store.dledger.data.start
    legacy = store.commitlog
    if legacy is None or not legacy.files:
        return MigrationRefusal(Text("this is already a DLedger store"), Text("nothing to migrate"))
    if legacy.stop == first:
        return MigrationRefusal(
            Text("this store was already migrated: DLedger begins at {first}", first=first),
            Text("nothing to do; check it with `rmqstore verify {words_for}`", words_for=words_for(store)),
        )
    where = (
        Text("files of the legacy commitlog are missing")
        if legacy.stop < first
        else Text("legacy commitlog and DLedger overlap")
    )
    return MigrationRefusal(
        Text(
            "{where}: the legacy part ends at {stop}, DLedger begins at {first}",
            where=where,
            stop=legacy.stop,
            first=first,
        ),
        Text(
            "see `rmqstore verify {words_for}`; restore the missing files, or undo the migration",
            words_for=words_for(store),
        ),
    )


def in_use(store: Store, verified: Verified) -> Iterator[MigrationRefusal]:
    """Refuse a store that is in use, or that has an unfinished journal: nothing else can be checked then."""
    state = store.lock_state()
    if state.held or verified.report.live:
        who = Text("process {pid}", pid=state.pid) if state.pid else Text("a broker")
        advice = Text("stop the broker and keep its service stopped, then try again")
        yield MigrationRefusal(Text("{who} holds the store", who=who), advice)
    for journal in find_unfinished(store.root):
        error = refusal_of(journal)
        yield MigrationRefusal(error.message, error.advice)


def _settings(store: Store, target: Target) -> Iterator[MigrationRefusal]:
    """Refuse a broker.conf that contradicts the migration, and missing data paths."""
    config = store.config
    given = config.given.get("dLegerSelfId", "").strip()
    if given and given != target.self_id:
        yield MigrationRefusal(
            Text("broker.conf says dLegerSelfId={given}", given=given),
            Text("use --self-id {given}, or correct broker.conf", given=given),
        )
    if config.bool("enableControllerMode"):
        yield MigrationRefusal(
            Text("broker.conf has enableControllerMode=true"), Text("a broker runs in one of the two modes only")
        )
    made = config.paths("storePathDLedgerCommitLog")
    for path in store.missing_paths:
        if path not in made:
            yield MigrationRefusal(
                Text("the data path {path} is missing", path=path), Text("mount it, or correct broker.conf")
            )


def _versions(store: Store, verified: Verified, target: Target) -> Iterator[MigrationRefusal]:
    """Refuse a broker version without DLedger, and one that cannot read the store."""
    why = _cannot_read(store, verified, target.broker)
    if why is not None:
        yield MigrationRefusal(why, Text("use a newer broker, and choose it with --broker"))


def _cannot_read(store: Store, verified: Verified, version: str) -> str | None:
    """Return why a broker version (empty: the newest) cannot use this store in DLedger mode, None if it can."""
    rules = rules_for(version or None)
    if rules.dledger is None:
        return Text("RocketMQ {version} has no DLedger mode (4.5.1 was the first)", version=rules.version)
    queues = verified.legacy.queues if verified.legacy is not None else {}
    if not rules.v2 and any(len(topic.encode("utf-8", "replace")) > MAX_TOPIC_V1 for topic, _ in queues):
        return Text("the store has V2 records, which RocketMQ {version} truncates", version=rules.version)
    if not rules.batch_queues and next(store.queue_directories(QueueKind.BATCH), None) is not None:
        return Text("the store has batch consume queues, which RocketMQ {version} does not know", version=rules.version)
    return None


def _unsound(store: Store, verified: Verified) -> Iterator[MigrationRefusal]:
    """Refuse a store with problems; without a log, those do not count that disappear with it."""
    counts = problem_counts(verified.report)
    no_log = verified.legacy is None
    bad = [
        code
        for code in counts
        if not PROBLEMS[code].ignored_by_brokers and not (no_log and PROBLEMS[code].gone_with_log)
    ]
    first = _rebuild(store) if all(PROBLEMS[code].lacks_units for code in bad) else recover_first(store)
    yield from unsound(counts, bad, first, verified.report.unchecked)
    late = [label for label, state in verified.report.queues.items() if state.max < state.expected_max]
    if not bad and not no_log and late:
        yield MigrationRefusal(
            Text(
                "{queues} than the log requires ({late} first): in DLedger mode brokers from 5.0.0 on do not "
                "dispatch legacy messages",
                queues=many(len(late), "consume queue is shorter", "consume queues are shorter"),
                late=late[0],
            ),
            _rebuild(store),
        )


def unsound(
    counts: Mapping[str, int], bad: Sequence[str], advice: str, unchecked: Sequence[str]
) -> Iterator[MigrationRefusal]:
    """Yield refusals for problems (`bad` codes) that must be repaired first, and for what could not be checked."""
    by_hand = [code for code in bad if PROBLEMS[code].needs_operator is not None]
    if curable := [code for code in bad if code not in by_hand]:
        listed = joined(Placed("{counts} × {code}", counts=counts[code], code=code) for code in curable[:4])
        problems = many(sum(counts[code] for code in curable), "problem")
        yield MigrationRefusal(
            Text("the store is not sound: {problems} ({listed})", problems=problems, listed=listed), advice
        )
    for code in by_hand:
        task = PROBLEMS[code].needs_operator
        assert task is not None
        yield MigrationRefusal(
            Text("no repair cures {counts} × {code}: {why}", counts=counts[code], code=code, why=task.why), task.do
        )
    if unchecked:
        yield MigrationRefusal(
            Text("not everything could be checked: {unchecked}", unchecked=unchecked[0]), Text("check it first")
        )


def no_files(store: Store) -> MigrationRefusal | None:
    """Refuse a part of a store, and consume queues in RocksDB: neither can be converted."""
    if store.kind is StoreKind.PART:
        return MigrationRefusal(Text("this is a part of a store"), Text("give the broker's storePathRootDir"))
    if store.kind is StoreKind.ROCKSDB:
        return MigrationRefusal(
            Text("the consume queues are in RocksDB"), Text("DLedger mode works with consume queues in files only")
        )
    return None


def _end_of_log(store: Store, verified: Verified, target: Target) -> Iterator[MigrationRefusal]:
    """Refuse a log to which brokers would append elsewhere, or in which the pad has no space."""
    legacy = verified.legacy
    if legacy is None:
        return
    at = legacy.next_append
    file = legacy.queue.find(at)
    if file is None or file.stop - at < BLANK_SIZE:
        yield MigrationRefusal(
            Text(
                "the log ends at {at:,}, with fewer than {blank_size} bytes left in its file: no broker "
                "writes such a log, and none starts on it in DLedger mode",
                at=at,
                blank_size=BLANK_SIZE,
            ),
            recover_first(store),
        )
        return
    for version in dict.fromkeys((rules_for(target.broker or None).version, *RUN_VERSIONS)):
        if _cannot_read(store, verified, version) is not None:
            continue
        forecast = simulate_start(store, legacy.tiling, version=version, options=StartOptions(thorough=False))
        if not forecast.starts:
            why: str = Text("RocketMQ {version} would not start: {reason}", version=version, reason=forecast.reason)
        elif forecast.messages_lost:
            why = forecast.sentence()
        elif forecast.commitlog_stop not in (None, at):
            why = Text(
                "the log ends at {at}, but RocketMQ {version} would continue at {commitlog_stop}",
                at=at,
                version=version,
                commitlog_stop=forecast.commitlog_stop,
            )
        else:
            continue
        yield MigrationRefusal(
            why,
            Text(
                "the store itself is sound: what broker.conf says, or what this version does, is in the way; "
                "see `rmqstore verify {words_for} --broker {version}`",
                words_for=words_for(store),
                version=version,
            ),
        )
        return


def _space(store: Store, verified: Verified) -> Iterator[MigrationRefusal]:
    """Refuse if there is no space for the first DLedger file; it is created as a hole, which brokers fill."""
    size = verified.legacy.queue.file_size if verified.legacy is not None else 0
    configured = store.config.paths("storePathDLedgerCommitLog")
    place = existing(configured[0]) if configured else store.root
    free = free_bytes(place)
    if free < size:
        why = Text(
            "{place}: {free:,} bytes are free, one DLedger file takes {size:,}", place=place, free=free, size=size
        )
        yield MigrationRefusal(why, Text("free space first"))


def _replicas(target: Target, replicas: Sequence[ReplicaCheck]) -> Iterator[MigrationRefusal]:
    """Refuse peers that do not have the same legacy log: nodes padded at different offsets never agree."""
    for check in replicas:
        if not check.equal:
            yield MigrationRefusal(
                Text("{check} differs from this store: {difference}", check=check.name, difference=check.difference),
                Text(
                    "make the replicas equal first (stop producers, wait for the slave), or build the other node "
                    "from a copy of this store"
                ),
            )
    missing = len(target.others) - len(replicas)
    if missing > 0 and all(check.equal for check in replicas):
        uncompared = Text(
            "of the other nodes ({others}) {missing} were not compared: nodes that are padded at "
            "different offsets never agree again"
        )
        if missing == 1:
            uncompared = Text(
                "of the other nodes ({others}) {missing} was not compared: nodes that are padded at "
                "different offsets never agree again"
            )
        yield MigrationRefusal(
            uncompared.format(others=joined(target.others), missing=missing),
            Text(
                "give the store of each with --check-replica, or its fingerprint file (`rmqstore compare "
                "STORE --fingerprint-out FILE`)"
            ),
        )


SCHEMA = "rmqstore.migrate-to-dledger/1"
COMMAND = "migrate-to-dledger"


@dataclass(frozen=True, slots=True)
class Pad:
    """The BLANK at the end of the legacy commitlog: position in its file and size, both in bytes."""

    file: str
    at: int
    size: int

    def to_json(self) -> dict[str, Json]:
        return {"file": self.file, "at": self.at, "size": self.size}


@dataclass(frozen=True, slots=True)
class DLedgerMigration:
    """The plan of a migration, or the refusals (`plan` is None then).

    `divided_commitlog_offset`: where DLedger begins, -1 without legacy files; `pad`: None if the log ends with a BLANK
    already; `first_dledger_file`: None if the first append creates it. `settings`: lines for broker.conf.
    """

    target: Target
    refusals: tuple[MigrationRefusal, ...] = ()
    plan: Plan | None = None
    divided_commitlog_offset: int = -1
    pad: Pad | None = None
    first_dledger_file: str | None = None
    settings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether the migration is not refused."""
        return not self.refusals

    def to_json(self) -> dict[str, Json]:
        """Return the JSON object of `migrate-to-dledger`, without the result of apply."""
        return {
            "schema": SCHEMA,
            "store": self.target.store,
            "ready": self.ready,
            "refusals": [r.to_json() for r in self.refusals],
            "divided_commitlog_offset": self.divided_commitlog_offset,
            "pad": None if self.pad is None else self.pad.to_json(),
            "first_dledger_file": self.first_dledger_file,
            "broker_conf": list(self.settings),
            "loss": None if self.plan is None else self.plan.loss.to_json(),
            "brakes": [] if self.plan is None else list(self.plan.decisions),
            "digest": None if self.plan is None else self.plan.digest,
            "steps": [] if self.plan is None else self.plan.summaries(),
            "notes": list(self.notes),
        }


def plan_migration_to_dledger(
    store: Store, verified: Verified, target: Target, *, replicas: Sequence[ReplicaCheck] = ()
) -> DLedgerMigration:
    """Plan the migration of a verified plain store; obstacles become refusals.

    Reads only directory entries and the bytes that the steps replace, whose hashes are in the plan.
    Errors: OSError if a file vanishes meanwhile.
    """
    refusals, notes = preflight(store, verified, target, replicas)
    if refusals:
        return DLedgerMigration(target, tuple(refusals), notes=tuple(notes))
    legacy = verified.legacy
    if legacy is None:
        return _without_log(store, verified, target, notes)
    return _over_log(store, legacy, target, notes)


def _over_log(store: Store, legacy: LogResult, target: Target, notes: list[str]) -> DLedgerMigration:
    """Plan over legacy files: add the pad if it is missing, discard zero files after it, create the first data file."""
    draft = PlanBuilder(store, notes=notes)
    at = legacy.next_append
    file = legacy.queue.find(at)
    assert file is not None, "preflight refuses a log without room after its end"
    for extra in legacy.queue.files:
        if extra.start > file.start:
            draft.discard(extra.path, Text("zero file after the log's end: the broker deletes it"))
    pad = None
    if not _is_blank(legacy.queue, at):
        pad = Pad(draft.path(file.path), at - file.start, file.stop - at)
        why = Text("the legacy commitlog ends here; {size} bytes are left", size=pad.size)
        draft.overwrite(file.path, pad.at, build_blank(pad.size), why)
    size = legacy.queue.file_size
    directory = _data_directory(store, target, file.stop, size)
    roots = _roots(store, directory)
    first = directory / offset_to_file_name(file.stop)
    draft.make_directory(directory, Text("for DLedger's data"))
    draft.create(first, size, Zeros(size), Text("DLedger's first data file"), file.path)
    if not legacy.messages:
        _fill_empty_store(draft)
    draft.facts.update(_facts(target, file.stop))
    return DLedgerMigration(
        target,
        plan=draft.plan(roots),
        divided_commitlog_offset=file.stop,
        pad=pad,
        first_dledger_file=draft.path(first),
        settings=target.settings(size),
        notes=tuple(notes),
    )


def _without_log(store: Store, verified: Verified, target: Target, notes: list[str]) -> DLedgerMigration:
    """Plan without a legacy file: the broker destroys every consume queue, and creates file 0 at its first append."""
    draft = PlanBuilder(store, notes=notes)
    if verified.account is not None:
        draft.lose({f"{topic}/{number}": count for (topic, number), count in verified.account.lost_by_queue.items()})
    for kind in (QueueKind.SIMPLE, QueueKind.BATCH):
        for queue in store.consume_queues(kind):
            why = Text("there is no commitlog file: the broker destroys all consume queues")
            draft.discard(queue.queue.directories[0], why)
    data = _data_directory(store, target, 0, store.config.int("mappedFileSizeCommitLog"))
    roots = _roots(store, data)
    draft.make_directory(data, Text("for DLedger's data"))
    _fill_empty_store(draft)
    if draft.lost_messages:
        draft.decisions.append(
            Text(
                "there is no commitlog file, but the consume queues hold {units}: is the commitlog's disk mounted?",
                units=many(draft.lost_messages, "unit"),
            )
        )
    draft.facts.update(_facts(target, -1))
    known = store.config.given_int("mappedFileSizeCommitLog")
    return DLedgerMigration(target, plan=draft.plan(roots), settings=target.settings(known), notes=tuple(notes))


def _fill_empty_store(draft: PlanBuilder) -> None:
    """Create what any first start creates in a store that never had a message."""
    store, why = draft.store, Text("every start creates it")
    if "consumequeue" not in store.top:
        draft.make_directory(store.root / "consumequeue", why)
    if "checkpoint" not in store.top:
        draft.create(store.root / "checkpoint", checkpoint.FILE_SIZE, Zeros(checkpoint.FILE_SIZE), why)


def _facts(target: Target, divided: int) -> dict[str, Json]:
    return {"command": COMMAND, "divided_commitlog_offset": divided, "self_id": target.self_id}


def _is_blank(queue: MappedFileQueue, at: int) -> bool:
    """Return whether a BLANK is at the log's end already; its size may have any value (#setRecoverPosition)."""
    return int.from_bytes(queue.pread(4, at + 4), "big", signed=True) == BLANK_MAGIC


def _data_directory(store: Store, target: Target, offset: int, file_size: int) -> Path:
    """Return the directory in which DLedger creates the file of an offset; it takes several data paths in turn, sorted.

    Source: MultiPathMmapFileList#tryCreateMappedFile, DLedger 0.3.1.2
    """
    configured = store.config.paths("storePathDLedgerCommitLog")
    if not configured:
        return store.root / f"dledger-{target.self_id}" / "data"
    located = sorted(p if p.is_absolute() else store.root / p for p in configured)
    return located[offset // file_size % len(located)]


def _roots(store: Store, data: Path) -> list[Path]:
    """Return the directories, inside or outside of the store, below which the plan changes something."""
    logs = store.commitlog.directories if store.commitlog is not None else ()
    return [*logs, next(p for p in (data, *data.parents) if store.files.is_directory(p))]
