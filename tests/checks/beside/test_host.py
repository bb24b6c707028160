"""Notes on limits and the clock of this host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqstore.checks.beside import host
from rmqstore.files.store import open_store
from tests.command import run_json
from tests.stores import copy_store, unpack


def notes(store: Path) -> list[str]:
    report: Any = run_json("verify", str(store), exit_code=0)
    return [note for note in report["notes"] if "host" in note or "user may" in note or "zones" in note]


def limit(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "max_map_count"
    path.write_text(text)
    monkeypatch.setattr(host, "MAX_MAP_COUNT", path)


def test_every_mapped_file_counts() -> None:
    assert host.mapped_files(open_store(unpack("4.9.7-clean"))) == 7 + 21 + 4
    assert host.mapped_files(open_store(unpack("5.4.0-dledger"))) == 8 + 1 + 21 + 4 + 1


@pytest.mark.parametrize(("allowed", "said"), [("3031\n", 1), ("3032\n", 0), ("", 0), ("many", 0)])
def test_more_files_than_mappings_are_a_note(
    allowed: str, said: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(tmp_path, allowed, monkeypatch)
    found = notes(unpack("4.9.7-clean"))
    assert len(found) == said
    assert all("maps the 32 files of this store; this host allows 3,031 mappings" in note for note in found)


def test_more_files_than_a_process_may_open_are_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _limit: (1024, 3031))
    assert [note for note in notes(unpack("4.9.7-clean")) if "3,031 open files" in note]


def test_a_host_without_proc_has_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "MAX_MAP_COUNT", tmp_path / "none")
    assert notes(unpack("4.9.7-clean")) == []


def test_a_clock_before_the_last_message_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_600_000_000_000_000_000)
    assert any("after the present time of this host" in note for note in notes(unpack("4.9.7-clean")))


def test_index_files_of_two_time_zones_are_a_note(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    assert host.index_zones(open_store(store)) == [0]
    last = max((store / "index").iterdir())
    assert last.name == "20261121071021714"
    last.rename(last.with_name("20261121151021714"))
    assert host.index_zones(open_store(store)) == [0, 8 * 3_600_000]
    assert any("(UTC+00:00 and UTC+08:00)" in note for note in notes(store))
