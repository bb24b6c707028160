"""plan_recovery: plans the repair of a whole store, so that every broker version with its format can start from it.

Pure: it reads the store and returns a plan. First the log is repaired, then every part that follows from it.
"""

from __future__ import annotations

from dataclasses import replace

from rmqstore.checks.problems import codes
from rmqstore.checks.verify import Verified, problem_counts
from rmqstore.files.store import Store
from rmqstore.repair import log_repairs
from rmqstore.repair.beside.checkpoint import plan_checkpoint
from rmqstore.repair.beside.config import plan_configs, plan_offsets
from rmqstore.repair.beside.directory import store_in_place
from rmqstore.repair.beside.dledger import plan_dledger
from rmqstore.repair.beside.rows import plan_message_rows, plan_pop_rows
from rmqstore.repair.beside.timer import plan_timer
from rmqstore.repair.derived_parts import plan_abort, plan_index, plan_queues, plan_rows_beside_files
from rmqstore.repair.plan.plan import Plan
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.plan.recover_options import (
    RecoverOptions,
    damage_decisions,
    offset_decisions,
    packed_decisions,
    path_decisions,
    sizes_decisions,
)
from rmqstore.repair.rebuild.rocksdb import refuse_rows
from rmqstore.repair.recovery import LogAfter, LogEnds, Recovery
from rmqstore.repair.store_guard import data_roots, refuse_unknown, refuse_whole, wrote_positions
from rmqstore.repair.unrepaired import unrepaired_problems

LOG = (
    log_repairs.file_names,
    log_repairs.directories,
    log_repairs.damage,
    log_repairs.end,
)
"""The repairs of the log.

All judge it by the one examination: names, lengths, damage and end are different facts, and no repair makes damage for
a later one to find. Each gets what the earlier ones change: the steps in the draft, and the ends of the logs.
"""

DERIVED = (
    plan_dledger,
    plan_queues,
    plan_index,
    plan_checkpoint,
    plan_configs,
    plan_timer,
    plan_offsets,
    plan_message_rows,
    plan_pop_rows,
    plan_abort,
    plan_rows_beside_files,
)
"""What follows from the repaired log, as the plan leaves it: queues before the parts that have positions in queues."""


def plan_recovery(store: Store, verified: Verified, options: RecoverOptions | None = None) -> Plan:
    """Plan the repair of a store that was just examined; the plan is empty if there is nothing to do.

    What the plan cures is not known before it is measured (`planned.measure`).
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
    if draft.steps and not case.results:
        _lose_whole_log(case, draft)
    if not report.clean:
        draft.facts["stays"] = unrepaired_problems(report, draft, case.options, case.choice)
    return draft.plan(data_roots(case.store))


def _lose_whole_log(case: Recovery, draft: PlanBuilder) -> None:
    """Count the messages that consume queues name, of a log without any record."""
    for finding in case.verified.report.findings.listed:
        units = finding.facts.get("units")
        if finding.code == codes.CL_NO_MESSAGES and isinstance(units, int):
            draft.lose({}, unknown=units)
            draft.more["at_least"] = True
