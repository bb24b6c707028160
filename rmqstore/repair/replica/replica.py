"""A replica: another node's store, or an older copy of the same store; what its queues and index say of its records.

No CRC covers the properties of most records. In the replica too, only the tags code of a queue's unit and the key
hashes of the index show that they are damaged. These are the checks of `verify`, made with the replica's own files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from rmqstore.checks.beside.dledger import committed_end, committed_index
from rmqstore.checks.beside.index import check_index
from rmqstore.checks.filler_notes import filler_offsets
from rmqstore.checks.index.catalog import IndexCatalog
from rmqstore.checks.index.tally import Contradicted
from rmqstore.checks.log.commitlog import LogResult, PassWork, read_log
from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.checks.log.log_pass import PassOptions
from rmqstore.checks.log.logs import Logs
from rmqstore.checks.problems.report import Finding, Findings, Report, tags_in_doubt
from rmqstore.errors import NotAStore, Refused, UsageError
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.config import batch_topics
from rmqstore.files.files import LOCAL
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue, message_at
from rmqstore.files.recognise import kind_of_file
from rmqstore.files.store import Store, StoreKind, open_store
from rmqstore.formats import dledger
from rmqstore.formats.message import BLANK_SIZE, Fault, Message, build_blank, check_message, fits_record_crc
from rmqstore.repair.repaired_log import Span, joined, meets, overlapping, without
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import jobs_or_default
from rmqstore.texts import Text


@dataclass
class ReplicaWitnesses:
    """What the pass over some log files of a replica found, by global offset of the record (in DLedger of the message).

    `entries`: records that their index entries contradict. `units`: records that the tags code of their unit
    contradicts. `text`: records with properties or a topic that no writer produces.
    """

    result: LogResult
    catalog: IndexCatalog | None
    entries: dict[int, Contradicted] = field(default_factory=dict)
    units: dict[int, Finding] = field(default_factory=dict)
    text: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, result: LogResult, catalog: IndexCatalog | None, findings: Sequence[Finding]) -> ReplicaWitnesses:
        """Return what a pass says about the records of its log."""
        out = cls(result, catalog, dict(result.index.contradicted))
        for finding in findings:
            at = finding.facts.get("commitlog_offset")
            if tags_in_doubt(finding) and isinstance(at, int):
                out.units[at] = finding
            elif finding.problem.alters_keys and finding.queue == result.name:
                out.text.add(finding.offset + result.body_offset)
        return out

    @cached_property
    def spans(self) -> list[Span]:
        """The ranges of all records with damaged properties."""
        found = ((at, message_at(self.result.queue, at)) for at in (*self.entries, *self.units, *self.text))
        return joined((at - self.result.body_offset, at + one.size) for at, one in found if one is not None)

    def confirm_keys(self, at: int) -> bool:
        """Return whether the index has entries for a record, and they fit its keys."""
        if self.catalog is None or at in self.entries:
            return False
        return len(self.catalog.hashes(at, at + 1)[0]) > 0

    def confirm_tags(self, at: int, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Return whether a queue has the unit of a record, with the tags code of its TAGS."""
        return at not in self.units and has_unit(self.result, topic, queue_id, queue_offset)


def has_unit(result: LogResult, topic: str, queue_id: int, queue_offset: int) -> bool:
    """Return whether a queue has a unit that points to the message with a queue offset."""
    part = result.queues.get((topic, queue_id))
    return part is not None and part.has_unit(queue_offset)


_LEADS = (0, dledger.ENTRY.size)
_LAST_FILES = 3
_SMALL = 8 << 30  # bytes of log that are quickly read
_END = 1 << 62  # offset beyond every log


@dataclass(slots=True)
class Replica:
    """One replica; `name` is the path that the user gave. `own`: it is a copy of one of the store's own files."""

    name: str
    store: Store
    jobs: int | None = None
    own: bool = False
    _logs: dict[int, ReplicaLog | None] = field(default_factory=dict)
    _index: IndexCatalog | None = None

    def log(self, body_offset: int) -> ReplicaLog | None:
        """Return its commitlog (`body_offset` 0) or its DLedger data (48); None if it has no file of that log."""
        if body_offset not in self._logs:
            queue = log_of(self.store, body_offset)
            self._logs[body_offset] = ReplicaLog(self, queue, body_offset) if queue is not None else None
        return self._logs[body_offset]

    def index(self, *, live: bool) -> IndexCatalog | None:
        """Return its index, which is read once."""
        if self._index is None and self.store.index_files:
            self._index = check_index(self.store, Findings(keep=0), live=live)
        return self._index

    @property
    def damaged(self) -> bool:
        """Return whether its own log is damaged before its end; False for a log too large to read only for a hint."""
        if sum(queue.bytes_on_disk for queue in _logs(self.store)) > _SMALL:
            return False
        read = (log.witnesses([(0, _END)]) for lead in _LEADS if (log := self.log(lead)) is not None)
        results = [found.result for found in read if found is not None]
        bad = (Kind.DIRTY, Kind.ZERO, Kind.HOLE)
        return any(run.kind in bad and run.start < result.wrote for result in results for run in result.tiling)


