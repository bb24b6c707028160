"""The store as it is with the replicas' bytes in its log: copies of the files that change, links to the others.

Everything else of a recovery is planned for this store, so that one examination judges it all. The copies are temporary
files; the steps of the plan take their content from them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rmqstore.errors import NoSpace
from rmqstore.files.disk.reading import read_at
from rmqstore.files.mapped_file_queue import MappedFileQueue, list_directory, offset_to_file_name
from rmqstore.files.store import Store
from rmqstore.repair.journal.disk import ScratchFolder
from rmqstore.repair.plan.content import CHUNK
from rmqstore.repair.replica.sources import Taken
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions

_BLOCK = 1 << 12
_LEAST_READ, _MOST_READ = 1 << 14, 1 << 22  # bytes


@dataclass(slots=True)
class HealedFile:
    """One file of a log with bytes of a replica in it.

    `path` is where the store has it, or will have it; `copy` the temporary file; `length` its bytes now, None where it
    is missing. `like`: a file of the same log.
    """

    path: Path
    copy: Path
    start: int
    length: int | None
    like: Path | None
    taken: list[Taken] = field(default_factory=list)


@dataclass(slots=True)
class HealedStore:
    """A store in which the taken bytes are in place; the folder lives as long as this does."""

    store: Store
    files: list[HealedFile]
    folder: ScratchFolder


@dataclass(frozen=True, slots=True)
class FileContent:
    """Bytes of a temporary file as the content of a step; blocks of zeros are counted."""

    folder: ScratchFolder
    path: Path
    at: int
    size: int

    def pieces(self) -> Iterator[bytes | int]:
        at, stop = self.at, self.at + self.size
        while at < stop:
            data = read_at(self.path, min(CHUNK, stop - at), at)
            at += len(data)
            yield from _pieces(data)


def _pieces(data: bytes) -> Iterator[bytes | int]:
    """Data with runs of whole blocks of zeros as numbers."""
    kept = zeros = 0
    for start in range(0, len(data), _BLOCK):
        block = data[start : start + _BLOCK]
        if block.count(0) < len(block):
            if zeros:
                yield zeros
                kept, zeros = start, 0
            continue
        if not zeros and start > kept:
            yield data[kept:start]
        zeros += len(block)
    if zeros:
        yield zeros
    elif len(data) > kept:
        yield data[kept:]


def build(store: Store, taken: Sequence[Taken]) -> HealedStore:
    """Copy the files that change, and put the replicas' bytes into the copies.

    Errors: NoSpace; OSError.
    """
    folder = ScratchFolder()
    files = _files(taken, folder)
    needed = sum(f.taken[0].place.log.queue.file_size for f in files)
    free = shutil.disk_usage(folder.path).free
    if free < needed:
        many = "1 log file" if len(files) == 1 else f"{len(files):,} log files"
        raise NoSpace(
            f"copies of {many} need {needed:,} bytes in {folder.path.parent}, which has {free:,}",
            "set TMPDIR to a directory with more space",
        )
    standins: dict[Path, Path] = {}
    for file in files:
        home = file.path.parent
        if home not in standins.values():
            standin = folder.make_directory(f"{len(standins)}-{home.name}")
            standins[standin] = home
            for queue_home in _other_homes(file.taken[0].place.log.queue, standins):
                standins[folder.make_directory(f"{len(standins)}-{queue_home.name}")] = queue_home
    by_home = {home: standin for standin, home in standins.items()}
    for file in files:
        file.copy = by_home[file.path.parent] / file.path.name
        _fill(file, folder)
    copied = {file.path for file in files}
    for standin, home in standins.items():
        for entry in list_directory(home):
            if entry.path not in copied:
                folder.link(standin / entry.path.name, entry.path.absolute())
    return HealedStore(store.with_log_files_in(standins), files, folder)


def _other_homes(queue: MappedFileQueue, standins: dict[Path, Path]) -> list[Path]:
    return [d for d in queue.directories if d not in standins.values() and d.is_dir()]


def _files(taken: Sequence[Taken], folder: ScratchFolder) -> list[HealedFile]:
    """The files that the bytes belong to."""
    out: dict[Path, HealedFile] = {}
    for piece in taken:
        queue = piece.place.log.queue
        file = queue.find(piece.start)
        start = piece.start // queue.file_size * queue.file_size
        like = queue.files[0].path if queue.files else None
        home = like.parent if like is not None else queue.directories[0]
        path = file.path if file is not None else home / offset_to_file_name(start)
        length = file.length if file is not None else None
        out.setdefault(path, HealedFile(path, folder.path, start, length, like)).taken.append(piece)
    return list(out.values())


def _fill(file: HealedFile, folder: ScratchFolder) -> None:
    """Make the copy. One that gets bytes behind its end, or that is missing, becomes as long as its log's files are."""
    last = max(piece.stop for piece in file.taken) - file.start
    size = file.length if file.length is not None and last <= file.length else file.taken[0].place.log.queue.file_size
    folder.copy(file.path if file.length is not None else None, file.copy, size)
    for piece in file.taken:
        for at in range(piece.start, piece.stop, CHUNK):
            data = piece.replica.bytes_at(piece.place.log.lead, at, min(at + CHUNK, piece.stop))
            folder.write_at(file.copy, data, at - file.start)


def messages_in(healed: HealedStore, piece: Taken) -> int:
    """How many records taken bytes hold."""
    queue = (healed.store.dledger.data if healed.store.dledger is not None else None) if piece.place.log.lead else None
    queue = queue or healed.store.commitlog
    file = queue.find(piece.start) if queue is not None else None
    if file is None or not piece.good:
        return 0
    start, stop = piece.start - file.start, piece.stop - file.start
    options = ScanOptions(crc=False, chunk=min(max(stop - start, _LEAST_READ), _MOST_READ))
    runs = scan_file(file, start=start, stop=stop, lead=piece.place.log.lead, exact=True, options=options)
    return sum(run.count for run in runs if run.kind is Kind.RECORDS)
