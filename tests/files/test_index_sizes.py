"""Numbers of slots and units of index files, which the files contain only indirectly."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqstore.checks.beside.index import check_index
from rmqstore.checks.problems.report import Findings
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.index import index_sizes
from rmqstore.files.store import Store, open_store
from rmqstore.formats import index
from rmqstore.views.dump.batches import batch_length
from rmqstore.views.dump.selection import Selection
from rmqstore.views.dump.units import index_units
from tests.stores import copy_store


def _index_of(tmp_path: Path, slots: int, units: int, **settings: int) -> Store:
    """Create a store with one index file of these sizes, full of units with different hashes."""
    folder = tmp_path / "store" / "index"
    folder.mkdir(parents=True)
    (tmp_path / "store" / "commitlog").mkdir()
    data = bytearray(index.file_size(slots, units))
    count = min(units - 1, 3 * slots)
    newest: dict[int, int] = {}
    for number in range(1, count + 1):
        key_hash, slot = number * 7919, number * 7919 % slots
        unit = index.UNIT.build(
            key_hash=key_hash, phy_offset=1_000_000 + number * 250, time_diff=0, prev_index=newest.get(slot, 0)
        )
        at = index.unit_at(number, slots)
        data[at : at + len(unit)] = unit
        newest[slot] = number
        data[index.slot_at(slot) : index.slot_at(slot) + 4] = number.to_bytes(4, "big")
    data[: index.HEADER.size] = index.HEADER.build(
        begin_timestamp=1_700_000_000_000,
        end_timestamp=1_700_000_000_000,
        begin_phy_offset=1_000_250,
        end_phy_offset=1_000_000 + count * 250,
        hash_slot_count=len(newest),
        index_count=count + 1,
    )
    (folder / "20260101000000000").write_bytes(data)
    return open_store(tmp_path / "store", BrokerConfig({name: str(value) for name, value in settings.items()}))


@pytest.mark.parametrize(("slots", "units"), [(100, 400), (100, 730), (77, 50), (1, 9), (1000, 1000)])
def test_sizes_are_found_in_the_file_whatever_their_ratio(slots: int, units: int, tmp_path: Path) -> None:
    assert index_sizes(_index_of(tmp_path, slots, units)) == (slots, units)


def test_broker_conf_decides_where_a_file_has_that_length(tmp_path: Path) -> None:
    store = _index_of(tmp_path, 100, 400, maxHashSlotNum=100, maxIndexNum=400)
    assert index_sizes(store) == (100, 400)


def test_files_win_over_a_broker_conf_that_fits_none_of_them(tmp_path: Path) -> None:
    store = _index_of(tmp_path, 100, 400, maxHashSlotNum=200, maxIndexNum=800)
    assert index_sizes(store) == (100, 400)


def test_dump_reads_the_units_that_verify_reads(tmp_path: Path) -> None:
    store = _index_of(tmp_path, 100, 730)
    catalog = check_index(store, Findings(keep=10))
    rows = [batch for batch in index_units(store, Selection()) if "key_hash" in batch]
    assert catalog.files[0].slots == 100
    assert sum(batch_length(batch) for batch in rows) == catalog.files[0].last == 300
    assert [batch["slots"] for batch in index_units(store, Selection()) if "slots" in batch] == [100]


def test_sizes_of_a_real_store(tmp_path: Path) -> None:
    assert index_sizes(open_store(copy_store("5.4.0-clean", tmp_path))) == (100, 400)


@pytest.mark.parametrize("more", range(20))  # with one of them, the length fits a whole number of units
def test_a_file_extended_to_a_tebibyte_is_read_quickly_and_decides_nothing(more: int, store: Path) -> None:
    first, _, *others = sorted((store / "index").iterdir())
    for path in others:
        path.unlink()
    os.truncate(first, (1 << 40) + more)  # now as many files have the wrong length as the right one
    assert index_sizes(open_store(store)) == (100, 400)
