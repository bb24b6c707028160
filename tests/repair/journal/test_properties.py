"""Random plans for random trees: undo after apply restores the tree, with or without a fault at any call."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.documents.plan import Plan, plan_from_json
from rmqstore.errors import HalfApplied, RmqStoreError
from rmqstore.repair.journal import batches, journal
from tests.repair.random_plans import build, draw_plan, trees
from tests.repair.trees import CountingDisk, failing_at, look
from tests.seeds import examples


@pytest.fixture(autouse=True)
def short_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_STEPS", 3)


@settings(max_examples=examples(60))
@given(st.data())
def test_apply_and_undo_of_any_plan_are_identity(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder).resolve() / "store"
        tree = data.draw(trees())
        build(store, tree)
        plan = draw_plan(data.draw, store, tree)  # type: ignore[arg-type]
        before = look(store)
        again = plan_from_json("".join(plan.iter_json()))
        assert again.digest == plan.digest
        copy = Path(shutil.copytree(store, Path(folder).resolve() / "copy"))
        path = journal.apply(plan, disk=CountingDisk()).journal
        if path is None:
            assert look(store) == before
            return
        after = look_untimed(store)
        journal.undo(path, disk=CountingDisk())
        assert look(store) == before
        moved = Plan(str(copy), again.steps, spans=again.spans)
        journal.apply(moved, disk=CountingDisk())
        assert look_untimed(copy) == after


@settings(max_examples=examples(60))
@given(st.data())
def test_fault_in_any_plan_can_be_undone_and_resumed(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder).resolve() / "store"
        tree = data.draw(trees())
        build(store, tree)
        plan = draw_plan(data.draw, store, tree)  # type: ignore[arg-type]
        before = look(store)
        index = data.draw(st.integers(20, 250))
        try:
            journal.apply(
                plan, disk=failing_at(index, tear=data.draw(st.booleans()), for_good=data.draw(st.booleans()))
            )
            return
        except HalfApplied:
            pass
        except RmqStoreError:
            assert journal.find_unfinished(store) == []
            for info in journal.list_journals(store):
                journal.undo(info.path, disk=CountingDisk())
            assert look(store, root_time=False) == {**before, ".": (*before["."][:4], 0, before["."][5])}
            return
        [info] = journal.list_journals(store)
        copy = Path(shutil.copytree(store, Path(folder).resolve() / "copy"))
        journal.undo(info.path, disk=CountingDisk())
        assert look(store) == before
        journal.resume(copy / ".rmqstore" / info.path.name, disk=CountingDisk())
        journal.apply(plan, disk=CountingDisk())
        assert look_untimed(copy) == look_untimed(store)
        journal.undo(copy / ".rmqstore" / info.path.name, disk=CountingDisk())
        assert look_untimed(copy) == {name: (*row[:4], 0, row[5]) for name, row in before.items()}


def look_untimed(store: Path) -> dict[str, tuple[str, int, int, int, int, bytes]]:
    """Take a snapshot without the times of files that have the time of their creation, for want of a neighbour."""
    return {name: (*row[:4], 0, row[5]) for name, row in look(store).items()}
