"""MappedFileQueueTest, MultiPathMappedFileQueueTest, MappedFileTest (RocketMQ), MmapFileListTest (DLedger)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqstore.append.dledger import DLedgerMmapFileStore, EntryFiles
from rmqstore.append.mapped_files import PAGE, WritableMappedFile, WritableMappedFileQueue
from rmqstore.errors import Refused


def queue_of(directory: Path, size: int, data: bytes, times: int) -> WritableMappedFileQueue:
    """Append `data` a number of times, rolling files like RocketMQ's tests."""
    queue = WritableMappedFileQueue([directory], size, clock=lambda: 1_000_000, sleep=lambda seconds: None)
    for _ in range(times):
        assert queue.last_file().append(data)
    return queue


def starts(queue: WritableMappedFileQueue) -> list[int]:
    return [file.start for file in queue.files]


def names(directory: Path) -> list[int]:
    return sorted(int(path.name) for path in directory.iterdir())


# --- MappedFileQueueTest ---------------------------------------------------------------------------------------------


def test_appending_rolls_from_file_to_file(tmp_path: Path) -> None:
    """MappedFileQueueTest#testGetLastMappedFile"""
    queue = queue_of(tmp_path, 1024, b"0123456789abcdef", 1024)
    assert names(tmp_path) == starts(queue) == list(range(0, 16384, 1024))
    assert queue.max_offset == 16384
    queue.close()
    assert {path.read_bytes() for path in tmp_path.iterdir()} == {b"0123456789abcdef" * 64}


@pytest.fixture(scope="module")
def four_files(tmp_path_factory: pytest.TempPathFactory) -> WritableMappedFileQueue:
    return queue_of(tmp_path_factory.mktemp("b"), 1024, b"abcd", 1024)


@pytest.mark.parametrize(
    ("offset", "start"),
    [(0, 0), (100, 0), (1023, 0), (1024, 1024), (1124, 1024), (2048, 2048), (2148, 2048), (4095, 3072)],
)
def test_the_file_of_an_offset(four_files: WritableMappedFileQueue, offset: int, start: int) -> None:
    """MappedFileQueueTest#testFindMappedFileByOffset"""
    file = four_files.find_by_offset(offset)
    assert file is not None
    assert file.start == start


@pytest.mark.parametrize("offset", [4096, 4196, -1])
def test_an_offset_without_a_file(four_files: WritableMappedFileQueue, offset: int) -> None:
    """MappedFileQueueTest#testFindMappedFileByOffset"""
    assert four_files.find_by_offset(offset) is None


def test_a_queue_that_does_not_start_at_0(tmp_path: Path) -> None:
    """MappedFileQueueTest#testFindMappedFileByOffset_StartOffsetIsNonZero"""
    queue = WritableMappedFileQueue([tmp_path], 1024)
    file = queue.last_file(1024)
    assert queue.find_by_offset(1025) is file
    assert [queue.find_by_offset(at) for at in (0, 123)] == [None, None]
    assert [queue.find_by_offset(at, return_first=True) for at in (0, 123)] == [file, file]


def test_one_flush_reaches_the_end(tmp_path: Path) -> None:
    """MappedFileQueueTest#testAppendMessage. Difference: RocketMQ flushes one file per call and its callers loop."""
    queue = queue_of(tmp_path, 1024, b"0123456789abcdef", 1024)
    assert queue.flushed_where == 0
    assert queue.flush() is False
    assert (queue.flushed_where, queue.committed_where, queue.behind) == (16384, 16384, 0)
    assert queue.flush() is True


def test_the_size_of_all_files(four_files: WritableMappedFileQueue) -> None:
    """MappedFileQueueTest#testGetMappedMemorySize. Difference: nothing is mapped; the files' sizes count."""
    assert sum(file.path.stat().st_size for file in four_files.files) == 4096


def test_files_expire_by_the_offset_of_their_last_unit_once_nobody_holds_the_first(tmp_path: Path) -> None:
    """MappedFileQueueTest#testDeleteExpiredFileByOffset"""
    queue = WritableMappedFileQueue([tmp_path], 5120)
    for number in range(2048):
        queue.last_file().append(number.to_bytes(8, "big") + b"0" * 12)
    assert len(queue.files) == 8
    first = queue.files[0]
    assert first.hold()
    assert queue.delete_expired_by_offset(20480, 20) == []
    first.release()
    assert [int(path.name) for path in queue.delete_expired_by_offset(20480, 20)] == list(range(0, 35840, 5120))
    assert names(tmp_path) == starts(queue) == [35840]


def test_files_expire_by_time_up_to_the_first_young_one(tmp_path: Path) -> None:
    """MappedFileQueueTest#testDeleteExpiredFileByTime"""
    queue = queue_of(tmp_path, 1024, bytes(512), 100)
    queue.flush()
    assert len(queue.files) == 50
    for number, file in enumerate(queue.files):
        old = number < 5 or number > 20
        os.utime(file.path, (0, 800 if old else 1000))
    assert len(queue.delete_expired_by_time(100_000, interval_forcibly=0, batch=50)) == 5
    assert starts(queue) == names(tmp_path) == list(range(5120, 51200, 1024))


