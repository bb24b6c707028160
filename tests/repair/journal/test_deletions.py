"""Files that are deleted for ever: the one step without an undo, stopped at every call, and on a disk without room."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rmqstore.documents.content import Zeros
from rmqstore.documents.plan import Plan
from rmqstore.documents.steps import Delete, Overwrite
from rmqstore.errors import BrokenPlan, ChangedSince, CouldNotCheck, HalfApplied, Refused, RmqStoreError
from rmqstore.repair.journal import journal
from rmqstore.repair.plan.plan_builder import fingerprint_entry
from tests import command
from tests.hostile.forged import forge
from tests.repair.journals import apply_full
from tests.repair.trees import CountingDisk, Entry, build, discard, failing_at, killed_at, look, places

FILES = (
    "commitlog/00000000000000000000",
    "commitlog/00000000000000008192",
    "consumequeue/TopicB/0/00000000000000000000",
    "config/topics.json",
)


def delete_plan(store: Path) -> Plan:
    steps = (Delete(path, fingerprint_entry(store / path), "test", (store / path).stat().st_size) for path in FILES)
    return Plan(str(store), tuple(steps))


def apply_deletion(store: Path, **more: object) -> journal.Applied:
    plan = delete_plan(store)
    return journal.apply(plan, force_digest=plan.digest, **more)  # type: ignore[arg-type]


def files_of(store: Path) -> dict[str, Entry]:
    """Return the files of a store, without the `lock` that a killed process leaves."""
    return {name: entry for name, entry in look(store).items() if entry[0] == "file" and name != "lock"}


def gone_from(store: Path, before: Mapping[str, Entry]) -> int:
    """Return how many files are gone; they are the first of the plan, and all others are as before."""
    now = files_of(store)
    count = sum(not (store / path).exists() for path in FILES)
    assert {name: entry for name, entry in before.items() if name not in FILES[:count]} == now
    return count


def build_locked(store: Path) -> Path:
    """Build a store with the file `lock`, which a broker leaves behind."""
    (build(store) / "lock").touch()
    return store


class FullDisk(CountingDisk):
    """A disk on which nothing can be created in a store until a file of it is deleted."""

    def __init__(self, store: Path, at: Callable[[int, str], None] = lambda number, name: None) -> None:
        super().__init__(at)
        self.store = store

    def _refuse(self, path: Path) -> None:
        if self.store in path.parents and all((self.store / path).exists() for path in FILES):
            raise OSError(errno.ENOSPC, "no space left")

    def open_new(self, path: Path) -> int:
        self._refuse(path)
        return super().open_new(path)

    def make_directory(self, path: Path) -> None:
        self._refuse(path)
        super().make_directory(path)


def test_files_are_deleted_and_the_journal_says_what_they_were(store: Path) -> None:
    before = files_of(store)
    done = apply_deletion(store)
    assert (gone_from(store, before), done.steps, done.for_ever) == (4, 4, True)
    [folder] = journal.list_journals(store)
    assert (folder.path, folder.state, folder.deleted) == (done.journal, "done", list(FILES))
    assert [step.length for step in folder.load_plan().steps if isinstance(step, Delete)] == [8192, 8192, 400, 8]


def test_without_the_digest_nothing_is_deleted(store: Path) -> None:
    before = look(store)
    plan = delete_plan(store)
    assert plan.decisions == ()
    with pytest.raises(Refused, match="it deletes files for ever") as refusal:
        journal.apply(plan)
    assert plan.digest in refusal.value.advice
    with pytest.raises(Refused, match="names another plan"):
        journal.apply(plan, force_digest="0" * 16)
    assert look(store) == before


def test_undo_names_what_is_gone_for_ever_and_is_refused(store: Path) -> None:
    done = apply_deletion(store)
    assert done.journal is not None
    with pytest.raises(Refused, match="deleted 4 files for ever") as refusal:
        journal.undo(done.journal)
    assert refusal.value.exit_code == 5
    assert all(path in refusal.value.message for path in FILES)
    assert journal.resume(done.journal).steps == 0


def test_an_earlier_repair_can_no_longer_be_undone(store: Path) -> None:
    earlier = apply_full(store)
    plan = Plan(str(store), (Delete("abort", fingerprint_entry(store / "abort"), "test"),))
    later = journal.apply(plan, force_digest=plan.digest).journal
    with pytest.raises(Refused, match=f"{later} has deleted files for ever after {earlier}"):
        journal.undo(earlier)


def test_a_plan_that_deletes_has_no_other_steps(store: Path) -> None:
    path = "checkpoint"
    change = Overwrite(path, 0, Zeros(8), f"sha256:{'0' * 64}", "test")
    with pytest.raises(BrokenPlan, match="has other steps, too"):
        Plan(str(store), (*delete_plan(store).steps, change))
    with pytest.raises(BrokenPlan, match="has other steps, too"):
        Plan(str(store), (*delete_plan(store).steps, discard(store, path)))


@pytest.mark.parametrize("kind", ["directory", "link", "other bytes"])
def test_only_the_file_that_was_read_is_deleted(store: Path, tmp_path: Path, kind: str) -> None:
    plan = delete_plan(store)
    path, victim = store / FILES[1], tmp_path / "victim"
    victim.write_bytes(path.read_bytes())
    if kind == "other bytes":
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    else:
        path.unlink()
        path.mkdir() if kind == "directory" else path.symlink_to(victim)
    before = look(store)
    with pytest.raises(RmqStoreError, match=r"is not a file|has changed") as refusal:
        journal.apply(plan, force_digest=plan.digest)
    assert refusal.value.exit_code == 5
    assert (look(store), victim.exists()) == (before, True)


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("outside", [False, True], ids=["in-store", "outside"])
@pytest.mark.parametrize("way", ["kill", "error", "error-for-good"])
@pytest.mark.parametrize("then", ["resume", "undo"])
def test_stopped_at_any_call_it_is_finished_or_ended(way: str, then: str, outside: bool, tmp_path: Path) -> None:
    folder = tmp_path / "journals" if outside else None
    counted = CountingDisk()
    apply_deletion(build(tmp_path / "whole"), disk=counted, journal_dir=folder)
    found = set()
    for index in places(counted.calls, tear=False):
        store = build(tmp_path / f"store-{index}")
        before = files_of(store)
        _stop(store, way, index, folder)
        gone = gone_from(store, before)
        unfinished = journal.find_unfinished(store)
        found.add((gone, bool(unfinished)))
        if unfinished:
            [info] = unfinished
            _end(info.path, then, store, before, gone)
        elif gone == 0:  # it had not begun, or its journal was removed
            apply_deletion(store, disk=CountingDisk(), journal_dir=folder)
            assert gone_from(store, before) == 4
        else:
            assert gone == 4
        assert not journal.find_unfinished(store)
        shutil.rmtree(store)
    assert {(0, False), (0, True), (1, True), (2, True), (3, True), (4, True)} <= found


def _stop(store: Path, way: str, index: int, folder: Path | None) -> None:
    if way == "kill":
        killed_at(index, lambda disk: apply_deletion(store, disk=disk, journal_dir=folder))
        return
    try:
        apply_deletion(store, disk=failing_at(index, for_good=way.endswith("good")), journal_dir=folder)
    except HalfApplied as error:
        assert "to delete the rest" in error.advice and "what is gone stays gone" in error.advice
    except RmqStoreError as error:
        assert error.exit_code == 5


def _end(path: Path, then: str, store: Path, before: Mapping[str, Entry], gone: int) -> None:
    """Finish a deletion, or end it with the files that are left, and check what is left then."""
    if then == "resume":
        assert journal.resume(path, disk=CountingDisk()).for_ever
        assert gone_from(store, before) == 4
        [info] = [one for one in journal.list_journals(store) if one.state == "done"]
        assert info.deleted == list(FILES)
        return
    done = journal.undo(path, disk=CountingDisk())
    assert (done.gone, done.kept) == (FILES[:gone], FILES[gone:])
    assert gone_from(store, before) == gone
    [info] = journal.list_journals(store)
    assert (info.state, info.deleted) == ("done" if gone else "undone", list(FILES[:gone]))


@pytest.mark.parametrize("then", ["resume", "undo"])
def test_on_a_full_disk_the_pointer_comes_after_the_first_file_whenever_it_is_killed(then: str, tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    store = build_locked(tmp_path / "whole")
    counted = FullDisk(store)
    done = apply_deletion(store, disk=counted, journal_dir=folder)
    assert done.journal is not None and done.journal.parent == folder
    [info] = journal.list_journals(store)
    assert (info.path, info.record.unpointed, info.deleted) == (done.journal, False, list(FILES))
    found = set()
    for index in range(len(counted.calls)):
        store = build_locked(tmp_path / f"store-{index}")
        before = files_of(store)
        shutil.rmtree(folder, ignore_errors=True)
        _kill_full(store, index, folder)
        gone = gone_from(store, before)
        path = next(iter(folder.iterdir()), None) if folder.exists() else None
        state = (
            json.loads((path / "state").read_text())["state"] if path is not None and (path / "state").exists() else ""
        )
        pointed = bool(journal.find_unfinished(store))
        found.add((state, gone > 0, pointed))
        assert state in ("applying", "done") or gone == 0  # nothing goes before the journal is complete
        if path is not None and state == "applying":
            if then == "resume":
                journal.resume(path, disk=FullDisk(store), roots=[store])
                assert gone_from(store, before) == 4
                assert [one.path for one in journal.list_journals(store)] == [path]
            else:
                ended = journal.undo(path, disk=FullDisk(store), roots=[store])
                assert (ended.gone, ended.kept) == (FILES[:gone], FILES[gone:])
                assert gone_from(store, before) == gone
        shutil.rmtree(store)
    assert {("applying", False, False), ("applying", True, False), ("applying", True, True)} <= found


def _kill_full(store: Path, index: int, folder: Path) -> None:
    """Apply on a full disk in a child that is killed at a call."""

    def work(disk: object) -> None:
        full = FullDisk(store, disk._at)  # type: ignore[attr-defined]
        apply_deletion(store, disk=full, journal_dir=folder)

    killed_at(index, work)


def test_only_a_journal_of_deletions_may_have_no_pointer(store: Path, tmp_path: Path) -> None:
    step = {"do": "discard", "path": "abort", "expect": fingerprint_entry(store / "abort"), "length": 0, "why": "x"}
    forged = forge(store, step, folder=tmp_path / "20260101T000000.000000Z", unpointed=True)
    for verb in (journal.resume, journal.undo):
        with pytest.raises(CouldNotCheck, match="only a journal of deletions may have no pointer"):
            verb(forged, roots=[store])
    assert (store / "abort").exists()


@pytest.mark.parametrize("verb", ["resume", "undo"])
def test_a_journal_without_a_pointer_does_not_choose_the_store_that_it_deletes_from(
    verb: str, store: Path, tmp_path: Path
) -> None:
    step = {"do": "delete", "path": "abort", "expect": fingerprint_entry(store / "abort"), "length": 0, "why": "x"}
    forged = forge(store, step, folder=tmp_path / "20260101T000000.000000Z", unpointed=True)
    refused = command.run(verb, str(forged))
    assert refused.exit_code == 5
    advice = f"add --root {store}, if it is a journal of that store"
    assert refused.output == f"error: {store} has no pointer to the journal {forged} — {advice}\n"
    assert (store / "abort").exists()


def half_deleted(store: Path) -> Path:
    """Stop a deletion after its first file."""

    def at(number: int, name: str) -> None:
        if name == "unlink" and not (store / FILES[0]).exists():
            raise OSError(errno.EIO, "injected")

    with pytest.raises(HalfApplied):
        apply_deletion(store, disk=CountingDisk(at))
    [info] = journal.find_unfinished(store)
    return info.path


def test_a_file_that_is_gone_already_counts_as_deleted(store: Path) -> None:
    path = half_deleted(store)
    (store / FILES[1]).unlink()  # as by a broker that was started meanwhile
    assert journal.resume(path).for_ever
    assert not any((store / name).exists() for name in FILES)


def test_a_file_that_changed_meanwhile_stays_and_undo_ends_the_deletion(store: Path) -> None:
    path = half_deleted(store)
    (store / FILES[2]).write_bytes(b"new")
    with pytest.raises(ChangedSince, match=FILES[2]):
        journal.resume(path)
    done = journal.undo(path)
    assert (done.gone, done.kept) == (FILES[:1], FILES[1:])
    assert (store / FILES[2]).read_bytes() == b"new"
    with pytest.raises(Refused, match=f"deleted 1 file for ever, which cannot be undone: {FILES[0]}"):
        journal.undo(path)
