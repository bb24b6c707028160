"""What the tests of the journal share; files that repair real stores have a `store` of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.files.users import Users
from rmqstore.repair.journal import liveness
from tests.repair.trees import build


@pytest.fixture
def nobody_looks_at_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "find_users", lambda places, files: Users())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The small tree of `trees.build`."""
    return build(tmp_path / "store")
