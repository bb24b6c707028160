"""restore: build a complete store from a snapshot, cut at a message, and verify it before it gets its name.

The log and the files beside it come from the snapshot. Consume queues, index, checkpoint and the DLedger index are
rebuilt from the log, by the same planners as in `rebuild` and `recover`. seed, a new replica of a live master, first
copies the master's store into a temporary repository beside the new store. Complete files of the log are then moved and
not copied again, so that the disk needs room for one copy.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rmqstore.append.disk import make_directories, take_file, write_new_file
from rmqstore.append.rights import GivenRights, give_rights
from rmqstore.backup.backup import BackupOptions, back_up
from rmqstore.backup.derived import parts_of, plans_of
from rmqstore.backup.keeping import name_at
from rmqstore.backup.manifest import DLEDGER, LogCopy, LogFile, Manifest, OtherFile, config_of, order_of
from rmqstore.backup.repository import Repository, StoreFolder
from rmqstore.backup.snapshot_files import SnapshotFiles, log_directory
from rmqstore.backup.storage import LocalStorage, is_name
from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import Area
from rmqstore.checks.problems.report import Report, problem_counts
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.checks.verified import Verified
from rmqstore.errors import CouldNotCheck, OutputExists, Refused, UsageError
from rmqstore.files.config import OFFSETS, committed_offsets, config_object, directory_of
from rmqstore.files.files import LOCAL
from rmqstore.files.mapped_file_queue import offset_to_file_name
from rmqstore.files.private import Removed
from rmqstore.files.store import Store, open_store
from rmqstore.files.trees import building, remove_left
from rmqstore.files.walk import Leads
from rmqstore.formats.controller import EpochFile, parse_epoch_file
from rmqstore.repair.new_store import carry_out
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.rebuild.unit_buffer import KeptUnits
from rmqstore.repair.recover import plan_recovery
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import one_ahead
from rmqstore.texts import Text

Progress = Callable[[int], None]
MASTER, SLAVE, CONTROLLER, MEMBER = "master", "slave", "controller", "dledger"
ROLES = (MASTER, SLAVE, CONTROLLER, MEMBER)
_AFTER_CUT = frozenset(
    {codes.CFG_OFFSET_BEYOND, codes.CFG_DELAY_BEYOND, codes.TM_DANGLING, codes.TM_LOG, codes.TM_WHEEL_SLOT}
    | {codes.TM_CHECK, codes.DL_COMMITTED, codes.RDB_DANGLING_ROW, codes.RDB_POSITION, codes.RDB_POP_BEYOND}
)
"""Problems of parts that refer to messages after the cut."""
_BLOCK = 4 << 20
_AS_SOURCE = GivenRights()
_IDENTITY = "brokerIdentity"
_EPOCHS = "epochFileCheckpoint"


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """What to restore: the log before a store time (ms), or up to a global offset; None: all of the snapshot.

    `role`: what the broker will be; "" for what it was. `self_id`: its dLegerSelfId, "" for what it was. `broker`:
    version for the forecast, "" for the newest. `rights`: other than those of the snapshot. `removed` is told what an
    earlier run left. `take`:     the repository is a temporary one, whose complete log files may be moved.
    """

    until: int | None = None
    at: int | None = None
    role: str = ""
    self_id: str = ""
    broker: str = ""
    take: bool = False
    jobs: int | None = None
    rights: GivenRights = _AS_SOURCE
    copied: Progress | None = None
    removed: Removed | None = None


@dataclass(slots=True)
class RestoredStore:
    """A restored store. `cut`: global offset of the log's end; `report`: of the verification of the finished store.

    `waiting`: consumer group → messages in the store that it has not consumed, and will get.
    """

    manifest: Manifest
    cut: int
    messages: int
    last_time: int | None
    report: Report
    waiting: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        return self.report.exit_code or int(self.manifest.lacks)


def choose_snapshot(folder: StoreFolder, options: RestoreOptions) -> Manifest:
    """Return the snapshot to restore from: the first one that was made after the time, or that reaches the offset.

    If none does, or neither is given, it is the newest. Errors: as `StoreFolder.find`.
    """
    newest = folder.find()
    if options.until is None and options.at is None:
        return newest
    for name in folder.snapshots():
        if options.until is not None and order_of(name)[0] < name_at(options.until):
            continue
        manifest = folder.manifest(name)
        if options.at is not None and manifest.begin <= options.at <= manifest.end:
            return manifest
        complete = options.until is not None and (manifest.last_time >= options.until or manifest.end == newest.end)
        if options.until is not None and complete and manifest.time >= options.until:
            return manifest
    return newest


def restore(folder: StoreFolder, manifest: Manifest, target: Path, options: RestoreOptions) -> RestoredStore:
    """Build a store at `target`, which appears when it is complete and verified.

    Errors: OutputExists; UsageError for a place before the log's begin; Refused for a role that the snapshot cannot
    have; CouldNotCheck for an object that is missing or has another hash; NoSpace, NotReadable.
    """
    if os.path.lexists(target):
        raise OutputExists(Text("{target} already exists", target=target))
    if not any(log.files for log in manifest.logs):
        raise Refused(
            Text("{manifest}@{snapshot} has no log", manifest=manifest.name, snapshot=manifest.snapshot),
            Text("use another snapshot"),
        )
    name, dledger = f"{manifest.name}@{manifest.snapshot}", manifest.log(DLEDGER) is not None
    _check_role(name, options, dledger=dledger, epochs=manifest.layout.epochs)
    files = SnapshotFiles(folder, manifest, target.absolute())
    cut = find_cut(files, options)
    with building(target, options.removed) as place:
        work = _Build(files, place, cut, options)
        work.copy_logs()
        work.copy_others()
        work.derive()
        done = work.result()
        note = give_rights(place, target, manifest.layout.rights, options.rights)
        if note is not None:
            done.notes.append(note)
        return done


def _check_role(name: str, options: RestoreOptions, *, dledger: bool, epochs: bool) -> None:
    """Make sure that a role fits the log and the epochs of a store or a snapshot, whose name is for errors.

    Errors: Refused; UsageError for an impossible id.
    """
    role = options.role
    if role == MEMBER and not dledger:
        raise Refused(
            Text("{name} is not a DLedger store", name=name),
            Text("use another --role; `rmqstore migrate-to-dledger` converts the result"),
        )
    if options.self_id and not (dledger and is_name(options.self_id)):
        raise UsageError(
            Text("--self-id {self_id}: not the id of a DLedger member", self_id=options.self_id),
            Text("give its dLegerSelfId, such as n2"),
        )
    if role and role != MEMBER and dledger:
        raise Refused(
            Text("{name} is a DLedger store", name=name),
            Text("use --role dledger; `rmqstore migrate-to-commitlog` converts the result"),
        )
    if role == CONTROLLER and not epochs:
        raise Refused(
            Text("{name} has no epochs: its broker was in no controller group", name=name),
            Text("use another --role; a broker begins an epoch when it joins a group"),
        )


def find_cut(files: SnapshotFiles, options: RestoreOptions) -> int:
    """Return the global offset at which the restored log ends: the end of a message.

    Errors: UsageError for an offset or a time before the first message.
    """
    manifest = files.manifest
    if options.until is not None and options.at is not None:
        raise UsageError(Text("--until and --at exclude each other"), Text("leave one of them out"))
    if options.at is not None and options.at < manifest.begin:
        raise UsageError(
            Text("the log begins at {begin:,}", begin=manifest.begin), Text("give a greater --at, or an older snapshot")
        )
    cut = manifest.end
    for log in manifest.logs:
        found = _cut_in(files, log, options)
        if found is not None:
            cut = found
            break
    if cut <= manifest.begin:
        raise UsageError(
            Text("the snapshot has no message before this place"), Text("give a later one, or an older snapshot")
        )
    return cut


def _cut_in(files: SnapshotFiles, log: LogCopy, options: RestoreOptions) -> int | None:
    """Return where a log is cut; None if all of it is restored."""
    until, at = options.until, options.at
    if until is None and (at is None or at >= log.end):
        return None
    for file, mapped in zip(log.own, files.queue(log).files, strict=True):
        if (until is not None and file.last_time < until) or (at is not None and mapped.stop < at):
            continue
        end = file.start
        for run in scan_file(mapped, body_offset=log.body_offset, options=ScanOptions(crc=False)):
            columns = run.columns
            if run.kind is not Kind.RECORDS or columns is None or run.start >= log.end:
                continue
            ends = columns.offset + columns.size
            late = columns.store_timestamp >= until if until is not None else ends > (at or 0)
            if late.any():
                first = int(np.argmax(late))
                return int(columns.offset[first]) - log.body_offset if first else end
            end = int(ends[-1])
        if at is not None:
            return end
    return None


class _Build:
    """Builds one store."""

    def __init__(self, files: SnapshotFiles, place: Path, cut: int, options: RestoreOptions) -> None:
        self.files = files
        self.manifest = files.manifest
        self.place = place
        self.cut = cut
        self.options = options
        self.config = config_of(self.manifest.layout)
        self.self_id = options.self_id or self.manifest.layout.self_id
        self.notes: list[str] = [
            Text("the snapshot lacks a link of the store: {link}", link=left.words)
            for left in self.manifest.left_out
            if left.leads == Leads.OUTSIDE
        ]
        self.verified: Verified | None = None

    # --- bytes of the snapshot ------------------------------------------------------------------------------------

    def copy_logs(self) -> None:
        """Write the files of the logs up to the cut, and compare every object that is read with its hash."""
        for log in self.manifest.logs:
            folder = self.place / log_directory(log, self.self_id)
            make_directories(folder)
            for file in log.own:
                if file.start < self.cut:
                    self._log_file(log, file, folder / offset_to_file_name(file.start))

    def _log_file(self, log: LogCopy, file: LogFile, path: Path) -> None:
        """Write one file in its full size. Errors: CouldNotCheck for an object with other bytes."""
        stop = min(self.cut - file.start, log.file_size)
        storage, pieces = self.files.folder.storage, file.pieces
        whole = stop == log.file_size and len(pieces) == 1 and pieces[0].length == pieces[0].size == stop
        if self.options.take and whole and isinstance(storage, LocalStorage):
            take_file(storage.path_of(self.files.folder.key(pieces[0].object)), path, file.mtime_ns)
            return
        content = self._pieces(file, stop)
        with closing(one_ahead(content)) as ready:
            write_new_file(path, log.file_size, ready, file.mtime_ns)

    def _pieces(self, file: LogFile, stop: int) -> Iterator[memoryview]:
        """Yield the first `stop` bytes of a file; each object is read to its end, and compared with its hash."""
        storage, key = self.files.folder.storage, self.files.folder.key
        start = 0
        for piece in file.pieces:
            digest, at = hashlib.sha256(), 0
            while at < piece.size and start < stop:
                buffer = memoryview(bytearray(min(_BLOCK, piece.size - at)))  # the one before is being written
                count = storage.read_into(key(piece.object), buffer, at)
                if count <= 0:
                    break
                digest.update(buffer[:count])
                wanted = min(count, piece.length - at, stop - start - at)
                if wanted > 0:
                    yield buffer[:wanted]
                at += count
                if self.options.copied is not None:
                    self.options.copied(count)
            if start < stop and (at != piece.size or digest.hexdigest() != piece.sha256):
                raise CouldNotCheck(
                    Text("{key} is damaged: its bytes do not have the hash of the manifest", key=key(piece.object)),
                    Text("`rmqstore snapshots --check` shows which snapshots need it"),
                )
            start += piece.length

    def copy_others(self) -> None:
        """Write the other files: without the broker's identity, and without epochs and commits after the cut."""
        for other in self.manifest.others:
            name = Path(other.path).name
            if name.startswith(_IDENTITY) or (self._is_commit_file(other) and not self._has_entries):
                continue
            if name.startswith(_EPOCHS):
                self._epochs(other)
            else:
                write_new_file(self._place_of(other), other.size, self._content(other), other.mtime_ns)

    @property
    def _has_entries(self) -> bool:
        """Whether DLedger entries are restored: those of a mixed store may begin after the cut."""
        log = self.manifest.log(DLEDGER)
        return log is not None and any(file.start < self.cut for file in log.own)

    def _is_commit_file(self, other: OtherFile) -> bool:
        """Whether it is DLedger's own checkpoint with the last committed entry, or its .bak."""
        return other.path.startswith("dledger-") and Path(other.path).name in ("checkpoint", "checkpoint.bak")

    def _place_of(self, other: OtherFile) -> Path:
        """Return where a file is in the new store: the directory of a DLedger member has its id in its name.

        Its vote is kept. A member that has lost its disk does not know whether it has voted in this term, and must not
        vote for another node. Source: DLedgerLeaderElector#handleVote
        """
        before, after = (f"dledger-{self_id}" for self_id in (self.manifest.layout.self_id, self.self_id))
        path = Path(other.path)
        return self.place / (Path(after, *path.parts[1:]) if path.parts[0] == before else path)

    def _content(self, other: OtherFile) -> Iterator[bytes | int]:
        """Yield the bytes of a file, and the lengths of its runs of zeros. Errors: CouldNotCheck for other bytes."""
        with self.files.open(self.files.root / other.path) as file:
            at = 0
            for digest, length in other.chunks:
                if digest:
                    data = file.read(length, at)
                    if hashlib.sha256(data).hexdigest() != digest:
                        raise CouldNotCheck(
                            Text("{path} of the snapshot is damaged: its bytes do not have their hash", path=other.path)
                        )
                    yield data
                else:
                    yield length
                at += length

    def _epochs(self, other: OtherFile) -> None:
        if self.options.role in (MASTER, SLAVE):
            return
        found = parse_epoch_file(b"".join(piece for piece in self._content(other) if isinstance(piece, bytes)))
        entries = tuple(entry for entry in found.entries if entry.start_offset < self.cut)
        if entries:
            data = EpochFile(entries).build()
            write_new_file(self.place / other.path, len(data), [data], other.mtime_ns)

    # --- what follows from the log --------------------------------------------------------------------------------

    def derive(self) -> None:
        """Rebuild what follows from the log, then repair what still refers to messages after the cut."""
        store = self._open()
        verified = examine(store, self._options(KeptUnits()))
        for plan in plans_of(store, verified, parts_of(self.manifest)):
            carry_out(plan, self.place)
        self._verify()
        wanted = self._repairable()
        if wanted:
            store = self._open()
            try:
                plan = plan_recovery(store, examine(store, self._options()), RecoverOptions(only=wanted))
                carry_out(plan, self.place)
            except Refused as error:
                self.notes.append(Text("{wanted} remain: {message}", wanted=" ".join(wanted), message=error.message))
            self._verify()

    def _open(self) -> Store:
        store = open_store(self.place, self.config)
        store.written_by = self.manifest.layout.written_by
        return store

    def _options(self, units: KeptUnits | None = None) -> VerifyOptions:
        return VerifyOptions(jobs=self.options.jobs, broker=self.options.broker, units=units)

    def _verify(self) -> None:
        self.verified = examine(self._open(), self._options())

    def _repairable(self) -> tuple[str, ...]:
        """Return the problems of parts that refer to the log; damage of the log stays as it was in the store."""
        assert self.verified is not None
        found = problem_counts(self.verified.report)
        beside = (code for code in found if PROBLEMS[code].area is not Area.LOG and PROBLEMS[code].remedy == "recover")
        return tuple(code for code in beside if PROBLEMS[code].safe or code in _AFTER_CUT)

    # --- the result -----------------------------------------------------------------------------------------------

    def result(self) -> RestoredStore:
        """Return what was built."""
        assert self.verified is not None
        report = self.verified.report
        logs = [log for log in report.logs if log.get("messages") or log.get("entries")]
        messages = sum(int(log.get("messages") or log.get("entries") or 0) for log in logs)
        last = max((int(log.get("last_timestamp") or 0) for log in logs), default=0)
        return RestoredStore(self.manifest, self.cut, messages, last or None, report, self._waiting(), self.notes)

    def _waiting(self) -> dict[str, int]:
        """Return the messages that consumer groups have not consumed, from consumerOffset.json."""
        assert self.verified is not None
        table = config_object(LOCAL, self.place / "config" / "consumerOffset.json")
        found: dict[str, int] = {}
        states = self.verified.report.queues
        if directory_of(self._open(), OFFSETS) is not None:
            return found
        for row in committed_offsets(table or {}) or ():
            state = states.get(f"{row.topic}/{row.queue_id}")
            if state is not None and row.group:
                left = max(state.max - max(row.offset, state.min), 0)
                found[row.group] = found.get(row.group, 0) + left
        return {group: count for group, count in sorted(found.items()) if count}


