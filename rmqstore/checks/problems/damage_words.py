"""The number of damaged messages, for the first line of a report: a start may leave all of them in the log."""

from __future__ import annotations

from rmqstore.checks.problems.problem import Extent
from rmqstore.checks.problems.report import Finding, Findings
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.formats.text import many
from rmqstore.texts import Text, joined


def damage_words(findings: Findings) -> str:
    """Say what is damaged in the logs: "4 messages and 1 stretch of the log are damaged"; "" for no damage."""
    of_log = [f for f in findings.listed if f.in_log and f.problem.extent is not Extent.NOTHING]
    records, listed = damaged_records(findings), len(of_log)
    places = sum(not _is_record(f) for f in of_log)
    counted = sum(n for code, n in findings.counts.items() if PROBLEMS[code].extent is not Extent.NOTHING)
    unlisted = max(0, counted - listed)
    messages = len(records) + unlisted
    parts = []
    if messages:
        parts.append(many(messages, "message"))
    if places:
        parts.append(many(places, "stretch of the log", "stretches of the log"))
    return (
        (
            Text("{parts} is damaged", parts=joined(parts, " and "))
            if messages + places == 1
            else Text("{parts} are damaged", parts=joined(parts, " and "))
        )
        if parts
        else ""
    )


def damaged_records(findings: Findings) -> set[tuple[str, int]]:
    """Return the damaged records that are listed, each as its log and offset."""
    return {(f.queue, f.offset) for f in findings.listed if f.in_log and _is_record(f)}


def _is_record(finding: Finding) -> bool:
    extent = finding.problem.extent
    return extent is Extent.RECORD or (extent is Extent.RECORD_OR_BYTES and "topic" in finding.facts)
