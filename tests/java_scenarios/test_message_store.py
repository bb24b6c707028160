"""DefaultMessageStoreTest (RocketMQ)."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore.append.dispatch import DispatchOptions
from rmqstore.append.encoder import Limits, NewMessage
from rmqstore.append.flush import FlushPolicy
from rmqstore.append.message_store import MessageStore, PutResult, PutStatus, StoreOptions
from rmqstore.errors import MessageRefused, StoreIsLive
from rmqstore.files.store import open_store
from rmqstore.formats.message import Message, host_bytes, parse_message
from rmqstore.views.dump.messages import dump_messages
from rmqstore.views.dump.selection import Selection
from tests.append.rewriting import messages_of
from tests.append.small import clean, units
from tests.planning import log_of

OPTIONS = StoreOptions(
    commitlog_file_size=1 << 20,
    index_slots=1000,
    index_units=1000,
    dispatch=DispatchOptions(consume_queue_file_size=20_000),
    flush=FlushPolicy.SYNC,
)
V4, V6 = host_bytes("127.0.0.1:8123"), host_bytes("[::1]:0")
BODY = b"Once, there was a chance for me!"


def new(number: int = 0, *, topic: str = "FooBar", queue_id: int = 0, v6: bool = False, at: int = 0) -> NewMessage:
    host = V6 if v6 else V4
    text = b"TAGS\x01TAG1\x02KEYS\x01Hello%d\x02" % number
    return NewMessage(
        topic, BODY + b" offset %d" % number, text, queue_id, born_host=host, store_host=host, store_timestamp=at
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.create(tmp_path / "s", OPTIONS) as store:
        yield store
    assert clean(tmp_path / "s") == {}


def put_ten(store: MessageStore, interval: int = 10) -> list[PutResult]:
    """Put ten messages, the second half from IPv6 hosts, stored `interval` ms apart."""
    return [store.put(new(number, v6=number > 4, at=1_700_000_000_000 + number * interval)) for number in range(10)]


def message_at(root: Path, offset: int) -> Message | None:
    log = log_of(root)
    size = int.from_bytes(log.pread(4, offset), "big")
    return parse_message(log.pread(size, offset))[0] if 0 < size < 1 << 20 else None


def bodies(root: Path, **selection: object) -> list[str]:
    rows = dump_messages(open_store(root), Selection(**selection), body="text")  # type: ignore[arg-type]
    return [str(row["body"]) for row in rows]


# --- the lock --------------------------------------------------------------------------------------------------------


def test_a_store_is_not_started_twice(store: MessageStore) -> None:
    """DefaultMessageStoreTest#test_repeat_restart: OverlappingFileLockException there, StoreIsLive here"""
    with pytest.raises(StoreIsLive, match=rf"this process \({os.getpid()}\) holds its lock already"):
        MessageStore.open(store.root)
    assert store.put(new()).offset == 0


# --- writing and reading ---------------------------------------------------------------------------------------------


def test_messages_of_both_kinds_of_hosts_are_read_from_their_queue(store: MessageStore) -> None:
    """DefaultMessageStoreTest#testWriteAndRead"""
    put = [store.put(new(n, v6=n > 9)) for n in range(20)]
    put += [store.put(new(n)) for n in range(20, 40)]
    store.flush()
    assert [offset for offset, _, _ in units(store.root, "FooBar")] == [p.offset for p in put]
    assert bodies(store.root) == [f"{BODY.decode()} offset {n}" for n in range(40)]
    assert {p.size - len(b"%d" % n) * 2 for n, p in enumerate(put) if n in range(10, 20)} == {put[0].size - 2 + 24}


@pytest.mark.parametrize("number", [0, 4, 5, 9])
def test_a_message_is_found_by_its_offset(store: MessageStore, number: int) -> None:
    """DefaultMessageStoreTest#testLookMessageByOffset_OffsetIsFirst, _OffsetIsLast"""
    put = put_ten(store)
    found = message_at(store.root, put[number].offset)
    assert found is not None
    assert (found.body, found.queue_offset) == (BODY + b" offset %d" % number, number)


