"""Directories in directories, 2,000 levels deep: every command ends soon, with an answer or one line."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqstore.errors import Refused
from rmqstore.files.files import LOCAL, LocalFiles
from rmqstore.files.store import open_store
from rmqstore.files.trees import remove_tree
from rmqstore.files.walk import walk
from rmqstore.repair.journal import journal, pruning
from rmqstore.repair.journal.folder import JournalFolder
from rmqstore.repair.plan.plan_builder import fingerprint_entry
from tests.command import run
from tests.hostile.forged import forge_write
from tests.stores import copy_store

LEVELS = 2000


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory that is removed at once: pytest gives up on trees as deep as these."""
    yield tmp_path
    remove_tree(tmp_path)
    tmp_path.mkdir()


def dig(directory: Path, levels: int = LEVELS) -> None:
    """Make directories in a directory, one in the other, with a file in the last; the path may be too long for open."""
    folder = os.open(directory, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=folder)
        below = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)


def test_a_deep_tree_is_removed_without_its_links(place: Path) -> None:
    top, other = place / "top", place / "other"
    for directory in (top / "removed-0", other):
        directory.mkdir(parents=True)
        dig(directory)
    (top / "link").symlink_to(other)
    (top / "removed-0" / "link").symlink_to(other)
    remove_tree(top)
    assert (top.exists(), (other / "d").is_dir()) == (False, True)


def test_what_is_last_in_a_tree_is_removed_last(place: Path) -> None:
    for name in ("a", "state", "z"):
        (place / "top" / name).mkdir(parents=True)
    gone: list[str] = []

    class Recorded(type(pruning.Disk())):  # type: ignore[misc]
        def remove_directory(self, path: Path) -> None:
            gone.append(path.name)
            super().remove_directory(path)

    disk = Recorded()
    disk.allow(place)
    remove_tree(place / "top", disk, last="state")
    assert gone == ["z", "a", "state", "top"]


def test_a_walk_ends_where_paths_become_too_long(place: Path) -> None:
    dig(place, 3 * LEVELS)
    found = list(walk(LOCAL, place))
    assert 1900 < len(found) < 2100
    assert [entry.unreadable for entry in found] == [False] * (len(found) - 1) + [True]


@pytest.mark.parametrize("ending", ["undo", "prune"])
def test_a_forged_journal_with_deep_directories_is_removed(place: Path, ending: str) -> None:
    store = place / "store"
    (store / "commitlog").mkdir(parents=True)
    folder = forge_write(store, "commitlog/x", "undo")
    for name in ("quarantine", "new", "lost+found"):
        (folder / name).mkdir(exist_ok=True)
        dig(folder / name)
    if ending == "undo":
        journal.undo(folder)
    else:
        (folder / "state").write_text((folder / "state").read_text().replace("applying", "done"))
    pruning.prune(folder)
    assert not folder.exists()


def test_a_plan_does_not_move_directories_that_are_too_deep(place: Path) -> None:
    store = copy_store("5.4.0-clean", place)
    dig(store / "commitlog")
    refused = run("recover", str(store))
    most = f"error: {store / 'commitlog' / 'd'} has more than 100 levels of directories — move it away by hand\n"
    assert (refused.exit_code, refused.output) == (5, most)


def test_as_many_levels_as_a_plan_moves_are_moved(place: Path) -> None:
    dig(place, 101)
    assert fingerprint_entry(place / "d").startswith("sha256:")
    with pytest.raises(Refused, match=rf"{place} has more than 100 levels"):
        fingerprint_entry(place)


def test_an_import_does_not_copy_directories_that_are_too_deep(place: Path) -> None:
    store, messages = copy_store("5.4.0-clean", place), place / "messages.ndjson"
    assert run("export", str(store), "--topic", "Pay_11_Topic", "-o", str(messages)).exit_code == 0
    dig(store / "config", 300)
    refused = run("import", str(messages), "--into", str(store), "--renumber")
    assert refused.exit_code == 5
    assert f"{store / 'config'} has more than 100 levels of directories" in refused.output
    assert not list((store / ".rmqstore").glob("*"))


def test_a_backup_resolves_each_deep_directory_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = copy_store("5.4.0-clean", place)
    dig(store / "config", 1200)
    files = open_store(store).own_files()
    resolved: list[Path] = []

    def real_path(self: LocalFiles, path: Path) -> Path:
        resolved.append(path)
        return Path(os.path.realpath(path))

    monkeypatch.setattr(LocalFiles, "real_path", real_path)
    assert sum(1 for _ in walk(files, store)) > 1200
    assert len(resolved) < 10


def test_a_deep_store_is_seeded(place: Path) -> None:
    """Deeper than Python calls functions: the new store's owner and modes are set at every level."""
    store, replica = copy_store("5.4.0-clean", place), place / "replica"
    dig(store / "config", 1200)
    done = run("seed", str(store), str(replica), "--role", "slave")
    assert (done.exit_code, done.exception) == (0, None), done.output
    folders = [entry.path for entry in walk(LOCAL, replica / "config") if entry.directory]
    assert len(folders) >= 1200
    assert {path.stat().st_mode & 0o777 for path in folders} == {(store / "config" / "d").stat().st_mode & 0o777}


def test_fragments_are_found_below_many_directories(place: Path) -> None:
    store, fragments = copy_store("5.4.0-clean", place), place / "fragments"
    fragments.mkdir()
    dig(fragments, 1200)
    deepest = max((entry.path for entry in walk(LOCAL, fragments) if entry.directory), key=lambda path: len(path.parts))
    shutil.copy(min((store / "commitlog").iterdir()), deepest / "f1")
    done = run("carve", str(fragments), str(place / "new"), "--dry-run")
    assert (done.exit_code, done.exception) == (0, None), done.output
    assert "from 0 to " in done.output


def test_fragments_that_cannot_be_listed_are_named(place: Path) -> None:
    fragments = place / "fragments"
    fragments.mkdir()
    shutil.copy(min((copy_store("4.9.7-ipv6", place) / "commitlog").iterdir()), fragments / "f1")
    dig(fragments, 3 * LEVELS)
    done = run("carve", str(fragments), str(place / "new"), "--dry-run")
    assert (done.exit_code, "File name too long" in done.stderr) == (4, True), done.output


def test_a_deep_store_is_converted(place: Path) -> None:
    store, plain = copy_store("5.1.4-dledger-mixed", place), place / "plain"
    dig(store / "config", 1200)
    done = run("migrate-to-commitlog", str(store), "-o", str(plain), "--peers", "1")
    assert (done.exit_code, done.exception) == (0, None), done.output
    assert sum(entry.directory for entry in walk(LOCAL, plain / "config")) >= 1200


def test_a_forged_copy_of_an_unfinished_import_is_not_walked_too_deep(place: Path) -> None:
    store, messages = copy_store("5.4.0-clean", place), place / "messages.ndjson"
    assert run("export", str(store), "--topic", "Pay_11_Topic", "-o", str(messages)).exit_code == 0

    def forged(self: JournalFolder, data: bytes) -> None:
        real(self, data)
        dig(self.path / "making" / "0" / "config", 1200)
        raise OSError(errno.EIO, "stopped")

    real = JournalFolder.mark_making
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JournalFolder, "mark_making", forged)
        assert run("import", str(messages), "--into", str(store), "--renumber").exit_code == 6
    refused = run("import", str(messages), "--into", str(store), "--renumber")
    assert refused.exit_code == 5, refused.output
    assert "has more than 100 levels of directories" in refused.output
