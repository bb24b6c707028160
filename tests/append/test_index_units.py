"""The units and slots of an index file: the C loop compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from rmqstore.append.index import IndexFileBuilder
from rmqstore.scan import native


@pytest.mark.parametrize("slots", [1, 7, 5000])
def test_c_and_numpy_build_the_same_index_file(slots: int) -> None:
    if native.load() is None:
        pytest.skip("the C library is not there")
    noise = np.random.default_rng(slots)
    by_c, by_numpy = IndexFileBuilder(slots, 10_000), IndexFileBuilder(slots, 10_000)
    for count in (1, 2000, 999):
        hashes = noise.integers(0, 1 << 31, count)
        offsets = np.sort(noise.integers(0, 1 << 40, count))
        times = np.sort(noise.integers(1 << 40, 1 << 41, count))
        units = by_c.add(offsets, times, hashes)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "load", lambda: None)
            assert by_numpy.add(offsets, times, hashes) == units
        assert by_c.header() == by_numpy.header()
        assert by_c.table.tolist() == by_numpy.table.tolist()
        assert by_c.changed.tolist() == by_numpy.changed.tolist()
        assert list(by_c.changed_slots()) == list(by_numpy.changed_slots())


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
