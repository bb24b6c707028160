"""What an acknowledged put guarantees: when and how long it waits for the disk, and what survives a killed process."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore.append.consumequeue import BatchConsumeQueue, ConsumeQueue, Put
from rmqstore.append.encoder import NewMessage
from rmqstore.append.flush import FlushIntervals, FlushPolicy
from rmqstore.append.mapped_files import WritableMappedFileQueue
from rmqstore.append.message_store import MessageStore, PutStatus, StoreOptions
from rmqstore.files.store import open_store
from rmqstore.formats.consumequeue import PRE_BLANK
from tests.append.rewriting import messages_of
from tests.append.small import NEVER, SMALL, clean, message, units
from tests.append.test_crashes import kill_at_random


class Disk:
    """A disk whose fdatasync blocks until `go` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.syncs = 0
        self._real = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def _sync(self, descriptor: int) -> None:
        self.syncs += 1
        assert self.go.wait(60)
        self._real(descriptor)


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[MessageStore, Disk]]:
    """A store with synchronous flush and a syncFlushTimeout of 60 ms, and its blocked disk."""
    every = FlushIntervals(consume_queue=1 << 30, sync_timeout=60)
    store = MessageStore.create(tmp_path / "s", replace(SMALL, flush=FlushPolicy.SYNC, intervals=every))
    disk = Disk(monkeypatch)
    yield store, disk
    disk.go.set()
    store.close()
    assert clean(tmp_path / "s") == {}


def not_waiting(number: int) -> NewMessage:
    one = message(number)
    one.properties += b"WAIT\x01false\x02"
    return one


def test_a_message_that_does_not_wait_is_flushed_later(slow: tuple[MessageStore, Disk]) -> None:
    store, disk = slow
    put = store.put(not_waiting(0))  # otherwise it would block for 60 ms, and then report the timeout
    assert put.status is PutStatus.PUT_OK
    assert store.log.queue.flushed_where == 0
    disk.go.set()
    deadline = time.monotonic() + 60
    while store.log.queue.flushed_where < put.offset + put.size:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_put_reports_a_flush_timeout(slow: tuple[MessageStore, Disk]) -> None:
    store, disk = slow
    start = time.monotonic()
    put = store.put(message(0))
    assert put.status is PutStatus.FLUSH_DISK_TIMEOUT
    assert 0.06 <= time.monotonic() - start < 30
    assert [p.status for p in store.put_many([not_waiting(1), message(2)])] == [
        PutStatus.PUT_OK,
        PutStatus.FLUSH_DISK_TIMEOUT,
    ]
    disk.go.set()
    while store.put(message(3)).status is not PutStatus.PUT_OK:  # a busy machine may take more than 60 ms
        pass
    assert store.log.queue.flushed_where == store.log.queue.max_offset


def test_a_batch_waits_when_any_of_its_messages_does(slow: tuple[MessageStore, Disk]) -> None:
    store, disk = slow
    assert {p.status for p in store.put_batch([not_waiting(0), not_waiting(1)])} == {PutStatus.PUT_OK}
    late = store.put_batch([message(2), not_waiting(3)])
    assert [p.status for p in late] == [PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.PUT_OK]
    assert disk.syncs == 1


@pytest.mark.parametrize(("write_through", "there"), [(True, 10), (False, 0)])
@pytest.mark.parametrize("dledger", [None, "n0"])
def test_an_asynchronous_put_is_with_the_system_when_it_returns(
    tmp_path: Path, write_through: bool, there: int, dledger: str | None
) -> None:
    options = replace(SMALL, intervals=NEVER, dledger=dledger, write_through=write_through)
    store = MessageStore.create(tmp_path / "s", options)
    for number in range(4):
        store.put(message(number))
    store.put_many([message(number) for number in range(4, 7)])
    store.put_batch([message(number) for number in range(7, 10)])
    found = open_store(tmp_path / "s")
    log = found.dledger.data if found.dledger else found.commitlog
    assert log is not None
    assert len(list(messages_of(log, store.log.body_offset))) == there
    store.crash()


@pytest.mark.parametrize("dledger", ["", "n0"])
def test_killed_while_writing_asynchronously_no_acknowledged_message_is_lost(tmp_path: Path, dledger: str) -> None:
    root, chance = tmp_path / "s", random.Random()
    acknowledged = [one for _ in range(3) for one in kill_at_random(root, "async", dledger, chance)]
    MessageStore.open(root, StoreOptions(dledger=dledger or None)).close()
    found = {(q, n): u[0] for q in range(3) for n, u in enumerate(units(root, queue_id=q))}
    assert len(acknowledged) > 3
    assert [a for a in acknowledged if found.get((a[0], a[1])) != a[2]] == []
    assert clean(root) == {}


# --- truncation at the border of a file ------------------------------------------------------------------------------


def names(directory: Path) -> list[int]:
    return sorted(int(path.name) for path in directory.iterdir())


@pytest.mark.parametrize(("kept", "files"), [(10, [0]), (9, [0]), (11, [0, 200]), (20, [0, 200]), (0, [])])
def test_a_cut_leaves_no_consume_queue_file_of_zeros(tmp_path: Path, kept: int, files: list[int]) -> None:
    queue = ConsumeQueue(tmp_path, 200)
    for number in range(25):
        queue.put(number * 100, 100, 7, number)
    queue.truncate(kept * 100)
    assert (names(tmp_path), queue.max_offset) == (files, kept)
    assert queue.max_physic_offset == (kept * 100 if kept else -1)
    queue.queue.close()


@pytest.mark.parametrize(
    ("below", "files", "next_offset"), [(80, [0], 8), (79, [0], 8), (81, [0, 184], 10), (0, [], 0)]
)
def test_a_cut_leaves_no_batch_file_of_zeros(tmp_path: Path, below: int, files: list[int], next_offset: int) -> None:
    queue = BatchConsumeQueue(tmp_path, 184)  # 4 units
    for number in range(10):
        queue.put(number * 20, 20, 7, 1, number * 2, 2)
    queue.truncate(below)
    assert (names(tmp_path), queue.max_offset) == (files, next_offset)
    queue.queue.close()


def test_pre_blanks_alone_only_set_the_minimum_offset(tmp_path: Path) -> None:
    queue = WritableMappedFileQueue([tmp_path], 200)
    queue.last_file(0, PRE_BLANK * 4)
    queue.close()
    again = ConsumeQueue(tmp_path, 200)
    again.load()
    assert (again.max_physic_offset, again.end, again.min_logic_offset) == (-1, 80, 80)
    again.settle()
    assert again.put(0, 100, 7, 4) is Put.WRITTEN
    assert (names(tmp_path), again.max_offset) == ([0], 5)
    again.queue.close()


def test_a_queue_file_of_zeros_alone_is_deleted(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").write_bytes(bytes(200))
    queue = ConsumeQueue(tmp_path, 200)
    queue.load()
    queue.settle()
    assert names(tmp_path) == []


def test_a_file_that_was_held_is_deleted_by_offset_when_it_is_released(tmp_path: Path) -> None:
    queue = WritableMappedFileQueue([tmp_path], 40)
    for number in range(6):
        queue.last_file().append((number * 100).to_bytes(8, "big") + bytes(12))
    first = queue.files[0]
    assert first.hold()
    assert queue.delete_expired_by_offset(500, 20) == []
    first.release()
    assert [int(p.name) for p in queue.delete_expired_by_offset(0, 20)] == [0]
    assert names(tmp_path) == [40, 80]
