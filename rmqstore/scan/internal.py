"""What only DLedger 0.4 writes between entries: entries without a message, and a BLANK in front of the entries.

Told from damage by the entry's whole header: its own position, sizes that add up, the fields that are always 0, and the
index and term that the entry must have. An entry of another type than NORMAL with a message in it is not taken: in what
RocketMQ writes that is a flipped magic.
"""

from __future__ import annotations

from typing import Any

from rmqstore.formats import dledger
from rmqstore.formats.message import MAGIC_V1_U32, MAGIC_V2_U32
from rmqstore.scan.resync import Bytes

TYPES = (dledger.NOOP, dledger.CONFIG_CHANGE)
_SIZE = dledger.ENTRY.size


def entry_at(
    source: Bytes, at: int, base: int, end: int, index: int | None = None, term: int = -1
) -> dict[str, Any] | None:
    """The header of the entry without a message at `at`; None without one.

    `index` is the one that it must have (None: any), `term` the least. Units: positions in the file.
    """
    entry = _header(source, at, base, end)
    if entry is None or entry["magic"] not in TYPES:
        return None
    if (index is not None and entry["index"] != index) or entry["term"] < term:
        return None
    body = source.pread(min(8, entry["body_length"]), at + _SIZE)
    message = len(body) == 8 and int.from_bytes(body[4:], "big") in (MAGIC_V1_U32, MAGIC_V2_U32)
    return None if message or (entry["magic"] == dledger.NOOP and body) else entry


def head_of_log(source: Bytes, at: int, size: int, base: int, end: int) -> bool:
    """Whether the BLANK at `at` is one before entries: it starts its file, and an entry follows it."""
    return at == 0 and dledger.BLANK.size <= size < end and _header(source, size, base, end) is not None


def _header(source: Bytes, at: int, base: int, end: int) -> dict[str, Any] | None:
    raw = source.pread(_SIZE, at)
    if len(raw) < _SIZE:
        return None
    entry = dledger.ENTRY.parse(raw)
    sound = (
        entry["magic"] in dledger.TYPES
        and entry["pos"] == base + at
        and entry["body_length"] >= 0
        and entry["size"] == _SIZE + entry["body_length"] <= end - at
        and entry["index"] >= 0
        and entry["term"] >= 0
        and not (entry["channel"] or entry["chain_crc"] or entry["body_crc"])
    )
    return dict(entry) if sound else None
