"""restore: a complete store at a snapshot, a time or an offset."""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path

import pytest

from rmqstore.append.disk import create_file
from rmqstore.backup.backup import back_up
from rmqstore.backup.repository import Repository
from rmqstore.backup.restore import RestoreOptions, restore
from rmqstore.backup.storage import LocalStorage
from rmqstore.checks.examine import verify
from rmqstore.errors import CouldNotCheck, NoSpace
from rmqstore.files.config import committed_offsets, config_object
from rmqstore.files.files import LOCAL
from rmqstore.files.store import open_store
from tests.append.rewriting import queue_bytes
from tests.append.writing import FIRST_TIME
from tests.backup.dying_storage import Killed, killed_at_call
from tests.backup.growing import GrowingStore, messages_in
from tests.backup.test_backup import backed_up, folder_in
from tests.command import run, run_json
from tests.damage import flip
from tests.stores import BROKER_STORES, unpack
from tests.untouched import snapshot

QUICK = ("5.4.0-dledger-mixed", "5.4.0-rocksdb", "5.4.0-formats", "4.9.7-killed")


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("name", [*QUICK, *BROKER_STORES])
def test_a_restored_store_is_the_store(name: str, tmp_path: Path) -> None:
    store, copy = unpack(name), tmp_path / "copy"
    assert run("backup", str(store), str(tmp_path / "repo"), "--name", "a").exit_code == 0
    of_store = {"CFG-UNSTORED-TOPICS": 1} if "config-v2" in name else {}
    row = run_json("restore", f"{tmp_path / 'repo'}::a", str(copy), exit_code=1 if of_store else 0)
    assert (row["written"], row["counts"], row["unchecked"]) == (True, of_store, [])
    compared = run_json("compare", str(store), str(copy), exit_code=0)
    assert compared["equal"] is True
    assert not (copy / "brokerIdentity").exists()
    assert not (copy / ".rmqstore").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "repo"]


@pytest.mark.parametrize("name", ["5.4.0-clean", "4.9.7-clean", pytest.param("5.5.1-clean", marks=pytest.mark.slow)])
def test_the_queues_of_a_restored_store_have_the_same_bytes(name: str, tmp_path: Path) -> None:
    store, copy = unpack(name), tmp_path / "copy"
    assert run("backup", str(store), str(tmp_path / "repo"), "--name", "a").exit_code == 0
    assert run("restore", f"{tmp_path / 'repo'}::a", str(copy)).exit_code == 0
    now, before = queue_bytes(copy), queue_bytes(store)
    kept = {key: data for key, data in before.items() if any(data)}
    assert {key: now.get(key) for key in kept} == kept


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[GrowingStore, Path]:
    """A store, and a repository with five snapshots of it; the first files have expired."""
    home = tmp_path_factory.mktemp("history")
    store = GrowingStore(home / "store", 30)
    for _ in range(5):
        backed_up(store.root, home / "repo")
        store.grow(40)
    store.expire(2)
    backed_up(store.root, home / "repo")
    return store, home / "repo"


@pytest.mark.quick_rows(4)
@pytest.mark.parametrize("seed", range(50))
def test_a_point_in_time(seed: int, history: tuple[GrowingStore, Path], tmp_path: Path) -> None:
    """Exactly the messages that were stored until then."""
    store, repo = history
    until = FIRST_TIME + random.Random(seed).randrange(2_000, store.count * 1000)
    row = run_json("restore", f"{repo}::a", str(tmp_path / "copy"), "--until", str(until), exit_code=0)
    begin = row["log"]["from"]  # type: ignore[index]
    wanted = {
        label: [number for number, at, _ in rows if store.written.times[at] < until and at >= begin]
        for label, rows in store.written.queues.items()
    }
    assert messages_in(tmp_path / "copy") == {label: numbers for label, numbers in wanted.items() if numbers}
    for one in (
        committed_offsets(config_object(LOCAL, tmp_path / "copy" / "config" / "consumerOffset.json") or {}) or ()
    ):
        numbers = wanted[f"{one.topic}/{one.queue_id}"]
        assert not numbers or one.offset <= numbers[-1] + 1


@pytest.mark.quick_rows(4)
@pytest.mark.parametrize("seed", range(8))
def test_an_offset(seed: int, history: tuple[GrowingStore, Path], tmp_path: Path) -> None:
    store, repo = history
    at = random.Random(seed).randrange(40_000, store.end)
    row = run_json("restore", f"{repo}::a", str(tmp_path / "copy"), "--at", str(at), exit_code=0)
    assert isinstance(row["log"], dict)
    assert row["log"]["to"] <= at
    assert messages_in(tmp_path / "copy") == store.offsets_before(at, row["log"]["from"])


def test_a_snapshot_by_its_time(history: tuple[GrowingStore, Path], tmp_path: Path) -> None:
    _, repo = history
    rows = run_json("snapshots", str(repo), exit_code=0)["stores"]
    assert isinstance(rows, list)
    third = rows[0]["snapshots"][2]
    words = ("restore", f"{repo}::a@{third['made'] + 1}", str(tmp_path / "copy"), "--dry-run")
    assert run_json(*words, exit_code=0)["snapshot"] == third["snapshot"]
    assert not (tmp_path / "copy").exists()


