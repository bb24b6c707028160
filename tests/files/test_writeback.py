"""A file whose pages the kernel begins to write early has the same bytes."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from rmqstore.files.disk import writeback
from rmqstore.files.disk.writeback import EarlyFile, start_writing

MIB = 1 << 20


def test_writing_starts_after_every_8_mib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(writeback, "start_writing", lambda descriptor: asked.append(os.fstat(descriptor).st_size))
    pieces = [bytes([i]) * (3 * MIB) for i in range(7)]
    with io.BufferedWriter(EarlyFile(str(tmp_path / "out"))) as file:
        for piece in pieces:
            file.write(piece)
    assert (tmp_path / "out").read_bytes() == b"".join(pieces)
    assert asked == [9 * MIB, 18 * MIB]


def test_a_wrong_descriptor_is_left_to_the_fsync(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
    os.write(descriptor, b"12345")
    start_writing(descriptor)
    start_writing(descriptor, 0, 5)
    os.close(descriptor)
    start_writing(descriptor)
    assert (tmp_path / "out").read_bytes() == b"12345"


def test_a_system_without_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writeback, "_sync_file_range", lambda: None)
    start_writing(-1)
