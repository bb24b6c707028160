"""Reading items ahead in a thread, and killed worker processes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqstore.errors import BadRow, CouldNotCheck
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.scan.split import Split
from rmqstore.scan.workers import map_ordered, one_ahead


def test_the_next_item_is_read_while_the_caller_uses_one() -> None:
    read = threading.Semaphore(0)

    def items() -> Iterator[int]:
        for i in range(5):
            read.release()
            yield i

    found = []
    for item in one_ahead(items()):
        found.append(item)
        assert read.acquire(timeout=10)  # for this item
        if item < 4:
            assert read.acquire(timeout=10)  # the next one comes without a further call
            read.release()
    assert found == [0, 1, 2, 3, 4]


def test_an_error_comes_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise BadRow("file.ndjson:3: not valid JSON")

    found: list[int] = []
    with pytest.raises(BadRow, match=r"file\.ndjson:3"):
        found.extend(one_ahead(items()))
    assert found == [1, 2]


def test_no_item_is_read_after_the_caller_stops() -> None:
    taken = []

    def items() -> Iterator[int]:
        for i in range(100):
            taken.append(i)
            yield i

    ahead = one_ahead(items())
    assert [next(ahead), next(ahead)] == [0, 1]
    ahead.close()
    assert taken == [0, 1, 2]  # the thread has ended


def end_this_process(split: Split) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_worker_is_an_error_with_advice() -> None:
    splits = [Split(MappedFile(Path("x"), 0, 9, 9), i, i + 1) for i in range(2)]
    with pytest.raises(CouldNotCheck, match="a worker process was killed") as raised:
        list(map_ordered(end_this_process, splits, jobs=2))
    assert raised.value.advice == "is there enough memory? try --jobs 1"
