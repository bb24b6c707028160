"""The minimum and maximum offsets that `info` reports for a queue: pre-blanks and zeros are not messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.files.log_ends import QueueBounds, queue_bounds
from rmqstore.files.mapped_file_queue import MappedFileQueue, offset_to_file_name
from rmqstore.formats.consumequeue import BATCH_UNIT, PRE_BLANK_SIZE, UNIT


def queue_of(directory: Path, units: bytes, unit: int = UNIT.size) -> MappedFileQueue:
    size = 10 * unit
    (directory / offset_to_file_name(0)).write_bytes(units.ljust(size, b"\0"))
    return MappedFileQueue.open("queue", [directory], file_size=size, default=size, unit=unit)


@pytest.mark.parametrize("tags_code", [0, 7])
def test_queue_begins_after_its_pre_blanks_whatever_their_tags_code_is(tmp_path: Path, tags_code: int) -> None:
    blanks = 3 * UNIT.build(size=PRE_BLANK_SIZE, tags_code=tags_code)
    units = b"".join(UNIT.build(commitlog_offset=1000 + 100 * k, size=100) for k in range(4))
    assert queue_bounds(queue_of(tmp_path, blanks + units), 0, batch=False) == QueueBounds(3, 7, 1300, 4)


def test_queue_of_pre_blanks_has_no_message(tmp_path: Path) -> None:
    blanks = 3 * UNIT.build(size=PRE_BLANK_SIZE)
    assert queue_bounds(queue_of(tmp_path, blanks), 0, batch=False) == QueueBounds(3, 3, -1, 0)


def test_batch_queue_ends_before_a_unit_that_recovery_rejects(tmp_path: Path) -> None:
    good = BATCH_UNIT.build(commitlog_offset=0, size=100, base_offset=5, batch_size=3)
    refused = BATCH_UNIT.build(commitlog_offset=100, size=100, base_offset=8, batch_size=0)
    queue = queue_of(tmp_path, good + refused, BATCH_UNIT.size)
    assert queue_bounds(queue, 0, batch=True) == QueueBounds(5, 8, 0, 1)


def test_a_log_without_files_has_no_oldest_ones(tmp_path: Path) -> None:
    queue = MappedFileQueue.open("commitlog", [tmp_path], file_size=1000, default=1000)
    assert list(queue.files) == []
    assert list(queue.without_oldest(1).files) == []
