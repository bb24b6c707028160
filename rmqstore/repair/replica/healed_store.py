"""Builds the healed store: the store with the replicas' bytes in its log.

It has copies of the files that change, and links to the others. The rest of the recovery is planned for this store, so
that one examination covers everything. The copies are temporary files; the steps of the plan read from them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from rmqstore.errors import NoSpace
from rmqstore.files.disk.files import LOCAL
from rmqstore.files.mapped_file_queue import offset_to_file_name
from rmqstore.files.store import Store
from rmqstore.repair.journal.disk import ScratchFolder
from rmqstore.repair.plan.content import CHUNK
from rmqstore.repair.replica.replica import log_of
from rmqstore.repair.replica.sources import Taken
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions
from rmqstore.texts import Text

_BLOCK = 1 << 12
_LEAST_READ, _MOST_READ = 1 << 14, 1 << 22  # bytes


@dataclass(slots=True)
class HealedFile:
    """One file of a log, with bytes of a replica.

    `path` is its path in the store, `copy` the temporary file, `length` its current length in bytes, None if it is
    missing. `like` is a file of the same log.
    """

    path: Path
    copy: Path
    start: int
    length: int | None
    like: Path | None
    taken: list[Taken] = field(default_factory=list)


@dataclass(slots=True)
class HealedStore:
    """The healed store; the temporary folder is deleted together with it."""

    store: Store
    files: list[HealedFile]
    folder: ScratchFolder


@dataclass(frozen=True, slots=True)
class FileContent:
    """Bytes of a temporary file as the content of a step."""

    folder: ScratchFolder
    path: Path
    at: int
    size: int

    def pieces(self) -> Iterator[bytes | int]:
        at, stop = self.at, self.at + self.size
        while at < stop:
            data = LOCAL.read_at(self.path, min(CHUNK, stop - at), at)
            at += len(data)
            blocks = (data[start : start + _BLOCK] for start in range(0, len(data), _BLOCK))
            for zeros, run in groupby(blocks, lambda block: block.count(0) == len(block)):
                piece = b"".join(run)
                yield len(piece) if zeros else piece

    def read(self, size: int, at: int) -> bytes:
        return LOCAL.read_at(self.path, max(0, min(size, self.size - at)), self.at + at)


def build(store: Store, taken: Sequence[Taken]) -> HealedStore:
    """Copy the files that change, and write the replicas' bytes into the copies.

    Errors: NoSpace; OSError.
    """
    folder = ScratchFolder()
    pieces: dict[Path, list[Taken]] = {}
    for piece in taken:
        pieces.setdefault(_path_of(piece), []).append(piece)
    queues = {path: of_file[0].place.log.queue for path, of_file in pieces.items()}
    needed = sum(queue.file_size for queue in queues.values())
    free = shutil.disk_usage(folder.path).free
    if free < needed:
        many = Text("1 log file") if len(pieces) == 1 else Text("{count:,} log files", count=len(pieces))
        raise NoSpace(
            Text(
                "copies of {many} need {needed:,} bytes in {parent}, which has {free:,}",
                many=many,
                needed=needed,
                parent=folder.path.parent,
                free=free,
            ),
            Text("set TMPDIR to a directory with more space"),
        )
    others = (d for queue in queues.values() for d in queue.directories if store.files.is_directory(d))
    homes = dict.fromkeys([*(path.parent for path in pieces), *others])
    standins = {home: folder.make_directory(f"{n}-{home.name}") for n, home in enumerate(homes)}
    files = [_healed_file(path, standins[path.parent] / path.name, found) for path, found in pieces.items()]
    for file in files:
        _fill(file, folder)
    for home, standin in standins.items():
        for entry in store.files.list(home):
            if entry.path not in pieces:
                folder.link(standin / entry.path.name, entry.path.absolute())
    return HealedStore(store.with_log_files_in({standin: home for home, standin in standins.items()}), files, folder)


def _path_of(piece: Taken) -> Path:
    """Return the path of the file that taken bytes belong to, also if it is missing."""
    queue = piece.place.log.queue
    file = queue.find(piece.start)
    if file is not None:
        return file.path
    directory = queue.files[0].path.parent if queue.files else queue.directories[0]
    return directory / offset_to_file_name(piece.start // queue.file_size * queue.file_size)


def _healed_file(path: Path, copy: Path, taken: list[Taken]) -> HealedFile:
    queue = taken[0].place.log.queue
    file = queue.find(taken[0].start)
    start = taken[0].start // queue.file_size * queue.file_size
    like = queue.files[0].path if queue.files else None
    return HealedFile(path, copy, start, file.length if file is not None else None, like, taken)


def _fill(file: HealedFile, folder: ScratchFolder) -> None:
    """Write the copy; if it is missing or gets bytes after its end, it gets the length of its log's other files."""
    last = max(piece.stop for piece in file.taken) - file.start
    size = file.length if file.length is not None and last <= file.length else file.taken[0].place.log.queue.file_size
    folder.copy(file.path if file.length is not None else None, file.copy, size)
    for piece in file.taken:
        for at in range(piece.start, piece.stop, CHUNK):
            data = piece.replica.bytes_at(piece.place.log.body_offset, at, min(at + CHUNK, piece.stop))
            folder.write_at(file.copy, data, at - file.start)


def messages_in(healed: HealedStore, piece: Taken) -> int:
    """Count the records in taken bytes."""
    queue = log_of(healed.store, piece.place.log.body_offset)
    file = queue.find(piece.start) if queue is not None else None
    if file is None or not piece.good:
        return 0
    start, stop = piece.start - file.start, piece.stop - file.start
    options = ScanOptions(crc=False, chunk=min(max(stop - start, _LEAST_READ), _MOST_READ))
    runs = scan_file(file, start=start, stop=stop, body_offset=piece.place.log.body_offset, exact=True, options=options)
    return sum(run.count for run in runs if run.kind is Kind.RECORDS)