def test_files_are_sorted_by_name_whatever_the_directory_gives(tmp_path: Path) -> None:
    """MappedFileQueueTest#testFindMappedFile_ByIteration. Difference: our list is always sorted, so a linear search of
    an unsorted list is not needed."""
    for start in (2048, 0, 1024):
        (tmp_path / f"{start:020d}").write_bytes(bytes([start // 1024]) * 1024)
    queue = WritableMappedFileQueue([tmp_path], 1024)
    queue.load()
    assert starts(queue) == [0, 1024, 2048]
    file = queue.find_by_offset(1028)
    assert file is not None
    assert (file.start, file.read(4, 2)) == (1024, b"\1\1")


def test_files_are_read_after_their_descriptors_were_closed(tmp_path: Path) -> None:
    """MappedFileQueueTest#testMappedFile_SwapMap, #testMappedFile_CleanSwapedMap. Difference: RocketMQ swaps the
    mapping of an idle file; we close its descriptor."""
    queue = queue_of(tmp_path, 4096, b"abcdefgh", 4096)
    opened = len(list(Path("/proc/self/fd").iterdir()))
    queue.release_descriptors()
    queue.release_descriptors()
    assert len(list(Path("/proc/self/fd").iterdir())) == opened - 8
    assert {queue.read(at, 8) for at in range(0, 32768, 8)} == {b"abcdefgh"}
    queue.close()


def test_a_reset_to_0_leaves_the_first_file(tmp_path: Path) -> None:
    """MappedFileQueueTest#testReset. Difference: we use `truncate_dirty_files`, and the bytes of the file stay."""
    queue = queue_of(tmp_path, 64, b"0123456789abcdef", 8)
    assert len(queue.files) == 2
    queue.truncate_dirty_files(0)
    assert (starts(queue), queue.max_offset, names(tmp_path)) == ([0], 0, [0])
    assert (tmp_path / f"{0:020d}").read_bytes() == b"0123456789abcdef" * 4


# --- MultiPathMappedFileQueueTest ------------------------------------------------------------------------------------


def test_files_go_to_three_directories_in_turn(tmp_path: Path) -> None:
    """MultiPathMappedFileQueueTest#testGetLastMappedFile"""
    places = [tmp_path / name for name in "abc"]
    queue = WritableMappedFileQueue(places, 1024)
    for number in range(100):
        file = queue.last_file(number * 1024)
        assert file.append(bytes(1024))
        assert file.path.parent == places[number % 3]
    queue.close()


def test_old_directories_are_only_read(tmp_path: Path) -> None:
    """MultiPathMappedFileQueueTest#testLoadReadOnlyMappedFiles"""
    places = [tmp_path / name for name in "abc"]
    queue = WritableMappedFileQueue(places, 1024)
    for _ in range(100):
        queue.last_file().append(bytes(1024))
    queue.close()
    again = WritableMappedFileQueue([tmp_path / "b"], 1024, read_only=[tmp_path / "a", tmp_path / "c"])
    again.load()
    assert starts(again) == list(range(0, 102400, 1024))
    assert [again.last_file().append(bytes(1024)) for _ in range(3)] == [True] * 3
    assert [file.path.parent.name for file in again.files[-3:]] == ["b"] * 3
    again.close()


def test_a_directory_that_is_taken_away_gets_no_new_file(tmp_path: Path) -> None:
    """MultiPathMappedFileQueueTest#testUpdatePathsOnline. Difference: directories are those of the opened queue."""
    queue = queue_of(tmp_path / "a", 1024, bytes(1024), 3)
    queue.close()
    again = WritableMappedFileQueue([tmp_path / "a", tmp_path / "b"], 1024)
    again.load()
    for _ in range(4):
        again.last_file().append(bytes(1024))
    assert [file.path.parent.name for file in again.files[3:]] == ["b", "a", "b", "a"]
    again.close()


# --- MappedFileTest --------------------------------------------------------------------------------------------------


def test_a_file_in_use_is_deleted_when_its_reader_releases_it(tmp_path: Path) -> None:
    """MappedFileTest#testSelectMappedBuffer"""
    file = WritableMappedFile.create(tmp_path, 0, 65536)
    text = b"Once, there was a chance for me!"
    assert file.append(text)
    assert file.hold()  # like a SelectMappedBufferResult
    assert file.read(0, len(text)) == text
    file.shutdown(1000)
    assert (file.available, file.cleaned, file.path.exists()) == (False, False, True)
    file.release()
    assert file.cleaned
    assert file.destroy(1000)
    assert not file.path.exists()


@pytest.mark.parametrize(
    ("written", "flushed", "pages", "able"),
    [
        (PAGE - 1, 0, 1, False),
        (PAGE, 0, 1, True),
        (PAGE * 4 - 1, 0, 4, False),
        (PAGE * 4, 0, 4, True),
        (PAGE + 1, PAGE, 1, False),
        (PAGE + 1, PAGE, 0, True),
        (PAGE, PAGE, 0, False),
        (8 * PAGE, 7 * PAGE + 1, 4, True),  # full
        (8 * PAGE, 8 * PAGE, 0, False),
    ],
)
def test_when_a_flush_does_something(tmp_path: Path, written: int, flushed: int, pages: int, able: bool) -> None:
    """DefaultMappedFile#isAbleToFlush, which MmapFileListTest#testCommitAndFlush and MappedFileQueueTest go through"""
    file = WritableMappedFile.create(tmp_path, 0, 8 * PAGE)
    file.append(bytes(flushed))
    file.flush()
    file.append(bytes(written - flushed))
    assert file.able_to_flush(pages) is able
    assert file.flush(pages) == (written if able else flushed)


# --- MmapFileListTest (DLedger) --------------------------------------------------------------------------------------


def entries(directory: Path, count: int) -> DLedgerMmapFileStore:
    """Append entries of 504 bytes to files of 512 bytes: with the 8 bytes of a BLANK, each entry fills a file."""
    store = DLedgerMmapFileStore(directory, EntryFiles(512, 32 * 8), hook=None)
    for _ in range(count):
        store.append_as_leader(bytes(504 - 48))
    return store


def test_entries_that_leave_room_for_a_blank_only_fill_a_file_each(tmp_path: Path) -> None:
    """MmapFileListTest#testTruncateAndReset"""
    store = entries(tmp_path, 10)
    assert starts(store.data) == list(range(0, 5120, 512))
    assert (store.data.check_self(), store.data.min_offset) == ([], 0)
    assert store.data.max_offset == 5112
    assert store.data.read(504, 8) == b"\xff\xff\xff\xff\x00\x00\x00\x08"
    store.close()


def test_a_cut_at_the_start_of_a_file_keeps_it_empty(tmp_path: Path) -> None:
    """MmapFileListTest#testTruncateAndReset"""
    store = entries(tmp_path, 10)
    store.flush()
    store.data.truncate_dirty_files(1536)
    assert (starts(store.data), store.data.max_offset) == ([0, 512, 1024, 1536], 1536)
    store.data.close()
    again = WritableMappedFileQueue([tmp_path / "data"], 512)
    again.load("5.0.0")
    assert (again.check_self(), again.min_offset, again.max_offset) == ([], 0, 2048)  # full until recovery looks
    again.close()


def test_a_cut_in_front_of_everything_deletes_all_files(tmp_path: Path) -> None:
    """MmapFileListTest#testTruncateAndReset. Difference: an empty queue begins at -1, as in RocketMQ, but DLedger's
    list begins at 0."""
    store = entries(tmp_path, 3)
    store.data.truncate_dirty_files(-1)
    assert (starts(store.data), store.data.max_offset, store.data.min_offset) == ([], 0, -1)
    assert names(tmp_path / "data") == []


def test_entries_in_front_of_an_offset_are_thrown_away(tmp_path: Path) -> None:
    """MmapFileListTest#testTruncateAndReset (resetOffset). Difference: ours is rebuildWithPos, which keeps nothing."""
    store = entries(tmp_path, 4)
    store.rebuild_with_pos(store.data, 1024 + 100)
    assert (starts(store.data), store.data.max_offset) == ([1024], 1124)
    assert (store.data.files[0].start_position, store.data.read(1024, 100)) == (100, bytes(100))


@pytest.mark.parametrize(
    ("appended", "pages", "committed", "flushed"),
    [
        ([PAGE - 1], 1, 0, 0),
        ([PAGE - 1, 1], 1, PAGE, PAGE),
        ([PAGE - 1, 1, 1], 0, PAGE + 1, PAGE + 1),
        ([PAGE - 1, 1, 1, 9], 1, PAGE + 10, PAGE + 10),  # full
    ],
)
def test_commit_and_flush_by_pages(
    tmp_path: Path, appended: list[int], pages: int, committed: int, flushed: int
) -> None:
    """MmapFileListTest#testCommitAndFlush. Difference: DLedger's list has no buffer, so its committed position is
    always the end; ours advances by pages, like RocketMQ's with a transient store pool."""
    queue = WritableMappedFileQueue([tmp_path], PAGE + 10)
    for size in appended:
        queue.last_file().append(bytes(size))
    queue.commit(pages)
    assert queue.committed_where == committed
    queue.flush(pages)
    assert queue.flushed_where == flushed
    queue.close()


def test_a_list_with_a_hole_is_not_loaded(tmp_path: Path) -> None:
    """MmapFileListTest#testTruncateAndReset (checkSelf): DLedger ends its process"""
    entries(tmp_path, 4).close()
    (tmp_path / "data" / f"{1024:020d}").unlink()
    store = DLedgerMmapFileStore(tmp_path, EntryFiles(512, 32 * 8))
    with pytest.raises(Refused, match="data: a file in the middle is missing"):
        store.load()
    assert store.data.check_self() == [(1024, 1536)]
