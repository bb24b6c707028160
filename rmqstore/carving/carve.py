"""Carve a source: its stages, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.carving.documents import FoundDocument
from rmqstore.carving.doubts import block_size, settle_doubts
from rmqstore.carving.geometry import log_file_size
from rmqstore.carving.joining import join
from rmqstore.carving.lives import Life, sort_into_lives
from rmqstore.carving.pieces import find_pieces
from rmqstore.carving.places import count_records, places
from rmqstore.carving.source import RawSource
from rmqstore.carving.state import SCANNED, CarvingState
from rmqstore.errors import NotAStore
from rmqstore.files.trees import building
from rmqstore.formats import dledger
from rmqstore.formats.message import host_text
from rmqstore.formats.ranges import Ranges
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.carving.building import NewStoreOptions
    from rmqstore.checks.problems.report import Report

Progress = Callable[[int], None]
_SETTLED = "settled"


@dataclass(slots=True)
class CarvedLog:
    """The commitlog or the DLedger entries of a life. `spans`: what was found, offsets; `holes`: what was not."""

    dledger: bool
    messages: int
    spans: Ranges

    @property
    def bytes(self) -> int:
        return len(self.spans)

    @property
    def holes(self) -> Ranges:
        """The bytes between the spans."""
        return Ranges.span(self.spans.start, self.spans.stop) - self.spans


@dataclass(slots=True)
class CarvedStore:
    """What was found of a life. `name`: "" for the store at OUT; times in ms; `size_from`: see `log_file_size`."""

    life: Life
    name: str
    logs: list[CarvedLog]
    file_size: int
    size_from: str
    report: Report | None = None

    @property
    def hosts(self) -> list[str]:
        """The brokers' addresses."""
        return sorted(map(host_text, self.life.hosts))

    @property
    def messages(self) -> int:
        return sum(log.messages for log in self.logs)


@dataclass(slots=True)
class Carved:
    """The result. `duplicates`: records that were found more than once; `doubtful`: see `doubts`. Bytes."""

    source: RawSource
    stores: list[CarvedStore]
    block: int
    doubtful: int = 0
    duplicates: int = 0
    unreadable: int = 0
    documents: list[CarvedDocument] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def brokers(self) -> int:
        """The number of brokers that wrote the stores."""
        return len({store.life.group for store in self.stores})


@dataclass(frozen=True, slots=True)
class CarvedDocument:
    """The newest version of a configuration file, and how many versions there are."""

    found: FoundDocument
    versions: int


def scan(source: RawSource, state: CarvingState, progress: Progress | None = None) -> None:
    """Find the pieces of a source; go on where an earlier run was interrupted. Errors: OSError."""
    begin = state.fact(SCANNED, 0)
    for segment in source.segments:
        if segment.stop <= begin:
            if progress is not None:
                progress(segment.length)
            continue
        at = max(begin, segment.start)
        if progress is not None:
            progress(at - segment.start)
        for found in find_pieces(source, segment, at):
            state.add_found(found)
            if progress is not None:
                progress(found.done - at)
            at = found.done


def survey(source: RawSource, state: CarvingState, file_size: int = 0) -> Carved:
    """Say what the pieces are: stores, spans, messages. Errors: NotAStore without any message."""
    block = block_size(source, state)
    if not state.fact(_SETTLED, False):
        state.remember("doubtful", settle_doubts(source, state, block))
        state.remember("joined", join(source, state, block))
        state.remember(_SETTLED, True)
    lives = sort_into_lives(source, state)
    if not lives:
        raise NotAStore(
            Text("{path} has no record of a message", path=source.path),
            Text("name the device that held the store, or an image of it"),
        )
    stores = []
    for life in lives:
        size, source_of_size = log_file_size(state, life.number, file_size)
        logs = [_log(source, state, life, body_offset) for body_offset in (0, dledger.BODY_OFFSET)]
        stores.append(CarvedStore(life, "", [log for log in logs if log.spans], size, source_of_size))
    found = state.rows("SELECT coalesce(sum(count), 0) FROM pieces")[0][0]
    stores = named(stores)
    duplicates = found - sum(store.messages for store in stores)
    documents = [CarvedDocument(*one) for one in state.documents()]
    return Carved(source, stores, block, state.fact("doubtful", 0), duplicates, source.unreadable, documents)


def _log(source: RawSource, state: CarvingState, life: Life, body_offset: int) -> CarvedLog:
    messages, parts = 0, []
    for place in places(state, life.number, body_offset):
        piece = place.piece
        messages += count_records(source, place)
        parts.append((place.start, place.stop))
        if piece.file_end:
            parts.append((place.stop, piece.file_end))
    return CarvedLog(bool(body_offset), messages, Ranges.of(parts))


def named(stores: list[CarvedStore]) -> list[CarvedStore]:
    """Put the store that OUT gets first, and name the others: the newest life of the broker with most messages."""
    most: dict[int, int] = {}
    for store in stores:
        most[store.life.group] = most.get(store.life.group, 0) + store.messages
    group = max(most, key=lambda number: (most[number], -number))
    mine = [store for store in stores if store.life.group == group]
    first = max(mine, key=lambda store: (not store.life.beside, store.life.number))
    others = [store for store in stores if store is not first]
    for number, store in enumerate(others, 1):
        store.name = f"store-{number}"
    return [first, *others]


def build_stores(carved: Carved, state: CarvingState, target: Path, beside: Path, how: NewStoreOptions) -> None:
    """Write all stores: the first one at `target`, which appears last, the others below `beside`.

    If there is only one broker, the first store gets the configuration files; otherwise they are written to `beside`.
    What an interrupted run has finished stays. Errors: as `building` and `build`.
    """
    from rmqstore.carving.building import build, verified, write_documents

    documents = {one.found.name: _bytes_of(carved.source, one.found) for one in carved.documents}
    for store in reversed(carved.stores):
        path = beside / store.name if store.name else target
        if store.name and path.is_dir():
            store.report = verified(path, how)
            continue
        own = documents if not store.name and carved.brokers == 1 else {}
        with building(path, how.removed) as place:
            store.report = build(carved.source, state, store.life.number, store.file_size, place, own, how)
    if documents and carved.brokers > 1 and not (beside / "config").is_dir():
        with building(beside / "config", how.removed) as place:
            write_documents(place, documents)


def _bytes_of(source: RawSource, found: FoundDocument) -> bytes:
    return source.read(found.length, found.source)
