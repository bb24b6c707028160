"""The state of a store after its writer was killed or its disk was full."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore.append import disk
from rmqstore.append.dispatch import DispatchOptions
from rmqstore.append.flush import FlushIntervals, FlushPolicy
from rmqstore.append.message_store import MessageStore, StoreOptions
from rmqstore.errors import CouldNotCheck, NoSpace, Refused
from rmqstore.files.store import open_store
from rmqstore.formats.index import HEADER as INDEX_HEADER
from rmqstore.formats.index import UNIT as UNIT_OF_INDEX
from rmqstore.formats.index import unit_at
from tests.append.rewriting import index_bytes, messages_of, queue_bytes
from tests.append.small import NEVER, SMALL, clean, message, units
from tests.planning import log_of
from tests.seeds import fresh
from tests.stores import ROOT


@pytest.mark.parametrize("dledger", [None, "n0"])
def test_after_a_crash_the_store_opens_at_its_last_whole_record(tmp_path: Path, dledger: str | None) -> None:
    options = StoreOptions(
        commitlog_file_size=1 << 14,
        index_slots=20,
        index_units=60,
        dispatch=DispatchOptions(consume_queue_file_size=1000),
        flush=FlushPolicy.SYNC,
        dledger=dledger,
    )
    root = tmp_path / "s"
    store = MessageStore.create(root, options)
    put = [store.put(message(n, size=300)) for n in range(100)]
    store.crash()
    assert (root / "abort").exists()
    log = open_store(root).dledger.data if dledger else open_store(root).commitlog  # type: ignore[union-attr]
    assert log is not None
    cut = put[80]
    file = log.find(cut.offset)
    assert file is not None
    with file.path.open("r+b") as out:  # only a part of it was written
        out.seek(cut.offset - file.start + 50)
        out.write(bytes(file.file_size - (cut.offset - file.start + 50)))
    for later in log.files:
        if later.start > file.start:
            later.path.unlink()
    with MessageStore.open(root, options) as store:
        assert store.put(message(80, size=300)).offset == cut.offset
    assert [u[0] for u in units(root)] == [p.offset for p in put[:81]]
    assert not (root / "abort").exists()


def test_good_records_after_damage_are_not_cut_away(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with MessageStore.create(root, SMALL) as store:
        put = [store.put(message(n)) for n in range(10)]
    (file,) = (root / "commitlog").iterdir()
    data = bytearray(file.read_bytes())
    data[put[4].offset + 4] ^= 0xFF
    file.write_bytes(data)
    with pytest.raises(Refused, match="good records at"):
        MessageStore.open(root, SMALL)
    assert file.read_bytes() == data


def test_a_full_disk_is_an_error_and_what_was_acknowledged_stays(tmp_path: Path) -> None:
    root = tmp_path / "s"
    options = StoreOptions(
        commitlog_file_size=1 << 14,
        flush=FlushPolicy.SYNC,
        dispatch=DispatchOptions(consume_queue_file_size=1000, index=False),
        intervals=NEVER,
    )
    store = MessageStore.create(root, options)
    acknowledged = [store.put(message(n, size=500)) for n in range(10)]
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 10, limit[1]))
    try:
        with pytest.raises(NoSpace, match="commitlog/00000000000000000000"):
            acknowledged.extend(store.put(message(n, size=500)) for n in range(10, 40))
        with pytest.raises(Refused, match="closed by an error"):
            store.put(message())
        store.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert (root / "abort").exists()
    with MessageStore.open(root, options) as again:
        assert again.log.queue.max_offset >= acknowledged[-1].offset + acknowledged[-1].size
    assert [u[0] for u in units(root)][: len(acknowledged)] == [a.offset for a in acknowledged]
    assert clean(root) == {}


WRITER = """
import sys, os
from pathlib import Path
from rmqstore.append.message_store import MessageStore, StoreOptions
from rmqstore.append.encoder import NewMessage
from rmqstore.append import message_store as store_lock
from rmqstore.append.dispatch import DispatchOptions
from rmqstore.append.flush import FlushIntervals, FlushPolicy, FlushIntervals
root, policy, dledger = Path(sys.argv[1]), FlushPolicy(sys.argv[2]), sys.argv[3] or None
options = StoreOptions(commitlog_file_size=1 << 14, index_slots=20, index_units=60, flush=policy, dledger=dledger,
    dispatch=DispatchOptions(consume_queue_file_size=1000),
    intervals=FlushIntervals(commitlog=20, consume_queue=30, commitlog_thorough=50, consume_queue_thorough=60))
