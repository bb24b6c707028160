"""Plans the first start of a broker in DLedger mode over a plain store: the pad and the first DLedger file. Pure.

The broker does this itself, but by its recovery, which truncates what it does not understand; this plan refuses
instead. After it the store is byte for byte what the broker's own first start leaves of a sound store.

Source: DLedgerCommitLog#recover (RocketMQ 4.9.7, 5.1.4), #dledgerRecoverNormally, #setRecoverPosition (5.4.0); a log
without files: DefaultMessageStore#destroyLogics (4.9.7, 5.1.4), ConsumeQueueStore#destroy (5.4.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.verify import Verified
from rmqstore.files.mapped_file_queue import MappedFileQueue, offset_to_file_name
from rmqstore.files.store import UNIT_SIZE, QueueKind, Store
from rmqstore.formats import checkpoint
from rmqstore.formats.message import BLANK_MAGIC, BLANK_SIZE, build_blank
from rmqstore.repair.migrate.to_dledger_preflight import Refusal, ReplicaCheck, Target, preflight
from rmqstore.repair.plan.content import Json, Literal, Zeros
from rmqstore.repair.plan.fingerprints import fingerprint_entry, fingerprint_range
from rmqstore.repair.plan.plan import Loss, Plan
from rmqstore.repair.plan.steps import Create, Discard, MakeDirectory, Overwrite, Step
from rmqstore.scan.units import last_nonzero

SCHEMA = "rmqstore.migrate-to-dledger/1"
COMMAND = "migrate-to-dledger"


@dataclass(frozen=True, slots=True)
class Pad:
    """The BLANK that closes the legacy commitlog: `at` in the file, `size` as it says, both in bytes."""

    file: str
    at: int
    size: int

    def to_json(self) -> dict[str, Json]:
        return {"file": self.file, "at": self.at, "size": self.size}


@dataclass(frozen=True, slots=True)
class DLedgerMigration:
    """What a migration would do, or why it is refused (`plan` is None then).

    `divided_commitlog_offset`: where DLedger begins, -1 without legacy files; `pad`: None when the log ends with a
    BLANK already; `first_dledger_file`: None when the first append makes it. `settings`: lines for broker.conf.
    """

    target: Target
    refusals: tuple[Refusal, ...] = ()
    plan: Plan | None = None
    divided_commitlog_offset: int = -1
    pad: Pad | None = None
    first_dledger_file: str | None = None
    settings: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def ready(self) -> bool:
        """Nothing speaks against it."""
        return not self.refusals

    def to_json(self) -> dict[str, Json]:
        """The object of `migrate-to-dledger --json`, but for what apply did."""
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
            "brakes": [] if self.plan is None else list(self.plan.brakes),
            "digest": None if self.plan is None else self.plan.digest,
            "steps": [] if self.plan is None else self.plan.summaries(),
            "notes": list(self.notes),
        }


def plan_migration_to_dledger(
    store: Store, verified: Verified, target: Target, *, replicas: Sequence[ReplicaCheck] = ()
) -> DLedgerMigration:
    """The migration of a verified plain store.

    Reads directory entries, and the bytes that the steps replace (their hashes are in the plan).
    Errors: none for what is on disk: that is a refusal; OSError when a file vanishes meanwhile.
    """
    refusals, notes = preflight(store, verified, target, replicas)
    if refusals:
        return DLedgerMigration(target, tuple(refusals), notes=tuple(notes))
    legacy = verified.legacy
    if legacy is None:
        return _without_log(store, target, notes)
    return _over_log(store, legacy, target, notes)


def _over_log(store: Store, legacy: LogResult, target: Target, notes: list[str]) -> DLedgerMigration:
    """Situations with legacy files: pad where a pad is missing, drop the zero files behind, lay out the first file."""
    places = _Places(store)
    at = legacy.next_append
    file = legacy.queue.find(at)
    assert file is not None, "preflight refuses a log without room behind its end"
    position = at - file.start
    steps: list[Step] = []
    for extra in legacy.queue.files:
        if extra.start > file.start:
            expect = fingerprint_entry(extra.path)
            why = "zero file ahead of the log's end: the broker deletes it"
            steps.append(Discard(places.of(extra.path), expect, why, extra.length))
    pad = None
    if not _is_blank(legacy.queue, at):
        pad = Pad(places.of(file.path), position, file.stop - at)
        expect = fingerprint_range(file.path, position, BLANK_SIZE)
        why = f"the legacy commitlog ends here; {pad.size} bytes are left"
        steps.append(Overwrite(pad.file, position, Literal(build_blank(pad.size)), expect, why))
    first = _data_directory(store, target, file.stop, legacy.queue.file_size) / offset_to_file_name(file.stop)
    steps += places.directories(first.parent, file.path.parent)
    size = legacy.queue.file_size
    steps.append(Create(places.of(first), size, Zeros(size), places.of(file.path), "DLedger's first data file"))
    if not legacy.messages:
        steps += _empty_store(store, places)
    plan = Plan(
        str(store.root.absolute()),
        tuple(steps),
        roots=places.roots(),
        notes=tuple(notes),
        facts=_facts(target, file.stop),
    )
    return DLedgerMigration(
        target,
        plan=plan,
        divided_commitlog_offset=file.stop,
        pad=pad,
        first_dledger_file=places.of(first),
        settings=target.settings(size),
        notes=tuple(notes),
    )


def _without_log(store: Store, target: Target, notes: list[str]) -> DLedgerMigration:
    """No legacy file: the broker destroys every consume queue, and its first append makes the file 0."""
    places = _Places(store)
    steps: list[Step] = []
    lost: dict[str, int] = {}
    for kind in (QueueKind.SIMPLE, QueueKind.BATCH):
        for queue in store.consume_queues(kind):
            directory = queue.queue.directories[0]
            last = last_nonzero(queue.queue, UNIT_SIZE[kind])
            units = 0 if last is None else last // UNIT_SIZE[kind] + 1
            if units:
                lost[queue.label] = lost.get(queue.label, 0) + units
            steps.append(
                Discard(
                    places.of(directory),
                    fingerprint_entry(directory),
                    "there is no commitlog file: the broker destroys all consume queues",
                    queue.queue.bytes_on_disk,
                )
            )
    size = store.config.int("mappedFileSizeCommitLog")
    data = _data_directory(store, target, 0, size)
    steps += places.directories(data, store.root / "config")
    steps += _empty_store(store, places)
    units = sum(lost.values())
    brakes: tuple[str, ...] = ()
    if units:
        brakes = (
            f"there is no commitlog file, but the consume queues hold {units} units: is the commitlog's disk mounted?",
        )
    plan = Plan(
        str(store.root.absolute()),
        tuple(steps),
        loss=Loss(messages=units, queues=lost),
        roots=places.roots(),
        notes=tuple(notes),
        brakes=brakes,
        facts=_facts(target, -1),
    )
    known = store.config.given_int("mappedFileSizeCommitLog")
    return DLedgerMigration(target, plan=plan, settings=target.settings(known), notes=tuple(notes))


def _empty_store(store: Store, places: _Places) -> list[Step]:
    """What any first start makes in a store that never had a message."""
    steps: list[Step] = []
    if "consumequeue" not in store.top:
        steps.append(MakeDirectory("consumequeue", None, "every start makes it"))
    if "checkpoint" not in store.top:
        size = checkpoint.FILE_SIZE
        steps.append(Create("checkpoint", size, Zeros(size), None, "every start makes it"))
    return steps


def _facts(target: Target, divided: int) -> dict[str, Json]:
    return {"command": COMMAND, "divided_commitlog_offset": divided, "self_id": target.self_id}


def _is_blank(queue: MappedFileQueue, at: int) -> bool:
    """Whether the 8 bytes at the log's end are a BLANK already; its size may be anything (#setRecoverPosition)."""
    return int.from_bytes(queue.pread(4, at + 4), "big", signed=True) == BLANK_MAGIC


