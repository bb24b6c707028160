"""MessageStore: rules for appending, flush policies, reopening."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore.append.dispatch import DispatchOptions
from rmqstore.append.encoder import Limits, NewMessage
from rmqstore.append.flush import FlushPolicy
from rmqstore.append.message_store import MessageStore, StoreOptions
from rmqstore.errors import MessageRefused, OutputExists, Refused
from rmqstore.files.store import open_store
from rmqstore.formats.consumequeue import BATCH_UNIT, PRE_BLANK, UNIT
from rmqstore.formats.message import (
    BLANK_MAGIC,
    INNER_BATCH,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    host_bytes,
    record_crc,
)
from tests.append.rewriting import messages_of, queue_bytes
from tests.append.small import NEVER, SMALL, clean, message, units
from tests.planning import log_of
from tests.stores import ROOT, copy_store


def test_offsets_ids_and_rolls_are_those_of_a_broker(tmp_path: Path) -> None:
    host = host_bytes("10.1.2.3:10911")
    with MessageStore.create(tmp_path / "s", SMALL) as store:
        first = store.put(NewMessage("TopicTest", b"hello", store_host=host))
        assert (first.offset, first.size, first.queue_offset) == (0, 105, 0)
        assert first.message_id == "0A01020300002A9F0000000000000000"
        put = [store.put(message(n, size=1000)) for n in range(20)]
    log = log_of(tmp_path / "s")
    assert len(log.files) == 2
    last = next(p for p in reversed(put) if p.offset < 1 << 14)
    at = last.offset + last.size
    assert log.pread(8, at) == ((1 << 14) - at).to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big", signed=True)
    assert [p.queue_offset for p in put] == list(range(1, 21))
    assert put[14].offset == 1 << 14
    assert clean(tmp_path / "s") == {}


def test_a_record_may_leave_exactly_eight_bytes_and_no_fewer(tmp_path: Path) -> None:
    for spare, files in ((8, 1), (7, 2)):
        root = tmp_path / str(spare)
        with MessageStore.create(root, SMALL) as store:
            first = store.put(message(size=1000)).size
            store.put(message(size=(1 << 14) - first - first + 1000 - spare))
        log = log_of(root)
        assert len(log.files) == files


def test_transaction_records_take_no_queue_offset_and_have_no_unit(tmp_path: Path) -> None:
    with MessageStore.create(tmp_path / "s", SMALL) as store:
        offsets = []
        for number, kind in enumerate((0, TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, 0)):
            one = message(number)
            one.sys_flag = kind
            offsets.append(store.put(one).queue_offset)
    assert offsets == [0, 0, 1, 0, 2]
    assert len(units(tmp_path / "s")) == 3


def test_a_queue_that_begins_later_gets_pre_blanks(tmp_path: Path) -> None:
    with MessageStore.create(tmp_path / "s", SMALL) as store:
        one = message()
        one.queue_offset = 73
        store.put(one)
        two = message(1)
        two.queue_offset = 75
        with pytest.raises(MessageRefused, match="does not continue TopicTest/0, whose next offset is 74"):
            store.put(two)
    (name, data), *rest = queue_bytes(tmp_path / "s").items()
    assert (name, rest) == ("consumequeue/TopicTest/0/00000000000000001000", [])
    assert data[: 23 * 20] == PRE_BLANK * 23
    assert UNIT.parse(data, 23 * 20)["commitlog_offset"] == 0
    assert not any(data[24 * 20 :])


def test_long_topics_are_v2_and_ipv6_hosts_are_flagged(tmp_path: Path) -> None:
    with MessageStore.create(tmp_path / "s", SMALL) as store:
        store.put(message(topic="t" * 128))
        six = message()
        six.born_host, six.store_host = host_bytes("[2001:db8::1]:1234"), host_bytes("[2001:db8::2]:10911")
        assert len(store.put(six).message_id) == 56
    log = log_of(tmp_path / "s")
    first, second = messages_of(log)
    assert (first.magic & 0xFFFFFFFF, second.sys_flag) == (0xDAA320AB, 0x30)


def test_the_record_crc_is_the_last_property(tmp_path: Path) -> None:
    options = StoreOptions(commitlog_file_size=1 << 14, limits=Limits(append_crc=True))
    with MessageStore.create(tmp_path / "s", options) as store:
        put = store.put(NewMessage("TopicTest", b"hello", b"TAGS\x01TagA"))
    log = log_of(tmp_path / "s")
    stored, computed = record_crc(log.pread(put.size, 0), 0, put.size)
    assert stored == computed
    assert put.size == 105 + 10 + 20


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"topic": ""}, "is not a valid directory name"),
        ({"topic": "../x"}, "is not a valid directory name"),
        ({"topic": "t" * 256}, "at most 255"),
        ({"body": bytes((4 << 20) + 1)}, "maxMessageSize is 4194304"),
        ({"body": bytes(1 << 14)}, "does not fit into a file of 16384"),
        ({"properties": bytes(32768)}, "the limit of a record is 32767"),
        ({"queue_id": -1}, "queue id -1"),
    ],
)
def test_a_message_that_no_broker_accepts_is_refused_before_a_write(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    with MessageStore.create(tmp_path / "s", SMALL) as store:
        store.put(message())
        with pytest.raises(MessageRefused, match=words):
            store.put(NewMessage(**({"topic": "TopicTest", "body": b"x"} | changes)))  # type: ignore[arg-type]
        assert store.put(message(1)).queue_offset == 1
    assert clean(tmp_path / "s") == {}


def test_a_batch_goes_into_one_file(tmp_path: Path) -> None:
    with MessageStore.create(tmp_path / "s", SMALL) as store:
        for number in range(14):
            store.put(message(number, size=1000))
        batch = store.put_batch([message(number, size=400) for number in range(5)])
        assert [b.offset for b in batch] == [(1 << 14) + n * batch[0].size for n in range(5)]
        assert [b.queue_offset for b in batch] == list(range(14, 19))
        with pytest.raises(MessageRefused, match="one queue"):
            store.put_batch([message(), message(queue_id=1)])
    assert clean(tmp_path / "s") == {}


def test_light_queues_get_their_own_offsets(tmp_path: Path) -> None:
    options = StoreOptions(
        commitlog_file_size=1 << 14, dispatch=DispatchOptions(consume_queue_file_size=1000, lmq=True)
    )
    with MessageStore.create(tmp_path / "s", options) as store:
        for number in range(3):
            one = message(number, queue_id=number)
            one.properties += b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02"
            store.put(one)
    log = log_of(tmp_path / "s")
    texts = [m.properties for m in messages_of(log)]
    assert [text.rpartition(b"INNER_MULTI_QUEUE_OFFSET\x01")[2] for text in texts] == [b"0,0\2", b"1,1\2", b"2,2\2"]
    assert len(units(tmp_path / "s", "%LMQ%a")) == len(units(tmp_path / "s", "%LMQ%b")) == 3


def test_the_store_is_locked_and_marked_while_it_is_open(tmp_path: Path) -> None:
    root = tmp_path / "s"
    store = MessageStore.create(root, SMALL)
    assert (root / "abort").read_text() == str(os.getpid())
    asks = "import sys, pathlib, rmqstore.append.message_store as s; s.lock_store(pathlib.Path(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", asks, str(root)], cwd=ROOT, capture_output=True, check=False)
    assert b"StoreIsLive" in done.stderr
    store.close()
    assert not (root / "abort").exists()
    with pytest.raises(OutputExists):
        MessageStore.create(root, SMALL)
    with pytest.raises(Refused, match="is closed"):
        store.put(message())


def test_a_reopened_store_continues_as_if_it_had_not_been_closed(tmp_path: Path) -> None:
    ticks = iter(range(1_790_000_000_000, 1_790_000_100_000))
    clock = lambda: next(ticks)  # noqa: E731
    whole, parts = tmp_path / "whole", tmp_path / "parts"

    def some(store: MessageStore, numbers: range) -> None:
        for n in numbers:
            one = message(n, size=100 + n * 7 % 400, queue_id=n % 3)
            one.store_timestamp = 1_790_000_000_000 + n * 1000
            store.put(one)

    with MessageStore.create(whole, SMALL, clock=clock) as store:
        some(store, range(200))
    with MessageStore.create(parts, SMALL, clock=clock) as store:
        some(store, range(70))
    for numbers in (range(70, 71), range(71, 150), range(150, 200)):
        with MessageStore.open(parts, SMALL, clock=clock) as store:
            some(store, numbers)
    a, b = open_store(whole), open_store(parts)
    assert a.commitlog is not None and b.commitlog is not None
    assert a.commitlog.pread(1 << 20, 0) == b.commitlog.pread(1 << 20, 0)
    assert queue_bytes(whole) == queue_bytes(parts)
    assert [e.path.read_bytes() for e in a.index_files] == [e.path.read_bytes() for e in b.index_files]
    assert clean(parts) == {}


def test_synchronous_callers_share_their_flushes(tmp_path: Path) -> None:
    options = replace(SMALL, commitlog_file_size=1 << 16, flush=FlushPolicy.SYNC, intervals=NEVER)
    store = MessageStore.create(tmp_path / "s", options)
    unflushed: list[int] = []

    def send(thread: int) -> None:
        for n in range(25):
            put = store.put(message(n, queue_id=thread))
            if store.log.queue.flushed_where < put.offset + put.size:
                unflushed.append(put.offset)

    threads = [threading.Thread(target=send, args=(t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    flushes = store._flush.group.flushes
    store.close()
    assert unflushed == []
    assert flushes <= 100
    assert sum(len(units(tmp_path / "s", queue_id=q)) for q in range(4)) == 100
    assert clean(tmp_path / "s") == {}


@pytest.mark.parametrize("dledger", [None, "n0"])
def test_more_queues_than_descriptors_are_written_and_opened_again(tmp_path: Path, dledger: str | None) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    options = replace(SMALL, commitlog_file_size=1 << 20, dispatch=DispatchOptions(1000, index=False), dledger=dledger)
    root = tmp_path / "s"
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 380, limit[1]))
    try:
        with MessageStore.create(root, options) as store:
            for number in range(600):
                store.put(message(number, topic=f"t{number % 300}"))
        with MessageStore.open(root, options) as store:
            assert store.put(message(topic="t0")).queue_offset == 2
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert len(queue_bytes(root)) == 300
    assert len(units(root, "t0")) == 3


def test_inner_batches_are_numbered_and_have_units_of_46_bytes(tmp_path: Path) -> None:
    dispatch = DispatchOptions(batch_file_size=460, index=False, batch_topics=frozenset({"BatchT"}))
    with MessageStore.create(tmp_path / "s", replace(SMALL, dispatch=dispatch)) as store:
        for number, count in enumerate((4, 1, 2)):
            one = message(number, topic="BatchT")
            if count > 1:
                one.sys_flag = INNER_BATCH
                one.properties += b"INNER_NUM\x01%d\x02" % count
            store.put(one)
    (data,) = queue_bytes(tmp_path / "s").values()
    parsed = [BATCH_UNIT.parse(data, at) for at in range(0, 3 * BATCH_UNIT.size, BATCH_UNIT.size)]
    found = [(u["base_offset"], u["batch_size"], u["compacted_offset"]) for u in parsed]
    assert found == [(0, 4, -1), (4, 1, -1), (5, 2, -1)]
    log = log_of(tmp_path / "s")
    assert [(m.queue_offset, b"INNER_BASE\x01%d\x02" % m.queue_offset in m.properties) for m in messages_of(log)] == [
        (0, True),
        (4, False),
        (5, True),
    ]
    with MessageStore.open(tmp_path / "s", replace(SMALL, dispatch=dispatch)) as store:
        assert store.put(message(topic="BatchT")).queue_offset == 7


def test_log_files_of_several_directories_are_written_and_opened(tmp_path: Path) -> None:
    root = tmp_path / "s"
    options = replace(SMALL, directories=(tmp_path / "b", tmp_path / "a"))
    with MessageStore.create(root, options) as store:
        for number in range(60):
            store.put(message(number, size=1000))
    assert sorted(int(p.name) >> 14 for p in (tmp_path / "a").iterdir()) == [0, 2, 4]
    assert sorted(int(p.name) >> 14 for p in (tmp_path / "b").iterdir()) == [1, 3]
    with MessageStore.open(root, options) as store:
        assert store.put(message()).queue_offset == 60


def test_a_store_of_other_sizes_or_of_rocksdb_queues_is_not_opened(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with MessageStore.create(root, SMALL) as store:
        store.put(message())
    before = {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    for wrong in (
        replace(SMALL, commitlog_file_size=1 << 15),
        replace(SMALL, dispatch=DispatchOptions(consume_queue_file_size=2000)),
        replace(SMALL, index_units=59),
    ):
        with pytest.raises(Refused):
            MessageStore.open(root, wrong)
        assert {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()} == before
    rocks = copy_store("5.4.0-rocksdb", tmp_path)
    with pytest.raises(Refused, match="is a RocksDB"):
        MessageStore.open(rocks, replace(SMALL, commitlog_file_size=1 << 16))
    with pytest.raises(Refused, match="is a RocksDB with the light queues"):
        MessageStore.open(copy_store("5.5.1-lmq", tmp_path), StoreOptions(dispatch=DispatchOptions(lmq=True)))
