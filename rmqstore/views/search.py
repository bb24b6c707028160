"""Search for messages: by the offset in an id, by the index, by the time in a unique id, or by reading the log.

The ways are tried in this order. Where the index does not cover a part of the log, that part is read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC

from rmqstore.errors import UsageError
from rmqstore.files.mapped_file_queue import MappedFileQueue, message_at
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.store import Store
from rmqstore.files.topics import topics
from rmqstore.formats import messageid
from rmqstore.formats.message import Fault
from rmqstore.formats.properties import is_lmq
from rmqstore.scan.window import ScanOptions
from rmqstore.texts import Text, first_few
from rmqstore.views import lookup
from rmqstore.views.dump.messages import Job, Log, Skipped, logs_of, read_records
from rmqstore.views.dump.selection import Selection, log_span, matches, offsets_between
from rmqstore.views.lookup import Covered, Found, IndexHit, KeyIndex, Place, QueueUnits, parsed_place
from rmqstore.views.lost import LostFinder, MissingMessage

_BEFORE, _AFTER = 5 * 60_000, 30 * 60_000
"""The range of store times around the time in a unique id (ms): clocks differ, and sending takes time."""
_DAY = 86_400_000
LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Question:
    """The messages to search for: those that match any of the texts and all of the other conditions.

    `texts`: keys, unique ids, offset message ids or TOPIC/QUEUE/OFFSET. `since` and `until`: store time in ms,
    half-open. `read_log`: "never", "if-needed" or "always".
    """

    texts: tuple[str, ...]
    topics: frozenset[str] = frozenset()
    since: int | None = None
    until: int | None = None
    grep: str = ""
    limit: int = LIMIT
    read_log: str = "if-needed"

    @property
    def selection(self) -> Selection:
        """The selection for reading the log; finds no offset message ids and no TOPIC/QUEUE/OFFSET."""
        texts = frozenset(self.texts)
        return Selection(self.topics, texts=texts, grep=self.grep, since=self.since, until=self.until)


@dataclass(frozen=True, slots=True)
class Trace:
    """An index entry whose record cannot be read. `state`: damaged, expired or gone."""

    offset: int
    topic: str
    key: str
    state: str


@dataclass(slots=True)
class Answer:
    """The messages found, by log offset, and traces of others.

    `searched`: the slowest way used: offset, index, time or log. `read`: the ranges of the log that were read.
    `more`: there are more messages than the limit. `open_texts`: texts not found, with the log not read (`read_log`).
    `lost`: messages that the store knows of and no longer has. `kept`: those that only compaction still has, the last
    of each key, by place. `named`: the texts of the question that found a message, by log offset, by `Lost.place`, or
    by the place of a kept message.
    """

    found: dict[int, Found] = field(default_factory=dict)
    traces: dict[int, Trace] = field(default_factory=dict)
    lost: dict[tuple[str, int, int, int | None], MissingMessage] = field(default_factory=dict)
    kept: dict[lookup.Place, Found] = field(default_factory=dict)
    named: dict[object, set[str]] = field(default_factory=dict)
    searched: str = "offset"
    read: list[tuple[int, int]] = field(default_factory=list)
    more: bool = False
    open_texts: tuple[str, ...] = ()
    damage: Skipped = field(default_factory=Skipped)

    def lose(self, lost: MissingMessage, text: str) -> None:
        """Add a lost message that a text names."""
        self.lost.setdefault(lost.place, lost)
        self.named.setdefault(lost.place, set()).add(text)

    def keep(self, found: Found, text: str) -> None:
        """Add a message that only compaction has, and that a text names."""
        self.kept[found.queue_place] = found
        self.named.setdefault(found.queue_place, set()).add(text)

    def unanswered(self, texts: Iterable[str]) -> list[str]:
        """Return the texts that name no message, found, kept or lost."""
        known = set().union(*self.named.values())
        return [text for text in texts if text not in known]

    def sorted(self) -> list[Found]:
        return [self.found[offset] for offset in sorted(self.found)]


@dataclass(frozen=True, slots=True)
class Means:
    """How to read the log. `say` is called with a message before that, `progress` with the number of bytes read."""

    jobs: int = 1
    scan: ScanOptions = field(default_factory=ScanOptions)
    say: Callable[[str], None] = lambda _: None
    progress: Callable[[int], None] | None = None
    live: bool = False


def search(store: Store, question: Question, means: Means | None = None) -> Answer:
    """Search for messages.

    Errors: UsageError for an invalid regular expression, and without texts and `grep`.
    """
    if not question.texts and not question.grep:
        raise UsageError(Text("nothing to search for"), Text("give a key, a message id, or --grep REGEX"))
    return _Search(store, question, means or Means()).run()


class _Search:
    def __init__(self, store: Store, question: Question, means: Means) -> None:
        self.store, self.question, self.means = store, question, means
        self.pattern = question.selection.pattern
        self.answer = Answer(damage=Skipped(live=means.live, known=set()))
        self.losses = LostFinder(store)
        self.logs = logs_of(store)

    def run(self) -> Answer:
        question = self.question
        left = self._repairs(self._places(question.texts))
        light = frozenset(text for text in left if _names_light_queue(text))
        if not question.texts or question.read_log == "always":
            wanted = frozenset(question.texts) - light
            if wanted or not question.texts:
                self._log(wanted, "")
                self._compacted(frozenset(self.answer.unanswered(wanted)))
            self.answer.open_texts = tuple(sorted(light))
            return self.answer
        left = self._times(self._compacted(self._index(left - light)))
        if left and question.read_log == "if-needed":
            self._log(left, Text("{few} not found by id or index: reading the log", few=first_few(sorted(left), 3)))
            left = frozenset()
        self.answer.open_texts = tuple(sorted(left | light))
        return self.answer

    # --- direct -----------------------------------------------------------------------------------------------------

    def _places(self, texts: Iterable[str]) -> frozenset[str]:
        """Look up offset message ids and TOPIC/QUEUE/OFFSET; return the texts that were not found."""
        left = set()
        for text in texts:
            place = parsed_place(text)
            found = lookup.by_message_id(self.store, text)
            if found is None and place is not None:
                with suppress(CannotRead):
                    found = QueueUnits(self.store, *place[:2]).message(place[2])
            if found is not None:
                self._take(found, {text})
            elif place is not None and (kept := self._kept_at(place)) is not None:
                self.answer.keep(kept, text)
            elif place is not None and (lost := self.losses.at_place(place)) is not None:
                self.answer.lose(lost, text)
            else:
                left.add(text)
        return frozenset(left)

    def _repairs(self, texts: frozenset[str]) -> frozenset[str]:
        """Look for messages that earlier repairs replaced; return the texts that name no such message."""
        known = set()
        for lost, text in self.losses.in_repairs(sorted(texts)):
            if not self.question.topics or lost.message.topic in self.question.topics:
                self.answer.lose(lost, text)
                known.add(text)
        return texts - known

    def _take(self, found: Found | None, texts: Collection[str] = ()) -> bool:
        """Add a message to the answer if it meets all conditions; return False only if there is no message.

        `texts` name it. A filler is a lost message, and only texts can name it.
        """
        question = self.question
        if found is None or found.offset is None:
            return False
        message = found.message
        fits = not question.topics or message.topic_text in question.topics
        fits &= question.since is None or message.store_timestamp >= question.since
        fits &= question.until is None or message.store_timestamp < question.until
        if fits and (self.pattern is None or matches(self.pattern, message)):
            if self.losses.is_filler(found):
                for text in texts:
                    self.answer.lose(self.losses.of_filler(found), text)
            elif len(self.answer.found) >= question.limit and found.offset not in self.answer.found:
                self.answer.more = True
            else:
                self.answer.found[found.offset] = found
                self.answer.named.setdefault(found.offset, set()).update(texts)
        return True

    # --- the index --------------------------------------------------------------------------------------------------

    def _index(self, texts: frozenset[str]) -> frozenset[str]:
        """Look up keys in the index, and in the parts of the log that it does not cover; return the texts not found."""
        files = KeyIndex(self.store)
        if not texts or not files:
            return texts
        self.answer.searched = "index"
        wanted = self.question.topics or topics(self.store)
        seen, known = set(), set()
        for hit in files.hits(wanted, sorted(texts)):
            if (hit.offset, hit.key) not in seen:
                seen.add((hit.offset, hit.key))
                if self._hit(hit):
                    known.add(hit.key)
            if self.answer.more:
                return frozenset()
        if files.broken:
            return texts
        if self.question.read_log != "never":
            for log, start, stop in self._uncovered(files.covered()):
                known |= self._read(log, self._scan_for(texts), start, stop)
        return texts - known

    def _hit(self, hit: IndexHit) -> bool:
        """Add the message of an index entry, or a trace if it is unreadable; return whether the message exists."""
        found = lookup.by_offset(self.store, hit.offset)
        if found is not None and found.offset == hit.offset and lookup.has_key(found.message, hit.key):
            return self._take(found, {hit.key})
        if found is not None and found.offset == hit.offset and self.losses.is_filler(found):
            self.answer.lose(self.losses.of_filler(found), hit.key)
            return True
        if found is None or found.fault is not Fault.NONE:
            start = min((log.queue.start for log in self.logs), default=0)
            stop = max((log.queue.stop for log in self.logs), default=0)
            state = "expired" if hit.offset < start else "gone" if hit.offset >= stop else "damaged"
            self.answer.traces[hit.offset] = Trace(hit.offset, hit.topic, hit.key, state)
            if state == "damaged":
                self.answer.lose(self.losses.at(hit.offset, hit.topic), hit.key)
                return True
        return False

    def _uncovered(self, covered: list[Covered]) -> Iterator[tuple[Log, int, int]]:
        """Yield the ranges of the logs that no index file covers; a file covers its first and last message."""
        reached: int | None = None
        ranges: list[tuple[int, int | None]] = []
        for one in sorted(covered):
            if reached is None:
                ranges.append((0, one.first))
            elif one.first > reached and not self._is_next(reached, one.first):
                ranges.append((reached, one.first))
            reached = max(one.last, reached or 0)
        ranges.append((reached or 0, None))
        for log in self.logs:
            since, until = offsets_between(log.queue, log.body_offset, self.question.since, self.question.until)
            for start, stop in ranges:
                low = max(start, since)
                high = until if stop is None else min(stop, until)
                if low < high:
                    yield log, low, high

    def _is_next(self, offset: int, following: int) -> bool:
        """Return whether the record at an offset ends at another offset, or only the end of a file is between them."""
        for log in self.logs:
            message = message_at(log.queue, offset)
            if message is not None:
                end = offset + message.size + log.body_offset
                return end == following or _only_blank(log.queue, end - log.body_offset, following - log.body_offset)
        return False

    # --- compaction -------------------------------------------------------------------------------------------------

    @property
    def _compacts(self) -> bool:
        return self.store.part is None and "compaction" in self.store.top

    def _kept_at(self, place: Place) -> Found | None:
        if not self._compacts:
            return None
        from rmqstore.views.compacted import kept_at

        return kept_at(self.store, place)

    def _compacted(self, texts: frozenset[str]) -> frozenset[str]:
        """Look for the last messages with keys or ids in compacted topics; return the texts not found."""
        if not texts or not self._compacts:
            return texts
        from rmqstore.views.compacted import last_kept

        known = set()
        for text in sorted(texts):
            for found in last_kept(self.store, self._scan_for((text,))):
                self.answer.keep(found, text)
                known.add(text)
        return texts - known

    # --- the time in a unique id ------------------------------------------------------------------------------------

    def _times(self, texts: frozenset[str]) -> frozenset[str]:
        """Search for unique ids around the time that they contain; return the texts not found."""
        if self.question.read_log == "never":
            return texts
        span = log_span(self.store)
        if span is None:
            return texts
        left = set(texts)
        for text in sorted(texts):
            key = messageid.decode_uniq_key(text)
            for made in _made(key, *span) if key is not None else ():
                if text in left and self._around(text, made):
                    left.discard(text)
                    self.answer.searched = "time"
        return frozenset(left)

    def _around(self, text: str, made: int) -> bool:
        selection = replace(self._scan_for((text,)), since=made - _BEFORE, until=made + _AFTER)
        found: set[str] = set()
        for log in self.logs:
            start, stop = offsets_between(log.queue, log.body_offset, selection.since, selection.until)
            found |= self._read(log, replace(selection, since=None, until=None), start, stop)
        return bool(found)

    # --- the log ----------------------------------------------------------------------------------------------------

    def _scan_for(self, texts: Iterable[str]) -> Selection:
        return replace(self.question.selection, texts=frozenset(texts))

    def _log(self, texts: frozenset[str], said: str) -> None:
        """Read the part of the log with the wanted store times."""
        self.answer.searched = "log"
        self.means.say(said or Text("reading the log"))
        for log in self.logs:
            start, stop = offsets_between(log.queue, log.body_offset, self.question.since, self.question.until)
            self._read(log, self._scan_for(texts), start, stop)
            self._ids_in(log, texts)

    def _ids_in(self, log: Log, texts: frozenset[str]) -> None:
        """Search for the records of TOPIC/QUEUE/OFFSET texts whose queue unit is missing."""
        for text in texts:
            place = parsed_place(text)
            if place is not None and not any(f.queue_place == place for f in self.answer.found.values()):
                selection = Selection(queues=frozenset({place[:2]}), topics=frozenset({place[0]}))
                self._read(log, selection, log.queue.start, log.queue.stop, place)

    def _read(self, log: Log, selection: Selection, start: int, stop: int, place: Place | None = None) -> set[str]:
        """Read a range of a log, and return the texts found in it."""
        answered: set[str] = set()
        if start >= stop or self._has_more_than_enough():
            return answered
        self.answer.read.append((start, stop))
        # in DLedger, a record's offset is after the header of its entry
        job = Job(replace(selection, start=start, stop=stop + log.body_offset), scan=self.means.scan)
        records = read_records(
            self.store, log.name, job, self.answer.damage, jobs=self.means.jobs, progress=self.means.progress
        )
        for one in itertools.chain.from_iterable(records):
            found = lookup.by_offset(self.store, one.offset)
            if found is None or place not in (None, found.queue_place):
                continue
            named = {text for text in selection.texts if lookup.has_key(found.message, text)}
            if self._take(found, named if place is None else {"/".join(map(str, place))}):
                answered |= named
            if self._has_more_than_enough():
                break
        return answered

    def _has_more_than_enough(self) -> bool:
        return len(self.answer.found) >= self.question.limit and self.answer.more


def _names_light_queue(text: str) -> bool:
    """Return whether a text is a place in a light queue: only its queue tells which message is there, not the log."""
    place = parsed_place(text)
    return place is not None and is_lmq(place[0])


def _made(key: messageid.UniqKey, first: int, last: int) -> Iterator[int]:
    """Yield the times at which a unique id can have been created, latest first, for a store of [first, last] (ms).

    An id contains the time within a month, in an unknown time zone: this machine's and UTC are tried.
    """
    seen = set()
    for zone in (None, UTC):
        near = last + _DAY
        while near > first - _DAY and (made := key.time(near, zone)) not in seen and made < near:
            seen.add(made)
            near = made
    yield from sorted((made for made in seen if made >= first - _DAY), reverse=True)


def _only_blank(queue: MappedFileQueue, end: int, following: int) -> bool:
    """Return whether the file that contains `end` ends at `following`, where the next one starts."""
    file = queue.find(end)
    return file is not None and file.stop == following and queue.find(following) is not None
