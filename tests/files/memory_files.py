"""A store in memory: it has no directory on this machine, so only what reads through `Files` can read it."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rmqstore.files.files import LOCAL, DirEntry, Files, OpenFile


class MemoryFiles(Files):
    """The files below a directory as they were when it was read. `calls` counts what was read, by method and name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.entries: dict[Path, DirEntry] = {}
        self.content: dict[Path, bytes] = {}
        self.calls: Counter[tuple[str, str]] = Counter()
        self._read(root)

    def _read(self, path: Path) -> None:
        entry = LOCAL.stat(path)
        assert entry is not None
        self.entries[path] = entry
        if entry.directory:
            for below in LOCAL.list(path):
                self._read(below.path)
        else:
            with LOCAL.open(path) as file:
                self.content[path] = file.read(entry.length, 0).rstrip(b"\0")  # workers get a copy; an index has 160 MB

    def list(self, directory: Path) -> list[DirEntry]:
        self.calls["list", directory.name] += 1
        return sorted(e for path, e in self.entries.items() if path.parent == directory and path != directory)

    def stat(self, path: Path) -> DirEntry | None:
        return self.entries.get(path)

    def open(self, path: Path) -> OpenFile:
        self.calls["open", path.name] += 1
        if path not in self.content:
            missing = path not in self.entries
            raise OSError(errno.ENOENT if missing else errno.EINVAL, "no regular file in memory", str(path))
        return _MemoryFile(self.content[path], self.entries[path].length)

    @contextlib.contextmanager
    def local(self, directory: Path) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as folder:
            for entry in self.list(directory):
                if entry.regular:
                    Path(folder, entry.path.name).write_bytes(self.content[entry.path])
                    os.truncate(Path(folder, entry.path.name), entry.length)
                    os.utime(Path(folder, entry.path.name), ns=(entry.mtime_ns, entry.mtime_ns))
            yield Path(folder)


class _MemoryFile(OpenFile):
    """The first bytes of a file; those after them, up to its length, are zeros."""

    def __init__(self, content: bytes, length: int) -> None:
        self._content = content
        self._length = length

    @property
    def length(self) -> int:
        return self._length

    def read_into(self, buffer: memoryview, at: int) -> int:
        count = min(len(buffer), max(self._length - at, 0))
        data = self._content[at : at + count]
        buffer[:count] = data.ljust(count, b"\0")
        return count

    def close(self) -> None:
        pass
