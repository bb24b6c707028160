"""A fault at every single call of the disk: an error, a permanent error, a torn write, kill -9.

Only writes can be torn; other calls would behave as with an error or a kill. A permanent error and a kill have almost
the same result. Quick runs disturb each call of an apply in one of three ways, in turn, and every second call of an
undo or a resume; slow runs disturb the others.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqstore.documents.plan import Plan
from rmqstore.errors import HalfApplied, Refused, RmqStoreError
from rmqstore.repair.journal import journal
from rmqstore.repair.journal.disk import Disk
from tests.repair.trees import (
    CountingDisk,
    Entry,
    build,
    failing_at,
    full_plan,
    killed_at,
    look,
    places,
    stopped_and_again,
)


@pytest.fixture
def copies(tmp_path: Path) -> Callable[[str], Path]:
    """A function: `copies(name)` creates a new store; all of them are identical, including times."""
    original = build(tmp_path / "original")

    def make(name: str) -> Path:
        return copy(original, tmp_path / name)

    return make


def copy(source: Path, target: Path) -> Path:
    return Path(shutil.copytree(source, target, symlinks=True))


def after_apply(store: Path) -> tuple[dict[str, Entry], list[str]]:
    """Return the result of an apply without a fault, and its calls."""
    disk = CountingDisk()
    journal.apply(full_plan(store), disk=disk)
    return look(store, folder_times=False), disk.calls


def check_undo_and_resume(store: Path, before: dict[str, Entry], after: dict[str, Entry], place: Path) -> str:
    """Undo in one copy and resume in another, in any state of the journal, and return that state."""
    infos = journal.list_journals(store)
    if not infos:
        assert look(store, folder_times=False) == _without_folder_times(before)
        return "none"
    [info] = infos
    going_on = copy(store, place)
    journal.undo(info.path, disk=CountingDisk())
    assert look(store, root_time=False) == _without_root_time(before)
    assert not journal.find_unfinished(store)
    other = going_on / ".rmqstore" / info.path.name
    if info.state == "preparing":
        with pytest.raises(Refused, match="no change had been made"):
            journal.resume(other, disk=CountingDisk())
        assert look(going_on, folder_times=False) == _without_folder_times(before)
    else:
        journal.resume(other, disk=CountingDisk())
        assert look(going_on, folder_times=False) == after
        journal.undo(other, disk=CountingDisk())
        assert look(going_on, folder_times=False) == _without_folder_times(before)
    return info.state.value


def _without_folder_times(seen: dict[str, Entry]) -> dict[str, Entry]:
    return {name: (*row[:4], 0 if row[0] == "folder" else row[4], row[5]) for name, row in seen.items()}


def _without_root_time(seen: dict[str, Entry]) -> dict[str, Entry]:
    return {**seen, ".": (*seen["."][:4], 0, seen["."][5])}


def parts(count: int, quick: int) -> pytest.MarkDecorator:
    """Parametrize with parts of the calls: every `count`-th call from call number `part`; one part is quick."""
    rows = [pytest.param(n, marks=() if n == quick else pytest.mark.slow) for n in range(count)]
    return pytest.mark.parametrize("part", rows)


@pytest.mark.quick_rows
@pytest.mark.parametrize("tear", [False, True], ids=["error", "torn"])
@pytest.mark.parametrize(
    ("for_good", "part"),
    [
        pytest.param(for_good, part, id=f"{name}-{part}", marks=() if part == quick else pytest.mark.slow)
        for for_good, name, quick in ((False, "once", 0), (True, "for-good", 1))
        for part in range(3)
    ],
)
def test_error_at_any_call_leaves_a_store_that_undo_and_resume_end(
    copies: Callable[[str], Path], tmp_path: Path, tear: bool, for_good: bool, part: int
) -> None:
    after, calls = after_apply(copies("whole"))
    states = set()
    for index in places(calls, tear=tear)[part::3]:
        store = copies("store")
        before = look(store)
        plan = full_plan(store)
        try:
            journal.apply(plan, disk=failing_at(index, tear=tear, for_good=for_good))
            halted = None
        except RmqStoreError as error:
            halted = error
        states.add(check_undo_and_resume(store, before, after, tmp_path / "other") if halted else "done")
        if isinstance(halted, HalfApplied):
            assert halted.exit_code == 6
            assert "`rmqstore undo " in halted.advice and "`rmqstore resume " in halted.advice
        elif halted is not None:
            assert halted.exit_code == 5
        shutil.rmtree(store)
        shutil.rmtree(tmp_path / "other", ignore_errors=True)
    early = {"preparing" if for_good else "none"}
    assert {"applying"} | (set() if tear else early) <= states


@pytest.mark.parametrize("tear", [False, True], ids=["whole", "torn"])
@parts(3, quick=2)
def test_kill_at_any_call_leaves_a_store_that_undo_and_resume_end(
    copies: Callable[[str], Path], tmp_path: Path, tear: bool, part: int
) -> None:
    after, calls = after_apply(copies("whole"))
    states = set()
    for index in places(calls, tear=tear)[part::3]:
        store = copies("store")
        before = look(store)
        plan = full_plan(store)
        if killed_at(index, lambda disk, plan=plan: journal.apply(plan, disk=disk), tear=tear):  # type: ignore[misc]
            states.add(check_undo_and_resume(store, before, after, tmp_path / "other"))
        shutil.rmtree(store)
        shutil.rmtree(tmp_path / "other", ignore_errors=True)
    assert {"preparing", "applying"} | (set() if tear else {"none"}) <= states


def _ends() -> Iterator[object]:
    """Yield all kinds of faults for a finished journal, and kills and errors in turn for half-applied ones."""
    for stopped_after, name in ((None, "done"), (120, "half-1"), (150, "half-2")):
        for way in ("error", "torn", "kill", "kill-torn"):
            often = stopped_after is None or way.startswith("kill") == (stopped_after == 120)
            yield pytest.param(stopped_after, way, id=f"{name}-{way}", marks=() if often else pytest.mark.slow)


@pytest.mark.quick_rows(2)
@parts(2, quick=0)
@pytest.mark.parametrize(("stopped_after", "way"), [*_ends()])
def test_undo_that_stops_at_any_call_can_be_run_again(
    copies: Callable[[str], Path], stopped_after: int | None, way: str, part: int
) -> None:
    applied = copies("applied")
    before = look(applied)
    apply_until(full_plan(applied), stopped_after)
    [info] = journal.list_journals(applied)
    counted = CountingDisk()
    journal.undo(_journal(copy(applied, applied.parent / "counted"), info.path), disk=counted)
    for index in places(counted.calls, tear="torn" in way)[part::2]:
        store = copy(applied, applied.parent / "store")
        path = _journal(store, info.path)
        stopped_and_again(journal.undo, path, index, way)
        assert look(store, folder_times=False) == _without_folder_times(before), (index, counted.calls[index])
        shutil.rmtree(store)


@pytest.mark.quick_rows(2)
@parts(2, quick=1)
@pytest.mark.parametrize("way", ["error", "torn", "kill", "kill-torn"])
def test_resume_that_stops_at_any_call_can_be_run_again(copies: Callable[[str], Path], way: str, part: int) -> None:
    after, _ = after_apply(copies("whole"))
    half = copies("half")
    apply_until(full_plan(half), 120)
    [info] = journal.list_journals(half)
    counted = CountingDisk()
    journal.resume(_journal(copy(half, half.parent / "counted"), info.path), disk=counted)
    for index in places(counted.calls, tear="torn" in way)[part::2]:
        store = copy(half, half.parent / "store")
        path = _journal(store, info.path)
        stopped_and_again(journal.resume, path, index, way)
        assert look(store, folder_times=False) == after, (index, counted.calls[index])
        shutil.rmtree(store)


def apply_until(plan: Plan, index: int | None) -> None:
    disk: Disk = CountingDisk() if index is None else failing_at(index, for_good=True)
    try:
        journal.apply(plan, disk=disk)
    except HalfApplied:
        return
    assert index is None


def _journal(store: Path, original: Path) -> Path:
    return store / ".rmqstore" / original.name
