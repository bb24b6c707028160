"""A file that is written from its beginning to its end has the bytes that were given, direct or not."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rmqstore.append import disk
from rmqstore.append import disk as sequential_file
from rmqstore.append.disk import SequentialFile

BLOCK = 4 << 20


def written(path: Path, pieces: list[bytes], size: int = 0) -> bytes:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        with closing(SequentialFile(descriptor)) as file:
            for piece in pieces:
                file.write(piece)
            assert file.size == sum(map(len, pieces))
            file.finish(size)
    finally:
        os.close(descriptor)
    return path.read_bytes()


@pytest.mark.parametrize("how", ["direct", "refused", "never"])
@pytest.mark.parametrize("length", [0, 1, 4095, 4096, 4097, 1 << 18, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 12_345])
def test_bytes(how: str, length: int, monkeypatch: pytest.MonkeyPatch, disk_path: Path) -> None:
    """`refused`: the file system needs another alignment. `never`: it has no direct writes."""
    if how == "never":
        monkeypatch.setattr(sequential_file, "_DIRECT", 0)
    if how == "refused":
        plain = disk.write_all

        def write_all(descriptor: int, data: memoryview, at: int) -> None:
            if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            plain(descriptor, data, at)

        monkeypatch.setattr(sequential_file, "write_all", write_all)
    data = random.Random(length).randbytes(length)
    pieces = [data[at : at + 700_001] for at in range(0, length, 700_001)]
    assert written(disk_path / "file", pieces) == data
    assert written(disk_path / "larger", pieces, length + 10_000) == data + bytes(10_000)


def test_zeros_are_holes(disk_path: Path) -> None:
    data = b"x" * 5000 + bytes(3 * BLOCK) + b"y"
    path = disk_path / "file"
    assert written(path, [data], 5 * BLOCK) == data + bytes(5 * BLOCK - len(data))
    assert path.stat().st_blocks * 512 < BLOCK


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A directory on a disk, which may have direct writes; the one for tests may be in memory."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)
