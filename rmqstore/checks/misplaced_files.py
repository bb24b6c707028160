"""Log files with the name of another file: they were swapped, or restored under a wrong name.

Every record contains its own position. If all records of a file say that it belongs a whole number of files away, it
has a wrong name, and no byte of it is damaged. If the files can be renamed (a swap, a cycle, a free name),
`find_misplaced` returns the store as it will be after that, and all other checks use this store. In a sound store, it
reads only the first record of each file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding
from rmqstore.files.mapped_file_queue import (
    MappedFile,
    MappedFileQueue,
    OddKind,
    file_name_to_offset,
    offset_to_file_name,
)
from rmqstore.files.store import QueueKind, Store
from rmqstore.formats import consumequeue, dledger
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.message import (
    HEAD,
    MAGIC_V1_U32,
    MAGIC_V2_U32,
    PHYSICAL_OFFSET_AT,
    TRANSACTION_COMMIT,
    Message,
    parse_message,
)
from rmqstore.formats.services import is_sound_topic
from rmqstore.formats.text import many
from rmqstore.scan.records import good_records, scan_file
from rmqstore.scan.resync import ENTRY_SIZE, frame_size
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions, Window
from rmqstore.texts import Text

CODES = {0: codes.CL_MISPLACED_FILE, ENTRY_SIZE: codes.DL_MISPLACED_FILE}

_PREFIX = MAGIC_V1_U32.to_bytes(4, "big")[:3]
_MAGICS = (MAGIC_V1_U32, MAGIC_V2_U32)
_SEARCH = 8 << 20  # bytes that must contain the first whole record; by default, the longest has 4 MiB
_BLOCK = 1 << 20
_LEAST = 2  # records; a single one counts only if it agrees with other files
_MOST_OTHERS = 10  # percent of the records may name another position
_NEAR = (-2, -1, 1, 2)  # distance to a neighbour in files; one file between may be missing
_NOWHERE = -1
_SAMPLE = 100  # messages of a file for which consume queues are asked
QueueReader = Callable[[str, int], MappedFileQueue]
"""Returns the units of a queue, by topic and queue id."""
LEAST = 5
"""Units that point to no message of a file, and messages that no unit points to, before the file counts as foreign."""
_CHECKED_MESSAGES = 1000  # messages of a file that are checked
COPY = Text("another file with the same bytes gets this name")
IN_PLACE = Text("another file with the same bytes has this name")
"""Reasons to keep a file's name that lose nothing: another file with the same bytes has or gets the right name."""


class Claim(NamedTuple):
    """A file whose records say that it starts at `holds`; `file.start` is -1 if its name is not an offset.

    `records` say so, and `others` do not.
    """

    file: MappedFile
    holds: int
    records: int
    others: int


class MisplacedFile(NamedTuple):
    """A misplaced file; `why_not` says why it keeps its name, "" if it can be renamed."""

    log: str
    body_offset: int
    claim: Claim
    why_not: str = ""

    @property
    def right_name(self) -> str:
        return offset_to_file_name(self.claim.holds)

    @property
    def only_digits(self) -> bool:
        """Whether the name is the right offset, but not in 20 digits."""
        return self.claim.holds == self.claim.file.start

    def finding(self) -> Finding:
        file, claim = self.claim.file, self.claim
        facts: dict[str, Fact] = {"right_name": self.right_name, "records": claim.records}
        if claim.others:
            facts["other_records"] = claim.others
        facts["goes_back"] = not self.why_not
        if self.why_not:
            facts["because"] = self.why_not
        return Finding(CODES[self.body_offset], self.log, file.name, max(0, file.start), file.length, facts)


