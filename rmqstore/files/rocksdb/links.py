"""A private directory of links to a RocksDB's files, for the moment in which it is opened.

The reader's library leaves a file of its own beside the database, even when it opens it read-only. So it never gets
to see the store's directory: what it makes is made here, and goes with the directory.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqstore.files.disk.paths import real_path

PREFIX = "rmqstore-"  # of the directory of links

_FILES = re.compile(r"CURRENT|IDENTITY|MANIFEST-\d+|\d+\.(?:sst|ldb|log|blob)")


def database_files(directory: Path) -> list[tuple[str, int, int]]:
    """(name, length, mtime in ns) of the regular files that make up a RocksDB, sorted.

    Errors: OSError when the directory cannot be listed.
    """
    out = []
    for entry in os.scandir(directory):
        if not _FILES.fullmatch(entry.name):
            continue
        try:
            st = entry.stat()
        except OSError:
            continue  # a broker deleted it, or it is a dangling link
        if stat.S_ISREG(st.st_mode):  # a pipe would wait for a writer
            out.append((entry.name, st.st_size, st.st_mtime_ns))
    return sorted(out)


@contextmanager
def linked(directory: Path) -> Iterator[Path]:
    """Links to the files of a RocksDB in a new directory, which is gone behind the block.

    Errors: OSError without space for temporary files.
    """
    source = real_path(directory)
    with tempfile.TemporaryDirectory(prefix=PREFIX) as made:
        for name, _, _ in database_files(directory):
            Path(made, name).symlink_to(source / name)
        yield Path(made)
