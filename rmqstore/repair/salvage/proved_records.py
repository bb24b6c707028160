"""Where the log is not changed, what is made from it must not be made to fit its damage.

Salvage mends records that their units prove damaged (`framed.py`). A replica, a rebuild of one part and `--only` change
nothing in the log: there queues and index are made as from the message that was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.problems import codes as problem_codes
from rmqstore.repair.log.repaired_log import Patch, RepairedLog
from rmqstore.repair.plan.content import Literal
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.salvage.evidence.table import Evidence
from rmqstore.repair.salvage.framed import FramedRecords, Proof

_SHIFTED = (
    problem_codes.CQ_SHIFTED,
    problem_codes.CQ_DANGLING_UNIT,
    problem_codes.CL_QUEUE_OFFSET_REPEAT,
    problem_codes.CL_QUEUE_OFFSET,
)
_BATCHES = (problem_codes.BCQ_WRONG_UNIT, problem_codes.BCQ_DANGLING_UNIT, problem_codes.BCQ_MISSING_UNIT)
_LISTED = 8

_ROWS = (
    (
        Proof.TAGS,
        "proved_tags",
        (problem_codes.CQ_WRONG_TAG, problem_codes.CL_CONTRADICTED),
        ("TAGS", "tags code of its unit proves"),
    ),
    (Proof.OFFSET, "proved_offsets", _SHIFTED, ("QUEUEOFFSETs", "order of its queue proves")),
    (Proof.BATCH, "proved_batches", _BATCHES, ("headers or properties", "unit of its batch proves")),
)
"""Proof, the fact of a plan that lists such messages (global offsets), what verify goes on to say of them, words."""


class ProvedRecords:
    """The records of a store that units prove, for the views of its logs."""

    def __init__(self, evidence: Evidence) -> None:
        fixes = FramedRecords(evidence).solve().fixes
        self._records = {at: fix for at, fix in fixes.items() if fix.proofs and fix.new is not None}

    def view(self, log: LogResult, end: int, draft: PlanBuilder) -> RepairedLog:
        """A log as a draft leaves it, with those records as they were."""
        found = ((at, fix.new) for at, fix in self._records.items() if fix.log is log and fix.new is not None)
        return RepairedLog.of(log, end, draft, [Patch(at, at + len(new), Literal(new)) for at, new in found])

    def tell(self, draft: PlanBuilder, views: Sequence[RepairedLog]) -> None:
        """Say which messages of the views stay as they are, once."""
        places = sorted(patch.start for view in views for patch in view.believed)
        if not places or any(fact in draft.facts for _, fact, _, _ in _ROWS):
            return
        for proof, fact, _, (what, why) in _ROWS:
            found = [at for at in places if _strongest(self._records[at].proofs) is proof]
            if not found:
                continue
            draft.facts[fact] = list(found)
            more = f" and {len(found) - _LISTED:,} more" if len(found) > _LISTED else ""
            draft.notes.append(
                f"the {what} of the message at {', '.join(f'{at:,}' for at in found[:_LISTED])}{more} are damaged, as "
                f"the {why}: unit and log are left unchanged"
            )


def _strongest(proofs: set[Proof]) -> Proof:
    return next(proof for proof in (Proof.BATCH, Proof.OFFSET, Proof.TAGS) if proof in proofs)


def cured(draft: PlanBuilder, codes: Iterable[str]) -> set[str]:
    """Those of the codes that are cured though such messages stay."""
    return {code for code in codes if code not in open_codes(draft)}


def open_codes(draft: PlanBuilder) -> frozenset[str]:
    """What verify goes on to say of such messages."""
    return frozenset(code for _, fact, codes, _ in _ROWS if fact in draft.facts for code in codes)