class ReplicaLog:
    """A log of a replica, of the same kind as the one that it is compared with. Offsets are global."""

    def __init__(self, replica: Replica, queue: MappedFileQueue, body_offset: int) -> None:
        self.replica = replica
        self.name, self.store = replica.name, replica.store
        self.queue = queue
        self.body_offset = body_offset
        self._read: dict[frozenset[int], ReplicaWitnesses] = {}  # by starts of files
        self._sound: dict[int, list[Span]] = {}

    def bytes_at(self, start: int, stop: int) -> bytes:
        """Read bytes [start, stop); fewer if a file ends early or is missing."""
        return self.queue.pread(stop - start, start)

    def sound_record(self, start: int) -> Message | None:
        """Return the message of the record (in DLedger of the entry) at an offset; None unless it is sound."""
        at = start + self.body_offset
        message = message_at(self.queue, at)
        if message is None or check_message(message, at) is not Fault.NONE:
            return None
        raw = self.bytes_at(start, at + message.size)
        if not fits_record_crc(raw, self.body_offset):
            return None
        if self.body_offset:
            entry = dledger.ENTRY.parse(raw)
            if (entry["magic"], entry["pos"], entry["size"]) != (dledger.MAGIC, start, len(raw)):
                return None
        return message

    def sound(self, wanted: Sequence[Span]) -> list[Span]:
        """Return runs of good records in the files with the wanted bytes, without fillers of earlier repairs."""
        found = self.witnesses(wanted)
        if found is None:
            return []
        result = found.result
        if id(result) not in self._sound:
            runs = [(r.start, r.stop) for r in result.tiling if r.kind is Kind.RECORDS and r.start < result.wrote]
            self._sound[id(result)] = without(runs, filler_spans(self.store, result))
        return self._sound[id(result)]

    def has_sound(self, low: int, high: int) -> bool:
        """Return whether good records are in a range."""
        return bool(overlapping(self.sound([(low, high)]), low, high))

    def doubtful(self, span: Span) -> bool:
        """Return whether a range meets a record whose properties its own queues or index contradict."""
        found = self.witnesses([span])
        return found is not None and meets(span, found.spans)

    def end(self, since: int) -> int:
        """Return the end of the log, at least `since`."""
        found = self.witnesses([(since, _END)])
        return since if found is None else max(found.result.wrote, since)

    def committed_end(self, since: int) -> int:
        """Return the end of the log, at least `since`; in DLedger data, of the entries known to be committed."""
        found, group = self.witnesses([(since, _END)]), self.store.dledger
        if found is None or not self.body_offset or group is None:
            return self.end(since)
        result, index = found.result, committed_index(group)
        if index is not None and index >= result.entries.last_index:  # the last committed one may be lost after it
            return max(result.wrote, since)
        return max(min(result.wrote, committed_end(group, result.tiling) or since), since)

    def last_sound(self, before: int) -> int:
        """Return the end of the last good record in the last files that start before an offset; `before` if none is."""
        files = [f for f in self.queue.files if f.start < before]
        for file in files[: -_LAST_FILES - 1 : -1]:  # a broker creates files ahead
            if runs := overlapping(self.sound([(file.start, file.stop)]), file.start, file.stop):
                return runs[-1][1]
        return before

    def witnesses(self, wanted: Sequence[Span]) -> ReplicaWitnesses | None:
        """Read the files with the wanted bytes, and perhaps others; None if it has no such file."""
        wanted = joined(wanted)
        files = [f for f in self.queue.files if overlapping(wanted, f.start, f.stop)]
        starts = frozenset(f.start for f in files)
        read = next((found for have, found in self._read.items() if starts <= have), None)
        if read is None and files:
            read = self._read[starts] = self._pass(files)
        return read

    def _pass(self, files: Sequence[MappedFile]) -> ReplicaWitnesses:
        """Read some of the files, without those that a broker deletes meanwhile."""
        store, queue, live = self.store, self.queue, self.store.is_live()
        index = self.replica.index(live=live)
        passing = PassOptions(
            store.path,
            tuple(sorted(store.config.given.items())),
            ScanOptions(drop_cache=True),
            crosscheck=_has_units(store, live=live),
            files=store.files,
            live=live,
            batch_topics=batch_topics(store, None),
            levels=delay_levels(store),
            index=index,
        )
        while True:
            part = MappedFileQueue(queue.name, queue.directories, queue.file_size, files)
            work = PassWork(jobs_or_default(self.replica.jobs, part.bytes_on_disk))
            findings = Findings()
            try:
                result = read_log(part, passing, findings, body_offset=self.body_offset, work=work)
                return ReplicaWitnesses.of(result, index, findings.listed)
            except FileNotFoundError:
                left = [f for f in files if f.files.exists(f.path)]
                if len(left) < len(files):
                    files = left
                elif passing.crosscheck or passing.index is not None:  # a file of a queue or of the index expired
                    passing = replace(passing, crosscheck=False, index=None)
                else:
                    raise