store = MessageStore.open(root, options) if root.exists() else MessageStore.create(root, options)
n = 0
while True:
    put = store.put(NewMessage("TopicTest", b"x" * (n * 37 % 700), b"TAGS\\x01TagA\\x02KEYS\\x01k%d\\x02" % n, n % 3))
    os.write(1, b"%d %d %d\\n" % (n % 3, put.queue_offset, put.offset))
    n += 1
"""


def kill_at_random(root: Path, policy: str, dledger: str, chance: random.Random) -> list[tuple[int, int, int]]:
    """Run the writer, kill it (-9) after some messages, and return what it has acknowledged."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root), policy, dledger], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    lines = [writer.stdout.readline() for _ in range(chance.randrange(1, 120))]
    writer.send_signal(signal.SIGKILL)
    lines += writer.stdout.readlines()
    writer.wait()
    acknowledged = [tuple(map(int, line.split())) for line in lines if line.endswith(b"\n")]
    return [(a[0], a[1], a[2]) for a in acknowledged]


@pytest.mark.parametrize("dledger", ["", "n0"])
@pytest.mark.parametrize("rounds", [3, pytest.param(25, marks=pytest.mark.slow)])
def test_killed_while_writing_synchronously_no_acknowledged_message_is_lost(
    tmp_path: Path, dledger: str, rounds: int
) -> None:
    root = tmp_path / "s"
    chance = random.Random(fresh(rounds))
    acknowledged: list[tuple[int, int, int]] = []
    for _ in range(rounds):
        acknowledged += kill_at_random(root, "sync", dledger, chance)
    options = StoreOptions(
        commitlog_file_size=1 << 14,
        index_slots=20,
        index_units=60,
        dledger=dledger or None,
        dispatch=DispatchOptions(consume_queue_file_size=1000),
    )
    assert (root / "abort").exists()
    MessageStore.open(root, options).close()
    found = {(q, n): u[0] for q in range(3) for n, u in enumerate(units(root, queue_id=q))}
    assert len(acknowledged) > rounds
    assert [a for a in acknowledged if found.get((a[0], a[1])) != a[2]] == []
    assert clean(root) == {}


def test_an_error_of_the_flushing_thread_is_raised_by_the_next_put_or_by_close(tmp_path: Path) -> None:
    every = FlushIntervals(commitlog=5, commitlog_least_pages=0, consume_queue=10_000)
    quick = replace(SMALL, intervals=every, write_through=False)
    for put_again in (True, False):
        store = MessageStore.create(tmp_path / str(put_again), quick)
        with store._guard:  # the flushing thread also needs it to write, so it has not written yet
            store.put(message())
            file = store.log.queue.files[0]
            file._descriptor = os.open(file.path, os.O_RDONLY)  # all further writes fail
        deadline = time.monotonic() + 60
        while store._failed is None:
            assert time.monotonic() < deadline, "the flushing thread has not failed"
            time.sleep(0.005)
        if put_again:
            with pytest.raises(Refused, match=r"closed by an error: .*commitlog/0{20}"):
                store.put(message(1))
        if put_again:
            store.close()
        else:
            with pytest.raises(CouldNotCheck, match="commitlog/00000000000000000000"):
                store.close()
        assert (store.root / "abort").exists()


def test_light_queues_that_lag_are_completed_when_the_store_is_opened(tmp_path: Path) -> None:
    options = replace(SMALL, dispatch=DispatchOptions(consume_queue_file_size=1000, lmq=True))
    root = tmp_path / "s"
    with MessageStore.create(root, options) as store:
        for number in range(5):
            one = message(number)
            one.properties += b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02"
            store.put(one)
    before = queue_bytes(root)
    (light,) = (root / "consumequeue" / "%LMQ%a" / "0").iterdir()
    data = light.read_bytes()
    light.write_bytes(data[:40] + bytes(len(data) - 40))
    (root / "abort").touch()
    MessageStore.open(root, options).close()
    assert queue_bytes(root) == before