def test_no_message_is_found_after_the_last_one(store: MessageStore) -> None:
    """DefaultMessageStoreTest#testLookMessageByOffset_OffsetIsOutOfBound"""
    last = put_ten(store)[-1]
    assert message_at(store.root, last.offset + last.size) is None


@pytest.mark.parametrize(("skew", "found"), [(0, list(range(10))), (2, list(range(10))), (20000, [0] * 10)])
def test_the_first_message_since_a_time(store: MessageStore, skew: int, found: list[int]) -> None:
    """DefaultMessageStoreTest#testGetOffsetInQueueByTime, _TimestampIsSkewing, _TimestampSkewingIsLarge. Difference:
    the search is in the log (`dump --since`), not in the queue."""
    put = put_ten(store)
    store.flush()
    opened = open_store(store.root)
    answers = []
    for p in put:
        rows = dump_messages(opened, Selection(topics=frozenset({"FooBar"}), since=p.store_timestamp - skew, limit=1))
        answers.append(next(iter(rows))["queue_offset"])
    assert answers == found


def test_a_queue_that_nobody_wrote_to_has_no_message(store: MessageStore) -> None:
    """DefaultMessageStoreTest#testGetOffsetInQueueByTime_ConsumeQueueNotFound1, ...NotFound2, ...OffsetNotExist"""
    put_ten(store)
    store.flush()
    assert bodies(store.root, queues=frozenset({("FooBar", 1)})) == []
    assert len(bodies(store.root, queues=frozenset({("FooBar", 0)}))) == 10


def test_messages_have_the_time_given_to_put(store: MessageStore) -> None:
    """DefaultMessageStoreTest#testGetMessageStoreTimeStamp, #testGetStoreTime_EverythingIsOk"""
    told = [store.put(new(n)).store_timestamp for n in range(10)]
    log = log_of(store.root)
    assert [m.store_timestamp for m in messages_of(log)] == told
    assert told == sorted(told)


@pytest.mark.parametrize("offset", [-10, 1 << 40])
def test_outside_of_the_log_is_not_a_store_time(store: MessageStore, offset: int) -> None:
    """DefaultMessageStoreTest#testGetStoreTime_PhyOffsetIsLessThanCommitLogMinOffset, #testGetStoreTime_ParamIsNull"""
    put_ten(store)
    assert message_at(store.root, offset) is None


def test_synchronous_puts_are_on_the_disk(store: MessageStore) -> None:
    """DefaultMessageStoreTest#testGroupCommit"""
    for number in range(10):
        put = store.put(new(number))
        assert put.status is PutStatus.PUT_OK
        assert store.log.queue.flushed_where >= put.offset + put.size


def test_queue_offsets_follow_each_other_in_later_puts(store: MessageStore) -> None:
    """DefaultMessageStoreTest#testMaxOffset. Difference: a put dispatches at once, so queues never lag."""
    assert [store.put(new(n)).queue_offset for n in range(3)] == [0, 1, 2]
    state = store.dispatcher.queue("FooBar", 0)
    assert state.simple is not None
    assert (state.next_offset, state.simple.max_offset) == (3, 3)
    assert [store.put(new(n)).queue_offset for n in range(2)] == [3, 4]


@pytest.mark.parametrize("limit", [32, 20, 10])
def test_the_requested_number_of_messages_is_returned(store: MessageStore, limit: int) -> None:
    """DefaultMessageStoreTest#testPullSize"""
    for number in range(40):
        store.put(new(number, topic="pullSizeTopic"))
    store.flush()
    found = bodies(store.root, topics=frozenset({"pullSizeTopic"}), limit=limit)
    assert found == [f"{BODY.decode()} offset {n}" for n in range(limit)]


# --- opening again ---------------------------------------------------------------------------------------------------


def test_a_store_continues_where_it_was_closed(tmp_path: Path) -> None:
    """DefaultMessageStoreTest#testRecover, 1: just reboot"""
    with MessageStore.create(tmp_path / "s", OPTIONS) as store:
        put = [store.put(new(n)) for n in range(100)]
    with MessageStore.open(tmp_path / "s") as store:
        assert store.log.queue.max_offset == put[-1].offset + put[-1].size
        assert store.put(new(100)).queue_offset == 100


