"""A request for early write-back changes nothing and never fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqstore.files import disk
from rmqstore.files.disk import start_writing


def test_a_wrong_descriptor_is_left_to_the_fsync(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
    os.write(descriptor, b"12345")
    start_writing(descriptor)
    start_writing(descriptor, 0, 5)
    os.close(descriptor)
    start_writing(descriptor)
    assert (tmp_path / "out").read_bytes() == b"12345"


def test_a_system_without_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_sync_file_range", lambda: None)
    start_writing(-1)
