"""The order of writes and fsyncs, and recovery from half-executed steps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqstore.documents.content import Literal
from rmqstore.documents.plan import Plan
from rmqstore.documents.steps import Create
from rmqstore.errors import ChangedSince, HalfApplied
from rmqstore.files.beneath import AS_NAMED
from rmqstore.repair.journal import journal
from rmqstore.repair.journal.batches import Meta, UndoLog, UndoLogWriter
from rmqstore.repair.journal.disk import Disk
from tests.repair.trees import CountingDisk, build, discard, failing_at, full_plan, killed_at, look, overwrite, pattern

LOG = "commitlog/00000000000000000000"


class StrictDisk(Disk):
    """A disk that tracks unsynced changes, and fails if the next operation requires that they are synced."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.journal = store / ".rmqstore"
        self.dirty: set[Path] = set()
        self.names: dict[int, Path] = {}
        self.changes = 0
        self.marks = 0

    def _of_store(self, path: Path) -> bool:
        return self.journal not in path.parents and path != self.store / "lock"

    def _before_a_change(self, path: Path) -> None:
        if self._of_store(path):
            self.changes += 1
            unsafe = {name for name in self.dirty if not self._of_store(name) and "quarantine" not in name.parts}
            assert {name for name in unsafe if name.name != "new"} == set(), f"{path} is changed before {unsafe}"

    def open_new(self, path: Path) -> int:
        descriptor = super().open_new(path)
        self.names[descriptor] = path
        self.dirty |= {path.parent} - {self.store}
        return descriptor

    def open_existing(self, path: Path) -> int:
        descriptor = super().open_existing(path)
        self.names[descriptor] = path
        return descriptor

    def write_at(self, descriptor: int, data: bytes, at: int) -> None:
        self._before_a_change(self.names[descriptor])
        super().write_at(descriptor, data, at)
        self.dirty.add(self.names[descriptor])

    def truncate(self, descriptor: int, size: int) -> None:
        self._before_a_change(self.names[descriptor])
        super().truncate(descriptor, size)
        self.dirty.add(self.names[descriptor])

    def set_times(self, path: Path, atime_ns: int, mtime_ns: int) -> None:
        super().set_times(path, atime_ns, mtime_ns)
        if path.is_file():
            self.dirty.add(path)

    def fsync(self, descriptor: int) -> None:
        self.dirty.discard(self.names[descriptor])

    def fsync_directory(self, path: Path) -> None:
        self.dirty.discard(path)

    def rename(self, source: Path, target: Path) -> None:
        if target.name == "state":
            self.marks += 1
            assert {name for name in self.dirty if self._of_store(name)} == set(), "marked before it is durable"
            assert source not in self.dirty
        elif self._of_store(source):
            self._before_a_change(source)
        else:
            self._before_a_change(target)
            assert source not in self.dirty
        super().rename(source, target)
        moved = {name for name in self.dirty if name == source or source in name.parents}
        self.dirty = (self.dirty - moved) | {target / name.relative_to(source) for name in moved}
        self.dirty |= {source.parent, target.parent}


def test_nothing_is_changed_before_its_way_back_is_durable_nor_marked_before_it_is_durable(store: Path) -> None:
    disk = StrictDisk(store)
    path = journal.apply(full_plan(store), disk=disk).journal
    assert path is not None
    assert disk.changes >= 13 and disk.marks == 10
    back = StrictDisk(store)
    journal.undo(path, disk=back)
    assert back.changes >= 13 and back.marks == 9  # batch by batch, like apply


def test_journal_that_never_began_is_swept_by_the_next_apply(store: Path) -> None:
    before = look(store)
    assert killed_at(40, lambda disk: journal.apply(full_plan(store), disk=disk))
    [left] = journal.list_journals(store)
    assert left.state == "preparing" and not journal.find_unfinished(store)
    path = journal.apply(full_plan(store), disk=CountingDisk()).journal
    assert path is not None and [info.path for info in journal.list_journals(store)] == [path]
    journal.undo(path, disk=CountingDisk())
    after = look(store, root_time=False)
    after.pop("lock", None)  # the killed apply created it, so for the next apply it already existed
    assert after == {**before, ".": (*before["."][:4], 0, before["."][5])}


