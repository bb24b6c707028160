"""Messages whose index entries prove that their keys are damaged: what a plan keeps of them, and says. Pure.

Their entries are the only trace of the damage, so an index that is made again keeps them, unless the operator asks for
CL-CONTRADICTED by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rmqstore.checks.index.contradicted import CODE
from rmqstore.checks.index.tally import Contradicted
from rmqstore.checks.problems.report import Finding, tags_in_doubt
from rmqstore.checks.verify import Verified
from rmqstore.repair.log.repaired_log import RepairedLog
from rmqstore.repair.plan.content import Json
from rmqstore.repair.plan.plan_builder import PlanBuilder

__all__ = ["CODE", "FACT", "contradicted_messages", "doubtful_tags", "list_damaged", "tell_contradicted"]

FACT = "damaged"
"""In a plan's facts: messages that stay in the log with damaged properties."""


def contradicted_messages(verified: Verified, views: Sequence[RepairedLog]) -> Mapping[int, Contradicted]:
    """These messages by offset, but for those that the plan writes over or cuts off."""
    reported = {(f.queue, f.offset) for f in verified.report.findings.listed if f.code == CODE}
    if not reported:
        return {}
    out = {}
    for view in views:
        name = "dledger" if view.lead else "commitlog"
        for at, message in view.result.index.contradicted.items():
            written = any(p.start <= at < p.stop for p in view.patches)
            if (name, at - view.lead) in reported and at < view.end and not written:
                out[at] = message
    return out


def doubtful_tags(verified: Verified, views: Sequence[RepairedLog]) -> Mapping[int, Finding]:
    """Messages by offset whose TAGS, or whose unit, are damaged, and nothing tells which; with its finding.

    Those that the plan writes or cuts off are left out.
    """
    out = {}
    end = max((view.end for view in views), default=0)
    for finding in verified.report.findings.listed:
        at = finding.facts.get("commitlog_offset")
        if not isinstance(at, int) or at >= end or not tags_in_doubt(finding):
            continue
        if not any(p.start <= at < p.stop for view in views for p in view.patches):
            out[at] = finding
    return out


def tell_contradicted(draft: PlanBuilder, verified: Verified, views: Sequence[RepairedLog]) -> None:
    """List the messages that stay damaged in the plan's facts: those of index entries, then those of units."""
    messages = contradicted_messages(verified, views)
    list_damaged(draft, [_of_entries(one) for _, one in sorted(messages.items())])
    list_damaged(draft, [_of_unit(f) for _, f in sorted(doubtful_tags(verified, views).items())])


def list_damaged(draft: PlanBuilder, rows: Sequence[Mapping[str, Json]]) -> None:
    """Add messages that stay in the log with damaged properties to the plan's facts, each once."""
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
