"""Fingerprints: hashes of ranges, files and directories on disk, which a plan expects to find unchanged.

`sha256:` hashes all bytes of a range; `runs:` hashes bytes and counts zeros, so that holes cost nothing.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from rmqstore.errors import Refused
from rmqstore.files.reading import next_data
from rmqstore.repair.plan.content import CHUNK, RunningFingerprint, fingerprint
from rmqstore.texts import Text


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open a file for reading; yield its descriptor. Errors: OSError, also for a link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_range(path: Path, at: int, length: int) -> Iterator[bytes]:
    """Yield the bytes `[at, at + length)` of a file, at most 1 MiB at a time; short if the file ends."""
    with opened(path) as descriptor:
        while length > 0:
            chunk = os.pread(descriptor, min(CHUNK, length), at)
            if not chunk:
                return
            yield chunk
            at += len(chunk)
            length -= len(chunk)


def read_runs(path: Path, at: int, length: int) -> Iterator[bytes | int]:
    """Yield the same bytes as `read_range`, but a hole of the file as its length."""
    with opened(path) as descriptor:
        stop = min(at + length, os.fstat(descriptor).st_size)
        while at < stop:
            start, end = next_data(descriptor, at, stop)
            if start > at:
                yield start - at
            at = start
            while at < end:
                chunk = os.pread(descriptor, min(CHUNK, end - at), at)
                if not chunk:
                    return
                yield chunk
                at += len(chunk)


def fingerprint_range(path: Path, at: int, length: int, like: str = "sha256:") -> str:
    """Hash `[at, at + length)` of a file: the `expect` of an Overwrite or a Truncate."""
    read = read_runs if like.startswith("runs:") else read_range
    return fingerprint(read(path, at, length), like)


def fingerprint_entry(path: Path, like: str = "sha256:") -> str:
    """Hash what a Discard moves: a file's bytes, a link's target, or all names and hashes below a directory.

    Errors: FileNotFoundError; Refused for devices, pipes and sockets.
    """
    status = path.lstat()
    if stat.S_ISREG(status.st_mode):
        return fingerprint_range(path, 0, status.st_size, like)
    running = RunningFingerprint(like)
    if stat.S_ISLNK(status.st_mode):
        running.update(b"link\0" + os.fsencode(path.readlink()))
    elif stat.S_ISDIR(status.st_mode):
        running.update(b"directory\0")
        for name in sorted(entry.name for entry in path.iterdir()):
            kind = kind_of((path / name).lstat())
            row = f"{kind}\0{name}\0{fingerprint_entry(path / name, like)}\0"
            running.update(os.fsencode(row))
    else:
        raise Refused(Text("{path} is a special file", path=path), Text("move it away by hand"))
    return running.text


def kind_of(status: os.stat_result) -> str:
    """Return a word for messages: file, directory, link, or special file."""
    if stat.S_ISREG(status.st_mode):
        return "file"
    if stat.S_ISDIR(status.st_mode):
        return "directory"
    return Text("link") if stat.S_ISLNK(status.st_mode) else Text("special file")