@dataclass(frozen=True, slots=True)
class Misplaced:
    """The misplaced files; `store` is the store after the renames, or unchanged if no file can be renamed.

    `copies` are files that keep their names and have records of another log file's addresses: perhaps what that lost.
    `starts`: where the files of the logs start by their present names.
    """

    store: Store
    files: tuple[MisplacedFile, ...] = ()
    copies: tuple[MisplacedFile, ...] = ()
    starts: Mapping[Path, int] = field(default_factory=dict)

    def present(self, file: MappedFile) -> int | None:
        """Return where a file of the renamed log starts by its present name; None if it is no file of the log yet."""
        return self.starts.get(file.path)

    def position(self, offset: int) -> int | None:
        """Return an offset of the renamed log by the present names of the files; None if it is in no log file yet."""
        found = (file for log, _ in self.store.logs if (file := log.find(offset)) is not None)
        starts = ((file, self.present(file)) for file in found)
        return next((offset - file.start + now for file, now in starts if now is not None), None)

    def verdict(self, hidden: int) -> str:
        """Return the end of the verdict, because the forecast does not mention wrong names: no broker notices them.

        `hidden`: the number of messages that consumers do not get for this reason.
        """
        count = len(self.store.moved) + len(self.store.left_out)
        if not count:
            return ""
        words = many(count, "log file has a wrong name", "log files have wrong names")
        if not hidden:
            return Text(", but {words}", words=words)
        return Text(
            ", but {words}: consumers get errors or other messages in place of {messages}",
            words=words,
            messages=many(hidden, "message"),
        )


def find_misplaced(store: Store) -> Misplaced:
    """Find the misplaced files of the store's logs. Errors: none; files that vanish are left out."""
    entries = store.dledger.data if store.dledger is not None else None
    legacy = store.commitlog
    found: list[MisplacedFile] = []
    copies: list[MisplacedFile] = []
    logs: dict[str, MappedFileQueue] = {}
    starts: dict[Path, int] = {}
    moved: dict[Path, Path] = {}
    left_out: set[Path] = set()
    for queue, body_offset in ((legacy, 0), (entries, ENTRY_SIZE)):
        if queue is None or not all(map(store.files.is_directory, queue.directories)):
            continue
        if store.part is not None and store.files.is_file(store.path):
            continue
        work = _LogClaims(queue, body_offset, store)
        if body_offset and legacy is not None and legacy.files:
            work.low = legacy.stop
        elif not body_offset and entries is not None and entries.files:
            work.high = entries.start
        work.judge()
        starts |= {file.path: file.start for file in queue.files}
        found += work.found()
        copies += work.other_copies()
        if work.targets or work.copies:
            logs[queue.name] = work.arranged()
            moved |= {path: path.parent / offset_to_file_name(start) for path, start in work.targets.items()}
            left_out |= work.copies
    return Misplaced(store.rearranged(logs, moved, left_out) if logs else store, tuple(found), tuple(copies), starts)


