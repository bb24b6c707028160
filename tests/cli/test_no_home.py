"""A user without a home directory, like in a container with a user id that has no name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.command import run, run_json
from tests.stores import unpack


@pytest.fixture(autouse=True)
def no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(Path, "home", nobody)


def test_verify_needs_no_home() -> None:
    assert run_json("verify", str(unpack("5.4.0-clean")), "--jobs", "1", exit_code=0)["clean"] is True


def test_a_verify_that_was_cut_short_goes_on_from_the_temporary_directory(tmp_path: Path) -> None:
    store = str(unpack("5.4.0-clean"))
    assert run("verify", store, "--jobs", "1", "--max-duration", "0.000001s").exit_code == 4
    assert len(list((tmp_path / f"rmqstore-{os.getuid()}").rglob("*.json"))) == 1
    assert run("verify", store, "--jobs", "1", "--resume").exit_code in (0, 4)
