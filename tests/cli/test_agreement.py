"""`info`, `verify`, `dump` and `du` of a damaged store print the same numbers, or explain the difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import run, run_json
from tests.damage import flip, zero
from tests.stores import copy_store
from tests.views.decoder import read_folder

LAST = "commitlog/00000000000000458752"


def shown(text: str) -> str:
    """Join the lines of a report."""
    return " ".join(text.split())


@pytest.mark.parametrize("torn", [1, 3])
def test_info_and_verify_find_the_same_end_where_the_last_records_are_torn(store: Path, torn: int) -> None:
    """After a power failure, the heads of the records exist, but pages of the bodies do not."""
    records = [r for r in read_folder(store / "commitlog") if r.position >= 458752]
    for record in records[-torn:]:
        zero(store / LAST, record.position - 458752 + 90, 40)
    log = run_json("info", str(store), exit_code=0)["commitlog"]
    report = run_json("verify", str(store), exit_code=1)["commitlog"]
    assert isinstance(log, dict)
    assert isinstance(report, dict)
    assert log["wrote"] == report["wrote"] == records[-torn].position
    assert log["torn"] == sum(r.size for r in records[-torn:])
    assert log["last_timestamp"] <= report["last_timestamp"] == max(r.store_timestamp for r in records[:-torn])
    text = run("info", str(store)).stdout
    assert f"torn: {log['torn']:,} bytes after it are an incomplete record" in text
    assert f"Look closer     rmqstore verify {store}\n" in text


def test_a_record_with_a_damaged_body_is_counted_by_all_of_them(store: Path) -> None:
    flip(store / "commitlog" / "00000000000000262144", 273275 - 262144 + 200)
    verified = run("verify", str(store))
    assert "552 good records and 1 damaged in 8 files" in shown(verified.stdout)
    log = run_json("verify", str(store), exit_code=1)["commitlog"]
    assert isinstance(log, dict)
    assert (log["messages"], log["damaged"]) == (552, 1)
    assert run_json("du", str(store), exit_code=0)["messages"] == 553
    dumped = run("dump", str(store), "--format", "ndjson")
    assert len(dumped.stdout.splitlines()) == 553
    assert (dumped.exit_code, dumped.stderr) == (1, "warning: 1 message has a wrong CRC\n")


def test_a_missing_file_is_passed_over_aloud(store: Path) -> None:
    (store / "commitlog" / "00000000000000196608").unlink()
    passed = "warning: 1 gap of missing files (65,536 bytes) skipped:\n"
    passed += "  commitlog 196,608 to 262,144: the file is missing\n"
    for command in (("du", str(store), "--by", "topic"), ("dump", str(store), "--format", "ndjson")):
        told = run(*command)
        assert (told.exit_code, told.stderr) == (1, passed)
    assert run_json("du", str(store), exit_code=1)["messages"] == 482
    assert "messages 71, topics Order_11 33, log-15445 22, Pay_11_Topic 16" in shown(run("verify", str(store)).stdout)
    info = run("info", str(store))
    assert "missing: 196,608 to 262,144 (64.0 KiB)" in info.stdout
    assert f"Look closer     rmqstore verify {store}\n" in info.stdout


def test_info_of_a_sound_store_does_not_recommend_verify(tmp_path: Path) -> None:
    assert "Look closer" not in run("info", str(copy_store("5.4.0-clean", tmp_path))).stdout
