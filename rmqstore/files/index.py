"""Index files: how large they are, their header, units and chains.

A file does not record how many slots and units it has; that is determined from all files of the store.

Source: IndexService#<init>, IndexFile#<init> (RocketMQ 4.3 to 5.4.0): all files of a store have the same size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from rmqstore.files.files import Files
from rmqstore.files.store import Store
from rmqstore.formats.index import (
    DEFAULT_SLOTS,
    DEFAULT_UNITS,
    HEADER,
    SLOT,
    UNIT,
    file_size,
    slot_at,
    slot_of,
    unit_at,
    units_in,
)


def index_header(files: Files, path: Path) -> dict[str, int] | None:
    """Read the header of an index file; None if the file does not contain all of it."""
    raw = files.read_at(path, HEADER.size, 0)
    return HEADER.parse(raw) if len(raw) == HEADER.size else None


def index_unit(files: Files, path: Path, slots: int, number: int) -> dict[str, Any] | None:
    """Read one unit by its number; None if the file does not contain all of it."""
    raw = files.read_at(path, UNIT.size, unit_at(number, slots))
    return UNIT.unpack(raw) if len(raw) == UNIT.size else None


def index_chain(
    files: Files, path: Path, slots: int, units: int, key_hash: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number and fields of the units in the chain of a key hash, newest first, while their numbers decrease.

    A unit number of `units` or more ends the chain. Units of other hashes in the same slot are included. A broker also
    follows a link to a higher number, which only damage can produce.
    Source: IndexFile#selectPhyOffset (RocketMQ 5.4.0)
    """
    with suppress(OSError), files.open(path) as file:
        slot = file.read(SLOT.size, slot_at(slot_of(key_hash, slots)))
        number = int.from_bytes(slot, "big", signed=True)
        while 0 < number < units:
            raw = file.read(UNIT.size, unit_at(number, slots))
            if len(raw) < UNIT.size:
                return
            unit = UNIT.unpack(raw)
            yield number, unit
            if unit["prev_index"] >= number:
                return
            number = unit["prev_index"]


_SEARCH = 1 << 20
_MOST_UNITS = (1 << 31) - 1
"""maxIndexNum is an int; a file that would have more was extended."""


def index_sizes(store: Store) -> tuple[int, int] | None:
    """Return (slots, units): from broker.conf if a file has the length that follows, else from the files.

    If the files do not show it either, broker.conf still counts; None if it has no such setting.
    """
    configured = configured_index_sizes(store)
    entries = store.index_files
    if configured is not None and any(e.length == file_size(*configured) for e in entries):
        return configured
    return sizes_on_disk(store) or configured


def sizes_on_disk(store: Store) -> tuple[int, int] | None:
    """Return (slots, units): RocketMQ's defaults if a file has their size, else from the files' contents.

    None if no file shows it; broker.conf is ignored.
    """
    files, entries = store.files, store.index_files
    lengths = Counter(entry.length for entry in entries)
    if file_size() in lengths:
        return DEFAULT_SLOTS, DEFAULT_UNITS
    # a few damaged files have other lengths: try the most common length first
    for length in sorted(lengths, key=lambda n: (-lengths[n], -n)):
        for entry in entries:
            if entry.length == length and (slots := _find_slots(files, entry.path, length)) is not None:
                return slots, units_in(length, slots)
    return None


def configured_index_sizes(store: Store) -> tuple[int, int] | None:
    """Return (slots, units) from broker.conf; None if it sets neither, or one of them is not positive."""
    config = store.config
    if not (config.given_int("maxHashSlotNum") or config.given_int("maxIndexNum")):
        return None
    slots, units = config.int("maxHashSlotNum"), config.int("maxIndexNum")
    return (slots, units) if slots > 0 and units > 0 else None


def _find_slots(files: Files, path: Path, length: int) -> int | None:
    """Find the number of slots by searching for the last entry, whose physical offset is in the header."""
    head = index_header(files, path)
    last = head["index_count"] - 1 if head is not None else 0
    if head is None or last < 1:
        return None
    wanted = int(head["end_phy_offset"]).to_bytes(8, "big", signed=True)
    for at in _find(files, path, wanted, HEADER.size, length):
        slots, rest = divmod(at - UNIT.at("phy_offset") - HEADER.size - last * UNIT.size, SLOT.size)
        if rest == 0 and slots > 0 and _fits(files, path, length, slots, last):
            return slots
    return None


def _find(files: Files, path: Path, wanted: bytes, start: int, stop: int) -> Iterator[int]:
    """Yield the positions (bytes) of a byte string in a file without reading its holes; none if it is unreadable."""
    overlap = len(wanted) - 1
    with suppress(OSError), files.open(path) as file:
        for low, high in file.data_extents(start, stop):
            for at in range(max(low - overlap, start), high, _SEARCH):
                block = file.read(min(_SEARCH + overlap, high - at), at)
                hit = block.find(wanted)
                while hit >= 0:
                    yield at + hit
                    hit = block.find(wanted, hit + 1)


def _fits(files: Files, path: Path, length: int, slots: int, last: int) -> bool:
    """Return whether the slots of the last 64 entries point to these or newer entries, and not by chance."""
    if (length - unit_at(0, slots)) % UNIT.size or not last < units_in(length, slots) <= _MOST_UNITS:
        return False
    first = max(1, last - 63)
    units: Any = UNIT.array(files.read_at(path, (last - first + 1) * UNIT.size, unit_at(first, slots)))
    good = 0
    for number, key_hash in enumerate(units["key_hash"].tolist(), first):
        slot = files.read_at(path, SLOT.size, slot_at(slot_of(key_hash, slots))) if key_hash >= 0 else b""
        good += number <= int.from_bytes(slot, "big") <= last + 1
    return good * 20 >= len(units) * 19 and good > 0
