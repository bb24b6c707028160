"""What a plan says about the store before and after it.

After: what a verification finds, measured on the planned store and compared with the result. Before: the verdict, the
problems, and how far consumer groups were. Pure.

The journal of a repair keeps its plan, and so what was known when it was applied. A saved plan is untrusted: what does
not have the form of these facts is as good as missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rmqstore.checks.beside.config import ConsumerOffsets
from rmqstore.checks.problems.report import Finding, Report, VersionRange, problem_counts
from rmqstore.documents.content import Json, objects
from rmqstore.documents.plan import Plan
from rmqstore.files.store import Store
from rmqstore.formats.consumequeue import topic_of
from rmqstore.texts import Text, joined, many

AFTER = "after"
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
    account: Mapping[str, Any] | None = None
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
            None if report.account is None else report.account.to_json(),
            Counter(map(_key, report.findings.listed)),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the object `after` of a plan."""
        return {
            "counts": dict(self.problems),
            "verdict": self.headline,
            "unchecked": list(self.unchecked),
            "account": None if self.account is None else dict(self.account),
        }

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
                    "forecast: planned {planned!r}, found {found!r}",
                    planned=self.headline,
                    found=found.headline,
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
                    "not checked: planned {planned}, found {found}",
                    planned=list(self.unchecked),
                    found=list(found.unchecked),
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
    return replace(plan, cures=cures, facts={**plan.facts, "stays": stays, AFTER: outcome.to_json()})


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
        "{code} {queue} {file} at {offset:,}, {length}, {dict}",
        code=code,
        queue=queue,
        file=file,
        offset=offset,
        length=many(length, "byte"),
        dict=dict(facts),
    )


BEFORE = "before"

_LISTED = 100  # findings that are kept, worst first; all are counted


@dataclass(frozen=True, slots=True)
class Before:
    """A store as `verify` found it just before a repair was planned.

    `counts`: findings by code. `brokers`: what each version would have done. `listed`: the first findings, worst first,
    without facts. `offsets`: progress of the groups in the queues that the repair loses or mends messages of; None if
    unknown.
    """

    verdict: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    brokers: tuple[VersionRange, ...] = ()
    listed: tuple[Finding, ...] = ()
    offsets: ConsumerOffsets | None = None


def with_before(plan: Plan, store: Store, report: Report) -> Plan:
    """Return the plan with what was found in the store; a plan that has it, as a saved one, stays as it is."""
    if plan.empty or BEFORE in plan.facts or store.part is not None:
        return plan
    found: dict[str, Json] = {
        "verdict": report.headline,
        "counts": dict(sorted(report.findings.counts.items())),
        "brokers": [row.to_json() for row in report.brokers],
        "findings": [
            {"code": f.code, "queue": f.queue, "file": f.file, "offset": f.offset, "length": f.length}
            for f in report.ordered()[:_LISTED]
        ],
        "offsets": _offsets(store, _topics_of(plan)),
        "account": None if report.account is None else report.account.to_json(),
    }
    return replace(plan, facts={**plan.facts, BEFORE: found})


def _topics_of(plan: Plan) -> set[str]:
    topics = set(map(topic_of, plan.loss.queues))
    for name in ("fillers", "mended"):
        topics |= {str(row["topic"]) for row in objects(plan.facts.get(name))}
    return topics


def _offsets(store: Store, topics: Collection[str]) -> Json:
    """Return the offsets in some topics: topic -> queue id -> group -> offset; None if they are unknown."""
    known = ConsumerOffsets.read(store)
    if known.unreadable:
        return None
    return {
        topic: {str(queue_id): dict(groups) for queue_id, groups in known.queues[topic].items()}
        for topic in sorted(topics)
        if topic in known.queues
    }


def before(plan: Plan) -> Before | None:
    """Return what a plan says about the store before the repair; None if it does not."""
    found = plan.facts.get(BEFORE)
    if not isinstance(found, Mapping):
        return None
    brokers = (_range(row) for row in objects(found.get("brokers")))
    listed = (_finding(row) for row in objects(found.get("findings")))
    counts = found.get("counts")
    return Before(
        str(found.get("verdict") or ""),
        {str(code): n for code, n in counts.items() if isinstance(n, int)} if isinstance(counts, Mapping) else {},
        tuple(row for row in brokers if row is not None),
        tuple(row for row in listed if row is not None),
        _read_offsets(found.get("offsets")),
    )


def _range(row: Mapping[str, Json]) -> VersionRange | None:
    texts = all(isinstance(row.get(name), str) for name in ("oldest", "newest", "outcome", "words"))
    if not texts or not isinstance(row.get("messages_lost"), int):
        return None
    try:
        return VersionRange(**row)  # type: ignore[arg-type]
    except TypeError:
        return None


def _finding(row: Mapping[str, Json]) -> Finding | None:
    offset, length = row.get("offset"), row.get("length")
    if not isinstance(offset, int) or not isinstance(length, int):
        return None
    return Finding(str(row.get("code")), str(row.get("queue")), str(row.get("file")), offset, length)


def _read_offsets(value: Json) -> ConsumerOffsets | None:
    if not isinstance(value, Mapping):
        return None
    out = ConsumerOffsets()
    for topic, queues in value.items():
        for queue_id, groups in queues.items() if isinstance(queues, Mapping) else ():
            if str(queue_id).isdecimal() and isinstance(groups, Mapping):
                own = {str(group): offset for group, offset in groups.items() if isinstance(offset, int)}
                out.queues.setdefault(topic, {})[int(queue_id)] = own
    return out
