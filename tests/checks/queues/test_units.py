"""Reading fixed-size units as arrays."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from rmqstore.files.mapped_file_queue import MappedFileQueue, offset_to_file_name
from rmqstore.files.reading import data_extents
from rmqstore.formats import consumequeue, dledger
from rmqstore.scan.units import file_chunks, last_nonzero, last_nonzero_in, recovery_end, unit_chunks
from tests.checks.sound import opened
from tests.stores import BROKER_STORES, meta

FILE = 1000


def queue_of(
    directory: Path, *files: bytes, size: int = FILE, starts: tuple[int, ...] | None = None
) -> MappedFileQueue:
    for i, data in enumerate(files):
        start = starts[i] if starts else i * size
        path = directory / offset_to_file_name(start)
        with path.open("wb") as out:
            out.write(data)
            out.truncate(max(size, len(data)))
    return MappedFileQueue.open("q", [directory], file_size=size, default=size, unit=20)


def unit(offset: int, size: int = 100, tags: int = 0) -> bytes:
    return consumequeue.UNIT.build(commitlog_offset=offset, size=size, tags_code=tags)


@pytest.mark.parametrize("chunk", [1, 20, 60, 1 << 20])
def test_all_units_come_in_order_whatever_the_chunk(tmp_path: Path, chunk: int) -> None:
    units = b"".join(unit(i * 100) for i in range(100))
    queue = queue_of(tmp_path, units[:FILE], units[FILE:])
    got = list(unit_chunks(queue, consumequeue.UNIT, chunk=chunk))
    assert np.concatenate([c.units["commitlog_offset"] for c in got]).tolist() == [i * 100 for i in range(100)]
    assert [c.start for c in got] == [0, *[c.stop for c in got[:-1]]]
    assert got[-1].stop == 2 * FILE


def test_a_range_gives_its_units_only(tmp_path: Path) -> None:
    units = b"".join(unit(i) for i in range(100))
    queue = queue_of(tmp_path, units[:FILE], units[FILE:])
    got = list(unit_chunks(queue, consumequeue.UNIT, start=980, stop=1040))
    assert [c.number for c in got] == [49, 50]
    assert np.concatenate([c.units["commitlog_offset"] for c in got]).tolist() == [49, 50, 51]


def test_holes_are_left_out_and_units_over_their_edges_are_whole(tmp_path: Path) -> None:
    size = 20 * 65_536
    path = tmp_path / offset_to_file_name(0)
    with path.open("wb") as out:
        for number in (0, 30_000, 65_535):  # 30000 * 20 is not a page border
            out.seek(number * 20)
            out.write(unit(number + 1))
        out.truncate(size)
    queue = MappedFileQueue.open("q", [tmp_path], file_size=size, default=size, unit=20)
    seen = []
    read = 0
    for chunk in unit_chunks(queue, consumequeue.UNIT):
        where = np.flatnonzero(chunk.units["commitlog_offset"])
        seen += [(chunk.number + int(i), int(chunk.units["commitlog_offset"][i])) for i in where]
        read += len(chunk.units)
    assert seen == [(0, 1), (30_000, 30_001), (65_535, 65_536)]
    assert read < 65_536


def test_a_file_without_data_has_no_extents(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with path.open("wb") as out:
        out.truncate(1 << 30)
    fd = os.open(path, os.O_RDONLY)
    try:
        assert list(data_extents(fd, 0, 1 << 30)) == []
    finally:
        os.close(fd)


def test_a_short_file_gives_its_whole_units(tmp_path: Path) -> None:
    path = tmp_path / offset_to_file_name(0)
    path.write_bytes((unit(7) * 3)[:-1])
    queue = MappedFileQueue.open("q", [tmp_path], file_size=FILE, default=FILE, unit=20)
    assert [len(c.units) for c in unit_chunks(queue, consumequeue.UNIT)] == [2]


def test_a_vanished_file_has_no_units(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, unit(1))
    queue.files[0].path.unlink()
    assert list(unit_chunks(queue, consumequeue.UNIT)) == []
    assert last_nonzero(queue, 20) is None
    assert recovery_end(queue).end == 0


def test_last_nonzero_unit_is_found_from_the_end(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, unit(0) * 50, unit(1) * 3 + bytes(100) + b"\0" * 19 + b"\1", b"")
    assert last_nonzero(queue, 20) == FILE + 160
    assert last_nonzero_in(queue.files[0], 20) == 980
    assert last_nonzero_in(queue.files[2], 20) is None


def test_units_may_begin_after_a_head(tmp_path: Path) -> None:
    path = tmp_path / offset_to_file_name(0)
    path.write_bytes(b"head" + unit(5) + unit(6) + bytes(3))
    queue = MappedFileQueue.open("q", [tmp_path], file_size=47, default=47)
    (chunk,) = file_chunks(queue.files[0], consumequeue.UNIT, base=4)
    assert (chunk.start, chunk.units["commitlog_offset"].tolist()) == (4, [5, 6])
    assert last_nonzero_in(queue.files[0], 20, 4) == 24


def test_recovery_stops_at_the_first_invalid_unit(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, unit(1) * 50, unit(2, 30) * 4 + unit(3, 0) + unit(4))
    end = recovery_end(queue)
    assert (end.end, end.max_phy, end.units, end.pre_blanks) == (FILE + 80, 32, 54, 0)


def test_recovery_counts_pre_blanks(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, consumequeue.PRE_BLANK * 50)
    end = recovery_end(queue)
    assert (end.end, end.max_phy, end.units, end.pre_blanks) == (FILE, 0x7FFFFFFF, 50, 50)


def test_recovery_does_not_notice_a_missing_file(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, unit(1) * 50, unit(9) * 2, starts=(0, 3 * FILE))
    assert recovery_end(queue).end == 3 * FILE + 40


@pytest.mark.parametrize("name", [n for n in BROKER_STORES if not meta(n).abort_present and "rocksdb" not in n])
def test_recovery_ends_where_that_of_the_real_store_does(name: str) -> None:
    queues = meta(name).oracle_load.queues
    store = opened(name)
    ends = {q.label: recovery_end(q.queue).end // 20 for q in store.consume_queues() if q.kind.value == "simple"}
    assert {k: v.max for k, v in queues.items() if k in ends} == {k: v for k, v in ends.items() if k in queues}


def test_reading_a_sparse_dledger_index_skips_its_holes() -> None:
    dl = opened("5.4.0-dledger").dledger
    assert dl is not None
    assert dl.index.file_size == 167_772_160
    read = sum(len(c.units) for c in unit_chunks(dl.index, dledger.INDEX_UNIT))
    assert read <= 4096  # 553 entries, in blocks of 64 KiB
    assert last_nonzero(dl.index, 32) == 552 * 32


def test_a_sparse_queue_of_a_tebibyte_is_walked_over_its_data(tmp_path: Path) -> None:
    size = 20 << 33
    for number in range(7):
        with (tmp_path / offset_to_file_name(number * size)).open("wb") as out:
            if number < 6:
                out.seek(size // 2)
                out.write(unit(7))
            out.truncate(size)
    queue = MappedFileQueue.open("q", [tmp_path], file_size=size, default=size, unit=20)
    assert queue.stop > 1 << 40
    assert sum(len(c.units) for c in unit_chunks(queue, consumequeue.UNIT)) < 6 * 65_536
    assert last_nonzero(queue, 20) == 5 * size + size // 2
    assert recovery_end(queue).end == 0
