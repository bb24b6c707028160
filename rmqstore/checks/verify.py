"""verify: everything that can be wrong with a store, in one pass over its log, as a Report."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from rmqstore.checks.batchqueue import check_batch_queues
from rmqstore.checks.checkpoint import LogEnd, check_checkpoint
from rmqstore.checks.commitlog import (
    LogResult,
    UnitKeeper,
    check_log,
    check_queue_offsets,
    end_of_log,
    reach_of,
    read_log,
)
from rmqstore.checks.commitlog import join_queues as _join_queues
from rmqstore.checks.committed import committed_end
from rmqstore.checks.compaction import check_compaction
from rmqstore.checks.config import ConfigFacts, check_config
from rmqstore.checks.consumequeue import Logs, check_consume_queues, check_queues_alone
from rmqstore.checks.consumequeue_ext import check_queue_extensions
from rmqstore.checks.directory import DirectoryFacts, check_directory
from rmqstore.checks.dledger import check_dledger, check_dledger_texts
from rmqstore.checks.entry_tally import EntryTally
from rmqstore.checks.index import check_index
from rmqstore.checks.index_catalog import IndexCatalog
from rmqstore.checks.index_tally import IndexTally
from rmqstore.checks.log_pass import PassOptions, batch_topics
from rmqstore.checks.misplaced import Misplaced, find_misplaced
from rmqstore.checks.narrowing import Narrowing
from rmqstore.checks.problems import Severity
from rmqstore.checks.report import Finding, Findings, QueueState, Report
from rmqstore.checks.rocksdb import check_rocksdb_queues, look_into_rocksdb
from rmqstore.checks.timer import LogRange, TimerFacts, check_timer
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.store import QueueKind, Store, StoreKind, open_store
from rmqstore.scan.resync import ENTRY_SIZE
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import Mapper, jobs_or_default


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """How to verify.

    `jobs` processes (None: all cores); `quick` leaves body CRCs out; `only` these codes; `broker` whose rules the
    forecast follows; `max_rate` bytes per second; `sink` gets every finding as it is made; `progress` gets bytes done.
    `topics`, `queues` keep findings about these; `since`, `until` (ms of store time) read only the files that can hold
    such messages; `max_duration` (s) ends the reading early, `start_at` (log name -> offset, as `Report.resume_at`
    says) goes on from there. `units` gets the units that the messages should have. Whatever is left
    out is never taken for clean.
    """

    jobs: int | None = None
    quick: bool = False
    only: tuple[str, ...] = ()
    broker: str = ""
    max_rate: int = 0
    split_size: int | None = None
    keep: int = 10_000
    sink: Callable[[Finding], None] | None = None
    progress: Callable[[int], None] | None = None
    settings: tuple[tuple[str, str], ...] = ()
    topics: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()  # "ID" or "TOPIC/ID"
    since: int | None = None
    until: int | None = None
    max_duration: float | None = None
    start_at: Mapping[str, int] | None = None
    units: UnitKeeper | None = None


@dataclass(slots=True)
class Verified:
    """A report and what repairs and the forecast need beside it.

    Where files of the log stand under wrong names and can go back, all of it is said of `misplaced.store`.
    """

    report: Report
    logs: Logs
    legacy: LogResult | None = None
    dledger: LogResult | None = None
    directory: DirectoryFacts | None = None
    config: ConfigFacts = field(default_factory=ConfigFacts)
    index: IndexCatalog | None = None
    timer: TimerFacts | None = None
    misplaced: Misplaced | None = None
    units: UnitKeeper | None = None


def verify(store: Store, options: VerifyOptions | None = None, mapper: Mapper | None = None) -> Report:
    """The report of a store or a part of one.

    Errors: OSError only for a directory that vanishes meanwhile; bad bytes are findings.
    """
    report = examine(store, options, mapper).report
    if report.live and report.findings.worst is not None and report.findings.worst >= Severity.WARNING:
        time.sleep(1)  # a broker wrote while we read: only what is there again a moment later is so
        _keep_lasting(report, examine(open_store(store.path, store.config), options, mapper).report)
    return report


def _keep_lasting(report: Report, again: Report) -> None:
    """Leave findings out that a second look at a live store does not show in the same place."""
    seen = {(f.code, f.queue, f.offset) for f in again.findings.listed}
    findings = report.findings
    kept = [f for f in findings.listed if f.severity < Severity.WARNING or (f.code, f.queue, f.offset) in seen]
    gone = Counter(f.code for f in findings.listed) - Counter(f.code for f in kept)
    findings.listed = kept
    findings.counts -= gone


def examine(store: Store, options: VerifyOptions | None = None, mapper: Mapper | None = None) -> Verified:
    """Verify, and keep the tilings and queues for a planner. `mapper` reads the log in place of `jobs` processes."""
    options = options or VerifyOptions()
    started = time.monotonic()
    findings = Findings(keep=options.keep, sink=options.sink)
    report = Report(str(store.path), store.kind.value, findings)
    report.live = store.kind is not StoreKind.PART and store.is_live()
    misplaced = find_misplaced(store)
    misplaced.report(findings)
    on_disk, store = store, misplaced.store
    rows = look_into_rocksdb(store)
    config = check_config(store, Findings(keep=0), rocksdb=rows.tables)
    directory = check_directory(
        store, findings, queue_types=config.queue_types, live=report.live, looked_into=rows.directories
    )
    report.unchecked.extend(rows.unchecked)
    report.unchecked.extend(directory.unchecked)
    report.unchecked.extend(config.unchecked)
    report.notes.extend(directory.notes)

    crosscheck = rows.queues if store.kind is StoreKind.ROCKSDB else store.part is None and _has_queues(store)
    passing = PassOptions(
        store.path,
        tuple(sorted(store.config.given.items())),
        ScanOptions(crc=not options.quick, drop_cache=report.live, max_rate=options.max_rate),
        crosscheck=crosscheck,
        forecast=store.kind is not StoreKind.PART,
        batch_topics=batch_topics(store)
        | frozenset(t for t, kind in (config.queue_types or {}).items() if kind == "BatchCQ"),
        keep=options.keep,
    )
    queues = [q for q in (store.commitlog, store.dledger.data if store.dledger else None) if q is not None and q.files]
    catalog = None
    if store.index_files:
        catalog = check_index(store, findings, live=report.live)
        report.unchecked.extend(catalog.unchecked)
        passing = replace(passing, index=catalog if queues else None)
    jobs = jobs_or_default(options.jobs)
    verified = Verified(report, Logs([]), directory=directory, config=config, index=catalog)
    verified.misplaced, verified.units = misplaced, options.units
    narrow = Narrowing(options.since, options.until, options.start_at)
    deadline = started + options.max_duration if options.max_duration else None
    for queue in queues:
        lead = ENTRY_SIZE if queue.name == "dledger" else 0
        part = queue if narrow.is_whole else narrow.of(queue, lead)
        if not part.files:
            continue
        result = read_log(
            part,
            _bounded(passing, part, lead, report.live),
            findings,
            lead=lead,
            jobs=jobs,
            split_size=options.split_size,
            progress=options.progress,
            mapper=mapper,
            deadline=deadline,
            units=options.units,
        )
        if lead:
            verified.dledger = result
        else:
            verified.legacy = result
        if result.cut_at is not None:
            report.resume_at = {queue.name: result.cut_at}
            break
    results = [r for r in (verified.legacy, verified.dledger) if r is not None]
    partial = _left_out(options, narrow, report)
    if partial is not None:
        report.unchecked.append(partial)
    committed = None
    if store.dledger is not None:
        committed = committed_end(store.dledger, verified.dledger.tiling if verified.dledger else None)
    for result in results:
        check_log(result, findings, last_part=result is results[-1] and partial is None)
        if result.unreadable:
            report.unchecked.append(f"{result.queue.name}: the disk gave an error; what lies behind it was not read")
    if catalog is not None and queues:
        if report.live or partial is not None or not results:  # what was read may not be all
            reach = end_of_log(queues[-1], ENTRY_SIZE if queues[-1].name == "dledger" else 0)
        else:
            reach = reach_of(results[-1].tiling)
        catalog.check_end(reach, findings)
    if catalog is not None and store.config.bool("messageIndexEnable") and partial is None:
        tally = IndexTally()
        for result in results:
            tally.merge(result.index)
        catalog.report(tally, findings, committed)
    topics = frozenset(config.queue_types) if config.queue_types is not None else None
    verified.logs = Logs(results, topics, lag_is_normal=store.abort or report.live, queues=_join_queues(results))
    verified.logs.grows = report.live or partial is not None
    verified.logs.committed = committed
    _numbers(report, verified)
    states: dict[str, QueueState] = {}
    if crosscheck and results:
        if store.kind is StoreKind.ROCKSDB:
            in_rows = check_rocksdb_queues(store, verified.logs, findings)
            states = in_rows.states
            report.unchecked.extend(in_rows.unchecked)
            report.notes.extend(in_rows.notes)
        else:
            states = check_consume_queues(store, verified.logs, findings)
        states.update(check_batch_queues(store, verified.logs, findings))
    elif store.kind is StoreKind.PART and not results:
        states = check_queues_alone(store, findings)
        if states:
            report.notes.append("the log is not part of this: units were checked by themselves, not against messages")
    alone = check_queues_alone(store, Findings(keep=0)) if not results and store.kind is StoreKind.PLAIN else {}
    units = sum(s.max for s in (states if results else alone).values())
    if units and not any(r.messages for r in results) and partial is None:
        name, at = (results[-1].queue.name, results[-1].min_offset) if results else ("commitlog", 0)
        findings.add(Finding("CL-NO-MESSAGES", name, "", at, 0, {"units": units}))
    if crosscheck:
        check_queue_extensions(store, findings)
    report.queues = states
    for result in results:
        check_queue_offsets(result, findings, verified.logs.misfiled)
    last = results[-1] if results else None
    end = LogEnd(max(0, *(r.latest for r in results)), last.reaches) if last is not None else None
    check_checkpoint(store, end if partial is None else None, findings, live=report.live)
    verified.config = check_config(
        store,
        findings,
        queue_range=_range_of(states) if partial is None else None,
        slave=store.config.role == "slave",
        live=report.live,
        rocksdb=rows.tables,
    )
    if store.dledger is not None and partial is None:
        entries = verified.dledger.entries if verified.dledger is not None else EntryTally()
        tiling = verified.dledger.tiling if verified.dledger is not None else None
        if verified.dledger is not None and entries.entries:  # wrong entries at the end are there, and said
            last_index = entries.last_index + verified.dledger.damaged_tail
            entries = replace(entries, last_index=last_index, end=max(entries.end, verified.dledger.reaches))
        group = check_dledger(store, store.dledger, entries, findings, tiling=tiling, live=report.live)
        if report.dledger is not None:
            report.dledger |= {"group_dir": group.group_dir, "committed_index": group.committed_index}
    elif store.part in ("dledger-checkpoint", "currterm"):
        check_dledger_texts(store, findings)
    span = LogRange(min(r.min_offset for r in results), last.reaches) if last is not None else None
    slave = store.config.role == "slave"
    if partial is None:
        verified.timer = check_timer(
            store, span, findings, queue_range=_range_of(states), slave=slave, live=report.live
        )
        check_compaction(store, findings, live=report.live)
        if store.kind is not StoreKind.PART and results:
            from rmqstore.checks.verdict import add_verdict  # the brokers: a sixth of the start of a look at a part

            add_verdict(on_disk, verified, options)
    _only(report, options)
    report.seconds = time.monotonic() - started
    return verified


def _range_of(states: dict[str, QueueState]) -> Callable[[str, int], tuple[int, int] | None] | None:
    """(min, max) of a queue as the log asks for it; None when no queue was compared."""
    ranges = {k: (v.min, max(v.max, v.expected_max)) for k, v in states.items()}
    return (lambda topic, queue_id: ranges.get(f"{topic}/{queue_id}")) if ranges else None


def _bounded(passing: PassOptions, queue: MappedFileQueue, lead: int, live: bool) -> PassOptions:
    """Beside a live broker the log's end is found first and bounds everything."""
    return replace(passing, stop_before=end_of_log(queue, lead)) if live else passing


