"""Clean-up as pure decisions: age, hour, disk ratios, rounds, and what stays beside legacy files."""

from __future__ import annotations

import pytest

from rmqstore.append.retention import (
    HOUR,
    Candidate,
    Disk,
    RetentionRules,
    Why,
    decide_commitlog,
    decide_dledger,
    expired_by_offset,
    expired_index,
)

NOW = 1_000 * HOUR
RULES = RetentionRules(reserved=72, delete_when="04")
EMPTY = Disk(10, 100)


def files(*ages: int, size: int = 1) -> list[Candidate]:
    """Log files with these ages in hours, oldest offset first."""
    return [Candidate(f"{n:020d}", n * size, size, NOW - age * HOUR) for n, age in enumerate(ages)]


def starts(gone: tuple[tuple[Candidate, Why], ...]) -> list[int]:
    return [candidate.start for candidate, _ in gone]


@pytest.mark.parametrize(
    ("ages", "hour", "used", "gone", "kept"),
    [
        ((100, 80, 72, 71, 1), 4, 10, [0, 1, 2], [Why.YOUNG, Why.LAST]),
        ((100, 80, 72, 71, 1), 5, 10, [], [Why.NOT_THE_HOUR] * 3 + [Why.YOUNG, Why.LAST]),
        ((100, 80, 10, 90, 1), 5, 76, [0, 1], [Why.YOUNG, Why.BEHIND_YOUNG, Why.LAST]),
        ((100, 90), 4, 10, [0], [Why.LAST]),
        ((100,), 4, 10, [], [Why.LAST]),
    ],
)
def test_age_counts_in_the_hour_or_when_the_disk_is_full(
    ages: tuple[int, ...], hour: int, used: int, gone: list[int], kept: list[Why]
) -> None:
    decision = decide_commitlog(files(*ages), RULES, now=NOW, hour=hour, log_disk=Disk(used, 100))
    assert starts(decision.delete) == gone
    assert [why for _, why in decision.keep] == kept
    assert all(why is Why.EXPIRED for _, why in decision.delete)


def test_a_very_full_disk_makes_room_whatever_the_age_and_then_stops() -> None:
    young = files(*[1] * 40)
    decision = decide_commitlog(young, RULES, now=NOW, hour=5, log_disk=Disk(95, 100))
    # a round is ten files: 95 -> 85, which is not more than 85 %, so age counts again
    assert starts(decision.delete) == list(range(10))
    assert {why for _, why in decision.delete} == {Why.DISK_FULL}
    assert (decision.rounds, decision.forced, decision.write_forbidden) == (1, True, True)
    gentle = decide_commitlog(young, RetentionRules(clean_forcibly=False), now=NOW, hour=5, log_disk=Disk(95, 100))
    assert (gentle.delete, gentle.write_forbidden) == ((), True)


def test_rounds_are_of_ten_files() -> None:
    decision = decide_commitlog(files(*[100] * 26), RULES, now=NOW, hour=4, log_disk=EMPTY)
    assert (len(decision.delete), decision.rounds, decision.freed) == (25, 3, 25)


def test_ratios_have_the_bounds_of_their_getters() -> None:
    bounded = RetentionRules(max_used=0.99, warning=0.99, forcibly=0.1).bounded()
    assert (bounded.max_used, bounded.warning, bounded.forcibly) == (0.95, 0.90, 0.30)
    assert RetentionRules(delete_when="04;5;x").hours == {4, 5}


def test_the_disk_of_the_queues_counts_too() -> None:
    decision = decide_commitlog(files(100, 1), RULES, now=NOW, hour=5, log_disk=EMPTY, queue_disk=Disk(80, 100))
    assert starts(decision.delete) == [0]


def test_the_last_legacy_file_goes_when_it_is_alone() -> None:
    assert starts(decide_commitlog(files(99, 98), RULES, now=NOW, hour=4, log_disk=EMPTY, legacy=True).delete) == [0, 1]
    assert starts(decide_commitlog(files(99, 9), RULES, now=NOW, hour=4, log_disk=EMPTY, legacy=True).delete) == [0]


def test_dledger_keeps_an_hour_more_and_everything_beside_legacy_files() -> None:
    ages = files(100, 73, 72, 1)
    decision = decide_dledger(ages, RULES, now=NOW, hour=4, base_disk=EMPTY)
    assert (starts(decision.delete), [why for _, why in decision.keep]) == ([0, 1], [Why.YOUNG, Why.LAST])
    beside = decide_dledger(ages, RULES, now=NOW, hour=4, base_disk=Disk(99, 100), legacy=True)
    assert beside.delete == ()
    assert beside.keep[0][1] is Why.BESIDE_LEGACY
    assert beside.write_forbidden


@pytest.mark.parametrize(
    ("used", "gone", "forbidden"), [(70, 0, False), (71, 1, False), (86, 10, False), (90, 10, False), (91, 10, True)]
)
def test_dledger_ratios(used: int, gone: int, forbidden: bool) -> None:
    decision = decide_dledger(files(100, *[1] * 30), RULES, now=NOW, hour=5, base_disk=EMPTY, data_disk=Disk(used, 100))
    assert (len(decision.delete), decision.write_forbidden) == (gone, forbidden)


def test_queue_and_index_files_go_by_their_last_address() -> None:
    assert expired_by_offset([10, 20, 30, 5], 25) == 2
    assert expired_by_offset([10], 25) == 0
    assert expired_index([10, 20, 30], 31) == 2
    assert expired_index([10, 40, 20, 30], 31) == 1
