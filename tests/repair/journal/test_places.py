"""A journal outside its store, on other file systems, through links: the place of its quarantine, and refusals."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqstore.documents.content import Zeros
from rmqstore.documents.steps import Create, Overwrite
from rmqstore.errors import PlanStale, Refused
from rmqstore.repair.journal import journal, pruning
from tests.repair.journals import apply_full, plan_of
from tests.repair.trees import CountingDisk, discard, full_plan, killed_at, look, overwrite

LOG2 = "commitlog/00000000000000008192"
QUEUE = "consumequeue/TopicA/0/00000000000000000000"


def test_journal_outside_of_the_store(store: Path, tmp_path: Path) -> None:
    before = look(store)
    outside = tmp_path / "journals"
    (outside / "what else is kept here").mkdir(parents=True)
    path = journal.apply(full_plan(store), journal_dir=outside, disk=CountingDisk()).journal
    assert path is not None and path.parent == outside and path.name[:2] == "20"
    assert (path / "quarantine/000005-topics.json").exists()  # the same file system
    pointer = store / ".rmqstore" / path.name
    assert [entry.name for entry in pointer.iterdir()] == ["journal"]
    assert journal.list_journals(store)[0].path == path
    assert journal.undo(pointer, disk=CountingDisk()).restored == 13
    assert look(store) == before


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system other than the store's."""
    for candidate in (Path("/dev/shm"), Path("/tmp")):
        if candidate.is_dir() and os.access(candidate, os.W_OK) and candidate.stat().st_dev != tmp_path.stat().st_dev:
            folder = candidate / f"rmqstore-test-{os.getpid()}"
            folder.mkdir()
            yield folder
            shutil.rmtree(folder)
            return
    pytest.skip("needs a second file system to write to")


def move_log(store: Path, folder: Path) -> None:
    """Move the commitlog to `folder`, with a link in its place."""
    shutil.copytree(store / "commitlog", folder / "commitlog")
    shutil.rmtree(store / "commitlog")
    (store / "commitlog").symlink_to(folder / "commitlog")


def test_journal_on_another_file_system_keeps_the_quarantine_in_the_store(store: Path, elsewhere: Path) -> None:
    before = look(store)
    path = journal.apply(full_plan(store), journal_dir=elsewhere, disk=CountingDisk()).journal
    assert path is not None
    pointer = store / ".rmqstore" / path.name
    assert (pointer / "quarantine/000005-topics.json").exists()
    assert (path / "undo.log").stat().st_size > 5000
    journal.undo(path, disk=CountingDisk())
    assert look(store) == before


def test_link_at_the_top_to_another_file_system_gets_its_own_quarantine(store: Path, elsewhere: Path) -> None:
    move_log(store, elsewhere)
    before = look(elsewhere)
    path = journal.apply(full_plan(store), disk=CountingDisk(), roots=[elsewhere / "commitlog"]).journal
    assert path is not None
    assert (elsewhere / ".rmqstore" / path.name / "quarantine/000007-stray/deep/note.txt").exists()
    assert (path / "quarantine/000005-topics.json").exists()
    journal.undo(path, disk=CountingDisk(), roots=[elsewhere / "commitlog"])
    after = look(elsewhere)
    assert {**after, ".": before["."]} == before


def test_prune_that_was_killed_anywhere_can_be_finished(store: Path, elsewhere: Path) -> None:
    move_log(store, elsewhere)
    roots = [elsewhere / "commitlog"]
    index = 0
    while True:
        path = journal.apply(plan_of(store, discard(store, "commitlog/stray")), roots=roots).journal
        assert path is not None
        (elsewhere / "commitlog/stray").mkdir()
        killed = killed_at(index, lambda disk, path=path: pruning.prune(path, disk=disk, roots=roots))  # type: ignore[misc]
        if path.exists():
            pruning.prune(path, roots=roots)
        assert journal.list_journals(store) == [] and not (elsewhere / ".rmqstore").exists(), index
        if not killed:
            break
        index += 1
    assert index > 10


def test_further_data_path_is_changed_and_restored(store: Path, tmp_path: Path) -> None:
    root = tmp_path / "disk2" / "commitlog"
    shutil.copytree(store / "commitlog", root)
    before = look(root)
    name = f"{root}/00000000000000008192"
    steps = (overwrite(store, name, 10, Zeros(20)), discard(store, f"{root}/stray"))
    path = journal.apply(plan_of(store, *steps, roots=(str(root),)), disk=CountingDisk()).journal
    assert path is not None
    assert Path(name).read_bytes()[10:30] == bytes(20) and not (root / "stray").exists()
    journal.undo(path, disk=CountingDisk(), roots=[root])
    assert look(root) == before


def test_missing_data_path_is_refused(store: Path, tmp_path: Path) -> None:
    gone = plan_of(store, Create(f"{tmp_path}/gone/0", 1, Zeros(1)), roots=(f"{tmp_path}/gone",))
    with pytest.raises(Refused, match="is missing"):
        journal.apply(gone)


def test_link_inside_of_the_store_is_not_followed(store: Path, tmp_path: Path) -> None:
    shutil.move(store / "consumequeue/TopicA", tmp_path / "elsewhere")
    (store / "consumequeue/TopicA").symlink_to(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere/0/00000000000000000000").read_bytes()
    with pytest.raises(Refused, match="is a link"):
        journal.apply(plan_of(store, overwrite(store, QUEUE, 0, Zeros(10))))
    assert (tmp_path / "elsewhere/0/00000000000000000000").read_bytes() == before


def test_link_in_the_last_place_is_not_written_through(store: Path, tmp_path: Path) -> None:
    shutil.move(store / LOG2, tmp_path / "target")
    (store / LOG2).symlink_to(tmp_path / "target")
    with pytest.raises(PlanStale, match="is not a file"):
        journal.apply(plan_of(store, Overwrite(LOG2, 0, Zeros(1), "sha256:" + "0" * 64)))


def test_stray_link_is_discarded_and_comes_back(store: Path) -> None:
    (store / "commitlog/link").symlink_to("/nowhere")
    path = journal.apply(plan_of(store, discard(store, "commitlog/link")), disk=CountingDisk()).journal
    assert path is not None and not (store / "commitlog/link").is_symlink()
    journal.undo(path, disk=CountingDisk())
    assert (store / "commitlog/link").readlink() == Path("/nowhere")


def test_journal_folder_that_is_a_link_is_refused(store: Path, tmp_path: Path) -> None:
    (store / ".rmqstore").symlink_to(tmp_path)
    with pytest.raises(Refused, match="must be a directory"):
        apply_full(store)
