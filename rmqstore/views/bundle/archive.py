"""Write tar archives with sparse files (GNU sparse format 1.0 in PAX headers), which Python's tarfile can only read."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np

from rmqstore.files.files import DirEntry, FileRights, Files

_PAGE = 4096
_BLOCK = 4 << 20
_GAP = 64 << 10  # shorter gaps of zeros do not divide an extent
Extent = tuple[int, int]
Piece = tuple[int, bytes]


def extents_of(files: Files, path: Path) -> list[Extent]:
    """Return the extents [start, stop) of a file with bytes other than zeros, in whole pages. Errors: OSError."""
    out: list[Extent] = []
    with files.open(path) as file:
        length = file.length
        for start, stop in file.data_extents(0, length):
            for at in range(start // _PAGE * _PAGE, stop, _BLOCK):
                data = np.frombuffer(file.read(min(_BLOCK, stop - at), at), dtype=np.uint8)
                pages = np.add.reduceat(data != 0, np.arange(0, len(data), _PAGE)) if len(data) else data
                for page in np.flatnonzero(pages).tolist():
                    low = at + page * _PAGE
                    _add(out, low, min(low + _PAGE, length))
    return out


def _add(extents: list[Extent], start: int, stop: int) -> None:
    if extents and start - extents[-1][1] < _GAP:
        extents[-1] = (extents[-1][0], stop)
    else:
        extents.append((start, stop))


class Archive:
    """A compressed tar archive, written sequentially."""

    def __init__(self, target: BinaryIO) -> None:
        # noise cannot be compressed, and everything else compresses well at any level
        self._gzip = gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=target, mtime=0)
        self._tar = tarfile.TarFile(fileobj=self._gzip, mode="w", format=tarfile.PAX_FORMAT)

    def close(self) -> None:
        self._tar.close()
        self._gzip.close()

    def directory(self, name: str, like: DirEntry, rights: FileRights | None) -> None:
        info = _info(name, like, rights)
        info.type = tarfile.DIRTYPE
        self._tar.addfile(info)

    def text(self, name: str, data: bytes) -> None:
        """Add a small file that is not from the store."""
        import io

        info = tarfile.TarInfo(name)
        info.size = len(data)
        self._tar.addfile(info, io.BytesIO(data))

    def file(
        self, name: str, like: DirEntry, rights: FileRights | None, extents: list[Extent], pieces: Iterable[Piece]
    ) -> None:
        """Add a file with length and time of `like`. `pieces`: its bytes in order; the rest is zeros."""
        info = _info(name, like, rights)
        if extents == [(0, like.length)] or not like.length:
            info.size = like.length
            self._tar.addfile(info, _IteratorFile(_cut(pieces, extents)))  # type: ignore[arg-type]  # it has read()
            return
        listed = extents if extents and extents[-1][1] == like.length else [*extents, (like.length, like.length)]
        numbers = [len(listed), *(n for start, stop in listed for n in (start, stop - start))]
        table = "".join(f"{n}\n" for n in numbers).encode()
        table += bytes(-len(table) % 512)
        info.pax_headers = {
            "GNU.sparse.major": "1",
            "GNU.sparse.minor": "0",
            "GNU.sparse.name": name,
            "GNU.sparse.realsize": str(like.length),
        }
        info.name = f"GNUSparseFile.0/{name}"
        info.size = len(table) + sum(stop - start for start, stop in extents)
        self._tar.addfile(info, _IteratorFile(chain([table], _cut(pieces, extents))))  # type: ignore[arg-type]


def _info(name: str, like: DirEntry, rights: FileRights | None) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mtime = like.mtime_ns / 1e9
    info.mode, info.uid, info.gid = rights or FileRights(0o755 if like.directory else 0o644, 0, 0)
    return info


def _cut(pieces: Iterable[Piece], extents: list[Extent]) -> Iterator[bytes]:
    """Yield the bytes of some extents from pieces in order, with zeros between pieces."""
    todo = iter(extents)
    start, stop = next(todo, (0, 0))
    for at, data in pieces:
        end = at + len(data)
        while start < stop and start < end:
            if start < at:
                low = min(stop, at)
                yield bytes(low - start)
                start = low
            else:
                high = min(stop, end)
                yield data[start - at : high - at]
                start = high
            if start == stop:
                start, stop = next(todo, (0, 0))
    while start < stop:
        yield bytes(stop - start)
        start, stop = next(todo, (0, 0))


class _IteratorFile:
    """A file object that reads the bytes of an iterator."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = iter(parts)
        self._left = memoryview(b"")  # slices of bytes would be copies

    def read(self, size: int) -> bytes:
        out = []
        while size > 0:
            if not self._left:
                part = next(self._parts, None)
                if part is None:
                    break
                self._left = memoryview(part)
            out.append(self._left[:size])
            self._left = self._left[size:]
            size -= len(out[-1])
        return b"".join(out)
