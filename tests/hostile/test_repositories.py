"""Repositories that somebody forged: manifests, names, locks, links and devices. Nothing outside of DIR is written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqstore.append.disk import replace_file
from rmqstore.backup.repository import Repository
from rmqstore.backup.storage import LocalStorage
from rmqstore.errors import CouldNotCheck, NotReadable
from tests.command import run
from tests.stores import unpack

Document = dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("made") / "repository"
    assert run("backup", str(unpack("5.4.0-clean")), str(repository), "--name", "a").exit_code == 0
    return repository


@pytest.fixture
def repository(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "repository"))


def manifest_of(repository: Path) -> Path:
    (path,) = (repository / "a" / "snapshots").iterdir()
    return path


def assert_refused(repository: Path, new: Path, words: str, code: int) -> None:
    """Make sure that all commands end with one line, and that a restore writes nothing."""
    before = sorted(path.name for path in new.parent.iterdir())
    for command in (
        ["restore", f"{repository}::a", str(new)],
        ["verify", f"{repository}::a"],
        ["info", f"{repository}::a"],
    ):
        result = run(*command)
        assert (result.exit_code, len(result.stderr.splitlines())) == (code, 1), result.output
        assert words in result.stderr
    assert sorted(path.name for path in new.parent.iterdir()) == before


def path_of_other(path: str) -> Callable[[Document], None]:
    return lambda document: document["others"][0].update(path=path)


def both_paths(document: Document) -> None:
    document["others"][1]["path"] = document["others"][0]["path"]


def setting(key: str, value: str) -> Callable[[Document], None]:
    return lambda document: document["layout"]["settings"].update({key: value})


def huge_files(document: Document) -> None:
    document["logs"][0] |= {"file_size": 1 << 61, "files": document["logs"][0]["files"][:1]}


def object_elsewhere(key: str) -> Callable[[Document], None]:
    return lambda document: document["logs"][0]["files"][0]["pieces"][0].update(object=key)


FORGED: dict[str, Callable[[Document], None]] = {
    "a path up": path_of_other("config/../../x"),
    "an absolute path": path_of_other("/etc/cron.d/x"),
    "a path with NUL": path_of_other("config/a\0b"),
    "a path with a lone surrogate": path_of_other("config/\ud800"),
    "a journal": path_of_other(".rmqstore/20260101T000000Z/plan.json"),
    "a file of the log": path_of_other("commitlog/00000000000000000000"),
    "a checkpoint": path_of_other("checkpoint"),
    "a directory of other files": path_of_other("config"),
    "a path twice": both_paths,
    "an exbibyte of zeros": lambda document: document["others"][0].update(chunks=[["", 1 << 60]]),
    "a number as a hash": lambda document: document["others"][0].update(chunks=[[5, 1]]),
    "files of two exbibytes": huge_files,
    "a queue file of a pebibyte": setting("mappedFileSizeConsumeQueue", str(20 << 50)),
    "a size that is no number": setting("mappedFileSizeConsumeQueue", "abc"),
    "a size with 5,000 digits": setting("maxHashSlotNum", "9" * 5000),
    "a negative size": setting("mappedFileSizeCommitLog", "-1"),
    "a database up": lambda document: document["layout"].update(queues="rocksdb", rocksdb=".."),
    "an object of another store": object_elsewhere("../b/log/commitlog/00000000000000000000"),
    "an object of another kind": object_elsewhere("snapshots/x.json"),
    "another name": lambda document: document.update(name="b"),
    "a list as its name": lambda document: document.update(snapshot=["x"]),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
@pytest.mark.quick_rows(10)
def test_a_forged_manifest_is_damaged(repository: Path, tmp_path: Path, forge: Callable[[Document], None]) -> None:
    path = manifest_of(repository)
    document = json.loads(path.read_bytes())
    forge(document)
    path.write_text(json.dumps(document))
    assert_refused(repository, tmp_path / "new", f"the manifest of a@{path.stem} is damaged", 4)
    listed = run("snapshots", str(repository))
    assert (listed.exit_code, f"{path.stem}: the manifest" in listed.stdout) == (4, True)


@pytest.mark.parametrize(
    "data", [b"[" * 5_000_000, b'{"format":1' + b"0" * 5000 + b"}", b"", b"null", b"\xff\xfe"], ids=range(5)
)
def test_what_is_no_manifest_is_damaged(repository: Path, tmp_path: Path, data: bytes) -> None:
    path = manifest_of(repository)
    path.write_bytes(data)
    assert_refused(repository, tmp_path / "new", f"the manifest of a@{path.stem} is damaged", 4)


def test_a_manifest_without_end_is_not_read(repository: Path, tmp_path: Path) -> None:
    path = manifest_of(repository)
    os.truncate(path, 1 << 40)
    assert_refused(repository, tmp_path / "new", "has 1,099,511,627,776 bytes: no version of rmqstore wrote it", 4)
    assert run("snapshots", str(repository)).exit_code == 4


def test_settings_of_a_manifest_name_no_place_of_this_machine(repository: Path, tmp_path: Path) -> None:
    """They took the restored store's log from there."""
    path = manifest_of(repository)
    document = json.loads(path.read_bytes())
    (tmp_path / "elsewhere").mkdir()
    document["layout"]["settings"] |= {"storePathCommitLog": str(tmp_path / "elsewhere"), "storePathRootDir": "/"}
    path.write_text(json.dumps(document))
    assert run("restore", f"{repository}::a", str(tmp_path / "new")).exit_code == 0
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert run("compare", str(unpack("5.4.0-clean")), str(tmp_path / "new")).exit_code == 0
    assert run("verify", f"{repository}::a").exit_code == 0


