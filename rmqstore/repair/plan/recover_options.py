"""The options of a recovery, and the decisions that they answer. Pure.

The broker's role chooses the strategy. A decision is a reason to stop that concerns the whole store: the operator must
take it before a plan is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.log.queue_parts import KEPT
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import Area
from rmqstore.checks.problems.report import Finding
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.errors import UsageError
from rmqstore.files.store import Store
from rmqstore.scan.tiling import Kind
from rmqstore.texts import Text, many

SALVAGE, TRUNCATE = "salvage", "truncate"
ROLES = ("master", "single", "slave", "controller", "dledger-group")
REPLICAS = ("slave", "controller", "dledger-group")
"""Roles of replicas, which get missing messages from their master or leader again, and must never differ from it."""
MOST_KEPT = 64 << 20
"""Limit for a file's end saved in lost+found, bytes; the journal keeps all of it anyway."""


@dataclass(frozen=True, slots=True)
class RecoverOptions:
    """How to recover a store.

    `strategy` "" depends on the role, `role` "" is that of broker.conf. `only` restricts the repair to these codes, and
    includes those that are not safe. `now_ms` is used if no message has a time. The operator accepts with

    * `accept_fillers`: more than 1,000 visible fillers, and fillers for a missing file;
    * `allow_shift`: queue offsets without a record, so that a queue that a broker rebuilds is shifted;
    * `merge_neighbours`: the loss of a good message beside damage that is too short for a record;
    * `accept_odds`: a flipped bit with higher odds of being wrong, and a wrong byte (see `salvage/candidates.py`).
    """

    strategy: str = ""
    role: str = ""
    only: tuple[str, ...] = ()
    accept_fillers: bool = False
    allow_shift: bool = False
    merge_neighbours: bool = False
    accept_odds: bool = False
    now_ms: int = 0
    progress: Callable[[int], None] | None = None

    def wants(self, *codes: str) -> bool:
        """Return whether to repair any of these problems."""
        return not self.only or any(code in self.only for code in codes)

    def wants_area(self, *areas: Area) -> bool:
        """Return whether to repair any problem of these areas."""
        return not self.only or any(PROBLEMS[code].area in areas for code in self.only if code in PROBLEMS)

    @property
    def wants_log(self) -> bool:
        """Whether to repair any problem of the log."""
        return self.wants_area(Area.LOG, Area.DLEDGER)


@dataclass(frozen=True, slots=True)
class Choice:
    """The role, the strategy chosen for it, and notes for the user."""

    role: str
    strategy: str
    notes: tuple[str, ...] = ()


def choose(store: Store, options: RecoverOptions) -> Choice:
    """Choose the strategy: the option, otherwise truncate on a replica, and salvage on a master or a single node.

    Errors: UsageError for an unknown strategy or role.
    """
    if options.strategy not in ("", SALVAGE, TRUNCATE):
        raise UsageError(
            Text("unknown strategy {strategy!r}", strategy=options.strategy), Text("use salvage or truncate")
        )
    if options.role not in ("", *ROLES):
        raise UsageError(Text("unknown role {role!r}", role=options.role), f"roles: {', '.join(ROLES)}")
    role = options.role or store.config.role
    notes: list[str] = []
    if role == "unknown":
        notes.append(
            Text("the broker's role is not known (-c broker.conf or --role says it): treated as a single node")
        )
    strategy = options.strategy or (TRUNCATE if role in REPLICAS else SALVAGE)
    if role in REPLICAS and strategy == SALVAGE:
        notes.append(
            Text(
                "this is a {role}: with fillers in place of lost messages it differs from the other replicas", role=role
            )
        )
    return Choice(role, strategy, tuple(notes))


_MOST_DAMAGE = 10  # percent of the log
_FEW = 4  # messages of a queue