_NAME = "seed"


@dataclass(frozen=True, slots=True)
class SeedOptions:
    """What the new replica will be, and how it is made.

    `self_id`: dLegerSelfId of the new member of a DLedger group.
    """

    role: str
    self_id: str = ""
    broker: str = ""
    jobs: int | None = None
    rights: GivenRights = _AS_SOURCE
    progress: Callable[[int], None] | None = None
    removed: Removed | None = None


def seed(store: Store, target: Path, options: SeedOptions) -> RestoredStore:
    """Build a replica of a store, which may be in use, at `target`.

    Errors: those of `back_up` and `restore`; UsageError for a new member without an id of its own.
    """
    if store.dledger is not None and options.role == MEMBER and options.self_id in ("", store.dledger.self_id):
        raise UsageError(
            Text("a new member of a DLedger group needs its own id"),
            Text("give its dLegerSelfId with --self-id, such as n2"),
        )
    how = RestoreOptions(
        role=options.role,
        self_id=options.self_id,
        broker=options.broker,
        jobs=options.jobs,
        rights=options.rights,
        take=True,
        removed=options.removed,
    )
    _check_role(str(store.path), how, dledger=store.dledger is not None, epochs=_EPOCHS in store.top)
    home = target.absolute().with_name(f".{target.name}.seeding")
    if home.is_dir() and options.removed is not None:
        options.removed(home)
    remove_left(home)
    try:
        folder = Repository.open_or_create(LocalStorage(home)).of(_NAME)
        made = back_up(store, folder, BackupOptions(progress=options.progress))
        return restore(folder, made.manifest, target, how)
    finally:
        remove_left(home)
