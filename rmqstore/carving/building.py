"""Build the store of a life: its log from the source, then queues, index and checkpoint from the log.

A place that no proven record fills stays a hole of zeros, which `recover` fills. Files of which nothing was found are
not made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rmqstore.append.disk import make_directories, write_new_file
from rmqstore.carving.places import WrittenPiece, places
from rmqstore.carving.source import RawSource
from rmqstore.carving.state import CarvingState
from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems.report import Report
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.mapped_file_queue import offset_to_file_name
from rmqstore.files.private import Removed
from rmqstore.files.store import Store, open_store
from rmqstore.formats import dledger
from rmqstore.formats.message import BLANK
from rmqstore.repair.new_store import carry_out
from rmqstore.repair.rebuild.unit_buffer import KeptUnits
from rmqstore.repair.rebuild_parts import CHECKPOINT, CQ, DLEDGER_INDEX, INDEX, plan_rebuild
from rmqstore.scan.workers import one_ahead

_BLOCK = 4 << 20
_ZEROS = memoryview(bytes(_BLOCK))
Progress = Callable[[int], None]


def build(
    source: RawSource,
    state: CarvingState,
    life: int,
    size: int,
    place: Path,
    documents: Mapping[str, bytes],
    how: NewStoreOptions,
) -> Report:
    """Write the store of a life at `place`, whose log files have `size` bytes; return the report of its verification.

    `documents`: configuration files by name. Errors: NoSpace, NotReadable, CouldNotCheck.
    """
    for body_offset, folder in ((0, "commitlog"), (dledger.BODY_OFFSET, f"dledger-{how.self_id}/data")):
        _write_log(source, state, life, body_offset, size, place / folder, how.progress)
    write_documents(place / "config", documents)
    _derive(place, how)
    return verified(place, how)


def write_documents(folder: Path, documents: Mapping[str, bytes]) -> None:
    """Write configuration files. Errors: NoSpace, NotReadable."""
    for name, data in documents.items():
        make_directories(folder)
        write_new_file(folder / name, len(data), [data])


def verified(place: Path, how: NewStoreOptions) -> Report:
    """Return the report of a verification."""
    return examine(_opened(place, how), VerifyOptions(jobs=how.jobs, broker=how.broker)).report


@dataclass(frozen=True, slots=True)
class NewStoreOptions:
    """How stores are built. `config`: sizes of queue files; `self_id`: dLegerSelfId of DLedger logs.

    `progress` is called with the bytes that are written, `removed` with what an interrupted run left.
    """

    config: BrokerConfig
    self_id: str = "n0"
    broker: str = ""
    jobs: int | None = None
    progress: Progress | None = None
    removed: Removed | None = None


def _opened(place: Path, how: NewStoreOptions) -> Store:
    return open_store(place, how.config)


def _write_log(
    source: RawSource,
    state: CarvingState,
    life: int,
    body_offset: int,
    size: int,
    folder: Path,
    progress: Progress | None,
) -> None:
    waiting: list[WrittenPiece] = []
    for one in places(state, life, body_offset):
        if waiting and one.start // size != waiting[0].start // size:
            _write_file(source, waiting, size, folder, progress)
            waiting = []
        waiting.append(one)
    if waiting:
        _write_file(source, waiting, size, folder, progress)


def _write_file(
    source: RawSource, found: list[WrittenPiece], size: int, folder: Path, progress: Progress | None
) -> None:
    start = found[0].start // size * size
    make_directories(folder)
    with closing(one_ahead(_content(source, found, start, size, progress))) as ready:
        write_new_file(folder / offset_to_file_name(start), size, ready)


def _content(
    source: RawSource, found: list[WrittenPiece], start: int, size: int, progress: Progress | None
) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a file up to its last record or BLANK, with zeros for holes."""
    at = start
    for one in found:
        yield from _zeros(one.start - at)
        for begin in range(one.start, one.stop, _BLOCK):
            data = source.read(min(_BLOCK, one.stop - begin), one.piece.at(begin))
            yield data
            if progress is not None:
                progress(len(data))
        at = one.stop
        if one.piece.file_end == start + size:
            left = start + size - at
            blank = dledger.build_blank(left) if one.piece.body_offset else BLANK.build(size=left)
            yield blank
            at += len(blank)


def _zeros(count: int) -> Iterator[memoryview]:
    while count > 0:
        yield _ZEROS[: min(count, _BLOCK)]
        count -= _BLOCK


def _derive(place: Path, how: NewStoreOptions) -> None:
    """Rebuild what follows from the log."""
    store = _opened(place, how)
    found = examine(store, VerifyOptions(jobs=how.jobs, broker=how.broker, units=KeptUnits()))
    if not any(result.messages for result in found.results):
        return
    for part in (CQ, INDEX, CHECKPOINT, DLEDGER_INDEX):
        if part != DLEDGER_INDEX or found.dledger is not None:
            carry_out(plan_rebuild(store, found, part), place)
