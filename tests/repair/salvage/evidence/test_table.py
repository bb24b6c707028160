"""The evidence: what each witness says about each kind of damage, and the combined result."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rmqstore.formats.consumequeue import PRE_BLANK_SIZE, UNIT
from rmqstore.formats.properties import dispatch_tags_code, parse_delay_levels, parse_properties
from rmqstore.repair.salvage.evidence import Evidence, Expected, MissedOffsets, QueueSlot
from tests import damage
from tests.planning import look
from tests.repair.salvaging import Row as Record
from tests.repair.salvaging import rows, salvage
from tests.stores import copy_store

STORE = "5.4.0-clean"


def evidence_of(store: Path) -> Evidence:
    return Evidence(*look(store))


def queue_of(store: Path, record: Record) -> list[Record]:
    return [row for row in rows(store) if row.slot[:2] == record.slot[:2]]


def busy(store: Path) -> list[Record]:
    """Return the records of a queue with more than ten plain messages."""
    found = rows(store)
    first = next(r for r in found if r.slot[0].startswith("Order") and len(queue_of(store, r)) > 10)
    return queue_of(store, first)


def test_sound_store_has_no_evidence_of_damage(tmp_path: Path) -> None:
    evidence = evidence_of(copy_store(STORE, tmp_path))
    assert evidence.units == {}
    assert [row for row in evidence.missed if row.start >= 0] == []


def test_unit_that_points_into_damage_proves_slot_and_size(store: Path) -> None:
    row = busy(store)[5]
    damage.garble(row.path, row.at, row.size)
    topic, queue_id, number = row.slot
    found = parse_properties(row.message.properties)
    tags = dispatch_tags_code(topic, found, row.message.store_timestamp, parse_delay_levels("1s"))
    expected = Expected(QueueSlot(topic, queue_id, number, tags), row.offset, row.size)
    evidence = evidence_of(store)
    assert evidence.units == {row.offset: [expected]}
    known = evidence.about([(row.offset, row.offset + row.size)])
    assert (known.at, known.between) == ({row.offset: expected}, [])


@pytest.mark.parametrize(("number", "points_to"), [(5, 8), (5, 2), (8, 5), (2, 5)])
def test_unit_out_of_order_proves_nothing(number: int, points_to: int, store: Path) -> None:
    """The record at `points_to` is damaged, and the unit of another lost message of its queue points there."""
    records = busy(store)
    for lost in (number, points_to):
        damage.garble(records[lost].path, records[lost].at, records[lost].size)
    topic, queue_id, _ = records[number].slot
    queue = store / "consumequeue" / topic / str(queue_id) / f"{0:020}"
    raw = queue.read_bytes()
    at = points_to * UNIT.size
    damage.overwrite(queue, number * UNIT.size, raw[at : at + UNIT.size])
    named = [one.slot.key for units in evidence_of(store).units.values() for one in units]
    assert named == [(topic, queue_id, points_to)]


def test_unit_that_repeats_the_one_before_proves_nothing(store: Path) -> None:
    records = busy(store)
    for row in records[5:7]:
        damage.garble(row.path, row.at, row.size)
    topic, queue_id, _ = records[5].slot
    queue = store / "consumequeue" / topic / str(queue_id) / f"{0:020}"
    raw = queue.read_bytes()
    damage.overwrite(queue, 6 * UNIT.size, raw[5 * UNIT.size : 6 * UNIT.size])
    assert [one.slot.queue_offset for units in evidence_of(store).units.values() for one in units] == [5]


def test_unit_with_the_size_of_a_pre_blank_still_names_the_place(store: Path) -> None:
    row = busy(store)[5]
    damage.garble(row.path, row.at, row.size)
    topic, queue_id, number = row.slot
    queue = store / "consumequeue" / topic / str(queue_id) / f"{0:020}"
    damage.overwrite(queue, number * UNIT.size + UNIT.at("size"), PRE_BLANK_SIZE.to_bytes(4, "big"))
    [unit] = evidence_of(store).units[row.offset]
    assert (unit.slot.key, unit.size) == (row.slot, PRE_BLANK_SIZE)
    (filler,) = salvage(store).fillers
    assert ((filler.topic, filler.queue_id, filler.queue_offset), filler.offset) == (row.slot, row.offset)


def test_gap_in_the_queue_offsets_is_between_two_records(store: Path) -> None:
    before, row, behind = busy(store)[4:7]
    damage.garble(row.path, row.at, row.size)
    topic, queue_id, number = row.slot
    shutil.rmtree(store / "consumequeue" / topic)
    evidence = evidence_of(store)
    assert MissedOffsets(topic, queue_id, range(number, number + 1), before.offset, behind.offset) in evidence.missed
    known = evidence.about([(row.offset, row.offset + row.size)])
    assert known.at == {}
    assert known.between == [(before.offset, behind.offset, QueueSlot(*row.slot))]


@pytest.mark.parametrize("wrote", ["unit", "pre_blank"])
def test_a_queue_without_a_good_message_began_at_0_unless_a_broker_wrote_pre_blanks(wrote: str, store: Path) -> None:
    records = busy(store)
    for row in records:
        damage.garble(row.path, row.at, row.size)
    topic, queue_id, _ = records[0].slot
    path = store / "consumequeue" / topic / str(queue_id) / f"{0:020}"
    damage.zero(path, 0, 3 * UNIT.size)
    if wrote == "pre_blank":
        for number in range(3):
            damage.overwrite(path, number * UNIT.size + UNIT.at("size"), PRE_BLANK_SIZE.to_bytes(4, "big"))
    known = evidence_of(store).about([(row.offset, row.offset + row.size) for row in records])
    assert [slot for _, _, slot in known.between] == (
        [QueueSlot(topic, queue_id, number) for number in range(3)] if wrote == "unit" else []
    )
    assert known.at.keys() == {row.offset for row in records[3:]}


def test_consumers_after_the_end_of_a_queue_have_read_lost_messages(store: Path) -> None:
    last, row = busy(store)[-2:]
    damage.garble(row.path, row.at, row.size)
    topic, queue_id, number = row.slot
    shutil.rmtree(store / "consumequeue" / topic)
    table = {"offsetTable": {f"{topic}@readers": {str(queue_id): number + 1}}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(table), "utf-8")
    evidence = evidence_of(store)
    span = (row.offset, row.offset + row.size)
    [found] = evidence.consumed
    assert (found.start, found.name, found.numbers) == (last.offset, (topic, queue_id), range(number, number + 1))
    known = evidence.about([span])
    assert known.between == []
    evidence.add_ends(known)
    assert [slot for _, _, slot in known.between] == [QueueSlot(*row.slot)]


def test_only_the_given_spans_count(store: Path) -> None:
    one, two = busy(store)[3], busy(store)[7]
    for row in (one, two):
        damage.garble(row.path, row.at, row.size)
    evidence = evidence_of(store)
    assert set(evidence.about([(one.offset, one.offset + one.size)]).at) == {one.offset}
    assert set(evidence.about([(0, two.offset + two.size)]).at) == {one.offset, two.offset}
    assert evidence.about([]).at == {}
