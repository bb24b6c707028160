"""The loaded files of a log as a starting broker meets them: runs of what the scan found, and its parser byte for byte.

`log_walk.py` walks over them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rmqstore.brokers.load.mapped_files import SimulatedFile
from rmqstore.brokers.log.file_bytes import FileBytes
from rmqstore.brokers.queues.dispatch import Queues
from rmqstore.brokers.rules.record import Checked, ParserSettings, check_message_and_return_size
from rmqstore.brokers.rules.versions import BrokerRules, PropertyCrc
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.formats import dledger
from rmqstore.formats.message import BLANK_MAGIC, MAGIC_V1, MAGIC_V2
from rmqstore.scan.columns import Columns
from rmqstore.scan.properties.texts import PARSED_NAMES
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind, Run, Tiling
from rmqstore.scan.units import KnownUnits
from rmqstore.scan.window import ScanOptions

_SEARCH = 4 << 20


class Scanned(NamedTuple):
    """What a scan has found before the simulated start: a tiling, and the files that it covers."""

    tiling: Tiling | None = None
    files: frozenset[Path] = frozenset()


class LogFiles:
    """The loaded files of a log, and the tiling of them when there is one.

    `lead` is 0 for a commitlog, 48 for DLedger data, where each message has an entry header before it. `units`, when
    set, are those of the tiling's good records: where nothing else lies, they are dispatched without a look at the log.
    """

    def __init__(
        self,
        files: list[SimulatedFile],
        file_size: int,
        rules: BrokerRules,
        settings: ParserSettings,
        scanned: Scanned,
        *,
        thorough: bool = True,
        lead: int = 0,
    ) -> None:
        self.files = files
        self.file_size = file_size
        self.rules = rules
        self.settings = settings
        self.tiling = scanned.tiling
        self.tiled = scanned.files
        self.thorough = thorough
        self.lead = lead
        self.units: KnownUnits | None = None
        known_crc = rules.property_crc is not PropertyCrc.NONE
        self.all_exact = (settings.force_property_crc and known_crc and settings.check_crc) or (
            settings.duplication and rules.duplicate_info
        )

    def first_record(self, index: int) -> Checked:
        """The broker's verdict on the first record of a file."""
        with FileBytes(self.files[index].path) as read:
            return check_message_and_return_size(read, 0, self.file_size, self.rules, self.settings)

    def check(self, read: FileBytes, at: int, limit: int, *, body: bool = True) -> tuple[Checked, int]:
        """The broker's verdict at a position of a file, and how far it goes on, bytes.

        A BLANK in the place of a DLedger entry's message is the end of the file for recovery, which looks at the
        message's size only; re-dispatch takes the entry's header for a message of no topic.
        Source: CommitLog#checkMessageAndReturnSize, DLedgerCommitLog#checkMessageAndReturnSize
        """
        if self.lead:
            raw = read(8, at)
            if limit - at < 8 or len(raw) < 8:
                return Checked(-1, False, "no bytes left"), 0
            first, second = int.from_bytes(raw[:4], "big", signed=True), int.from_bytes(raw[4:], "big", signed=True)
            if second not in (BLANK_MAGIC, MAGIC_V1) and not (self.rules.v2 and second == MAGIC_V2):
                if first == dledger.BLANK_MAGIC:
                    return Checked(0, True, "end of file"), 0
                at += self.lead
                checked = check_message_and_return_size(read, at, limit, self.rules, self.settings, body=body)
                return checked, checked.size + self.lead if checked.size >= 0 else 0
        checked = check_message_and_return_size(read, at, limit, self.rules, self.settings, body=body)
        return checked, max(0, checked.size)

    def head(self, index: int, size: int) -> bytes:
        with FileBytes(self.files[index].path) as read:
            return read(size, 0)

    def runs(
        self, index: int, start: int, columns: bool, above: int | None = None, *, search: bool = True
    ) -> Iterator[Run]:
        """Runs of a file from position `start` (0, or a record's) on; with columns where asked for.

        `columns` may be left out for runs that end at or below `above` and (`search`) hold nothing that the broker's
        parser trips over.
        """
        file = self.files[index]
        mapped = MappedFile(file.path, file.start, self.file_size, self.file_size)
        if self.tiling is None or file.path not in self.tiled:
            options = ScanOptions(crc=self.settings.check_crc)
            yield from scan_file(mapped, start=start, lead=self.lead, options=options)
            return
        at = file.start + start
        while at < file.start + self.file_size:
            run = self.tiling.find(at)
            if run is None:  # the tiling ends here, as that of a store which somebody writes to
                yield from scan_file(mapped, start=at - file.start, lead=self.lead)
                return
            stop = min(run.stop, file.start + self.file_size)
            wanted = columns and (above is None or stop > above or (search and self._suspicious(file, at, stop)))
            if run.kind is Kind.RECORDS and wanted:
                options = ScanOptions(crc=False)
                begin, end = at - file.start, stop - file.start
                yield from scan_file(mapped, start=begin, stop=end, lead=self.lead, options=options)
            else:
                yield Run(run.kind, max(run.start, file.start), stop, run.count, run.cause, run.claimed)
            at = stop

    def _suspicious(self, file: SimulatedFile, start: int, stop: int) -> bool:
        """Whether bytes of good records hold something for which the broker's parser must be asked."""
        if not self.thorough:
            return False
        if not self.rules.ipv6 or not self.rules.v2:
            return True  # the columns tell sooner than a search for a magic that nearly all records have nearly
        if self.tiling is not None and self.tiling.parsed is not None:
            return not self.tiling.is_plain(start, stop)
        overlap = max(len(n) for n in PARSED_NAMES) - 1
        with FileBytes(file.path) as read:
            at = start - file.start
            while at < stop - file.start:
                data = read(min(_SEARCH, stop - file.start - at + overlap), at)
                if not data or any(n in data for n in PARSED_NAMES):
                    return bool(data)
                at += max(1, len(data) - overlap)
        return False

    def is_plain(self, part: Columns, file: SimulatedFile) -> bool:
        """Whether the tiling knows that no record of these needs the exact parser."""
        if self.tiling is None or file.path not in self.tiled or not len(part):
            return False
        return self.tiling.is_plain(int(part.offset[0]) - self.lead, int(part.offset[-1]) + 1)

    def known_from(self, start: int, queues: Queues) -> int | None:
        """Where the last good record ends, if `units` tell all that the log has to dispatch from `start` on."""
        tiling, units = self.tiling, self.units
        if units is None or tiling is None or not units.complete or queues.settings.batch_topics or self.all_exact:
            return None
        if not self.rules.v2 or not self.rules.ipv6 or any(file.path not in self.tiled for file in self.files):
            return None
        first, end = tiling.find(start), tiling.wrote()
        if first is None or first.start != start or tiling.first_bad() is not None or tiling.has(Kind.INTERNAL):
            return None
        return end if tiling.is_plain(start, end) else None