@dataclass(slots=True)
class _LogClaims:
    """One log, with the addresses [low, high).

    `claims`: misplaced files; `stays`: why some of them keep their names; `targets`: the future start of every renamed
    file; `copies`: files that are removed, because another file has their content at the right place; `beside`: other
    files in the log's directories with records of files that are in place.
    """

    queue: MappedFileQueue
    body_offset: int
    store: Store
    low: int = 0
    high: int = 1 << 62
    claims: list[Claim] = field(default_factory=list)
    stays: dict[Path, str] = field(default_factory=dict)
    targets: dict[Path, int] = field(default_factory=dict)
    copies: set[Path] = field(default_factory=set)
    beside: list[Claim] = field(default_factory=list)
    _good: dict[Path, int] = field(default_factory=dict)
    _fitting: dict[Path, tuple[int, int]] = field(default_factory=dict)

    def judge(self) -> None:
        misnamed = {odd.path for odd in self.queue.odd if odd.kind is OddKind.MISNAMED}
        twice = {odd.path.name for odd in self.queue.odd if odd.kind is OddKind.DUPLICATE}
        for file in self.queue.files:
            claim = _claim(file, self.body_offset)
            if claim is None and file.path in misnamed and offset_to_file_name(file.start) not in twice:
                claim = Claim(file, file.start, *_count(file, self.body_offset)[:2])
            if claim is not None:
                self.claims.append(claim)
        own = {f.start for f in self.queue.files} - {c.file.start for c in self.claims}
        for file in self._strays():
            claim = _claim(file, self.body_offset)
            if claim is not None:
                whole = file.length == self.queue.file_size
                (self.claims if whole and claim.holds not in own else self.beside).append(claim)
        self._set_copies_aside()
        while (wrong := self._first_that_stays()) is not None:
            if wrong[0].records < _LEAST:
                self.claims.remove(wrong[0])
            else:
                self.stays[wrong[0].file.path] = wrong[1]
        self.targets = {c.file.path: c.holds for c in self._going()}
        for claim in self._going():
            there = self._at(claim.holds)
            if there is not None and there.path not in self.targets:  # it contains no valid record, and is moved aside
                self.targets[there.path] = self._chain_start(claim)

    def _set_copies_aside(self) -> None:
        """Let only one of several identical files be renamed.

        It is one whose place another file gets, or else the last one, because its old name is missed least. A copy in
        the address space of the other log is removed.
        """
        claiming = {c.file.path for c in self.claims}
        for claim in self.claims:
            there = self._at(claim.holds) if self._is_outside(claim.file.start) else None
            if there is not None and there.path not in claiming and _equal(claim.file, there):
                self.copies.add(claim.file.path)
                self.stays[claim.file.path] = IN_PLACE
        by_place: dict[int, list[Claim]] = {}
        wanted = {claim.holds for claim in self.claims}
        for claim in sorted(self._going(), key=lambda c: (c.file.start in wanted, c.file.start), reverse=True):
            kept = by_place.setdefault(claim.holds, [])
            if any(_equal(claim.file, other.file) for other in kept):
                self.stays[claim.file.path] = COPY
                if self._is_outside(claim.file.start):
                    self.copies.add(claim.file.path)
            else:
                kept.append(claim)

    def _strays(self) -> Iterator[MappedFile]:
        """Yield files whose names are not offsets of this log: copies, or mistyped names."""
        for odd in self.queue.odd:
            stray = odd.kind in (OddKind.MISALIGNED, OddKind.NOT_AN_OFFSET) and odd.length > 0
            if stray and len(odd.path.name) <= 100:
                yield MappedFile(odd.path, _NOWHERE, odd.length, self.queue.file_size)

    def _is_outside(self, start: int) -> bool:
        """Return whether a file would be in the address space of the store's other log."""
        return start >= 0 and not self.low <= start <= self.high - self.queue.file_size

    def _going(self) -> list[Claim]:
        return [c for c in self.claims if c.file.path not in self.stays]

    def _at(self, offset: int) -> MappedFile | None:
        file = self.queue.find(offset)
        return file if file is not None and file.start == offset else None

    def _first_that_stays(self) -> tuple[Claim, str] | None:
        """Return a file that cannot be renamed if all others are, and why; None if all can.

        Without it, others may no longer be possible, so call it repeatedly.
        """
        going = self._going()
        times = Counter(c.holds for c in self.claims if self.stays.get(c.file.path) != COPY)
        leaving = {c.file.path for c in going}
        proven = {c.file.path for c in going if c.records >= _LEAST}
        in_place = {f.path for f in self.queue.files} - {c.file.path for c in self.claims}
        empty = (file_name_to_offset(o.path.name) for o in self.queue.odd if o.kind is OddKind.EMPTY)
        names = {f.start for f in self.queue.files} | {c.holds for c in going} | {at for at in empty if at is not None}
        for claim in going:
            there, size = self._at(claim.holds), self.queue.file_size
            if claim.holds == claim.file.start:
                continue  # only the digits of its name are wrong
            if claim.records < _LEAST and (there is None or there.path not in proven):
                return claim, Text("only one record proves it")
            if times[claim.holds] > 1:
                return claim, Text("another file has records of the same addresses")
            if self._is_outside(claim.holds):
                return claim, Text("its place is in the other log of this store")
            if there is None:
                messages, fit = self._fit(claim)
                near = any(claim.holds + step * size in names for step in _NEAR)
                if not near and (in_place or fit * 2 <= messages):
                    return claim, Text("no log file is near its place")
                if messages >= LEAST and not fit:  # of another broker
                    return claim, Text("no consume queue unit points to its messages")
            if there is None or there.path in leaving:
                continue
            if there.path in self.stays:
                return claim, Text("the file there cannot be moved")
            if there.path not in self._good:
                self._good[there.path] = _count(there, self.body_offset)[0]
            if self._good[there.path]:
                return claim, Text("the file there is in its right place")
            if self._chain_start(claim) == _NOWHERE:
                return claim, Text("a file without a good record is there")
        return None

    def _fit(self, claim: Claim) -> tuple[int, int]:
        """Return how many of a file's first messages should have a unit, and how many have it; 0 without queues."""
        store = self.store
        if store.part is not None or store.rocksdb_consume_queue:
            return 0, 0
        if not any(True for _ in store.queue_directories(QueueKind.SIMPLE)):
            return 0, 0
        if claim.file.path not in self._fitting:
            file = replace(claim.file, start=claim.holds)
            self._fitting[claim.file.path] = count_fitting(file, self.body_offset, in_files(store), _SAMPLE)
        return self._fitting[claim.file.path]

    def _chain_start(self, claim: Claim) -> int:
        """Return the start that becomes free when a chain of files moves up, of which `claim` is the last."""
        by_place = {c.holds: c for c in self._going()}
        while claim.file.start in by_place:
            claim = by_place[claim.file.start]
        return claim.file.start

    def found(self) -> Iterator[MisplacedFile]:
        for claim in self.claims:
            yield MisplacedFile(self.queue.name, self.body_offset, claim, self.stays.get(claim.file.path, ""))

    def other_copies(self) -> Iterator[MisplacedFile]:
        """Yield the files that keep their names, and may have bytes that the log lost."""
        stay = [c for c in self.claims if self.stays.get(c.file.path, COPY) not in (COPY, IN_PLACE)]
        for claim in (*self.beside, *stay):
            yield MisplacedFile(self.queue.name, self.body_offset, claim, self.stays.get(claim.file.path, ""))

    def arranged(self) -> MappedFileQueue:
        queue = self.queue
        strays = [c.file for c in self._going() if c.file.start == _NOWHERE]
        stay = [f for f in queue.files if f.path not in self.copies]
        files = [replace(f, start=self.targets.get(f.path, f.start)) for f in (*stay, *strays)]
        odd = [o for o in queue.odd if o.kind is OddKind.WRONG_LENGTH or o.path not in self.targets]
        files.sort(key=lambda f: f.start)
        return MappedFileQueue(queue.name, queue.directories, queue.file_size, files, odd, queue.size_from)


