"""Damage that a reader skips: what counts, and when, also while a broker runs."""

from __future__ import annotations

import pytest

from rmqstore.scan.tiling import Kind, Run
from rmqstore.views.dump.messages import Skipped


@pytest.mark.parametrize(("live", "spans"), [(False, [("commitlog", 100, 128, "zeros")]), (True, [])])
def test_end_of_a_file_that_a_broker_closed_after_it_was_read_is_no_damage(
    live: bool, spans: list[tuple[str, int, int, str]]
) -> None:
    damage = Skipped(live=live)
    for run in (Run(Kind.RECORDS, 0, 100, 1), Run(Kind.ZERO, 100, 128), Run(Kind.RECORDS, 128, 200, 1)):
        damage.feed("commitlog", run)
    damage.close()
    assert damage.count == len(spans)
    assert [(queue, start, stop) for queue, start, stop, _ in damage.spans] == [span[:3] for span in spans]


def test_file_that_is_missing_is_damage_beside_a_broker_too() -> None:
    damage = Skipped(live=True)
    for run in (Run(Kind.RECORDS, 0, 128, 1), Run(Kind.HOLE, 128, 256), Run(Kind.RECORDS, 256, 300, 1)):
        damage.feed("commitlog", run)
    assert damage.count == 1


def test_zeros_before_and_after_a_border_of_files_are_all_counted() -> None:
    damage = Skipped()
    for run in (Run(Kind.RECORDS, 0, 100, 1), Run(Kind.ZERO, 100, 128), Run(Kind.ZERO, 128, 160)):
        damage.feed("commitlog", run)
    later = Skipped()
    for run in (Run(Kind.ZERO, 160, 190), Run(Kind.HOLE, 190, 256)):
        later.feed("commitlog", run)
    damage.take(later)
    assert (damage.count, damage.bytes) == (0, 0)
    damage.feed("commitlog", Run(Kind.RECORDS, 256, 300, 1))
    assert (damage.count, damage.bytes) == (4, 156)


def test_file_missing_after_an_unfinished_record_is_damage_beside_a_broker() -> None:
    damage = Skipped(live=True)
    for run in (Run(Kind.RECORDS, 0, 100, 1), Run(Kind.DIRTY, 100, 128), Run(Kind.HOLE, 128, 256)):
        damage.feed("commitlog", run)
    damage.close(records_follow=True)
    assert [span[:3] for span in damage.spans] == [("commitlog", 128, 256)]
