"""A name of a file belongs to something other than a regular file: nothing is read, and nothing blocks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqstore.files.files import LOCAL
from rmqstore.files.reading import open_regular


def test_an_impossible_file_name_counts_as_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "Order\0"  # like the topic of a damaged record
    with pytest.raises(FileNotFoundError, match="not a valid file name"):
        open_regular(path)
    assert LOCAL.read_at(path, 8, 0) == b""


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    os.mkfifo(path)
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(path)
    assert LOCAL.read_at(path, 8, 0) == b""
