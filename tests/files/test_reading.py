"""Files that are opened below a directory without following links."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.files.reading import open_beneath


@pytest.mark.parametrize("name", ["gone", "commitlog/gone", "nowhere/gone"])
def test_the_error_of_a_file_that_is_gone_names_its_whole_path(name: str, tmp_path: Path) -> None:
    """By this path, a backup of a live broker knows that a file of the store has expired, and looks again."""
    (tmp_path / "commitlog").mkdir()
    with pytest.raises(FileNotFoundError) as error:
        open_beneath(tmp_path, Path(name))
    assert error.value.filename == str(tmp_path / name)
