"""An empty first file of a log: it has not expired, so its messages are lost, and the loss is counted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.command import run_json
from tests.planning import log_of
from tests.repair.salvaging import rows
from tests.stores import copy_store, unpack

STORES = [
    ("5.4.0-clean", "commitlog", 0, "CL-MISSING-FILE", "DIR-EMPTY-FILE"),
    ("5.4.0-dledger", "dledger-n0/data", 0, "DL-MISSING-FILE", "DL-STRAY-FILE"),
    ("5.4.0-dledger-mixed", "dledger-n0/data", 8, "DL-MISSING-FILE", "DL-STRAY-FILE"),
]


def _emptied(store: Path, folder: str, number: int = 0) -> Path:
    path = store / folder / f"{number * 65_536:020}"
    os.truncate(path, 0)
    return path


@pytest.mark.parametrize(("name", "folder", "number", "missing", "empty"), STORES)
def test_messages_of_an_empty_first_file_are_lost(
    name: str, folder: str, number: int, missing: str, empty: str, tmp_path: Path
) -> None:
    store = copy_store(name, tmp_path)
    path = _emptied(store, folder, number)
    lost = sum(row.path.name == path.name for row in rows(unpack(name)))
    report = run_json("verify", str(store), exit_code=1)
    assert report["counts"] == {missing: 1, empty: 1}
    plan = run_json("recover", str(store), "--role", "single", exit_code=1)
    assert plan["steps"] == []
    done = run_json("recover", str(store), "--role", "single", "--accept-fillers", "--apply", exit_code=0)
    assert isinstance(done["loss"], dict)
    assert done["loss"]["messages"] == lost > 60
    assert path.stat().st_size == 65_536
    assert run_json("verify", str(store), exit_code=0)["counts"] == {}


def test_empty_file_far_before_the_log_proves_no_loss(store: Path) -> None:
    for number in (0, 1):
        (store / "commitlog" / f"{number * 65_536:020}").unlink()
    (store / "commitlog" / f"{0:020}").touch()
    log = log_of(store)
    assert log.begin == log.start == 131_072
    counts = run_json("verify", str(store), exit_code=1)["counts"]
    assert isinstance(counts, dict)
    assert "CL-MISSING-FILE" not in counts


def test_beside_an_empty_first_file_a_file_gets_its_right_name(tmp_path: Path) -> None:
    """No log file may have the name of the other file, so the log seems to have no record at all."""
    name = "5.4.0-timer-rocksdb-pending"
    store = copy_store(name, tmp_path)
    empty = _emptied(store, "commitlog")
    (store / "commitlog" / f"{65_536:020}").rename(store / "commitlog" / f"{6_553:019}")
    lost = sum(row.path.name == empty.name for row in rows(unpack(name)))
    plan = run_json("recover", str(store), "--role", "single", exit_code=1)
    assert isinstance(plan["loss"], dict)
    assert plan["loss"]["messages"] == lost == 68
    assert "CL-MISPLACED-FILE" in str(plan["cures"])
