"""Copies of log files in the store's own log directories are used to restore the log."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqstore.files.store import open_store
from tests import damage
from tests.command import run, run_json
from tests.repair.replica.pairs import log_files
from tests.repair.salvaging import rows
from tests.stores import copy_store


def answer(*words: str, exit_code: int) -> Any:
    return run_json(*words, exit_code=exit_code)


def files_of(store: Path) -> list[Path]:
    """Return the files of the last log that has files."""
    return [file.path for file in open_store(store).logs[-1][0].files]


def break_log(store: Path, path: Path) -> None:
    """Damage two places of a log file, so that seven messages are lost."""
    own = [row for row in rows(store) if row.path == path]
    damage.garble(path, own[2].at, own[4].stop - own[2].at)
    damage.zero(path, own[8].at - own[8].body_offset, own[11].stop - own[8].at + own[8].body_offset)


def misaligned(path: Path) -> Path:
    return path.with_name(f"{int(path.name) // 5:020}")


def backup(path: Path) -> Path:
    return path.with_name(f"{path.name}.bak")


def in_a_directory(path: Path) -> Path:
    (path.parent / "old").mkdir()
    return path.parent / "old" / path.name


def far_behind(path: Path) -> Path:
    """Return a valid name of a log file far beyond the end of the log."""
    return path.with_name(f"{int(path.name) + 50 * path.stat().st_size:020}")


STORES = ("4.9.7-clean", "5.1.4-dledger", "5.4.0-dledger-mixed")
COPIES = (misaligned, backup, in_a_directory, far_behind)


@pytest.mark.quick_rows
@pytest.mark.parametrize("copied", COPIES, ids=lambda copied: copied.__name__)
@pytest.mark.parametrize("name", STORES)
def test_a_copy_restores_what_its_file_lost(name: str, copied: Callable[[Path], Path], tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    before, path = log_files(store), files_of(store)[1]
    other = copied(path)
    shutil.copy(path, other)
    break_log(store, path)
    source = other.parent if copied is in_a_directory else other
    done = answer("recover", str(store), "--role", "single", "--apply", exit_code=0)
    assert done["loss"]["messages"] == 0
    restored = done["facts"]["restored"]
    assert (restored["messages"], restored["replicas"][0]["path"]) == (7, str(source.relative_to(store)))
    assert log_files(store) == before
    answer("undo", str(done["journal"]), exit_code=0)
    assert other.read_bytes() == before[path.name]


def test_the_end_of_an_outdated_last_file_is_restored_from_a_copy(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger", tmp_path)
    before, path = log_files(store), max({row.path for row in rows(store)})
    own = [row for row in rows(store) if row.path == path]
    shutil.copy(path, backup(path))
    damage.zero(path, own[5].at - own[5].body_offset, path.stat().st_size - own[5].at + own[5].body_offset)
    done = answer("recover", str(store), "--role", "single", "--apply", exit_code=0)
    assert done["facts"]["restored"]["messages"] == len(own) - 5
    assert log_files(store) == before


def test_the_beginning_of_a_file_is_a_copy_too(store: Path) -> None:
    path = files_of(store)[1]
    shutil.copy(path, backup(path))
    damage.cut(backup(path), [row for row in rows(store) if row.path == path][9].at + 30)
    break_log(store, path)
    done = answer("recover", str(store), "--role", "single", "--accept-fillers", "--apply", exit_code=0)
    assert done["facts"]["restored"]["messages"] == 4  # the fourth place begins in the copy, and ends after it
    assert done["loss"]["messages"] == 3


def test_a_copy_with_the_name_of_another_log_file_is_used(tmp_path: Path) -> None:
    """The copy has overwritten that file, so that its own messages are lost."""
    store = copy_store("4.9.7-clean", tmp_path)
    _, path, third, *_ = files_of(store)
    gone = [row for row in rows(store) if row.path == third]
    shutil.copy(path, third)
    break_log(store, path)
    plan = answer("recover", str(store), "--role", "single", "--accept-fillers", exit_code=1)
    assert plan["facts"]["restored"]["messages"] == 7
    assert plan["loss"]["messages"] == len(gone)


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.1.4-dledger"])
def test_a_copy_restores_a_completely_lost_file(name: str, tmp_path: Path) -> None:
    """No record of the copy remains in the log, but index, consume queues and terms agree with it."""
    store = copy_store(name, tmp_path)
    before, path = log_files(store), files_of(store)[1]
    shutil.copy(path, misaligned(path))
    damage.zero(path, 0, path.stat().st_size)
    done = answer("recover", str(store), "--role", "single", "--apply", exit_code=0)
    assert done["loss"]["messages"] == 0
    assert log_files(store) == before


def test_two_copies_of_a_missing_file_complete_each_other(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    before, path = log_files(store), files_of(store)[1]
    own = [row for row in rows(store) if row.path == path]
    first, second = path.with_name("a"), path.with_name("b")
    for copy in (first, second):
        shutil.copy(path, copy)
    damage.garble(first, own[3].at, 60)
    damage.zero(second, own[9].at, path.stat().st_size - own[9].at)
    path.unlink()
    done = answer("recover", str(store), "--role", "single", "--apply", exit_code=0)
    assert done["loss"]["messages"] == 0
    assert log_files(store) == before


def test_a_copy_that_the_queues_contradict_is_not_used(tmp_path: Path) -> None:
    """Nothing remains of the file, and the file of another store has other messages at these offsets."""
    store, other = copy_store("5.4.0-clean", tmp_path / "a"), copy_store("5.1.4-clean", tmp_path / "b")
    path = files_of(store)[1]
    shutil.copy(files_of(other)[1], misaligned(path))
    damage.zero(path, 0, path.stat().st_size)
    plan = answer("recover", str(store), "--role", "single", "--accept-fillers", exit_code=1)
    assert "restored" not in plan["facts"]


def test_while_other_files_have_wrong_names_these_come_first(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    before, (_, path, third, fourth, *_) = log_files(store), files_of(store)
    shutil.copy(path, backup(path))
    break_log(store, path)
    third.rename(third.with_name("x"))
    fourth.rename(third)
    third.with_name("x").rename(fourth)
    first = answer("recover", str(store), "--role", "single", "--apply", exit_code=1)
    assert first["notes"][0] == (
        f"run recover again after this plan: it can restore messages from commitlog/{path.name}.bak"
    )
    assert {step["do"] for step in first["steps"]} == {"set-aside", "rename"}
    second = answer("recover", str(store), "--role", "single", "--apply", exit_code=0)
    assert second["facts"]["restored"]["messages"] == 7
    assert log_files(store) == before


@pytest.mark.parametrize("only", ["DIR-STRAY-FILE", "CQ-BEYOND-LOG"])
def test_a_repair_of_other_problems_uses_no_copy(only: str, store: Path) -> None:
    path = files_of(store)[1]
    shutil.copy(path, misaligned(path))
    break_log(store, path)
    plan = json.loads(run("recover", str(store), "--role", "single", "--only", only, "--json").stdout)
    assert "restored" not in plan["facts"]


def test_a_file_of_another_log_is_no_copy(tmp_path: Path) -> None:
    """Its records have the same offsets, but none is equal."""
    store, other = copy_store("5.4.0-clean", tmp_path / "a"), copy_store("5.1.4-clean", tmp_path / "b")
    path = files_of(store)[1]
    shutil.copy(files_of(other)[1], backup(path))
    break_log(store, path)
    plan = answer("recover", str(store), "--role", "single", exit_code=1)
    assert "restored" not in plan["facts"]
    assert plan["loss"]["messages"] == 7


def test_lost_names_the_copy(store: Path) -> None:
    path = files_of(store)[1]
    shutil.copy(path, misaligned(path))
    break_log(store, path)
    done = run("lost", str(store), "--format", "table")
    assert "Lost to damage: 7 messages" in done.stdout
    assert done.stderr == (
        f"note: commitlog/{misaligned(path).name} is a copy of a damaged log file: "
        "`rmqstore recover` restores messages from it\n"
    )
