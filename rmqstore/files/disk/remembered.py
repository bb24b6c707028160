"""Files that are listed and read once, for work that looks at the same few bytes again and again."""

from __future__ import annotations

import contextlib
from pathlib import Path

from rmqstore.files.disk.files import DirEntry, FileIdentity, FileRights, Files, OpenFile

_SHORT = 4096
_MOST = 64 << 20


class RememberedFiles(Files):
    """The files of `files`; listed directories, examined paths and short reads are kept.

    So that the simulated starts of many versions, which read the same units and settings, cost little more than one.
    `_SHORT`: bytes of the longest read that is kept; `_MOST`: bytes kept in all.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._listed: dict[Path, list[DirEntry]] = {}
        self._examined: dict[Path, DirEntry | None] = {}
        self._read: dict[tuple[Path, int, int], bytes] = {}
        self._kept = 0

    def list(self, directory: Path) -> list[DirEntry]:
        known = self._listed.get(directory)
        if known is None:
            known = self._listed[directory] = self._files.list(directory)
        return known.copy()

    def stat(self, path: Path) -> DirEntry | None:
        if path not in self._examined:
            self._examined[path] = self._files.stat(path)
        return self._examined[path]

    def read_at(self, path: Path, size: int, at: int) -> bytes:
        place = path, size, at
        known = self._read.get(place)
        if known is None:
            known = self._files.read_at(path, size, at)
            if len(known) <= _SHORT and self._kept < _MOST:
                self._read[place] = known
                self._kept += _SHORT
        return known

    def open(self, path: Path) -> OpenFile:
        return self._files.open(path)

    def local(self, directory: Path) -> contextlib.AbstractContextManager[Path]:
        return self._files.local(directory)

    @property
    def on_this_machine(self) -> bool:
        return self._files.on_this_machine

    def real_path(self, path: Path) -> Path:
        return self._files.real_path(path)

    def identity(self, path: Path) -> FileIdentity | None:
        return self._files.identity(path)

    def rights(self, path: Path) -> FileRights | None:
        return self._files.rights(path)

    def allocated(self, path: Path) -> int | None:
        return self._files.allocated(path)

    def may_read(self, path: Path) -> bool:
        return self._files.may_read(path)
