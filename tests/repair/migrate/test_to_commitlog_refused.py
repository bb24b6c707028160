"""migrate-to-commitlog: which entries are migrated, and refusals, after which nothing is written."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rmqstore.checks.examine import examine
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from rmqstore.formats.rocksdbstore import POSITION, SCAN_OFFSET, TransRow, build_trans_row
from rmqstore.repair.migrate_to_commitlog import MigrationChoice, plan_migration_to_commitlog
from tests.command import run, run_json
from tests.repair.migrating import migrate, refused, verified
from tests.repair.migration_stores import plain_records
from tests.rocksdb_rows import need_rocksdict, opened_rows
from tests.stores import copy_store, unpack
from tests.untouched import tree

# --- which entries count --------------------------------------------------------------------------------------------


def test_size_of_the_group_must_be_known_where_entries_are_above_the_committed_index(tmp_path: Path) -> None:
    text = refused(unpack("5.4.0-dledger-killed"), tmp_path / "plain")
    assert "the size of the group is not known" in text
    assert "--include-uncommitted" in text


def test_larger_group_needs_the_other_nodes_or_confirmation(tmp_path: Path) -> None:
    source = unpack("5.4.0-dledger3-n2")
    text = refused(source, tmp_path / "plain", "--peers", "3")
    assert "entries 70 to 300 are above the committedIndex on disk (69)" in text
    assert "--replica" in text


def test_majority_decides_what_of_a_follower_counts(tmp_path: Path) -> None:
    source = unpack("5.4.0-dledger3-n0")
    others = ("--replica", str(unpack("5.4.0-dledger3-n1")), "--replica", str(unpack("5.4.0-dledger3-n2")))
    document = migrate(source, tmp_path / "plain", "--peers", "n0-a:1;n1-b:1;n2-c:1", *others)
    assert (document["last_index"], document["entries"], document["entries_left_out"]) == (401, 402, 0)


def test_entries_on_one_node_only_are_left_out_when_all_nodes_are_given(tmp_path: Path) -> None:
    source = copy_store("5.4.0-dledger3-n0", tmp_path)
    (source / "dledger-n0" / "checkpoint").write_text("committedIndex=69\nendIndex=70\n")
    stale = copy_store("5.4.0-dledger3-n2", tmp_path, rename="other")
    replicas = ("--replica", str(unpack("5.4.0-dledger3-n2")), "--replica", str(stale))
    document = migrate(source, tmp_path / "plain", "--peers", "3", *replicas)
    assert (document["last_index"], document["entries_left_out"]) == (300, 101)
    assert document["decided_by"] == "2 of 3 nodes"
    assert len(list(plain_records(tmp_path / "plain"))) == 301
    assert verified(tmp_path / "plain")["clean"] is True


def test_follower_that_lacks_committed_entries_is_refused_in_favour_of_the_leader(tmp_path: Path) -> None:
    leader = unpack("5.4.0-dledger3-n0")
    text = refused(unpack("5.4.0-dledger3-n2"), tmp_path / "plain", "--peers", "3", "--replica", str(leader))
    assert "ends at index 401, this store at 300" in text
    assert f"migrate {leader} instead" in text


@pytest.mark.parametrize(("option", "last"), [("--only-committed", 69), ("--include-uncommitted", 300)])
def test_caller_can_decide(option: str, last: int, tmp_path: Path) -> None:
    document = migrate(unpack("5.4.0-dledger3-n2"), tmp_path / "plain", option)
    assert (document["last_index"], document["decided_by"]) == (last, option)
    assert len(list(plain_records(tmp_path / "plain"))) == last + 1
    assert verified(tmp_path / "plain")["clean"] is True


def test_only_committed_without_a_committed_index_is_refused(tmp_path: Path) -> None:
    source = copy_store("5.4.0-dledger3-n2", tmp_path)
    (source / "dledger-n2" / "checkpoint").unlink()
    document = migrate(source, tmp_path / "plain", "--only-committed", exit_code=5)
    assert document["ready"] is False


# --- refusals -------------------------------------------------------------------------------------------------------


def test_output_that_exists_or_lies_in_the_store_is_refused(tmp_path: Path) -> None:
    source = copy_store("4.9.7-dledger", tmp_path)
    output = tmp_path / "plain"
    output.mkdir()
    words = ("migrate-to-commitlog", str(source), "--output")
    assert run(*words, str(output)).exit_code == 5
    assert run(*words, str(source / "plain")).exit_code == 2
    assert list(output.iterdir()) == []


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    document = migrate(unpack("5.4.0-dledger-mixed"), tmp_path / "plain", "--dry-run")
    assert (document["ready"], document["written"], document["entries"]) == (True, False, 203)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "reason"), [("5.4.0-clean", "already a plain store"), ("5.4.0-rocksdb", "RocksDB")])
def test_store_without_dledger_is_refused(name: str, reason: str, tmp_path: Path) -> None:
    assert reason in refused(unpack(name), tmp_path / "plain")


def _damage(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff\xff\xff\xff")


def test_unsound_store_is_sent_to_recover(tmp_path: Path) -> None:
    source = copy_store("4.9.7-dledger", tmp_path)
    _damage(min((source / "dledger-n0" / "data").iterdir()), 48 + 88)
    text = refused(source, tmp_path / "plain")
    assert "the store is not sound: 1 problem (1 " in text
    assert "rmqstore recover" in text


@pytest.mark.parametrize("which", ["first-dledger", "middle-dledger", "last-dledger", "last-legacy", "middle-legacy"])
def test_missing_files_are_refused(which: str, tmp_path: Path) -> None:
    source = copy_store("5.4.0-dledger-mixed", tmp_path)
    data = sorted((source / "dledger-n0" / "data").iterdir())
    legacy = sorted((source / "commitlog").iterdir())
    {
        "first-dledger": data[0],
        "middle-dledger": data[1],
        "last-dledger": data[2],
        "last-legacy": legacy[-1],
        "middle-legacy": legacy[3],
    }[which].unlink()
    assert refused(source, tmp_path / "plain")


def test_several_dledger_directories_need_a_choice(tmp_path: Path) -> None:
    source = copy_store("4.9.7-dledger", tmp_path)
    shutil.copytree(source / "dledger-n0", source / "dledger-n1")
    assert "choose one with --self-id" in refused(source, tmp_path / "plain")
    assert migrate(source, tmp_path / "plain", "--self-id", "n0")["entries"] == 571


def test_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    source = copy_store("4.9.7-dledger", tmp_path)
    text = refused(source, tmp_path / "plain", "--self-id", "n7")
    assert "dLegerSelfId=n7, but there is only dledger-n0" in text


def test_live_store_is_refused_by_both_directions(tmp_path: Path) -> None:
    source = copy_store("4.9.7-dledger", tmp_path)
    before = tree(source)
    held = "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX, 1); print(1, flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", f"{held}; input()", str(source / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == b"1\n"
        for words in (
            ("migrate-to-commitlog", str(source), "--output", str(tmp_path / "plain")),
            ("migrate-to-dledger", str(source), "--self-id", "n0", "--apply"),
        ):
            error = run_json(*words, exit_code=5)["error"]
            assert isinstance(error, dict)
            assert error["code"] == "store-live"
            assert f"process {broker.pid}" in error["message"]
        broker.communicate(b"\n")
    assert tree(source) == before
    assert not (tmp_path / "plain").exists()


def test_source_that_changes_while_it_is_read_creates_no_store(tmp_path: Path) -> None:
    from rmqstore.checks.examine import examine
    from rmqstore.checks.options import VerifyOptions
    from rmqstore.errors import PlanStale
    from rmqstore.files.store import open_store
    from rmqstore.repair.migrate_to_commitlog import MigrationChoice, migrate_to_commitlog, plan_migration_to_commitlog

    source, output, ids = copy_store("4.9.7-dledger", tmp_path), tmp_path / "plain", tmp_path / "ids.csv"
    store = open_store(source)
    verified = examine(store, VerifyOptions(jobs=1))
    plan = plan_migration_to_commitlog(store, verified, MigrationChoice(), output)
    _damage(max((source / "dledger-n0" / "data").iterdir()), 48 + 88)
    with pytest.raises(PlanStale):
        migrate_to_commitlog(store, verified, plan, output, ids)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["4.9.7-dledger"]


@pytest.mark.parametrize(
    ("family", "row", "words"),
    [
        ("timer", (SCAN_OFFSET, POSITION.build(position=5)), "how far the broker has read the timer queue"),
        ("trans", build_trans_row(TransRow(88, "Order_11", "id", 300, 0)), "the addresses of 1 half message"),
    ],
)
def test_a_store_whose_services_go_on_from_rocksdb_is_refused_without_broker_conf(
    family: str, row: tuple[bytes, bytes], words: str, tmp_path: Path
) -> None:
    need_rocksdict()
    source = copy_store("5.4.0-dledger", tmp_path)
    with opened_rows(source / "rocksdbstore") as database:
        database.get_column_family(family)[row[0]] = row[1]
    text = refused(source, tmp_path / "plain")
    assert text.count("rocksdbstore/ keeps ") == 1
    assert f"rocksdbstore/ keeps {words}" in text


def test_an_empty_rocksdbstore_is_no_obstacle_whatever_broker_conf_says(tmp_path: Path) -> None:
    store = open_store(unpack("5.4.0-dledger"), BrokerConfig({"timerRocksDBEnable": "true"}))
    choice = MigrationChoice(nodes=1)
    assert plan_migration_to_commitlog(store, examine(store), choice, tmp_path / "plain").ready
