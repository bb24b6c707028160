"""Original records for plans that do not change the log, so that they do not rebuild queues and index to fit damage.

Salvage corrects records that their units prove damaged (`framed.py`). On a replica, in a rebuild of one part and with
`--only`, the log stays unchanged; then queues and index are rebuilt as if from the original records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.problems import codes as problem_codes
from rmqstore.repair.log.repaired_log import RepairedLog
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.plan.wording import first_few
from rmqstore.repair.salvage.evidence.table import Evidence
from rmqstore.repair.salvage.framed import DamagedPart, FramedRecords
from rmqstore.texts import Text

_SHIFTED = (
    problem_codes.CQ_SHIFTED,
    problem_codes.CQ_DANGLING_UNIT,
    problem_codes.CL_QUEUE_OFFSET_REPEAT,
    problem_codes.CL_QUEUE_OFFSET,
)
_BATCHES = (problem_codes.BCQ_WRONG_UNIT, problem_codes.BCQ_DANGLING_UNIT, problem_codes.BCQ_MISSING_UNIT)
_MISFILED = (
    problem_codes.CL_HEADER,
    problem_codes.CL_TOPIC,
    problem_codes.CL_QUEUE_OFFSET_GAP,
    problem_codes.CL_QUEUE_OFFSET_REPEAT,
)
_FLAGGED = (problem_codes.CQ_DANGLING_UNIT, problem_codes.CL_QUEUE_OFFSET_GAP, problem_codes.CL_SYSFLAG)
_TAGS = (problem_codes.CQ_WRONG_TAG, problem_codes.CL_CONTRADICTED)


class _ProofKind(NamedTuple):
    """How a plan reports messages with one kind of proof.

    `fact` is the name of the plan's fact with their global offsets, `codes` are the problems that verify still finds.
    """

    proof: DamagedPart
    fact: str
    codes: tuple[str, ...]
    damaged: str
    witness: str


_KINDS = (
    _ProofKind(DamagedPart.TAGS, "proved_tags", _TAGS, "TAGS", Text("the tagsCode of the unit")),
    _ProofKind(
        DamagedPart.QUEUE,
        "proved_queues",
        _MISFILED,
        Text("topics or QUEUEIDs"),
        Text("the only unit that points to them"),
    ),
    _ProofKind(
        DamagedPart.FLAG,
        "proved_flags",
        _FLAGGED,
        "SYSFLAGs",
        Text("the unit that points to them, or by their queue offset"),
    ),
    _ProofKind(DamagedPart.OFFSET, "proved_offsets", _SHIFTED, "QUEUEOFFSETs", Text("the order of the queue")),
    _ProofKind(
        DamagedPart.BATCH, "proved_batches", _BATCHES, Text("headers or properties"), Text("the unit of the batch")
    ),
)


class ProvedRecords:
    """The original records of a store that units prove, for the views of its logs."""

    def __init__(self, evidence: Evidence) -> None:
        fixes = FramedRecords(evidence).solve().fixes
        self._records = {at: fix for at, fix in fixes.items() if fix.proofs and fix.new is not None}

    def view(self, log: LogResult, end: int, draft: PlanBuilder) -> RepairedLog:
        """Return the view of a log after the steps of a draft, with the original records."""
        fixes = {at: fix.new for at, fix in self._records.items() if fix.log is log and fix.new is not None}
        return RepairedLog.of(log, end, draft, fixes)

    def note(self, draft: PlanBuilder, views: Sequence[RepairedLog]) -> None:
        """Note which messages of the views stay damaged, only once per draft."""
        places = sorted(at for view in views for at in view.originals)
        if not places or any(kind.fact in draft.facts for kind in _KINDS):
            return
        for kind in _KINDS:
            found = [at for at in places if _strongest(self._records[at].proofs) is kind.proof]
            if found:
                draft.facts[kind.fact] = list(found)
                places_text = first_few([f"{at:,}" for at in found])
                draft.notes.append(
                    Text(
                        "the messages at {places_text} have damaged {damaged} (proved by {witness}): unit and log "
                        "are left unchanged",
                        places_text=places_text,
                        damaged=kind.damaged,
                        witness=kind.witness,
                    )
                )


def _strongest(proofs: set[DamagedPart]) -> DamagedPart:
    return next(
        proof
        for proof in (DamagedPart.BATCH, DamagedPart.QUEUE, DamagedPart.FLAG, DamagedPart.OFFSET, DamagedPart.TAGS)
        if proof in proofs
    )


def open_codes(draft: PlanBuilder) -> frozenset[str]:
    """Return the problems that verify still finds because such messages stay damaged."""
    return frozenset(code for kind in _KINDS if kind.fact in draft.facts for code in kind.codes)
