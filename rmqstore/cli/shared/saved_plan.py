"""A plan that was read from a file: what it costs is measured, and what the file says about itself is left out.

A plan file is a claim of whoever wrote it. If this command would make the same change now, our own plan takes its
place. Otherwise the messages that it loses are those that the store has and the store as it will be has not, and what
it cures and leaves is what a verification finds there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rmqstore.errors import RmqStoreError
from rmqstore.texts import Text, many

if TYPE_CHECKING:
    from rmqstore.checks.verified import Verified
    from rmqstore.documents.outcome import Outcome
    from rmqstore.documents.plan import Plan
    from rmqstore.files.store import Store

_KINDS = ("strategy", "role", "part", "storage", "expire", "command")
"""Facts that say which command made a plan: their values choose words, and are not printed as results."""


def own_or_claimed(saved: Plan, *plans: Callable[[], Plan]) -> Plan:
    """Return the one of the `plans` of this command that is the same change; else the saved one without its claims."""
    for plan in plans:
        try:
            fresh = plan()
        except RmqStoreError:
            continue
        if fresh.digest == saved.digest:
            return fresh
    return without_claims(saved)


def without_claims(plan: Plan) -> Plan:
    """Return a plan without what it says about its loss, its cures and its reasons; the digest stays the same."""
    from rmqstore.documents.plan import Loss

    facts = {name: plan.facts[name] for name in _KINDS if isinstance(plan.facts.get(name), str)}
    facts |= {"expire": {}} if "expire" in plan.facts else {}
    settings = plan.settings
    return replace(
        plan,
        steps=tuple(replace(step, why="") for step in plan.steps),
        spans=tuple(replace(span, why="") for span in plan.spans),
        loss=Loss(),
        cures=(),
        notes=(),
        facts={**facts, CLAIMED: True, **({"settings": settings} if settings else {})},
    )


CLAIMED = "claimed"
"""The fact of a plan that was read from a file and is not one of this command's own."""


def measured(store: Store, verified: Verified | None, plan: Plan, outcome: Outcome | None) -> Plan:
    """Return a claimed plan with its measured loss, and with decisions for loss and for new problems.

    `verified`: the examination of the store, `outcome`: of the store after the plan; None if there was none.

    Errors: as `open_store`, and those of the contents of the plan.
    """
    if CLAIMED not in plan.facts or plan.empty:
        return plan
    from rmqstore.checks.problems.report import problem_counts
    from rmqstore.documents.plan import Loss
    from rmqstore.repair.planned import after
    from rmqstore.views.compare import messages_gone

    results = verified.results if verified is not None else []
    fillers = frozenset(at for result in results for at in result.fillers)
    gone = messages_gone(store, after(store, plan), fillers)
    queues = {name: count for name, (count, _) in gone.queues.items()}
    decisions = list(plan.decisions)
    if gone.messages:
        lost = many(gone.messages, "message")
        decisions.append(Text("{messages} that the store has now would be lost", messages=lost))
    worse: dict[str, int] = {}
    if verified is not None and outcome is not None:
        worse = _worse(problem_counts(verified.report), outcome.problems)
    decisions += [Text("it would leave {code} x {count:,}", code=code, count=count) for code, count in worse.items()]
    return replace(
        plan,
        loss=Loss(gone.messages, gone.bytes, queues),
        decisions=tuple(dict.fromkeys(decisions)),
        notes=(*plan.notes, _NOTE),
    )


_NOTE = Text(
    "this plan comes from a file, and the command would now plan something else: the loss counts the messages that the "
    "store has now; those that damage has already destroyed are not counted"
)


def _worse(before: Mapping[str, int], then: Mapping[str, int]) -> dict[str, int]:
    """Return the problems of which there are more after a plan than before it."""
    return {code: count for code, count in then.items() if count > before.get(code, 0)}
