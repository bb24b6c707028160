"""Queues, index, rows and abort of a store, which follow from its log: which of them are compared with the log.

A queue or an index file is compared only if a finding, or a change of the log, gives a reason; what differs becomes
steps. The ends of the queues that the plan changes are in the draft, for the stages after these.
"""

from __future__ import annotations

import importlib

from rmqstore.brokers.forecast import StartOptions
from rmqstore.brokers.simulate import simulate_start
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import Area, Problem, Severity
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.files.store import StoreKind
from rmqstore.files.versions import RUN_VERSIONS
from rmqstore.formats.consumequeue import QueueName, parse_queue_label
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.rebuild.consume_queues import (
    LogUnits,
    RebuildChoices,
    cut_queues,
    known_topic,
    plan_queue_files,
)
from rmqstore.repair.rebuild.index import IndexRebuild
from rmqstore.repair.rebuild.rocksdb import refuse_rows, tell_left
from rmqstore.repair.recovery import LogAfter, Recovery
from rmqstore.repair.unrepaired import note_contradicted
from rmqstore.texts import Text

_QUEUES = (Area.QUEUE, Area.BATCH_QUEUE)  # rows of batch topics are in the same database
_TREES = ("consumequeue", "batchconsumequeue")
PLANNED_BY = {"queues": "rmqstore.repair.rebuild.rocksdb_queues", "rows": "rmqstore.repair.beside.rows"}
"""What plans the parts of a store that are in RocksDB: consume queues, and rows about messages."""


def plan_queues(case: Recovery, draft: PlanBuilder, log: LogAfter) -> None:
    """The consume queues in files, or in a RocksDB, from the messages."""
    if not case.results:
        return
    if case.store.kind is StoreKind.ROCKSDB:
        if _rows_are_due(case, log):
            refuse_rows(case.store)
            importlib.import_module(PLANNED_BY["queues"]).plan_rows(draft, case.verified, log.logs, _choices(case))
        return
    due = _queues_due(case, log)
    if due is None or due:
        plan_queue_files(LogUnits(draft, case.verified, log.logs, _choices(case, due)))
    if log.cut is not None and due is not None:  # a rebuild of all queues cuts them too
        cut_queues(draft, log.cut, due)


def plan_index(case: Recovery, draft: PlanBuilder, log: LogAfter) -> None:
    """The index files, from the keys of the messages."""
    if not case.results or not case.store.index_files:
        return
    views = log.until(case.limit)
    note_contradicted(draft, case.verified, views)
    as_they_are = codes.CL_CONTRADICTED in case.options.only
    found = any(PROBLEMS[code].area is Area.INDEX for code in case.wanted)
    found |= codes.CL_CONTRADICTED in case.asked
    complete = _removes_abort(case, draft, log)
    if found or complete or log.ends_earlier or any(view.changed for view in views):
        IndexRebuild(draft, case.verified, views, complete=complete, as_they_are=as_they_are).plan()


def plan_message_rows(case: Recovery, draft: PlanBuilder, log: LogAfter) -> None:
    """The rows of rocksdbstore/, and in kvStore/ those of messages received through POP."""
    if case.verified.rows is None and not case.store.has_pop_rows:
        return
    planner = importlib.import_module(PLANNED_BY["rows"])
    planner.plan_message_rows(case, draft, log)
    planner.plan_pop_rows(case, draft, log)


def plan_abort(case: Recovery, draft: PlanBuilder, log: LogAfter) -> None:
    """No abort file in a store with complete queues: abnormal recovery would only delete its index."""
    if _removes_abort(case, draft, log):
        draft.discard(
            case.store.root / "abort", Text("log, queues and index are complete: the next start is a normal one")
        )


def plan_rows_beside_files(case: Recovery, draft: PlanBuilder, log: LogAfter) -> None:
    """The RocksDB beside queues in files: it gets the same rows, or a note says that it stays."""
    if not case.store.rocksdb_beside:
        return
    changed = log.touched or any(step.path.startswith("consumequeue/") for step in draft.steps)
    damaged = case.verified.damaged_rows and case.options.wants_area(Area.QUEUE, Area.DIRECTORY)
    fits: bool = False
    if case.results and (changed or damaged or _has_problems_in_rows(case)):
        planner = importlib.import_module(PLANNED_BY["queues"])
        fits = planner.plan_beside(draft, case.verified, log.logs, _choices(case))
    if draft.steps and not fits:
        tell_left(draft, touches_log=log.written)


def _choices(case: Recovery, wanted: frozenset[QueueName] | None = None) -> RebuildChoices:
    rewrite = codes.CQ_WRONG_TAG in case.options.only
    return RebuildChoices(wanted, allow_gaps=case.options.allow_shift, limit=case.limit, rewrite_codes=rewrite)


# --- which queues are compared with the log -------------------------------------------------------------------------


def _rows_are_due(case: Recovery, log: LogAfter) -> bool:
    """Return whether the log changes, or rows do not fit it; all rows are compared then."""
    if log.touched or log.cut is not None or log.queues:
        return True
    if not case.options.wants_area(*_QUEUES, Area.DIRECTORY):
        return False
    found = (PROBLEMS[code] for code in case.wanted)
    wrong = any(p.area in _QUEUES and (p.severity > Severity.NOTE or case.options.only) for p in found)
    return wrong or case.verified.damaged_rows


