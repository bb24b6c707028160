"""A store in memory: it has no directory on this machine, so only what reads through `Files` can read it."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rmqstore.files.disk.files import LOCAL, DirEntry, Files, OpenFile


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
                self.content[path] = file.read(entry.length, 0)

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
        return _MemoryFile(self.content[path])

    @contextlib.contextmanager
    def local(self, directory: Path) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as folder:
            for entry in self.list(directory):
                if entry.regular:
                    Path(folder, entry.path.name).write_bytes(self.content[entry.path])
                    os.utime(Path(folder, entry.path.name), ns=(entry.mtime_ns, entry.mtime_ns))
            yield Path(folder)


class _MemoryFile(OpenFile):
    def __init__(self, content: bytes) -> None:
        self._content = content

    @property
    def length(self) -> int:
        return len(self._content)

    def read_into(self, buffer: memoryview, at: int) -> int:
        data = self._content[at : at + len(buffer)]
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        pass
