"""Plans what the first start of a broker in DLedger mode does to a plain store: the pad and the first DLedger file.

The broker's own start recovers the log first, and truncates what it does not understand; this plan refuses instead. It
leaves the store byte for byte as the broker's first start leaves a sound store. Writes nothing.

Source: DLedgerCommitLog#recover (RocketMQ 4.9.7, 5.1.4), #dledgerRecoverNormally, #setRecoverPosition (5.4.0); a log
without files: DefaultMessageStore#destroyLogics (4.9.7, 5.1.4), ConsumeQueueStore#destroy (5.4.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.verify import Verified
from rmqstore.files.mapped_file_queue import MappedFileQueue, offset_to_file_name
from rmqstore.files.store import UNIT_SIZES, QueueKind, Store
from rmqstore.formats import checkpoint
from rmqstore.formats.message import BLANK_MAGIC, build_blank
from rmqstore.repair.migrate.to_dledger_preflight import MigrationRefusal, ReplicaCheck, Target, preflight
from rmqstore.repair.plan.content import Json, Zeros
from rmqstore.repair.plan.plan import Plan
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.scan.units import last_nonzero
from rmqstore.texts import Text

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
        return _without_log(store, target, notes)
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


def _without_log(store: Store, target: Target, notes: list[str]) -> DLedgerMigration:
    """Plan without a legacy file: the broker destroys every consume queue, and creates file 0 at its first append."""
    draft = PlanBuilder(store, notes=notes)
    for kind in (QueueKind.SIMPLE, QueueKind.BATCH):
        for queue in store.consume_queues(kind):
            last = last_nonzero(queue.queue, UNIT_SIZES[kind])
            if last is not None:
                draft.lose({queue.label: last // UNIT_SIZES[kind] + 1}, 0)
            why = Text("there is no commitlog file: the broker destroys all consume queues")
            draft.discard(queue.queue.directories[0], why)
    data = _data_directory(store, target, 0, store.config.int("mappedFileSizeCommitLog"))
    roots = _roots(store, data)
    draft.make_directory(data, Text("for DLedger's data"))
    _fill_empty_store(draft)
    if draft.lost_messages:
        draft.decisions.append(
            Text(
                "there is no commitlog file, but the consume queues hold {lost_messages} units: is the "
                "commitlog's disk mounted?",
                lost_messages=draft.lost_messages,
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
