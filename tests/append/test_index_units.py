"""The units and slots of an index file."""

from __future__ import annotations

import numpy as np
import pytest

from rmqstore.append.index_builder import IndexFileBuilder
from rmqstore.formats import index


@pytest.mark.parametrize("slots", [1, 7, 5000])
def test_units_and_slots_are_those_of_entries_put_one_by_one(slots: int) -> None:
    noise = np.random.default_rng(slots)
    builder = IndexFileBuilder(slots, 10_000)
    table, newest = [0] * slots, 0
    for count in (1, 2000, 999):
        hashes = noise.integers(0, 1 << 31, count)
        offsets = np.sort(noise.integers(0, 1 << 40, count))
        units = np.frombuffer(builder.add(offsets, np.full(count, 1 << 40), hashes), dtype=index.UNIT.dtype)
        pages = set()
        for unit, code, offset in zip(units, hashes.tolist(), offsets.tolist(), strict=True):
            slot, newest = code % slots, newest + 1
            assert unit.tolist() == (code, offset, 0, table[slot])
            table[slot] = newest
            pages.add(slot // 1024)
        assert builder.table.tolist() == table
        assert builder.hash_slot_count == np.count_nonzero(table)
        assert np.flatnonzero(builder.changed).tolist() == sorted(pages)
        for first, written in builder.changed_slots():
            assert written == builder.table[first : first + len(written) // 4].astype(">i4").tobytes()


def test_the_last_unit_of_a_slot_is_its_newest() -> None:
    builder = IndexFileBuilder(10, 100)
    units = builder.add(np.array([5, 6, 7]), np.array([1000, 2000, 3000]), np.array([13, 4, 23]))
    assert builder.table.tolist() == [0, 0, 0, 3, 2, 0, 0, 0, 0, 0]
    assert builder.hash_slot_count == 2
    assert units.hex(" ", 4).split() == [
        *("0000000d", "00000000", "00000005", "00000000", "00000000"),
        *("00000004", "00000000", "00000006", "00000001", "00000000"),
        *("00000017", "00000000", "00000007", "00000002", "00000001"),
    ]
