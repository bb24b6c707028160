"""Open a RocksDB through a temporary directory of links to its files.

rocksdict leaves a file of its own beside the database even if it opens it read-only. Through the links it writes to the
temporary directory instead of the store.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqstore.files.disk import real_path
from rmqstore.files.files import LOCAL, Files
from rmqstore.texts import Text

PREFIX = "rmqstore-"  # of the temporary directory's name

_MOST_NAME, _MOST_ZEROS = 1 << 12, 1 << 30  # bytes of holes: in a file with a name, and in one that reserves room
_FILES = re.compile(r"CURRENT|IDENTITY|MANIFEST-\d+|\d+\.(?:sst|ldb|log|blob)")


def database_files(files: Files, directory: Path) -> list[tuple[str, int, int]]:
    """List (name, length, mtime in ns) of the regular files of a RocksDB, sorted.

    Errors: OSError if the directory cannot be listed.
    """
    if not files.is_directory(directory):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(directory))
    own = [e for e in files.list(directory) if e.regular and _FILES.fullmatch(e.path.name)]
    return [(e.path.name, e.length, e.mtime_ns) for e in own]


@contextmanager
def linked(directory: Path) -> Iterator[Path]:
    """Create a temporary directory with links to a RocksDB of this machine, and remove it at the end of the block.

    Errors: OSError if there is no space for temporary files, and for a file of holes that would be read for hours.
    """
    import tempfile

    source = real_path(directory)
    with tempfile.TemporaryDirectory(prefix=PREFIX) as temporary:
        for name, length, _ in database_files(LOCAL, directory):
            most = _MOST_NAME if name in ("CURRENT", "IDENTITY") else _MOST_ZEROS
            if length > most and not name.endswith((".sst", ".ldb", ".blob")):  # RocksDB reads all of it
                with LOCAL.open(source / name) as file:
                    zeros = length - sum(high - low for low, high in file.data_extents(0, length))
                if zeros > most:
                    raise OSError(errno.EFBIG, Text("{name} has holes of {zeros:,} bytes", name=name, zeros=zeros))
            Path(temporary, name).symlink_to(source / name)
        yield Path(temporary)