def _claim(file: MappedFile, body_offset: int) -> Claim | None:
    """Return the place of a file according to its records; None if its name is right, or the records do not agree."""
    head = file.read_at(body_offset + HEAD.size, 0)
    if _is_in_place(head, file.start, body_offset):
        return None
    holds = _first_base(file, body_offset)
    if holds is None or holds == file.start or holds % file.file_size:
        return None
    good, others, stretches = _count(replace(file, start=holds), body_offset)
    if not good or others * 100 > good * _MOST_OTHERS:
        return None
    if stretches > 1 and stretches >= good:  # records with something between them: a file of the other log
        return None
    if good < _LEAST and not _count(replace(file, start=holds), body_offset, crc=True)[0]:
        return None
    if file.start >= 0 and _count(file, body_offset)[0]:  # some records are in place: the others are stale
        return None
    return Claim(file, holds, good, others)


def _equal(one: MappedFile, other: MappedFile) -> bool:
    """Return whether two files hold the same bytes; False if one of them cannot be read."""
    if one.length != other.length:
        return False
    for at in range(0, one.length, _BLOCK):
        block = one.read_at(_BLOCK, at)
        if not block or block != other.read_at(_BLOCK, at):
            return False
    return True


def _is_in_place(head: bytes, start: int, body_offset: int) -> bool:
    """Return whether the first record of a file names the start of this file."""
    if (
        len(head) < body_offset + HEAD.size
        or int.from_bytes(head[body_offset + 4 : body_offset + 8], "big") not in _MAGICS
    ):
        return False
    at = body_offset + PHYSICAL_OFFSET_AT
    if int.from_bytes(head[at : at + 8], "big", signed=True) != start + body_offset:
        return False
    return not body_offset or int(dledger.ENTRY.parse(head)["pos"]) == start


