"""The answers of the solver: the record that is kept, with the names of corrected fields, or none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.formats.message import HEAD, build_message, parse_message
from rmqstore.repair.salvage.candidates import Kept, is_another_one, mend_fields
from rmqstore.repair.salvage.evidence import Evidence, Expected, QueueSlot
from rmqstore.repair.salvage.layout import Cell
from rmqstore.repair.salvage.places import Around, Neighbours
from rmqstore.repair.salvage.solve import Solver
from tests.planning import look
from tests.repair.salvaging import Row, rows
from tests.stores import unpack


@dataclass
class Asked:
    """A solver for one record of a sound store."""

    store: Path
    row: Row

    @property
    def raw(self) -> bytes:
        return self.row.path.read_bytes()[self.row.at : self.row.stop]

    def answer(self, raw: bytes, slot: QueueSlot | None) -> Kept | None:
        """Solve for other bytes in place of the record; `slot`: the queue slot of its unit."""
        evidence = Evidence(*look(self.store))
        neighbours = Neighbours(evidence.logs.results, 1)
        solver = Solver(evidence, neighbours, delay_levels(evidence.store))
        row = self.row
        expected = Expected(slot, row.offset, row.size) if slot is not None else None
        cell = Cell(row.offset - row.body_offset, row.size + row.body_offset, expected, parse_message(raw)[0])
        return solver.answer(cell, raw, row.body_offset, neighbours.around(row.offset + row.size))


@pytest.fixture
def asked() -> Asked:
    store = unpack("5.4.0-clean")
    return Asked(store, next(r for r in rows(store) if r.slot[0].startswith("Order") and len(r.message.body) > 40))


def flip(raw: bytes, at: int, bit: int = 0) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :]


def test_sound_record_after_a_wrong_dledger_header_is_kept() -> None:
    store = unpack("5.4.0-dledger")
    asked = Asked(store, rows(store)[7])
    assert asked.answer(asked.raw, QueueSlot(*asked.row.slot)) == Kept(asked.raw)


def test_flipped_bit_of_the_body_is_repaired_by_its_crc(asked: Asked) -> None:
    answer = asked.answer(flip(asked.raw, HEAD.size + 5), QueueSlot(*asked.row.slot))
    assert answer is not None
    assert (answer.record, answer.fields) == (asked.raw, ("body",))


def test_field_in_the_unit_is_repaired_by_unit_and_crc(asked: Asked) -> None:
    answer = asked.answer(flip(asked.raw, HEAD.at("queue_offset") + 7), QueueSlot(*asked.row.slot))
    assert answer is not None
    assert (answer.record, answer.fields) == (asked.raw, ("queue_offset",))


def test_record_whose_unit_names_another_slot_is_not_taken_as_it_is(asked: Asked) -> None:
    """All candidates agree with the unit, and none agrees with the header against the unit."""
    topic, queue_id, number = asked.row.slot
    assert asked.answer(flip(asked.raw, HEAD.size + 5), QueueSlot(topic, queue_id, number + 1)) is None


def test_garbled_record_is_lost(asked: Asked) -> None:
    noise = bytes(byte ^ 0x5A for byte in asked.raw)
    assert asked.answer(noise, QueueSlot(*asked.row.slot)) is None
    assert asked.answer(noise, None) is None


@pytest.mark.parametrize(
    ("physical_offset", "queue_offset", "body", "another"),
    [
        (500, 8, b"sound", True),
        (1000, 8, b"sound", False),  # it is in its own place
        (500, 7, b"sound", False),  # it is the expected message
        (500, 8, b"damaged", False),
        (-500, 8, b"sound", False),
        (1 << 50, 8, b"sound", False),
    ],
)
def test_a_sound_record_from_elsewhere_is_another_message(
    physical_offset: int, queue_offset: int, body: bytes, another: bool
) -> None:
    raw = build_message(topic="T", body=b"sound", physical_offset=physical_offset, queue_offset=queue_offset)
    message, _ = parse_message(raw)
    assert message is not None
    assert is_another_one(replace(message, body=body), 1000, QueueSlot("T", 0, 7)) is another


@pytest.mark.parametrize(("length", "v2"), [(1, False), (127, False), (128, True)])
def test_a_topic_of_any_length_comes_back_from_its_queue(length: int, v2: bool) -> None:
    topic, time, host = "T" * length, 1_700_000_000_000, bytes([127, 0, 0, 1, 0, 0, 0, 0])
    raw = build_message(
        topic=topic, body=b"body", queue_offset=7, physical_offset=500, born_timestamp=time, store_timestamp=time, v2=v2
    )
    at = HEAD.size + 4  # the first byte after the body
    damaged = raw[:at] + b"\x7e" + raw[at + 1 :]
    mended = mend_fields(damaged, 500, Expected(QueueSlot(topic, 0, 7), 500, len(raw)), Around(time, host))
    assert mended is not None
    assert mended.record == raw
