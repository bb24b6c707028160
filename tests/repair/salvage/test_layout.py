"""The cost of a layout grows with the number of lost messages, not with its square."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rmqstore.documents.content import Literal, Zeros
from rmqstore.repair.salvage import layout
from rmqstore.repair.salvage.evidence import QueueSlot
from rmqstore.repair.salvage.fillers import smallest_visible
from rmqstore.repair.salvage.layout import Free
from rmqstore.repair.salvage.salvage import joined


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[QueueSlot]:
    """The slots whose shortest filler a layout has asked for, once per question."""
    out: list[QueueSlot] = []

    def counted(slot: QueueSlot, answer: Callable[[QueueSlot], int] = smallest_visible) -> int:
        out.append(slot)
        return answer(slot)

    monkeypatch.setattr(layout, "smallest_visible", counted)
    return out


@pytest.mark.parametrize("least", [0, 320])
@pytest.mark.parametrize("count", [10, 1000])
def test_lost_messages_are_placed_with_two_questions_each(count: int, least: int, asked: list[QueueSlot]) -> None:
    slots = [QueueSlot("Topic", 0, number) for number in range(count)]
    needed = smallest_visible(slots[0])
    room = Free(0, count * max(least, needed), False, 0)
    assert all(room.take(slot, least) for slot in slots)
    assert not room.take(QueueSlot("Topic", 0, count), least)
    assert room.full == (least == 0)
    cells = list(layout._divide(room, 1 << 30))
    placed = [cell.expected.slot for cell in cells if cell.expected is not None]
    assert placed == slots
    assert (cells[0].start, cells[-1].stop) == (room.start, room.stop)
    assert len(asked) == 2 * count + 1


def test_a_cleared_room_is_as_empty_as_a_new_one() -> None:
    slot = QueueSlot("Topic", 0, 1)
    room = Free(0, smallest_visible(slot), False, 0)
    assert room.take(slot, 0)
    assert not room.take(slot, 0)
    room.clear()
    assert (room.slots, room.needed, room.promised) == ([], 0, 0)
    assert room.take(slot, 0)


def test_adjacent_bytes_and_short_runs_of_zeros_become_one_piece() -> None:
    some: list[Literal | Zeros] = [Literal(b"a"), Zeros(3), Literal(b""), Literal(b"b"), Zeros(1 << 12), Zeros(0)]
    pieces = [*some, Literal(b"c"), Zeros(2)]
    assert joined(pieces).parts == (Literal(b"a\0\0\0b"), Zeros(1 << 12), Literal(b"c\0\0"))


def test_many_pieces_are_joined_in_one_pass() -> None:
    read: list[int] = []

    class Counted(Literal):
        __slots__ = ()

        def read(self, size: int, at: int) -> bytes:
            read.append(size)
            return super().read(size, at)

    pieces: list[Literal | Zeros] = [Counted(b"abc") for _ in range(500)]
    assert joined(pieces).parts == (Literal(b"abc" * 500),)
    assert read == [3] * 500
