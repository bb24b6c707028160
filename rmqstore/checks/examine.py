"""Find everything that is wrong with a store (`verify.py`), and tell what its next start would do (`verdict.py`).

On a live store, only what two examinations find in the same place counts.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, runtime_checkable

from rmqstore.checks.log.commitlog import UnitKeeper
from rmqstore.checks.log.logs import Logs
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems.report import Finding, Findings, Report
from rmqstore.checks.problems.table import Severity
from rmqstore.checks.verified import Verified
from rmqstore.checks.verify import Examination
from rmqstore.files.recognise import store_above
from rmqstore.files.store import Store, StoreKind, open_store, while_files_expire
from rmqstore.scan.workers import Mapper
from rmqstore.texts import Text

NO_BODY_CRCS = Text("body CRCs (--quick)")


def verify(store: Store, options: VerifyOptions | None = None, mapper: Mapper | None = None) -> Report:
    """Verify a store or a part of one.

    Errors: OSError only if a directory vanishes meanwhile; bad bytes are findings.
    """
    return while_files_expire(store, lambda store: examine_lasting(store, options, mapper))[1].report


@runtime_checkable
class ReadsLogFirst(Protocol):
    """Files that derive parts of a store from its log, and so read the log before these parts are verified."""

    def read_first(self, options: VerifyOptions, mapper: Mapper | None) -> VerifyOptions:
        """Read the log; return options with which to verify the store without reading the log again."""


def examine_named(store: Store, options: VerifyOptions, mapper: Mapper | None = None) -> tuple[Store, Verified]:
    """Examine a store, whose files may expire meanwhile, or a snapshot. Return also the store as it was listed last.

    The log of a snapshot, from which its other parts are derived, is read once. `mapper` replaces the `jobs`
    processes. Errors: as `examine`.
    """
    partly = not options.reads_whole_log or options.max_duration is not None or options.last_run is not None
    files = store.files
    how = files.read_first(options, mapper) if isinstance(files, ReadsLogFirst) and not partly else options
    return while_files_expire(store, lambda look: examine_lasting(look, how, mapper))


def examine_lasting(
    store: Store,
    options: VerifyOptions | None = None,
    mapper: Mapper | None = None,
    *,
    keep_units: Callable[[], UnitKeeper] | None = None,
) -> tuple[Store, Verified]:
    """Examine a store; if a broker is running on it, do so twice, and keep only findings that recur in the same place.

    Return the store as it was listed for the last run, and its result. `keep_units` makes `units` for each run.
    """
    options = options or VerifyOptions()
    sink = None
    if options.sink is not None and store.part is None and store.is_live():
        sink, options = options.sink, replace(options, sink=None)

    def run() -> Verified:
        return _examine(store, options if keep_units is None else replace(options, units=keep_units()), mapper)

    verified = run()
    if verified.report.live and verified.report.has_problems:
        time.sleep(1)  # what the broker was writing will be complete
        first, expiring = verified, store.expiring
        store = open_store(store.path, store.config, store.files)
        store.expiring = expiring
        verified = run()
        _keep_lasting(verified.report, first.report)
    if sink is not None:
        for finding in verified.report.findings.listed:
            sink(finding)
    return store, verified


def _examine(store: Store, options: VerifyOptions, mapper: Mapper | None) -> Verified:
    """Call `examine`. Errors: FileNotFoundError if the broker deleted everything that was read meanwhile."""
    verified = examine(store, options, mapper)
    logs = verified.logs
    expired = logs.min_offset > logs.wrote or (store.expiring and not any(log.messages for log in logs.results))
    if verified.report.live and any(log.queue.files for log in logs.results) and expired:
        raise FileNotFoundError(errno.ENOENT, Text("every file that was read has expired"), str(store.path))
    return verified


def _keep_lasting(report: Report, first: Report) -> None:
    """Remove problems that the first run over a live store did not find in the same place."""
    seen = {(f.code, f.queue, f.offset) for f in first.findings.listed}
    findings = report.findings
    kept = [f for f in findings.listed if f.severity < Severity.WARNING or (f.code, f.queue, f.offset) in seen]
    findings.retain(kept)


def examine(store: Store, options: VerifyOptions | None = None, mapper: Mapper | None = None) -> Verified:
    """Verify a store, and keep tilings and queues for planners. `mapper` replaces the `jobs` processes."""
    options = options or VerifyOptions()
    report = Report(
        str(store.path), store.kind.value, Findings(keep=options.keep, sink=options.sink), config=store.config.source
    )
    if store.kind is StoreKind.PART:
        report.whole = str(store_above(store.files, store.path, store.config) or "")
    report.live = store.kind is not StoreKind.PART and store.is_live()
    examination = Examination(store, options, Verified(report, Logs([]), known=options.last_run), mapper)
    examination.run()
    if (entries := examination.verified.dledger) is not None:
        from rmqstore.brokers.dledger_nodes import written_by_newer

        report.newer_dledger = written_by_newer(store, entries.tiling)
    if examination.tells_next_start:
        from rmqstore.checks.verdict import add_verdict

        add_verdict(examination.on_disk, examination.verified, options)
    _leave_out(report, options)
    report.seconds = time.monotonic() - examination.started
    return examination.verified


def _about(finding: Finding, topics: frozenset[str], queues: frozenset[str]) -> bool:
    """Return whether a finding concerns one of the topics and queues; an empty set matches all."""
    topic, _, queue_id = finding.queue.rpartition("/")
    if not topic:
        topic, queue_id = str(finding.facts.get("topic", "")), str(finding.facts.get("queue_id", ""))
    if topics and topic not in topics:
        return False
    return not queues or queue_id in queues or f"{topic}/{queue_id}" in queues


def _leave_out(report: Report, options: VerifyOptions) -> None:
    """Leave out findings that the options exclude, and say so: such a report is never clean."""
    findings = report.findings
    if options.only:
        wanted = set(options.only)
        findings.listed = [f for f in findings.listed if f.code in wanted]
        for code in [c for c in findings.counts if c not in wanted]:
            del findings.counts[code]
        report.unchecked.append(Text("all problems except {wanted}", wanted=" ".join(sorted(wanted))))
    if options.topics or options.queues:
        topics, queues = frozenset(options.topics), frozenset(options.queues)
        findings.retain([f for f in findings.listed if _about(f, topics, queues)])
        asked = " ".join((*options.topics, *options.queues))
        report.unchecked.append(Text("findings about anything but {asked}", asked=asked))
    if options.quick:
        report.unchecked.append(NO_BODY_CRCS)
