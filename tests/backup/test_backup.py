"""backup: what it copies, what it finds, and what stays of a backup that fails."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqstore.backup import repository as repositories
from rmqstore.backup.backup import Backup, BackupOptions, back_up
from rmqstore.backup.keeping import KeepRule
from rmqstore.backup.manifest import Manifest
from rmqstore.backup.repository import Repository, StoreFolder
from rmqstore.backup.snapshot_files import StoredFile
from rmqstore.backup.storage import LocalStorage, Storage, StoredObject
from rmqstore.cli import backup as backup_command
from rmqstore.errors import NoSpace, NotReadable, Refused, RmqStoreError
from rmqstore.files.files import LocalFiles
from rmqstore.files.store import open_store
from tests.backup.dying_storage import DyingStorage, Killed, killed_at_call
from tests.backup.growing import GrowingStore
from tests.clock import replace_clock
from tests.command import run, run_json
from tests.damage import flip, overwrite
from tests.stores import STORES, copy_store, unpack
from tests.untouched import assert_untouched

DAY = 86_400_000


def folder_in(storage: Storage, name: str = "a") -> StoreFolder:
    return Repository.open_or_create(storage).of(name)


def backed_up(store: Path, repository: Path, **options: object) -> Backup:
    return back_up(open_store(store), folder_in(LocalStorage(repository)), BackupOptions(**options))  # type: ignore[arg-type]


def faults(repository: Path) -> list[tuple[str, str]]:
    """Return what `snapshots --check` finds in all snapshots."""
    folder = folder_in(LocalStorage(repository))
    return list(folder.check(folder.manifest(name) for name in folder.snapshots()))


def orphans(repository: Path) -> set[str]:
    """Return the objects that no snapshot needs."""
    folder = folder_in(LocalStorage(repository))
    needed = {key for name in folder.snapshots() for key, _, _ in folder.manifest(name).objects()}
    there = {
        entry.key.removeprefix("a/") for part in ("log", "config") for entry in folder.storage.objects(f"a/{part}")
    }
    return there - needed


def log_objects(repository: Path) -> list[str]:
    return sorted(path.name for path in (repository / "a" / "log").rglob("*") if path.is_file())


@pytest.fixture
def grown(tmp_path: Path) -> GrowingStore:
    return GrowingStore(tmp_path / "store")


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("name", ["5.4.0-dledger-mixed", "5.4.0-rocksdb", "4.9.7-killed", *STORES])
def test_a_snapshot_has_the_whole_log_of_a_real_store(name: str, tmp_path: Path) -> None:
    store = unpack(name)
    verified = run("verify", str(store), "--json")
    logs = [log for log in (json.loads(verified.stdout)[key] for key in ("commitlog", "dledger")) if log]
    with assert_untouched(store):
        made = run_json("backup", str(store), str(tmp_path / "repo"), "--name", "a", exit_code=0)
        again = run_json("backup", str(store), str(tmp_path / "repo"), "--name", "a", exit_code=0)
    assert made["messages"] == sum(log.get("messages") or log.get("entries") or 0 for log in logs)
    assert isinstance(made["log"], dict)
    assert made["log"]["to"] == max(log["wrote"] for log in logs if log["files"])
    assert (again["new_bytes"], again["messages"], again["branches"]) == (0, made["messages"], [])
    assert faults(tmp_path / "repo") == []


def test_a_second_snapshot_adds_only_what_is_new(grown: GrowingStore, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    first = backed_up(grown.root, repo).manifest
    before = log_objects(repo)
    end = grown.end
    grown.grow(3)
    second = backed_up(grown.root, repo).manifest
    assert (first.end, second.end) == (end, grown.end)
    assert second.messages == grown.count
    assert second.new_bytes < 8192 + (grown.end - end)
    added = set(log_objects(repo)) - set(before)
    assert all(".tail-" in name for name in added)
    grown.grow(100)
    third = backed_up(grown.root, repo).manifest
    assert (third.end, third.messages, third.branches) == (grown.end, grown.count, ())
    assert faults(repo) == []


def test_expired_files_stay_until_keep_drops_them(grown: GrowingStore, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    first = backed_up(grown.root, repo).manifest
    grown.expire(1)
    grown.grow(5)
    second = backed_up(grown.root, repo).manifest
    log = second.logs[0]
    assert (log.begin, log.files[0].start, second.branches) == (1 << 14, 0, ())
    assert second.messages < grown.count
    kept = backed_up(grown.root, repo, keep=KeepRule(age=DAY))  # the messages are of 2023, the snapshots of now
    assert kept.manifest.logs[0].files[0].start == 1 << 14
    folder = folder_in(LocalStorage(repo))
    assert folder.snapshots()[0] == first.snapshot
    gone = folder.forget(KeepRule(age=DAY), repositories.now() + 2 * DAY)
    assert gone.snapshots == (first.snapshot, second.snapshot)
    assert "00000000000000000000" not in log_objects(repo)
    assert faults(repo) == []


def test_keep_bytes_forgets_the_oldest(grown: GrowingStore, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    names = []
    for _ in range(3):
        names.append(backed_up(grown.root, repo).manifest.snapshot)
        grown.grow(20)
        grown.expire(1)
    made = backed_up(grown.root, repo, keep=KeepRule(size=1))
    assert list(made.forgotten.snapshots) == names
    assert folder_in(LocalStorage(repo)).snapshots() == [made.manifest.snapshot]
    assert faults(repo) == []


def test_keep_bytes_lists_the_objects_once_per_process(grown: GrowingStore, tmp_path: Path) -> None:
    listed: list[str] = []

    class Counting(LocalStorage):
        def objects(self, prefix: str) -> Iterator[StoredObject]:
            listed.append(prefix)
            return super().objects(prefix)

    folder = folder_in(Counting(tmp_path / "repo"))
    kept = []
    for size in (1 << 40, 1 << 40, 1):
        listed.clear()
        made = back_up(open_store(grown.root), folder, BackupOptions(keep=KeepRule(size=size)))
        kept.append((any(prefix.endswith("/log") for prefix in listed), len(made.forgotten.snapshots)))
        grown.grow(20)
    assert kept == [(True, 0), (False, 0), (True, 2)]


def test_many_snapshots_are_forgotten_together(
    grown: GrowingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot per hour is kept for 60 hours; only a run that forgets some reads all manifests."""
    read: list[str] = []
    manifest = StoreFolder.manifest

    def noted(self: StoreFolder, snapshot: str) -> Manifest:
        read.append(snapshot)
        return manifest(self, snapshot)

    monkeypatch.setattr(StoreFolder, "manifest", noted)
    repo, begin = tmp_path / "repo", repositories.now()
    forgotten: list[str] = []
    for hour in range(80):
        monkeypatch.setattr("rmqstore.backup.backup.now", lambda now=begin + hour * 3_600_000: now)
        read.clear()
        made = backed_up(grown.root, repo, keep=KeepRule(age=60 * 3_600_000))
        forgotten += made.forgotten.snapshots
        assert len(read) <= 1 or len(made.forgotten.snapshots) > 2
        assert len(folder_in(LocalStorage(repo)).snapshots()) <= 64
    assert len(forgotten) > 14
    assert faults(repo) == []


