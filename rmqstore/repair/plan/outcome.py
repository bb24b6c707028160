"""What a verification finds after a plan: measured on the planned store, and compared with the result. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rmqstore.checks.problems.report import Finding, Report, problem_counts
from rmqstore.repair.plan.content import Json

if TYPE_CHECKING:
    from rmqstore.repair.plan.plan import Plan

FACT = "after"
"""The fact of a plan that contains the outcome as JSON."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The part of a report that does not depend on when and where the store is examined.

    `counts`: all findings per code, with notes; `problems`: the same without notes.
    """

    counts: Mapping[str, int]
    problems: Mapping[str, int]
    verdict: str
    headline: str
    broker: Mapping[str, Any]
    unchecked: tuple[str, ...] = ()
    findings: Counter[tuple[Any, ...]] = field(default_factory=Counter)

    @staticmethod
    def of(report: Report) -> Outcome:
        """Return the outcome that a report describes."""
        counts = {code: number for code, number in sorted(report.findings.counts.items()) if number}
        return Outcome(
            counts,
            problem_counts(report),
            report.verdict,
            report.headline,
            {**(report.broker or {}), "versions": [asdict(row) for row in report.brokers]},
            tuple(report.unchecked),
            Counter(map(_key, report.findings.listed)),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the object `after` of a plan."""
        return {"counts": dict(self.problems), "verdict": self.headline, "unchecked": list(self.unchecked)}

    def differences(self, found: Outcome) -> list[str]:
        """Return in words what another outcome has otherwise; nothing if both are equal."""
        lines = [
            f"{code}: {self.counts.get(code, 0):,} planned, {found.counts.get(code, 0):,} found"
            for code in sorted({*self.counts, *found.counts})
            if self.counts.get(code, 0) != found.counts.get(code, 0)
        ]
        lines += [f"not found: {_words(key)}" for key in self.findings - found.findings]
        lines += [f"not planned: {_words(key)}" for key in found.findings - self.findings]
        if self.headline != found.headline:
            lines.append(f"forecast: planned {self.headline!r}, found {found.headline!r}")
        elif self.broker != found.broker:
            names = sorted(
                name for name in {*self.broker, *found.broker} if self.broker.get(name) != found.broker.get(name)
            )
            lines.append(f"forecast: {', '.join(names)}")
        if self.unchecked != found.unchecked:
            lines.append(f"not checked: planned {list(self.unchecked)}, found {list(found.unchecked)}")
        return lines


def measured(plan: Plan, before: Report, outcome: Outcome) -> Plan:
    """Return a plan that says what was measured: what it cures, what remains, and the forecast of the next start."""
    found = sorted(code for code, number in before.findings.counts.items() if number)
    cures = tuple(code for code in found if code not in outcome.counts)
    said = plan.facts.get("stays")
    rows = said if isinstance(said, Mapping) else {}
    stays = {code: {**_reason(rows.get(code)), "count": count} for code, count in outcome.problems.items()}
    return replace(plan, cures=cures, facts={**plan.facts, "stays": stays, FACT: outcome.to_json()})


def _reason(row: Json) -> Mapping[str, Json]:
    if isinstance(row, Mapping):
        return row
    return {"why": "no step of this plan changes it", "do": "apply the plan, then see `rmqstore verify`"}


def _key(finding: Finding) -> tuple[Any, ...]:
    facts = tuple(sorted((name, str(value)) for name, value in finding.facts.items()))
    return finding.code, finding.queue, finding.file, finding.offset, finding.length, facts


def _words(key: tuple[Any, ...]) -> str:
    code, queue, file, offset, length, facts = key
    return f"{code} {queue} {file} at {offset:,}, {length:,} bytes, {dict(facts)}"
