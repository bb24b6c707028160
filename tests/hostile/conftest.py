"""Fixtures: a store, and a directory of somebody else that nothing may change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repair.trees import build


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The small tree of `trees.build`."""
    return build(tmp_path / "store")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory outside of the store."""
    place = tmp_path / "victim"
    place.mkdir()
    (place / "crontab").write_bytes(b"# nothing\n")
    return place
