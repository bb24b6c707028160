"""apply, undo and resume without disk faults, in unusual circumstances."""

from __future__ import annotations

import os
import shutil
import stat
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.documents.content import Literal, Reencoded, Zeros
from rmqstore.documents.steps import Create, Span
from rmqstore.errors import ChangedSince, HalfApplied, NoSpace, NotReadable, PlanStale, Refused, StoreIsLive
from rmqstore.files.users import Hidden, Users
from rmqstore.repair.journal import batches, journal, lock, pruning, staging
from tests.damage import flip
from tests.repair.journals import apply_full, half_apply, plan_of
from tests.repair.trees import CountingDisk, discard, failing_at, full_plan, lazily, look, overwrite, pattern, truncate

LOG = "commitlog/00000000000000000000"
LOG2 = "commitlog/00000000000000008192"
QUEUE = "consumequeue/TopicA/0/00000000000000000000"
QUEUE2 = "consumequeue/TopicB/0/00000000000000000000"


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


def test_content_of_another_size_than_announced_changes_nothing(store: Path) -> None:
    before = look(store)
    wrong = Reencoded(100, lambda: iter([b"x" * 99]))
    with pytest.raises(PlanStale, match="announced with 100 bytes turned out to have 99"):
        journal.apply(plan_of(store, Create("commitlog/new", 100, wrong)), disk=CountingDisk())
    assert look(store) == before and not (store / ".rmqstore").exists()


def test_full_disk_is_found_out_before_anything_is_written(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = look(store)
    monkeypatch.setattr(staging, "free_bytes", lambda place: 1_000_000)
    with pytest.raises(NoSpace, match="1,000,000 are free"):
        apply_full(store)
    assert look(store) == before and not (store / ".rmqstore").exists()


def test_discard_needs_no_space_for_what_it_moves(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (store / "commitlog/stray/huge").open("wb") as file:
        file.truncate(1 << 26)
    monkeypatch.setattr(staging, "free_bytes", lambda place: 2_000_000)
    journal.apply(plan_of(store, discard(store, "commitlog/stray")), disk=CountingDisk())
    assert not (store / "commitlog/stray").exists()


def test_a_plan_that_needs_a_decision_is_applied_by_its_digest_only(store: Path) -> None:
    before = look(store)
    undecided = plan_of(store, overwrite(store, LOG, 0, Zeros(10)), decisions=("more than 10 % is damaged",))
    with pytest.raises(Refused, match="more than 10 % is damaged") as caught:
        journal.apply(undecided)
    assert undecided.digest in caught.value.advice
    with pytest.raises(Refused, match="names another plan"):
        journal.apply(undecided, force_digest="0123456789abcdef")
    assert look(store) == before
    assert journal.apply(undecided, force_digest=undecided.digest, disk=CountingDisk()).steps == 1


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


def test_journal_names_keep_the_order_when_the_clock_goes_back(store: Path) -> None:
    future = store / ".rmqstore" / "20990101T000000.000000Z"
    one = apply_full(store)
    one.rename(future)
    two = journal.apply(plan_of(store, overwrite(store, "checkpoint", 0, Zeros(1))), disk=CountingDisk()).journal
    assert two == store / ".rmqstore" / "20990101T000000.000000Z-2"
    assert [info.path for info in journal.list_journals(store)] == [future, two]


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
    del before["lock"]  # undo removes it, because the failed apply created it
    with pytest.raises(ChangedSince, match=QUEUE2):
        journal.resume(path, disk=CountingDisk())
    assert look(store, root_time=False) == before


def test_resume_refuses_to_cut_what_somebody_else_changed(store: Path) -> None:
    plan, disk = plan_of(store, truncate(store, QUEUE, 200)), CountingDisk()
    applied = journal.apply(plan, disk=disk).journal
    assert applied is not None
    journal.undo(applied)
    pruning.prune(applied)
    with pytest.raises(HalfApplied):
        journal.apply(plan, disk=failing_at(disk.calls.index("truncate"), for_good=True))
    [left] = journal.find_unfinished(store)
    flip(store / QUEUE, 250)
    with pytest.raises(ChangedSince, match=QUEUE):
        journal.resume(left.path, disk=CountingDisk())
    assert (store / QUEUE).stat().st_size == 600


@pytest.mark.parametrize("command", [journal.undo, journal.resume])
def test_a_broker_that_may_run_hidden_is_refused_unless_the_operator_says_it_is_stopped(
    command: Callable[..., object], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = half_apply(store)
    hidden = Users(hidden=(Hidden(4711, "java", 1000),))
    monkeypatch.setattr(lock, "find_users", lambda places, files: hidden)
    with pytest.raises(StoreIsLive):
        command(path, disk=CountingDisk())
    assert journal.find_unfinished(store)
    command(path, disk=CountingDisk(), stopped=True)
    assert not journal.find_unfinished(store)


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


def test_ctrl_c_undoes_the_applied_steps(store: Path) -> None:
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
    assert info.record.batches == 5 and 0 < info.batches_done < 5
    journal.resume(info.path, disk=CountingDisk())
    assert (store / LOG).read_bytes()[:830] == b"".join(
        b"new" * 10 + pattern(4096)[at * 100 + 30 : at * 100 + 100] for at in range(9)
    )[:830]
    journal.undo(info.path, disk=CountingDisk())
    assert look(store) == before


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
    with (store / "commitlog/00000000000000016384").open("rb") as undone:
        assert undone.read(4096) == block


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
    """A source may read bytes that the plan overwrites."""
    old = (store / LOG).read_bytes()

    def source() -> object:
        yield (store / LOG).read_bytes()[:500]

    steps = (overwrite(store, LOG, 0, Zeros(500)), overwrite(store, LOG2, 0, Reencoded(500, source)))  # type: ignore[arg-type]
    journal.apply(plan_of(store, *steps), disk=CountingDisk())
    assert (store / LOG2).read_bytes()[:500] == old[:500]
    assert lazily(old).size == 8192


def test_space_for_an_overwrite_is_that_of_both_contents(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal takes the old and the new bytes; in the file, the new ones take the place of the old ones."""
    size = 4 << 20
    (store / LOG).write_bytes(b"o" * size)
    plan = plan_of(store, overwrite(store, LOG, 0, Literal(b"n" * size)))
    monkeypatch.setattr(staging, "free_bytes", lambda place: 2 * size + (2 << 20))
    journal.apply(plan, disk=CountingDisk())
    assert (store / LOG).read_bytes() == b"n" * size
