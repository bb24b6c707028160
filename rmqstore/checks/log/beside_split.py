"""What a split of the log was compared with: the ranges read beside it, and digests of their content.

If a later run reads the same ranges and gets the same digests, the split is compared with the same bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.formats.layout import Layout
from rmqstore.scan.units import UnitArray
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.checks.index.catalog import IndexCatalog
    from rmqstore.checks.index.files import Entries
    from rmqstore.checks.log.stored_units import UnitFiles


@dataclass(slots=True)
class BesideSplit:
    """The ranges in the order in which they were read, and a digest of each kind's contents ("": none was made).

    `units`: (topic, queue id, first unit, count) of consume queues; `index`: global offsets [low, high) of the log
    whose index entries were read; `entries`: (bytes, offset) of the DLedger index.
    """

    units: list[tuple[str, int, int, int]] = field(default_factory=list)
    index: list[tuple[int, int]] = field(default_factory=list)
    entries: list[tuple[int, int]] = field(default_factory=list)
    digests: tuple[str, str, str] = ("", "", "")


class WatchedReads:
    """Reads beside the log, and notes the ranges. A source is None if the store does not have it.

    `digests`: make a digest of what is read.
    """

    def __init__(
        self,
        units: UnitFiles | None,
        catalog: IndexCatalog | None,
        entry_units: MappedFileQueue | None,
        *,
        digests: bool = True,
    ) -> None:
        self._units, self._catalog, self._entry_units = units, catalog, entry_units
        self._seen = BesideSplit()
        self._hashes = tuple(hashlib.blake2b(digest_size=16) for _ in range(3)) if digests else ()

    def read(self, topic: str, queue_id: int, first: int, count: int) -> UnitArray:
        """Like `UnitReader.read`."""
        if self._units is None:
            raise ValueError(Text("no consume queues to read"))
        found = self._units.read(topic, queue_id, first, count)
        self._seen.units.append((topic, queue_id, first, count))
        if self._hashes:
            self._hashes[0].update(len(found).to_bytes(8, "big") + found.tobytes())
        return found

    def file_of(self, topic: str, queue_id: int, at: int) -> str:
        """Like `UnitReader.file_of`."""
        return self._units.file_of(topic, queue_id, at) if self._units is not None else ""

    def index(self, low: int, high: int, entries: Entries, whole: bool) -> None:
        """Note that the index entries of [low, high) were read; the last two are from `IndexCatalog.entries`."""
        self._seen.index.append((low, high))
        if self._hashes and self._catalog is not None:
            self._hashes[1].update(self._catalog.digest(entries, whole))

    def pread(self, size: int, offset: int) -> bytes:
        """Like `MappedFileQueue.pread` of the DLedger index."""
        if self._entry_units is None:
            raise ValueError(Text("no DLedger index to read"))
        found = self._entry_units.pread(size, offset)
        self._seen.entries.append((size, offset))
        if self._hashes:
            self._hashes[2].update(len(found).to_bytes(8, "big") + found)
        return found

    def unit(self, layout: Layout, number: int) -> dict[str, Any] | None:
        """Like `MappedFileQueue.unit` of the DLedger index."""
        raw = self.pread(layout.size, number * layout.size) if number >= 0 else b""
        return layout.unpack(raw) if len(raw) == layout.size else None

    def result(self) -> BesideSplit:
        """Return the ranges read so far, with their digests."""
        if self._hashes:
            a, b, c = (one.hexdigest() for one in self._hashes)
            self._seen.digests = (a, b, c)
        return self._seen

    def digests(self, known: BesideSplit) -> tuple[str, str, str] | None:
        """Return the digests of the ranges of an earlier run as they are now; None if a source is missing."""
        again = WatchedReads(self._units, self._catalog, self._entry_units)
        if (known.units and self._units is None) or (known.entries and self._entry_units is None):
            return None
        for one in known.units:
            again.read(*one)
        for low, high in known.index:
            if self._catalog is None:
                return None
            again.index(low, high, *self._catalog.entries(low, high))
        for size, offset in known.entries:
            again.pread(size, offset)
        return again.result().digests
