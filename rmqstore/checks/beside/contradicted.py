"""CL-CONTRADICTED: a finding for every message that its own index entries contradict."""

from __future__ import annotations

from collections.abc import Collection

from rmqstore.checks.log.logs import Logs
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Findings


def report_contradicted(logs: Logs, findings: Findings, only: Collection[int] | None = None) -> None:
    """Report these messages, unless another finding already says that their header or text is damaged.

    `only`: report the messages at these offsets; None: all.
    """
    reported = {(f.queue, f.offset) for f in findings.listed if f.problem.alters_keys}
    for result in logs.results:
        for _, one in sorted(result.index.contradicted.items()):
            start = one.offset - result.body_offset
            if only is not None and one.offset not in only:
                continue
            if (result.name, start) in reported or one.offset in logs.misfiled.offsets:
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
            findings.add(result.finding(codes.CL_CONTRADICTED, start, one.size + result.body_offset, facts))