def _first_base(file: MappedFile, body_offset: int) -> int | None:
    """Return the start of a file according to its first whole record; None without one."""
    try:
        window = Window(file, ScanOptions())
    except OSError:
        return None
    try:
        at = window.data_from(0)
        stop = min(at + _SEARCH, window.end)
        while at < stop:
            block = window.pread(_BLOCK + HEAD.size, at)
            found = block.find(_PREFIX, body_offset + 4)
            while 0 <= found < _BLOCK + body_offset + 4:
                begin = found - 4
                raw = block[begin + PHYSICAL_OFFSET_AT : begin + PHYSICAL_OFFSET_AT + 8]
                base = int.from_bytes(raw, "big", signed=True) - (at + begin)
                whole = len(raw) == 8 and base >= 0 and base % file.file_size == 0
                if whole and frame_size(window, at + begin, base, window.end) is not None:
                    return base
                found = block.find(_PREFIX, found + 1)
            at += _BLOCK
    finally:
        window.close()
    return None


def _count(file: MappedFile, body_offset: int, *, crc: bool = False) -> tuple[int, int, int]:
    """Count records in place for the file's `start`, framed ones not in place, and stretches without records.

    `crc`: check the bodies too.
    """
    good = others = stretches = 0
    try:
        for run in scan_file(file, body_offset=body_offset, options=ScanOptions(crc=crc)):
            if run.kind is Kind.RECORDS:
                good += run.count
            elif run.kind is Kind.DIRTY:
                others += run.count
                stretches += not run.count
    except OSError:
        return 0, 0, 0
    return good, others, stretches


def count_fitting(
    file: MappedFile, body_offset: int, queue_of: QueueReader, most: int = _CHECKED_MESSAGES
) -> tuple[int, int]:
    """Return how many of a file's first messages should have a unit, and how many have it. Errors: as `queue_of`."""
    queues: dict[QueueName, MappedFileQueue] = {}
    seen = fit = 0
    for message in messages_of(file, body_offset):
        name = (message.topic_text, message.queue_id)
        has_queue = is_sound_topic(message.topic) and consumequeue.is_directory_name(message.topic)
        if message.transaction_type not in (0, TRANSACTION_COMMIT) or not has_queue:
            continue
        seen += 1
        if name not in queues:
            queues[name] = queue_of(*name)
        unit = queues[name].unit(consumequeue.UNIT, message.queue_offset)
        fit += unit is not None and unit["commitlog_offset"] == message.physical_offset
        if seen >= most:
            break
    return seen, fit


def in_files(store: Store) -> QueueReader:
    """Return what reads the queues in the files of a store."""
    return lambda topic, queue_id: store.consume_queue(topic, queue_id).queue


def messages_of(file: MappedFile, body_offset: int) -> Iterator[Message]:
    """Yield the messages of a log file in order."""
    for columns in good_records(file, body_offset):
        for offset, size in zip(columns.offset.tolist(), columns.size.tolist(), strict=True):
            message, _ = parse_message(file.read_at(size, offset - file.start))
            if message is not None:
                yield message
