"""Corrects findings of a healed store: a witness that contradicts a record that a replica proves is itself wrong.

Without a replica, the witness counts, because it may be the only trace of damage in its message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Finding
from rmqstore.checks.verify import Verified
from rmqstore.repair.replica.sources import Taken


def judge(after: Verified, taken: Sequence[Taken]) -> None:
    """Replace findings about proved records by findings about the units and index entries that contradict them."""
    findings = after.report.findings
    logs = {log.name: log for log in after.logs.results}
    spans = [(t.place.log.lead, t.start, t.stop) for t in taken if t.good]

    def proved(lead: int, at: int) -> bool:
        return any(lead == of and start <= at < stop for of, start, stop in spans)

    kept: list[Finding] = []
    for finding in findings.listed:
        log = logs.get(finding.queue)
        pointed = finding.facts.get("commitlog_offset")
        if finding.code == codes.CL_CONTRADICTED and log is not None and proved(log.lead, finding.offset):
            at = finding.offset + log.lead
            entries = log.index.contradicted.pop(at).entries
            facts = {"messages": 1, "entries": entries, "first_offset": at, "last_offset": at}
            kept.append(Finding(codes.IX_NOT_INDEXED, "index", "", at, 0, facts))
        elif (
            finding.code == codes.CQ_WRONG_TAG
            and isinstance(pointed, int)
            and any(proved(lead, pointed) for lead in (0, 48))
        ):
            kept.append(replace(finding, facts={k: v for k, v in finding.facts.items() if k != "tags_code"}))
        else:
            kept.append(finding)
            continue
        findings.counts[finding.code] -= 1
        findings.counts[kept[-1].code] += 1
    findings.listed = kept
    findings.counts = +findings.counts
