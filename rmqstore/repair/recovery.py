"""What the stages of a recovery share: the examined store, and its log as the plan leaves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.problems import codes
from rmqstore.checks.verified import Verified
from rmqstore.documents.steps import Rename, SetAside
from rmqstore.files.mapped_file_queue import message_at
from rmqstore.files.store import Store
from rmqstore.formats import consumequeue
from rmqstore.formats.consumequeue import QueueName
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.plan.recover_options import TRUNCATE, Choice, RecoverOptions, choose
from rmqstore.repair.repaired_log import RepairedLog, end_of, last_record, last_record_start
from rmqstore.repair.salvage.evidence import Evidence
from rmqstore.repair.salvage.framed import FramedRecords
from rmqstore.repair.salvage.solve import reach


@dataclass(frozen=True)
class Recovery:
    """An examined store, and how to repair it.

    `evidence` proves facts about damaged records. `limit`: messages that end after this global offset get no unit; None
    if all get one.
    """

    store: Store
    verified: Verified
    options: RecoverOptions
    choice: Choice
    evidence: Evidence
    limit: int | None

    @staticmethod
    def of(store: Store, verified: Verified, options: RecoverOptions) -> Recovery:
        """Choose the strategy. Errors: UsageError for an unknown strategy or role."""
        choice = choose(store, options)
        mends = choice.strategy != TRUNCATE and options.wants_log
        evidence = Evidence(store, verified, mends_end=mends)
        return Recovery(store, verified, options, choice, evidence, dispatch_limit(store, verified, choice.role))

    @cached_property
    def framed(self) -> FramedRecords:
        """The corrections of records with valid framing."""
        return FramedRecords(self.evidence).solve()

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of findings per problem code."""
        return self.verified.report.findings.counts

    @cached_property
    def wanted(self) -> frozenset[str]:
        """The codes of the problems that were found and are to be repaired."""
        return frozenset(code for code in self.counts if self.options.wants(code))

    @property
    def asked(self) -> frozenset[str]:
        """Those of them that `--only` names: some are repaired on request alone."""
        return self.wanted.intersection(self.options.only)

    @property
    def results(self) -> list[LogResult]:
        """The logs, in address order."""
        return self.verified.results


@dataclass(frozen=True, slots=True)
class LogEnds:
    """Where each log ends after the repairs so far: global offsets, in address order.

    `cut`: where `truncate` ended the log. `drops_records`: damaged records at the very end are removed. `loses_end`:
    messages after its end are lost. `queues`: those that lose a message, or whose records get other queue offsets.
    """

    ends: tuple[int, ...]
    cut: int | None = None
    drops_records: bool = False
    queues: frozenset[QueueName] = frozenset()
    loses_end: bool = False

    @staticmethod
    def of(case: Recovery) -> LogEnds:
        """Return the ends before any repair. DLedger continues a legacy log with what is repaired at its end."""
        return LogEnds(tuple(reach(case.evidence, result) for result in case.results))


@dataclass(frozen=True, slots=True)
class LogAfter:
    """The log as the plan leaves it, for the parts that follow from it.

    `logs`: the views of each log. `queues`: as in `LogEnds`. `cut`: where `truncate` ended the log. `ends_earlier`: it
    ends before records that it had, now or before the damage. `lost_from`: where it ends if queues, and possibly
    consumers, had messages after that; otherwise None. `touched`: steps change its files, or only their names;
    `written`: they change its bytes. `last_time`: its latest store time (ms), 0 without a message.
    """

    logs: tuple[RepairedLog, ...]
    queues: frozenset[QueueName]
    cut: int | None
    ends_earlier: bool
    lost_from: int | None
    touched: bool
    written: bool
    last_time: int

    @staticmethod
    def of(case: Recovery, draft: PlanBuilder, planned: LogEnds) -> LogAfter:
        """Read the log as the steps of the draft leave it."""
        logs = tuple(case.framed.view(r, end, draft) for r, end in zip(case.results, planned.ends, strict=True))
        case.framed.note(draft, logs)
        shrank = not case.options.only and (planned.loses_end or codes.CQ_BEYOND_LOG in case.counts)
        homes = {draft.path(directory) for result in case.results for directory in result.queue.directories}
        in_log = [step for step in draft.steps if step.path.rpartition("/")[0] in homes]
        written = any(not isinstance(step, SetAside | Rename) for step in in_log)
        return LogAfter(
            logs=logs,
            queues=planned.queues,
            cut=planned.cut,
            ends_earlier=planned.cut is not None or planned.drops_records or shrank,
            lost_from=end_of(logs) if shrank else planned.cut,
            touched=bool(in_log),
            written=written,
            last_time=_last_time(case, [log.as_written() for log in logs], changed=written or planned.cut is not None),
        )

    @property
    def end(self) -> int:
        """The end of the last log (global offset)."""
        return end_of(self.logs)

    def until(self, limit: int | None) -> list[RepairedLog]:
        """Return the views of the logs up to a limit (global offset; None: all)."""
        if limit is None:
            return list(self.logs)
        return [log.until(min(log.end, max(limit, log.queue.start))) for log in self.logs]

    def as_written(self) -> list[RepairedLog]:
        """Return the views of the logs with nothing but what the plan writes."""
        return [log.as_written() for log in self.logs]


def _last_time(case: Recovery, logs: Sequence[RepairedLog], *, changed: bool) -> int:
    """Return the latest store time (ms) of the log, read from its last file if the plan changes the last record."""
    latest = max((result.max_time for result in case.results), default=0)
    if not changed or _keeps_latest(case, logs[-1], latest):
        return latest
    return min(latest, last_record(logs).time)


def _keeps_latest(case: Recovery, log: RepairedLog, latest: int) -> bool:
    """Return whether the last record of the log has the latest time, and stays as it is."""
    result = log.result
    start = last_record_start(case.verified.logs, result.wrote)
    last = message_at(result.queue, start) if start >= result.queue.start else None
    if last is None or last.store_timestamp != latest or log.end < result.wrote:
        return False
    return not log.differs(start, start + last.size)


_GROUP = "dledger-group"


def dispatch_limit(store: Store, verified: Verified, role: str) -> int | None:
    """Return the global offset up to which queues are rebuilt in a group of several peers; None for the whole log.

    Committed entries, and those that have units or index entries already: `committedIndex` is written every few
    seconds, so that a killed follower's may be far too low. 4.9 resumes the dispatch after the last unit of all queues,
    so no queue may end before it.
    """
    if role != _GROUP or verified.dledger is None:
        return None
    return max(verified.logs.committed or 0, _dispatched(store, verified), _indexed(verified))


def _indexed(verified: Verified) -> int:
    """Return the end (global offset) of the last message in the index; 0 without one."""
    log, end = verified.dledger, 0
    for file in verified.index.files if verified.index is not None and log is not None else ():
        if file.last and log is not None:
            message = message_at(log.queue, file.end_phy_offset)
            if message is not None and message.physical_offset == file.end_phy_offset:
                end = max(end, file.end_phy_offset + message.size)
    return end


def _dispatched(store: Store, verified: Verified) -> int:
    """Return the end (global offset) of the last message that has a unit; 0 without one."""
    end = 0
    for (topic, queue_id), part in verified.logs.queues.items():
        if not part.accounted:
            continue
        unit = store.consume_queue(topic, queue_id).queue.unit(consumequeue.UNIT, part.units_end - 1)
        if unit is not None:
            end = max(end, unit["commitlog_offset"] + unit["size"])
    return end
