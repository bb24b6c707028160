"""Files missing at the beginning of the log: expired, or too young to have expired."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqstore.checks.examine import verify
from rmqstore.checks.options import VerifyOptions
from rmqstore.files.store import open_store
from tests.stores import copy_store

HOURS = 3600


def _notes(store: Path) -> list[str]:
    report = verify(open_store(store), VerifyOptions(jobs=1))
    return [note for note in report.notes if "begins at" in note]


@pytest.mark.parametrize(("name", "log"), [("5.1.4-killed", "commitlog"), ("5.4.0-dledger", "dledger")])
def test_files_too_young_to_expire_are_noted(name: str, log: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    assert _notes(store) == []
    first, second = open_store(store).logs[0][0].files[:2]
    first.path.unlink()
    assert [note.partition(": ")[0] for note in _notes(store)] == [f"the {log} begins at {second.start:,}"]


def test_files_that_were_old_enough_are_not(tmp_path: Path) -> None:
    """The broker continued to run for 73 hours after the last message."""
    store = copy_store("5.1.4-killed", tmp_path)
    open_store(store).logs[0][0].files[0].path.unlink()
    checkpoint = store / "checkpoint"
    late = checkpoint.stat().st_mtime + 73 * HOURS
    os.utime(checkpoint, (late, late))
    assert _notes(store) == []
