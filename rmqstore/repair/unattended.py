"""What `recover --safe` may do without anybody there: which plans lose nothing and need no decision. Pure.

It is for a service that repairs a store before each start of its broker, as `e2fsck -p` does before a mount. What it
leaves to a person is in `Unattended` for each problem, and in `open_questions` for a store.
"""

from __future__ import annotations

from enum import Enum

from rmqstore.checks.problems.problem import Problem, Repair, Severity
from rmqstore.checks.problems.report import Report
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.documents.content import objects
from rmqstore.documents.outcome import Outcome
from rmqstore.documents.plan import Plan
from rmqstore.texts import Placed, Text, many


class Unattended(Enum):
    """What `recover --safe` does about a problem, in words for its manual page."""

    GOES_ON = "it does not keep the broker from starting"
    REPAIRED = "it is repaired, unless other problems need a decision"
    IF_NOTHING_IS_LOST = "it is repaired if no message is lost; otherwise a decision is needed"
    DECISION = "a decision is needed"


def unattended(problem: Problem) -> Unattended:
    """Return what `recover --safe` does about a problem."""
    if problem.stops_all:
        return Unattended.DECISION
    if problem.severity is Severity.ERROR:
        if problem.repair is not Repair.SAFE:
            return Unattended.DECISION
        may_lose = problem.damages_log or problem.points_after_log or bool(problem.why_not)
        return Unattended.IF_NOTHING_IS_LOST if may_lose else Unattended.REPAIRED
    return Unattended.REPAIRED if problem.repair is Repair.SAFE else Unattended.GOES_ON


def open_questions(plan: Plan, report: Report, outcome: Outcome | None) -> list[str]:
    """Return why a plan is not applied without a person, in words; nothing if it may be.

    `report`: of the store before the plan; `outcome`: what a verification would find after it, None for an empty plan.
    """
    from rmqstore.repair.plan.plan_text import loss_words

    out: list[str] = list(plan.decisions)
    if plan.loss.messages or plan.loss.more.get("at_least"):
        out.append(Text("{words}, which another copy of the log may still have", words=loss_words(plan)))
    if damaged := objects(plan.facts.get("damaged")):
        out.append(Text("{messages} with lost properties", messages=many(len(damaged), "message")))
    after = outcome if outcome is not None else Outcome.of(report)
    for code, count in after.problems.items():
        row = PROBLEMS[code]
        if row.severity is Severity.ERROR or row.stops_all:
            words = Placed("{code} x {count:,}: {title}", code=code, count=count, title=row.title)
            out.append(Placed("{problem} -> {do}", problem=words, do=row.to_do) if row.to_do else words)
    broker = after.broker
    if broker.get("starts") is False and not out:
        out.append(after.headline)
    if (lost := int(broker.get("messages_lost") or 0)) and not out:
        out.append(Text("the next start would lose {messages}", messages=many(lost, "message")))
    return out
