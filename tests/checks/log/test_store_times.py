"""A flipped bit that changes a store time by over a minute is found if the born time agrees with the neighbours."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.formats.message import HEAD, build_message
from tests import damage
from tests.command import run_json
from tests.planning import report_of
from tests.repair.salvaging import Row, rows
from tests.stores import copy_store

CODE = "CL-STORE-TIME"


def _flip(row: Row, bit: int) -> None:
    hosts = len(row.message.born_host) - 8
    damage.flip(row.path, row.at + HEAD.at("store_timestamp") + hosts + 7 - bit // 8, bit % 8)


def _found(store: Path) -> list[int | None]:
    listed = report_of(store).findings.listed
    return [f.offset for f in listed if f.code == CODE]


@pytest.mark.quick_rows
@pytest.mark.parametrize("bit", [17, 20, 31, 40, 62, 63])
@pytest.mark.parametrize("name", ["4.9.7-ipv6", "5.4.0-clean", "5.1.4-dledger"])
def test_a_flipped_bit_is_found_at_every_place(name: str, bit: int, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    near = [row for row in rows(store) if row.message.store_timestamp - row.message.born_timestamp < 1000]
    first_of_file = next(row for row in near if row.at == row.body_offset and row.offset > 65_536)
    hit = [near[0], near[100], first_of_file]
    for row in hit:
        _flip(row, bit)
    offsets = sorted({row.offset - row.body_offset for row in hit})
    assert _found(store) == offsets


@pytest.mark.quick_rows(5)
@pytest.mark.parametrize("bit", range(12))
def test_a_change_of_seconds_is_not_reported(bit: int, store: Path) -> None:
    _flip(rows(store)[100], bit)
    assert _found(store) == []


def test_a_wrong_time_is_not_the_time_of_the_log(store: Path) -> None:
    was = run_json("verify", str(store), exit_code=0)["commitlog"]
    _flip(rows(store)[300], 61)
    _flip(rows(store)[100], 63)
    report = run_json("verify", str(store), exit_code=1)
    assert report["commitlog"] == was
    assert report["counts"] == {CODE: 2, "IX-BAD-ENTRY": 2}


def test_a_delayed_message_after_a_pause_ends_a_file(store: Path) -> None:
    """Its broker was killed, and a minute later started and delivered due messages: one of them ends a file."""
    all_rows = rows(store)
    last = max(i for i, row in enumerate(all_rows) if row.path == all_rows[100].path)
    for row in all_rows[last:]:
        hosts = len(row.message.born_host) - 8
        time = row.message.store_timestamp + 88_000
        damage.overwrite(row.path, row.at + HEAD.at("store_timestamp") + hosts, time.to_bytes(8, "big"))
    assert _found(store) == []


@pytest.mark.parametrize(("bits", "found"), [(range(17, 32), False), (range(32, 33), True), (range(63, 64), True)])
def test_only_a_time_beyond_any_pause_is_wrong_at_the_end_of_a_file(bits: range, found: bool, store: Path) -> None:
    all_rows = rows(store)
    row = [row for row in all_rows if row.path == all_rows[100].path][-1]
    _flip(row, next(bit for bit in bits if not row.message.store_timestamp >> bit & 1 or bit >= 32))
    assert _found(store) == [row.offset] * found


def test_a_time_is_compared_with_its_neighbours_and_not_with_the_first_record(tmp_path: Path) -> None:
    noon, log = 1_700_000_000_000, b""
    for number, seconds in enumerate((0, 40, 40, -25, 40, 40)):
        log += build_message(
            topic="T",
            queue_offset=number,
            physical_offset=len(log),
            born_timestamp=noon + 40_000,
            store_timestamp=noon + seconds * 1000,
        )
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020}").write_bytes(log.ljust(65_536, b"\0"))
    assert _found(tmp_path) == [3 * len(log) // 6]