def _has_queues(store: Store) -> bool:
    """Whether consume queues are to be compared: a whole store with a log, also when all its queues are gone."""
    if (store.root / "consumequeue").is_dir():
        return True
    return any(True for _ in store.queue_directories(QueueKind.BATCH)) or (store.root / "config").is_dir()


def _span(result: LogResult) -> dict[str, int]:
    """Store times of the first and the youngest message, ms; nothing for a log without messages."""
    if not result.messages:
        return {}
    return {"first_timestamp": result.first_time, "last_timestamp": result.max_time}


def _numbers(report: Report, verified: Verified) -> None:
    legacy, entries = verified.legacy, verified.dledger
    if legacy is not None:
        report.commitlog = {
            "min_offset": legacy.min_offset,
            "wrote": legacy.wrote,
            "next_append": legacy.next_append,
            "files": len(legacy.queue.files),
            "messages": legacy.messages,
            "bytes": legacy.bytes,
            "file_size": legacy.queue.file_size,
            **_span(legacy),
        }
    if entries is not None:
        report.dledger = {
            "group_dir": "",
            "first_index": entries.entries.first_index,
            "last_index": entries.entries.last_index,
            "term": entries.entries.last_term,
            "first_pos": entries.min_offset,
            "wrote": entries.wrote,
            "committed_index": None,
            "entries": entries.messages + entries.entries.internal,
            "files": len(entries.queue.files),
            **_span(entries),
        }


