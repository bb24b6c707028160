"""Which findings are damage of a log, at which a replica is cut and which salvage covers, and which can be mended."""

from __future__ import annotations

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Finding, Findings
from rmqstore.repair.log.misplaced_files import MISPLACED
from rmqstore.repair.salvage.candidates.batch_records import CODES as BATCH_CODES

_HEADS = (codes.CL_SYSFLAG, codes.CL_HOST)
_KEYS = codes.CL_CONTRADICTED
_OFFSETS = (codes.CL_QUEUE_OFFSET, codes.CL_QUEUE_OFFSET_GAP, codes.CL_QUEUE_OFFSET_REPEAT)
"""The record is whole, and only its queue offset is odd: no broker stops there, and cutting there would cost a replica
everything behind it. Its master may have the same record; where it has another one, units say what was."""
MENDABLE = (codes.CL_BLANK_SIZE, *_HEADS, *_OFFSETS, codes.CL_QUEUE_RESTARTED, codes.CQ_WRONG_TAG, *BATCH_CODES)
_NO_DAMAGE = frozenset(
    (
        *(codes.CL_QUEUE_RESTARTED, codes.CL_TIME_BACK, codes.CL_BLANK_SIZE, codes.CL_NO_MESSAGES),
        *(*_HEADS, _KEYS),
        *_OFFSETS,
        *(
            codes.DL_DATA_INDEX,
            codes.DL_INDEX_GHOST,
            codes.DL_STRAY_FILE,
            codes.DL_COMMITTED,
            codes.DL_TERM,
            *MISPLACED,
        ),
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
