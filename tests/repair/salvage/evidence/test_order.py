"""The same flipped bit in the queue offsets of adjacent records: units prove the right ones, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.checks.log.queue_parts import QueueGap, QueuePart, Shifted
from rmqstore.formats.message import HEAD
from rmqstore.repair.salvage.evidence import fits_queue
from rmqstore.repair.salvage.framed import UnitAt, proved_by_units
from tests import damage
from tests.command import run_json
from tests.repair.salvaging import Row, log_faults, rows
from tests.stores import copy_store

AT = HEAD.at("queue_offset") + 7  # the lowest byte


def of_queue(store: Path) -> list[Row]:
    return [row for row in rows(store) if row.slot[:2] == ("Order_11", 0)]


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("bit", [0, 1, 3, 4, 5])
@pytest.mark.parametrize(("first", "count"), [(10, 2), (16, 3), (-2, 2), (-3, 3)])
@pytest.mark.parametrize("name", ["5.4.0-clean", "5.1.4-dledger"])
def test_neighbours_are_repaired_by_their_units(name: str, first: int, count: int, bit: int, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    hit = of_queue(store)[first : first + count or None]
    assert len(hit) == count
    sound = {row.path: row.path.read_bytes() for row in hit}
    for row in hit:
        damage.flip(row.path, row.at + AT, bit)
    done = run_json("recover", str(store), "--role", "single", "--apply", exit_code=0)
    loss = done["loss"]
    assert isinstance(loss, dict)
    assert (loss["messages"], loss["bytes"], loss["queues"]) == (0, 0, {})
    assert {path: path.read_bytes() for path in sound} == sound
    assert log_faults(store) == {}


@pytest.mark.parametrize(
    ("offsets", "proved"),
    [
        ([100, 200, 300, 400, 500], [(2, 4)]),
        ([100, 400, 200, 300, 500], []),  # the unit before them points after the first one
        ([100, 200, 400, 300, 500], []),
        ([100, 200, 300, 500, 400], []),  # the unit after them points before the last one
    ],
)
def test_units_prove_queue_offsets_if_they_point_forward_from_the_unit_before_to_the_unit_after(
    offsets: list[int], proved: list[tuple[int, int]]
) -> None:
    part = QueuePart(0, 5, 100, 500, accounted=[(0, 5)], shifted=[Shifted(2, 4, 8)])
    assert list(proved_by_units(part, units_of(offsets), lambda _: False)) == proved


@pytest.mark.parametrize(
    ("agreeing", "lost", "shift", "proved"),
    [
        *(((0, 4), {200}, shift, [(2, 4)]) for shift in (8, -1)),
        *((agreeing, lost, 8, [(2, 4)]) for agreeing, lost in (((0, 1), {500}), ((0,), {200, 500}))),
        *((agreeing, lost, -1, []) for agreeing, lost in (((0, 1), {500}), ((0,), {200, 500}))),  # maybe a unit is lost
        *((agreeing, set(), 8, []) for agreeing in ((0, 4), (0, 1))),
    ],
)
def test_units_of_lost_messages_beside_them_prove_queue_offsets_that_do_not_rise(
    agreeing: tuple[int, ...], lost: set[int], shift: int, proved: list[tuple[int, int]]
) -> None:
    accounted = [(i, i + 1) for i in sorted({*agreeing, 2, 3})]
    part = QueuePart(0, 5, 100, 500, accounted=accounted, shifted=[Shifted(2, 4, shift)])
    assert list(proved_by_units(part, units_of([100, 200, 300, 400, 500]), lost.__contains__)) == proved


def units_of(offsets: list[int]) -> UnitAt:
    return dict(enumerate((at, 0) for at in offsets)).get


@pytest.mark.parametrize(
    ("number", "offset", "fits"),
    [
        *((4, 900, True), (4, 1100, False)),  # before the first message
        *((20, 2100, True), (20, 1900, False)),  # after the last one
        *((8, 1300, True), (9, 1600, False), (12, 1300, False)),  # in the gap, after it in the log, and in the queue
    ],
)
def test_a_queue_offset_is_free_before_the_first_message_after_the_last_and_in_gaps(
    number: int, offset: int, fits: bool
) -> None:
    gap = QueueGap(expected=8, got=10, before=1200, at=1500)
    assert fits_queue(QueuePart(5, 20, 1000, 2000, gaps=[gap]), number, offset) is fits


@pytest.mark.parametrize("words", [("recover", "--role", "slave"), ("rebuild", "cq")], ids=" ".join)
def test_where_the_log_is_not_changed_the_queue_keeps_its_units(words: tuple[str, ...], store: Path) -> None:
    for row in of_queue(store)[-2:]:
        damage.flip(row.path, row.at + AT, 3)
    before = {
        path: path.read_bytes()
        for part in ("commitlog", "consumequeue")
        for path in (store / part).rglob("0*")
        if path.is_file()
    }
    plan = run_json(words[0], str(store), *words[1:], exit_code=1)
    assert len(plan["facts"]["proved_offsets"]) == 2  # type: ignore[index]
    assert plan["steps"] == []
    done = run_json(words[0], str(store), *words[1:], "--apply", exit_code=1)
    assert done["cures"] == []
    assert {path: path.read_bytes() for path in before} == before
