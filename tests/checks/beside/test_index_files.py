"""Consistency inside an index file: header, chains, slots and length, on copies of real stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.checks.beside.index import check_index
from rmqstore.checks.problems.report import Findings
from rmqstore.files.store import open_store
from rmqstore.formats import index
from tests.checks.index_looks import SLOTS, UNITS, check, first_index, last_index, units_of
from tests.checks.sound import located
from tests.damage import cut, flip, grow, overwrite
from tests.stores import copy_store


def test_the_number_of_slots_is_found_without_a_configuration(store: Path) -> None:
    for path in sorted((store / "index").iterdir())[:-1]:
        path.unlink()
    catalog = check_index(open_store(store), Findings())
    assert [(f.slots, f.last) for f in catalog.files] == [(SLOTS, 284)]


def test_a_wrong_begin_or_end_offset_in_the_header_is_named(store: Path, tmp_path: Path) -> None:
    flip(first_index(store), 23)
    assert located(check(open_store(store))) == [("IX-HEADER", "index", first_index(store).name, 16)]
    store = copy_store("5.1.4-clean", tmp_path)
    flip(first_index(store), 31, 3)
    findings = check(open_store(store))
    assert located(findings) == [("IX-HEADER", "index", first_index(store).name, 24)]
    assert findings.listed[0].facts["field"] == "end_phy_offset"


def test_a_wrong_end_time_in_the_header_is_named(store: Path) -> None:
    flip(first_index(store), 13, 4)
    assert located(check(open_store(store))) == [("IX-HEADER", "index", first_index(store).name, 8)]


@pytest.mark.parametrize("count", [0x7FFFFFFF, -1, 401, 300])
def test_a_wrong_count_in_the_header_is_named(store: Path, count: int) -> None:
    path = first_index(store)
    overwrite(path, 36, count.to_bytes(4, "big", signed=True))
    findings = check(open_store(store))
    assert located(findings) == [("IX-HEADER", "index", path.name, 36)]
    assert findings.listed[0].facts["field"] == "index_count"


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize(("size", "codes"), [(40 + SLOTS * 4 + UNITS * 20, []), (40 + SLOTS * 4, ["IX-FILE-LENGTH"])])
def test_a_new_file_has_a_sound_count_whatever_its_length(store: Path, count: int, size: int, codes: list[str]) -> None:
    (store / "index" / "20991231235959999").write_bytes(bytes(36) + count.to_bytes(4, "big") + bytes(size - 40))
    assert [code for code, *_ in located(check(open_store(store)))] == codes


def test_a_wrong_slot_count_in_the_header_is_named(store: Path) -> None:
    path = first_index(store)
    overwrite(path, 32, (9999).to_bytes(4, "big"))
    assert located(check(open_store(store))) == [("IX-HEADER", "index", path.name, 32)]


def test_a_slot_count_that_counts_puts_is_of_an_old_broker(store: Path) -> None:
    overwrite(first_index(store), 32, (399).to_bytes(4, "big"))
    assert check(open_store(store)).listed == []


def _chain(path: Path) -> tuple[int, int]:
    """Return a unit and its predecessor, both in the middle of a chain."""
    units = units_of(path)
    for i in range(200, 400):
        prev = int(units["prev_index"][i])
        if prev and int(units["prev_index"][prev]):
            return i, prev
    raise AssertionError("no chain of three")


def _set_prev(path: Path, unit: int, prev: int) -> int:
    at = index.unit_at(unit, SLOTS) + index.UNIT.at("prev_index")
    overwrite(path, at, prev.to_bytes(4, "big", signed=True))
    return index.unit_at(unit, SLOTS)


def test_a_chain_that_leads_back_is_a_loop(store: Path) -> None:
    path = first_index(store)
    unit, prev = _chain(path)
    at = _set_prev(path, prev, unit)
    assert located(check(open_store(store))) == [("IX-CHAIN-LOOP", "index", path.name, at)]


def test_a_unit_that_points_to_itself_is_not_a_loop_to_the_broker(store: Path) -> None:
    path = first_index(store)
    unit, _ = _chain(path)
    at = _set_prev(path, unit, unit)
    assert [c for c, *_ in located(check(open_store(store)))] in (["IX-BAD-ENTRY"], ["IX-CHAIN-LOOP"])
    assert located(check(open_store(store)))[0] == ("IX-BAD-ENTRY", "index", path.name, at)


@pytest.mark.parametrize("prev", [-5, 0x7FFFFFFF, 1])
def test_an_impossible_predecessor_is_a_bad_entry(store: Path, prev: int) -> None:
    path = first_index(store)
    unit, _ = _chain(path)
    at = _set_prev(path, unit, prev)
    findings = check(open_store(store))
    assert located(findings) == [("IX-BAD-ENTRY", "index", path.name, at)]
    assert findings.listed[0].facts == {"what": "unit", "unit": unit, "count": 1}


@pytest.mark.parametrize("value", [-1, 7, 0])
def test_a_slot_that_holds_another_unit_is_a_bad_entry(store: Path, value: int) -> None:
    path = first_index(store)
    slots = index.SLOT.array(path.read_bytes()[40 : 40 + 4 * SLOTS])["newest"]
    slot = next(i for i in range(SLOTS) if slots[i] not in (0, value))
    overwrite(path, index.slot_at(slot), value.to_bytes(4, "big", signed=True))
    findings = check(open_store(store))
    assert located(findings) == [("IX-BAD-ENTRY", "index", path.name, index.slot_at(slot))]
    assert findings.listed[0].facts == {"what": "slot", "count": 1}


@pytest.mark.parametrize("length", [39, 8439, 300])
def test_a_short_index_file_has_the_wrong_length(store: Path, length: int) -> None:
    path = first_index(store)
    cut(path, length)
    findings = check(open_store(store))
    assert located(findings)[0] == ("IX-FILE-LENGTH", "index", path.name, 0)
    assert findings.listed[0].facts == {"length": length, "expected": 8440}


def test_a_long_index_file_has_the_wrong_length_and_nothing_else(store: Path) -> None:
    grow(first_index(store), 20)
    assert located(check(open_store(store))) == [("IX-FILE-LENGTH", "index", first_index(store).name, 0)]


def test_an_empty_last_file_is_normal_after_a_kill_only(tmp_path: Path) -> None:
    store = copy_store("4.9.7-dledger-killed", tmp_path)
    assert last_index(store).stat().st_size == 0
    assert check(open_store(store)).listed == []
    (store / "abort").unlink()
    codes = [c for c, *_ in located(check(open_store(store)))]
    assert codes[0] == "IX-FILE-LENGTH"
