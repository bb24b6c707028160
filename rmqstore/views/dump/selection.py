"""Filters of `dump`, `du` and others for records. They are applied to columns first and to texts last.

As store times increase, the part of a log that can contain messages of a time range is found from some hundred records.
Store times decrease where a broker's clock was set back. So records all over the log are sampled, and a part over which
the times decrease by more than `SLACK` is always read. The search misses messages that were stored while the clock was
off by more than `SLACK` if all of them lie between two samples, and single records with a damaged time. Logs of up to
`WHOLE` bytes are therefore read completely.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from rmqstore.errors import UsageError
from rmqstore.files.log_ends import find_end, first_true, store_timestamp
from rmqstore.files.mapped_file_queue import MAX_RECORD, MappedFile, MappedFileQueue
from rmqstore.files.store import Store
from rmqstore.formats import properties
from rmqstore.formats.bodies import BodyError, decompress, messages_in
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.message import COMPRESSED, HEADS_BY_FLAG, INNER_BATCH, MAGIC_V1_U32, MAGIC_V2_U32, Message
from rmqstore.scan.columns import NOTHING, Columns, Repaired, filler_mask
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.kernels import Bool
from rmqstore.scan.resync import resync
from rmqstore.scan.window import ScanOptions, Window
from rmqstore.texts import Text

Ordered = TypeVar("Ordered", list[Any], tuple[Any, ...], range, npt.NDArray[Any])


@dataclass(frozen=True, slots=True)
class Selection:
    """Filters for records. A record must match all of them; an empty filter matches every record.

    `queue_ids`: in any topic; `queues`: pairs (topic, queue id). `keys`: words of KEYS; `msg_ids`: offset message ids
    or UNIQ_KEYs; `texts`: words of KEYS, or UNIQ_KEYs. `grep`: regular expression, searched in the decompressed body
    and in lines `NAME=value` of the properties. `limit`: number of records; `reverse`: newest first. `fillers`: whether
    records match that a repair put in the place of lost messages; `repaired`: what journals tell about records.
    Units: `since` and `until` are store times in ms, half-open; `start` and `stop` are global offsets of records (queue
    offsets for consume queues), half-open.
    """

    topics: frozenset[str] = frozenset()
    queue_ids: frozenset[int] = frozenset()
    queues: frozenset[QueueName] = frozenset()
    tags: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    msg_ids: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    grep: str = ""
    since: int | None = None
    until: int | None = None
    start: int | None = None
    stop: int | None = None
    limit: int | None = None
    reverse: bool = False
    fillers: bool = True
    repaired: Repaired = NOTHING

    def __post_init__(self) -> None:
        """Errors: TypeError for a string instead of a set of strings ("Order" would mean O, r, d and e)."""
        for name in ("topics", "tags", "keys", "msg_ids"):
            if isinstance(getattr(self, name), str):
                raise TypeError(f"{name} is a set of strings: frozenset({{{getattr(self, name)!r}}})")

    @property
    def by_text(self) -> bool:
        """Whether a filter needs the properties or the body."""
        return bool(self.tags or self.keys or self.msg_ids or self.texts or self.grep)

    @property
    def by_queue(self) -> bool:
        return bool(self.topics or self.queue_ids or self.queues)

    def wants_queue(self, topic: str, queue_id: int) -> bool:
        """Return whether records of this queue can match."""
        if self.topics and topic not in self.topics:
            return False
        if not self.queue_ids and not self.queues:
            return True
        return queue_id in self.queue_ids or (topic, queue_id) in self.queues

    def ordered(self, items: Ordered) -> Ordered:
        """Return items in the order in which they are read: the last one first with `reverse`."""
        return items[::-1] if self.reverse else items

    def wants_texts(self, text: bytes, msg_id: str) -> bool:
        """Return whether a record with this property text and offset message id matches."""
        found = properties.parse_properties(text)
        if self.tags and found.get(properties.TAGS) not in self.tags:
            return False
        keys = found.get(properties.KEYS, "").split(" ")
        if self.keys and self.keys.isdisjoint(keys):
            return False
        if self.texts and self.texts.isdisjoint((*keys, found.get(properties.UNIQ_KEY, ""))):
            return False
        return not (
            self.msg_ids and msg_id not in self.msg_ids and found.get(properties.UNIQ_KEY, "") not in self.msg_ids
        )

    @property
    def needles(self) -> list[bytes]:
        """Texts, at least one of which is in every chunk that contains a match; empty if there are no such texts."""
        if self.msg_ids:
            from rmqstore.formats.messageid import decode_offset_message_id

            if any(decode_offset_message_id(i) is not None for i in self.msg_ids):
                return []
        wanted = self.keys or self.texts or self.tags or self.msg_ids
        return [t.encode("utf-8", "surrogateescape") for t in wanted]

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """`grep`, compiled; ^ and $ match at lines.

        Errors: UsageError if it is not a regular expression.
        """
        if not self.grep:
            return None
        try:
            return re.compile(self.grep, re.MULTILINE)
        except re.error as error:
            raise UsageError(f"--grep {self.grep}: {error}", Text("use the syntax of Python's re module")) from None


def matches(pattern: re.Pattern[str], message: Message) -> bool:
    """Return whether a pattern is found in a message's properties (`NAME=value`) or in its decompressed body."""
    found = properties.parse_properties(message.properties)
    if pattern.search("\n".join(f"{name}={value}" for name, value in found.items())):
        return True
    try:
        body = decompress(message.sys_flag, message.body)
    except BodyError:
        body = message.body
    return pattern.search(body.decode("utf-8", "surrogateescape")) is not None


