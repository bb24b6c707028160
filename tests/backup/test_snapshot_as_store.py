"""A snapshot is a store: reading commands read its log, and `recover --replica` takes bytes from it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from rmqstore.backup.snapshot_files import SnapshotFiles
from rmqstore.checks.verify import VerifyOptions, verify
from rmqstore.files.broker_config import BrokerConfig
from tests.backup.growing import GrowingStore
from tests.backup.test_backup import backed_up
from tests.command import run, run_json
from tests.damage import garble
from tests.stores import unpack
from tests.untouched import assert_untouched


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("snapshots") / "repo"
    for name in ("5.4.0-killed", "5.4.0-dledger", "5.4.0-dledger-mixed"):
        assert run("backup", str(unpack(name)), str(path), "--name", name).exit_code == 0
    return path


@pytest.mark.parametrize("name", ["5.4.0-killed", "5.4.0-dledger"])
def test_the_log_of_a_snapshot_has_the_messages_of_the_store(name: str, repository: Path) -> None:
    words = ("--what", "messages", "--format", "ndjson")
    log = "dledger-n0/data" if "dledger" in name else "commitlog"
    of_store = run("dump", str(unpack(name) / log), *words)
    of_snapshot = run("dump", f"{repository}::{name}", *words)
    assert (of_snapshot.exit_code, of_snapshot.stdout) == (of_store.exit_code, of_store.stdout)


@pytest.mark.parametrize(
    "words",
    [("verify",), ("info",), ("dump", "--format", "ndjson"), ("du",), ("find", "ord11_42"), ("get", "0")],
    ids=" ".join,
)
def test_reading_commands_find_nothing_wrong(words: tuple[str, ...], repository: Path) -> None:
    command, *more = words
    with assert_untouched(repository):
        result = run(command, f"{repository}::5.4.0-killed", *more)
    assert result.exit_code == 0, result.output


def test_verify_names_the_damage_of_a_snapshot(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "store")
    first = backed_up(store.root, tmp_path / "repo").manifest
    garble(store.log_files[1], 3000, 60)
    backed_up(store.root, tmp_path / "repo")
    assert run_json("verify", f"{tmp_path / 'repo'}::a@{first.snapshot}", exit_code=0)["counts"] == {}
    found = run_json("verify", f"{tmp_path / 'repo'}::a", exit_code=1)["counts"]
    assert found == run_json("verify", str(store.root / "commitlog"), exit_code=1)["counts"]


def test_a_damaged_store_is_healed_from_its_backup(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "store")
    first = backed_up(store.root, tmp_path / "repo").manifest
    good = [path.read_bytes() for path in store.log_files]
    garble(store.log_files[0], 2000, 900)
    garble(store.log_files[1], 4, 3)
    result = run("backup", str(store.root), str(tmp_path / "repo"), "--name", "a")
    command = f"rmqstore recover {store.root} --replica {tmp_path / 'repo'}::a@{first.snapshot}"
    assert (result.exit_code, command in result.stdout) == (1, True), result.output
    healed = run_json(*command.split()[1:], "--apply", exit_code=0)
    assert healed["loss"]["messages"] == 0  # type: ignore[index]
    assert [path.read_bytes() for path in store.log_files] == good


def test_both_logs_of_a_mixed_store_heal_it(tmp_path: Path, repository: Path) -> None:
    from tests.stores import copy_store

    store = copy_store("5.4.0-dledger-mixed", tmp_path)
    victims = [min((store / log).iterdir()) for log in ("commitlog", "dledger-n0/data")]
    good = [path.read_bytes() for path in victims]
    for path in victims:
        garble(path, 700, 200)
    run_json("recover", str(store), "--replica", f"{repository}::5.4.0-dledger-mixed", "--apply", exit_code=0)
    assert [path.read_bytes() for path in victims] == good


def test_worker_processes_read_a_snapshot(repository: Path) -> None:
    """The files of a snapshot can be sent to other processes."""
    from rmqstore.backup.address import Address, folder_of
    from rmqstore.backup.snapshot_files import open_logs

    folder = folder_of(Address.parse(f"{repository}::5.4.0-killed"))
    (store,) = open_logs(folder, folder.find(), BrokerConfig(), Path("snapshot"))
    copy = pickle.loads(pickle.dumps(store.files))
    assert isinstance(copy, SnapshotFiles)
    assert [entry.path for entry in copy.list(store.path)] == [file.path for file in store.logs[0][0].files]
    report = verify(store, VerifyOptions(jobs=2, split_size=1 << 16))
    assert report.exit_code == 0
    assert report.commitlog is not None
    assert report.commitlog["messages"] == json.loads(json.dumps(folder.find().messages))
