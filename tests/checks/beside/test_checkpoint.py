"""The store checkpoint, compared with the log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqstore.checks.beside.checkpoint import VerifiedEnd, check_checkpoint, read_checkpoint
from rmqstore.checks.problems.report import Findings
from rmqstore.files.store import Store, open_store
from rmqstore.formats.checkpoint import STORE_CHECKPOINT
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from tests.checks.sound import above_note, located
from tests.command import run, run_json
from tests.damage import cut, overwrite
from tests.repair.salvaging import rows
from tests.stores import copy_store, unpack

YEAR_2040 = 2_208_988_800_000


def log_end(store: Store) -> VerifiedEnd:
    last = wrote = 0
    for queue, body_offset in store.logs:
        for file in queue.files:
            for part in scan_file(file, body_offset=body_offset):
                if part.kind is Kind.RECORDS and part.columns is not None:
                    last = max(last, int(part.columns.store_timestamp.max()))
                    wrote = part.stop
    return VerifiedEnd(last, wrote)


def check(path: Path, log: VerifiedEnd | None = None, *, raw: bytes | None = None) -> Findings:
    findings = Findings()
    check_checkpoint(open_store(path), log, findings, raw=raw)
    return findings


def test_a_missing_or_zero_checkpoint_is_a_note(tmp_path: Path) -> None:
    store = copy_store("5.4.0-killed", tmp_path)
    overwrite(store / "checkpoint", 0, bytes(40))
    findings = check(store)
    assert [(f.code, f.facts) for f in findings.listed] == [("CK-MISSING", {"reason": "zero"})]
    (store / "checkpoint").unlink()
    findings = check(store)
    assert [(f.code, f.facts) for f in findings.listed] == [("CK-MISSING", {"reason": "missing"})]
    assert above_note(findings) == []


@pytest.mark.parametrize("length", [0, 7, 39, 4095])
def test_a_short_checkpoint_is_named(store: Path, length: int) -> None:
    cut(store / "checkpoint", length)
    findings = check(store)
    assert located(findings)[0] == ("CK-LENGTH", "checkpoint", "checkpoint", 0)
    assert findings.listed[0].facts == {"length": length}


def test_a_directory_in_its_place_is_named(store: Path) -> None:
    (store / "checkpoint").unlink()
    (store / "checkpoint").mkdir()
    assert located(check(store)) == [("CK-LENGTH", "checkpoint", "checkpoint", 0)]


@pytest.mark.parametrize(("at", "field"), [(0, "physic"), (8, "logics"), (16, "index")])
def test_a_time_later_than_the_log_is_ahead(tmp_path: Path, at: int, field: str) -> None:
    store = copy_store("5.1.4-clean", tmp_path)
    overwrite(store / "checkpoint", at, YEAR_2040.to_bytes(8, "big"))
    findings = check(store, log_end(open_store(store)))
    assert located(findings) == [("CK-AHEAD", "checkpoint", "checkpoint", at)]
    assert findings.listed[0].facts["field"] == f"{field}_msg_timestamp"
    assert findings.listed[0].facts["value"] == YEAR_2040


def test_a_confirm_offset_after_the_end_is_ahead(store: Path) -> None:
    end = log_end(open_store(store))
    overwrite(store / "checkpoint", 32, (end.wrote + 1).to_bytes(8, "big"))
    assert located(check(store, end)) == [("CK-AHEAD", "checkpoint", "checkpoint", 32)]


@pytest.mark.parametrize("at", [0, 8, 16, 24, 32])
def test_a_negative_value_is_garbage(store: Path, at: int) -> None:
    overwrite(store / "checkpoint", at, b"\xff" * 8)
    assert located(check(store, log_end(open_store(store)))) == [("CK-GARBAGE", "checkpoint", "checkpoint", at)]


def test_what_a_broker_writes_after_the_checkpoint_was_read_does_not_count(store: Path) -> None:
    end, raw = log_end(open_store(store)), read_checkpoint(open_store(store))
    overwrite(store / "checkpoint", 0, (end.last_store_timestamp + 1).to_bytes(8, "big"))
    assert located(check(store, end, raw=raw)) == []
    assert located(check(store, end)) == [("CK-AHEAD", "checkpoint", "checkpoint", 0)]


def notes(store: Path, *words: str) -> str:
    return " ".join(json.loads(run("verify", str(store), *words, "--json").stdout)["notes"])


@pytest.mark.parametrize(("offset", "no_record"), [(100, True), (0, False)])
def test_an_offset_that_an_older_broker_did_not_keep_is_named_and_corrected(
    offset: int, no_record: bool, tmp_path: Path
) -> None:
    store = copy_store("5.5.1-flushed", tmp_path)
    [first, *_] = rows(store)
    assert "logicsPhysicalOffset" not in notes(store)
    overwrite(
        store / "checkpoint",
        STORE_CHECKPOINT.at("logics_physical_offset"),
        (offset or rows(store)[9].offset).to_bytes(8, "big"),
    )
    overwrite(
        store / "checkpoint",
        STORE_CHECKPOINT.at("logics_msg_timestamp"),
        (first.message.store_timestamp + 80_000).to_bytes(8, "big"),
    )
    told = notes(store, "--broker", "5.5.1")
    assert "an older broker has run on this store since the checkpoint got its logicsPhysicalOffset" in told
    assert ("where no record starts: with enableAcceleratedRecovery it deletes" in told) is no_record
    run_json("rebuild", str(store), "checkpoint", "--apply", exit_code=0)
    assert "logicsPhysicalOffset" not in notes(store)


def test_a_broker_that_does_not_keep_the_offset_is_named_before_a_downgrade() -> None:
    words = "does not keep the checkpoint's logicsPhysicalOffset"
    assert f"RocketMQ 5.4.0 {words}" in notes(unpack("5.5.1-flushed"), "--broker", "5.4.0")
    assert words not in notes(unpack("5.5.1-clean"), "--broker", "5.4.0")  # this one has none
