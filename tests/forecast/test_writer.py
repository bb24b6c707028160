"""Which versions can have written a store, and the version whose start is forecast without --broker."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqstore.brokers.writer import writer_of
from rmqstore.files.store import open_store
from rmqstore.formats.checkpoint import StoreCheckpoint, parse_checkpoint
from tests.command import run_json
from tests.damage import zero
from tests.stores import copy_store, unpack, write_broker_conf

RANGES = {
    "4.9.7-clean": ("4.3.0", "4.9.8", "5.4.0"),
    "5.1.4-clean": ("5.0.0", "5.3.4", "5.4.0"),
    "5.1.4-dledger": ("5.0.0", "5.3.4", "5.4.0"),
    "5.4.0-clean": ("5.4.0", "5.4.0", "5.4.0"),
    "5.4.0-rocksdb": ("5.4.0", "5.4.0", "5.4.0"),
    "5.4.0-dledger-killed": ("5.4.0", "5.4.0", "5.4.0"),
    "5.5.1-clean": ("5.5.0", "5.5.1", "5.5.1"),
    "5.5.1-rocksdb-separate": ("5.5.0", "5.5.1", "5.5.1"),
    "5.5.1-dledger": ("5.5.0", "5.5.1", "5.5.1"),
}


@pytest.mark.parametrize("name", RANGES)
def test_files_tell_who_wrote_a_store(name: str) -> None:
    found = writer_of(open_store(unpack(name)))
    assert (found.oldest, found.newest, found.forecast_version) == RANGES[name]
    assert found.evidence


def test_signs_are_left_without_the_directory_of_rocksdb(tmp_path: Path) -> None:
    for name, expected in (("5.4.0-clean", "5.3.4"), ("5.5.1-flushed", "5.5.1")):
        store = copy_store(name, tmp_path)
        for path in (store / "rocksdbstore").iterdir():
            path.unlink()
        (store / "rocksdbstore").rmdir()
        assert writer_of(open_store(store)).newest == expected


@pytest.mark.parametrize(
    ("name", "time", "shows"),
    [("5.1.4-clean", 1_800_000_000_000, True), ("5.1.4-clean", 0, False), ("5.4.0-rocksdb", 1_800_000_000_000, False)],
)
def test_only_a_time_of_queues_in_files_shows_that_an_older_version_wrote_the_checkpoint(
    name: str, time: int, shows: bool, tmp_path: Path
) -> None:
    store = copy_store(name, tmp_path)
    was = parse_checkpoint((store / "checkpoint").read_bytes())
    (store / "checkpoint").write_bytes(replace(was, logics_msg_timestamp=time, logics_physical_offset=0).build())
    signs = [evidence.sign for evidence in writer_of(open_store(store)).evidence]
    assert ("the checkpoint has a time of the queues, but no logicsPhysicalOffset" in signs) is shows


def test_verify_names_the_writer_and_forecasts_its_start(tmp_path: Path) -> None:
    store = str(copy_store("5.5.1-flushed", tmp_path))
    report = run_json("verify", store, exit_code=0)
    assert report["broker"]["version"] == "5.5.1"  # type: ignore[index]
    assert report["writer"] == {
        "oldest": "5.5.0",
        "newest": "5.5.1",
        "evidence": ["rocksdbstore/ was opened by RocksDB 8.4.4"],
    }
    older = run_json("verify", store, "--broker", "5.4.0", exit_code=0)
    assert any("was last written by RocketMQ 5.5.0 or newer" in note for note in older["notes"])  # type: ignore[attr-defined]


def test_a_rebuilt_checkpoint_lets_accelerated_recovery_start(tmp_path: Path) -> None:
    store = copy_store("5.5.1-flushed", tmp_path)
    (store / "checkpoint").unlink()
    run_json("rebuild", str(store), "checkpoint", "--apply", exit_code=0)
    made = parse_checkpoint((store / "checkpoint").read_bytes())
    assert made.logics_physical_offset > 200_000
    (store / "abort").touch()
    conf = write_broker_conf("5.5.1-flushed", store, enableAcceleratedRecovery="true")
    report = run_json("verify", str(store), "-c", str(conf), exit_code=0)
    assert report["broker"]["starts"] is True  # type: ignore[index]
    (store / "checkpoint").write_bytes(replace(made, logics_physical_offset=0).build())
    report = run_json("verify", str(store), "-c", str(conf), exit_code=1)
    assert report["broker"]["starts"] is False  # type: ignore[index]


def test_a_repair_keeps_the_offset_before_the_end_of_the_log(tmp_path: Path) -> None:
    store = copy_store("5.5.1-flushed", tmp_path)
    end = 205_000
    checkpoint = store / "checkpoint"
    assert parse_checkpoint(checkpoint.read_bytes()).logics_physical_offset >= end
    zero(store / "commitlog" / f"{196_608:020d}", end - 196_608, 262_144 - end)
    run_json("recover", str(store), "--strategy", "truncate", "--apply", exit_code=0)
    assert 0 < parse_checkpoint(checkpoint.read_bytes()).logics_physical_offset < end


def test_a_checkpoint_has_the_offset_at_byte_40() -> None:
    raw = StoreCheckpoint(logics_physical_offset=7).build()
    assert raw[40:48] == (7).to_bytes(8, "big")
    assert not any(raw[:40] + raw[48:])


def test_a_broker_that_ignores_the_separate_directory_loses_a_message() -> None:
    report = run_json("verify", str(unpack("5.5.1-rocksdb-separate")), "--broker", "5.4.0", exit_code=1)
    assert report["counts"] == {"BR-TOO-OLD": 1}
    assert "because it cannot read consume queues in consumequeue_rocksdb/" in str(report["verdict"])
    assert any("5.4.0 does not read consumequeue_rocksdb/" in note for note in report["notes"])  # type: ignore[attr-defined]


PREFLIGHT = {  # what the version makes of the store, and a note
    ("5.5.1-rocksdb-separate", "5.1.4"): ("cannot read consume queues in consumequeue_rocksdb/ and topics", ""),
    ("5.5.1-rocksdb-double-separate", "5.4.0"): (
        "would start and lose nothing",
        "creates a RocksDB in consumequeue/ (with rocksdbCQDoubleWriteEnable=true), and until its files are moved away",
    ),
    ("5.5.1-rocksdb-double-separate", "5.1.4"): ("would start and lose nothing", ""),
    ("5.4.0-rocksdb-double", "5.5.1"): ("would start and lose nothing", "only if broker.conf has combineCQUseRocks"),
    ("5.4.0-dledger", "5.5.1"): ("would start and lose nothing", "`rmqstore migrate-to-commitlog` makes a plain store"),
    ("5.4.0-dledger", "5.4.0"): ("would start and lose nothing", ""),
}
_NOTES = ("does not read consumequeue_rocksdb/", "combineCQUseRocksdbForLmq", "DLedger mode is deprecated")


@pytest.mark.parametrize(("name", "version"), PREFLIGHT)
def test_verify_for_another_version_names_what_it_cannot_read_or_needs(name: str, version: str) -> None:
    verdict, note = PREFLIGHT[name, version]
    report: Any = run_json("verify", str(unpack(name)), "--broker", version, exit_code=1 if "cannot" in verdict else 0)
    assert verdict in report["verdict"]
    notes = [line for line in report["notes"] if any(words in line for words in _NOTES)]
    assert len(notes) == bool(note)
    assert all(note in line for line in notes)


def test_a_version_that_knows_no_rocksdb_is_told_the_first_one_that_reads_the_separate_directory() -> None:
    report: Any = run_json("verify", str(unpack("5.5.1-rocksdb-separate")), "--broker", "4.9.7", exit_code=1)
    assert report["findings"][0]["facts"]["readable_from"] == "5.5.0"


def test_remains_after_the_last_record_are_no_records_of_a_newer_format() -> None:
    report: Any = run_json("verify", str(unpack("5.5.1-nommap")), exit_code=0)
    assert [(row["oldest"], row["newest"]) for row in report["brokers"]] == [("4.3.0", "5.5.1")]


COPIED = {"5.4.0-clean": ("5.4.0", "5.4.0"), "4.9.7-clean": ("4.3.0", "4.9.8"), "5.5.1-flushed": ("5.5.0", "5.5.1")}


@pytest.mark.parametrize("name", COPIED)
def test_a_snapshot_knows_who_wrote_its_store(name: str, tmp_path: Path) -> None:
    store, repository = copy_store(name, tmp_path), str(tmp_path / "repository")
    oldest, newest = COPIED[name]
    starts = "5.4.0" if newest == "4.9.8" else newest
    run_json("backup", str(store), repository, "--name", "a", exit_code=0)
    seen: Any = run_json("verify", f"{repository}::a", exit_code=0)
    assert (seen["writer"]["oldest"], seen["writer"]["newest"]) == (oldest, newest)
    made: Any = run_json("restore", f"{repository}::a", str(tmp_path / "restored"), exit_code=0)
    assert made["broker"]["version"] == starts
    seeded: Any = run_json("seed", str(store), str(tmp_path / "seeded"), "--role", "slave", exit_code=0)
    assert seeded["broker"]["version"] == starts
    for copy in ("restored", "seeded"):  # what only newer versions write would be a wrong sign
        checkpoint = parse_checkpoint((tmp_path / copy / "checkpoint").read_bytes())
        assert (checkpoint.logics_physical_offset > 0) == (oldest == "5.5.0")


def test_a_manifest_without_a_writer_can_be_read(tmp_path: Path) -> None:
    store, repository = copy_store("4.9.7-clean", tmp_path), tmp_path / "repository"
    run_json("backup", str(store), str(repository), "--name", "a", exit_code=0)
    manifest = next(repository.glob("**/snapshots/*.json"))
    raw = json.loads(manifest.read_text())
    assert raw["layout"].pop("written_by") == ["4.3.0", "4.9.8"]
    manifest.write_text(json.dumps(raw))
    report: Any = run_json("verify", f"{repository}::a", exit_code=0)
    assert report["broker"]["version"] == "5.5.1"
