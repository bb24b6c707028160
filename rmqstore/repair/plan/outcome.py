"""What a verification finds after a plan: measured on the planned store, and compared with the result. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rmqstore.checks.problems.report import Finding, Report, problem_counts
from rmqstore.repair.plan.content import Json
from rmqstore.texts import Text, joined

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
        lines: list[str] = [
            Text(
                "{code}: {planned:,} planned, {found:,} found",
                code=code,
                planned=self.counts.get(code, 0),
                found=found.counts.get(code, 0),
            )
            for code in sorted({*self.counts, *found.counts})
            if self.counts.get(code, 0) != found.counts.get(code, 0)
        ]
        lines += [Text("not found: {words}", words=_words(key)) for key in self.findings - found.findings]
        lines += [Text("not planned: {words}", words=_words(key)) for key in found.findings - self.findings]
        if self.headline != found.headline:
            lines.append(
                Text(
                    "forecast: planned {headline!r}, found {headline2!r}",
                    headline=self.headline,
                    headline2=found.headline,
                )
            )
        elif self.broker != found.broker:
            names = sorted(
                name for name in {*self.broker, *found.broker} if self.broker.get(name) != found.broker.get(name)
            )
            lines.append(Text("forecast: {names}", names=joined(names)))
        if self.unchecked != found.unchecked:
            lines.append(
                Text(
                    "not checked: planned {unchecked}, found {unchecked2}",
                    unchecked=list(self.unchecked),
                    unchecked2=list(found.unchecked),
                )
            )
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
    return {"why": Text("no step of this plan changes it"), "do": Text("apply the plan, then see `rmqstore verify`")}


def _key(finding: Finding) -> tuple[Any, ...]:
    facts = tuple(sorted((name, str(value)) for name, value in finding.facts.items()))
    return finding.code, finding.queue, finding.file, finding.offset, finding.length, facts


def _words(key: tuple[Any, ...]) -> str:
    code, queue, file, offset, length, facts = key
    return Text(
        "{code} {queue} {file} at {offset:,}, {length:,} bytes, {dict}",
        code=code,
        queue=queue,
        file=file,
        offset=offset,
        length=length,
        dict=dict(facts),
    )
