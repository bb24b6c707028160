"""RememberedFiles: the same answers as the files themselves, each read once."""

from __future__ import annotations

from pathlib import Path

from rmqstore.files.files import LOCAL, RememberedFiles
from tests.files.memory_files import MemoryFiles
from tests.stores import unpack


def test_a_directory_and_a_short_read_are_asked_for_once() -> None:
    store = unpack("5.4.0-clean")
    under = MemoryFiles(store)
    files = RememberedFiles(under)
    checkpoint = store / "checkpoint"
    first = files.read_at(checkpoint, 16, 8)
    listed = files.list(store)
    listed.clear()  # what a caller does with its list changes nothing
    assert (files.read_at(checkpoint, 16, 8), files.list(store)) == (first, under.list(store))
    assert first == checkpoint.read_bytes()[8:24]
    assert under.calls["open", "checkpoint"] == 1
    assert under.calls["list", store.name] == 2  # once here, once by this test itself


def test_a_long_read_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * 5000)
    under = MemoryFiles(tmp_path)
    files = RememberedFiles(under)
    assert files.read_at(tmp_path / "long", 5000, 0) == files.read_at(tmp_path / "long", 5000, 0) == b"x" * 5000
    assert under.calls["open", "long"] == 2
    assert files.read_at(tmp_path / "missing", 1, 0) == b""
    assert files.stat(tmp_path / "missing") is None


def test_what_was_found_under_a_key_is_not_found_again() -> None:
    found: list[str] = []

    def find() -> str:
        found.append("found")
        return f"{len(found)}"

    remembered = RememberedFiles(LOCAL)
    assert [remembered.once("key", find), remembered.once("key", find), remembered.once("other", find)] == [
        "1",
        "1",
        "2",
    ]
    assert LOCAL.once("key", find) == "3"
