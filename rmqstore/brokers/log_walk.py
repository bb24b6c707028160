"""The walk of a starting broker over the commitlog: exactly its parser where it matters, columns where it does not.

A run of good records that the scan found is taken by every version, save for what `_first_refused` looks for; all else
(damage, zeros, records of another place) goes through the exact parser, byte for byte.
Source: CommitLog#recoverNormally, #recoverAbnormally (RocketMQ 4.3.0 to 5.4.0).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rmqstore.brokers.dispatching import Condition, Queues, needs_exact_parser
from rmqstore.brokers.file_bytes import FileBytes
from rmqstore.brokers.loading import SimulatedFile
from rmqstore.brokers.record import Checked, ParserSettings, check_message_and_return_size
from rmqstore.brokers.rules import BrokerRules, PropertyCrc
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.formats import dledger
from rmqstore.formats.message import (
    BLANK_MAGIC,
    BORN_HOST_V6,
    MAGIC_V1,
    MAGIC_V2,
    MAGIC_V2_U32,
    STORE_HOST_V6,
)
from rmqstore.scan.columns import Columns
from rmqstore.scan.queues import QueueTable
from rmqstore.scan.records import scan_file
from rmqstore.scan.texts import PARSED_NAMES
from rmqstore.scan.tiling import Kind, Run, Tiling
from rmqstore.scan.units import KnownUnits
from rmqstore.scan.window import ScanOptions

_SEARCH = 4 << 20
_NEVER = 1 << 63


@dataclass(slots=True)
class Walk:
    """How far the walk came: `stop` is processOffset, `file` the index of the file that it ended in."""

    stop: int
    file: int
    reason: str = ""
    fatal: bool = False
    half: bool = False
    records: int = 0
    stale: int = 0
    """Accepted records whose PHYSICALOFFSET is not their place."""
    half_accepted: int = 0
    sizes: int = 0
    """Sum of TOTALSIZE in the file that the walk ended in."""


@dataclass(slots=True)
class Losses:
    """Good records at or behind a position: what a broker that stops there drops."""

    messages: int = 0
    topics: Counter[str] = field(default_factory=Counter)
    in_kept_file: int = 0
    """Those that stay as bytes in the file that holds the position."""


class LogReader:
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
        tiling: Tiling | None,
        tiled: frozenset[Path],
        *,
        thorough: bool = True,
        lead: int = 0,
    ) -> None:
        self.files = files
        self.file_size = file_size
        self.rules = rules
        self.settings = settings
        self.tiling = tiling
        self.tiled = tiled
        self.thorough = thorough
        self.lead = lead
        self.units: KnownUnits | None = None
        known_crc = rules.property_crc is not PropertyCrc.NONE
        self._all_exact = (settings.force_property_crc and known_crc and settings.check_crc) or (
            settings.duplication and rules.duplicate_info
        )

    def first_record(self, index: int) -> Checked:
        """The broker's verdict on the first record of a file."""
        with FileBytes(self.files[index].path) as read:
            return check_message_and_return_size(read, 0, self.file_size, self.rules, self.settings)

    def check(self, read: FileBytes, at: int, limit: int, *, body: bool = True) -> tuple[Checked, int]:
        """The broker's verdict at a position of a file, and how far it goes on.

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
                return checked, checked.size + self.lead if checked.size > 0 else 0
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

    def _is_plain(self, part: Columns, file: SimulatedFile) -> bool:
        """Whether the tiling knows that no record of these needs the exact parser."""
        if self.tiling is None or file.path not in self.tiled or not len(part):
            return False
        return self.tiling.is_plain(int(part.offset[0]) - self.lead, int(part.offset[-1]) + 1)

    def _known_from(self, start: int, queues: Queues) -> int | None:
        """Where the last good record ends, if `units` tell all that the log has to dispatch from `start` on."""
        tiling, units = self.tiling, self.units
        if units is None or tiling is None or not units.complete or queues.settings.batch_topics or self._all_exact:
            return None
        if not self.rules.v2 or not self.rules.ipv6 or any(file.path not in self.tiled for file in self.files):
            return None
        first, end = tiling.find(start), tiling.wrote()
        if first is None or first.start != start or tiling.first_bad() is not None or tiling.has(Kind.INTERNAL):
            return None
        return end if tiling.is_plain(start, end) else None

    # --- recovery -------------------------------------------------------------------------------------------------

    def walk(self, index: int, queues: Queues | None, condition: Condition, *, accept_half: bool = False) -> Walk:
        """From position 0 of file `index` until a record fails or the last file ends."""
        start = self.files[index].start
        known = self._known_from(start, queues) if queues is not None and not self.lead else None
        if queues is not None and known is not None and self.units is not None:
            walked = self.walk(index, None, condition, accept_half=accept_half)
            if walked.stop >= known:
                queues.dispatch_known(self.units, start, known, condition)
                return walked
        out = Walk(self.files[index].start, index)
        columns = self.thorough or queues is not None
        above = _NEVER if queues is None else condition.above
        while True:
            file = self.files[out.file]
            out.stop = file.start
            out.sizes = 0
            if queues is not None:
                queues.next_log_file()
            with FileBytes(file.path) as read:
                runs = self.runs(out.file, 0, columns, above)
                done = self._walk_file(file, read, out, runs, queues, condition, accept_half)
            if done or out.file + 1 >= len(self.files):
                return out
            out.file += 1

    def _walk_file(
        self,
        file: SimulatedFile,
        read: FileBytes,
        out: Walk,
        runs: Iterator[Run],
        queues: Queues | None,
        condition: Condition,
        accept_half: bool,
    ) -> bool:
        """False at a BLANK (the next file follows), True where the walk ends; `out.stop` is moved on."""
        at = 0
        for run in runs:
            behind = run.stop - file.start
            aligned = run.start - file.start == at
            while at < behind:
                if aligned and run.kind is Kind.RECORDS and not self._all_exact:
                    part = run.columns
                    if part is not None and part.offset[0] != file.start + at + self.lead:
                        part = part.take(part.offset >= file.start + at + self.lead)
                    refused = None if part is None else self._take(part, read, file, out, queues, condition)
                    if refused is not None:
                        at, bad = refused
                        out.stop = file.start + at
                        return self._ends(bad, out)
                    out.records += run.count if part is None else len(part)
                    out.sizes += behind - at - self.lead * (run.count if part is None else len(part))
                    at = behind
                    out.stop = file.start + at
                    continue
                checked, advance = self.check(read, at, self.file_size)
                if checked.success and checked.size == 0:
                    return False
                if not checked.success and not (accept_half and checked.size > 0):
                    return self._ends(checked, out)
                aligned = checked.success and checked.physical_offset == file.start + at + self.lead
                self._one(checked, aligned, out, queues, condition)
                at += advance
                out.sizes += checked.size
                out.stop = file.start + at
        while True:  # behind the last run: the end of the file, save for bytes that come while we look
            checked, advance = self.check(read, at, self.file_size)
            if checked.success and checked.size == 0:
                return False
            if not checked.success:
                return self._ends(checked, out)
            self._one(checked, checked.physical_offset == file.start + at + self.lead, out, queues, condition)
            at += advance
            out.sizes += checked.size
            out.stop = file.start + at

    def _ends(self, checked: Checked, out: Walk) -> bool:
        out.reason = checked.reason
        out.fatal = checked.fatal
        out.half = checked.size > 0
        return True

    def _one(self, checked: Checked, own_place: bool, out: Walk, queues: Queues | None, condition: Condition) -> None:
        out.records += 1
        if not checked.success:
            out.half_accepted += 1
            return
        out.stale += not own_place
        if queues is not None and condition.meets(checked.physical_offset, checked.size):
            queues.dispatch(checked)

    def _take(
        self,
        part: Columns,
        read: FileBytes,
        file: SimulatedFile,
        out: Walk,
        queues: Queues | None,
        condition: Condition,
    ) -> tuple[int, Checked] | None:
        """Dispatch a chunk of good records; the first one that this version refuses, if any."""
        odd = [] if self._is_plain(part, file) else needs_exact_parser(part)
        if not self.rules.v2:
            odd += np.flatnonzero(part.magic == MAGIC_V2_U32).tolist()
        if not self.rules.ipv6:
            odd += np.flatnonzero(part.sys_flag & (BORN_HOST_V6 | STORE_HOST_V6)).tolist()
        chosen = None
        if queues is not None:
            chosen = condition.mask(part.physical_offset, part.size)
        done = 0
        for i in sorted(set(odd)):
            at = int(part.offset[i]) - file.start - self.lead
            checked, _ = self.check(read, at, self.file_size)
            if checked.success and (queues is None or chosen is None or not chosen[i]):
                continue
            if queues is not None and chosen is not None:
                before = np.zeros(len(part), dtype=np.bool_)
                before[done:i] = chosen[done:i]
                queues.dispatch_columns(part, before)
            if not checked.success:
                out.records += i
                out.sizes += int(part.size[:i].sum())
                return at, checked
            if queues is not None:
                queues.dispatch(checked)
            done = i + 1
        if queues is not None and chosen is not None:
            chosen[:done] = False
            queues.dispatch_columns(part, chosen)
        return None

    # --- what is behind -------------------------------------------------------------------------------------------

    def losses(self, stop: int, keep: int) -> Losses:
        """Good records that start at or behind `stop`; those in the file that starts at `keep` are told apart."""
        out = Losses()
        table = QueueTable()
        for index, file in enumerate(self.files):
            if file.start + self.file_size <= stop:
                continue
            for run in self.runs(index, 0, self.thorough, stop, search=False):
                if run.kind is not Kind.RECORDS or run.stop <= stop:
                    continue
                count = run.count
                if run.columns is not None:
                    part = run.columns
                    if run.start < stop:
                        part = part.take(part.offset - self.lead >= stop)
                    count = len(part)
                    numbers, times = np.unique(table.of(part), return_counts=True)
                    for number, n in zip(numbers.tolist(), times.tolist(), strict=True):
                        out.topics[table.topics[number].decode("utf-8", "replace")] += n
                out.messages += count
                if file.start == keep:
                    out.in_kept_file += count
        return out

    # --- re-dispatch ----------------------------------------------------------------------------------------------

    def reput(self, start: int, end: int, queues: Queues, *, jumps: bool = True) -> int:
        """ReputMessageService#doReput from `start` until `end`; where it comes to rest.

        Records are read without body and CRC, never beyond `end`. `jumps`: a master passes over unreadable bytes to
        the end of the file.
        """
        if self.units is not None and start < end == self._known_from(start, queues):
            queues.dispatch_known(self.units, start, end, Condition())
            return end
        at = start
        while at < end:
            index = next((i for i, f in enumerate(self.files) if f.start <= at < f.start + self.file_size), None)
            if index is None:
                if at != 0 or not self.files:
                    return at
                index, at = 0, self.files[0].start
            file = self.files[index]
            readable = min(file.wrote, end - file.start)
            position = at - file.start
            if position >= readable:
                return at
            with FileBytes(file.path) as read:
                reached = self._reput_file(file, read, position, readable, queues, index, jumps)
            if reached is None or reached == position:
                return at
            at = file.start + reached
        return at

    def _reput_file(
        self, file: SimulatedFile, read: FileBytes, at: int, readable: int, queues: Queues, index: int, jumps: bool
    ) -> int | None:
        """Dispatch what is readable of one file; the position where it ends, None where a slave stays."""
        aligned = False
        for run in self.runs(index, 0, True):
            behind = min(run.stop - file.start, readable)
            aligned = run.start - file.start == at
            while at < behind:
                if run.kind is Kind.RECORDS and run.columns is not None:
                    part = run.columns
                    begin = part.offset - self.lead - file.start
                    inside = (begin >= at) & (part.offset + part.size <= file.start + readable)
                    if (aligned or bool((begin == at).any())) and inside.any():
                        part = part.take(inside)
                        self._take(part, read, file, Walk(0, index), queues, Condition())
                        at = int(part.offset[-1] + part.size[-1]) - file.start
                        continue
                checked, advance = self.check(read, at, readable, body=False)
                if checked.success and checked.size == 0:
                    return self.file_size
                if checked.success:
                    queues.dispatch(checked)
                    at += advance
                elif checked.size > 0:
                    at += advance
                elif jumps:
                    return readable
                else:
                    return None
        return at
