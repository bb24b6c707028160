"""The parts of a sparse file that have data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqstore.files import reading
from rmqstore.files.files import LOCAL

MB = 1 << 20


@pytest.fixture
def sparse_file(tmp_path: Path) -> Path:
    """A file of 1 TiB with 64 KiB of data at 1 MiB and at 3 MiB."""
    path = tmp_path / "file"
    with path.open("wb") as file:
        for at in (MB, 3 * MB):
            file.seek(at)
            file.write(b"x" * 65_536)
        file.truncate(1 << 40)
    return path


def test_data_of_a_file_with_holes(sparse_file: Path) -> None:
    fd = os.open(sparse_file, os.O_RDONLY)
    try:
        stretches = [(MB, MB + 65_536), (3 * MB, 3 * MB + 65_536)]
        assert list(reading.data_extents(fd, 0, 1 << 40)) == stretches
        assert list(reading.data_extents(fd, MB + 5, 3 * MB + 7)) == [(MB + 5, MB + 65_536), (3 * MB, 3 * MB + 7)]
        assert list(reading.data_extents(fd, 4 * MB, 1 << 40)) == []
        assert reading.next_data(fd, 5, 10) == (10, 10)
        assert reading.next_data(fd, 10, 10) == (10, 10)
    finally:
        os.close(fd)
    with LOCAL.open(sparse_file) as file:
        assert (file.data_end(1 << 40), file.data_end(3 * MB)) == (3 * MB + 65_536, MB + 65_536)


def test_the_whole_file_counts_if_the_file_system_reports_no_holes(
    sparse_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_seek(*_: int) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "lseek", no_seek)
    fd = os.open(sparse_file, os.O_RDONLY)
    try:
        assert list(reading.data_extents(fd, 5, 100)) == [(5, 100)]
    finally:
        os.close(fd)
    with LOCAL.open(sparse_file) as file:
        assert file.data_end(100) == 100