class Selector:
    """Applies a selection to chunks of records; remembers which queues match."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.table = QueueTable()
        self._wanted: Bool = np.zeros(0, dtype=np.bool_)
        self._needles = selection.needles
        self._pattern = selection.pattern
        self.repaired = selection.repaired

    def mask(self, columns: Columns) -> Bool | None:
        """Return the mask of the matching records of a chunk; None if all match.

        Shape: (n,)
        """
        s = self.selection
        out: Bool | None = None
        if s.start is not None:
            out = columns.offset >= s.start
        if s.stop is not None:
            out = _both(out, columns.offset < s.stop)
        if s.since is not None:
            out = _both(out, columns.store_timestamp >= s.since)
        if s.until is not None:
            out = _both(out, columns.store_timestamp < s.until)
        if s.by_queue:
            numbers = self.table.of(columns)
            for number in range(len(self._wanted), len(self.table)):
                wanted = s.wants_queue(self.table.topic(number), self.table.queue_ids[number])
                self._wanted = np.append(self._wanted, wanted)
            out = _both(out, self._wanted[numbers])
        if s.by_text:
            out = self._texts(columns, out)
        if not s.fillers:
            fillers = filler_mask(columns, self.repaired)
            out = out if fillers is None else _both(out, ~fillers)
        return out

    def _texts(self, columns: Columns, out: Bool | None) -> Bool:
        n = len(columns)
        out = np.ones(n, dtype=np.bool_) if out is None else out
        packed = (columns.sys_flag & (INNER_BATCH | COMPRESSED)) == INNER_BATCH | COMPRESSED
        if self._needles and n and not packed.any():
            raw = columns.buf[int(columns.at[0]) : int(columns.at[-1] + columns.size[-1])].tobytes()
            if not any(needle in raw for needle in self._needles):
                return np.zeros(n, dtype=np.bool_)
        view = columns.buf.data
        for i in np.flatnonzero(out).tolist():
            at = int(columns.properties_at[i])
            text = bytes(view[at : at + int(columns.properties_length[i])])
            msg_id = columns.message(i).offset_message_id() if self.selection.msg_ids else ""
            out[i] = self.selection.wants_texts(text, msg_id)
            if not out[i] and columns.sys_flag[i] & INNER_BATCH:  # the messages of a batch have keys and ids, too
                inner = messages_in(columns.message(i))
                out[i] = any(self.selection.wants_texts(one.properties, msg_id) for one in inner)
            if out[i] and self._pattern is not None:
                out[i] = matches(self._pattern, columns.message(i))
        return out


def _both(a: Bool | None, b: Bool) -> Bool:
    return b if a is None else a & b


SLACK = 60_000
"""By how much store times may decrease, in ms, without the search missing a message."""
SAMPLES = 128
"""Number of positions in a log at which a store time is read, in addition to the start of every file."""
WHOLE = 64 << 20
"""Logs of up to this many bytes are read completely, in less than a tenth of a second."""
_GRID = 64 << 10
_LONGEST_HEAD = HEADS_BY_FLAG[0x30].size


def offsets_between(queue: MappedFileQueue, body_offset: int, since: int | None, until: int | None) -> tuple[int, int]:
    """Return global offsets [start, stop) that contain all messages stored in [since, until) (ms; None: no bound).

    See the module's docstring for brokers whose clock was set back.
    """
    start, stop = queue.start, queue.stop
    if (since is None and until is None) or queue.bytes_on_disk <= WHOLE:
        return start, stop
    wanted = [part for part in _parts(queue, body_offset) if part.can_hold(since, until)]
    if not wanted:
        return start, start
    return wanted[0].low(queue, body_offset, since), wanted[-1].high(queue, body_offset, until)


class _SampledRange:
    """Bytes [start, stop) of a log between two sampled records with their store times (ms; None at the log's ends)."""

    def __init__(self, start: int, stop: int, first: int | None, last: int | None) -> None:
        self.start, self.stop, self.first, self.last = start, stop, first, last
        self.falls = first is not None and last is not None and first > last + SLACK

    def can_hold(self, since: int | None, until: int | None) -> bool:
        too_early = since is not None and self.last is not None and self.last + SLACK < since
        too_late = until is not None and self.first is not None and self.first - SLACK >= until
        return self.falls or not (too_early or too_late)

    def low(self, queue: MappedFileQueue, body_offset: int, since: int | None) -> int:
        """Return an offset before which no record of this part was stored at `since` or later."""
        if since is None or self.falls:
            return self.start
        return max(self.start, self._first_from(queue, body_offset, since - SLACK, unknown_is_late=True) - _GRID)

    def high(self, queue: MappedFileQueue, body_offset: int, until: int | None) -> int:
        """Return an offset from which no record of this part was stored before `until`."""
        if until is None or self.falls or self.last is None:
            return self.stop
        return self._first_from(queue, body_offset, until + SLACK, unknown_is_late=False)

    def _first_from(self, queue: MappedFileQueue, body_offset: int, time: int, *, unknown_is_late: bool) -> int:
        """Return an offset between the records stored before a time and those stored at that time or later."""

        def is_late(number: int) -> bool:
            at = self.start + number * _GRID
            # every part but the last ends with a known record; after the end of the log, there may be 1 GiB of zeros
            found = record_from(queue, body_offset, at, _GRID if self.last is None else self.stop + 1 - at)
            return unknown_is_late if found is None else found[1] >= time

        count = -(-(self.stop - self.start) // _GRID)
        return min(self.stop, self.start + first_true(0, count, is_late) * _GRID)


def _parts(queue: MappedFileQueue, body_offset: int) -> Iterator[_SampledRange]:
    """Yield the whole log, cut at the sampled records."""
    known: list[tuple[int, int | None]] = [(queue.start, None), *_samples(queue, body_offset), (queue.stop, None)]
    for (start, first), (stop, last) in itertools.pairwise(known):
        yield _SampledRange(start, stop, first, last)


def _samples(queue: MappedFileQueue, body_offset: int) -> Iterator[tuple[int, int]]:
    step = max(_GRID, (queue.stop - queue.start) // SAMPLES)
    reached = -1
    for file in queue.files:
        for at in range(file.start, file.stop, step):
            if at <= reached:
                continue
            found = record_from(queue, body_offset, at)
            if found is None:
                return
            yield found
            reached = found[0]


def log_span(store: Store) -> tuple[int, int] | None:
    """Return the store times (ms) of the first and the last message of the logs; None without messages."""
    times: list[int] = []
    for queue, body_offset in store.logs:
        first = record_from(queue, body_offset, queue.start)
        if first is not None:
            offset, time = _near_end(queue, body_offset) or first
            times += [first[1], find_end(queue, body_offset, offset).last_timestamp or time]
    return (min(times), max(times)) if times else None


def _near_end(queue: MappedFileQueue, body_offset: int) -> tuple[int, int] | None:
    """Return offset and store time (ms) of one of the last records, found by bisection."""
    start, count = queue.start, -(-(queue.stop - queue.start) // _GRID)
    after = first_true(1, count, lambda n: record_from(queue, body_offset, start + n * _GRID) is None)
    return record_from(queue, body_offset, start + (after - 1) * _GRID)


def record_from(
    queue: MappedFileQueue, body_offset: int, offset: int, within: int = MAX_RECORD
) -> tuple[int, int] | None:
    """Return offset and store time (ms) of the first record from a global offset on, or None.

    Searches at most `within` bytes of every file.
    """
    for file in queue.files:
        if file.stop > offset:
            found = _record_in(file, max(0, offset - file.start), body_offset, within)
            if found is not None:
                return found
    return None


def _record_in(file: MappedFile, at: int, body_offset: int, within: int) -> tuple[int, int] | None:
    try:
        window = Window(file, ScanOptions(chunk=1))
    except OSError:
        return None
    with closing(window):
        found, _ = resync(window, at, file.start, window.end, body_offset, until=at + within)
        head = window.pread(_LONGEST_HEAD, found + body_offset) if found is not None else b""
    is_record = int.from_bytes(head[4:8], "big") in (MAGIC_V1_U32, MAGIC_V2_U32)  # else a BLANK
    return (file.start + (found or 0), store_timestamp(head)) if is_record else None
