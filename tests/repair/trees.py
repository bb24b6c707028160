"""Small store trees, plans for them, snapshots to compare, and disks that fail at a chosen call."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import signal
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from rmqstore.documents.content import Content, Literal, Reencoded, Zeros
from rmqstore.documents.plan import Plan
from rmqstore.documents.steps import (
    Create,
    Discard,
    Extend,
    MakeDirectory,
    Overwrite,
    RemoveEmptyDirectory,
    Span,
    Step,
    Truncate,
)
from rmqstore.errors import HalfApplied
from rmqstore.repair.journal.disk import Disk
from rmqstore.repair.plan.plan_builder import fingerprint_entry, fingerprint_range

Entry: TypeAlias = tuple[str, int, int, int, int, bytes]
OLD = 1_600_000_000_123_456_789


@functools.cache
def pattern(size: int, seed: int = 1) -> bytes:
    return bytes((at * 31 + at // 251 + seed * 17) % 255 + 1 for at in range(size))


def build(store: Path) -> Path:
    """Create a tree like that of a store, with old times, different modes, a stray folder and an empty one."""
    files = {
        "commitlog/00000000000000000000": pattern(4096) + bytes(4096),
        "commitlog/00000000000000008192": pattern(8192, 2),
        "commitlog/stray/deep/note.txt": b"note",
        "consumequeue/TopicA/0/00000000000000000000": pattern(600, 3),
        "consumequeue/TopicB/0/00000000000000000000": pattern(400, 4),
        "config/topics.json": b'{"broken',
        "config/topics.json.bak": b'{"topicConfigTable":{}}',
        "checkpoint": pattern(4096, 5),
        "abort": b"",
    }
    for name, data in files.items():
        path = store / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (store / "commitlog/00000000000000008192").chmod(0o640)
    (store / "consumequeue/TopicC/1").mkdir(parents=True)
    for number, (folder, _, names) in enumerate(os.walk(store, topdown=False)):
        for name in names:
            os.utime(Path(folder) / name, ns=(OLD, OLD + len(name) * 1000 + number))
        os.utime(folder, ns=(OLD, OLD + number * 7_000_000_000))
    return store


def look(store: Path, *, folder_times: bool = True, root_time: bool = True) -> dict[str, Entry]:
    """Return kind, mode, owner, mtime and bytes of all entries except journals."""
    seen: dict[str, Entry] = {}
    for path in [store, *sorted(store.rglob("*"))]:
        name = path.relative_to(store).as_posix()
        if name.startswith(".rmqstore"):
            continue
        status = path.lstat()
        is_folder = stat.S_ISDIR(status.st_mode)
        data = b"" if is_folder else path.read_bytes()
        timed = not is_folder or (folder_times and (root_time or path != store))
        time = status.st_mtime_ns if timed else 0
        kind = "folder" if is_folder else "file"
        seen[name] = (kind, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, time, data)
    return seen


def overwrite(store: Path, path: str, at: int, content: Content) -> Overwrite:
    return Overwrite(path, at, content, fingerprint_range(store / path, at, content.size), "test")


def truncate(store: Path, path: str, to_size: int) -> Truncate:
    size = (store / path).stat().st_size
    return Truncate(path, size, to_size, fingerprint_range(store / path, to_size, size - to_size), "test")


def discard(store: Path, path: str) -> Discard:
    return Discard(path, fingerprint_entry(store / path), "test")


def lazily(data: bytes, piece: int = 1000) -> Reencoded:
    def source() -> Iterator[bytes]:
        for start in range(0, len(data), piece):
            yield data[start : start + piece]

    return Reencoded(len(data), source)


def full_plan(store: Path) -> Plan:
    """Return a plan with all kinds of steps and contents, a replaced file, and a saved span."""
    log, log2 = "commitlog/00000000000000000000", "commitlog/00000000000000008192"
    queue = "consumequeue/TopicA/0/00000000000000000000"
    steps: list[Step] = [
        overwrite(store, log, 100, Literal(pattern(300, 9))),
        overwrite(store, log, 4000, Zeros(96)),
        overwrite(store, log2, 512, lazily(pattern(5000, 8))),
        truncate(store, queue, 200),
        Extend("consumequeue/TopicB/0/00000000000000000000", 400, 1000, Literal(pattern(40, 6)), "test"),
        discard(store, "config/topics.json"),
        Create("config/topics.json", 23, Literal(b'{"topicConfigTable":{}}'), "config/topics.json.bak", "test"),
        discard(store, "commitlog/stray"),
        RemoveEmptyDirectory("consumequeue/TopicC/1", "test"),
        RemoveEmptyDirectory("consumequeue/TopicC", "test"),
        MakeDirectory("consumequeue/TopicD", "consumequeue/TopicA", "test"),
        MakeDirectory("consumequeue/TopicD/0", None, "test"),
        Create("consumequeue/TopicD/0/00000000000000000000", 6000, lazily(pattern(60)), queue, "test"),
    ]
    spans = (Span(log, 100, 300, "100.bin"),)
    return Plan(str(store), tuple(steps), spans=spans)


class CountingDisk(Disk):
    """A disk that calls `at(number, name)` before every operation, and skips fsync, because tests kill no kernel."""

    def __init__(self, at: Callable[[int, str], None] = lambda number, name: None) -> None:
        self.calls: list[str] = []
        self._at = at
        self.tear = False

    def _count(self, name: str) -> None:
        self.calls.append(name)
        self._at(len(self.calls) - 1, name)

    def open_new(self, path: Path) -> int:
        self._count("open_new")
        return super().open_new(path)

    def open_existing(self, path: Path) -> int:
        self._count("open_existing")
        return super().open_existing(path)

    def write_at(self, descriptor: int, data: bytes, at: int) -> None:
        try:
            self._count("write_at")
        except OSError:
            if self.tear:
                super().write_at(descriptor, data[: len(data) // 2], at)
            raise
        super().write_at(descriptor, data, at)

    def truncate(self, descriptor: int, size: int) -> None:
        self._count("truncate")
        super().truncate(descriptor, size)

    def fsync(self, descriptor: int) -> None:
        self._count("fsync")

    def fsync_directory(self, path: Path) -> None:
        self._count("fsync_directory")
        with self.listed(path):
            pass

    def rename(self, source: Path, target: Path) -> None:
        self._count("rename")
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._count("unlink")
        super().unlink(path)

    def make_directory(self, path: Path) -> None:
        self._count("make_directory")
        super().make_directory(path)

    def remove_directory(self, path: Path) -> None:
        self._count("remove_directory")
        super().remove_directory(path)

    def set_times(self, path: Path, atime_ns: int, mtime_ns: int) -> None:
        self._count("set_times")
        super().set_times(path, atime_ns, mtime_ns)

    def set_owner(self, path: Path, uid: int, gid: int) -> None:
        self._count("set_owner")
        super().set_owner(path, uid, gid)

    def set_mode(self, path: Path, mode: int) -> None:
        self._count("set_mode")
        super().set_mode(path, mode)


def failing_at(index: int, *, tear: bool = False, for_good: bool = False) -> CountingDisk:
    """Return a disk whose call `index` fails (`for_good`: also all later ones); `tear`: a write is half done."""

    def at(number: int, name: str) -> None:
        if number == index or (for_good and number > index):
            raise OSError(errno.EIO, f"injected at {number} ({name})")

    disk = CountingDisk(at)
    disk.tear = tear
    return disk


def places(calls: Sequence[str], *, tear: bool) -> list[int]:
    """Return the numbers of the calls to disturb: all, or with `tear` only the writes."""
    return [number for number, name in enumerate(calls) if not tear or name == "write_at"]


def stopped_and_again(action: Callable[..., object], path: Path, index: int, way: str) -> None:
    """Run `action(path, disk=…)` so that it stops at its call number `index`, and then to its end.

    `way`: "error" or "torn" (the call fails), "kill" or "kill-torn" (the process dies there).
    """

    def work(disk: Disk) -> object:
        return action(path, disk=disk)

    if way.startswith("kill"):
        killed_at(index, work, tear="torn" in way)
    else:
        with contextlib.suppress(HalfApplied):
            work(failing_at(index, tear=way == "torn"))
    work(CountingDisk())


def killed_at(index: int, work: Callable[[Disk], object], *, tear: bool = False) -> bool:
    """Run the work in a child that is killed (SIGKILL) at its call `index`, and return whether it was killed."""
    pid = os.fork()
    if pid == 0:
        try:

            def at(number: int, name: str) -> None:
                if number == index:
                    if tear and name == "write_at":
                        raise OSError
                    os.kill(os.getpid(), signal.SIGKILL)

            disk = CountingDisk(at)
            if tear:
                whole = Disk.write_at

                def torn(descriptor: int, data: bytes, at: int) -> None:
                    try:
                        CountingDisk.write_at(disk, descriptor, data, at)
                    except OSError:
                        whole(disk, descriptor, data[: len(data) * 2 // 3], at)
                        os.kill(os.getpid(), signal.SIGKILL)

                disk.write_at = torn  # type: ignore[method-assign]
            work(disk)
        except BaseException:  # noqa: BLE001 - the child must not continue in pytest
            os._exit(9)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the child failed otherwise"
    return os.WIFSIGNALED(status)
