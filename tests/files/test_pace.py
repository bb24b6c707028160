"""A rate is the rate of a command: all that its processes read counts, of every file."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqstore.backup.backup import back_up
from rmqstore.backup.repository import Repository
from rmqstore.backup.storage import LocalStorage
from rmqstore.checks.examine import verify
from rmqstore.checks.options import VerifyOptions
from rmqstore.files import pace
from rmqstore.files.rocksdb.database import open_database
from rmqstore.files.store import open_store
from rmqstore.scan.workers import worker_pool
from tests.clock import replace_clock
from tests.command import run
from tests.stores import unpack

FAST = 1 << 50  # bytes per second: nothing waits


@pytest.fixture(autouse=True)
def no_pace() -> Iterator[None]:
    yield
    pace.follow(None)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the process has slept, while its own time stands still at 1,000 s."""
    out: list[float] = []
    replace_clock(monkeypatch, pace, sleep=out.append, monotonic=lambda: 1000.0)
    return out


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that count."""
    sizes: list[int] = []
    monkeypatch.setattr(pace, "_wait", lambda size, _: sizes.append(size))
    return sizes


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that this process gets from the system."""
    sizes: list[int] = []

    def recorded(call: Callable[..., Any], size_of: Callable[[Any], int]) -> Callable[..., Any]:
        def reading(*given: Any) -> Any:
            answer = call(*given)
            sizes.append(size_of(answer))
            return answer

        return reading

    monkeypatch.setattr(os, "pread", recorded(os.pread, len))
    monkeypatch.setattr(os, "preadv", recorded(os.preadv, int))
    return sizes


def test_reading_waits_for_what_all_before_it_read(slept: list[float]) -> None:
    with pace.at_most(100):
        for size in (500, 100, 300):
            assert pace.took(size) == size
    assert slept == [5, 6, 9]


def test_without_a_rate_nothing_waits(slept: list[float]) -> None:
    with pace.at_most(0):
        pace.took(1 << 40)
    with pace.at_most(1):
        pass
    pace.took(1 << 40)
    assert slept == []


def test_short_reads_wait_together(slept: list[float]) -> None:
    with pace.at_most(1 << 20):
        for _ in range(1 << 13):
            pace.took(20)
    assert slept == [pytest.approx(20 * 3277 / 2**20), pytest.approx(20 * 6554 / 2**20)]


def test_time_without_reading_is_not_saved_up(slept: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    with pace.at_most(100):
        pace.took(100)
        replace_clock(monkeypatch, pace, sleep=slept.append, monotonic=lambda: 5000.0)
        pace.took(100)
        pace.took(100)
    assert slept == [1, 0, 1]


def test_the_clock_of_a_pool_begins_where_its_command_is(slept: list[float]) -> None:
    with pace.at_most(1):
        pace.took(1)
        pace.took(7)
        shared = pace.shared(multiprocessing.get_context("fork"))
        assert shared is not None
        assert (shared.clock.value, pace.shared(multiprocessing.get_context("fork"))) == (1008, shared)


def ask(size: int) -> int:
    assert pace._pace is not None
    pace._pace.clock.value += size
    return os.getpid()


def test_all_processes_of_a_pool_move_one_clock() -> None:
    with pace.at_most(FAST), worker_pool(2) as pool:
        processes = {pool.submit(ask, size).result() for size in (1, 20, 300)}
        assert os.getpid() not in processes
        assert pace._pace is not None
        assert pace._pace.clock.value == 321


def test_two_processes_read_a_store_at_its_rate() -> None:
    store = open_store(unpack("5.4.0-clean"))
    rate = 2 * store.log_bytes
    started = time.monotonic()
    with pace.at_most(rate):
        verify(store, VerifyOptions(jobs=2, split_size=1 << 16))
    assert time.monotonic() - started > 0.4


@pytest.mark.parametrize("command", ["verify", "compare", "du", "export", "lost", "recover", "rebuild"])
def test_all_that_a_command_reads_counts(command: str, counted: list[int], read: list[int], tmp_path: Path) -> None:
    more = {
        "compare": [str(unpack("5.4.0-killed"))],
        "export": ["-o", str(tmp_path / "out.ndjson")],
        "rebuild": ["index"],
    }
    given = [command, str(unpack("5.4.0-clean")), "--jobs", "1", "--max-rate", str(FAST)]
    answer = run(*given, *more.get(command, []))
    assert answer.exit_code in (0, 1), answer.output
    assert sum(read) > 500_000
    assert sum(counted) > 0.85 * sum(read)  # the rest: temporary files, and what is not yet counted


def test_rows_of_rocksdb_count(counted: list[int]) -> None:
    store = open_store(unpack("5.4.0-rocksdb"))
    database = open_database(store.files, store.rocksdb_directory)
    with pace.at_most(1):
        rows = list(database.rows("default"))
        database.value("default", rows[0][0])
        assert list(database.keys_before("default", rows[1][0])) == [rows[1][0], rows[0][0]]
    whole = sum(len(key) + len(value) for key, value in rows)
    assert counted == [whole, sum(map(len, rows[0])), len(rows[1][0]), len(rows[0][0])]


def test_what_a_backup_reads_again_counts(tmp_path: Path, counted: list[int]) -> None:
    folder = Repository.open_or_create(LocalStorage(tmp_path / "repository")).of("a")
    with pace.at_most(1):
        made = back_up(open_store(unpack("5.4.0-clean")), folder).manifest
    last = made.logs[-1].own[-1]
    assert made.end - last.start in counted  # the last file, up to its last message, after it was verified
