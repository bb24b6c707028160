"""Helpers to build a store: a temporary directory until it is complete, file copies, and the map of message ids."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rmqstore.append.files.disk import create_file, explain, make_directories, sync_directory, write_all
from rmqstore.errors import OutputExists
from rmqstore.files.reading import data_extents
from rmqstore.messages.cells import assemble
from rmqstore.messages.fields import MessageIds
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64
from rmqstore.texts import Text

_COPY = 1 << 20
_ID_TEXT = 1 << 16
Progress = Callable[[int], None]


@contextmanager
def building(target: Path) -> Iterator[Path]:
    """Create a directory beside `target` that is renamed to it at the end of the block, or deleted after an error.

    Errors: OutputExists, NoSpace, NotReadable.
    """
    if os.path.lexists(target):
        raise OutputExists(Text("{target} already exists", target=target))
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    make_directories(part)
    try:
        yield part
        sync_directory(part)
        if os.path.lexists(target):
            raise OutputExists(Text("{target} was created in the meantime", target=target))
        part.rename(target)
        sync_directory(target.parent)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def copy_file(source: Path, target: Path, progress: Progress | None = None) -> None:
    """Copy a file with its holes, mode and mtime, and fsync the copy.

    Errors: NoSpace, NotReadable, OutputExists.
    """
    try:
        status = source.stat()
        target_fd = create_file(target, status.st_size)
        source_fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise explain(error, source) from error
    try:
        for low, high in data_extents(source_fd, 0, status.st_size):
            while low < high and (block := os.pread(source_fd, min(_COPY, high - low), low)):
                if any(block):
                    write_all(target_fd, block, low)
                low += len(block)
                if progress is not None:
                    progress(len(block))
        os.fchmod(target_fd, status.st_mode & 0o7777 | 0o200)
        os.fsync(target_fd)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    except OSError as error:
        raise explain(error, target) from error
    finally:
        os.close(source_fd)
        os.close(target_fd)


def copy_tree(source: Path, target: Path) -> int:
    """Copy a directory tree without links and special files, and return the number of files.

    Errors: as `copy_file`.
    """
    make_directories(target)
    count = 0
    for entry in sorted(os.scandir(source), key=lambda e: e.name):
        if entry.is_dir(follow_symlinks=False):
            count += copy_tree(Path(entry.path), target / entry.name)
        elif entry.is_file(follow_symlinks=False):
            copy_file(Path(entry.path), target / entry.name)
            count += 1
    return count


class IdMap:
    """A CSV file that maps old to new offset message ids, sorted by the old offset; it appears when it is complete."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._part = path.with_name(f".{path.name}.{os.getpid()}.part")
        self._text = bytearray(b"old_msg_id,new_msg_id\n")
        self._ids = MessageIds()
        self._at = 0
        self._descriptor = create_file(self._part, 0)

    def add(self, columns: Columns, new: I64) -> None:
        """Add messages; `new` are their new physical offsets."""
        parts = [*self._ids.of(columns, columns.offset), b",", *self._ids.of(columns, new), b"\n"]
        self._text += assemble(len(columns), parts)[0].data
        if len(self._text) >= _ID_TEXT:
            self._write()

    def _write(self) -> None:
        try:
            write_all(self._descriptor, self._text, self._at)
        except OSError as error:
            raise explain(error, self.path) from error
        self._at += len(self._text)
        self._text.clear()

    def finish(self) -> None:
        """fsync the file and give it its name. Errors: NoSpace, OutputExists."""
        self._write()
        os.fsync(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1
        if os.path.lexists(self.path):
            raise OutputExists(Text("{path} already exists", path=self.path))
        self._part.rename(self.path)
        sync_directory(self.path.parent)

    def discard(self) -> None:
        """Close and delete the unfinished file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        with suppress(FileNotFoundError):
            self._part.unlink()
