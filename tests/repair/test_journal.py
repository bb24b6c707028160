"""apply, undo and resume where nothing fails but the circumstances."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.errors import (
    ChangedSince,
    CouldNotCheck,
    HalfApplied,
    NoSpace,
    NotAStore,
    NotReadable,
    PlanStale,
    Refused,
    UsageError,
)
from rmqstore.repair import batches, journal, liveness, preflight
from rmqstore.repair.plan import (
    Create,
    Discard,
    Extend,
    Literal,
    MakeDirectory,
    Overwrite,
    Plan,
    Reencoded,
    RemoveEmptyDirectory,
    Span,
    Step,
    Truncate,
    Zeros,
)
from tests.repair.trees import (
    CountingDisk,
    build,
    discard,
    failing_at,
    full_plan,
    lazily,
    look,
    overwrite,
    pattern,
)

LOG = "commitlog/00000000000000000000"
LOG2 = "commitlog/00000000000000008192"
QUEUE = "consumequeue/TopicA/0/00000000000000000000"
QUEUE2 = "consumequeue/TopicB/0/00000000000000000000"


@pytest.fixture(autouse=True)
def nobody_looks_at_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "find_user", lambda places, files: None)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return build(tmp_path / "store")


def plan_of(store: Path, *steps: Step, **more: object) -> Plan:
    return Plan(str(store), steps, **more)  # type: ignore[arg-type]


def apply_full(store: Path) -> Path:
    path = journal.apply(full_plan(store), disk=CountingDisk()).journal
    assert path is not None
    return path


def test_apply_and_undo_on_the_real_disk_are_identity(store: Path) -> None:
    before = look(store)
    applied = journal.apply(full_plan(store))
    assert applied.journal is not None and applied.steps == 13
    assert look(store) != before
    assert journal.undo(applied.journal) == journal.Undone(store, 13)
    assert look(store) == before


def test_apply_writes_exactly_the_plan(store: Path) -> None:
    apply_full(store)
    assert (store / LOG).read_bytes() == (
        pattern(4096)[:100] + pattern(300, 9) + pattern(4096)[400:4000] + bytes(96 + 4096)
    )
    assert (store / LOG2).read_bytes() == pattern(8192, 2)[:512] + pattern(5000, 8) + pattern(8192, 2)[5512:]
    assert (store / QUEUE).read_bytes() == pattern(600, 3)[:200]
    assert (store / QUEUE2).read_bytes() == pattern(400, 4) + pattern(40, 6) + bytes(560)
    assert (store / "config/topics.json").read_bytes() == b'{"topicConfigTable":{}}'
    assert (store / "consumequeue/TopicD/0/00000000000000000000").read_bytes() == pattern(60) + bytes(5940)
    assert not (store / "commitlog/stray").exists()
    assert not (store / "consumequeue/TopicC").exists()
    assert not (store / "lock").exists()


def test_changed_files_keep_owner_mode_and_times(store: Path) -> None:
    before = look(store)
    apply_full(store)
    after = look(store)
    for name in (LOG, LOG2, QUEUE, QUEUE2):
        assert after[name][:5] == before[name][:5], name
    assert after[LOG2][1] == 0o640


def test_created_files_take_mode_and_times_from_their_neighbour(store: Path) -> None:
    (store / QUEUE2).chmod(0o604)
    like = (store / QUEUE2).stat()
    new = "consumequeue/TopicB/0/00000000000000006000"
    journal.apply(plan_of(store, Create(new, 50, Literal(b"x"), QUEUE2)), disk=CountingDisk())
    made = (store / new).stat()
    assert stat.S_IMODE(made.st_mode) == 0o604
    assert (made.st_mtime_ns, made.st_uid, made.st_gid) == (like.st_mtime_ns, like.st_uid, like.st_gid)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_created_files_take_the_owner_of_their_neighbour(store: Path) -> None:
    os.chown(store / QUEUE2, 12345, 23456)
    new = "consumequeue/TopicB/0/00000000000000006000"
    applied = journal.apply(plan_of(store, Create(new, 50, Literal(b"x"), QUEUE2)), disk=CountingDisk())
    assert ((store / new).stat().st_uid, (store / new).stat().st_gid) == (12345, 23456)
    assert applied.journal is not None


def test_damaged_spans_are_saved(store: Path) -> None:
    path = apply_full(store)
    assert (path / "lost+found/100.bin").read_bytes() == pattern(4096)[100:400]
    journal.undo(path, disk=CountingDisk())
    assert (path / "lost+found/100.bin").read_bytes() == pattern(4096)[100:400]


def test_discarded_entries_are_moved_not_copied(store: Path) -> None:
    inode = (store / "config/topics.json").stat().st_ino
    path = apply_full(store)
    assert (path / "quarantine/000005-topics.json").stat().st_ino == inode
    assert (path / "quarantine/000007-stray/deep/note.txt").read_bytes() == b"note"


def test_empty_plan_leaves_no_journal(store: Path) -> None:
    before = look(store)
    assert journal.apply(plan_of(store)) == journal.Applied(None, 0)
    assert look(store) == before and not (store / ".rmqstore").exists()


def stale(store: Path) -> dict[str, Step]:
    return {
        "overwritten bytes": Overwrite(LOG, 0, Zeros(10), "sha256:" + "0" * 64),
        "range behind the end": Overwrite(LOG, 8190, Zeros(10), "sha256:" + "0" * 64),
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
    *("overwritten bytes", "range behind the end", "file that is gone", "directory for a file", "tail", "size"),
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


def test_content_of_another_size_than_announced_changes_nothing(store: Path) -> None:
    before = look(store)
    wrong = Reencoded(100, lambda: iter([b"x" * 99]))
    with pytest.raises(PlanStale, match="announced with 100 bytes turned out to have 99"):
        journal.apply(plan_of(store, Create("commitlog/new", 100, wrong)), disk=CountingDisk())
    assert look(store) == before and not (store / ".rmqstore").exists()


def test_full_disk_is_found_out_before_anything_is_written(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = look(store)
    monkeypatch.setattr(preflight, "free_bytes", lambda place: 1_000_000)
    with pytest.raises(NoSpace, match="1,000,000 are free"):
        apply_full(store)
    assert look(store) == before and not (store / ".rmqstore").exists()


def test_discard_needs_no_space_for_what_it_moves(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (store / "commitlog/stray/huge").open("wb") as file:
        file.truncate(1 << 26)
    monkeypatch.setattr(preflight, "free_bytes", lambda place: 2_000_000)
    journal.apply(plan_of(store, discard(store, "commitlog/stray")), disk=CountingDisk())
    assert not (store / "commitlog/stray").exists()


def test_brake_is_released_by_the_digest_of_the_plan_only(store: Path) -> None:
    before = look(store)
    braked = plan_of(store, overwrite(store, LOG, 0, Zeros(10)), brakes=("more than 10 % is damaged",))
    with pytest.raises(Refused, match="more than 10 % is damaged") as caught:
        journal.apply(braked)
    assert braked.digest in caught.value.advice
    with pytest.raises(Refused, match="names another plan"):
        journal.apply(braked, force_digest="0123456789abcdef")
    assert look(store) == before
    assert journal.apply(braked, force_digest=braked.digest, disk=CountingDisk()).steps == 1


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(1)[0]
        file.seek(at)
        file.write(bytes([old ^ 1]))


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
    "a file in a made directory": (
        lambda store: (store / "consumequeue/TopicD/1").mkdir(),
        "consumequeue/TopicD/1",
    ),
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


def test_undo_twice_changes_nothing_the_second_time(store: Path) -> None:
    path = apply_full(store)
    journal.undo(path, disk=CountingDisk())
    (store / LOG).write_bytes(b"a broker has been here")
    before = look(store)
    assert journal.undo(path, disk=CountingDisk()) == journal.Undone(store, 0)
    assert look(store) == before


def test_journals_are_undone_newest_first(store: Path) -> None:
    before = look(store)
    one = journal.apply(plan_of(store, overwrite(store, LOG, 0, Zeros(10))), disk=CountingDisk()).journal
    two = journal.apply(plan_of(store, overwrite(store, LOG, 5, Literal(b"12345678"))), disk=CountingDisk()).journal
    assert one is not None and two is not None and one.name < two.name
    with pytest.raises(Refused, match=two.name) as caught:
        journal.undo(one)
    assert str(two) in caught.value.advice
    journal.undo(two, disk=CountingDisk())
    journal.undo(one, disk=CountingDisk())
    assert look(store) == before
    assert [info.state for info in journal.list_journals(store)] == ["undone", "undone"]


def test_names_tell_the_order_when_the_clock_goes_back(store: Path) -> None:
    future = store / ".rmqstore" / "20990101T000000.000000Z"
    one = apply_full(store)
    one.rename(future)
    two = journal.apply(plan_of(store, overwrite(store, "checkpoint", 0, Zeros(1))), disk=CountingDisk()).journal
    assert two == store / ".rmqstore" / "20990101T000000.000000Z-2"
    assert [info.path for info in journal.list_journals(store)] == [future, two]


def half_apply(store: Path) -> Path:
    with pytest.raises(HalfApplied):
        journal.apply(full_plan(store), disk=failing_at(150, for_good=True))
    [info] = journal.find_unfinished(store)
    assert info.state == "applying" and 0 < info.batches_done < info.batches
    return info.path


def test_apply_refuses_while_a_journal_is_unfinished(store: Path) -> None:
    path = half_apply(store)
    before = look(store)
    with pytest.raises(Refused) as caught:
        journal.apply(plan_of(store, overwrite(store, "checkpoint", 0, Zeros(1))))
    assert f"rmqstore undo {path}" in caught.value.advice and f"rmqstore resume {path}" in caught.value.advice
    assert look(store) == before


def test_resume_refuses_what_somebody_else_changed(store: Path) -> None:
    path = half_apply(store)
    flip(store / QUEUE2, 0)
    (store / QUEUE2).write_bytes(b"longer than before" * 100)
    before = look(store, root_time=False)
    del before["lock"]  # what the apply left that failed for good is removed, as it made it
    with pytest.raises(ChangedSince, match=QUEUE2):
        journal.resume(path, disk=CountingDisk())
    assert look(store, root_time=False) == before


def test_resume_of_a_finished_journal_does_nothing(store: Path) -> None:
    path = apply_full(store)
    before = look(store)
    assert journal.resume(path) == journal.Applied(path, 0)
    assert look(store) == before


def test_resume_after_undo_is_refused(store: Path) -> None:
    path = apply_full(store)
    journal.undo(path, disk=CountingDisk())
    with pytest.raises(Refused, match="was undone"):
        journal.resume(path)


def test_ctrl_c_takes_back_what_was_done(store: Path) -> None:
    before = look(store)

    def interrupt(done: int, of: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        journal.apply(full_plan(store), disk=CountingDisk(), progress=interrupt)
    assert look(store, root_time=False) == {**before, ".": (*before["."][:4], 0, before["."][5])}
    assert [info.state for info in journal.list_journals(store)] == ["undone"]


def test_many_batches_are_undone_and_resumed_like_one(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_STEPS", 2)
    before = look(store)
    steps = [overwrite(store, LOG, at * 100, Literal(b"new" * 10)) for at in range(9)]
    with pytest.raises(HalfApplied):
        journal.apply(plan_of(store, *steps), disk=failing_at(75, for_good=True))
    [info] = journal.find_unfinished(store)
    assert info.batches == 5 and 0 < info.batches_done < 5
    journal.resume(info.path, disk=CountingDisk())
    assert (store / LOG).read_bytes()[:830] == b"".join(
        b"new" * 10 + pattern(4096)[at * 100 + 30 : at * 100 + 100] for at in range(9)
    )[:830]
    journal.undo(info.path, disk=CountingDisk())
    assert look(store) == before


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


def other_file_system(path: Path) -> Path | None:
    for candidate in (Path("/dev/shm"), Path("/tmp")):
        if candidate.is_dir() and os.access(candidate, os.W_OK) and candidate.stat().st_dev != path.stat().st_dev:
            return candidate
    return None


def test_journal_on_another_file_system_keeps_the_quarantine_in_the_store(store: Path, tmp_path: Path) -> None:
    other = other_file_system(tmp_path)
    if other is None:
        pytest.skip("there is no second file system to write to")
    before = look(store)
    outside = other / f"rmqstore-test-{os.getpid()}"
    outside.mkdir()
    try:
        path = journal.apply(full_plan(store), journal_dir=outside, disk=CountingDisk()).journal
        assert path is not None
        pointer = store / ".rmqstore" / path.name
        assert (pointer / "quarantine/000005-topics.json").exists()
        assert (path / "undo.log").stat().st_size > 5000
        journal.undo(path, disk=CountingDisk())
        assert look(store) == before
    finally:
        shutil.rmtree(outside)


def test_link_at_the_top_to_another_file_system_gets_its_own_quarantine(store: Path, tmp_path: Path) -> None:
    other = other_file_system(tmp_path)
    if other is None:
        pytest.skip("there is no second file system to write to")
    disk2 = other / f"rmqstore-test-{os.getpid()}"
    disk2.mkdir()
    try:
        shutil.copytree(store / "commitlog", disk2 / "commitlog")
        shutil.rmtree(store / "commitlog")
        (store / "commitlog").symlink_to(disk2 / "commitlog")
        before = look(disk2)
        path = journal.apply(full_plan(store), disk=CountingDisk()).journal
        assert path is not None
        assert (disk2 / ".rmqstore" / path.name / "quarantine/000007-stray/deep/note.txt").exists()
        assert (path / "quarantine/000005-topics.json").exists()
        journal.undo(path, disk=CountingDisk())
        after = look(disk2)
        assert {**after, ".": before["."]} == before
    finally:
        shutil.rmtree(disk2)


def test_further_data_path_is_changed_and_restored(store: Path, tmp_path: Path) -> None:
    root = tmp_path / "disk2" / "commitlog"
    shutil.copytree(store / "commitlog", root)
    before = look(root)
    name = f"{root}/00000000000000008192"
    steps = (overwrite(store, name, 10, Zeros(20)), discard(store, f"{root}/stray"))
    path = journal.apply(plan_of(store, *steps, roots=(str(root),)), disk=CountingDisk()).journal
    assert path is not None
    assert Path(name).read_bytes()[10:30] == bytes(20) and not (root / "stray").exists()
    journal.undo(path, disk=CountingDisk())
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
    with pytest.raises(PlanStale, match="is no file"):
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
    with pytest.raises(Refused, match="does not know"):
        journal.undo(tmp_path / "forged" / path.name)
    assert look(store) == before


def test_forged_state_cannot_name_folders_elsewhere(store: Path) -> None:
    path = apply_full(store)
    state = json.loads((path / "state").read_bytes())
    (path / "state").write_text(json.dumps({**state, "homes": ["/etc"]}))
    with pytest.raises(NotAStore):
        journal.undo(path)


def test_damaged_state_is_not_taken_for_an_apply_that_never_began(store: Path) -> None:
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


def test_what_is_no_journal_is_not_undone(store: Path) -> None:
    for path in (store, store / "commitlog", store / "nothing"):
        with pytest.raises(NotAStore):
            journal.undo(path)


def test_journal_inside_of_the_store_cannot_be_asked_for(store: Path) -> None:
    with pytest.raises(UsageError, match="lies in the store"):
        journal.apply(full_plan(store), journal_dir=store / "commitlog")


def test_store_that_is_gone_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        journal.apply(Plan(str(tmp_path / "gone"), (MakeDirectory("x"),)))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_file_that_may_not_be_written_is_found_out_first(store: Path) -> None:
    (store / LOG2).chmod(0o400)
    with pytest.raises(NotReadable):
        journal.apply(plan_of(store, overwrite(store, LOG, 0, Zeros(1)), overwrite(store, LOG2, 0, Zeros(1))))


def test_one_file_under_two_names_is_refused(store: Path, tmp_path: Path) -> None:
    shutil.move(store / "commitlog", tmp_path / "commitlog")
    (store / "commitlog").symlink_to(tmp_path / "commitlog")
    other = f"{tmp_path}/commitlog/00000000000000000000"
    steps = (overwrite(store, LOG, 0, Zeros(10)), overwrite(store, other, 0, Literal(b"0123456789")))
    with pytest.raises(Refused, match="the same file"):
        journal.apply(plan_of(store, *steps, roots=(f"{tmp_path}/commitlog",)))


def test_memory_stays_bounded_however_large_a_step_is(store: Path) -> None:
    size = 48 << 20
    block = pattern(4096, 7)
    with (store / "commitlog/00000000000000016384").open("wb") as file:
        for _ in range(size // 4096):
            file.write(block)

    def source() -> object:
        return (block[::-1] for _ in range(size // 4096))

    big = Reencoded(size, source)  # type: ignore[arg-type]
    plan = plan_of(store, overwrite(store, "commitlog/00000000000000016384", 0, big))
    tracemalloc.start()
    try:
        path = journal.apply(plan).journal
        assert path is not None
        journal.undo(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12 << 20
    with (store / "commitlog/00000000000000016384").open("rb") as file:
        assert file.read(4096) == block


def test_journal_of_a_copied_store_undoes_the_copy(store: Path, tmp_path: Path) -> None:
    before = look(store)
    path = apply_full(store)
    after = look(store)
    copy = Path(shutil.copytree(store, tmp_path / "copy", symlinks=True))
    journal.undo(copy / ".rmqstore" / path.name, disk=CountingDisk())
    assert look(store) == after
    assert look(copy) == before


def test_span_longer_than_its_file_is_stale(store: Path) -> None:
    plan = plan_of(store, overwrite(store, LOG, 0, Zeros(1)), spans=(Span(LOG, 8000, 1000, "8000.bin"),))
    with pytest.raises(PlanStale, match=r"8000\.bin"):
        journal.apply(plan, disk=CountingDisk())


def test_lazy_content_is_staged_before_the_first_change(store: Path) -> None:
    """A source may read what the plan itself overwrites."""
    old = (store / LOG).read_bytes()

    def source() -> object:
        yield (store / LOG).read_bytes()[:500]

    steps = (overwrite(store, LOG, 0, Zeros(500)), overwrite(store, LOG2, 0, Reencoded(500, source)))  # type: ignore[arg-type]
    journal.apply(plan_of(store, *steps), disk=CountingDisk())
    assert (store / LOG2).read_bytes()[:500] == old[:500]
    assert lazily(old).size == 8192
