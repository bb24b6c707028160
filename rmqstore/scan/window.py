"""Read a log file piece by piece into a reused buffer."""

from __future__ import annotations

from dataclasses import dataclass

from rmqstore.files import pace
from rmqstore.files.mapped_file_queue import MappedFile

CHUNK = 4 << 20  # bytes; each chunk costs some hundred NumPy calls, and a larger one does not fit into the cache
SLACK = 64  # extra bytes at the end of the buffer, so that reads at clamped positions stay inside


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """Options of a scan.

    `crc`: check body CRCs; `check_offset`: check PHYSICALOFFSET against the position (off for compaction logs);
    `drop_cache`: drop scanned pages from the page cache, to spare a running broker's pages; `chunk`: bytes to read at a
    time, 0 for the fastest.
    """

    crc: bool = True
    check_offset: bool = True
    drop_cache: bool = False
    chunk: int = 0


class Window:
    """A piece of a file in a buffer that is refilled as the scan advances.

    `base` is the file position of the buffer's first byte, `have` the number of valid bytes.
    """

    def __init__(self, file: MappedFile, options: ScanOptions) -> None:
        self.file = file
        self.options = options
        self._open = file.open()
        self.end = min(file.length, file.file_size)
        self.base = 0
        self.have = 0
        self.buf = bytearray(min(options.chunk or CHUNK, max(self.end, 1)) + SLACK)
        self.view = memoryview(self.buf)
        self._read = 0
        self.unreadable = False

    def close(self) -> None:
        self._open.close()

    def pread(self, size: int, at: int) -> bytes:
        """Read bytes of the file, from the buffer if possible; short at the file's end, empty on an I/O error."""
        size = min(size, self.end - at)
        if size <= 0:
            return b""
        lo = at - self.base
        if lo >= 0 and lo + size <= self.have:
            return bytes(self.view[lo : lo + size])
        try:
            return self._open.read(size, at)
        except OSError:
            self.unreadable = True
            return b""

    def fill(self, at: int) -> None:
        """Move the buffer to file position `at` and fill it as far as the file goes."""
        keep = self.base + self.have - at
        if 0 < keep <= self.have:
            self.view[:keep] = self.view[self.have - keep : self.have]
        else:
            keep = 0
        self.base = at
        self.have = keep
        want = min(len(self.buf) - SLACK, self.end - at)
        while self.have < want:
            try:
                n = self._open.read_into(self.view[self.have : want], at + self.have)
            except OSError:
                self.unreadable = True
                n = 0
            if n <= 0:  # the file was truncated or the disk fails: treat this as the end of the file
                self.end = at + self.have
                break
            self.have += n
            self._read += n
        if self._read > want == len(self.buf) - SLACK and not pace.is_limited():  # a scan, not a single look-up
            self._open.will_read(at + want, min(at + want + len(self.buf) - SLACK, self.end))
        if self.options.drop_cache:
            self._open.drop_cache(at)

    def grow(self, size: int) -> None:
        """Enlarge the buffer for a record of `size` bytes."""
        content = bytes(self.view[: self.have])
        self.buf = bytearray(size + SLACK)
        self.buf[: len(content)] = content
        self.view = memoryview(self.buf)

    def data_from(self, at: int) -> int:
        """Return the first position from `at` on that is not in a hole of a sparse file."""
        return self._open.next_data(at, self.end)[0]

    def zeros_until(self, at: int) -> int:
        """Return the position of the first nonzero byte from `at` on, else the end; holes are not read."""
        while at < self.end:
            at = self.data_from(at)
            if at >= self.end:
                return self.end
            block = self.pread(min(1 << 20, self.end - at), at)
            if not block:
                return self.end
            if block != bytes(len(block)):  # many times faster than to look for the first other byte
                return min(at + len(block) - len(block.lstrip(b"\0")), self.end)
            at += len(block)
        return self.end
