"""Refusals before the first write: stale plans, changes by others, damaged journals."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqstore.documents.content import Literal, Zeros
from rmqstore.documents.plan import Plan
from rmqstore.documents.steps import (
    Create,
    Discard,
    Extend,
    MakeDirectory,
    Overwrite,
    RemoveEmptyDirectory,
    Step,
    Truncate,
)
from rmqstore.errors import ChangedSince, CouldNotCheck, NotAStore, PlanStale, Refused, UsageError
from rmqstore.repair.journal import journal
from tests.damage import flip
from tests.repair.journals import apply_full, half_apply, plan_of
from tests.repair.trees import CountingDisk, discard, full_plan, look, overwrite

LOG = "commitlog/00000000000000000000"
LOG2 = "commitlog/00000000000000008192"
QUEUE = "consumequeue/TopicA/0/00000000000000000000"
QUEUE2 = "consumequeue/TopicB/0/00000000000000000000"


def stale(store: Path) -> dict[str, Step]:
    return {
        "overwritten bytes": Overwrite(LOG, 0, Zeros(10), "sha256:" + "0" * 64),
        "range after the end": Overwrite(LOG, 8190, Zeros(10), "sha256:" + "0" * 64),
        "file that is gone": Overwrite("commitlog/gone", 0, Zeros(1), "sha256:" + "0" * 64),
        "directory for a file": Overwrite("commitlog/stray", 0, Zeros(1), "sha256:" + "0" * 64),
        "tail": Truncate(QUEUE, 600, 0, "blake2b:" + "0" * 64),
        "size": Extend(QUEUE, 599, 700),
        "new file is there": Create(QUEUE, 1, Zeros(1)),
        "no directory": Create("consumequeue/None/0/0", 1, Zeros(1)),
        "neighbour is gone": Create("consumequeue/x", 1, Zeros(1), "consumequeue/y"),
        "directory is there": MakeDirectory("consumequeue/TopicA"),
        "discarded content": Discard("checkpoint", discard(store, "abort").expect),
        "discarded is gone": Discard("gone", discard(store, "abort").expect),
        "not empty": RemoveEmptyDirectory("consumequeue/TopicC"),
        "not a directory": RemoveEmptyDirectory("checkpoint"),
    }


STALE = (
    *("overwritten bytes", "range after the end", "file that is gone", "directory for a file", "tail", "size"),
    *("new file is there", "no directory", "neighbour is gone", "directory is there", "discarded content"),
    *("discarded is gone", "not empty", "not a directory"),
)


@pytest.mark.parametrize("case", STALE)
def test_stale_plan_is_refused_and_nothing_is_written(store: Path, case: str) -> None:
    before = look(store)
    good = overwrite(store, LOG2, 0, Zeros(100))
    with pytest.raises(PlanStale) as caught:
        journal.apply(plan_of(store, good, stale(store)[case]), disk=CountingDisk())
    assert caught.value.exit_code == 5
    assert look(store) == before and not (store / ".rmqstore").exists()


def keep_mtime(change: Callable[[Path], object]) -> Callable[[Path], None]:
    def changed(store: Path) -> None:
        times = {path: path.stat() for path in (store / LOG, store / QUEUE, store / QUEUE2)}
        change(store)
        for path, status in times.items():
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    return changed


FOREIGN: dict[str, tuple[Callable[[Path], object], str]] = {
    "a byte of an overwritten range": (keep_mtime(lambda store: flip(store / LOG, 150)), LOG),
    "a byte elsewhere in a changed file": (lambda store: flip(store / LOG, 6000), LOG),
    "growth of a truncated file": (keep_mtime(lambda store: os.truncate(store / QUEUE, 300)), QUEUE),
    "bytes in the extended part": (keep_mtime(lambda store: flip(store / QUEUE2, 999)), QUEUE2),
    "a created file": (lambda store: flip(store / "config/topics.json", 3), "config/topics.json"),
    "a created file that is gone": (lambda store: (store / "config/topics.json").unlink(), "config/topics.json"),
    "a file in a made directory": (lambda store: (store / "consumequeue/TopicD/1").mkdir(), "consumequeue/TopicD/1"),
    "something where the stray was": (lambda store: (store / "commitlog/stray").write_bytes(b""), "commitlog/stray"),
    "the quarantine": (
        lambda store: flip(next(store.glob(".rmqstore/*/quarantine/*-topics.json")), 0),
        "config/topics.json",
    ),
    "a changed file that is gone": (lambda store: (store / LOG2).unlink(), LOG2),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_undo_after_a_foreign_change_names_it_and_writes_nothing(store: Path, case: str) -> None:
    path = apply_full(store)
    change, name = FOREIGN[case]
    change(store)
    before = look(store)
    files = {entry: entry.read_bytes() for entry in path.rglob("*") if entry.is_file()}
    with pytest.raises(ChangedSince, match=name) as caught:
        journal.undo(path, disk=CountingDisk())
    assert caught.value.exit_code == 5
    assert look(store, root_time=False) == {**before, ".": (*before["."][:4], 0, before["."][5])}
    assert {entry: entry.read_bytes() for entry in path.rglob("*") if entry.is_file()} == files


def test_journal_that_is_missing_blocks_apply(store: Path, tmp_path: Path) -> None:
    outside = tmp_path / "journals"
    outside.mkdir()
    path = journal.apply(full_plan(store), journal_dir=outside, disk=CountingDisk()).journal
    assert path is not None
    path.rename(tmp_path / "moved")
    assert [info.state for info in journal.find_unfinished(store)] == ["missing"]
    with pytest.raises(Refused, match="is missing"):
        journal.apply(plan_of(store, overwrite(store, "checkpoint", 0, Zeros(1))))
    with pytest.raises(Refused, match="is missing"):
        journal.undo(store / ".rmqstore" / path.name)


def test_journal_that_its_store_does_not_know_is_refused(store: Path, tmp_path: Path) -> None:
    outside = tmp_path / "journals"
    outside.mkdir()
    path = journal.apply(full_plan(store), journal_dir=outside, disk=CountingDisk()).journal
    assert path is not None
    shutil.copytree(path, tmp_path / "forged" / path.name)
    before = look(store)
    with pytest.raises(Refused, match="has no pointer to the journal"):
        journal.undo(tmp_path / "forged" / path.name)
    assert look(store) == before


def test_forged_state_cannot_name_folders_elsewhere(store: Path) -> None:
    path = apply_full(store)
    state = json.loads((path / "state").read_bytes())
    (path / "state").write_text(json.dumps({**state, "homes": ["/etc"]}))
    with pytest.raises(NotAStore):
        journal.undo(path)


def test_damaged_state_is_not_mistaken_for_an_apply_that_never_began(store: Path) -> None:
    path = half_apply(store)
    (path / "state").write_bytes(b"\0" * 100)
    assert [info.state for info in journal.find_unfinished(store)] == ["missing"]
    with pytest.raises(Refused):
        journal.apply(plan_of(store, overwrite(store, "checkpoint", 0, Zeros(1))))
    assert (path / "undo.log").exists()


def test_damaged_undo_log_is_found_out_before_the_first_write(store: Path) -> None:
    path = apply_full(store)
    before = look(store, root_time=False)
    for at in range(20, (path / "undo.log").stat().st_size, 997):
        flip(path / "undo.log", at)
        with pytest.raises(CouldNotCheck, match=r"undo\.log is damaged"):
            journal.undo(path, disk=CountingDisk())
        flip(path / "undo.log", at)
    assert look(store, root_time=False) == before
    assert journal.undo(path, disk=CountingDisk()).restored == 13


def test_damaged_plan_of_a_journal_is_found_out(store: Path) -> None:
    path = apply_full(store)
    (path / "plan.json").write_bytes(b"{")
    with pytest.raises(CouldNotCheck, match=r"plan\.json is damaged"):
        journal.undo(path)


def test_undo_refuses_what_is_not_a_journal(store: Path) -> None:
    for path in (store, store / "commitlog", store / "nothing"):
        with pytest.raises(NotAStore):
            journal.undo(path)


def test_a_store_in_a_journal_s_place_names_its_last_one(store: Path) -> None:
    path = apply_full(store)
    with pytest.raises(NotAStore) as told:
        journal.undo(store)
    assert told.value.advice.endswith(f": {path}")
    journal.undo(path)
    with pytest.raises(NotAStore) as told:
        journal.undo(store)
    assert path.name not in told.value.advice


def test_journal_inside_the_store_is_refused(store: Path) -> None:
    with pytest.raises(UsageError, match="is inside the store"):
        journal.apply(full_plan(store), journal_dir=store / "commitlog")


def test_journal_below_a_file_is_refused(store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not a directory"):
        journal.apply(full_plan(store), journal_dir=tmp_path / "file" / "journals")


def test_missing_store_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        journal.apply(Plan(str(tmp_path / "gone"), (MakeDirectory("x"),)))


def test_a_journal_folder_that_vanishes_while_it_is_looked_at_never_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    folder = store / ".rmqstore" / "20261122T120000.000000Z"
    (folder / "quarantine").mkdir(parents=True)
    listing = Path.iterdir

    def iterdir(path: Path) -> Iterator[Path]:
        if path.name == "quarantine":  # one of three concurrent applies removes what the others have begun to create
            shutil.rmtree(folder)
        return listing(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert journal.find_unfinished(store) == []
    assert not folder.exists()


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(lambda store: overwrite(store, LOG, 0, Literal(b"x")), id="overwrite"),
        pytest.param(lambda store: Extend(QUEUE, (store / QUEUE).stat().st_size, 700), id="extend"),
    ],
)
def test_a_file_with_another_name_is_not_written(store: Path, step: Callable[[Path], Step]) -> None:
    """Otherwise a backup with hard links (`cp -al`), or another log file of the store, would change, too."""
    one = step(store)
    backup = store.parent / "backup"
    os.link(store / one.path, backup)
    before = backup.read_bytes()
    with pytest.raises(Refused, match=f"{one.path} has another name") as refused:
        journal.apply(plan_of(store, one))
    assert backup.read_bytes() == before
    assert refused.value.advice is not None
    command = refused.value.advice.partition(": ")[2]
    subprocess.run(command, shell=True, check=True)
    journal.apply(plan_of(store, one))
    assert backup.read_bytes() == before != (store / one.path).read_bytes()
