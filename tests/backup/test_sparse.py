"""Sparse files beside the log: their holes are neither read nor written, and take few rows of a manifest."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqstore.backup.manifest import CHUNK
from rmqstore.backup.repository import Repository
from rmqstore.backup.storage import LocalStorage
from tests.command import run, run_json
from tests.stores import copy_store

_LONG = 64 << 30
_MIDDLE = _LONG // 2 + 12_345


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a file that is a hole before and behind a few bytes, and a longer hole."""
    store = copy_store("5.4.0-clean", tmp_path)
    with (store / "config" / "sparse").open("wb") as file:
        file.seek(_MIDDLE)
        file.write(b"middle")
        file.truncate(_LONG)
    with (store / "config" / "hole").open("wb") as file:
        file.truncate(_LONG + 7)
    return store


@contextmanager
def little_is_read() -> Iterator[None]:
    def count() -> int:
        rows = Path("/proc/self/io").read_text().splitlines()
        return int(next(row.split()[1] for row in rows if row.startswith("rchar")))

    before = count()
    yield
    assert count() - before < 1 << 30


def check_sparse(place: Path) -> None:
    path = place / "config" / "sparse"
    assert path.stat().st_size == _LONG and path.stat().st_blocks * 512 < 32 << 20
    with path.open("rb") as file:
        descriptor = file.fileno()
        low = os.lseek(descriptor, 0, os.SEEK_DATA)
        assert not any(os.pread(descriptor, _MIDDLE - low, low)) and _MIDDLE - low < 32 << 20
        assert os.pread(descriptor, 8, _MIDDLE) == b"middle\0\0"
        file.seek(_MIDDLE + 6)
        end = os.lseek(descriptor, _MIDDLE, os.SEEK_HOLE)
        file.seek(_MIDDLE + 6)
        assert end - _MIDDLE < 32 << 20 and not any(file.read(end - _MIDDLE - 6))
    hole = place / "config" / "hole"
    assert hole.stat().st_size == _LONG + 7 and hole.stat().st_blocks == 0


def test_seed_does_not_read_holes(store: Path, tmp_path: Path) -> None:
    with little_is_read():
        done = run("seed", str(store), str(tmp_path / "new"), "--role", "slave")
    assert done.exit_code == 0, done.output
    check_sparse(tmp_path / "new")


def test_backup_and_restore_do_not_read_holes(store: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repo"
    with little_is_read():
        run_json("backup", str(store), str(repository), "--name", "a", exit_code=0)
        assert run("snapshots", str(repository), "--check").exit_code == 0
        done = run("restore", f"{repository}::a", str(tmp_path / "new"))
    assert done.exit_code == 0, done.output
    check_sparse(tmp_path / "new")
    folder = Repository.open(LocalStorage(repository)).of("a")
    rows = {other.path: other.chunks for other in folder.manifest(folder.snapshots()[-1]).others}
    assert len(rows["config/sparse"]) < 1100 and len(rows["config/hole"]) < 1100


def test_a_short_hole_is_written_as_older_versions_read_it(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    with (store / "config" / "hole").open("wb") as file:
        file.truncate(5 * CHUNK + 7)
    repository = tmp_path / "repo"
    run_json("backup", str(store), str(repository), "--name", "a", exit_code=0)
    [path] = (repository / "a" / "snapshots").iterdir()
    document = json.loads(path.read_text())
    assert document["format"] == 1
    [rows] = [other["chunks"] for other in document["others"] if other["path"] == "config/hole"]
    assert rows == [*[["", CHUNK]] * 5, ["", 7]]


@pytest.mark.parametrize("length", [1 << 45, 1 << 61, -1])
def test_a_forged_run_of_zeros_is_answered(length: int, tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    repository = tmp_path / "repo"
    run_json("backup", str(store), str(repository), "--name", "a", exit_code=0)
    [path] = (repository / "a" / "snapshots").iterdir()
    document = json.loads(path.read_text())
    [other] = [other for other in document["others"] if other["path"] == "config/consumerOffset.json"]
    other["chunks"] = [["", length]] * 2
    path.write_text(json.dumps(document | {"format": 2}))
    for words in (("restore", f"{repository}::a", str(tmp_path / "new")), ("verify", f"{repository}::a")):
        done = run(*words)
        assert done.exit_code in (0, 1, 4, 5), done.output
        assert len([row for row in done.stderr.splitlines() if row.startswith("error: ")]) <= 1


def test_a_file_of_exbibytes_is_no_part_of_a_snapshot(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    with (store / "config" / "hole").open("wb") as file:
        try:
            file.truncate(1 << 60)
        except OSError:
            pytest.skip("the file system has no such files")
    refused = run("backup", str(store), str(tmp_path / "repo"), "--name", "a")
    assert refused.exit_code == 4
    assert "no snapshot has such a file — move it out of the store" in refused.stderr
    assert not list((tmp_path / "repo" / "a" / "snapshots").glob("*"))
