"""Fixtures for the tests of the journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repair.trees import build


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The small tree of `trees.build`."""
    return build(tmp_path / "store")