def _left_out(options: VerifyOptions, narrow: Narrowing, report: Report) -> str | None:
    """Words for what of the log was not read; None when all of it was."""
    if report.resume_at is not None:
        name, at = next(iter(report.resume_at.items()))
        return f"{name} from offset {at} on: the time was up; --resume goes on there"
    if options.start_at:
        return "what an earlier run read before: this one went on from there"
    if not narrow.is_whole:
        return "messages outside of the time range asked for"
    return None


def _about(finding: Finding, topics: frozenset[str], queues: frozenset[str]) -> bool:
    """Whether a finding is about one of the topics and queues asked for."""
    topic, _, queue_id = finding.queue.rpartition("/")
    if not topic:
        topic, queue_id = str(finding.facts.get("topic", "")), str(finding.facts.get("queue_id", ""))
    if topics and topic not in topics:
        return False
    return not queues or queue_id in queues or f"{topic}/{queue_id}" in queues


def _only(report: Report, options: VerifyOptions) -> None:
    """Keep the codes asked for; leaving codes out, or body CRCs, is never taken for clean."""
    if options.only:
        findings = report.findings
        wanted = set(options.only)
        findings.listed = [f for f in findings.listed if f.code in wanted]
        for code in [c for c in findings.counts if c not in wanted]:
            del findings.counts[code]
        report.unchecked.append("only these codes were asked for: " + " ".join(sorted(wanted)))
    if options.topics or options.queues:
        findings = report.findings
        kept = [f for f in findings.listed if _about(f, frozenset(options.topics), frozenset(options.queues))]
        findings.counts -= Counter(f.code for f in findings.listed) - Counter(f.code for f in kept)
        findings.listed = kept
        asked = " ".join((*options.topics, *options.queues))
        report.unchecked.append(f"findings about anything but {asked}")
    if options.quick:
        report.unchecked.append("body CRCs (--quick)")
