"""How many slots and units a store's index files have: they do not say it themselves.

Source: IndexService#<init>, IndexFile#<init> (RocketMQ 4.3 to 5.4.0): one size for all files of a store.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rmqstore.files.disk.reading import read_at
from rmqstore.files.mapped_file_queue import DirEntry
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

_SEARCH = 1 << 20


def index_sizes(store: Store) -> tuple[int, int] | None:
    """(slots, units): those of broker.conf where a file has that length, else what the files say, else broker.conf.

    None where none of them tells.
    """
    configured = configured_index_sizes(store)
    entries = store.index_files
    if configured is not None and any(e.length == file_size(*configured) for e in entries):
        return configured
    return sizes_on_disk(store) or configured


def sizes_on_disk(store: Store) -> tuple[int, int] | None:
    """(slots, units) by the files alone, whatever broker.conf says; None where no file tells."""
    return _found(store.index_files)


def configured_index_sizes(store: Store) -> tuple[int, int] | None:
    """(slots, units) that broker.conf gives; None where it gives neither."""
    config = store.config
    if not (config.given_int("maxHashSlotNum") or config.given_int("maxIndexNum")):
        return None
    slots, units = config.int("maxHashSlotNum"), config.int("maxIndexNum")
    return (slots, units) if slots > 0 and units > 0 else None


def _found(entries: list[DirEntry]) -> tuple[int, int] | None:
    """(slots, units) of the files: RocketMQ's defaults where they fit, else found in the files.

    A store has one size for all; a file of another length does not change it.
    """
    lengths: dict[int, int] = {}
    for entry in entries:
        lengths[entry.length] = lengths.get(entry.length, 0) + 1
    if file_size() in lengths:
        return DEFAULT_SLOTS, DEFAULT_UNITS
    # the most common length first; within it every file is asked until one can tell
    for length in sorted(lengths, key=lambda n: (-lengths[n], -n)):
        for entry in entries:
            if entry.length == length and (slots := _find_slots(entry.path, length)) is not None:
                return slots, units_in(length, slots)
    return None


def _find_slots(path: Path, length: int) -> int | None:
    """Number of slots, from the place of the last entry: the header has its offset, its slot points to it."""
    raw = read_at(path, HEADER.size, 0)
    if len(raw) < HEADER.size:
        return None
    head = HEADER.parse(raw)
    last = head["index_count"] - 1
    if last < 1:
        return None
    wanted = int(head["end_phy_offset"]).to_bytes(8, "big", signed=True)
    at = HEADER.size
    overlap = len(wanted) - 1
    while at < length:
        block = read_at(path, _SEARCH + overlap, at)
        if not block:
            return None
        p = block.find(wanted)
        while p >= 0:
            slots, rest = divmod(at + p - UNIT.at("phy_offset") - HEADER.size - last * UNIT.size, SLOT.size)
            if rest == 0 and slots > 0 and _fits(path, length, slots, last):
                return slots
            p = block.find(wanted, p + 1)
        at += _SEARCH
    return None


def _fits(path: Path, length: int, slots: int, last: int) -> bool:
    """Whether the slots of the last entries hold these or newer entries: by chance that is not so for 64 of them."""
    if (length - unit_at(0, slots)) % UNIT.size or last >= units_in(length, slots):
        return False
    first = max(1, last - 63)
    units: Any = UNIT.array(read_at(path, (last - first + 1) * UNIT.size, unit_at(first, slots)))
    good = 0
    for number, key_hash in enumerate(units["key_hash"].tolist(), first):
        slot = read_at(path, SLOT.size, slot_at(slot_of(key_hash, slots))) if key_hash >= 0 else b""
        good += number <= int.from_bytes(slot, "big") <= last + 1
    return good * 20 >= len(units) * 19 and good > 0
