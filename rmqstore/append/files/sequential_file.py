"""Write a large new file from its beginning to its end, past the page cache where the file system can.

Direct writes leave the page cache to the brokers of the machine, and take a tenth of the CPU time of copying into it.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os

from rmqstore.append.files.disk import write_all
from rmqstore.files.disk import start_writing

_BLOCK = 4 << 20
_ALIGNED = 1 << 12  # of positions, lengths and memory of direct writes: at least the block size of the device
_SMALL = 1 << 18  # bytes up to which a file is written through the page cache
_DROP = 64 << 20  # bytes after which written pages leave the page cache
_DIRECT: int = getattr(os, "O_DIRECT", 0)
_ZEROS = bytes(_BLOCK)


class SequentialFile:
    """Writes to a descriptor of an empty file, which it does not close. Zeros at the end of a block become holes.

    Errors of all methods: OSError.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._view = memoryview(mmap.mmap(-1, _BLOCK))  # begins with a page
        self._filled = 0
        self._at = self._dropped = 0
        self._direct = _set_direct(descriptor, on=True)

    @property
    def size(self) -> int:
        """The number of bytes that were given."""
        return self._at + self._filled

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        rest = memoryview(data)
        while len(rest):
            count = min(len(rest), _BLOCK - self._filled)
            self._view[self._filled : self._filled + count] = rest[:count]
            self._filled += count
            rest = rest[count:]
            if self._filled == _BLOCK:
                self._flush()

    def finish(self, size: int) -> None:
        """Give the file its size, at least that of all bytes, and fsync it."""
        if self._direct and not self._at and self._filled <= _SMALL:
            self._direct = _set_direct(self._descriptor, on=False)
        self._flush()
        os.ftruncate(self._descriptor, max(size, self._at))
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Free the memory, as soon as no exception refers to it."""
        self._view = memoryview(b"")

    def _flush(self) -> None:
        size = self._filled
        end = size
        if size and not self._view[size - 1]:
            end = 0 if self._view[:size] == _ZEROS[:size] else len(bytes(self._view[:size]).rstrip(b"\0"))
        if end:
            self._put(end)
        self._at += size
        self._filled = 0

    def _put(self, size: int) -> None:
        if self._direct:
            whole = -(-size // _ALIGNED) * _ALIGNED
            self._view[size:whole] = bytes(whole - size)
            try:
                write_all(self._descriptor, self._view[:whole], self._at)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                self._direct = _set_direct(self._descriptor, on=False)  # it needs another alignment
            else:
                return
        write_all(self._descriptor, self._view[:size], self._at)
        start_writing(self._descriptor, self._at, size)
        if self._at - self._dropped >= _DROP:
            os.posix_fadvise(self._descriptor, 0, self._dropped, os.POSIX_FADV_DONTNEED)
            self._dropped = self._at


def _set_direct(descriptor: int, *, on: bool) -> bool:
    """Switch direct writes on or off; return whether they are on."""
    if not _DIRECT:
        return False
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | _DIRECT if on else flags & ~_DIRECT)
    except OSError:
        return False
    return on
