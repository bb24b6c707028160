"""Recognise what DLedger 0.4 writes besides messages: entries without a message, and a BLANK at the start of a file.

The whole entry header tells them from damage: position, sizes, the fields that are always 0, and the expected index and
term. An entry of another type than NORMAL that contains a message is rejected: RocketMQ never writes one, so its magic
is damaged.
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
    """Return the header of the entry without a message at `at`; None if there is no such entry.

    `index` is the required index (None: any), `term` the lowest valid term. Units: positions in the file.
    """
    entry = _header(source, at, base, end)
    if entry is None or entry["magic"] not in TYPES:
        return None
    if (index is not None and entry["index"] != index) or entry["term"] < term:
        return None
    body = source.pread(min(8, entry["body_length"]), at + _SIZE)
    has_message = len(body) == 8 and int.from_bytes(body[4:], "big") in (MAGIC_V1_U32, MAGIC_V2_U32)
    return None if has_message or (entry["magic"] == dledger.NOOP and body) else entry


def head_of_log(source: Bytes, at: int, size: int, base: int, end: int) -> bool:
    """Whether the BLANK at `at` precedes entries: it is at the start of its file, and an entry follows it."""
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