def torn(store: Path) -> Path:
    """Create the journal of an apply that stopped in the middle of an overwrite."""
    plan = Plan(str(store), (overwrite(store, LOG, 100, Literal(pattern(1000, 9))),))
    calls = CountingDisk()
    seen = build(store.parent / "counted")
    journal.apply(Plan(str(seen), plan.steps), disk=calls)
    last = max(number for number, name in enumerate(calls.calls) if name == "open_existing")
    assert calls.calls[last + 1] == "write_at"
    with pytest.raises(HalfApplied):
        journal.apply(plan, disk=failing_at(last + 1, tear=True, for_good=True))
    assert (store / LOG).read_bytes()[100:1100] == pattern(1000, 9)[:500] + pattern(4096)[600:1100]
    [info] = journal.find_unfinished(store)
    return info.path


@pytest.mark.parametrize("at", [100, 350, 599, 600, 850, 1099])
def test_foreign_byte_in_a_half_written_range_is_detected(store: Path, at: int) -> None:
    path = torn(store)
    with (store / LOG).open("r+b") as file:
        file.seek(at)
        file.write(b"\0")  # neither the old nor the new content, which contain no zeros
    before = (store / LOG).read_bytes()
    for change in (journal.undo, journal.resume):
        with pytest.raises(ChangedSince, match=LOG):
            change(path, disk=CountingDisk())
    assert (store / LOG).read_bytes() == before


def test_half_written_range_is_undone_and_resumed(store: Path) -> None:
    path = torn(store)
    journal.resume(path, disk=CountingDisk())
    assert (store / LOG).read_bytes()[100:1100] == pattern(1000, 9)
    journal.undo(path, disk=CountingDisk())
    assert (store / LOG).read_bytes() == pattern(4096) + bytes(4096)


def test_resume_makes_a_file_whose_neighbour_it_has_discarded(store: Path) -> None:
    """A file is replaced by one with another owner and times; the discard is done, but not the create."""
    name = "config/topics.json"
    before = look(store)
    plan = Plan(str(store), (discard(store, name), Create(name, 3, Literal(b"new"), name)))

    def stop(done: int, of: int) -> None:
        raise OSError("injected")

    with pytest.raises(HalfApplied):
        journal.apply(plan, disk=CountingDisk(), progress=stop)
    assert not (store / name).exists()
    [info] = journal.find_unfinished(store)
    assert journal.resume(info.path, disk=CountingDisk()).steps == 1
    assert (store / name).read_bytes() == b"new"
    assert look(store)[name][:5] == before[name][:5]
    journal.undo(info.path, disk=CountingDisk())
    assert look(store) == before


def test_undo_log_ends_at_the_last_complete_batch(tmp_path: Path) -> None:
    disk = Disk()
    disk.allow(tmp_path)
    path = tmp_path / "undo.log"
    descriptor = disk.open_new(path)
    writer = UndoLogWriter(disk, descriptor, 0)
    for batch in range(2):
        writer.meta(Meta(batch, "sha256:00", mtime_ns=batch))
        writer.image(batch, 5, b"before")
        writer.image(batch, 11, bytes(1000))
        writer.ready(batch)
    os.close(descriptor)
    whole = path.read_bytes()
    log = UndoLog(path, AS_NAMED)
    assert [batch.metas for batch in log.batches] == [
        {number: Meta(number, "sha256:00", mtime_ns=number)} for number in range(2)
    ]
    assert list(log.before(log.batches[1].images[1])) == [(5, b"before"), (11, bytes(1000))]
    assert log.stop == len(whole) < 800  # runs of zeros are stored as a count
    first = log.batches[0].stop
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        assert UndoLog(path, AS_NAMED).stop == (first if size >= first else 0)
    for at in range(0, len(whole), 5):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        assert UndoLog(path, AS_NAMED).stop == (first if at >= first else 0)