def test_full_files_of_a_queue_are_whole_after_a_crash_before_the_first_flush(tmp_path: Path) -> None:
    options = replace(SMALL, commitlog_file_size=1 << 16, flush=FlushPolicy.SYNC, intervals=NEVER)
    store = MessageStore.create(tmp_path / "s", options)
    put = store.put_many([message(n) for n in range(230)])  # 50 units per file: recovery does not read the first two
    store.crash()
    assert [len([u for u in units(tmp_path / "s") if u[0] == p.offset]) for p in put[:200]] == [1] * 200
    MessageStore.open(tmp_path / "s", options).close()
    assert [u[0] for u in units(tmp_path / "s")] == [p.offset for p in put]
    assert clean(tmp_path / "s") == {}


@pytest.mark.parametrize("flushed", [30, 31, 32, 60, 75])
def test_a_message_whose_keys_went_into_two_index_files_is_found_by_all_of_them_after_a_crash(
    flushed: int, tmp_path: Path
) -> None:
    options = replace(SMALL, flush=FlushPolicy.SYNC, intervals=NEVER)
    store = MessageStore.create(tmp_path / "s", options)
    for number in range(100):  # two keys per message, 59 units per file
        one = message(number)
        one.store_timestamp = 1_700_000_000_000 + number * 1000
        store.put(one)
        if number == flushed:
            store.flush()
    store.crash()
    MessageStore.open(tmp_path / "s", options).close()
    assert clean(tmp_path / "s") == {}
    entries = [
        UNIT_OF_INDEX.parse(data, unit_at(number, 20))["phy_offset"]
        for data in index_bytes(tmp_path / "s")
        for number in range(1, INDEX_HEADER.parse(data)["index_count"])
    ]
    log = log_of(tmp_path / "s")
    assert entries == [m.physical_offset for m in messages_of(log) for _ in range(2)]


def test_index_units_of_messages_that_the_log_has_lost_are_removed(tmp_path: Path) -> None:
    options = replace(SMALL, commitlog_file_size=1 << 17, intervals=NEVER, write_through=False)
    store = MessageStore.create(tmp_path / "s", options)
    for number in range(40):
        store.put(message(number))
    store.flush()
    store.put_many([message(number) for number in range(40, 200)])
    store.index.flush()  # so the index is ahead of the log when the process is killed
    store.crash()
    with MessageStore.open(tmp_path / "s", options) as again:
        assert again.put(message(1000)).queue_offset == 40
        again.put_many([message(1000 + n) for n in range(200)])
    assert clean(tmp_path / "s") == {}
    assert queue_bytes(tmp_path / "s")


def test_queues_of_a_dledger_member_have_every_unit_when_it_is_killed(tmp_path: Path) -> None:
    options = replace(SMALL, dledger="n0", flush=FlushPolicy.SYNC, intervals=NEVER)
    store = MessageStore.create(tmp_path / "s", options)
    put = [store.put(message(n, queue_id=n % 3 // 2)) for n in range(80)]
    store.crash()  # a broker would continue after the last unit of the longest queue
    found = units(tmp_path / "s") + units(tmp_path / "s", queue_id=1)
    assert sorted(unit[0] for unit in found) == [p.offset for p in put]


def test_a_disk_too_full_for_the_abort_file_leaves_a_clean_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a leftover `abort`, the next broker would do an abnormal recovery and rebuild its last index file."""
    root = tmp_path / "s"
    with MessageStore.create(root, SMALL) as store:
        store.put(message(0))

    write = disk.write_all

    def full(descriptor: int, data: bytes, at: int) -> None:
        if data == str(os.getpid()).encode():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(descriptor, data, at)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_all", full)
        with pytest.raises(NoSpace, match="abort"):
            MessageStore.open(root, SMALL)
        assert not (root / "abort").exists()
        (root / "abort").touch()
        with pytest.raises(NoSpace, match="abort"):
            MessageStore.open(root, SMALL)
    assert (root / "abort").exists()  # left by a killed broker
    assert not (root / "abort.tmp").exists()
