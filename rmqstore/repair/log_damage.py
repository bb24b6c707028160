"""Which findings are damage of a log, at which a replica is cut and which salvage covers, and which can be mended."""

from __future__ import annotations

from rmqstore.checks.problems.report import Finding, Findings
from rmqstore.repair.log.misplaced_files import MISPLACED
from rmqstore.repair.salvage.candidates.batch_records import CODES as BATCH_CODES

_HEADS = ("CL-SYSFLAG", "CL-HOST")
_OFFSETS = ("CL-QUEUE-OFFSET", "CL-QUEUE-OFFSET-GAP", "CL-QUEUE-OFFSET-REPEAT")
"""The record is whole, and only its queue offset is odd: no broker stops there, and cutting there would cost a replica
all that stands behind. Its master may have the same record; where it has another one, units say what was."""
MENDABLE = ("CL-BLANK-SIZE", *_HEADS, *_OFFSETS, "CL-QUEUE-RESTARTED", "CQ-WRONG-TAG", *BATCH_CODES)
_NO_DAMAGE = frozenset(
    (
        *("CL-QUEUE-RESTARTED", "CL-TIME-BACK", "CL-BLANK-SIZE", "CL-NO-MESSAGES"),
        *_HEADS,
        *_OFFSETS,
        *("DL-DATA-INDEX", "DL-INDEX-GHOST", "DL-STRAY-FILE", "DL-COMMITTED", "DL-TERM", *MISPLACED),
    )
)
_LOGS = ("commitlog", "dledger")


def is_log_damage(finding: Finding) -> bool:
    """Whether bytes of a log are damaged there; its offset is one of the log then."""
    code = finding.code
    return finding.queue in _LOGS and code[:3] in ("CL-", "DL-") and code not in _NO_DAMAGE and "TAIL" not in code


def cut_with(findings: Findings, cut: int) -> set[str]:
    """Problems of the logs that go with everything from `cut` (global offset) on."""
    stays = {f.code for f in findings.listed if f.queue not in _LOGS or f.offset < cut}
    return {code for code in findings.counts if code[:3] in ("CL-", "DL-") and code not in stays} - {*MISPLACED}