@pytest.mark.parametrize("part", ["log", "config"])
def test_a_pipe_in_the_place_of_an_object_is_not_waited_for(repository: Path, tmp_path: Path, part: str) -> None:
    for path in [path for path in (repository / "a" / part).rglob("*") if path.is_file()]:
        path.unlink()
        os.mkfifo(path)
    result = run("restore", f"{repository}::a", str(tmp_path / "new"))
    assert (result.exit_code, "not a regular file" in result.stderr) == (4, True), result.output
    assert not (tmp_path / "new").exists()
    assert run("snapshots", str(repository), "--check").exit_code == 1


@pytest.mark.parametrize("name", ["a", "a/log", "a/config", "a/snapshots"])
def test_links_in_a_repository_are_neither_read_nor_written_through(
    repository: Path, tmp_path: Path, name: str
) -> None:
    """`clean` removed files below the target, and a backup wrote its objects there."""
    elsewhere = tmp_path / "elsewhere"
    (repository / name).rename(elsewhere)
    (elsewhere / "x.part").write_bytes(b"of somebody else")
    (repository / name).symlink_to(elsewhere)
    before = sorted((path.name, path.stat().st_mtime_ns) for path in elsewhere.rglob("*"))
    for command in (
        ["backup", str(unpack("5.4.0-clean")), str(repository), "--name", "a", "--full"],
        ["restore", f"{repository}::a", str(tmp_path / "new")],
        ["snapshots", f"{repository}::a", "--forget", "--keep", "1s"],
    ):
        result = run(*command)
        needs_nothing = (name, command[0]) == ("a/config", "backup")  # the store has not changed
        assert result.exit_code in ((0,) if needs_nothing else (3, 4)), result.output
        assert len(result.stderr.splitlines()) == (not needs_nothing)
    assert sorted((path.name, path.stat().st_mtime_ns) for path in elsewhere.rglob("*")) == before
    assert not (tmp_path / "new").exists()


