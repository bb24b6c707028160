"""The writable MappedFile and MappedFileQueue: positions, rolling, finding, truncation, expiry, references."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from rmqstore.append.mapped_files import PAGE, WritableMappedFile, WritableMappedFileQueue
from rmqstore.errors import OutputExists, Refused

SIZE = 1 << 16


class Clock:
    def __init__(self, now: int = 1_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def filled(directory: Path, files: int, clock: Clock | None = None) -> WritableMappedFileQueue:
    queue = WritableMappedFileQueue([directory], SIZE, clock=clock or Clock(), sleep=lambda seconds: None)
    for number in range(files):
        assert queue.last_file().append(bytes([number + 1]) * SIZE)
    queue.flush()
    return queue


def names(directory: Path) -> list[int]:
    return sorted(int(path.name) for path in directory.iterdir())


def test_a_new_file_has_its_full_size_and_no_blocks(tmp_path: Path) -> None:
    file = WritableMappedFile.create(tmp_path / "commitlog", SIZE * 3, SIZE)
    status = file.path.stat()
    assert (file.name, status.st_size, status.st_blocks) == (f"{SIZE * 3:020d}", SIZE, 0)
    with pytest.raises(OutputExists):
        WritableMappedFile.create(tmp_path / "commitlog", SIZE * 3, SIZE)


def test_positions_follow_append_commit_and_flush(tmp_path: Path) -> None:
    file = WritableMappedFile.create(tmp_path, 0, SIZE)
    assert file.append(b"x" * PAGE)
    assert (file.wrote_position, file.committed_position, file.flushed_position) == (PAGE, 0, 0)
    assert file.commit(2) == 0
    assert file.commit(1) == PAGE
    assert file.flush(2) == 0
    assert file.flush(1) == PAGE
    assert not file.append(b"y" * SIZE)
    assert file.read(PAGE - 1, 99) == b"x"


def test_bytes_are_read_over_the_border_of_what_is_committed(tmp_path: Path) -> None:
    file = WritableMappedFile.create(tmp_path, 0, SIZE)
    file.append(b"abc")
    file.commit()
    file.append(b"defg")
    assert [file.read(at, 3) for at in (0, 1, 2, 3, 5, 7)] == [b"abc", b"bcd", b"cde", b"def", b"fg", b""]


def test_files_roll_and_are_found_by_offset(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3)
    assert names(tmp_path) == [0, SIZE, 2 * SIZE]
    assert (queue.min_offset, queue.max_offset, queue.flushed_where) == (0, 3 * SIZE, 3 * SIZE)
    assert [queue.find_by_offset(at) for at in (-1, 3 * SIZE)] == [None, None]
    assert queue.find_by_offset(SIZE) is queue.files[1]
    assert queue.find_by_offset(9 * SIZE, return_first=True) is queue.files[0]
    assert queue.read(SIZE - 1, 5) == b"\1"


def test_a_first_file_is_named_by_the_offset_rounded_down(tmp_path: Path) -> None:
    queue = WritableMappedFileQueue([tmp_path], SIZE)
    file = queue.last_file(5 * SIZE + 77)
    assert (file.start, queue.flushed_where) == (5 * SIZE, 5 * SIZE)


def test_a_cut_deletes_later_files_and_leaves_or_zeroes_the_bytes(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3)
    assert [path.name for path in queue.truncate_dirty_files(SIZE + 10)] == [f"{2 * SIZE:020d}"]
    assert (queue.max_offset, queue.files[0].full) == (SIZE + 10, True)
    assert (tmp_path / f"{SIZE:020d}").read_bytes() == b"\2" * SIZE
    queue.truncate_dirty_files(SIZE + 5, blank=True)
    assert (tmp_path / f"{SIZE:020d}").read_bytes() == b"\2" * 5 + bytes(SIZE - 5)


@pytest.mark.parametrize(
    ("version", "entry", "loads"),
    [
        ("4.4.0", "short", 1),
        ("4.9.2", "short", 1),
        ("4.9.7", "short", None),
        ("5.4.0", "short", None),
        ("5.1.2", "empty-last", None),
        ("5.1.3", "empty-last", 2),
        ("5.0.0", "directory", None),
        ("5.1.0", "directory", 2),
        ("5.4.0", "no-number", None),
    ],
)
def test_load_follows_the_length_rule_of_each_version(
    tmp_path: Path, version: str, entry: str, loads: int | None
) -> None:
    filled(tmp_path, 2).close()
    if entry == "short":
        os.truncate(tmp_path / f"{SIZE:020d}", 7)
    elif entry == "empty-last":
        (tmp_path / f"{2 * SIZE:020d}").touch()
    elif entry == "directory":
        (tmp_path / "0backup").mkdir()
    else:
        (tmp_path / "notes").write_bytes(bytes(SIZE))
    queue = WritableMappedFileQueue([tmp_path], SIZE)
    if loads is None:
        path = {"short": f"{SIZE:020d}", "empty-last": f"{2 * SIZE:020d}", "directory": "0backup"}.get(entry, "notes")
        with pytest.raises(Refused, match=re.escape(str(tmp_path / path))) as refused:
            queue.load(version)
        assert "{" not in str(refused.value)
        return
    queue.load(version)
    assert [file.full for file in queue.files] == [True] * loads


def test_expiry_by_time_stops_at_the_first_young_file_and_spares_the_last(tmp_path: Path) -> None:
    clock = Clock(1_000_000)
    queue = filled(tmp_path, 4, clock)
    for file, seconds in zip(queue.files, (100, 200, 990, 100), strict=True):
        os.utime(file.path, (0, seconds))
    assert [int(p.name) for p in queue.delete_expired_by_time(500_000)] == [0, SIZE]
    assert names(tmp_path) == [2 * SIZE, 3 * SIZE]
    assert [int(p.name) for p in queue.delete_expired_by_time(500_000, clean_immediately=True)] == [2 * SIZE]
    assert queue.delete_expired_by_time(0, clean_immediately=True) == []


def test_one_round_deletes_ten_files_and_waits_between_them(tmp_path: Path) -> None:
    waits: list[float] = []
    queue = WritableMappedFileQueue([tmp_path], 16, sleep=waits.append)
    for _ in range(13):
        queue.last_file().append(bytes(16))
    assert len(queue.delete_expired_by_time(0, clean_immediately=True, delete_interval=100)) == 10
    assert waits == [0.1] * 9
    assert len(queue.files) == 3


def test_a_held_file_is_not_deleted_until_it_is_released_or_the_time_is_over(tmp_path: Path) -> None:
    clock = Clock()
    queue = filled(tmp_path, 3, clock)
    first = queue.files[0]
    assert first.hold()
    assert queue.delete_expired_by_time(0, clean_immediately=True) == []
    assert (first.available, first.hold(), first.path.exists()) == (False, False, True)
    clock.now += 119_999
    assert not first.destroy(120_000)
    clock.now += 1
    assert first.destroy(120_000)
    assert names(tmp_path) == [SIZE, 2 * SIZE]
    second = queue.files[1]
    assert second.hold()
    assert not second.destroy(120_000)
    second.release()
    assert second.cleaned
    assert second.destroy(120_000)


def test_warming_reserves_the_blocks(tmp_path: Path) -> None:
    file = WritableMappedFile.create(tmp_path, 0, SIZE)
    file.warm()
    assert file.path.stat().st_blocks * 512 >= SIZE


def test_a_cut_keeps_what_is_before_it_in_the_buffer(tmp_path: Path) -> None:
    queue = WritableMappedFileQueue([tmp_path], SIZE)
    queue.last_file().append(b"abcdef")
    queue.truncate_dirty_files(4, blank=True)
    assert (queue.max_offset, queue.read(0, 9)) == (4, b"abcd")
    queue.flush()
    assert (tmp_path / f"{0:020d}").read_bytes() == b"abcd" + bytes(SIZE - 4)
