"""Messages whose index entries prove that their keys are damaged: what a plan keeps of them, and says. Pure.

Their entries are the only trace of the damage, so an index that is made again keeps them, unless the operator asks for
CL-CONTRADICTED by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rmqstore.checks.contradicted import CODE
from rmqstore.checks.log.index_tally import Contradicted
from rmqstore.checks.verify import Verified
from rmqstore.repair.log.repaired_log import RepairedLog
from rmqstore.repair.plan.plan_builder import PlanBuilder

__all__ = ["CODE", "FACT", "contradicted_messages", "tell_contradicted"]

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


def tell_contradicted(draft: PlanBuilder, messages: Mapping[int, Contradicted]) -> None:
    """List them in the plan's facts, by their place in the log."""
    if messages:
        draft.facts[FACT] = [
            {
                "topic": one.topic,
                "queue_id": one.queue_id,
                "queue_offset": one.queue_offset,
                "offset": one.offset,
                "size": one.size,
                "store_timestamp": one.store_timestamp,
                "unique_key": one.unique_key,
                "keys": one.keys,
                "key_hashes": list(one.hashes),
            }
            for _, one in sorted(messages.items())
        ]
