"""How many messages of a log are damaged, for the first line of a report: a start may leave them all where they are."""

from __future__ import annotations

from rmqstore.checks.problems import codes as problem_codes
from rmqstore.checks.problems.report import Findings

_LOGS = ("commitlog", "dledger")
_OF_ONE_RECORD = frozenset(
    {
        *(
            problem_codes.CL_BODY_CRC,
            problem_codes.CL_RECORD_CRC,
            problem_codes.CL_PHYSICAL_OFFSET,
            problem_codes.CL_PROPERTIES,
            problem_codes.CL_TOPIC,
            problem_codes.CL_HEADER,
        ),
        *(
            problem_codes.CL_SYSFLAG,
            problem_codes.CL_HOST,
            problem_codes.CL_QUEUE_OFFSET,
            problem_codes.CL_CONTRADICTED,
            problem_codes.DL_BODY,
        ),
    }
)
"""A finding with one of these codes is about one record."""
_OF_RECORDS_OR_BYTES = frozenset(
    {
        problem_codes.CL_MAGIC,
        problem_codes.CL_SIZE,
        problem_codes.CL_HALF_MESSAGE,
        problem_codes.CL_ZERO_HOLE,
        problem_codes.DL_HEADER,
    }
)
"""About one record where the finding names its topic, else about bytes that hold no record any more."""


def damage_words(findings: Findings) -> str:
    """What of the logs is damaged: "4 messages and 1 stretch of the log are damaged"; "" for nothing."""
    records, places, listed = set[tuple[str, int]](), 0, 0
    codes = _OF_ONE_RECORD | _OF_RECORDS_OR_BYTES
    for finding in findings.listed:
        if finding.queue not in _LOGS or finding.code not in codes:
            continue
        listed += 1
        if finding.code in _OF_ONE_RECORD or "topic" in finding.facts:
            records.add((finding.queue, finding.offset))
        else:
            places += 1
    unlisted = max(0, sum(findings.counts[code] for code in codes) - listed)
    messages = len(records) + unlisted
    parts = []
    if messages:
        parts.append("1 message" if messages == 1 else f"{messages:,} messages")
    if places:
        parts.append("1 stretch of the log" if places == 1 else f"{places:,} stretches of the log")
    return f"{' and '.join(parts)} {'is' if messages + places == 1 else 'are'} damaged" if parts else ""
