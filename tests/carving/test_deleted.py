"""Stores whose files were deleted in an ext4 file system: nothing was overwritten, so all of the log comes back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.carving.images import delete_all, ext4, logs_of, records
from tests.command import run, run_json
from tests.stores import copy_store
from tests.untouched import snapshot

WHOLE = (
    "5.4.0-clean",
    "5.4.0-dledger-mixed",
    "4.9.7-clean",
    "5.1.4-clean",
    "5.5.1-clean",
    "4.9.7-killed",
    "5.4.0-formats",
    "4.9.7-dledger",
    "5.1.4-dledger",
    "5.4.0-dledger",
    "5.5.1-dledger",
    "4.9.7-ipv6",
    "5.4.0-ipv6",
)


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", WHOLE)
def test_all_of_a_deleted_log_comes_back(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    image = ext4(store, tmp_path / "disk.img")
    delete_all(store, image)
    before = snapshot(tmp_path)["disk.img"]
    logs = {path: data for path, data in logs_of(store).items() if data.strip(b"\0")}
    count = sum(len([*records(path, data)]) for path, data in logs.items())

    carved = run("carve", str(image), str(tmp_path / "out"), "--json")
    assert carved.exit_code in (0, 1)
    answer = json.loads(carved.stdout)

    assert snapshot(tmp_path)["disk.img"] == before
    stores = answer["stores"]
    assert [found["messages"] for found in stores] == [count]
    assert logs_of(tmp_path / "out") == logs
    assert not (tmp_path / "out.carved").exists()
    # what a disk without DLedger's text files and timer log cannot show; recover writes the former
    assert stores[0]["counts"].keys() <= {"DL-COMMITTED", "DL-TERM", "TM-MISSING"}
    assert carved.exit_code == bool(stores[0]["counts"])
    config = {path.name: path.read_bytes() for path in (store / "config").glob("*.json")}
    assert config.items() >= {path.name: path.read_bytes() for path in (tmp_path / "out/config").iterdir()}.items()


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    image = ext4(store, tmp_path / "disk.img")
    before = sorted(tmp_path.iterdir())
    answer = run_json("carve", str(image), str(tmp_path / "out"), "--dry-run", exit_code=0)
    assert answer["written"] is False
    assert sorted(tmp_path.iterdir()) == before


def test_a_source_without_records_is_named(tmp_path: Path) -> None:
    (tmp_path / "disk.img").write_bytes(b"\xda\xa3\x20\xa7" * 5000)
    result = run("carve", str(tmp_path / "disk.img"), str(tmp_path / "out"), "--dry-run")
    assert result.exit_code == 3
    assert "no record of a message" in result.stderr