def _data_directory(store: Store, target: Target, offset: int, file_size: int) -> Path:
    """Where DLedger makes the file of an offset; with several data paths they take turns, sorted.

    Source: MultiPathMmapFileList#tryCreateMappedFile, DLedger 0.3.1.2
    """
    configured = store.config.paths("storePathDLedgerCommitLog")
    if not configured:
        return store.root / f"dledger-{target.self_id}" / "data"
    located = sorted(p if p.is_absolute() else store.root / p for p in configured)
    return located[offset // file_size % len(located)]


class _Places:
    """Paths as a plan has them: relative inside of the store, absolute below a root outside of it."""

    def __init__(self, store: Store) -> None:
        self.root = store.root.absolute()
        self._roots: set[str] = set()

    def of(self, path: Path) -> str:
        path = path.absolute()
        if path.is_relative_to(self.root):
            return path.relative_to(self.root).as_posix()
        if not any(path.is_relative_to(root) for root in self._roots):
            above = next(p for p in path.parents if p.is_dir())
            self._roots.add(above.as_posix())
        return path.as_posix()

    def roots(self) -> tuple[str, ...]:
        return tuple(sorted(self._roots))

    def directories(self, path: Path, like: Path) -> list[Step]:
        """A MakeDirectory for each part of a path that is not there."""
        missing = [p for p in (path, *path.parents) if not p.exists()]
        model = self.of(like) if like.is_dir() and like.absolute() != self.root else None
        return [MakeDirectory(self.of(p), model, "for DLedger's data") for p in reversed(missing)]
