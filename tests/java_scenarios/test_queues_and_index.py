"""ConsumeQueueTest, BatchConsumeQueueTest, StoreCheckpointTest, IndexFileTest (RocketMQ)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rmqstore.append.consumequeue import BatchConsumeQueue, ConsumeQueue, Put
from rmqstore.append.dispatch import DispatchOptions
from rmqstore.append.flush import CheckpointFile
from rmqstore.append.index import IndexService
from rmqstore.append.index_builder import IndexFileBuilder, key_hashes
from rmqstore.append.message_store import MessageStore
from rmqstore.errors import Refused
from rmqstore.formats import index
from rmqstore.formats.checkpoint import StoreCheckpoint
from rmqstore.formats.consumequeue import BATCH_UNIT, PRE_BLANK, UNIT
from rmqstore.formats.properties import tags_code
from tests.append.small import SMALL, clean, message, units

# --- ConsumeQueueTest ------------------------------------------------------------------------------------------------


def filled(directory: Path, count: int, size: int = 100, file_size: int = 2000) -> ConsumeQueue:
    queue = ConsumeQueue(directory, file_size)
    for number in range(count):
        assert queue.put(number * size, size, 0, number) is Put.WRITTEN
    return queue


def test_a_message_that_is_dispatched_again_gets_no_second_unit(tmp_path: Path) -> None:
    """ConsumeQueueTest#testPutMessagePositionInfo_buildCQRepeatedly"""
    queue = filled(tmp_path, 10)
    assert [queue.put(number * 100, 100, 0, number) for number in range(10)] == [Put.REPEATED] * 10
    assert (queue.max_offset, queue.max_physic_offset) == (10, 1000)
    queue.queue.close()
    assert not any((tmp_path / f"{0:020d}").read_bytes()[200:])


def multi_dispatch(tmp_path: Path, queue_id: int = 0) -> Path:
    options = replace(SMALL, dispatch=DispatchOptions(1000, lmq=True))
    with MessageStore.create(tmp_path / "s", options) as store:
        for number in range(10):
            one = message(number, queue_id=queue_id)
            one.properties += b"INNER_MULTI_DISPATCH\x01%LMQ%abc,%LMQ%def\x02"
            store.put(one)
    return tmp_path / "s"


def test_a_message_for_several_queues_has_a_unit_in_each(tmp_path: Path) -> None:
    """ConsumeQueueTest#testPutMessagePositionInfoWrapper_MultiQueue"""
    root = multi_dispatch(tmp_path)
    own, one, two = units(root), units(root, "%LMQ%abc"), units(root, "%LMQ%def")
    assert [offset for offset, _, _ in own] == [number * own[0][1] for number in range(10)]
    assert own == one == two


def test_light_queues_have_the_id_0_whatever_the_queue_of_the_message(tmp_path: Path) -> None:
    """ConsumeQueueTest#testPutMessagePositionInfoMultiQueue"""
    root = multi_dispatch(tmp_path, queue_id=3)
    assert sorted(p.relative_to(root / "consumequeue").as_posix() for p in (root / "consumequeue").glob("*/*")) == [
        "%LMQ%abc/0",
        "%LMQ%def/0",
        "TopicTest/3",
    ]
    assert len(units(root, "%LMQ%abc")) == 10


def test_the_tags_code_of_a_unit_is_the_hash_of_the_tag(tmp_path: Path) -> None:
    """ConsumeQueueTest#testConsumeQueueWithExtendData. Difference: units of consumequeue_ext are read, but not written
    (enableConsumeQueueExt is off by default, and 5.4 keeps it only for old stores)."""
    with MessageStore.create(tmp_path / "s", SMALL) as store:
        store.put(message())
    ((offset, size, code),) = units(tmp_path / "s")
    assert (offset, size, code) == (0, 138, tags_code("TagA"))
    assert code == 2598919  # "TagA".hashCode()
    assert not (tmp_path / "s" / "consumequeue_ext").exists()


@pytest.mark.parametrize(
    ("log_start", "deleted"), [(0, []), (2000, [0]), (2001, [0]), (4000, [0, 2000]), (10_000, [0, 2000, 4000, 6000])]
)
def test_queue_files_below_the_log_expire_and_the_last_stays(
    tmp_path: Path, log_start: int, deleted: list[int]
) -> None:
    """ConsumeQueueTest#testCorrectMinOffset. Difference: the minimum offset is not kept in memory; the same comparison
    selects the files to delete."""
    queue = filled(tmp_path, 500, size=20)
    assert [int(path.name) for path in queue.queue.delete_expired_by_offset(log_start, UNIT.size)] == deleted
    assert queue.max_offset == 500
    queue.queue.close()


