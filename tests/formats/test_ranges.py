"""Sets of intervals do what sets of numbers do, for any numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats.ranges import Ranges

INTERVALS = st.lists(st.tuples(st.integers(-20, 60), st.integers(-20, 60)), max_size=12)


def numbers(intervals: list[tuple[int, int]]) -> set[int]:
    return {number for start, stop in intervals for number in range(start, stop)}


def is_normal(ranges: Ranges) -> bool:
    """Whether intervals are sorted and not empty, and do not touch: equal sets are equal values then."""
    inner = all(start < stop for start, stop in ranges.parts)
    return inner and all(a[1] < b[0] for a, b in zip(ranges.parts, ranges.parts[1:], strict=False))


@given(INTERVALS)
def test_a_set_has_the_numbers_of_its_intervals(intervals: list[tuple[int, int]]) -> None:
    made, wanted = Ranges.of(intervals), numbers(intervals)
    assert is_normal(made)
    assert list(made) == sorted(wanted)
    assert (len(made), bool(made)) == (len(wanted), bool(wanted))
    assert all((number in made) == (number in wanted) for number in range(-22, 63))
    assert made == Ranges.points(wanted)
    if wanted:
        assert (made.start, made.stop) == (min(wanted), max(wanted) + 1)


@given(INTERVALS, INTERVALS)
def test_two_sets_combine_as_sets_of_numbers_do(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    a, b, x, y = Ranges.of(one), Ranges.of(other), numbers(one), numbers(other)
    for made, wanted in ((a | b, x | y), (a & b, x & y), (a - b, x - y)):
        assert is_normal(made)
        assert set(made) == wanted


@given(INTERVALS, st.integers(-25, 65), st.integers(-25, 65))
def test_a_clipped_set_has_what_is_in_the_span(intervals: list[tuple[int, int]], start: int, stop: int) -> None:
    assert set(Ranges.of(intervals).clip(start, stop)) == {n for n in numbers(intervals) if start <= n < stop}


@given(INTERVALS, st.integers(-3, 90))
def test_the_highest_numbers_can_be_left_out(intervals: list[tuple[int, int]], count: int) -> None:
    left = Ranges.of(intervals).without_last(count)
    assert is_normal(left)
    assert list(left) == sorted(numbers(intervals))[: max(0, len(numbers(intervals)) - max(0, count))]


def test_a_huge_interval_costs_one_interval() -> None:
    whole = Ranges.span(0, 1 << 62)
    assert len(whole - Ranges.points((5, 7))) == (1 << 62) - 2
    assert (whole - Ranges.points((5, 7))).parts == ((0, 5), (6, 7), (8, 1 << 62))


def test_an_empty_set_has_no_ends() -> None:
    assert Ranges.span(4, 4) == Ranges.of([(9, 3)]) == Ranges()
    with pytest.raises(IndexError):
        _ = Ranges().start