def test_damage_is_restored_as_it_was(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "store")
    good = backed_up(store.root, tmp_path / "repo").manifest
    flip(store.log_files[0], store.a_message(700) + 5)
    backed_up(store.root, tmp_path / "repo")
    row = run_json("restore", f"{tmp_path / 'repo'}::a", str(tmp_path / "bad"), exit_code=1)
    assert row["counts"] == {"CL-MAGIC": 1}
    assert (tmp_path / "bad" / "commitlog" / "00000000000000000000").read_bytes() == store.log_files[0].read_bytes()
    row = run_json("restore", f"{tmp_path / 'repo'}::a@{good.snapshot}", str(tmp_path / "good"), exit_code=0)
    assert messages_in(tmp_path / "good") == store.offsets_before(store.end)


def test_an_interrupted_restore_leaves_nothing_that_counts(
    history: tuple[GrowingStore, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped at every file that is written; the next run begins again and completes."""
    _, repo = history
    folder = Repository.open(LocalStorage(repo)).of("a")
    target = tmp_path / "copy"
    for at in range(1000):
        left = at

        def create(*given: object) -> int:
            nonlocal left
            left -= 1
            if left < 0:
                raise NoSpace("the disk is full")
            return create_file(*given)  # type: ignore[arg-type]

        monkeypatch.setattr("rmqstore.append.disk.create_file", create)
        try:
            restore(folder, folder.find(), target, RestoreOptions(jobs=1))
            break
        except NoSpace:
            assert list(tmp_path.iterdir()) == []
    assert at > 20
    assert verify(open_store(target)).exit_code == 0


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("part", range(40))
def test_killed_at_every_system_call(part: int, history: tuple[GrowingStore, Path], tmp_path: Path) -> None:
    store, repo = history
    folder = Repository.open(LocalStorage(repo)).of("a")
    newest, target = folder.find(), tmp_path / "copy"
    for at in range(part, 10_000, 40):
        with killed_at_call(at) as calls, contextlib.suppress(Killed):
            restore(folder, newest, target, RestoreOptions(jobs=1))
        if len(calls) <= at:
            break
        assert not target.exists() or verify(open_store(target)).exit_code == 0
        shutil.rmtree(target, ignore_errors=True)
        restore(folder, newest, target, RestoreOptions(jobs=1))
        assert [path.name for path in tmp_path.iterdir()] == ["copy"]
        assert messages_in(target) == store.offsets_before(newest.end, newest.begin)
        shutil.rmtree(target)
    assert at > 100


def test_what_a_killed_restore_left_is_removed(history: tuple[GrowingStore, Path], tmp_path: Path) -> None:
    _, repo = history
    left = tmp_path / ".copy.building"
    (left / "commitlog").mkdir(parents=True)
    (left / "commitlog" / "00000000000000099999").write_text("half")
    (left / "topics.json").symlink_to(tmp_path)
    assert run("restore", f"{repo}::a", str(tmp_path / "copy")).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_an_object_that_changed_is_not_restored(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "store")
    back_up(open_store(store.root), folder_in(LocalStorage(tmp_path / "repo")))
    chunk = next((tmp_path / "repo" / "a" / "config").iterdir())
    chunk.write_bytes(b"x" * chunk.stat().st_size)
    folder = folder_in(LocalStorage(tmp_path / "repo"))
    with pytest.raises(CouldNotCheck):
        restore(folder, folder.find(), tmp_path / "copy", RestoreOptions())
    assert not (tmp_path / "copy").exists()
    shutil.rmtree(tmp_path / "repo")


def test_a_repository_with_one_store_needs_no_name(store: Path, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    assert run("backup", str(store), str(repo), "--name", "a").exit_code == 0
    assert run("verify", str(repo)).exit_code == 0
    before = snapshot(store)
    flip(store / "commitlog" / f"{65536:020}", 3000, 0)
    assert run("recover", str(store), "--replica", str(repo), "--apply").exit_code == 0
    after = snapshot(store, without=(".rmqstore",))
    assert {name: entry.content for name, entry in after.items()} == {name: e.content for name, e in before.items()}
    assert run("backup", str(store), str(repo), "--name", "b").exit_code == 0
    refused = run("verify", str(repo))
    assert (refused.exit_code, "several stores: a, b" in refused.stderr) == (2, True)


@pytest.mark.parametrize("name", ["5.4.0-dledger-mixed", pytest.param("5.5.1-dledger-mixed", marks=pytest.mark.slow)])
def test_a_mixed_store_up_to_a_time_before_dledger_has_no_entries_and_no_commits(name: str, tmp_path: Path) -> None:
    assert run("backup", str(unpack(name)), str(tmp_path / "repo"), "--name", "a").exit_code == 0
    row = run_json("restore", f"{tmp_path / 'repo'}::a", str(tmp_path / "copy"), "--at", "400000", exit_code=0)
    assert (row["counts"], row["unchecked"]) == ({}, [])
    assert not list(tmp_path.glob("copy/dledger-n0/*/0*"))
    assert not list(tmp_path.glob("copy/dledger-n0/checkpoint*"))
    assert (tmp_path / "copy" / "dledger-n0" / "currterm").exists()