@pytest.mark.parametrize("exit_", ["clean", "killed"])
def test_a_damaged_last_message_is_dropped(tmp_path: Path, exit_: str) -> None:
    """DefaultMessageStoreTest#testRecover, 2 and 3: damage the last message, reboot normally and abnormally"""
    root = tmp_path / "s"
    with MessageStore.create(root, OPTIONS) as store:
        put = [store.put(new(n)) for n in range(201)]
    last = put[-1]
    with (root / "commitlog" / f"{0:020d}").open(
        "r+b"
    ) as log:  # like the Java test: the topic's length and the bytes after it
        log.seek(last.offset + 84)
        body = int.from_bytes(log.read(4), "big")
        log.seek(last.offset + 84 + body + 4)
        log.write(bytes(16))
    if exit_ == "killed":
        (root / "abort").touch()
    with MessageStore.open(root) as store:
        assert store.log.queue.max_offset == last.offset
        again = store.put(new(200))
        assert (again.offset, again.queue_offset) == (last.offset, 200)
        for number in range(99):
            store.put(new(number))
    assert len(units(root, "FooBar")) == 300
    assert clean(root) == {}


def test_log_and_queues_are_where_a_broker_looks(store: MessageStore) -> None:
    """DefaultMessageStoreTest#testStorePathOK. Difference: directories are made with their first file."""
    assert not (store.root / "commitlog").exists()
    store.put(new())
    assert (store.root / "commitlog" / f"{0:020d}").stat().st_size == 1 << 20
    assert (store.root / "consumequeue" / "FooBar" / "0" / f"{0:020d}").stat().st_size == 20_000


# --- what is refused -------------------------------------------------------------------------------------------------


def refused(store: MessageStore, words: str, **changes: object) -> None:
    before = store.log.queue.max_offset
    fields = {"topic": "FooBar", "body": b"123"} | changes
    with pytest.raises(MessageRefused, match=words):
        store.put(NewMessage(**fields))  # type: ignore[arg-type]
    assert store.log.queue.max_offset == before


def test_too_long_properties_are_refused_and_use_no_queue_offset(store: MessageStore) -> None:
    """DefaultMessageStoreTest#testPutMessage_whenMessagePropertyIsTooLong (PROPERTIES_SIZE_EXCEEDED)"""
    refused(store, "the limit of a record is 32767", properties=b"test\x01" + b"1" * 32768)
    assert store.put(NewMessage("FooBar", b"123", b"test\x01" + b"1" * 100)).queue_offset == 0


def test_a_body_over_the_maximum_is_refused(store: MessageStore) -> None:
    """DefaultMessageStoreTest#testPutMsgExceedsMaxLength (MESSAGE_ILLEGAL)"""
    refused(store, "maxMessageSize is 4194304", body=bytes((4 << 20) + 1))
    assert store.put(NewMessage("FooBar", bytes(100))).queue_offset == 0


def test_of_a_batch_with_a_body_over_the_maximum_nothing_is_written(store: MessageStore) -> None:
    """DefaultMessageStoreTest#testPutMsgBatchExceedsMaxLength"""
    big = NewMessage("FooBar", bytes((4 << 20) + 1))
    with pytest.raises(MessageRefused, match="maxMessageSize is 4194304"):
        store.put_batch([new(), big, new()])
    assert (store.log.queue.max_offset, store.put(new()).queue_offset) == (0, 0)


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    options = StoreOptions(commitlog_file_size=32 << 20, dispatch=DispatchOptions(index=False))
    with MessageStore.create(tmp_path_factory.mktemp("roomy") / "s", options) as store:
        yield store


def test_the_longest_record_that_a_broker_accepts(roomy: MessageStore) -> None:
    """DefaultMessageStoreTest#testPutLongMessage: body, topic and properties of exactly the maximum lengths"""
    put = roomy.put(NewMessage("t" * 127, bytes(4 << 20), b"p\x01" + b"x" * 32765))
    assert put.size == 91 + (4 << 20) + 127 + 32767