# --- a log that does not continue the repository ---------------------------------------------------------------------


def test_damage_in_an_old_file_is_named_and_replaces_nothing(grown: GrowingStore, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    good = (grown.log_files[0]).read_bytes()
    first = backed_up(grown.root, repo).manifest
    at = grown.a_message(700)
    flip(grown.log_files[0], at + 5)
    row = run_json("backup", str(grown.root), str(repo), "--name", "a", exit_code=1)
    assert row["counts"] == {"CL-MAGIC": 1}
    assert isinstance(row["branches"], list)
    (branch,) = row["branches"]
    assert (branch["offset"], branch["since"], branch["damage"]) == (at + 5, first.snapshot, True)
    folder = folder_in(LocalStorage(repo))
    assert (repo / "a" / first.logs[0].files[0].pieces[0].object).read_bytes() == good
    # the good bytes stay as long as the damaged file is in a snapshot, even if the first snapshot is forgotten
    folder.forget(KeepRule(size=1), repositories.now())
    assert first.snapshot not in folder.snapshots()
    assert (repo / "a" / first.logs[0].files[0].pieces[0].object).read_bytes() == good
    assert faults(repo) == []
    again = run("backup", str(grown.root), str(repo), "--name", "a")
    assert f"rmqstore recover {grown.root} --replica {repo}::a\n" in again.output
    run_json("recover", str(grown.root), "--replica", f"{repo}::a", "--apply", exit_code=0)
    assert grown.log_files[0].read_bytes() == good
    assert backed_up(grown.root, repo).exit_code == 0


@pytest.mark.parametrize(
    ("name", "file", "code"),
    [
        ("5.4.0-clean", f"commitlog/{131072:020}", "CL-MISSING-FILE"),
        ("5.4.0-dledger", f"dledger-n0/data/{131072:020}", "DL-MISSING-FILE"),
        ("5.4.0-dledger-mixed", f"commitlog/{131072:020}", "CL-MISSING-FILE"),
    ],
)
def test_a_missing_file_is_damage_that_the_repository_can_heal(name: str, file: str, code: str, tmp_path: Path) -> None:
    store, repo = copy_store(name, tmp_path), tmp_path / "repo"
    good = (store / file).read_bytes()
    (store / file).unlink()
    unheard_of = run("backup", str(store), str(tmp_path / "other"))
    assert (unheard_of.exit_code, f"  {code} x 1\n    -> rmqstore verify" in unheard_of.stdout) == (1, True)
    (store / file).write_bytes(good)
    assert backed_up(store, repo).exit_code == 0
    (store / file).unlink()
    made = run("backup", str(store), str(repo), "--name", "a")
    assert f"  {code} x 1\n    -> rmqstore recover {store} --replica {repo}::a\n" in made.stdout
    run_json("recover", str(store), "--replica", f"{repo}::a", "--apply", exit_code=0)
    assert (store / file).read_bytes() == good
    assert backed_up(store, repo).exit_code == 0


def test_a_snapshot_has_files_with_wrong_names_at_their_right_place(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    first, second = (store / "commitlog" / f"{start:020}" for start in (131072, 196608))
    aside = store / "commitlog" / "aside"
    first.rename(aside)
    second.rename(first)
    aside.rename(second)
    row = run_json("backup", str(store), str(tmp_path / "repo"), "--name", "a", exit_code=1)
    assert (row["counts"], row["messages"]) == ({"CL-MISPLACED-FILE": 2}, 553)
    restored = run_json("restore", f"{tmp_path}/repo::a", str(tmp_path / "new"), exit_code=0)
    assert restored["counts"] == {}


def test_the_last_file_before_dledger_began_is_missed(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger-mixed", tmp_path)
    (store / "commitlog" / f"{458752:020}").unlink()
    row = run_json("backup", str(store), str(tmp_path / "repo"), exit_code=1)
    assert row["counts"] == {"DL-MISSING-FILE": 1}


def test_an_empty_first_file_is_damage(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    os.truncate(store / "commitlog" / f"{0:020}", 0)
    row = run_json("backup", str(store), str(tmp_path / "repo"), exit_code=1)
    assert row["counts"] == {"CL-MISSING-FILE": 1}


def test_a_repair_in_the_last_file_is_found(grown: GrowingStore, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    good = backed_up(grown.root, repo).manifest
    start = good.logs[0].files[-1].start
    file = grown.root / "commitlog" / f"{start:020d}"
    flip(file, grown.a_message(start + 100) - start + 5)
    assert backed_up(grown.root, repo, full=True).manifest.counts == {"CL-MAGIC": 1}
    assert backed_up(grown.root, repo).manifest.counts == {"CL-MAGIC": 1}
    run_json("recover", str(grown.root), "--replica", f"{repo}::a", "--apply", exit_code=0)
    made = backed_up(grown.root, repo)
    assert (made.exit_code, made.manifest.counts, made.manifest.messages) == (0, {}, good.messages)
    assert faults(repo) == []


def test_damaged_properties_of_a_message_are_no_new_branch(grown: GrowingStore, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    first = backed_up(grown.root, repo).manifest
    file, at = grown.log_files[0], grown.a_message(700)
    end = at + int.from_bytes(file.read_bytes()[at : at + 4], "big")
    good = [file.read_bytes()]
    for byte in (end - 3, end - 4):  # two snapshots that contradict the one before
        overwrite(file, byte, b"\xff")
        made = backed_up(grown.root, repo).manifest
        assert (made.counts, [(b.offset, b.damage) for b in made.branches]) == ({"CL-PROPERTIES": 1}, [(byte, True)])
        good.append(file.read_bytes())
    assert made.branches[0].since != first.snapshot
    folder = folder_in(LocalStorage(repo))
    for earlier, content in zip(made.earlier(), reversed(good[:-1]), strict=True):
        assert StoredFile.of_log(folder, earlier.logs[0].files[0]).read(1 << 20, 0) == content
    run_json("recover", str(grown.root), "--replica", f"{repo}::a", "--apply", exit_code=0)
    assert file.read_bytes() == good[0]
    assert backed_up(grown.root, repo).exit_code == 0


def test_a_flipped_bit_that_leaves_no_trace_is_found_with_full(
    grown: GrowingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalFiles, "identity", lambda self, path: None)  # a failing disk sets no ctime, unlike `flip`
    repo = tmp_path / "repo"
    backed_up(grown.root, repo)
    path = grown.log_files[0]
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    at = grown.a_message(700) + 5
    flip(path, at)
    os.utime(path, ns=times)
    assert backed_up(grown.root, repo).exit_code == 0
    full = backed_up(grown.root, repo, full=True)
    assert [(b.offset, b.damage) for b in full.manifest.branches] == [(at, True)]


def test_a_truncated_log_is_a_branch(grown: GrowingStore, tmp_path: Path) -> None:
    """The broker lost the end of its log, and wrote other messages there."""
    repo = tmp_path / "repo"
    shutil.copytree(grown.root, tmp_path / "before")
    end = grown.end
    grown.grow(20)
    first = backed_up(grown.root, repo).manifest
    shutil.rmtree(grown.root)
    (tmp_path / "before").rename(grown.root)
    other = GrowingStore.__new__(GrowingStore)
    other.__dict__ = {**grown.__dict__, "count": 1000}
    other.chance.seed(5)
    other.grow(4)
    made = backed_up(grown.root, repo)
    assert made.exit_code == 1
    assert [(b.log, b.damage, b.since) for b in made.manifest.branches] == [("commitlog", False, first.snapshot)]
    assert end <= made.manifest.branches[0].offset < end + 200
    assert made.manifest.branches[0].time is not None
    assert faults(repo) == []
    assert backed_up(grown.root, repo).exit_code == 0  # the branch goes on


def test_another_store_under_the_same_name_is_a_branch(grown: GrowingStore, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    first = backed_up(grown.root, repo).manifest
    other = GrowingStore(tmp_path / "other", 1)
    other.chance.seed(9)
    other.grow(70)
    made = backed_up(other.root, repo)
    assert made.exit_code == 1
    assert made.manifest.branches[0].time is None or made.manifest.branches[0].offset > 0
    assert faults(repo) == []
    objects = {key for key, _, _ in first.objects()}
    assert all((repo / "a" / key).exists() for key in objects)


def test_messages_that_expired_between_two_snapshots_are_named(grown: GrowingStore, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    first = backed_up(grown.root, repo).manifest
    grown.grow(150)
    grown.expire(4)
    begin = int(grown.log_files[0].name)
    row = run_json("backup", str(grown.root), str(repo), "--name", "a", exit_code=1)
    assert isinstance(row["branches"], list)
    (branch,) = row["branches"]
    assert (branch["offset"], branch["missing_to"], branch["since"]) == (first.end, begin, first.snapshot)
    assert branch["timestamp"] == first.last_time
    assert backed_up(grown.root, repo).exit_code == 0


# --- faults ----------------------------------------------------------------------------------------------------------


def test_killed_at_every_operation(grown: GrowingStore, tmp_path: Path) -> None:
    """Earlier snapshots stay whole, and the next run completes the snapshot."""
    seed = tmp_path / "seed"
    backed_up(grown.root, seed)
    grown.grow(60)
    grown.expire(1)
    for at in range(1000):
        repo = tmp_path / "repo"
        shutil.copytree(seed, repo)
        storage = DyingStorage(repo, at, Killed)
        options = BackupOptions(keep=KeepRule(age=DAY))
        try:
            back_up(open_store(grown.root), Repository(storage).of("a"), options)
            break
        except Killed:
            the_next_run_continues(repo, grown)
        shutil.rmtree(repo)
    assert at > 15


def the_next_run_continues(repo: Path, store: GrowingStore) -> None:
    """Make sure that what a killed backup left is whole, and that the next one completes it and leaves nothing else."""
    assert faults(repo) == []
    made = backed_up(store.root, repo).manifest
    assert (made.end, made.branches) == (store.end, ())
    assert faults(repo) == []
    assert not list(repo.rglob("*.part"))
    assert orphans(repo) == set()


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("part", range(8))
def test_killed_at_every_system_call(part: int, grown: GrowingStore, tmp_path: Path) -> None:
    seed, repo = tmp_path / "seed", tmp_path / "repo"
    backed_up(grown.root, seed)
    grown.grow(60)
    grown.expire(1)
    for at in range(part, 10_000, 8):
        shutil.copytree(seed, repo)
        with killed_at_call(at) as calls, contextlib.suppress(Killed):
            backed_up(grown.root, repo, keep=KeepRule(age=DAY))
        if len(calls) <= at:
            break
        the_next_run_continues(repo, grown)
        shutil.rmtree(repo)
    assert {"open", "pwrite", "fsync", "link", "unlink", "rename"} <= set(calls)
    assert at > 40


def test_a_full_disk_at_every_operation(grown: GrowingStore, tmp_path: Path) -> None:
    seed = tmp_path / "seed"
    backed_up(grown.root, seed)
    grown.grow(40)
    for at in range(0, 1000, 3):
        repo = tmp_path / "repo"
        shutil.copytree(seed, repo)
        storage = DyingStorage(repo, at, lambda: NoSpace("the disk is full"))
        try:
            back_up(open_store(grown.root), Repository(storage).of("a"))
            break
        except NoSpace:
            assert faults(repo) == []
            assert backed_up(grown.root, repo).manifest.end == grown.end
        shutil.rmtree(repo)
    assert at > 6


def test_an_interrupted_first_backup_reads_complete_files_once(
    grown: GrowingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqstore.backup.log_copy._SAVE_AFTER", 1)
    grown.grow(100)
    repo = tmp_path / "repo"
    folder_in(LocalStorage(repo))
    with pytest.raises(Killed):
        back_up(open_store(grown.root), Repository(DyingStorage(repo, 20, Killed)).of("a"))
    have = {name: (repo / "a" / "log" / "commitlog" / name).stat().st_ino for name in log_objects(repo)}
    assert have
    made = backed_up(grown.root, repo).manifest
    assert made.end == grown.end
    now = {name: (repo / "a" / "log" / "commitlog" / name).stat().st_ino for name in log_objects(repo)}
    assert have.items() <= now.items()
    assert faults(repo) == []


def test_a_sector_that_cannot_be_read(grown: GrowingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the disk still gives is in the snapshot; the rest is named."""
    from rmqstore.files import files

    victim, bad = grown.log_files[1], 8192
    real_into, real = files.LocalFile.read_into, files.LocalFile.read
    inode = victim.stat().st_ino

    def is_bad(file: files.LocalFile, size: int, at: int) -> bool:
        return os.fstat(file._descriptor).st_ino == inode and at <= bad < at + size

    def read_into(self: files.LocalFile, buffer: memoryview, at: int) -> int:
        if is_bad(self, len(buffer), at):
            raise OSError(5, "Input/output error")
        return real_into(self, buffer, at)

    def read(self: files.LocalFile, size: int, at: int) -> bytes:
        if is_bad(self, size, at):
            raise OSError(5, "Input/output error")
        return real(self, size, at)

    monkeypatch.setattr(files.LocalFile, "read_into", read_into)
    monkeypatch.setattr(files.LocalFile, "read", read)
    made = backed_up(grown.root, tmp_path / "repo")
    assert (made.exit_code, made.manifest.unread) == (1, 4096)
    log = made.manifest.logs[0]
    stored = (tmp_path / "repo" / "a" / log.files[1].pieces[0].object).read_bytes()
    good = victim.read_bytes()
    assert stored == good[:bad] + bytes(4096) + good[bad + 4096 :]


def test_two_backups_at_once(grown: GrowingStore, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    backed_up(grown.root, repo)
    with folder_in(LocalStorage(repo)).locked():
        result = run("backup", str(grown.root), str(repo), "--name", "a")
        assert (result.exit_code, "another process is writing" in result.stderr) == (5, True)
        result = run("snapshots", str(repo), "--forget", "--keep", "1d")
        assert result.exit_code == 5
        assert run("snapshots", str(repo), "--check").exit_code == 0


def test_a_clock_that_was_set_back(grown: GrowingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = tmp_path / "repo"
    first = backed_up(grown.root, repo).manifest
    monkeypatch.setattr("rmqstore.backup.backup.now", lambda: first.time - DAY)
    grown.grow(2)
    names = [backed_up(grown.root, repo).manifest.snapshot for _ in range(11)]
    assert names == [f"{first.snapshot}-{number}" for number in range(1, 12)]
    folder = folder_in(LocalStorage(repo))
    assert folder.snapshots() == [first.snapshot, *names]
    latest = folder.latest()
    assert latest is not None
    assert latest.end == grown.end


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOSPC, NoSpace.exit_code), (errno.EDQUOT, NoSpace.exit_code), (errno.EROFS, NotReadable.exit_code)],
)
def test_an_error_of_the_disk_is_one_line(
    number: int, code: int, grown: GrowingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, a quota, and a repository that became read-only."""
    repo = tmp_path / "repo"
    backed_up(grown.root, repo)
    grown.grow(40)

    def fail(descriptor: int, data: memoryview, at: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr("rmqstore.append.disk.write_all", fail)
        result = run("backup", str(grown.root), str(repo), "--name", "a")
    assert (result.exit_code, len(result.stderr.strip().splitlines())) == (code, 1), result.output
    assert faults(repo) == []
    assert backed_up(grown.root, repo).manifest.end == grown.end


def test_a_read_only_repository(grown: GrowingStore, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    repo = tmp_path / "repo"
    backed_up(grown.root, repo)
    for path in (repo, *repo.rglob("*")):
        path.chmod(path.stat().st_mode & 0o555)
    result = run("backup", str(grown.root), str(repo), "--name", "a")
    assert result.exit_code == 3
    assert run("snapshots", str(repo), "--check").exit_code == 0


def newer(repo: Path) -> None:
    (repo / "rmqstore-repository.json").write_text('{"format": 2}')


def newer_snapshot(repo: Path) -> None:
    path = next((repo / "a" / "snapshots").iterdir())
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 7}))


@pytest.mark.parametrize("change", [newer, newer_snapshot])
def test_a_newer_format_is_refused(change: Callable[[Path], None], grown: GrowingStore, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    backed_up(grown.root, repo)
    change(repo)
    for words in (
        ("backup", str(grown.root), str(repo), "--name", "a"),
        ("restore", f"{repo}::a", str(tmp_path / "x")),
    ):
        result = run(*words)
        assert (result.exit_code, "use a newer rmqstore" in result.stderr) == (5, True), result.output
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("how", ["missing", "short", "flipped", "link"])
def test_a_damaged_object_is_found_and_not_restored(how: str, grown: GrowingStore, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    manifest = backed_up(grown.root, repo).manifest
    victim = repo / "a" / manifest.logs[0].files[0].pieces[0].object
    if how == "missing":
        victim.unlink()
    elif how == "short":
        os.truncate(victim, 100)
    elif how == "flipped":
        flip(victim, 2000)
    else:
        outside = grown.root / "outside"
        victim.rename(outside)
        victim.symlink_to(outside)
    found = run_json("snapshots", str(repo), "--check", exit_code=1)
    assert isinstance(found["stores"], list)
    assert [row["object"] for row in found["stores"][0]["faults"]] == [manifest.logs[0].files[0].pieces[0].object]
    result = run("restore", f"{repo}::a", str(tmp_path / "restored"))
    assert result.exit_code in (3, 4), result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["repo", "store"]


HOSTILE: dict[str, Callable[[dict[str, object]], None]] = {}


def hostile(change: Callable[[dict], None]) -> Callable[[dict], None]:  # type: ignore[type-arg]
    HOSTILE[change.__name__] = change
    return change


@hostile
def path_up(manifest: dict) -> None:  # type: ignore[type-arg]
    manifest["others"][0]["path"] = "../../escaped"


@hostile
def path_absolute(manifest: dict) -> None:  # type: ignore[type-arg]
    manifest["others"][0]["path"] = "/tmp/escaped"


@hostile
def object_up(manifest: dict) -> None:  # type: ignore[type-arg]
    manifest["logs"][0]["files"][0]["pieces"][0]["object"] = "log/commitlog/../../../../escaped"


@hostile
def self_id_up(manifest: dict) -> None:  # type: ignore[type-arg]
    manifest["layout"]["self_id"] = "../../escaped"


@hostile
def wrong_types(manifest: dict) -> None:  # type: ignore[type-arg]
    manifest["logs"] = {"commitlog": 1}


@hostile
def huge_numbers(manifest: dict) -> None:  # type: ignore[type-arg]
    manifest["logs"][0]["file_size"] = 1 << 80


@hostile
def negative_length(manifest: dict) -> None:  # type: ignore[type-arg]
    manifest["logs"][0]["files"][0]["pieces"][0]["length"] = -1


@hostile
def overlapping_files(manifest: dict) -> None:  # type: ignore[type-arg]
    manifest["logs"][0]["files"].append(manifest["logs"][0]["files"][0])


@hostile
def a_file_instead_of_a_directory(manifest: dict) -> None:  # type: ignore[type-arg]
    manifest["others"].append({**manifest["others"][0], "path": "commitlog"})


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_manifest_writes_nothing(
    change: Callable[[dict[str, object]], None], grown: GrowingStore, tmp_path: Path
) -> None:
    repo = tmp_path / "repo"
    backed_up(grown.root, repo)
    path = next((repo / "a" / "snapshots").iterdir())
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    with assert_untouched(repo):
        result = run("restore", f"{repo}::a", str(tmp_path / "out" / "restored"))
        assert result.exit_code in (4, 5), result.output
        assert run("snapshots", str(repo), "--check").exit_code in (0, 1, 4)
    assert not (tmp_path / "out" / "restored").exists()
    assert not (tmp_path / "escaped").exists()


def test_a_repository_contains_no_settings_with_secrets(grown: GrowingStore, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=16384\naccessKey=SECRET1\nbrokerIP1=SECRET2\nbrokerName=b\nbrokerId=1\n")
    made = run_json("backup", str(grown.root), str(tmp_path / "repo"), "-c", str(conf), exit_code=0)
    assert made["name"] == "b-1"
    texts = b"".join(path.read_bytes() for path in (tmp_path / "repo").rglob("*") if path.suffix == ".json")
    assert b"SECRET" not in texts


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("backup", "STORE", "STORE/backup"), 2),
        (("backup", "STORE", "TMP/file"), 3),
        (("backup", "STORE", "s4://bucket"), 2),
        (("backup", "STORE", "TMP/used"), 2),
        (("backup", "STORE", "TMP/repo", "--name", "../x"), 2),
        (("backup", "STORE", "TMP/repo", "--every", "0"), 2),
        (("backup", "STORE/commitlog", "TMP/repo"), 2),
        (("backup", "TMP/used", "TMP/repo"), 3),
        (("snapshots", "TMP/nothing"), 3),
        (("snapshots", "TMP/used"), 3),
        (("snapshots", "TMP/made", "--forget"), 2),
        (("snapshots", "TMP/made", "--keep", "1d"), 2),
        (("snapshots", "TMP/made::other"), 3),
        (("restore", "TMP/made::other", "TMP/new"), 3),
        (("restore", "TMP/made::a@20000101T000000Z", "TMP/new"), 3),
        (("restore", "TMP/made::a@nonsense", "TMP/new"), 2),
        (("restore", "TMP/made::a", "TMP/used"), 5),
        (("restore", "TMP/made::a", "TMP/new", "--at", "0"), 2),
        (("restore", "TMP/made::a", "TMP/new", "--until", "2001-01-01"), 2),
        (("restore", "TMP/made::a", "TMP/new", "--role", "dledger"), 5),
        (("restore", "TMP/made::a", "TMP/new", "--role", "controller"), 5),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_wrong_usage_ends_with_one_line(words: tuple[str, ...], code: int, grown: GrowingStore, tmp_path: Path) -> None:
    backed_up(grown.root, tmp_path / "made")
    (tmp_path / "file").write_text("")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "something").write_text("")
    places = [word.replace("STORE", str(grown.root)).replace("TMP", str(tmp_path)) for word in words]
    result = run(*places)
    assert result.exit_code == code, result.output
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "new").exists()


def test_metrics(grown: GrowingStore, tmp_path: Path) -> None:
    target = tmp_path / "x.prom"
    words = ("backup", str(grown.root), str(tmp_path / "repo"), "--name", "a", "--metrics", str(target))
    assert run(*words).exit_code == 0
    lines = target.read_text()
    assert "rmqstore_snapshot_end{" in lines
    assert f'command="backup"}} {grown.end}' in lines


def test_every_goes_on_after_an_error(grown: GrowingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[float] = []

    def sleep(seconds: float) -> None:
        rounds.append(seconds)
        grown.grow(1)
        if len(rounds) == 3:
            raise KeyboardInterrupt

    def fail(*_: object) -> None:
        if len(rounds) == 1:
            raise Refused("busy")

    kept = StoreFolder.save

    def save(self: StoreFolder, manifest: object) -> None:
        fail()
        kept(self, manifest)  # type: ignore[arg-type]

    replace_clock(monkeypatch, backup_command, sleep=sleep)
    monkeypatch.setattr(StoreFolder, "save", save)
    result = run("backup", str(grown.root), str(tmp_path / "repo"), "--name", "a", "--every", "60s")
    assert result.exit_code == 130
    assert "no snapshot was made: busy" in result.stderr
    assert len(folder_in(LocalStorage(tmp_path / "repo")).snapshots()) == 2
    assert all(0 < seconds <= 60 for seconds in rounds)


def test_errors_are_errors_of_this_project(grown: GrowingStore, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    backed_up(grown.root, repo)
    (repo / "rmqstore-repository.json").write_text("[]")
    with pytest.raises(RmqStoreError):
        Repository.open(LocalStorage(repo))
