"""Read the start offset of a log file from its first record, independently of the file's name."""

from __future__ import annotations

from pathlib import Path

from rmqstore.files.disk.files import Files
from rmqstore.formats import dledger
from rmqstore.formats.message import HEAD, MAGIC_V1, MAGIC_V2


def place_of_log_file(files: Files, path: Path) -> int | None:
    """Return PHYSICALOFFSET (bytes) of the record at the start of a commitlog file; None if there is no record."""
    raw = files.read_at(path, HEAD.size, 0)
    if len(raw) < HEAD.size:
        return None
    head = HEAD.parse(raw)
    start = int(head["physical_offset"])
    return start if head["magic"] in (MAGIC_V1, MAGIC_V2) and start >= 0 else None


def place_of_entry_file(files: Files, path: Path) -> int | None:
    """Return `pos` (bytes) of the entry at the start of a DLedger data file; None if there is no entry."""
    raw = files.read_at(path, dledger.ENTRY.size, 0)
    if len(raw) < dledger.ENTRY.size:
        return None
    entry = dledger.ENTRY.parse(raw)
    start = int(entry["pos"])
    return start if entry["magic"] == dledger.MAGIC and start >= 0 else None
