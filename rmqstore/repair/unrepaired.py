"""Problems that a plan does not repair: why, and what the operator can do. Pure.

Messages with damaged keys or TAGS that a plan leaves as they are, are listed in it. Their index entries or units are
the only trace of the damage, so a rebuilt index keeps these entries, unless the operator selects CL-CONTRADICTED with
--only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rmqstore.checks.index.tally import Contradicted
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import OperatorTask, Problem
from rmqstore.checks.problems.report import Finding, Report, problem_counts, tags_in_doubt
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.checks.verified import Verified
from rmqstore.documents.content import Json
from rmqstore.files.mapped_file_queue import MAX_RECORD
from rmqstore.formats.consumequeue import split_queue_label
from rmqstore.repair.plan.plan_builder import DAMAGED, PlanBuilder
from rmqstore.repair.plan.recover_options import TRUNCATE, Choice, RecoverOptions
from rmqstore.repair.repaired_log import RepairedLog, end_of
from rmqstore.repair.salvage.framed import open_codes
from rmqstore.texts import Text, joined


def contradicted_messages(verified: Verified, views: Sequence[RepairedLog]) -> Mapping[int, Contradicted]:
    """Return messages whose index entries contradict them by offset, except those that the plan changes or cuts off."""
    reported = {(f.queue, f.offset) for f in verified.report.findings.listed if f.code == codes.CL_CONTRADICTED}
    if not reported:
        return {}
    out: dict[int, Contradicted] = {}
    for view in views:
        out |= {
            at: message
            for at, message in view.result.index.contradicted.items()
            if (view.result.name, at - view.body_offset) in reported
            and at < view.end
            and not view.differs(at, at + message.size)
        }
    return out


def doubtful_tags(verified: Verified, views: Sequence[RepairedLog]) -> Mapping[int, Finding]:
    """Return the findings, by offset, of messages of which either the TAGS or the unit are damaged.

    Messages that the plan changes or cuts off are left out.
    """
    out = {}
    end = end_of(views)
    for finding in verified.report.findings.listed:
        at = finding.facts.get("commitlog_offset")
        if not isinstance(at, int) or at >= end or not tags_in_doubt(finding):
            continue
        record = verified.logs.record(at, MAX_RECORD)
        stop = at + (record.size if record is not None else 1)
        if not any(view.differs(at, stop) for view in views):
            out[at] = finding
    return out


def note_contradicted(draft: PlanBuilder, verified: Verified, views: Sequence[RepairedLog]) -> None:
    """Add the messages that stay damaged to the plan's facts: those with index entries, then those with units."""
    messages = contradicted_messages(verified, views)
    draft.list_damaged([_of_entries(one) for _, one in sorted(messages.items())])
    draft.list_damaged([_of_unit(f) for _, f in sorted(doubtful_tags(verified, views).items())])


def _of_entries(message: Contradicted) -> dict[str, Json]:
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "offset": message.offset,
        "size": message.size,
        "store_timestamp": message.store_timestamp,
        "unique_key": message.unique_key,
        "keys": message.keys,
        "key_hashes": list(message.hashes),
    }


def _of_unit(finding: Finding) -> dict[str, Json]:
    topic, queue_id = split_queue_label(finding.queue)
    facts = finding.facts
    return {
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": facts["queue_offset"],
        "offset": facts["commitlog_offset"],
        "tags_code": facts["tags_code"],
    }


_PROVED = Text("the units and entries are right, but their message is damaged (see the note)")
_REPLICA = Text(
    "add --replica DIR with the store of its master, which restores the original bytes; or use "
    "--strategy salvage if no other replica has a good copy"
)
_RAW = Text("add --replica DIR with the store of another node, or with a backup")
_DOUBT = OperatorTask(
    Text("the unit or the TAGS of its message are damaged, and nothing proves which: the unit may be the only trace"),
    Text(
        "compare the message with a replica or a backup; or add --only {cq_wrong_tag}, which makes "
        "the unit match the message",
        cq_wrong_tag=codes.CQ_WRONG_TAG,
    ),
)
_NO_MESSAGE = Text("no message in the log has some queue offsets; consumers get the message before them again")
_STRAY = Text("the queue offset of a record is impossible, so it gets no unit")
_NO_TOPICS = OperatorTask(
    Text("with a batch queue, no broker starts until config/topics.json says that its topic has one"),
    Text("restore config/topics.json, then run this command again"),
)
_PARTS: Mapping[str, str] = {
    "cq": Text("the consume queues"),
    "index": Text("the index"),
    "checkpoint": Text("the checkpoint"),
    "dledger-index": Text("the DLedger index"),
}


def unrepaired_problems(report: Report, draft: PlanBuilder, options: RecoverOptions, choice: Choice) -> dict[str, Json]:
    """Return `{code: {"count", "why", "do"}}` for problems above a note that the plan may not repair.

    Counts are those before the plan. `measured` takes the problems that are left, and their counts, from the planned
    store. If the plan has steps, these may repair some problems indirectly, so only problems with a specific reason are
    included.
    """
    found = problem_counts(report)
    stopping = [code for code in found if _stops_all(PROBLEMS[code])]
    unproved = _without_proof(draft, found)
    out: dict[str, Json] = {code: _row(task, found.get(code, count)) for code, task, count in unproved}
    for code, count in found.items():
        reason = _reason(PROBLEMS[code], draft, options, choice, stopping)
        if reason is not None and code not in out:
            out[code] = _row(_with_lines(reason, report, code), count)
    return out


