"""The reads of a scan, and its requests to the kernel to read ahead."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqstore.files import pace
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.scan.window import SLACK, ScanOptions, Window

MIB = 1 << 20


def answer_of_page_cache(monkeypatch: pytest.MonkeyPatch, *, cached: bool) -> None:
    """Make the system answer as if every byte were in the page cache, or none; tmpfs cannot tell."""
    preadv = os.preadv

    def read(fd: int, buffers: list[memoryview], at: int, flags: int = 0) -> int:
        if flags and not cached:
            raise BlockingIOError
        return preadv(fd, buffers, at)

    monkeypatch.setattr(os, "preadv", read)


@contextlib.contextmanager
def window_of(folder: Path, mebibytes: int, options: ScanOptions) -> Iterator[Window]:
    path, size = folder / f"{0:020}", mebibytes * MIB
    path.write_bytes(bytes(size))
    window = Window(MappedFile(path, 0, size, size), options)
    try:
        yield window
    finally:
        window.close()


def test_a_scan_reads_ahead_from_its_second_chunk_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda fd, at, size, advice: asked.append((at, size)))
    answer_of_page_cache(monkeypatch, cached=False)
    with window_of(tmp_path, 7, ScanOptions(chunk=2 * MIB)) as window:
        assert len(window.buf) == 2 * MIB + SLACK
        window.fill(0)
        assert asked == []
        window.fill(2 * MIB)
        assert asked == [(4 * MIB, MIB), (5 * MIB, MIB)]
        window.fill(4 * MIB)
        assert asked[2:] == [(6 * MIB, MIB)]
        window.fill(6 * MIB)
        assert len(asked) == 3


@pytest.mark.parametrize(("cached", "rate"), [(True, 0), (False, 1 << 40)], ids=["a cached file", "a slow scan"])
def test_not_every_scan_reads_ahead(cached: bool, rate: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_fadvise", lambda *arguments: pytest.fail("read ahead"))
    answer_of_page_cache(monkeypatch, cached=cached)
    with pace.at_most(rate), window_of(tmp_path, 7, ScanOptions(chunk=2 * MIB)) as window:
        for at in range(0, 7 * MIB, 2 * MIB):
            window.fill(at)
