"""Open a RocksDB through a temporary directory of links to its files.

rocksdict leaves a file of its own beside the database even if it opens it read-only. Through the links it writes to the
temporary directory instead of the store.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqstore.files.disk.paths import real_path

PREFIX = "rmqstore-"  # of the temporary directory's name

_FILES = re.compile(r"CURRENT|IDENTITY|MANIFEST-\d+|\d+\.(?:sst|ldb|log|blob)")


def database_files(directory: Path) -> list[tuple[str, int, int]]:
    """List (name, length, mtime in ns) of the regular files of a RocksDB, sorted.

    Errors: OSError if the directory cannot be listed.
    """
    files = []
    for entry in os.scandir(directory):
        if not _FILES.fullmatch(entry.name):
            continue
        try:
            st = entry.stat()
        except OSError:
            continue  # a broker deleted it, or it is a dangling link
        if stat.S_ISREG(st.st_mode):  # opening a pipe would wait for a writer
            files.append((entry.name, st.st_size, st.st_mtime_ns))
    return sorted(files)


@contextmanager
def linked(directory: Path) -> Iterator[Path]:
    """Create a temporary directory with links to the files of a RocksDB, and remove it at the end of the block.

    Errors: OSError if there is no space for temporary files.
    """
    import tempfile

    source = real_path(directory)
    with tempfile.TemporaryDirectory(prefix=PREFIX) as temporary:
        for name, _, _ in database_files(directory):
            Path(temporary, name).symlink_to(source / name)
        yield Path(temporary)
