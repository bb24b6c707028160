"""Build a new store file by file, beside its place."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from rmqstore.append.files.disk import create_file, explain, make_directories, sync_directory
from rmqstore.append.files.sequential_file import SequentialFile
from rmqstore.errors import OutputExists, Refused
from rmqstore.texts import Text


@contextmanager
def building_store(target: Path) -> Iterator[Path]:
    """Make a directory beside `target` that is renamed at the end of the block, and removed after an error.

    What an interrupted run has left is removed first. Errors: OutputExists; Refused if another run builds it now.
    """
    target = target.absolute()
    if os.path.lexists(target):
        raise OutputExists(Text("{target} already exists", target=target))
    part = target.with_name(f".{target.name}.restoring")
    descriptor = -1
    try:
        make_directories(part)
        descriptor = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        _lock(descriptor, target)
        for entry in os.scandir(part):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                Path(entry.path).unlink()
    except OSError as error:
        raise explain(error, part) from error
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
    finally:
        os.close(descriptor)


def _lock(descriptor: int, target: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Refused(
            Text("another process is building {target}", target=target), Text("wait until it has ended")
        ) from error


def remove_tree(directory: Path) -> None:
    """Remove a directory of the new store, if it is there. Errors: NotReadable."""
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise explain(error, directory) from error


def take_file(source: Path, path: Path, mtime_ns: int) -> None:
    """Move a complete file of a temporary place on the same disk into the new store. Errors: NotReadable, NoSpace."""
    try:
        source.rename(path)
        os.utime(path, ns=(mtime_ns, mtime_ns))
        sync_directory(path.parent)
    except OSError as error:
        raise explain(error, path) from error


def write_new_file(path: Path, size: int, content: Iterable[bytes | memoryview], mtime_ns: int = 0) -> None:
    """Create a file of `size` bytes that begins with `content`, and fsync it; zeros at the end of 4 MiB become holes.

    Errors: OutputExists, NoSpace, NotReadable, and those of `content`.
    """
    descriptor = create_file(path, size)
    try:
        with closing(SequentialFile(descriptor)) as file:
            for data in content:
                file.write(data)
            file.finish(size)
        if mtime_ns:
            os.utime(descriptor, ns=(mtime_ns, mtime_ns))
    except OSError as error:
        raise explain(error, path) from error
    finally:
        os.close(descriptor)
