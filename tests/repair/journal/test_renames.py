"""Renames of files to each other's names: a fault at every call, kill -9, undo, resume; a broker never sees a gap.

The plan combines all kinds of renames: a cycle of three files, a file that moves to a free name (or to that of an empty
file), steps on renamed files, and a new file with a name that has become free.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqstore.documents.content import Literal, Zeros
from rmqstore.documents.plan import Plan, plan_from_json
from rmqstore.documents.steps import Create, Extend, Overwrite, Rename, SetAside, Span, Step, Truncate
from rmqstore.errors import BrokenPlan, ChangedSince, HalfApplied, PlanStale, RmqStoreError
from rmqstore.files.mapped_file_queue import file_name_to_offset, offset_to_file_name
from rmqstore.repair.journal import journal
from rmqstore.repair.journal.disk import Disk
from rmqstore.repair.plan.plan_builder import fingerprint_entry, fingerprint_range
from rmqstore.repair.plan.plan_text import describe
from tests.repair.journal.test_faults import check_undo_and_resume, parts
from tests.repair.journal.test_order import StrictDisk
from tests.repair.trees import (
    OLD,
    CountingDisk,
    Entry,
    discard,
    failing_at,
    killed_at,
    look,
    overwrite,
    pattern,
    stopped_and_again,
)

SIZE = 4096
CIRCLE = {0: SIZE, SIZE: 2 * SIZE, 2 * SIZE: 0}
NO_FILE = "sha256:" + "0" * 64
FREE = {3 * SIZE: 4 * SIZE}


def name(offset: int) -> str:
    return f"commitlog/{offset_to_file_name(offset)}"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return build(tmp_path / "store")


def build(store: Path) -> Path:
    (store / "commitlog").mkdir(parents=True)
    for number in range(4):
        path = store / name(number * SIZE)
        path.write_bytes(pattern(SIZE, number + 1))
        path.chmod(0o600 + number)
    (store / name(4 * SIZE)).touch()
    (store / "checkpoint").write_bytes(pattern(100))
    for number, path in enumerate(sorted(store.rglob("*"), reverse=True)):
        os.utime(path, ns=(OLD, OLD + number * 7_000_000_000))
    os.utime(store, ns=(OLD, OLD))
    return store


def rename(store: Path, moves: dict[int, int]) -> list[Step]:
    aside = [SetAside(name(old), fingerprint_entry(store / name(old)), "test", SIZE) for old in moves]
    return [*aside, *(Rename(name(new), name(old), "test", SIZE) for old, new in moves.items())]


def after(store: Path, old: int, new: int, at: int, size: int) -> Overwrite:
    """Return an overwrite of the file that is renamed from `old` to `new`."""
    expect = fingerprint_range(store / name(old), at, size)
    return Overwrite(name(new), at, Literal(pattern(size, 9)), expect, "test")


def full_plan(store: Path) -> Plan:
    cut = fingerprint_range(store / name(2 * SIZE), 3000, SIZE - 3000)
    steps = [
        *rename(store, CIRCLE | FREE),
        discard(store, name(4 * SIZE)),
        after(store, 0, SIZE, 100, 300),
        after(store, 3 * SIZE, 4 * SIZE, 500, 2000),
        Truncate(name(0), SIZE, 3000, cut, "test"),
        Extend(name(4 * SIZE), SIZE, SIZE + 50, Literal(pattern(50, 7)), "test"),
        Create(name(3 * SIZE), SIZE, Literal(pattern(60)), name(SIZE), "test"),
        overwrite(store, "checkpoint", 8, Zeros(8)),
    ]
    return Plan(str(store), tuple(steps), spans=(Span(name(SIZE), 100, 300, "100.bin"),))


def pure_plan(store: Path) -> Plan:
    return Plan(str(store), tuple(rename(store, CIRCLE)))


def apply(store: Path, plan: Plan | None = None, disk: Disk | None = None) -> Path:
    path = journal.apply(plan or full_plan(store), disk=disk or CountingDisk()).journal
    assert path is not None
    return path


def bytes_of(seen: dict[str, Entry]) -> dict[str, bytes]:
    return {key: row[5] for key, row in seen.items() if row[0] == "file"}


def test_files_have_their_names_and_the_steps_on_them_are_done(store: Path) -> None:
    before, seen = bytes_of(look(store)), look(store)
    path = apply(store)
    now, rows = bytes_of(look(store)), look(store)
    assert now[name(0)] == before[name(2 * SIZE)][:3000]
    assert now[name(2 * SIZE)] == before[name(SIZE)]
    first = before[name(0)]
    assert now[name(SIZE)] == first[:100] + pattern(300, 9) + first[400:]
    last = before[name(3 * SIZE)]
    assert now[name(4 * SIZE)] == last[:500] + pattern(2000, 9) + last[2500:] + pattern(50, 7)
    assert now[name(3 * SIZE)] == pattern(60) + bytes(SIZE - 60)
    assert sorted(now) == sorted(before)
    for old, new in (CIRCLE | FREE).items():  # a rename keeps mode, owner and time
        assert rows[name(new)][1:5] == seen[name(old)][1:5]
    assert (path / "lost+found/100.bin").read_bytes() == first[100:400]
    journal.undo(path, disk=CountingDisk())
    assert look(store, root_time=False) == {**seen, ".": (*seen["."][:4], 0, seen["."][5])}


class Guard(CountingDisk):
    """A disk that checks before every call that all log names are old, or all new, or one of them is not an offset."""

    def __init__(self, store: Path, sound: list[set[str]], at: Callable[[int, str], None]) -> None:
        super().__init__(self._look)
        self.then, self.store, self.sound, self.open = at, store, sound, 0

    def _look(self, number: int, call: str) -> None:
        names = {entry.name for entry in (self.store / "commitlog").iterdir()}
        if any(file_name_to_offset(one) is None for one in names):
            self.open += 1
        else:
            assert names in self.sound, (number, call)
        self.then(number, call)


def test_a_broker_finds_all_names_or_one_that_it_does_not_load(store: Path, tmp_path: Path) -> None:
    other = build(tmp_path / "other")
    before = {path.name for path in (store / "commitlog").iterdir()}
    renamed = (before - {offset_to_file_name(3 * SIZE)}) | {offset_to_file_name(4 * SIZE)}
    sound = [before, before - {offset_to_file_name(4 * SIZE)}, renamed, renamed | {offset_to_file_name(3 * SIZE)}]
    guard = Guard(store, sound, lambda number, call: None)
    path = apply(store, disk=guard)
    assert guard.open > 2 * len(CIRCLE | FREE)
    guard.open = 0
    journal.undo(path, disk=guard)
    assert guard.open > 2 * len(CIRCLE | FREE)
    assert bytes_of(look(store)) == bytes_of(look(other))


def test_names_are_durable_before_the_next_batch_begins(store: Path) -> None:
    disk = StrictDisk(store)
    path = apply(store, disk=disk)
    assert disk.changes >= 14 and disk.marks == 10
    back = StrictDisk(store)
    journal.undo(path, disk=back)
    assert back.changes >= 14 and back.marks == 9


def stores(place: Path) -> Iterator[Path]:
    """Yield copies of the same store, all with the times of the first one."""
    original = build(place / "original")
    while True:
        store = Path(shutil.copytree(original, place / "store", symlinks=True))
        yield store
        shutil.rmtree(place / "other", ignore_errors=True)
        shutil.rmtree(store)


def no_folder_times(seen: dict[str, Entry]) -> dict[str, Entry]:
    return {key: (*row[:4], 0 if row[0] == "folder" else row[4], row[5]) for key, row in seen.items()}


_QUICK = {(pure_plan, "error", 0), (pure_plan, "kill-torn", 1), (full_plan, "kill-torn", 2)}
_WAYS = {pure_plan: ("error", "kill-torn"), full_plan: ("error", "torn", "for-good", "kill", "kill-torn")}


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize(
    ("make", "way", "part"),
    [
        pytest.param(make, way, part, marks=() if (make, way, part) in _QUICK else pytest.mark.slow)
        for make, ways in _WAYS.items()
        for way in ways
        for part in range(3)
    ],
)
def test_apply_that_stops_at_any_call_is_undone_and_resumed(
    tmp_path: Path, way: str, make: Callable[[Path], Plan], part: int
) -> None:
    fresh = stores(tmp_path)
    store = next(fresh)
    counted = CountingDisk()
    apply(store, make(store), counted)
    done = look(store, folder_times=False)
    states = set()
    for index in range(len(counted.calls))[part::3]:
        store = next(fresh)
        before, plan = look(store), make(store)
        stopped = True
        if way.startswith("kill"):
            stopped = killed_at(index, lambda disk, plan=plan: journal.apply(plan, disk=disk), tear="torn" in way)  # type: ignore[misc]
        else:
            with contextlib.suppress(RmqStoreError):
                apply(store, plan, failing_at(index, tear=way == "torn", for_good=way == "for-good"))
                stopped = False
        if stopped:
            states.add(check_undo_and_resume(store, before, done, tmp_path / "other"))
    assert "applying" in states


@pytest.mark.quick_rows
@pytest.mark.parametrize("make", [full_plan, pure_plan])
@pytest.mark.parametrize("way", ["error", pytest.param("kill-torn", marks=pytest.mark.slow)])
@pytest.mark.parametrize("half", [None, 0.6, 0.8], ids=["done", "half-1", "half-2"])
@parts(2, quick=0)
def test_undo_that_stops_at_any_call_can_be_run_again(
    tmp_path: Path, way: str, half: float | None, make: Callable[[Path], Plan], part: int
) -> None:
    applied = build(tmp_path / "applied")
    before = look(applied, folder_times=False)
    counted = CountingDisk()
    apply(build(tmp_path / "counted"), make(tmp_path / "counted"), counted)
    stop = None if half is None else int(len(counted.calls) * half)
    with contextlib.suppress(HalfApplied):
        apply(applied, make(applied), CountingDisk() if stop is None else failing_at(stop, for_good=True))
    [info] = journal.list_journals(applied)
    assert (info.state == "done") == (half is None)
    back = CountingDisk()
    journal.undo(copy(applied, tmp_path / "back") / ".rmqstore" / info.path.name, disk=back)
    for index in range(len(back.calls))[part::2]:
        store = copy(applied, tmp_path / "store")
        path = store / ".rmqstore" / info.path.name
        stopped_and_again(journal.undo, path, index, way)
        assert no_folder_times(look(store)) == before, (index, back.calls[index])
        shutil.rmtree(store)


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("way", ["error", pytest.param("kill-torn", marks=pytest.mark.slow)])
@pytest.mark.parametrize("half", [0.5, 0.6, 0.7])
@parts(2, quick=1)
def test_resume_that_stops_at_any_call_can_be_run_again(tmp_path: Path, way: str, half: float, part: int) -> None:
    counted = CountingDisk()
    whole = build(tmp_path / "whole")
    apply(whole, disk=counted)
    done = look(whole, folder_times=False)
    stopped = build(tmp_path / "stopped")
    with contextlib.suppress(HalfApplied):
        apply(stopped, disk=failing_at(int(len(counted.calls) * half), for_good=True))
    [info] = journal.list_journals(stopped)
    on = CountingDisk()
    journal.resume(copy(stopped, tmp_path / "on") / ".rmqstore" / info.path.name, disk=on)
    for index in range(len(on.calls))[part::2]:
        store = copy(stopped, tmp_path / "store")
        path = store / ".rmqstore" / info.path.name
        stopped_and_again(journal.resume, path, index, way)
        assert look(store, folder_times=False) == done, (index, on.calls[index])
        shutil.rmtree(store)


def copy(source: Path, target: Path) -> Path:
    return Path(shutil.copytree(source, target, symlinks=True))


@pytest.mark.parametrize("make", [full_plan, pure_plan])
def test_undo_is_refused_when_a_renamed_file_was_written_since(store: Path, make: Callable[[Path], Plan]) -> None:
    path = apply(store, make(store))
    file = store / name(SIZE)
    with file.open("r+b") as out:
        out.seek(2000)
        out.write(b"new")
    seen = bytes_of(look(store))
    with pytest.raises(ChangedSince, match=offset_to_file_name(SIZE)):
        journal.undo(path, disk=CountingDisk())
    assert bytes_of(look(store)) == seen


def test_undo_is_refused_when_the_free_name_is_taken_again(store: Path) -> None:
    path = apply(store, Plan(str(store), (*rename(store, FREE), discard(store, name(4 * SIZE)))))
    (store / name(3 * SIZE)).write_bytes(b"a broker's")
    with pytest.raises(ChangedSince):
        journal.undo(path, disk=CountingDisk())
    assert (store / name(3 * SIZE)).read_bytes() == b"a broker's"


def test_name_that_something_else_took_while_files_were_aside_is_never_overwritten(store: Path) -> None:
    plan = pure_plan(store)
    counted = CountingDisk()
    journal.apply(pure_plan(copy(store, store.parent / "counted")), disk=counted)
    aside = [at for at, call in enumerate(counted.calls) if call == "rename"]
    stopped = 0
    for index in aside:
        one = copy(store, store.parent / "one")
        plan = pure_plan(one)
        with contextlib.suppress(RmqStoreError):
            journal.apply(plan, disk=failing_at(index, for_good=True))
        missing = [old for old in CIRCLE if not (one / name(old)).exists()]
        for old in missing:
            (one / name(old)).write_bytes(b"somebody's")
        if missing:
            stopped += 1
            [info] = journal.list_journals(one)
            for work in (journal.undo, journal.resume):
                with pytest.raises((ChangedSince, HalfApplied)):
                    work(info.path, disk=CountingDisk())
            assert [(one / name(old)).read_bytes() for old in missing] == [b"somebody's"] * len(missing)
        shutil.rmtree(one)
    assert stopped >= len(CIRCLE)


def test_plan_is_stale_when_a_file_or_its_new_name_has_changed(store: Path) -> None:
    plan = full_plan(store)
    taken = Plan(str(store), tuple(s for s in plan.steps if s.do != "discard"))
    with pytest.raises(PlanStale, match="already exists"):
        journal.apply(taken, disk=CountingDisk())
    with (store / name(0)).open("r+b") as out:
        out.write(b"x")
    with pytest.raises(PlanStale, match="has changed"):
        journal.apply(plan, disk=CountingDisk())
    assert not journal.list_journals(store)


def test_steps_of_renamed_files_come_back_from_json(store: Path) -> None:
    plan = full_plan(store)
    again = plan_from_json("".join(plan.iter_json()))
    assert again == plan and again.digest == plan.digest
    text = "\n".join(describe(plan))
    assert f"set {name(0)} aside" in text
    assert f"rename {name(0)}, already set aside, to {offset_to_file_name(SIZE)}" in text


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ((SetAside("commitlog/a", NO_FILE),), "must be set aside once"),
        ((Rename("commitlog/a", "commitlog/b"),), "must be set aside once"),
        ((SetAside("commitlog/a", NO_FILE), Rename("index/a", "commitlog/a")), "would leave its directory"),
        ((SetAside("commitlog/a", "nothing"), Rename("commitlog/b", "commitlog/a")), "expect must be"),
        (
            (
                SetAside("commitlog/a", NO_FILE),
                Rename("commitlog/b", "commitlog/a"),
                Truncate("commitlog/a", 9, 8, NO_FILE),
            ),
            "changed and also",
        ),
        (
            (
                SetAside("commitlog/a", NO_FILE),
                SetAside("commitlog/b", NO_FILE),
                Rename("commitlog/c", "commitlog/a"),
                Rename("commitlog/c", "commitlog/b"),
            ),
            "two steps of the same kind",
        ),
    ],
)
def test_contradicting_renames_are_refused(steps: tuple[Step, ...], why: str) -> None:
    with pytest.raises(BrokenPlan, match=why):
        Plan("/store", steps)
