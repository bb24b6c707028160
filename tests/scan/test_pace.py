"""A rate is the rate of a command: its processes share it."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import cast

import pytest

from rmqstore.backup.backup import BackupOptions, back_up
from rmqstore.backup.repository import Repository
from rmqstore.backup.storage import LocalStorage
from rmqstore.files.store import open_store
from rmqstore.scan import pace
from rmqstore.scan.workers import worker_pool
from tests.stores import unpack

RATE = 1 << 50  # nothing waits: the clock alone shows what would


@pytest.fixture(autouse=True)
def own_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pace, "_clock", pace._OwnClock())
    yield


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the process has slept, while its own time stands still at 1,000 s."""
    out: list[float] = []
    monkeypatch.setattr(time, "sleep", out.append)
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    return out


def test_reading_waits_for_what_all_before_it_read(slept: list[float]) -> None:
    for size in (500, 100, 300):
        pace.wait(size, 100)
    assert slept == [5, 6, 9]


def test_time_without_reading_is_not_saved_up(slept: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    pace.wait(100, 100)
    monkeypatch.setattr(time, "monotonic", lambda: 5000.0)
    pace.wait(100, 100)
    pace.wait(100, 100)
    assert slept == [1, 0, 1]


def test_the_clock_of_a_pool_begins_where_its_command_is(slept: list[float]) -> None:
    pace.wait(1, 1)
    pace.wait(7, 1)
    clock = pace.shared_clock(multiprocessing.get_context("fork"))
    assert (clock.value, pace.shared_clock(multiprocessing.get_context("fork"))) == (1008, clock)


def ask(size: int) -> int:
    pace._clock.value += size
    return os.getpid()


def test_all_processes_of_a_pool_move_one_clock() -> None:
    with worker_pool(2) as pool:
        processes = {pool.submit(ask, size).result() for size in (1, 20, 300)}
        assert os.getpid() not in processes
    assert cast("Synchronized[float]", pace._clock).value == 321


def test_what_a_backup_reads_again_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(pace, "wait", lambda size, rate: sizes.append(size))
    folder = Repository.open_or_create(LocalStorage(tmp_path / "repository")).of("a")
    made = back_up(open_store(unpack("5.4.0-clean")), folder, BackupOptions(max_rate=1)).manifest
    last = made.logs[-1].own[-1]
    assert sizes[-1] == made.end - last.start  # the last file, up to its last message, after it was verified