def _has_units(store: Store, *, live: bool) -> bool:
    """Return whether the consume queues of a replica can be compared with its log."""
    if store.part is not None or store.kind is not StoreKind.ROCKSDB:
        return store.part is None
    from rmqstore.checks.queues.rocksdb import open_rocksdb

    return not live and open_rocksdb(store, Report(str(store.path), store.kind.value, Findings(keep=0))).queues


def closes_file(queue: MappedFileQueue, body_offset: int, at: int, stop: int) -> bool:
    """Return whether the bytes from `at` to `stop`, the end of a file of a log, are a valid BLANK."""
    if stop - at < BLANK_SIZE:
        return stop == at
    wanted = dledger.build_blank(stop - at) if body_offset else build_blank(stop - at)
    return queue.pread(BLANK_SIZE, at) == wanted[:BLANK_SIZE]


def log_of(store: Store, body_offset: int) -> MappedFileQueue | None:
    """Return a store's commitlog (`body_offset` 0) or its DLedger data (48); None if it has no file of that log."""
    group = store.dledger
    queue = (group.data if group is not None else None) if body_offset else store.commitlog
    return queue if queue is not None and queue.files else None


def filler_spans(store: Store, result: LogResult) -> list[Span]:
    """Return the fillers of earlier repairs in a log, as joined ranges of records or entries."""
    spans = []
    for at in filler_offsets(store, Logs([result])):
        message = message_at(result.queue, at)
        if message is not None:
            spans.append((at - result.body_offset, at + message.size))
    return joined(spans)


def open_replica(path: Path, sizes: Mapping[str, str], *, jobs: int | None = None) -> Replica:
    """Open a replica by its directory, or by a broker.conf; `sizes` are file sizes if they cannot be determined.

    Errors: NotReadable, NotAStore; BadBrokerConfig; UsageError for a broker.conf without storePathRootDir.
    """
    config, root = BrokerConfig(sizes), path
    if LOCAL.is_file(path) and not kind_of_file(LOCAL, path):
        config = BrokerConfig.read(path)
        given = config.given.get("storePathRootDir", "").strip()
        if not given:
            raise UsageError(
                Text("{path} does not set storePathRootDir", path=path),
                Text("give the directory of the replica's store"),
            )
        root = Path(given)
    return Replica(str(path), open_store(root, config), jobs)


def refuse_same(store: Store, replica: Replica) -> None:
    """Errors: Refused if the replica is the store itself, or shares a log file with it; NotAStore without a log."""
    if not _logs(replica.store):
        raise NotAStore(
            Text("{replica} has no file of a log", replica=replica.name), Text("give the replica's storePathRootDir")
        )
    own = {_identity(f) for queue in _logs(store) for f in queue.files}
    theirs = {_identity(f) for queue in _logs(replica.store) for f in queue.files}
    if own & theirs - {None}:
        raise Refused(
            Text("{replica} and {path} share their log files", replica=replica.name, path=store.path),
            Text("give another copy of the store"),
        )


def _logs(store: Store) -> list[MappedFileQueue]:
    return [queue for body_offset in _LEADS if (queue := log_of(store, body_offset)) is not None]


def _identity(file: MappedFile) -> tuple[int, int, int] | None:
    """Return what identifies a file and the addresses that it is read for; None if it cannot be read."""
    found = file.files.identity(file.path)
    return None if found is None else (found.device, found.inode, file.start)