def test_pre_blanks_alone_keep_the_next_queue_offset(tmp_path: Path) -> None:
    """ConsumeQueueTest#testFillBankThenCorrectMinOffset"""
    (tmp_path / f"{0:020d}").write_bytes((PRE_BLANK * 100).ljust(6000, b"\0"))
    queue = ConsumeQueue(tmp_path, 6000)
    queue.load()
    queue.settle()
    assert (queue.min_logic_offset // UNIT.size, queue.max_offset, queue.max_physic_offset) == (100, 100, -1)
    assert queue.put(0, 100, 0, 100) is Put.WRITTEN
    assert queue.queue.read(2000, 20) == UNIT.build(commitlog_offset=0, size=100, tags_code=0)
    queue.queue.close()


def test_a_queue_is_found_again_from_its_last_files(tmp_path: Path) -> None:
    """queue.ConsumeQueueTest#testIterator"""
    filled(tmp_path, 333).queue.close()
    again = ConsumeQueue(tmp_path, 2000)
    again.load()
    assert (again.end, again.max_physic_offset, len(again.queue.files)) == (6660, 33300, 4)
    found = [UNIT.parse(again.queue.read(at, 20)) for at in range(0, 6660, 20)]
    assert [(u["commitlog_offset"], u["size"]) for u in found] == [(number * 100, 100) for number in range(333)]
    again.queue.close()


# --- BatchConsumeQueueTest -------------------------------------------------------------------------------------------


def batches(directory: Path, count: int, first: int = 1) -> BatchConsumeQueue:
    """Put batches of 10 messages, 20 units per file; batch n is at offset n in the log, stored at 10 n ms."""
    queue = BatchConsumeQueue(directory, 20 * BATCH_UNIT.size)
    for number in range(count):
        assert queue.put(number, 1024, 111, number * 10, number * 10 + first, 10) is Put.WRITTEN
    return queue


def batch_units(queue: BatchConsumeQueue) -> list[dict[str, int]]:
    data = b"".join(file.read(0, file.wrote_position) for file in queue.queue.files)
    return [dict(BATCH_UNIT.parse(data, at)) for at in range(0, len(data), BATCH_UNIT.size)]


def test_batches_are_numbered_by_their_messages(tmp_path: Path) -> None:
    """BatchConsumeQueueTest#testBuildAndIterateBatchConsumeQueue"""
    queue = batches(tmp_path, 1000, first=1000)
    assert (len(queue.queue.files), queue.max_offset) == (50, 11_000)
    found = batch_units(queue)
    assert [u["base_offset"] for u in found] == list(range(1000, 11_000, 10))
    assert {(u["size"], u["tags_code"], u["batch_size"], u["compacted_offset"]) for u in found} == {(1024, 111, 10, -1)}
    assert [u["commitlog_offset"] for u in found] == list(range(1000))
    queue.queue.close()


def test_batches_have_their_store_time(tmp_path: Path) -> None:
    """BatchConsumeQueueTest#testBuildAndSearchBatchConsumeQueue. Difference: the writer has no search by time."""
    queue = batches(tmp_path, 60)
    assert [u["store_timestamp"] for u in batch_units(queue)] == list(range(0, 600, 10))
    queue.queue.close()


def test_a_batch_queue_is_found_again(tmp_path: Path) -> None:
    """BatchConsumeQueueTest#testBuildAndRecoverBatchConsumeQueue"""
    batches(tmp_path, 100).queue.close()
    again = BatchConsumeQueue(tmp_path, 20 * BATCH_UNIT.size)
    again.load()
    again.settle()
    assert (len(again.queue.files), again.max_offset, again.max_physic_offset) == (5, 1001, 99)
    assert [u["base_offset"] for u in batch_units(again)] == list(range(1, 1001, 10))
    assert again.put(99, 1024, 111, 990, 991, 10) is Put.REPEATED
    again.queue.close()


@pytest.mark.parametrize("below", [0, 1, 19, 20, 21, 59, 60, 99, 100, 1000])
def test_a_cut_keeps_the_batches_in_front_of_it(tmp_path: Path, below: int) -> None:
    """BatchConsumeQueueTest#testTruncateBatchConsumeQueue, for fixed places instead of a random one"""
    queue = batches(tmp_path, 100)
    queue.truncate(below)
    kept = min(below, 100)
    assert [u["commitlog_offset"] for u in batch_units(queue)] == list(range(kept))
    assert (queue.max_offset, queue.max_physic_offset) == (kept * 10 + 1 if kept else 0, kept - 1)
    assert len(queue.queue.files) == -(-kept // 20) == len(list(tmp_path.iterdir()))
    queue.queue.close()


def test_a_cut_and_then_expiry(tmp_path: Path) -> None:
    """BatchConsumeQueueTest#testTruncateAndDeleteBatchConsumeQueue. Difference: the minimum offset (301) is found by a
    search; the first remaining unit is that of message 201."""
    queue = batches(tmp_path, 100)
    queue.truncate(80)
    assert (len(queue.queue.files), queue.max_offset) == (4, 801)
    assert [int(p.name) for p in queue.queue.delete_expired_by_offset(30, BATCH_UNIT.size)] == [0]
    assert (len(queue.queue.files), queue.max_offset, batch_units(queue)[0]["base_offset"]) == (3, 801, 201)
    queue.queue.close()


# --- StoreCheckpointTest ---------------------------------------------------------------------------------------------


def test_the_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    """StoreCheckpointTest#testWriteAndRead"""
    point = CheckpointFile.open(tmp_path / "checkpoint")
    point.physic_msg_timestamp, point.logics_msg_timestamp = 0xAABB, 0xCCDD
    point.flush()
    assert 0xAABB - point.values().min_timestamp() == 3000
    point.close()
    again = CheckpointFile.open(tmp_path / "checkpoint")
    assert (again.physic_msg_timestamp, again.logics_msg_timestamp) == (0xAABB, 0xCCDD)
    again.close()
    data = (tmp_path / "checkpoint").read_bytes()
    assert (len(data), data[:16].hex()) == (4096, "000000000000aabb000000000000ccdd")


@pytest.mark.parametrize(
    ("physic", "logics", "least"), [(0xAABB, 0xCCDD, 40707), (9000, 8000, 5000), (3000, 9000, 0), (2999, 9000, 0)]
)
def test_recovery_begins_3_seconds_before_the_older_of_both_times(physic: int, logics: int, least: int) -> None:
    """StoreCheckpoint#getMinTimestamp, as StoreCheckpointTest#testWriteAndRead uses it"""
    assert StoreCheckpoint(physic, logics).min_timestamp() == least


# --- IndexFileTest ---------------------------------------------------------------------------------------------------


def built() -> tuple[IndexFileBuilder, bytes]:
    """Build the file of IndexFileTest: 100 slots, 400 units, the keys "0" to "398"."""
    builder = IndexFileBuilder(100, 400)
    offsets = np.arange(399, dtype=np.int64)
    data = builder.add(offsets, np.full(399, 1_700_000_000_000), key_hashes([b"%d" % n for n in range(399)]))
    return builder, data


def test_an_index_file_holds_one_entry_less_than_its_units(tmp_path: Path) -> None:
    """IndexFileTest#testPutKey. Difference: the service writes the next key to a new file instead of refusing it."""
    builder, data = built()
    assert (builder.full, builder.room, len(data)) == (True, 0, 399 * 20)
    service = IndexService(tmp_path, 100, 400, clock=lambda: 1_700_000_000_000)
    for number in range(401):
        service.build(number, 1_700_000_000_000, 0, b"", [b"%d" % number])
    service.flush()
    counts = [index.HEADER.parse((tmp_path / name).read_bytes())["index_count"] for name in service.files()]
    service.close()
    assert counts == [400, 3]


@pytest.mark.parametrize("key", ["0", "60", "398"])
def test_a_key_leads_to_its_message_only(key: str) -> None:
    """IndexFileTest#testSelectPhyOffset"""
    builder, data = built()
    rows = index.UNIT.array(data)
    wanted = index.key_hash(key)
    number, found = int(builder.table[wanted % 100]), []
    while number > 0:
        row = rows[number - 1]
        if int(row["key_hash"]) == wanted:
            found.append(int(row["phy_offset"]))
        number = int(row["prev_index"])
    assert found == [int(key)]


def test_an_unknown_key_finds_no_message() -> None:
    """IndexFileTest#testSelectPhyOffset"""
    _, data = built()
    assert index.key_hash("60x") not in index.UNIT.array(data)["key_hash"].tolist()


def test_an_index_of_other_numbers_is_not_opened(tmp_path: Path) -> None:
    """IndexFileTest: RocketMQ maps a short file with the configured length and destroys it; we refuse it"""
    service = IndexService(tmp_path, 100, 400)
    service.build(0, 1_700_000_000_000, 0, b"T", [b"k"])
    service.flush()
    service.close()
    other = IndexService(tmp_path, 100, 500)
    with pytest.raises(Refused, match="has 8440 bytes, but 100 slots and 500 units need 10440"):
        other.load(last_exit_ok=True, index_msg_timestamp=0, log_end=10)
    assert [p.stat().st_size for p in tmp_path.iterdir()] == [8440]


def test_the_whole_store_is_sound_with_all_of_them(tmp_path: Path) -> None:
    """ConsumeQueueTest and IndexFileTest together, as verify sees it"""
    assert clean(multi_dispatch(tmp_path)) == {}
