"""ConsumeQueue and BatchConsumeQueue in a simulated start, unit by unit."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.brokers.forecast import StartFails
from rmqstore.brokers.mapped_files import SimulatedFile, SimulatedFiles
from rmqstore.brokers.queues import BatchQueue, SimpleQueue
from rmqstore.brokers.rules import rules_for
from rmqstore.formats import consumequeue

UNIT = consumequeue.UNIT.size
SIZE = 10 * UNIT


def unit(address: int, size: int = 100) -> bytes:
    return consumequeue.UNIT.build(commitlog_offset=address, size=size)


def queue(folder: Path, *files: bytes, version: str = "5.4.0", start: int = 0) -> SimpleQueue:
    loaded = []
    for i, content in enumerate(files):
        path = folder / f"{start + i * SIZE:020d}"
        path.write_bytes(content.ljust(SIZE, b"\0"))
        loaded.append(SimulatedFile(path, start + i * SIZE, SIZE))
    return SimpleQueue("T", 0, SimulatedFiles(folder, SIZE, loaded), rules_for(version), {})


def test_recover_ends_at_the_first_unit_that_is_not_valid(tmp_path: Path) -> None:
    q = queue(tmp_path, unit(0) + unit(100) + bytes(UNIT) + unit(300))
    q.recover()
    assert (q.ends, q.max_physic_offset) == ((0, 2), 200)


def test_recover_deletes_files_after_its_end(tmp_path: Path) -> None:
    q = queue(tmp_path, unit(0) * 9, unit(1000))
    q.recover()
    assert [p.name for p in q.files.deleted] == [f"{SIZE:020d}"]
    assert q.ends == (0, 9)


@pytest.mark.parametrize(
    ("queue_offset", "ends"),
    [
        # measured with 5.5.1: the position overflows and is not a multiple of a unit, whose pre-blanks cover it
        (-5442600149677244409, (91423072435621075, 91423072435621076)),
        (-1, (-1, 0)),
        (-(1 << 62), (0, 1)),  # the position is 0 after the overflow
    ],
)
@pytest.mark.parametrize("many", [False, True])
def test_positions_of_damaged_queue_offsets_overflow(
    queue_offset: int, ends: tuple[int, int], many: bool, tmp_path: Path
) -> None:
    q = queue(tmp_path)
    if many:
        q.put_many(*(np.array([value], dtype=np.int64) for value in (700, 100, queue_offset)))
    else:
        q.put(700, 100, queue_offset)
    assert q.ends == ends


def test_a_queue_offset_whose_position_overflows_adds_no_unit(tmp_path: Path) -> None:
    q = queue(tmp_path, unit(0))
    q.recover()
    q.put_many(*(np.array([value], dtype=np.int64) for value in (700, 100, 1 << 59)))
    assert (q.ends, q.dispatched) == ((0, 1), 0)


def test_address_of_a_queue_was_a_start_up_to_4_4_0(tmp_path: Path) -> None:
    q = queue(tmp_path, unit(500), version="4.4.0")
    q.recover()
    assert q.max_physic_offset == 500


def test_truncation_keeps_unit_0_without_a_look_at_its_size(tmp_path: Path) -> None:
    q = queue(tmp_path, bytes(SIZE))
    q.recover()
    q.truncate(1000)
    assert (q.ends, q.max_physic_offset) == ((0, 1), 0)


def test_truncation_deletes_files_whose_first_unit_is_after_the_end(tmp_path: Path) -> None:
    q = queue(tmp_path, b"".join(unit(i * 100) for i in range(10)), unit(1000) + unit(1100))
    q.recover()
    q.truncate(700)
    assert (q.ends, q.max_physic_offset, len(q.files.deleted)) == ((0, 7), 700, 1)


@given(
    st.lists(st.sampled_from([-1, 0, 100, 200, 300, 700]), max_size=25),
    st.lists(st.integers(0, 9), max_size=3),
    st.lists(st.integers(0, 800), min_size=1, max_size=2),
)
def test_truncation_gives_the_same_with_and_without_what_recovery_has_read(
    units: list[int], added: list[int], log_ends: list[int]
) -> None:
    content = b"".join(unit(address) for address in units)
    files = [content[at : at + SIZE] for at in range(0, len(content), SIZE)]

    def truncated(remembers: bool) -> tuple[object, ...]:
        with tempfile.TemporaryDirectory() as folder:
            q = queue(Path(folder), *files)
            q.recover()
            for address in added:
                q.put(address * 100, 100, q.ends[1])
            for log_end in log_ends:
                if not remembers:
                    q._recovered = None
                q.truncate(log_end)
            return q.ends, q.max_physic_offset, [p.name for p in q.files.deleted], [f.wrote for f in q.files.files]

    assert truncated(True) == truncated(False)


def test_message_after_the_end_is_appended_and_one_inside_is_not(tmp_path: Path) -> None:
    q = queue(tmp_path, unit(0) + unit(100))
    q.recover()
    q.put(100, 100, 1)
    assert (q.ends, q.dispatched) == ((0, 2), 0)
    q.put(200, 100, 2)
    assert (q.ends, q.dispatched, q.shifted) == ((0, 3), 1, ())


def test_message_with_a_gap_before_it_is_appended_at_the_end(tmp_path: Path) -> None:
    q = queue(tmp_path, unit(0))
    q.recover()
    q.put(500, 100, 5)
    assert (q.ends, q.shifted) == ((0, 2), ((1, 2, 5),))


def test_queue_that_begins_in_the_middle_gets_pre_blanks(tmp_path: Path) -> None:
    q = queue(tmp_path)
    q.put(500, 100, 13)
    assert q.files.files[0].start == SIZE
    assert (q.ends, q.dispatched) == ((13, 14), 1)


@pytest.mark.parametrize("version", ["4.9.7", "5.4.0"])
def test_bulk_dispatch_equals_dispatch_one_by_one(tmp_path: Path, version: str) -> None:
    address = np.arange(0, 6000, 100)
    size = np.full(60, 100)
    offset = np.concatenate((np.arange(0, 20), np.arange(25, 60), np.arange(30, 35)))
    one, many = queue(tmp_path, version=version), queue(tmp_path, version=version)
    for a, s, o in zip(address.tolist(), size.tolist(), offset.tolist(), strict=True):
        one.put(a, s, o)
    many.put_many(address, size, offset)
    for q in (one, many):
        q.correct_min_offset(0)
    assert (many.ends, many.dispatched, many.shifted) == (one.ends, one.dispatched, one.shifted)
    assert many.max_physic_offset == one.max_physic_offset
    assert len(many.files.files) == 6


@pytest.mark.parametrize("version", ["4.3.0", "4.9.7", "5.4.0"])
def test_bulk_dispatch_of_wrong_offsets_equals_dispatch_one_by_one(tmp_path: Path, version: str) -> None:
    for seed in range(200):
        dice = np.random.default_rng(seed)
        n = int(dice.integers(1, 80))
        offset = np.arange(n) + int(dice.choice([0, 0, 13]))
        for at in dice.integers(0, n, dice.integers(0, 4)).tolist():
            offset[at] = dice.choice([0, 3, offset[at] + 1, offset[at] + 40, 1 << 40])
        address = np.cumsum(dice.choice([100, 200], n))
        if dice.random() < 0.2:
            address[dice.integers(n)] = 50
        one, many = queue(tmp_path / "one", version=version), queue(tmp_path / "many", version=version)
        for a, o in zip(address.tolist(), offset.tolist(), strict=True):
            one.put(a, 100, o)
        for part in np.array_split(np.arange(n), dice.integers(1, 4)):
            many.put_many(address[part], np.full(len(part), 100), offset[part])
        same = [(q.ends, q.dispatched, q.shifted, q.max_physic_offset, q.units_put()) for q in (one, many)]
        assert same[0] == same[1], (seed, offset, address)


def test_memory_does_not_grow_with_messages(tmp_path: Path) -> None:
    q = queue(tmp_path)
    q.files.file_size = 1 << 40
    n = 200_000
    q.put_many(np.arange(1, n + 1) * 100, np.full(n, 100), np.arange(n))
    assert (q.ends, len(q.files.files[0].added)) == ((0, n), 1)


def test_old_versions_find_the_minimum_linearly(tmp_path: Path) -> None:
    q = queue(tmp_path, consumequeue.PRE_BLANK * 4 + unit(5000), version="4.9.7")
    q.recover()
    q.correct_min_offset(0)
    assert q.ends == (0, 5)
    q.correct_min_offset(1)
    assert q.ends == (4, 5)


def test_queue_without_a_live_unit_keeps_its_maximum(tmp_path: Path) -> None:
    content = unit(0) + unit(100)
    for version, ends in (("4.9.7", (0, 2)), ("5.4.0", (2, 2))):
        q = queue(tmp_path, content, version=version)
        q.recover()
        q.correct_min_offset(1000)
        assert q.ends == ends


def test_equal_unit_ends_the_binary_search(tmp_path: Path) -> None:
    # pre-blanks have offset 0: if the log begins at 0, the binary search stops at one in the middle
    q = queue(tmp_path, consumequeue.PRE_BLANK * 5 + unit(5000) + unit(5100), start=SIZE)
    q.recover()
    q.correct_min_offset(0)
    assert q.ends == (10 + 3, 17)


def test_empty_file_after_a_full_one_makes_the_load_fail_from_5_0_0_on(tmp_path: Path) -> None:
    full = b"".join(unit(i * 100) for i in range(10))
    q = queue(tmp_path, full, bytes(SIZE))
    q.recover()
    with pytest.raises(StartFails, match="ends with an empty file"):
        q.correct_min_offset(0)
    old = queue(tmp_path, full, bytes(SIZE), version="4.9.7")
    old.recover()
    old.correct_min_offset(0)
    assert old.ends == (0, 10)


def test_ghost_units_are_those_left_after_the_end(tmp_path: Path) -> None:
    q = queue(tmp_path, b"".join(unit(i * 100) for i in range(8)))
    q.recover()
    q.truncate(300)
    assert (q.ends, q.ghost_units()) == ((0, 3), 5)


@pytest.mark.parametrize(
    ("log_end", "ends", "highest", "deleted"),
    [(700, (0, 12), 600, 0), (350, (0, 6), 300, 1), (150, (0, 2), 100, 2), (100, (-1, 0), 99, 3)],
)
def test_truncation_of_a_batch_queue_deletes_files_whose_first_unit_is_after_the_end(
    log_end: int, ends: tuple[int, int], highest: int, deleted: int, tmp_path: Path
) -> None:
    layout = consumequeue.BATCH_UNIT
    size = 2 * layout.size
    files = []
    for number in range(3):
        path = tmp_path / f"{number * size:020d}"
        bases = (4 * number, 4 * number + 2)
        units = (layout.build(commitlog_offset=100 + 50 * n, size=50, base_offset=n, batch_size=2) for n in bases)
        path.write_bytes(b"".join(units))
        files.append(SimulatedFile(path, number * size, size))
    q = BatchQueue("T", 0, SimulatedFiles(tmp_path, size, files))
    q.recover()
    q.truncate(log_end)
    assert (q.ends, q.max_physic_offset, len(q.files.deleted)) == (ends, highest, deleted)
