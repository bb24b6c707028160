"""Units that are right where the log is not: what is made from the log is not made to fit its damage.

A unit's tags code can prove that one bit of its message's TAGS is flipped; units in their order prove that neighbouring
messages have wrong queue offsets, and the other messages of a queue that a single one has (`evidence/order.py`).
Salvage mends such messages. Where nothing in the log is changed (a replica, a rebuild of one part, `--only`), queues
and index are made as from the message that was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.problems import codes as problem_codes
from rmqstore.checks.verify import Verified
from rmqstore.files.store import Store
from rmqstore.repair.log.repaired_log import Patch, RepairedLog
from rmqstore.repair.plan.content import Literal
from rmqstore.repair.plan.plan_builder import PlanBuilder

FACT = "proved_tags"
"""In a plan's facts: messages (global offsets) whose TAGS stay damaged though their units prove what they were."""
OFFSETS = "proved_offsets"
"""The same of messages whose QUEUEOFFSET stays damaged."""
BATCHES = "proved_batches"
"""The same of messages of BatchCQ topics whose unit proves one of their fields."""
CODES = (problem_codes.CQ_WRONG_TAG, problem_codes.CL_CONTRADICTED)
"""What stays to be said of such a message: its unit, and the index entry of its TAGS, contradict it."""

_SHIFTED = (
    problem_codes.CQ_SHIFTED,
    problem_codes.CQ_DANGLING_UNIT,
    problem_codes.CL_QUEUE_OFFSET_REPEAT,
    problem_codes.CL_QUEUE_OFFSET,
)
_BATCHES = (problem_codes.BCQ_WRONG_UNIT, problem_codes.BCQ_DANGLING_UNIT, problem_codes.BCQ_MISSING_UNIT)

_LISTED = 8


class ProvedRecords:
    """The records of a store that units prove, for the views of its logs."""

    def __init__(self, store: Store, verified: Verified) -> None:
        tags: dict[int, tuple[LogResult, bytes]] = {}
        counts = verified.report.findings.counts
        if CODES[0] in counts:
            from rmqstore.repair.salvage.candidates.tags import proved_records

            tags = {r.start: (r.log, r.new) for r in proved_records(verified)}
        logs = verified.logs
        offsets: dict[int, tuple[LogResult, bytes]] = {}
        if any(part.repeats or part.outliers or part.restarts for part in logs.queues.values()):
            from rmqstore.repair.salvage.candidates.headers import HeaderFixes
            from rmqstore.repair.salvage.evidence.spans import Neighbours

            fixes = HeaderFixes(store, verified, Neighbours(logs.results, 0)).of_offsets
            offsets = {fix.start: (fix.log, fix.new) for fix in fixes if fix.new is not None}
        batches: dict[int, tuple[LogResult, bytes]] = {}
        if counts.keys() & set(_BATCHES):
            from rmqstore.repair.salvage.candidates.batch_records import proved_batches

            batches = {b.start: (b.log, b.new) for b in proved_batches(store, verified)}
        self._records = tags | offsets | batches
        self.batches = frozenset(batches)
        self.offsets = frozenset(offsets)

    def view(self, log: LogResult, end: int, draft: PlanBuilder) -> RepairedLog:
        """A log as a draft leaves it, with those records as they were."""
        records = ((start, new) for start, (of, new) in self._records.items() if of is log)
        patches = [Patch(start, start + len(new), Literal(new)) for start, new in records]
        return RepairedLog.of(log, end, draft, patches)


def tell(draft: PlanBuilder, views: Sequence[RepairedLog], believed: ProvedRecords) -> None:
    """Say which messages of the views stay as they are, once."""
    places = sorted(patch.start for view in views for patch in view.believed)
    if not places or {FACT, OFFSETS, BATCHES} & draft.facts.keys():
        return
    others = believed.offsets | believed.batches
    for fact, found, what, proof in (
        (FACT, [at for at in places if at not in others], "TAGS", "tags code of its unit proves"),
        (OFFSETS, [at for at in places if at in believed.offsets], "QUEUEOFFSETs", "order of its queue proves"),
        (BATCHES, [at for at in places if at in believed.batches], "headers or properties", "unit of its batch proves"),
    ):
        if found:
            draft.facts[fact] = list(found)
            more = f" and {len(found) - _LISTED:,} more" if len(found) > _LISTED else ""
            draft.notes.append(
                f"the {what} of the message at {', '.join(f'{at:,}' for at in found[:_LISTED])}{more} are damaged, as "
                f"the {proof}: unit and log are left unchanged"
            )


def cured(draft: PlanBuilder, codes: Iterable[str]) -> set[str]:
    """Those of the codes that are cured though such messages stay."""
    return {code for code in codes if code not in open_codes(draft)}


def open_codes(draft: PlanBuilder) -> frozenset[str]:
    """What verify goes on to say of such messages."""
    codes = ((FACT, CODES), (OFFSETS, _SHIFTED), (BATCHES, _BATCHES))
    return frozenset(code for fact, some in codes if fact in draft.facts for code in some)