@pytest.mark.parametrize(
    ("topic", "body", "properties", "words"),
    [
        ("t", (4 << 20) + 1, 0, "maxMessageSize is 4194304"),
        ("t", (4 << 20) + (64 << 10), 0, "maxMessageSize is 4194304"),
        ("t", 4 << 20, 32768, "the limit of a record is 32767"),
        ("t" * 32767, 4 << 20, 32767, "at most 255"),
    ],
)
def test_longer_ones_are_refused(roomy: MessageStore, topic: str, body: int, properties: int, words: str) -> None:
    """DefaultMessageStoreTest#testPutLongMessage. Difference: a topic of over 255 bytes is refused because it cannot
    be the name of a directory; RocketMQ refuses it because of the size of the record."""
    refused(roomy, words, topic=topic, body=bytes(body), properties=b"x" * properties)


@pytest.mark.parametrize(("limit", "size", "taken"), [(100, 110, False), (110, 110, True), (10, 110, False)])
def test_the_maximum_is_a_setting(tmp_path: Path, limit: int, size: int, taken: bool) -> None:
    """DefaultMessageStoreTest#testDynamicMaxMessageSize. Difference: it is set when the store is opened."""
    with MessageStore.create(tmp_path / "s", replace(OPTIONS, limits=Limits(max_message_size=limit))) as store:
        if taken:
            assert store.put(NewMessage("FooBar", bytes(size))).offset == 0
        else:
            refused(store, f"maxMessageSize is {limit}", body=bytes(size))


# --- the rest --------------------------------------------------------------------------------------------------------


def test_the_whole_log_is_read_in_order(tmp_path: Path) -> None:
    """DefaultMessageStoreTest#testGetBulkCommitLogData"""
    options = StoreOptions(commitlog_file_size=10 << 20, dispatch=DispatchOptions(index=False))
    with MessageStore.create(tmp_path / "s", options) as store:
        put = [store.put(NewMessage("FooBar", bytes([n]) * (2 << 20))) for n in range(10)]
    log = log_of(tmp_path / "s")
    assert [(m.body[0], m.physical_offset) for m in messages_of(log)] == [(n, p.offset) for n, p in enumerate(put)]
    assert [p.offset // (10 << 20) for p in put] == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]


def test_deleted_topics_stay_deleted(tmp_path: Path) -> None:
    """DefaultMessageStoreTest#testDeleteTopics, #testCleanUnusedTopic. Difference: we do not delete topics; queues of
    a topic that a broker has deleted are not rebuilt from the log."""
    root = tmp_path / "s"
    with MessageStore.create(root, OPTIONS) as store:
        for number in range(10):
            for queue_id in range(4):
                store.put(new(number, topic=f"topic-{number}", queue_id=queue_id))
    kept = ["topic-3", "topic-5"]
    (root / "config").mkdir()
    table = ",".join(f'"{topic}":{{"topicName":"{topic}"}}' for topic in kept)
    (root / "config" / "topics.json").write_text(f'{{"topicConfigTable":{{{table}}}}}')
    for directory in (root / "consumequeue").iterdir():
        if directory.name not in kept:
            for path in sorted(directory.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            directory.rmdir()
    with MessageStore.open(root) as store:
        assert store.put(new(topic="topic-3")).queue_offset == 1
    assert sorted(p.name for p in (root / "consumequeue").iterdir()) == kept


def test_many_threads_put_into_their_queues(tmp_path: Path) -> None:
    """DefaultMessageStoreTest (the puts of a broker's threads): every queue is numbered without a gap"""
    with MessageStore.create(tmp_path / "s", replace(OPTIONS, flush=FlushPolicy.ASYNC)) as store:

        def send(queue_id: int) -> None:
            for number in range(50):
                store.put(new(number, queue_id=queue_id % 2))

        threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [len(units(tmp_path / "s", "FooBar", q)) for q in (0, 1)] == [100, 100]
    assert clean(tmp_path / "s") == {}
