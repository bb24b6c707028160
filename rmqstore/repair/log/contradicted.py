"""Messages with damaged keys or TAGS that a plan leaves as they are: which ones, and how the plan lists them. Pure.

Their index entries or units are the only trace of the damage, so a rebuilt index keeps these entries, unless the
operator selects CL-CONTRADICTED with --only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rmqstore.checks.index.tally import Contradicted
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Finding, tags_in_doubt
from rmqstore.checks.verify import Verified
from rmqstore.repair.log.repaired_log import RepairedLog
from rmqstore.repair.plan.content import Json
from rmqstore.repair.plan.plan_builder import PlanBuilder

FACT = "damaged"
"""Name of the fact of a plan that lists messages that stay in the log with damaged properties."""


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
            if (view.result.name, at - view.body_offset) in reported and at < view.end and not view.differs(at, at + 1)
        }
    return out


def doubtful_tags(verified: Verified, views: Sequence[RepairedLog]) -> Mapping[int, Finding]:
    """Return the findings, by offset, of messages of which either the TAGS or the unit are damaged.

    Messages that the plan changes or cuts off are left out.
    """
    out = {}
    end = max((view.end for view in views), default=0)
    for finding in verified.report.findings.listed:
        at = finding.facts.get("commitlog_offset")
        if not isinstance(at, int) or at >= end or not tags_in_doubt(finding):
            continue
        if not any(view.differs(at, at + 1) for view in views):
            out[at] = finding
    return out


def note_contradicted(draft: PlanBuilder, verified: Verified, views: Sequence[RepairedLog]) -> None:
    """Add the messages that stay damaged to the plan's facts: those with index entries, then those with units."""
    messages = contradicted_messages(verified, views)
    list_damaged(draft, [_of_entries(one) for _, one in sorted(messages.items())])
    list_damaged(draft, [_of_unit(f) for _, f in sorted(doubtful_tags(verified, views).items())])


def list_damaged(draft: PlanBuilder, rows: Sequence[Mapping[str, Json]]) -> None:
    """Add messages that stay in the log with damaged properties to the plan's facts, each only once."""
    if rows:
        listed = draft.facts.setdefault(FACT, [])
        assert isinstance(listed, list)
        known = {row["offset"] for row in listed if isinstance(row, dict)}
        listed.extend(dict(row) for row in rows if row["offset"] not in known)


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
    topic, _, queue_id = finding.queue.rpartition("/")
    facts = finding.facts
    return {
        "topic": topic,
        "queue_id": int(queue_id),
        "queue_offset": facts["queue_offset"],
        "offset": facts["commitlog_offset"],
        "tags_code": facts["tags_code"],
    }
