"""Decisions of the clean-up: age, hour, disk ratios, rounds, and files of a mixed store."""

from __future__ import annotations

import pytest

from rmqstore.brokers.clean_up import (
    HOUR,
    Candidate,
    DLedgerDisks,
    FileSystem,
    RetentionRules,
    Why,
    decide_commitlog,
    decide_dledger,
    expired_below,
)

NOW = 1_000 * HOUR
RULES = RetentionRules(reserved=72, delete_when="04")
EMPTY = FileSystem(10, 100)


def files(*ages: int, size: int = 1) -> list[Candidate]:
    """Return log files with these ages in hours, in offset order."""
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
    decision = decide_commitlog(files(*ages), RULES, now=NOW, hour=hour, log_disk=FileSystem(used, 100))
    assert starts(decision.delete) == gone
    assert [why for _, why in decision.keep] == kept
    assert all(why is Why.EXPIRED for _, why in decision.delete)


def test_a_very_full_disk_makes_room_whatever_the_age_and_then_stops() -> None:
    young = files(*[1] * 40)
    decision = decide_commitlog(young, RULES, now=NOW, hour=5, log_disk=FileSystem(95, 100))
    # a round deletes ten files: 95 -> 85, which is not more than 85 %, so the age counts again
    assert starts(decision.delete) == list(range(10))
    assert {why for _, why in decision.delete} == {Why.DISK_FULL}
    assert (decision.rounds, decision.forced, decision.write_forbidden) == (1, True, True)
    gentle = decide_commitlog(
        young, RetentionRules(clean_forcibly=False), now=NOW, hour=5, log_disk=FileSystem(95, 100)
    )
    assert (gentle.delete, gentle.write_forbidden) == ((), True)


def test_rounds_are_of_ten_files() -> None:
    decision = decide_commitlog(files(*[100] * 26), RULES, now=NOW, hour=4, log_disk=EMPTY)
    assert (len(decision.delete), decision.rounds, decision.freed) == (25, 3, 25)


def test_ratios_have_the_bounds_of_their_getters() -> None:
    bounded = RetentionRules(max_used=0.99, warning=0.99, forcibly=0.1).bounded()
    assert (bounded.max_used, bounded.warning, bounded.forcibly) == (0.95, 0.90, 0.30)


@pytest.mark.parametrize(
    ("text", "hour", "answer"),
    [
        ("04", 4, True),
        ("4;5", 5, True),
        ("04;05", 6, False),
        ("5;x", 5, True),  # the broker finds the hour before it parses the x
        ("x;5", 5, None),
        ("5;x", 6, None),
        (" 05", 5, None),  # Integer.parseInt accepts no blanks
        ("05;;", 6, False),
        ("05;;6", 6, None),
        ("", 0, None),
    ],
)
def test_delete_when_is_read_as_the_broker_reads_it(text: str, hour: int, answer: bool | None) -> None:
    rules = RetentionRules(delete_when=text)
    assert rules.time_up(hour) is answer
    if answer is None:
        for decision in (
            decide_commitlog(files(100, 1), rules, now=NOW, hour=hour, log_disk=FileSystem(99, 100)),
            decide_dledger(files(100, 1), rules, now=NOW, hour=hour, disks=DLedgerDisks(FileSystem(99, 100))),
        ):
            assert (decision.delete, decision.keep[0][1]) == ((), Why.NO_HOURS)


def test_a_ratio_is_in_whole_percents_rounded_up() -> None:
    assert [FileSystem(used, 1000).ratio for used in (0, 1, 750, 751)] == [0, 0.01, 0.75, 0.76]
    assert FileSystem(5, 0).ratio == -1


def test_above_the_force_ratio_5_x_cleans_whatever_the_highest_use_and_4_9_waits_for_the_hour() -> None:
    young, disk = files(*[1] * 5), FileSystem(90, 100)
    rules = RetentionRules(max_used=0.92)
    old = RetentionRules(max_used=0.92, before_5=True)
    assert starts(decide_commitlog(young, rules, now=NOW, hour=5, log_disk=disk).delete) == [0, 1, 2, 3]
    assert starts(decide_commitlog(young, old, now=NOW, hour=5, log_disk=disk).delete) == []
    assert starts(decide_commitlog(young, old, now=NOW, hour=4, log_disk=disk).delete) == [0, 1, 2, 3]


def test_the_disk_of_the_queues_counts_too() -> None:
    decision = decide_commitlog(files(100, 1), RULES, now=NOW, hour=5, log_disk=EMPTY, queue_disk=FileSystem(80, 100))
    assert starts(decision.delete) == [0]


@pytest.mark.parametrize(
    ("before_5", "ages", "gone"), [(True, (99, 98), [0, 1]), (True, (99, 9), [0]), (False, (99, 98), [0])]
)
def test_the_last_legacy_file_goes_in_4_9_once_alone(before_5: bool, ages: tuple[int, ...], gone: list[int]) -> None:
    rules = RetentionRules(before_5=before_5)
    decision = decide_commitlog(files(*ages), rules, now=NOW, hour=4, log_disk=EMPTY, legacy=True)
    assert starts(decision.delete) == gone


def test_dledger_keeps_an_hour_more_and_everything_beside_legacy_files() -> None:
    ages = files(100, 73, 72, 1)
    decision = decide_dledger(ages, RULES, now=NOW, hour=4, disks=DLedgerDisks(EMPTY))
    assert (starts(decision.delete), [why for _, why in decision.keep]) == ([0, 1], [Why.YOUNG, Why.LAST])
    beside = decide_dledger(ages, RULES, now=NOW, hour=4, disks=DLedgerDisks(FileSystem(99, 100)), legacy=True)
    assert beside.delete == ()
    assert beside.keep[0][1] is Why.BESIDE_LEGACY
    assert beside.write_forbidden


@pytest.mark.parametrize(
    ("most", "used", "gone", "forbidden"),
    [
        (75, 75, 0, False),
        (75, 76, 1, False),
        (75, 86, 10, False),
        (75, 90, 10, False),
        (75, 91, 10, True),
        (70, 70, 1, False),  # 0.70 as a float is less than 0.70 as a double
        (60, 60, 0, False),
        (60, 61, 1, False),
    ],
)
def test_dledger_compares_the_disk_usage_as_a_32_bit_float(most: int, used: int, gone: int, forbidden: bool) -> None:
    rules, disk = RetentionRules(max_used=most / 100), FileSystem(used, 100)
    decision = decide_dledger(files(100, *[1] * 30), rules, now=NOW, hour=5, disks=DLedgerDisks(EMPTY, disk))
    assert (len(decision.delete), decision.write_forbidden) == (gone, forbidden)


def test_queue_and_index_files_expire_by_their_last_physical_offset() -> None:
    assert expired_below([10, 20, 30, 5], 25) == 2
    assert expired_below([10], 25) == 0
    assert expired_below([10, 20, 30], 31) == 2
    assert expired_below([10, 40, 20, 30], 31) == 1