def test_a_directory_that_becomes_a_link_is_not_read(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(repository)
    key = next(entry.key for entry in storage.objects("a/log"))
    monkeypatch.setattr(LocalStorage, "path_of", lambda self, key: self.directory / key)  # checked before the swap
    (repository / "a" / "log").rename(tmp_path / "log")
    (repository / "a" / "log").symlink_to(tmp_path / "log")
    with pytest.raises((CouldNotCheck, NotReadable)):
        storage.read_into(key, memoryview(bytearray(8)), 0)


def test_names_of_other_programs_are_no_objects(repository: Path) -> None:
    (repository / "a" / "log" / "-rf ..").write_bytes(b"x")
    (repository / "a" / "log" / "…").write_bytes(b"x")
    (repository / "-rf ..").mkdir()
    (repository / "out").symlink_to("/")
    storage = LocalStorage(repository)
    assert Repository.open(storage).names() == ["a"]
    assert {entry.key.rpartition("/")[2] for entry in storage.objects("a/log")}.isdisjoint({"-rf ..", "…"})


@pytest.mark.parametrize("data", [b"[" * 3_000_000, b"[1]", b'{"snapshot": ["x"]}', b"\0" * 100], ids=range(4))
def test_a_forged_note_of_an_interrupted_backup_is_ignored(repository: Path, data: bytes) -> None:
    (repository / "a" / "unfinished.json").write_bytes(data)
    store = str(unpack("5.4.0-clean"))
    assert run("backup", store, str(repository), "--name", "a").exit_code == 0
    assert run("snapshots", str(repository), "--check").exit_code == 0


@pytest.mark.parametrize("data", [b"[" * 1_000_000, b"[1]", b'{"format": true}', b""], ids=range(4))
def test_a_forged_mark_of_a_repository_is_damaged(repository: Path, data: bytes) -> None:
    (repository / "rmqstore-repository.json").write_bytes(data)
    result = run("snapshots", str(repository))
    assert (result.exit_code, len(result.stderr.splitlines())) == (4, 1), result.output
    assert "rmqstore-repository.json is damaged" in result.stderr


@pytest.mark.parametrize("kind", ["directory", "link"])
def test_a_forged_lock_ends_a_backup_with_one_line(repository: Path, tmp_path: Path, kind: str) -> None:
    lock = repository / "a" / "lock"
    lock.unlink()
    lock.mkdir() if kind == "directory" else lock.symlink_to(tmp_path / "victim")
    result = run("backup", str(unpack("5.4.0-clean")), str(repository), "--name", "a")
    assert (result.exit_code, len(result.stderr.splitlines())) == (4, 1), result.output
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_in_the_place_of_an_unfinished_object_is_not_written_through(
    repository: Path, tmp_path: Path, link: Callable[[Path, Path], None], replaces: bool
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    link(victim, repository / "a" / "object.part")
    storage = LocalStorage(repository)
    (storage.replace if replaces else storage.create)("a/object", b"x")
    assert (victim.read_bytes(), storage.read("a/object")) == (b"precious", b"x")


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_in_the_place_of_an_unfinished_file_of_a_store_is_not_written_through(
    tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    link(victim, tmp_path / "topics.json.tmp")
    replace_file(tmp_path / "topics.json", b"x")
    assert (victim.read_bytes(), (tmp_path / "topics.json").read_bytes()) == (b"precious", b"x")


@pytest.mark.parametrize("act", ["write", "replace", "lock", "delete"])
def test_a_link_that_appears_after_the_check_is_not_written_through(
    repository: Path, tmp_path: Path, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "lock").write_bytes(b"precious")
    log = repository / "a" / "log"

    class Late(LocalStorage):
        def path_of(self, key: str) -> Path:
            path = super().path_of(key)
            log.rename(tmp_path / "log")
            log.symlink_to(victim)
            return path

    storage = Late(repository)
    with pytest.raises(NotReadable):
        if act == "write":
            storage.create("a/log/new", b"x")
        elif act == "replace":
            storage.replace("a/log/lock", b"x")
        elif act == "delete":
            storage.delete("a/log/lock")
        else:
            with storage.locked("a/log/lock"):
                pass
    assert {path.name: path.read_bytes() for path in victim.iterdir()} == {"lock": b"precious"}


def test_a_folder_that_becomes_a_link_is_neither_cleaned_nor_listed(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    (victim / "commitlog").mkdir(parents=True)
    for name in ("x.part", "commitlog/y.part", "commitlog/object"):
        (victim / name).write_bytes(b"precious")
    monkeypatch.setattr(LocalStorage, "path_of", lambda self, key: self.directory / key)  # checked before the swap
    (repository / "a" / "log").rename(tmp_path / "log")
    (repository / "a" / "log").symlink_to(victim)
    storage = LocalStorage(repository)
    for prefix in ("a", "a/log"):
        storage.clean(prefix)
        assert not [entry for entry in storage.objects(prefix) if entry.key.startswith("a/log")]
    assert sorted(path.name for path in victim.rglob("*")) == ["commitlog", "object", "x.part", "y.part"]


def test_folders_that_no_repository_has_are_left_alone(repository: Path) -> None:
    strange = (repository / "a" / "log" / "commitlog" / "one two", repository / "a" / "log" / "/".join("123456789"))
    for folder in strange:
        folder.mkdir(parents=True)
        (folder / "object").write_bytes(b"x")
        (folder / "y.part").write_bytes(b"x")
    assert run("snapshots", f"{repository}::a", "--forget", "--keep", "1s").exit_code == 0
    assert run("backup", str(unpack("5.4.0-clean")), str(repository), "--name", "a").exit_code == 0
    assert [sorted(path.name for path in folder.iterdir()) for folder in strange] == [["object", "y.part"]] * 2


def test_backup_says_that_an_old_repository_is_open_to_others(repository: Path) -> None:
    store = str(unpack("5.4.0-clean"))
    for path in (repository, *repository.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    before = {path: path.stat().st_mode for path in repository.rglob("*") if path.is_dir()}
    said = f"note: other users can read {repository}; to make it private: chmod -R go= {repository}"
    done = run("backup", store, str(repository), "--name", "a")
    assert (done.exit_code, done.stderr.splitlines().count(said)) == (0, 1), done.output
    assert {path: path.stat().st_mode for path in before} == before
    subprocess.run(said.partition("private: ")[2].split(), check=True)
    assert run("backup", store, str(repository), "--name", "a").stderr == ""


def test_a_new_repository_in_a_readable_directory_is_not_open_to_others(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir(mode=0o755)
    for _ in range(2):
        assert run("backup", str(unpack("5.4.0-clean")), str(place)).stderr == ""
