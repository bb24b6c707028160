"""The entries of a store's directories."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from rmqstore.checks.beside.config import check_config
from rmqstore.checks.beside.directory import check_directory
from rmqstore.checks.problems.report import Findings, Report
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from rmqstore.views.info import info
from tests.checks.sound import above_note, located, opened
from tests.command import run
from tests.damage import cut, grow
from tests.stores import BROKER_STORES, copy_store


def check(path: Path, conf: dict[str, str] | None = None, *, live: bool = False) -> tuple[Findings, Report]:
    store = open_store(path, BrokerConfig(conf or {}))
    report = Report(str(path), store.kind, Findings(), live=live)
    check_directory(store, report, queue_types=check_config(store, Findings()).queue_types)
    return report.findings, report


def test_rocksdb_is_named_as_not_checked() -> None:
    report = Report("", "", Findings())
    check_directory(opened("5.4.0-rocksdb"), report)
    assert report.unchecked == [
        "consumequeue/: consume queues in RocksDB are not checked",
        "config/consumerOffsets/: configuration in RocksDB is not checked",
        "config/subscriptionGroups/: configuration in RocksDB is not checked",
        "config/topics/: configuration in RocksDB is not checked",
    ]


def test_a_text_file_in_commitlog_is_a_stray_file(store: Path) -> None:
    (store / "commitlog" / "notes.txt").write_text("hello")
    findings, _ = check(store)
    assert located(findings) == [("DIR-STRAY-FILE", "commitlog", "notes.txt", 0)]
    assert findings.listed[0].facts == {"reason": "not-an-offset", "path": "commitlog/notes.txt"}


def test_a_directory_in_commitlog_is_named(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    (store / "commitlog" / "old").mkdir()
    assert located(check(store)[0]) == [("DIR-SUB-DIRECTORY", "commitlog", "old", 0)]


def test_an_empty_last_file_of_a_queue_is_named_but_not_beside_a_live_broker(tmp_path: Path) -> None:
    store = copy_store("5.1.4-clean", tmp_path)
    file = store / "consumequeue" / "Order_11" / "0" / "00000000000000000000"
    cut(file, 0)
    assert located(check(store)[0]) == [("DIR-EMPTY-FILE", "Order_11/0", file.name, 0)]
    assert located(check(store, live=True)[0]) == []


def test_a_short_commitlog_file_has_the_wrong_length(store: Path) -> None:
    cut(store / "commitlog" / "00000000000000131072", 60_000)
    findings, _ = check(store)
    assert located(findings) == [("DIR-WRONG-LENGTH", "commitlog", "00000000000000131072", 131_072)]
    assert findings.listed[0].facts["expected"] == 65_536
    assert findings.listed[0].length == 60_000


def test_a_long_queue_file_has_the_wrong_length(store: Path) -> None:
    file = store / "consumequeue" / "Order_11" / "1" / "00000000000000000000"
    grow(file, 20)
    assert located(check(store)[0]) == [("DIR-WRONG-LENGTH", "Order_11/1", file.name, 0)]


def test_another_configured_size_is_reported_once_with_the_key_to_set(store: Path) -> None:
    findings, _ = check(store, {"mappedFileSizeCommitLog": "1048576"})
    assert located(findings) == [("DIR-FILE-SIZE", "commitlog", "", 0)]
    assert findings.listed[0].facts == {
        "key": "mappedFileSizeCommitLog",
        "configured": 1_048_576,
        "actual": 65_536,
        "set": "mappedFileSizeCommitLog=65536",
    }


def test_another_configured_consume_queue_size_is_reported_once_for_the_tree(store: Path) -> None:
    findings, _ = check(store, {"mappedFileSizeConsumeQueue": "6000"})
    assert located(findings) == [("DIR-FILE-SIZE", "consumequeue", "", 0)]


def test_the_configured_consume_queue_size_is_rounded_up_to_units(store: Path) -> None:
    actual = (store / "consumequeue" / "Order_11" / "0" / "00000000000000000000").stat().st_size
    assert located(check(store, {"mappedFileSizeConsumeQueue": str(actual - 7)})[0]) == []


def test_the_same_name_in_two_paths_is_a_duplicate(store: Path) -> None:
    second = store.parent / "second"
    second.mkdir()
    name = "00000000000000065536"
    (second / name).write_bytes((store / "commitlog" / name).read_bytes())
    findings, _ = check(store, {"storePathCommitLog": f"{store / 'commitlog'},{second}"})
    assert located(findings) == [("DIR-DUPLICATE-FILE", "commitlog", name, 65_536)]


def test_two_names_of_the_same_number_are_a_duplicate(store: Path) -> None:
    """Observed on all versions: the broker sorts by name and reads the first, here the one with fewer zeros."""
    name = f"{0:020}"
    (store / "commitlog" / name[1:]).write_bytes((store / "commitlog" / name).read_bytes())
    findings, _ = check(store, {})
    assert located(findings) == [("DIR-DUPLICATE-FILE", "commitlog", name, 0)]
    facts = {"reason": "duplicate", "path": f"commitlog/{name}", "other": f"commitlog/{name[1:]}"}
    assert findings.listed[0].facts == facts
    done = run("recover", str(store), "--apply")
    assert done.exit_code == 1
    said_by_recover = " ".join(done.stdout.split())
    assert f"commitlog/{name} and commitlog/{name[1:]} start at the same offset: keep one of them" in said_by_recover


def test_two_names_of_the_same_number_in_dledger_are_for_an_operator(tmp_path: Path) -> None:
    """No version starts: DLedger checks the order of its files."""
    store = copy_store("5.4.0-dledger", tmp_path)
    data, name = store / "dledger-n0" / "data", f"{0:020}"
    (data / name[1:]).write_bytes((data / name).read_bytes())
    assert located(check(store, {})[0]) == [("DIR-DUPLICATE-FILE", "dledger", name, 0)]
    done = run("recover", str(store))
    assert done.exit_code == 1
    assert "DIR-DUPLICATE-FILE x 1: nothing shows which of the two files is the right one" in done.stdout


def test_read_only_paths_count_only_beside_several_paths(store: Path) -> None:
    """Observed on 5.4.0: a broker with a single log path ignores readOnlyCommitLogStorePaths."""
    second, third = store.parent / "second", store.parent / "third"
    for folder in (second, third):
        folder.mkdir()
    name = "00000000000000065536"
    (second / name).write_bytes((store / "commitlog" / name).read_bytes())
    conf = {"storePathCommitLog": str(store / "commitlog"), "readOnlyCommitLogStorePaths": f"{second},{third}x"}
    assert located(check(store, conf)[0]) == []
    conf |= {"storePathCommitLog": f"{store / 'commitlog'},{third}", "readOnlyCommitLogStorePaths": str(second)}
    assert located(check(store, conf)[0]) == [("DIR-DUPLICATE-FILE", "commitlog", name, 65_536)]


def test_a_configured_path_that_is_gone_is_named(store: Path) -> None:
    gone = store.parent / "gone"
    findings, _ = check(store, {"storePathCommitLog": f"{store / 'commitlog'},{gone}"})
    assert located(findings) == [("DIR-MISSING-PATH", "commitlog", "", 0)]
    assert findings.listed[0].facts == {"path": str(gone)}


def test_a_store_that_is_dledger_from_the_start_needs_no_commitlog_directory(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger", tmp_path)
    assert located(check(store, {"storePathCommitLog": str(store / "commitlog")})[0]) == []
    config = BrokerConfig({"storePathCommitLog": str(store / "commitlog"), "enableDLegerCommitLog": "true"})
    assert info(open_store(store, config)).unchecked == []
    shutil.rmtree(store / "dledger-n0")  # as if it was killed before the group had a leader
    (store / "dledger-n0" / "data").mkdir(parents=True)
    (store / "dledger-n0" / "index").mkdir()
    assert located(check(store, config.given)[0]) == []


@pytest.mark.parametrize("part", ["data", "index"])
def test_any_odd_file_in_a_dledger_directory_is_a_dl_stray_file(tmp_path: Path, part: str) -> None:
    store = copy_store("4.9.7-dledger", tmp_path)
    (store / "dledger-n0" / part / "notes").write_bytes(b"")
    queue = "dledger" if part == "data" else "dledger-index"
    assert located(check(store)[0]) == [("DL-STRAY-FILE", queue, "notes", 0)]


def test_a_batch_queue_directory_of_a_simple_topic_is_of_the_wrong_kind(tmp_path: Path) -> None:
    store = copy_store("5.1.4-formats", tmp_path)
    (store / "batchconsumequeue" / "Order_11" / "0").mkdir(parents=True)
    findings, _ = check(store)
    assert located(findings) == [("DIR-QUEUE-KIND", "Order_11", "Order_11", 0)]
    assert findings.listed[0].facts["directory"] == "batchconsumequeue"


def test_a_simple_queue_directory_of_a_batch_topic_is_of_the_wrong_kind(tmp_path: Path) -> None:
    store = copy_store("5.1.4-formats", tmp_path)
    (store / "consumequeue" / "BatchCq_11" / "0").mkdir(parents=True)
    findings, _ = check(store)
    assert located(findings) == [("DIR-QUEUE-KIND", "BatchCq_11", "BatchCq_11", 0)]
    assert findings.listed[0].facts["queue_type"] == "BatchCQ"


def test_entries_that_a_broker_skips_are_notes(store: Path) -> None:
    (store / "consumequeue" / "README").write_text("x")
    (store / "consumequeue" / "Order_11" / "backup").mkdir()
    (store / "index" / "readme.txt").write_text("x")
    findings, _ = check(store)
    assert above_note(findings) == []
    assert findings.counts == {"DIR-FOREIGN-ENTRY": 3}


def test_a_directory_with_an_index_file_name_stops_a_start(store: Path) -> None:
    (store / "index" / "20261121071022999").mkdir()
    assert located(check(store)[0]) == [("DIR-STRAY-FILE", "index", "20261121071022999", 0)]


@pytest.mark.parametrize(
    ("state", "open_"), [("applying", True), ("undoing", True), ("done", False), ("undone", False)]
)
def test_a_journal_is_open_while_it_is_half_way(store: Path, state: str, open_: bool) -> None:
    journal = store / ".rmqstore" / "20260101-000000"
    journal.mkdir(parents=True)
    (journal / "state").write_text(json.dumps({"schema": "rmqstore.journal/1", "state": state, "store": str(store)}))
    findings, _ = check(store)
    assert located(findings) == ([("DIR-OPEN-JOURNAL", "store", journal.name, 0)] if open_ else [])


def test_a_journal_elsewhere_is_found_through_its_pointer(store: Path) -> None:
    journal = store.parent / "journals" / "one"
    journal.mkdir(parents=True)
    (journal / "state").write_text(json.dumps({"state": "applying", "store": str(store)}))
    pointer = store / ".rmqstore" / "one"
    pointer.mkdir(parents=True)
    (pointer / "journal").write_text(str(journal))
    findings, _ = check(store)
    assert findings.listed[0].facts == {"journal": str(journal), "state": "applying"}


def test_a_link_at_the_top_is_followed_and_noted(store: Path) -> None:
    (store / "commitlog").rename(store.parent / "elsewhere")
    (store / "commitlog").symlink_to(store.parent / "elsewhere")
    findings, _ = check(store)
    assert [(f.code, f.file) for f in findings.listed] == [("DIR-LINK", "commitlog")]


@pytest.mark.parametrize("name", BROKER_STORES[:1])
def test_abort_bak_is_not_a_sign_of_a_crash(tmp_path: Path, name: str) -> None:
    store = copy_store(name, tmp_path)
    (store / "abort").unlink(missing_ok=True)
    (store / "abort.bak").write_bytes(b"")
    _, report = check(store)
    assert not any("abort" in note for note in report.notes)


def test_a_directory_that_cannot_be_listed_is_named_and_the_rest_is_checked(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store / "consumequeue" / "README").write_text("x")
    closed = store / "commitlog"
    scandir = os.scandir

    def refuse(path: str | Path) -> object:
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied", str(closed))
        return scandir(path)

    opened_ = open_store(store)
    monkeypatch.setattr(os, "scandir", refuse)
    findings = Findings()
    check_directory(opened_, Report("", "", findings))
    assert located(findings) == [("DIR-UNREADABLE", "store", "commitlog", 0)]
    assert findings.listed[0].facts == {"path": "commitlog", "error": "Permission denied"}
    assert findings.counts["DIR-FOREIGN-ENTRY"] == 1


def test_a_dangling_link_in_commitlog_is_a_stray_file(store: Path) -> None:
    (store / "commitlog" / "00000000000000983040").symlink_to(store / "nowhere")
    findings, _ = check(store)
    assert located(findings) == [("DIR-STRAY-FILE", "commitlog", "00000000000000983040", 983_040)]
    assert findings.listed[0].facts["reason"] == "special"


def test_a_misaligned_name_of_the_right_length_is_a_stray_file(store: Path) -> None:
    name = "00000000000000100000"
    (store / "commitlog" / name).write_bytes(bytes(65_536))
    assert located(check(store, {"mappedFileSizeCommitLog": "65536"})[0]) == [
        ("DIR-STRAY-FILE", "commitlog", name, 100_000)
    ]


@pytest.mark.parametrize("state", [b"", b"\xff\xfe", b"[]", b"{", b"[" * 100_000])
def test_a_broken_state_file_of_a_journal_raises_no_exception(store: Path, state: bytes) -> None:
    journal = store / ".rmqstore" / "one"
    journal.mkdir(parents=True)
    (journal / "state").write_bytes(state)
    findings, _ = check(store)
    assert set(findings.counts) == (set() if not state else {"DIR-OPEN-JOURNAL"})
