"""Odd files in the RocksDB of a store: every command answers, and changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command import run, run_json
from tests.planning import counts_of
from tests.rocksdb_rows import SETTINGS, need_rocksdict
from tests.stores import copy_store
from tests.untouched import assert_untouched

ANSWERS = (0, 1, 3, 4, 5)
STORES = ("5.4.0-rocksdb", "5.5.1-rocksdb-double", "5.5.1-config-v2", "5.5.1-timer-rocksdb", "5.4.0-pop-kv")
FILES = ("CURRENT", "MANIFEST-*", "*.sst", "*.log", "OPTIONS-*")
COMMANDS = (
    ("offsets",),
    ("info",),
    ("verify",),
    ("lost",),
    ("lost", "--next-start"),
    ("dump",),
    ("dump", "--what", "consumequeue"),
    ("dump", "--what", "config"),
    ("find", "ord11_42"),
    ("get", "Order_11/0/3"),
    ("du",),
    ("recover",),
    ("rebuild", "cq"),
    ("expire", "--any-hour", "--reserved", "0"),
)


def doubled(path: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 3)


def linked(path: Path) -> None:
    path.rename(path.with_name(f"kept-{path.name}"))
    path.symlink_to(f"kept-{path.name}")


def looped(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def copied(path: Path) -> None:
    path.with_name(f"MANIFEST-{'9' * 6}").write_bytes(path.read_bytes())


def endless(path: Path) -> None:
    os.truncate(path, 1 << 42)


ODD: tuple[Callable[[Path], object], ...] = (
    doubled,
    lambda path: path.write_bytes(b""),
    cut,
    garbage,
    linked,
    looped,
    directory,
    copied,
    endless,
)
NAMES = ["doubled", "empty", "cut", "garbage", "linked", "looped", "directory", "copied", "endless"]


def database_of(store: Path) -> Path:
    """Return the first RocksDB of a store."""
    return min(path.parent for path in store.rglob("CURRENT"))


def test_offsets_names_a_doubled_manifest_in_one_line(tmp_path: Path) -> None:
    need_rocksdict()
    store = copy_store("5.4.0-rocksdb", tmp_path)
    doubled(next((store / "consumequeue").glob("MANIFEST-*")))
    error = run_json("offsets", str(store), exit_code=4)["error"]
    assert isinstance(error, dict)
    assert error["code"] == "could-not-check"
    assert error["message"].startswith("Corruption: ")
    assert error["advice"].startswith("`rmqstore verify STORE` says what is wrong with this RocksDB")
    assert counts_of(store, SETTINGS)["CQ-ROCKSDB"] == 1


@pytest.mark.parametrize("pattern", ["CURRENT", "MANIFEST-*", "*.log"])
def test_offsets_names_a_file_that_would_be_read_for_hours(pattern: str, tmp_path: Path) -> None:
    need_rocksdict()
    store = copy_store("5.4.0-rocksdb", tmp_path)
    endless(next((store / "consumequeue").glob(pattern)))
    error = run_json("offsets", str(store), exit_code=4)["error"]
    assert isinstance(error, dict)
    assert error["code"] == "could-not-check"
    assert "bytes" in error["message"]


@pytest.mark.quick_rows(6)
@pytest.mark.parametrize("odd", ODD, ids=NAMES)
@pytest.mark.parametrize("pattern", FILES)
@pytest.mark.parametrize("name", STORES)
def test_commands_answer_with_an_odd_file(
    name: str, pattern: str, odd: Callable[[Path], object], tmp_path: Path
) -> None:
    need_rocksdict()
    store = copy_store(name, tmp_path)
    file = next(iter(sorted(database_of(store).glob(pattern))), None)
    if file is None:
        pytest.skip(f"the database has no {pattern}")
    odd(file)
    with assert_untouched(store):
        for command, *options in COMMANDS:
            result = run(command, str(store), *options)
            assert result.exit_code in ANSWERS, f"{command} {options}: {result.stderr}"
