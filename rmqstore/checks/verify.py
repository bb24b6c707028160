"""verify: everything that can be wrong with a store, in one pass over its log, as a Report."""

from __future__ import annotations

import errno
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from rmqstore.checks.examination import Examination
from rmqstore.checks.expiring import while_files_expire
from rmqstore.checks.log.commitlog import UnitKeeper
from rmqstore.checks.log.logs import Logs
from rmqstore.checks.problems.report import Finding, Findings, Report
from rmqstore.checks.problems.table import PROBLEMS, Severity
from rmqstore.checks.verified import Verified as Verified
from rmqstore.checks.verified import VerifyOptions as VerifyOptions
from rmqstore.files.recognise import store_above
from rmqstore.files.store import Store, StoreKind, open_store
from rmqstore.scan.workers import Mapper

NO_BODY_CRCS = "body CRCs (--quick)"


def verify(store: Store, options: VerifyOptions | None = None, mapper: Mapper | None = None) -> Report:
    """The report of a store or a part of one.

    Errors: OSError only for a directory that vanishes meanwhile; bad bytes are findings.
    """
    return while_files_expire(store, lambda look: examine_lasting(look, options, mapper))[1].report


def examine_lasting(
    store: Store,
    options: VerifyOptions | None = None,
    mapper: Mapper | None = None,
    *,
    keep_units: Callable[[], UnitKeeper] | None = None,
) -> tuple[Store, Verified]:
    """`examine`; beside a live broker twice, and only what both looks found in the same place is kept.

    The store is the one that the kept look was made at. `keep_units` makes the `units` of each look.
    """
    options = options or VerifyOptions()
    sink = None
    if options.sink is not None and store.part is None and store.is_live():
        sink, options = options.sink, replace(options, sink=None)
    verified = _examine(store, _with_units(options, keep_units), mapper)
    if verified.report.live and finds(verified.report):
        time.sleep(1)  # what a broker wrote while we read is there a moment later
        first, store = verified, _again(store)
        verified = _examine(store, _with_units(options, keep_units), mapper)
        _keep_lasting(verified.report, first.report)
    if sink is not None:
        for finding in verified.report.findings.listed:
            sink(finding)
    return store, verified


def _examine(store: Store, options: VerifyOptions, mapper: Mapper | None) -> Verified:
    """`examine`, unless the broker deleted all that was read meanwhile.

    Errors: FileNotFoundError, as for a single file that has expired.
    """
    verified = examine(store, options, mapper)
    logs = verified.logs
    if verified.report.live and any(log.queue.files for log in logs.results) and logs.min_offset > logs.wrote:
        raise FileNotFoundError(errno.ENOENT, "every file that was read has expired", str(store.path))
    return verified


def _with_units(options: VerifyOptions, keep_units: Callable[[], UnitKeeper] | None) -> VerifyOptions:
    return options if keep_units is None else replace(options, units=keep_units())


def _again(store: Store) -> Store:
    other = open_store(store.path, store.config)
    other.expiring = store.expiring
    return other


def problem_counts(report: Report) -> dict[str, int]:
    """How many findings there are of each code, without notes."""
    return {code: n for code, n in report.findings.counts.items() if n and PROBLEMS[code].severity >= Severity.WARNING}


def finds(report: Report) -> bool:
    """Whether anything but notes was found."""
    return report.findings.worst is not None and report.findings.worst >= Severity.WARNING


def _keep_lasting(report: Report, other: Report) -> None:
    """Leave out findings that another look at a live store does not show in the same place."""
    seen = {(f.code, f.queue, f.offset) for f in other.findings.listed}
    findings = report.findings
    kept = [f for f in findings.listed if f.severity < Severity.WARNING or (f.code, f.queue, f.offset) in seen]
    gone = Counter(f.code for f in findings.listed) - Counter(f.code for f in kept)
    findings.listed = kept
    findings.counts -= gone


def examine(store: Store, options: VerifyOptions | None = None, mapper: Mapper | None = None) -> Verified:
    """Verify, and keep the tilings and queues for a planner. `mapper` reads the log in place of `jobs` processes."""
    options = options or VerifyOptions()
    report = Report(
        str(store.path), store.kind.value, Findings(keep=options.keep, sink=options.sink), config=store.config.source
    )
    if store.kind is StoreKind.PART:
        report.whole = str(store_above(store.path, store.config) or "")
    report.live = store.kind is not StoreKind.PART and store.is_live()
    look = Examination(store, options, Verified(report, Logs([])), mapper)
    look.run()
    _only(report, options)
    report.seconds = time.monotonic() - look.started
    return look.verified


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
        report.unchecked.append(NO_BODY_CRCS)