def _queues_due(case: Recovery, log: LogAfter) -> frozenset[QueueName] | None:
    """Return queues with findings, and if anything is repaired, all that lack a unit; None: all queues.

    With a new DLedger checkpoint, messages without a unit may count as committed: no start dispatches these.
    """
    if not case.options.wants_area(*_QUEUES, Area.DIRECTORY):
        return log.queues
    named = _queues_with_findings(case)
    if named is None:
        return None
    due = named | log.queues
    after = codes.CQ_BEHIND in case.options.only or case.wanted & {codes.CQ_LEFT_BEHIND, codes.DL_COMMITTED}
    if due or log.touched or after or _start_leaves_gaps(case):
        due |= {name for name, part in case.verified.logs.queues.items() if part.missing}
        due |= {name for result in case.results for name in result.batches}  # which messages lack units is not known
    return due


def _queues_with_findings(case: Recovery) -> frozenset[QueueName] | None:
    """Return the queues with findings about their units or files; None (all) if not all findings are listed."""

    def counts(problem: Problem) -> bool:
        return problem.of_queues and problem.code not in (codes.CQ_DELETED_TOPIC, codes.CQ_BEHIND)

    listed = case.verified.report.findings.listed
    total = sum(n for code, n in case.counts.items() if counts(PROBLEMS[code]))
    if total > sum(counts(f.problem) for f in listed) or codes.CQ_FOREIGN in case.counts:
        return None
    labels = (f.queue for f in listed if counts(f.problem) or f.problem.spoils_files)
    return frozenset(name for label in labels if (name := parse_queue_label(label)) is not None)


def _start_leaves_gaps(case: Recovery) -> bool:
    """Return whether the next start of some broker version would not rebuild all queues that are behind the log.

    In DLedger mode, brokers since 5.0 dispatch from the committed position, so that they do not rebuild queues that
    are missing completely. No start dispatches a message whose queue offset another one has: it is lost.
    """
    store, verified = case.store, case.verified
    parts = {name: p for name, p in verified.logs.queues.items() if p.missing and p.messages}
    known = (name for name in parts if known_topic(verified.logs.topics, name[0]))
    parts = {name: parts[name] for name in known if not store.reads_rows(name[0])}
    if not parts:
        return False
    if any(part.repeats for part in parts.values()):
        return True
    if store.kind is not StoreKind.PLAIN:
        return not any(state.max for state in verified.report.queues.values())
    tiling = verified.legacy.tiling if verified.legacy is not None else None
    for version in RUN_VERSIONS:
        forecast = simulate_start(
            store, tiling, version=version, options=StartOptions(thorough=False), units=verified.units
        )
        if not forecast.starts:
            return True
        for name, part in parts.items():
            low, high = forecast.queue_ends.get(name, (0, 0))
            if high < part.next or low > part.first or forecast.shifted_units.get(name):
                return True
    return False


def _has_problems_in_rows(case: Recovery) -> bool:
    """Return whether queues that are only in the RocksDB beside queue files have problems that are wanted."""
    if codes.CQ_TWO_ROCKSDB in case.wanted:
        return True
    found = (f for f in case.verified.report.findings.listed if f.problem.of_queues and case.options.wants(f.code))
    names = (name for finding in found if (name := parse_queue_label(finding.queue)) is not None)
    return case.store.light_in_rocksdb and any(case.store.reads_rows(topic) for topic, _ in names)


def _removes_abort(case: Recovery, draft: PlanBuilder, log: LogAfter) -> bool:
    # records of an unknown format may be sound, so it is unknown what is complete
    store, wanted = case.store, case.options.wants(codes.BR_START_LOSES)
    if not store.abort or not wanted or codes.CL_UNKNOWN_MAGIC in case.counts:
        return False
    if store.kind in (StoreKind.DLEDGER, StoreKind.MIXED):
        # 5.4.0 truncates good units in its abnormal recovery of DLedger (48 bytes per entry, DLedgerCommitLog
        # #dledgerRecoverAbnormally) and never rebuilds them; queues that lag too far still need that recovery
        cuts = bool((case.verified.report.broker or {}).get("units_cut"))
        return (cuts or bool(draft.steps)) and not _lags(case, _queues_due(case, log))
    if store.kind is not StoreKind.PLAIN:
        return False
    return log.written or any(step.path.split("/")[0] in _TREES for step in draft.steps)


def _lags(case: Recovery, rebuilt: frozenset[QueueName] | None) -> bool:
    """Return whether messages would get no unit after a normal start in DLedger mode.

    Such a start dispatches from the committed position on. `rebuilt`: the queues that the plan rebuilds, None for all.
    """
    if codes.CQ_BEHIND not in case.counts or rebuilt is None:
        return False
    logs = case.verified.logs
    return any(
        name not in rebuilt and any(m.first_at < (logs.committed or 0) for m in part.missing)
        for name, part in logs.queues.items()
    )
