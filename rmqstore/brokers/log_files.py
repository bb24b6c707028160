"""The loaded files of a log, for a simulated start: as runs of a scan, or byte by byte for the broker's own parser.

`walk.py` walks them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rmqstore.brokers.dispatch import Queues
from rmqstore.brokers.forecast import StartOptions
from rmqstore.brokers.mapped_files import SimulatedFile, SimulatedFiles
from rmqstore.brokers.record import Checked, ParserSettings, check_message_and_return_size
from rmqstore.brokers.rules import BrokerRules, PropertyCrc
from rmqstore.files.files import SmallReads
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.formats import dledger
from rmqstore.formats.message import BLANK_MAGIC, MAGIC_V1, MAGIC_V2, NewerRecords
from rmqstore.scan.columns import Columns
from rmqstore.scan.properties import PARSED_NAMES
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind, Run, Tiling
from rmqstore.scan.units import KnownUnits
from rmqstore.scan.window import ScanOptions
from rmqstore.texts import Text

_BLOCK = 64 << 10


class FileBytes(SmallReads):
    """Reads `(size, position)` of one file through a 64-KiB buffer; short at the end, empty if it cannot be opened."""

    def __init__(self, file: SimulatedFile) -> None:
        super().__init__(file)
        self._at = 0
        self._block = b""

    def __call__(self, size: int, at: int) -> bytes:
        if size <= 0:
            return b""
        if size >= _BLOCK:
            return self.pread(size, at)
        lo = at - self._at
        if lo < 0 or lo + size > len(self._block):
            self._at, self._block, lo = at, self.pread(_BLOCK, at), 0
        return self._block[lo : lo + size]


_SEARCH = 4 << 20


class Scanned(NamedTuple):
    """The result of an earlier scan: a tiling, and the files that it covers."""

    tiling: Tiling | None = None
    files: frozenset[Path] = frozenset()


class LogFiles:
    """The loaded files of a log, with their tiling if there is one.

    `body_offset` is 0 for a commitlog, 48 for DLedger data, where an entry header precedes each message. `units`, if
    set, belong to the tiling's good records: a range that holds nothing else is dispatched from them, without reading.
    """

    def __init__(
        self,
        log: SimulatedFiles,
        rules: BrokerRules,
        settings: ParserSettings,
        scanned: Scanned,
        *,
        options: StartOptions,
        body_offset: int = 0,
    ) -> None:
        self.log = log
        self.files = log.files
        self.file_size = log.file_size
        self.rules = rules
        self.settings = settings
        self.tiling = scanned.tiling
        self.tiled = scanned.files
        self.thorough = options.thorough
        self.old_from = options.old_from
        self.body_offset = body_offset
        self.units: KnownUnits | None = None
        newer = self.tiling.newer if self.tiling is not None and self.tiled else None
        if newer is None:
            newer = NewerRecords.V2 | NewerRecords.IPV6
        self.too_new = bool(newer & NewerRecords.V2 and not rules.v2) or bool(
            newer & NewerRecords.IPV6 and not rules.ipv6
        )
        """Whether the log may have good records that this version does not read."""
        by_record_crc = settings.force_property_crc and settings.check_crc
        self.all_exact = (by_record_crc and rules.property_crc is not PropertyCrc.NONE) or (
            settings.duplication and rules.duplicate_info
        )

    def first_record(self, index: int) -> Checked:
        """Check the first record of a file as the broker does."""
        with FileBytes(self.files[index]) as read:
            return check_message_and_return_size(read, 0, self.file_size, self.rules, self.settings)

    def check(self, read: FileBytes, at: int, limit: int, *, body: bool = True) -> tuple[Checked, int]:
        """Return the broker's verdict at a position of a file, and how many bytes it advances.

        If a DLedger entry holds a BLANK instead of a message, recovery, which uses only the message's size, sees the
        end of the file; re-dispatch, which adds the size of the entry header, sees a message without a topic.
        Source: CommitLog#checkMessageAndReturnSize, DLedgerCommitLog#checkMessageAndReturnSize
        """
        if self.body_offset:
            raw = read(8, at)
            if limit - at < 8 or len(raw) < 8:
                return Checked(-1, False, Text("no bytes left")), 0
            first, second = int.from_bytes(raw[:4], "big", signed=True), int.from_bytes(raw[4:], "big", signed=True)
            if second not in (BLANK_MAGIC, MAGIC_V1) and not (second == MAGIC_V2 and self.rules.v2):
                if first == dledger.BLANK_MAGIC:
                    return Checked(0, True, Text("end of file")), 0
                at += self.body_offset
                checked = check_message_and_return_size(read, at, limit, self.rules, self.settings, body=body)
                return checked, checked.size + self.body_offset if checked.size >= 0 else 0
        checked = check_message_and_return_size(read, at, limit, self.rules, self.settings, body=body)
        return checked, max(0, checked.size)

    def head(self, index: int, size: int) -> bytes:
        with FileBytes(self.files[index]) as read:
            return read(size, 0)

    def runs(
        self, index: int, start: int, columns: bool, above: int | None = None, *, search: bool = True
    ) -> Iterator[Run]:
        """Yield the runs of a file from position `start` on (0, or that of a record), with columns if `columns`.

        Runs that end at or below the offset `above` come without columns, unless `search` finds something in them
        that could make the broker's parser throw.
        """
        file = self.files[index]
        mapped = MappedFile(file.path, file.start, self.file_size, self.file_size, files=file.files)
        if self.tiling is None or file.path not in self.tiled:
            options = ScanOptions(crc=self.settings.check_crc)
            yield from scan_file(mapped, start=start, body_offset=self.body_offset, options=options)
            return
        at = file.start + start
        while at < file.start + self.file_size:
            run = self.tiling.find(at)
            if run is None:  # the tiling ends early: a broker has written to the store since the scan
                yield from scan_file(mapped, start=at - file.start, body_offset=self.body_offset)
                return
            stop = min(run.stop, file.start + self.file_size)
            wanted = columns and (above is None or stop > above or (search and self._suspicious(file, at, stop)))
            if run.kind is Kind.RECORDS and wanted:
                options = ScanOptions(crc=False)
                begin, end = at - file.start, stop - file.start
                yield from scan_file(mapped, start=begin, stop=end, body_offset=self.body_offset, options=options)
            else:
                yield Run(run.kind, max(run.start, file.start), stop, run.count, run.cause, run.claimed)
            at = stop

    def _suspicious(self, file: SimulatedFile, start: int, stop: int) -> bool:
        """Return whether good records contain something that only the broker's parser can judge."""
        if self.too_new:
            return True  # columns are faster than a byte search: nearly every record contains almost the same magic
        if not self.thorough:
            return False
        if self.tiling is not None and self.tiling.parsed is not None:
            return not self.tiling.is_plain(start, stop)
        overlap = max(len(n) for n in PARSED_NAMES) - 1
        with FileBytes(file) as read:
            at = start - file.start
            while at < stop - file.start:
                data = read(min(_SEARCH, stop - file.start - at + overlap), at)
                if not data or any(n in data for n in PARSED_NAMES):
                    return bool(data)
                at += max(1, len(data) - overlap)
        return False

    def is_plain(self, part: Columns, file: SimulatedFile) -> bool:
        """Return whether the tiling proves that none of these records needs the exact parser."""
        if self.tiling is None or file.path not in self.tiled or not len(part):
            return False
        return self.tiling.is_plain(int(part.offset[0]) - self.body_offset, int(part.offset[-1]) + 1)

    def known_from(self, start: int, queues: Queues) -> int | None:
        """Return the end of the last good record if `units` hold everything to dispatch from `start` on, else None."""
        tiling, units = self.tiling, self.units
        if units is None or tiling is None or not units.complete or queues.settings.batch_topics or self.all_exact:
            return None
        if queues.throws:  # then each message counts
            return None
        if self.too_new or any(file.path not in self.tiled for file in self.files):
            return None
        first, end = tiling.find(start), tiling.wrote()
        if first is None or first.start != start or tiling.first_bad() is not None or tiling.has(Kind.INTERNAL):
            return None
        return end if tiling.is_plain(start, end) else None
