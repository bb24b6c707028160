"""Read the header and single units of an index file, and follow the chain of units that a query for a key follows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmqstore.files.disk.files import Files
from rmqstore.formats import index


def index_header(files: Files, path: Path) -> dict[str, int] | None:
    """Read the header of an index file; None if the file does not contain all of it."""
    raw = files.read_at(path, index.HEADER.size, 0)
    return index.HEADER.parse(raw) if len(raw) == index.HEADER.size else None


def index_unit(files: Files, path: Path, slots: int, number: int) -> dict[str, Any] | None:
    """Read one unit by its number; None if the file does not contain all of it."""
    raw = files.read_at(path, index.UNIT.size, index.unit_at(number, slots))
    return index.UNIT.unpack(raw) if len(raw) == index.UNIT.size else None


def index_chain(
    files: Files, path: Path, slots: int, units: int, key_hash: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number and fields of the units in the chain of a key hash, newest first, while their numbers decrease.

    A unit number of `units` or more ends the chain. Units of other hashes in the same slot are included. A broker also
    follows a link to a higher number, which only damage can produce.
    Source: IndexFile#selectPhyOffset (RocketMQ 5.4.0)
    """
    try:
        file = files.open(path)
    except OSError:
        return
    try:
        slot = file.read(index.SLOT.size, index.slot_at(index.slot_of(key_hash, slots)))
        number = int.from_bytes(slot, "big", signed=True)
        while 0 < number < units:
            raw = file.read(index.UNIT.size, index.unit_at(number, slots))
            if len(raw) < index.UNIT.size:
                return
            unit = index.UNIT.unpack(raw)
            yield number, unit
            if unit["prev_index"] >= number:
                return
            number = unit["prev_index"]
    except OSError:
        return
    finally:
        file.close()
