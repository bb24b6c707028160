"""Something else than a regular file under a file's name: nothing is read, and nothing blocks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqstore.files.disk.reading import open_regular, read_at


def test_a_name_that_no_file_can_have_is_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "Order\0"  # as a topic's name in a damaged record can be
    with pytest.raises(FileNotFoundError, match="not a valid file name"):
        open_regular(path)
    assert read_at(path, 8, 0) == b""


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    os.mkfifo(path)
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(path)
    assert read_at(path, 8, 0) == b""
