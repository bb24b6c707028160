"""The reads of a scan, and its requests to the kernel to read ahead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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


def test_a_scan_reads_ahead_from_its_second_chunk_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda fd, at, size, advice: asked.append((at, size)))
    answer_of_page_cache(monkeypatch, cached=False)
    path = tmp_path / "00000000000000000000"
    path.write_bytes(bytes(7 * MIB))
    window = Window(MappedFile(path, 0, 7 * MIB, 7 * MIB), ScanOptions(chunk=2 * MIB))
    try:
        assert len(window.buf) == 2 * MIB + SLACK
        window.fill(0)
        assert asked == []
        window.fill(2 * MIB)
        assert asked == [(4 * MIB, MIB), (5 * MIB, MIB)]
        window.fill(4 * MIB)
        assert asked[2:] == [(6 * MIB, MIB)]
        window.fill(6 * MIB)
        assert len(asked) == 3
    finally:
        window.close()


def test_a_scan_does_not_read_ahead_in_a_cached_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_fadvise", lambda *arguments: pytest.fail("read ahead"))
    answer_of_page_cache(monkeypatch, cached=True)
    path = tmp_path / "00000000000000000000"
    path.write_bytes(bytes(7 * MIB))
    window = Window(MappedFile(path, 0, 7 * MIB, 7 * MIB), ScanOptions(chunk=2 * MIB))
    try:
        for at in range(0, 7 * MIB, 2 * MIB):
            window.fill(at)
    finally:
        window.close()


def test_a_slow_scan_does_not_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_fadvise", lambda *arguments: pytest.fail("read ahead"))
    answer_of_page_cache(monkeypatch, cached=False)
    path = tmp_path / "00000000000000000000"
    path.write_bytes(bytes(3 * MIB))
    window = Window(MappedFile(path, 0, 3 * MIB, 3 * MIB), ScanOptions(chunk=MIB, max_rate=1 << 40))
    try:
        for at in range(0, 3 * MIB, MIB):
            window.fill(at)
    finally:
        window.close()
