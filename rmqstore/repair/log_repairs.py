"""The repairs of the log, each for the log that the earlier ones leave: names, directories, damage, end.

Each takes what the earlier ones planned of the ends of the logs, and returns it with its own changes.
"""

from __future__ import annotations

from dataclasses import replace

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.problems import codes
from rmqstore.repair.beside.directory import plan_directories, plan_misplaced
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.plan.recover_options import TRUNCATE
from rmqstore.repair.recovery import LogEnds, Recovery
from rmqstore.repair.repaired_log import Redispatch, RepairedLog
from rmqstore.repair.salvage.loss import Ledger, before_begin, damage_after
from rmqstore.repair.salvage.salvage import (
    drop_after_hole,
    first_damage,
    lose_tail,
    plan_salvage,
    plan_tail,
    zero_from,
)
from rmqstore.texts import Text


def file_names(case: Recovery, draft: PlanBuilder, log: LogEnds) -> LogEnds:
    """Give log files their right names."""
    plan_misplaced(draft, case.verified)
    return log


def directories(case: Recovery, draft: PlanBuilder, log: LogEnds) -> LogEnds:
    """Remove obstacles to a start from all directories, and correct the lengths of files."""
    filled = case.options.accept_fillers or case.choice.strategy == TRUNCATE
    plan_directories(draft, case.verified, case.options, filled=filled)
    if case.results and case.options.wants(codes.DIR_EMPTY_FILE):
        before_begin(case.evidence, case.results[0]).book(draft)
    return log


def damage(case: Recovery, draft: PlanBuilder, log: LogEnds) -> LogEnds:
    """Mend or cover damage within the logs, or end the log there, as a replica must."""
    if not case.options.wants_log:
        return log
    if case.choice.strategy != TRUNCATE:
        return replace(log, queues=log.queues | plan_salvage(draft, case.framed, case.options))
    listed = [f.offset for f in case.verified.report.findings.listed if f.damages_log]
    for result, end in zip(case.results, log.ends, strict=True):
        if (at := first_damage(result, listed, end)) is not None:
            return _truncate(case, draft, log, at, result)
    return log


def _truncate(case: Recovery, draft: PlanBuilder, log: LogEnds, cut: int, first: LogResult) -> LogEnds:
    """End the log at its first damage, where a broker would truncate it."""
    if first is not case.results[-1]:
        draft.decisions.append(Text("the damage is in the legacy commitlog: all DLedger entries would be lost"))
    ledger = Ledger()
    for later in case.results[case.results.index(first) :]:
        dispatcher = Redispatch(case.store, ledger, case.verified.batch_topics)
        dispatcher.run(RepairedLog(later, later.queue.stop, case.store.files), max(cut, later.queue.start))
        zero_from(draft, later, cut, Text("after the first damage of the log"))
        damaged = damage_after(case.evidence, later, cut)
        ledger.queues.update(damaged.queues)
        if damaged.at_least:
            ledger.at_least = True
            ledger.notes.append(Text("the loss is a lower bound: consume queues that would show more are missing too"))
    ledger.book(draft)
    draft.notes.append(Text("the log will end at {cut:,}, where a broker would truncate it", cut=cut))
    return replace(log, ends=tuple(min(end, cut) for end in log.ends), cut=cut)


def end(case: Recovery, draft: PlanBuilder, log: LogEnds) -> LogEnds:
    """Remove what is after the end of the log, and count the messages that were there."""
    if not case.results or log.cut is not None:
        return log
    last = case.results[-1]
    if case.options.wants_log:
        drop_after_hole(draft, last)
        plan_tail(draft, last, log.ends[-1])
        log = replace(log, drops_records=last.reaches > log.ends[-1])
    if not (case.options.wants_log or case.options.wants(codes.CQ_BEYOND_LOG)):
        return log
    lost = lose_tail(draft, case.evidence, last)
    return replace(log, queues=log.queues | lost, loses_end=bool(lost))
