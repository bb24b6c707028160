"""Scan commitlog or DLedger data into runs, with the good records as columns.

A scan covers one file or a byte range of it. It reads the file in chunks that fit into the cache, and for each chunk
walks the size fields, checks all frames at once, and computes the CRCs of the bodies. Damage ends a run, and the scan
continues after it; bad bytes never raise an exception. Three things look like something else:

* A false BLANK, which does not end its file (`is_contradicted`). A broker trusts the magic of a BLANK and checks
  nothing else, so eight damaged bytes, or a page of 0xFF in DLedger data, can hide good records. The size in a real
  BLANK is exactly the number of bytes left in the file, and a broker writes one only if the next record does not fit.
* What DLedger 0.4 writes besides messages (`entry_at`, `head_of_log`): entries without a message, and a BLANK at the
  start of a file. The whole entry header tells them from damage: position, sizes, the fields that are always 0, and the
  expected index and term. An entry of another type than NORMAL that contains a message has a damaged magic: RocketMQ
  never writes one.
* What `writeWithoutMmap` leaves after the last record (`are_remains`). A broker with this setting encodes each message
  at the start of a shared buffer, and writes it with the bytes that follow it there, up to the end of the page in the
  file. These are the ends of earlier, longer messages: no damage, and never a message; the next message overwrites
  them. Source: DefaultMappedFile#appendMessagesInner ("commitlog can contain dirty data at the end"), RocketMQ 5.5.1
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rmqstore.files.mapped_file_queue import MappedFile, offset_to_file_name
from rmqstore.formats import dledger
from rmqstore.formats.message import (
    BLANK,
    BLANK_MAGIC_U32,
    HEAD,
    HEADS_BY_FLAG,
    MAGIC_V1_U32,
    MAGIC_V2_U32,
    MIN_SIZE,
    SYS_FLAG_AT,
    Fault,
)
from rmqstore.scan import kernels, native
from rmqstore.scan.columns import LAYOUT, Columns
from rmqstore.scan.native import I64, U8
from rmqstore.scan.resync import Bytes, frame_size, resync
from rmqstore.scan.split import Split
from rmqstore.scan.tiling import Kind, Run
from rmqstore.scan.window import SLACK, ScanOptions, Window

GoodBefore = Callable[[int], int | None]


def is_contradicted(window: Window, at: int, claimed: int, body_offset: int, good_before: GoodBefore) -> bool:
    """Whether the bytes after the BLANK at `at`, or the start of the next file, prove that it is false.

    With a wrong size, any nonzero byte after it proves that. With the right size, it takes a good record after it that
    a truncation by a broker cannot have left behind: one that is no older than the last good record before the BLANK,
    while the first record of the next file would have fit here. `good_before` returns the position of the last good
    record before a position; None without one.
    Units: `at` is a position in the file, `claimed` the size in bytes that the BLANK states.
    Source: DefaultAppendMessageCallback#doAppend, MmapFileList#preAppend
    """
    base, end = window.file.start, window.end
    blank_end = at + BLANK.size
    if window.zeros_until(blank_end) >= end:
        return False
    if claimed not in (end - at, window.file.file_size - at):
        return True
    found, _ = resync(window, blank_end, base, end, body_offset)
    if found is None or frame_size(window, found + body_offset, base, end) is None:
        return False
    if not _next_fits(window, window.file.file_size - at, body_offset):
        return False
    before = good_before(at)
    return before is None or _store_time(window, found + body_offset) >= _store_time(window, before + body_offset)


def _store_time(window: Window, at: int) -> int:
    sys_flag = int.from_bytes(window.pread(4, at + SYS_FLAG_AT), "big")
    field_at = HEADS_BY_FLAG[sys_flag & 0x30].at("store_timestamp")
    return int.from_bytes(window.pread(8, at + field_at), "big", signed=True)


def _head_of_next(file: MappedFile, size: int) -> bytes:
    """Return the first bytes of the file after a log file; fewer if they are not there."""
    return file.files.read_at(file.path.with_name(offset_to_file_name(file.stop)), size, 0)


def _next_fits(window: Window, left: int, body_offset: int) -> bool:
    """Whether the first record of the next file would have fit into `left` bytes, with a BLANK after it."""
    head = _head_of_next(window.file, body_offset + HEAD.size)
    if len(head) < body_offset + HEAD.size or int.from_bytes(head[body_offset + 4 : body_offset + 8], "big") not in (
        MAGIC_V1_U32,
        MAGIC_V2_U32,
    ):
        return False
    size = int.from_bytes(head[dledger.ENTRY.at("size") :][:4] if body_offset else head[:4], "big", signed=True)
    return 0 < size + BLANK.size <= left


TYPES = (dledger.NOOP, dledger.CONFIG_CHANGE)
_SIZE = dledger.ENTRY.size


def entry_at(
    source: Bytes, at: int, base: int, end: int, index: int | None = None, term: int = -1
) -> dict[str, Any] | None:
    """Return the header of the entry without a message at `at`; None if there is no such entry.

    `index` is the required index (None: any), `term` the lowest valid term. Units: positions in the file.
    """
    entry = _header(source, at, base, end)
    if entry is None or entry["magic"] not in TYPES:
        return None
    if (index is not None and entry["index"] != index) or entry["term"] < term:
        return None
    body = source.pread(min(8, entry["body_length"]), at + _SIZE)
    has_message = len(body) == 8 and int.from_bytes(body[4:], "big") in (MAGIC_V1_U32, MAGIC_V2_U32)
    return None if has_message or (entry["magic"] == dledger.NOOP and body) else entry


def head_of_log(source: Bytes, at: int, size: int, base: int, end: int) -> bool:
    """Whether the BLANK at `at` precedes entries: it is at the start of its file, and an entry follows it."""
    return at == 0 and dledger.BLANK.size <= size < end and _header(source, size, base, end) is not None


def _header(source: Bytes, at: int, base: int, end: int) -> dict[str, Any] | None:
    raw = source.pread(_SIZE, at)
    if len(raw) < _SIZE:
        return None
    entry = dledger.ENTRY.parse(raw)
    sound = (
        entry["magic"] in dledger.TYPES
        and entry["pos"] == base + at
        and entry["body_length"] >= 0
        and entry["size"] == _SIZE + entry["body_length"] <= end - at
        and entry["index"] >= 0
        and entry["term"] >= 0
        and not (entry["channel"] or entry["chain_crc"] or entry["body_crc"])
    )
    return dict(entry) if sound else None


_PAGE = 1 << 16  # the largest page of a system on which a broker runs
_SEARCHED = 64 << 20  # bytes before the end of the log in which the earlier messages are searched for
_IN_ONE_WRITE = 32  # messages of a batch are written together
_PER_PIECE = 64  # shorter pieces on average prove nothing
_MAGIC = re.compile(b"|".join(re.escape(magic.to_bytes(4, "big")) for magic in (MAGIC_V1_U32, MAGIC_V2_U32)))
_MAGIC_AT = HEAD.at("magic")
_OFFSET_AT = HEAD.at("physical_offset")


def are_remains(file: MappedFile, at: int, stop: int) -> bool:
    """Whether the bytes [at, stop) of a commitlog file are the ends of earlier messages in the buffer of the last one.

    True only if each byte follows from an earlier record that is longer than the last write: at the same distance from
    its start as the byte is from the start of the last write. `at` is the end of the last record.
    Units:  positions in the file, in bytes.
    """
    if not 0 < at < stop <= -(-at // _PAGE) * _PAGE:
        return False
    log, base = _before(file, at)
    starts, sizes = _records(log, base)
    left = np.frombuffer(file.read_at(stop - at, at), dtype=np.uint8)
    if len(left) < stop - at:
        return False
    end = len(log)
    writes = []
    for start, size in zip(starts[::-1][:_IN_ONE_WRITE].tolist(), sizes[::-1].tolist(), strict=False):
        if start + size != end:
            break
        end = start
        writes.append(len(log) - start)
    data = np.frombuffer(log, dtype=np.uint8)
    for wrote in writes:
        longer = sizes > wrote
        if _is_covered(left, data, starts[longer] + wrote, (starts + sizes)[longer]):
            return True
    return False


def _before(file: MappedFile, at: int) -> tuple[bytes, int]:
    """Return the bytes before a position, if need be from the file before too, and the global offset of the first."""
    first = max(0, at - _SEARCHED)
    log, base = file.read_at(at - first, first), file.start + first
    earlier = file.path.with_name(offset_to_file_name(file.start - file.file_size)) if file.start else None
    if first == 0 and earlier is not None and file.files.is_file(earlier):
        more = min(_SEARCHED - at, file.file_size)
        before = file.files.read_at(earlier, more, file.file_size - more)
        if len(before) == more:
            return before + log, base - more
    return log, base


def _records(log: bytes, base: int) -> tuple[I64, I64]:
    """Return starts and sizes of the records that name their own place; `base`: global offset of the first byte."""
    found = [match.start() - _MAGIC_AT for match in _MAGIC.finditer(log)]
    at = np.array([one for one in found if 0 <= one <= len(log) - MIN_SIZE], dtype=np.int64)
    data = np.frombuffer(log, dtype=np.uint8)
    sizes = data[at[:, None] + np.arange(4)].copy().view(">i4").astype(np.int64)[:, 0]
    offsets = data[at[:, None] + np.arange(_OFFSET_AT, _OFFSET_AT + 8)].copy().view(">i8").astype(np.int64)[:, 0]
    own = (offsets == at + base) & (sizes >= MIN_SIZE) & (sizes <= len(log) - at)
    return at[own], sizes[own]


def _is_covered(left: U8, data: U8, at: I64, stops: I64) -> bool:
    """Whether a few pieces of records, each at its own place in the buffer, together are the bytes that are left."""
    done, pieces = 0, 0
    while done < len(left):
        pieces += 1
        if pieces > 2 + len(left) // _PER_PIECE:
            return False
        begun = done
        here, ends = at + done, stops
        while done < len(left) and len(here):
            fits = here < ends
            here, ends = here[fits], ends[fits]
            fits = data[here] == left[done]
            here, ends = here[fits] + 1, ends[fits]
            done += len(here) > 0
        if done == begun:
            return False
    return True


_LOOK_BACK = 8 << 20  # bytes: more than the longest entry, so that it contains a whole entry
_ENTRY_BLANK_MAGIC = 0xFFFFFFFF
_ENTRY_SIZE = dledger.ENTRY.size
SIZE_AT_IN_ENTRY = dledger.ENTRY.at("size")
_USUAL_SIZE = 256  # bytes: record size that sets the initial capacity of the compiled loops' arrays
_LEAST_ROOM = 64


class _Entries:
    """Checks that DLedger entries are continuous, by the index and term that the next one should have.

    If two neighbours contradict each other, the one that a third entry also contradicts is wrong. So every entry is
    judged together with the next one, and the result does not depend on chunk borders.
    """

    def __init__(self) -> None:
        self.next_index: int | None = None
        self.term = -1

    def check(self, columns: Columns, following: tuple[int, int] | None) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
        """Return a fault per entry (0: none) and advance; `following` is (index, term) of the next entry, if known."""
        n = len(columns)
        fault = np.zeros(n, dtype=np.int8)
        index, term = columns.entry_index, columns.entry_term
        rising = bool((term[1:] >= term[:-1]).all()) and int(term[0]) >= self.term
        rising = rising and (following is None or following[1] >= int(term[-1]))
        first = int(index[0])
        steady = (self.next_index is None or self.next_index == first) and int(index[-1]) - first == n - 1
        if (
            rising
            and steady
            and (n < 3 or bool((np.diff(index) == 1).all()))
            and (n > 1 or self.next_index is not None)
        ):
            self.next_index, self.term = first + n, int(term[-1])
        else:
            self._one_by_one(index.tolist(), term.tolist(), following, fault)
        fault[columns.entry_magic != dledger.MAGIC] = Fault.ENTRY_MAGIC
        fault[columns.entry_body_length + _ENTRY_SIZE != columns.entry_size] = Fault.ENTRY_SIZE
        fault[columns.entry_pos != columns.offset - _ENTRY_SIZE] = Fault.ENTRY_POS
        return fault

    def _one_by_one(
        self,
        index: list[int],
        term: list[int],
        following: tuple[int, int] | None,
        fault: np.ndarray[tuple[int], np.dtype[np.int8]],
    ) -> None:
        successors = [*zip(index[1:], term[1:], strict=True), following]
        for i, successor in enumerate(successors):
            if self.next_index is None:
                second = successors[i + 1] if i + 1 < len(successors) else None
                fits = successor is None or successor[0] == index[i] + 1
                confirmed = second is not None and successor is not None and second[0] == successor[0] + 1
                self.next_index = successor[0] - 1 if successor is not None and not fits and confirmed else index[i]
            if index[i] != self.next_index:
                if successor is not None and successor[0] == index[i] + 1:
                    self.next_index = index[i]  # entries are missing, which the check of the whole log reports
                else:
                    fault[i] = Fault.ENTRY_INDEX
            self.next_index += 1
            if fault[i]:
                continue
            if term[i] < self.term or (successor is not None and self.term <= successor[1] < term[i]):
                fault[i] = Fault.ENTRY_TERM
            else:
                self.term = term[i]


def scan_file(
    file: MappedFile,
    *,
    start: int = 0,
    stop: int | None = None,
    body_offset: int = 0,
    exact: bool = False,
    options: ScanOptions | None = None,
) -> Iterator[Run]:
    """Yield the runs of a file from position `start` on, including the whole last record that starts before `stop`.

    `body_offset` is 0 for a commitlog, 48 for DLedger data. Unless `start` is 0 or `exact`, the first run begins at the
    first record that `resync` finds from `start` on; if it finds none, there are no runs. If the file is too short, the
    last run is a HOLE.
    Units: `start` and `stop` are positions in the file, runs have global offsets.
    Errors: OSError only if the file cannot be opened; a failing read ends the file early, so that the rest is a HOLE.
    """
    options = options or ScanOptions()
    kernels.keep_freed_memory()
    window = Window(file, options)
    try:
        yield from _Scan(window, body_offset).runs(start, file.file_size if stop is None else stop, exact)
    finally:
        window.close()


def good_records(file: MappedFile, body_offset: int) -> Iterator[Columns]:
    """Yield the good records of a whole file in order, without the CRCs of their bodies. Errors: as `scan_file`."""
    for run in scan_file(file, body_offset=body_offset, options=ScanOptions(crc=False)):
        if run.kind is Kind.RECORDS and run.columns is not None:
            yield run.columns


def scan_split(split: Split, options: ScanOptions | None = None) -> Iterator[Run]:
    """Yield the runs of a split; none if its file has been deleted since (a live broker expires files).

    Errors: OSError only if the file cannot be opened.
    """
    try:
        yield from scan_file(
            split.file,
            start=split.start,
            stop=split.stop,
            body_offset=split.body_offset,
            exact=split.exact,
            options=options,
        )
    except FileNotFoundError:
        return


class Frames:
    """Reads framed records from buffers.

    `body_offset`: bytes before each message, 0 in a commitlog and 48 in DLedger data; `crc`: check bodies; `buffer`:
    length of the buffers in bytes. `size_at`: position of the size in a record or entry; `least`: its smallest size.
    """

    def __init__(self, body_offset: int, *, crc: bool, buffer: int) -> None:
        self.body_offset = body_offset
        self.size_at = SIZE_AT_IN_ENTRY if body_offset else 0
        self.least = MIN_SIZE + body_offset
        self._crc = crc
        self._loops = native.load()
        self._room = buffer // _USUAL_SIZE + 1

    def read(self, buf: bytearray, have: int, base: int, lo: int, stop: int) -> tuple[Columns, bool]:
        """Return the framed records that start in [lo, stop) of a buffer, and whether a bad record ends them.

        They follow one another without gaps. `have`: number of valid bytes; `base`: global offset of the first one.
        """
        found = self._loops.read(
            (np.frombuffer(buf, np.uint8), have, base),
            (lo, stop),
            (self.body_offset, self.size_at, self.least),
            LAYOUT,
            crc=self._crc,
            room=self._room,
        )
        n = len(found.columns["at"])
        self._room = 2 * n if n == self._room else max(n + n // 4, _LEAST_ROOM)
        return Columns.of(buf, base, self.body_offset, found), found.odd


class _Scan:
    def __init__(self, window: Window, body_offset: int) -> None:
        self.window = window
        self.body_offset = body_offset
        self.frames = Frames(body_offset, crc=window.options.crc, buffer=len(window.buf))
        self.size_at, self.least = self.frames.size_at, self.frames.least
        self.base = window.file.start
        self.options = window.options
        self.entries = _Entries() if body_offset else None
        self.last_good: int | None = None  # position in the file of the last good record

    def runs(self, start: int, stop: int, exact: bool) -> Iterator[Run]:
        at = start
        if start and self.entries is not None:
            at = self._prime(start)
            if exact:
                at = start
            elif at >= stop:
                return
        elif start and not exact:
            found, _ = resync(self.window, start, self.base, self.window.end, self.body_offset, until=stop)
            if found is None or found >= stop:
                return
            at = found
        yield from self._from(at, stop)

    def _prime(self, start: int) -> int:
        """Walk the entries before a split, so that its first entry is judged as in a scan of the whole file.

        Returns the position of the first entry from `start` on; the file's end without one.
        """
        window = self.window
        at = max(0, start - _LOOK_BACK)
        if at:
            found, _ = resync(window, at, self.base, window.end, self.body_offset, until=start)
            if found is None or found >= start:
                found, _ = resync(window, start, self.base, window.end, self.body_offset)
                return window.end if found is None else found
            at = found
        for run in self._from(at, start):
            at = run.stop - self.base
        return at

    def _good_before(self, at: int) -> int | None:
        """Return the position of the last good record before `at`; None without one.

        A scan that starts at `at` looks back for it, so that a BLANK at the start of a split gets the same verdict as
        in a scan of the whole file.
        """
        if self.last_good is not None or not at:
            return self.last_good
        window = Window(self.window.file, self.options)
        try:
            earlier = _Scan(window, self.body_offset)
            back = max(0, at - _LOOK_BACK)
            for _ in earlier.runs(back, at, exact=not back):
                pass
            return earlier.last_good
        finally:
            window.close()

    def _from(self, at: int, stop: int) -> Iterator[Run]:
        """Yield the runs that start before `stop`, beginning at a known record boundary."""
        window = self.window
        while at < min(stop, window.end):
            if window.base < at < window.base + window.have and self._is_cut_off(at):
                window.fill(at)
            for run in self._good(at, stop) or self._odd(at):
                at = run.stop - self.base
                yield run
        if at >= window.end and stop >= window.end and window.end < window.file.file_size:
            cause = Fault.UNREADABLE if window.unreadable else Fault.NONE
            yield Run(Kind.HOLE, self.base + at, self.base + window.file.file_size, cause=cause)

    def _is_cut_off(self, at: int) -> bool:
        """Whether the record at `at` extends past the buffer according to its size, and must be read completely.

        A DLedger entry is judged together with the next one, which must then be in the buffer too. A size greater than
        the buffer is taken for damage there.
        """
        window = self.window
        left = window.base + window.have - at
        if window.base + window.have >= window.end:
            return False
        size = self._size_at(at, left)
        if size > left or self.entries is None:
            return size > left
        return left - size < self._size_at(at + size, left - size) <= len(window.buf)

    def _size_at(self, at: int, left: int) -> int:
        """Return the size in a record's header, or more than `left` if the header is not completely in the buffer."""
        return int.from_bytes(self.window.pread(4, at + self.size_at), "big") if left >= self.least else left + 1

    def _good(self, at: int, stop: int) -> list[Run]:
        """Return the framed records in the buffer from `at` on as runs; empty if there is no framed record at `at`."""
        window = self.window
        lo = at - window.base
        if not 0 <= lo < window.have:
            window.fill(at)
            lo = 0
        columns, broken = self._framed(lo, stop - window.base)
        n = len(columns)
        if not n:
            return []
        following = None
        if self.entries is not None and n > 1 and not broken:  # leave the last entry to be judged with the next one
            n -= 1
            following = (int(columns.entry_index[n]), int(columns.entry_term[n]))
        return self._runs_of(columns.slice(0, n), following)

    def _framed(self, lo: int, stop: int) -> tuple[Columns, bool]:
        """Return the framed records in the buffer that start in [lo, stop), and whether a bad record ends them."""
        window = self.window
        return self.frames.read(window.buf, window.have, self.base + window.base, lo, stop)

    def _in_next_file(self, columns: Columns, term: int) -> tuple[int, int] | None:
        """Return (index, term) of the entry in the next file that follows the last one; None if none does.

        Only if the term of the last one is higher than that before, which is `term` for a single entry: the next one
        tells whether it is damaged.
        """
        before = int(columns.entry_term[-2]) if len(columns) > 1 else term
        if before >= int(columns.entry_term[-1]):
            return None
        file = self.window.file
        raw = _head_of_next(file, _ENTRY_SIZE)
        entry = dledger.ENTRY.parse(raw) if len(raw) == _ENTRY_SIZE else None
        if entry is None or (entry["pos"], entry["index"]) != (file.stop, int(columns.entry_index[-1]) + 1):
            return None
        return entry["index"], entry["term"]

    def _runs_of(self, columns: Columns, following: tuple[int, int] | None) -> list[Run]:
        """Split framed records into RECORDS runs of good ones and one DIRTY run for each bad one."""
        fault = np.zeros(len(columns), dtype=np.int8)
        if self.entries is not None:
            fault = self.entries.check(columns, following or self._in_next_file(columns, self.entries.term))
        if self.options.crc:
            if self.options.check_offset:  # compaction rewrites PHYSICALOFFSET but keeps the record CRC
                fault[(fault == 0) & columns.wrong_record_crc] = Fault.RECORD_CRC
            wrong = columns.wrong_crc
            if wrong.any():
                fault[(fault == 0) & wrong] = Fault.BODY_CRC
        if self.options.check_offset:
            elsewhere = columns.elsewhere
            if elsewhere.any():
                fault[elsewhere] = Fault.PHYSICAL_OFFSET
        starts = columns.offset - self.body_offset
        end = int(columns.offset[-1] + columns.size[-1])
        all_bad = np.flatnonzero(fault).tolist()
        runs = []
        first_good = 0
        for bad in [*all_bad, len(columns)]:
            if bad > first_good:
                stop = int(starts[bad]) if bad < len(columns) else end
                good = columns.slice(first_good, bad)
                runs.append(Run(Kind.RECORDS, int(starts[first_good]), stop, bad - first_good, columns=good))
                self.last_good = int(starts[bad - 1]) - self.base
            if bad < len(columns):
                stop = int(starts[bad + 1]) if bad + 1 < len(columns) else end
                cause = Fault(int(fault[bad]))
                runs.append(Run(Kind.DIRTY, int(starts[bad]), stop, 1, cause, columns=columns.slice(bad, bad + 1)))
            first_good = bad + 1
        return runs

    def _odd(self, at: int) -> list[Run]:
        """Return the runs at `at` if it is not a framed record; empty after growing the buffer for a long record."""
        window, base, end = self.window, self.base, self.window.end
        head = window.pread(8, at)
        first, second = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:8], "big")
        magic, claimed = (first, second) if self.body_offset else (second, first)
        if len(head) == 8 and magic == (_ENTRY_BLANK_MAGIC if self.body_offset else BLANK_MAGIC_U32):
            if self.body_offset and head_of_log(window, at, claimed, base, end):
                return [Run(Kind.BLANK, base + at, base + at + claimed, claimed=claimed)]
            if not is_contradicted(window, at, claimed, self.body_offset, self._good_before):
                return [Run(Kind.BLANK, base + at, base + end, claimed=claimed)]
            return self._damage(at, at + 1, self._cause(head, at), all_zero_until=at)
        if self.entries is not None and magic in TYPES:
            entry = entry_at(window, at, base, end, self.entries.next_index, self.entries.term)
            if entry is not None:
                self.entries.next_index, self.entries.term = entry["index"] + 1, entry["term"]
                return [Run(Kind.INTERNAL, base + at, base + at + entry["size"], 1)]
        if not any(head):
            data = window.zeros_until(at)
            if data >= end:
                return [Run(Kind.ZERO, base + at, base + end)]
            search = max(at + 1, data - self.body_offset - HEAD.size)
            return self._damage(at, search, Fault.MAGIC, all_zero_until=data)
        size = frame_size(window, at + self.body_offset, base, end, check_offset=self.options.check_offset)
        if size is not None:
            size += self.body_offset
            if not self.body_offset or int.from_bytes(window.pread(4, at + SIZE_AT_IN_ENTRY), "big") == size:
                if size > len(window.buf) - SLACK:
                    window.grow(size)
                    window.fill(at)
                    return []
            else:
                return self._wrong_entry_size(at, size)
        return self._damage(at, at + 1, self._cause(head, at), all_zero_until=at)

    def _wrong_entry_size(self, at: int, size: int) -> list[Run]:
        """Return the run of an entry with a wrong size in its header, whose `size` follows from its sound message."""
        window = self.window
        if size > len(window.buf) - SLACK:
            window.grow(size)
        if not 0 <= at - window.base <= window.have - size:
            window.fill(at)
        lo = at - window.base
        columns = Columns(window.buf, self.base + window.base, np.array([lo + self.body_offset]), self.body_offset)
        if self.entries is not None and self.entries.next_index is not None:
            self.entries.next_index += 1
        start = self.base + at
        return [Run(Kind.DIRTY, start, start + size, 1, Fault.ENTRY_SIZE, columns=columns)]

    def _damage(self, at: int, search: int, cause: Fault, all_zero_until: int) -> list[Run]:
        """Return the runs from `at` to the next record or BLANK, which is searched for from `search` on."""
        window, base, end = self.window, self.base, self.window.end
        found, last = resync(window, search, base, end, self.body_offset)
        if self.entries is not None:
            self.entries.next_index = None  # the number of lost entries is unknown
            self.entries.term = -1
        if found is not None:
            kind = Kind.ZERO if found <= all_zero_until else Kind.DIRTY
            return [Run(kind, base + at, base + found, cause=Fault.NONE if kind is Kind.ZERO else cause)]
        last = max(last, at + 1, all_zero_until)
        own = not self.body_offset and self.options.check_offset and all_zero_until == at
        if own and are_remains(window.file, at, last):
            return [Run(Kind.ZERO, base + at, base + end)]
        runs = [Run(Kind.DIRTY, base + at, base + last, cause=cause)]
        if last < end:
            runs.append(Run(Kind.ZERO, base + last, base + end))
        return runs

    def _cause(self, head: bytes, at: int) -> Fault:
        """Return why the bytes at `at`, which begin with `head`, are not a record."""
        left = self.window.end - at
        if len(head) < 8:
            return Fault.SHORT
        if self.body_offset:
            magic = int.from_bytes(head[:4], "big")
            if magic != dledger.MAGIC:
                return Fault.ENTRY_MAGIC
            size = int.from_bytes(head[4:8], "big", signed=True)
            message = int.from_bytes(self.window.pread(4, at + self.body_offset + HEAD.at("magic")), "big")
            if size < MIN_SIZE + self.body_offset or size > left:
                return Fault.ENTRY_SIZE
            return Fault.LENGTHS if message in (MAGIC_V1_U32, MAGIC_V2_U32) else Fault.MAGIC
        size, magic = int.from_bytes(head[:4], "big", signed=True), int.from_bytes(head[4:8], "big")
        if magic not in (MAGIC_V1_U32, MAGIC_V2_U32):
            return Fault.MAGIC
        if size < MIN_SIZE or size > left:
            return Fault.SIZE
        return Fault.LENGTHS
