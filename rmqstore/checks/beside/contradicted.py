"""CL-CONTRADICTED: a finding for every message that its own index entries contradict."""

from __future__ import annotations

from collections.abc import Iterable

from rmqstore.checks.index.contradicted import CODE
from rmqstore.checks.index.tally import Contradicted
from rmqstore.checks.log.logs import Logs
from rmqstore.checks.problems.report import Fact, Finding, Findings


def report_contradicted(logs: Logs, findings: Findings) -> None:
    """A finding for each of these messages of which nothing else says already that its header or text is damaged."""
    said = {(f.queue, f.offset) for f in findings.listed if f.problem.alters_keys}
    for result in logs.results:
        name = "dledger" if result.lead else "commitlog"
        for one in _sorted(result.index.contradicted.values()):
            start = one.offset - result.lead
            if (name, start) in said or one.offset in logs.misfiled.offsets:
                continue
            facts: dict[str, Fact] = {
                "topic": one.topic,
                "queue_id": one.queue_id,
                "queue_offset": one.queue_offset,
                "store_timestamp": one.store_timestamp,
                "unique_key": one.unique_key,
                "keys": one.keys,
                "entries": one.entries,
            }
            size = one.size + result.lead
            findings.add(Finding(CODE, name, result.file_of(one.offset), start, size, facts))


def _sorted(rows: Iterable[Contradicted]) -> list[Contradicted]:
    return sorted(rows, key=lambda one: one.offset)