def sizes_decisions(store: Store, findings: Iterable[Finding]) -> Iterator[str]:
    """Yield why nothing may be repaired before the operator has corrected paths, file sizes or foreign files."""
    for finding in findings:
        if finding.code == codes.DIR_MISSING_PATH:
            yield Text("{path} is configured but missing: is a disk not mounted?", path=finding.facts.get("path"))
        elif finding.code == codes.DIR_FILE_SIZE:
            key, actual = finding.facts.get("key"), finding.facts.get("actual")
            yield Text(
                "{queue}: the file size differs from broker.conf: set {key}={actual}",
                queue=finding.queue,
                key=key,
                actual=actual,
            )
        elif finding.code == codes.DIR_DUPLICATE_FILE:
            path, other = finding.facts.get("path"), finding.facts.get("other")
            yield Text("{path} and {other} start at the same offset: keep one of them", path=path, other=other)
        elif finding.code == codes.DL_OVERLAP:
            yield Text(
                "the commitlog and DLedger both have messages from {offset:,} on: add -c broker.conf "
                "(enableDLegerCommitLog=false) if the broker now runs without DLedger",
                offset=finding.offset,
            )
        elif finding.code == codes.CL_FOREIGN_FILE:
            yield Text(
                "{queue}/{file} belongs to another log: put the right file there, or move it away",
                queue=finding.queue,
                file=finding.file,
            )
        elif finding.code == codes.DIR_OPEN_JOURNAL and finding.facts.get("state") == "missing":
            yield Text(
                "the journal {journal} of an earlier repair is missing: mount its disk, or remove the "
                "reference with `rmqstore journals STORE --prune --missing --apply`",
                journal=finding.facts.get("journal"),
            )
        elif finding.code == codes.DIR_OPEN_JOURNAL:
            yield Text(
                "the repair {journal} was not finished: undo or resume it first", journal=finding.facts.get("journal")
            )
    if store.commitlog is not None and store.commitlog.files and store.commitlog.size_from == "default":
        yield Text(
            "the commitlog file size cannot be inferred from the files; {file_size} is assumed: give -c broker.conf, "
            "which has mappedFileSizeCommitLog, or accept it",
            file_size=store.commitlog.file_size,
        )


def damage_decisions(results: Iterable[LogResult], counts: Mapping[str, int], options: RecoverOptions) -> Iterator[str]:
    """Yield signs of unusual damage: the store, the disk or the format may be the wrong one."""
    if counts.get(codes.CL_UNKNOWN_MAGIC):
        yield Text("the log has records with an unknown magic: a newer or encrypted format?")
    if counts.get(codes.CQ_FOREIGN):
        yield Text("hardly any consume queue unit points to a message: does this log belong to these queues?")
    # with --accept-fillers, the operator has decided on missing files
    kinds = (Kind.DIRTY, Kind.ZERO) if options.accept_fillers else (Kind.DIRTY, Kind.ZERO, Kind.HOLE)
    for result in results:
        bad = sum(r.stop - r.start for r in result.tiling if r.start < result.wrote and r.kind in kinds)
        whole = max(1, result.wrote - result.tiling.start)
        if bad * 100 > whole * _MOST_DAMAGE:
            yield Text(
                "{percent} % of {queue} is damaged ({bad:,} of {whole:,} bytes)",
                percent=bad * 100 // whole,
                queue=result.queue.name,
                bad=bad,
                whole=whole,
            )
        if not result.messages and any(r.kind is Kind.DIRTY for r in result.tiling):
            yield Text("{queue} has no good record", queue=result.queue.name)


def packed_decisions(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield compressed files beside the log files: they may hold what the log lacks."""
    for finding in findings:
        if name := finding.facts.get("compressed_file"):
            path = finding.facts["path"]
            yield Text(
                "{path} may be {name}, compressed: decompress it there, and run this command again",
                path=path,
                name=name,
            )


def path_decisions(store: Store, counts: Mapping[str, int]) -> Iterator[str]:
    """Yield empty data directories if log files are missing: their disks may not be mounted."""
    if store.commitlog is None or not (counts.get(codes.CL_MISSING_FILE) or counts.get(codes.CQ_BEYOND_LOG)):
        return
    if len(store.commitlog_directories) == 1:
        return
    used = {file.path.parent for file in store.commitlog.files}
    for directory in store.commitlog_directories:
        if directory not in used:
            yield Text(
                "{directory} is configured and empty, and files of the log are missing: is a disk not mounted?",
                directory=directory,
            )


def offset_decisions(results: Iterable[LogResult]) -> Iterator[str]:
    """Yield logs without the queue offsets of their messages.

    Source: CommitLog#asyncPutMessage assigns no queue offset with duplicationEnable, 5.1.4
    """
    for result in results:
        parts = [part for part in result.queues.values() if part.messages >= _FEW]
        alike = [part for part in parts if len(part.restarts) >= min(KEPT, part.messages // 2 + 1)]
        if alike:
            messages = sum(part.messages for part in alike)
            queues = many(len(alike), "queue")
            yield Text(
                "the {messages:,} messages of {queues} all have queue offset 0, as written with "
                "duplicationEnable=true: consumers get one message of such a queue, even after this repair; "
                "`rmqstore export` returns all of them",
                messages=messages,
                queues=queues,
            )
