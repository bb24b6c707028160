"""Where a file of a log begins, by its own first record: what its name should say."""

from __future__ import annotations

from pathlib import Path

from rmqstore.files.disk.reading import read_at
from rmqstore.formats import dledger
from rmqstore.formats.message import HEAD, MAGIC_V1, MAGIC_V2


def place_of_log_file(path: Path) -> int | None:
    """PHYSICALOFFSET of the record at the start of a commitlog file; None where no record is there. Units: bytes."""
    raw = read_at(path, HEAD.size, 0)
    if len(raw) < HEAD.size:
        return None
    head = HEAD.parse(raw)
    place = int(head["physical_offset"])
    return place if head["magic"] in (MAGIC_V1, MAGIC_V2) and place >= 0 else None


def place_of_entry_file(path: Path) -> int | None:
    """`pos` of the entry at the start of a DLedger data file; None where no entry is there. Units: bytes."""
    raw = read_at(path, dledger.ENTRY.size, 0)
    if len(raw) < dledger.ENTRY.size:
        return None
    entry = dledger.ENTRY.parse(raw)
    place = int(entry["pos"])
    return place if entry["magic"] == dledger.MAGIC and place >= 0 else None
