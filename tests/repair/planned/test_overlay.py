"""An overlay shows what the directory is after apply: the same entries, sizes, times and bytes."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.documents.content import Content, Equivalent, Literal, Parts, Reencoded, Zeros
from rmqstore.documents.plan import Plan
from rmqstore.documents.steps import Create, MakeDirectory
from rmqstore.files.files import LOCAL, DirEntry, Files, OpenFile
from rmqstore.repair.journal import journal
from rmqstore.repair.overlay import Overlay
from tests.repair.random_plans import build, draw_plan, trees
from tests.repair.trees import CountingDisk, discard, full_plan, lazily, pattern
from tests.repair.trees import build as build_store
from tests.seeds import examples, fresh

Shown = dict[str, tuple[bool, int, bytes]]


def shown(files: Files, root: Path, at: Path | None = None) -> Shown:
    """Return every entry below a root: whether it is a directory, its length and its bytes."""
    out: Shown = {}
    for entry in files.list(at or root):
        name = entry.path.relative_to(root).as_posix()
        if name == ".rmqstore":
            continue
        assert without_time(files.stat(entry.path)) == without_time(entry)
        if entry.directory:
            out[name] = (True, 0, b"")
            out |= shown(files, root, entry.path)
            with pytest.raises(OSError, match="not a regular file"):
                files.open(entry.path)
        else:
            out[name] = (False, entry.length, files.read_at(entry.path, entry.length + 10, 0))
    return out


def without_time(entry: DirEntry | None) -> DirEntry | None:
    """Directories, and files without a neighbour, have the time of their creation."""
    return entry and entry._replace(mtime_ns=0)


def read_everywhere(file: OpenFile, data: bytes, pick: random.Random) -> None:
    """Read at random positions, in random lengths; holes read as zeros, and are no data."""
    assert file.length == len(data)
    for _ in range(20):
        at, size = pick.randrange(len(data) + 50), pick.randrange(1, len(data) + 100)
        assert file.read(size, at) == data[at : at + size]
        buffer = bytearray(size)
        count = file.read_into(memoryview(buffer), at)
        assert bytes(buffer[:count]) == data[at : at + size]
        stop = min(at + size, len(data))
        file.will_read(at, stop)
        known = bytearray(max(stop - at, 0))
        for low, high in file.data_extents(at, stop):
            assert at <= low < high <= stop
            known[low - at : high - at] = data[low:high]
        assert bytes(known) == data[at:stop]


@settings(max_examples=examples(120))
@given(st.data(), st.integers(0, 1 << 30))
def test_reading_through_an_overlay_equals_reading_after_apply(data: st.DataObject, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder).resolve() / "store"
        tree = data.draw(trees())
        build(store, tree)
        plan = draw_plan(data.draw, store, tree)  # type: ignore[arg-type]
        overlay = Overlay(LOCAL, plan.steps, store)
        planned = shown(overlay, store)
        listed = {e.path: e for e in overlay.list(store / "commitlog")}
        opened = {name: overlay.open(store / name) for name, row in planned.items() if not row[0]}
        for name, file in opened.items():
            read_everywhere(file, planned[name][2], random.Random(seed))
            file.close()
        with overlay.local(store) as copy:
            assert shown(LOCAL, copy) == planned
        missing = [name for name in tree if name not in planned]
        assert not any(overlay.is_file(store / name) or overlay.read_at(store / name, 9, 0) for name in missing)
        journal.apply(plan, disk=CountingDisk())
        assert shown(LOCAL, store) == planned
        assert {e.path: e for e in LOCAL.list(store / "commitlog")} == listed


def test_every_kind_of_step(tmp_path: Path) -> None:
    store = build_store(tmp_path / "store")
    plan = full_plan(store)
    overlay = Overlay(LOCAL, plan.steps, store)
    planned = shown(overlay, store)
    assert "config/topics.json" in planned
    assert not overlay.changes(store / "abort")
    assert overlay.changes(store / "commitlog")
    assert overlay.changes(store / "consumequeue/TopicC/1")
    assert overlay.is_directory(store / "consumequeue/TopicD")
    assert overlay.stat(store / "commitlog/stray/deep/note.txt") is None
    assert overlay.list(store / "commitlog/stray") == []
    journal.apply(plan, disk=CountingDisk())
    assert shown(LOCAL, store) == planned


def test_directory_that_is_removed_and_made_again(tmp_path: Path) -> None:
    store = build_store(tmp_path / "store")
    steps = (
        discard(store, "commitlog"),
        MakeDirectory("commitlog"),
        Create("commitlog/00000000000000016384", 9000, Literal(b"new"), "checkpoint"),
    )
    overlay = Overlay(LOCAL, steps, store)
    planned = shown(overlay, store)
    assert [name for name in planned if name.startswith("commitlog")] == ["commitlog", f"commitlog/{16384:020}"]
    journal.apply(Plan(str(store), steps), disk=CountingDisk())
    assert shown(LOCAL, store) == planned


def test_unchanged_directory_is_not_copied(tmp_path: Path) -> None:
    store = build_store(tmp_path / "store")
    overlay = Overlay(LOCAL, full_plan(store).steps, store)
    with overlay.local(store / "consumequeue/TopicZ") as place:
        assert place == store / "consumequeue/TopicZ"
    with overlay.local(store / "config") as place:
        assert (place / "topics.json.bak").is_symlink()
        assert (place / "topics.json").read_bytes() == b'{"topicConfigTable":{}}'
    assert not place.exists()


DATA = pattern(9000, 3)


@pytest.mark.parametrize(
    "content",
    [
        Literal(DATA),
        lazily(DATA, 777),
        Reencoded(len(DATA), lambda: iter([DATA]), lambda size, at: DATA[at : at + size]),
        Equivalent(Literal(DATA), "0" * 64),
        Parts((Literal(DATA[:10]), lazily(DATA[10:8000]), Literal(b""), Literal(DATA[8000:]))),
    ],
)
def test_contents_are_read_at_any_position(content: Content) -> None:
    pick = random.Random(fresh(5))
    for _ in range(50):
        at, size = pick.randrange(len(DATA) + 10), pick.randrange(len(DATA) + 10)
        assert content.read(size, at) == DATA[at : at + size]
    assert Zeros(5).read(9, 2) == bytes(3)
    assert Zeros(5).read(9, 7) == b""