def _with_lines(task: OperatorTask, report: Report, code: str) -> OperatorTask:
    """Return a task that names the lines of broker.conf to write, if each problem of this code has one."""
    found = [f for f in report.findings.listed if f.code == code]
    if code not in (codes.CFG_SETTING, codes.CFG_LINE) or not all("set" in f.facts for f in found):
        return task
    lines = joined(dict.fromkeys(str(f.facts["set"]) for f in found), last=" and ")
    return OperatorTask(task.why, Text("write {lines} into broker.conf, and verify again", lines=lines))


def _without_proof(draft: PlanBuilder, found: Mapping[str, int]) -> Iterator[tuple[str, OperatorTask, int]]:
    """Yield (problem, reason, count) of what stays because nothing proves the right bytes, or no message is left.

    A queue offset without a message stays a gap in the log. Its unit repeats the one before, which is at another index
    than its message's queue offset, so verify finds a shifted unit too.
    """
    for code, count in sorted(draft.unproved.items()):
        yield (
            code,
            OperatorTask(Text("nothing in the store proves which queue and offset the message has"), _RAW),
            count,
        )
    gaps = [gap for of_queue in draft.gaps.values() for gap in of_queue]
    missing = len(gaps) + draft.strays[codes.CQ_MISSING_UNIT]
    if missing or codes.CL_QUEUE_OFFSET_GAP in found:
        yield codes.CL_QUEUE_OFFSET_GAP, OperatorTask(_NO_MESSAGE, _RAW), missing
    if gaps:
        yield codes.CQ_SHIFTED, OperatorTask(_NO_MESSAGE, _RAW), sum(b - a for a, b in gaps)
    for code, count in sorted(draft.strays.items()):
        yield code, OperatorTask(_STRAY, _RAW), count
    if codes.CFG_NO_TOPICS in found and codes.BCQ_MISSING_UNIT in found:
        yield codes.BCQ_MISSING_UNIT, _NO_TOPICS, found[codes.BCQ_MISSING_UNIT]


def unrebuilt_problems(part: str, report: Report, draft: PlanBuilder) -> dict[str, Json]:
    """Return the same for a plan that rebuilds only one part of the store."""
    out: dict[str, Json] = {}
    for code, count in problem_counts(report).items():
        if code in open_codes(draft):
            why: str = _PROVED
        elif draft.steps and PROBLEMS[code].part == part:
            continue
        elif code == codes.CQ_WRONG_TAG and DAMAGED in draft.facts:
            why = _DOUBT.why
        else:
            why = Text("this command rebuilds only {parts}", parts=_PARTS[part])
        out[code] = _row(OperatorTask(why, Text("run `rmqstore recover`, which plans for the whole store")), count)
    return out


def _row(task: OperatorTask, count: int) -> Json:
    return {"count": count, "why": task.why, "do": task.do}


def _stops_all(row: Problem) -> bool:
    return row.needs_operator is not None and row.needs_operator.stops_all


def _reason(
    row: Problem, draft: PlanBuilder, options: RecoverOptions, choice: Choice, stopping: list[str]
) -> OperatorTask | None:
    """Return why the plan does not repair a problem; None if its steps may do so."""
    code, task = row.code, row.needs_operator
    if task is not None and task.stops_all:
        return task
    if stopping:
        why = Text("nothing is planned before {stopping} is settled", stopping=joined(stopping))
        return OperatorTask(why, Text("settle that first, then run this command again"))
    if code in open_codes(draft):
        mend = Text("run this command without --only: it repairs the message")
        return OperatorTask(_PROVED, _REPLICA if choice.strategy == TRUNCATE else mend)
    if task is not None:
        return task
    if options.only and code not in options.only:
        do = Text("run this command without --only, or with --only {code}", code=code)
        return OperatorTask(Text("--only selects other problems"), do)
    if code == codes.CQ_WRONG_TAG and DAMAGED in draft.facts and code not in options.only:
        return _DOUBT
    return _not_asked(row, options) or _unproved(row, draft, choice)


def _not_asked(row: Problem, options: RecoverOptions) -> OperatorTask | None:
    """Return the reason for problems that `recover` repairs only on request."""
    if row.code in (codes.CL_MISSING_FILE, codes.DL_MISSING_FILE):
        return _missing_file(options)
    if row.remedy == "recover" and not row.safe and row.code not in options.only:
        return OperatorTask(row.asked, Text("add --only {code}", code=row.code))
    return None


def _unproved(row: Problem, draft: PlanBuilder, choice: Choice) -> OperatorTask | None:
    """Return the reason for problems that cannot be repaired in this store, or with this strategy."""
    code = row.code
    if choice.strategy == TRUNCATE and (code == codes.CQ_WRONG_TAG or (row.of_log and not row.renames_only)):
        why = Text("a replica must equal its master, so truncate changes only the end of the log")
        return OperatorTask(why, _REPLICA)
    if draft.steps:
        return None
    if draft.decisions:
        return OperatorTask(Text('a decision is needed first (see "Needs a decision")'), _RAW)
    return OperatorTask(Text("nothing in the store proves the original bytes"), _RAW)


def _missing_file(options: RecoverOptions) -> OperatorTask:
    if options.accept_fillers:
        return OperatorTask(Text("nothing in the store shows what the missing file contained"), _RAW)
    return OperatorTask(
        Text("the messages of the missing file are not in this store"),
        Text(
            "add --replica DIR with the store of another node, or with a backup; or add "
            "--accept-fillers, which replaces the file with fillers and shows the loss"
        ),
    )
