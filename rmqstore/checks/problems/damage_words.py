"""The number of damaged messages, for the first line of a report: a start may leave all of them in the log."""

from __future__ import annotations

from rmqstore.checks.problems.problem import Extent
from rmqstore.checks.problems.report import Findings
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.formats.text.counts import many


def damage_words(findings: Findings) -> str:
    """Say what is damaged in the logs: "4 messages and 1 stretch of the log are damaged"; "" for no damage."""
    records, places, listed = set[tuple[str, int]](), 0, 0
    for finding in findings.listed:
        extent = finding.problem.extent
        if not finding.in_log or extent is Extent.NOTHING:
            continue
        listed += 1
        if extent is Extent.RECORD or "topic" in finding.facts:
            records.add((finding.queue, finding.offset))
        else:
            places += 1
    counted = sum(n for code, n in findings.counts.items() if PROBLEMS[code].extent is not Extent.NOTHING)
    unlisted = max(0, counted - listed)
    messages = len(records) + unlisted
    parts = []
    if messages:
        parts.append(many(messages, "message"))
    if places:
        parts.append(many(places, "stretch of the log", "stretches of the log"))
    return f"{' and '.join(parts)} {'is' if messages + places == 1 else 'are'} damaged" if parts else ""
