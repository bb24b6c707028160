"""plan_recovery: plans the repair of a whole store, so that every broker version with its format can start from it.

Pure: it reads the store and returns a plan. First the log is repaired, then every part that follows from it.
"""

from __future__ import annotations

from dataclasses import replace

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import problem_counts
from rmqstore.checks.verified import Verified
from rmqstore.documents.plan import Plan
from rmqstore.files.store import Store
from rmqstore.formats.javatext import LONG_MAX
from rmqstore.repair.beside.checkpoint import plan_checkpoint
from rmqstore.repair.beside.config import plan_configs, plan_offsets
from rmqstore.repair.beside.delays import plan_delays
from rmqstore.repair.beside.directory import plan_directories, plan_misplaced, store_in_place
from rmqstore.repair.beside.dledger import plan_dledger
from rmqstore.repair.beside.epochs import plan_epochs
from rmqstore.repair.beside.timer import plan_timer
from rmqstore.repair.derived_parts import plan_abort, plan_index, plan_message_rows, plan_queues, plan_rows_beside_files
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.plan.recover_options import (
    TRUNCATE,
    RecoverOptions,
    damage_decisions,
    offset_decisions,
    packed_decisions,
    path_decisions,
    sizes_decisions,
)
from rmqstore.repair.rebuild.rocksdb import refuse_rows
from rmqstore.repair.recovery import LogAfter, LogEnds, Recovery
from rmqstore.repair.salvage.salvage import Salvage, drop_unused, first_damage, lose_tail, plan_tail, zero_from
from rmqstore.repair.store_guard import data_roots, refuse_unknown, refuse_whole, wrote_positions
from rmqstore.repair.unrepaired import unrepaired_problems
from rmqstore.texts import Text


def name_files(case: Recovery, draft: PlanBuilder, log: LogEnds) -> LogEnds:
    """Give log files their right names."""
    plan_misplaced(draft, case.verified)
    return log


def clear_directories(case: Recovery, draft: PlanBuilder, log: LogEnds) -> LogEnds:
    """Remove obstacles to a start from all directories, and correct the lengths of files."""
    filled = case.options.accept_fillers or case.choice.strategy == TRUNCATE
    plan_directories(draft, case.verified, case.options, filled=filled)
    return log


def repair_damage(case: Recovery, draft: PlanBuilder, log: LogEnds) -> LogEnds:
    """Mend or cover damage within the logs, or end the log there, as a replica must."""
    if not case.options.wants_log:
        return log
    if case.choice.strategy != TRUNCATE:
        work = Salvage(draft, case.framed, case.options, log.ends)
        work.run()
        return replace(log, queues=log.queues | work.steps.rebuild)
    listed = [f.offset for f in case.verified.report.findings.listed if f.damages_log]
    for result, end in zip(case.results, log.ends, strict=True):
        if (at := first_damage(result, listed, end)) is not None:
            return _truncate(case, draft, log, at, result)
    return log


def _truncate(case: Recovery, draft: PlanBuilder, log: LogEnds, cut: int, first: LogResult) -> LogEnds:
    """End the log at its first damage, where a broker would truncate it."""
    if first is not case.results[-1]:
        draft.decisions.append(Text("the damage is in the legacy commitlog: all DLedger entries would be lost"))
    for later in case.results[case.results.index(first) :]:
        zero_from(draft, later, cut, Text("after the first damage of the log"))
        draft.lost_bytes += max(0, later.reaches - max(cut, later.queue.start))
    draft.notes.append(Text("the log will end at {cut:,}, where a broker would truncate it", cut=cut))
    return replace(log, ends=tuple(min(end, cut) for end in log.ends), cut=cut)


def repair_end(case: Recovery, draft: PlanBuilder, log: LogEnds) -> LogEnds:
    """Remove what is after the end of the log."""
    if not case.results or log.cut is not None:
        return log
    last = case.results[-1]
    if case.options.wants_log:
        drop_unused(draft, last)
        plan_tail(draft, last, log.ends[-1])
        log = replace(log, drops_records=last.reaches > log.ends[-1])
    if not (case.options.wants_log or case.options.wants(codes.CQ_BEYOND_LOG)):
        return log
    lost = lose_tail(draft, case.evidence, last, log.ends[-1])
    # where units are gone too, only index entries show that there were more messages
    later = last.stale_from is None and case.evidence.indexed(log.ends[-1], LONG_MAX)
    return replace(log, queues=log.queues | lost, loses_end=bool(lost or later))


LOG = (name_files, clear_directories, repair_damage, repair_end)
"""The repairs of the log, each of which takes the ends of the logs from the one before, and returns them.

All judge it by the one examination: names, lengths, damage and end are different facts, and no repair makes damage for
a later one to find. Each gets what the earlier ones change: the steps in the draft, and the ends of the logs.
"""

DERIVED = (
    plan_queues,
    plan_index,
    plan_checkpoint,
    plan_epochs,
    plan_configs,
    plan_timer,
    plan_offsets,
    plan_delays,
    plan_message_rows,
    plan_abort,
    plan_dledger,
    plan_rows_beside_files,
)
"""What follows from the repaired log, as the plan leaves it: queues before the parts that have positions in queues, and
`abort` before DLedger's index, which must be complete without it."""


def plan_recovery(store: Store, verified: Verified, options: RecoverOptions | None = None) -> Plan:
    """Plan the repair of a store that was just examined; the plan is empty if there is nothing to do.

    What the plan cures and loses is not known before it is measured (`planned.measure`).
    Errors: UsageError for an unknown strategy or role; Refused if rows in a RocksDB that nothing here writes would have
    to change; NotReadable.
    """
    options = options or RecoverOptions()
    refuse_whole(store, verified)
    if verified.report.live and not options.only:  # the other parts have changed since they were read
        options = replace(options, only=tuple(sorted(problem_counts(verified.report))))
    case = Recovery.of(store_in_place(store, verified, options), verified, options)
    draft = PlanBuilder(case.store)
    draft.notes.extend(case.choice.notes if options.strategy else ())
    draft.decisions.extend(sizes_decisions(case.store, verified.report.findings.listed))
    if not draft.decisions:  # otherwise paths or file sizes are wrong, and so is everything read with them
        draft.decisions.extend(damage_decisions(case.results, case.counts, options))
        draft.decisions.extend(offset_decisions(case.results))
        draft.decisions.extend(path_decisions(case.store, case.counts))
        draft.decisions.extend(packed_decisions(verified.report.findings.listed))
        ends = LogEnds.of(case)
        for repair in LOG:
            ends = repair(case, draft, ends)
        log = LogAfter.of(case, draft, ends)
        if log.ends_earlier:  # parts that are not understood would not fit it
            refuse_unknown(case.store)
        if log.written:
            refuse_rows(case.store)
        for part in DERIVED:
            part(case, draft, log)
        if log.touched and not options.strategy:
            draft.notes[:0] = case.choice.notes
    return _finished(case, draft)


def _finished(case: Recovery, draft: PlanBuilder) -> Plan:
    """Add the facts about the whole plan."""
    report = case.verified.report
    draft.facts["strategy"] = case.choice.strategy
    draft.facts["role"] = case.choice.role
    draft.facts["wrote"] = dict(wrote_positions(case.verified))
    if case.options.only:
        draft.facts["only"] = list(case.options.only)
    if not report.clean:
        draft.facts["stays"] = unrepaired_problems(report, draft, case.options, case.choice)
    return draft.plan(data_roots(case.store))
