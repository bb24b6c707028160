"""List every lost or damaged message: those that the next broker start would lose, or that a repair could not keep.

The plan of a repair says which messages are damaged, and the forecast where a start would cut the log. This module
collects what remains of each of these messages. It also finds messages that a store knows of and no longer has: a
filler, the journal of its repair, an index entry or a queue entry knows of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from heapq import merge
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqstore.checks.beside.config import ConsumerOffsets
from rmqstore.checks.log.logs import Logs, Pointing
from rmqstore.checks.log.queue_parts import place_of
from rmqstore.checks.log.records_elsewhere import records_elsewhere
from rmqstore.checks.problems import codes
from rmqstore.documents.journal import LOST_FOUND, QUARANTINE, Journal, JournalFiles, State, list_journals
from rmqstore.documents.outcome import before
from rmqstore.documents.plan import Plan
from rmqstore.documents.steps import Create
from rmqstore.errors import CouldNotCheck
from rmqstore.files.beneath import read_range
from rmqstore.files.files import Files
from rmqstore.files.index import index_sizes
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.store import Store
from rmqstore.files.topics import queue_names
from rmqstore.formats import index, messageid, properties
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.halfrecord import message_with_body
from rmqstore.formats.message import HEAD, MAGIC_V1_U32, MAGIC_V2_U32, Fault, check_message, is_filler, parse_message
from rmqstore.formats.ranges import Ranges
from rmqstore.texts import Text
from rmqstore.views import lookup
from rmqstore.views.dump.messages import Job, read_records
from rmqstore.views.dump.selection import Selection
from rmqstore.views.lookup import Found, Indexed, KeyIndex, Place, entries_at
from rmqstore.views.progress import PopProgress

if TYPE_CHECKING:
    from rmqstore.checks.misplaced_files import Misplaced
    from rmqstore.checks.problems.account import Account
    from rmqstore.checks.verified import Verified

INTACT, DAMAGED, GONE = "intact", "damaged", "gone"
NO_UNIT, SAME_OFFSET, EXPIRED = "no-unit", "same-offset", "expired"
_NAME_DIGITS = 17
_LARGEST_SPAN = 256 << 20
_MOST_UNITS = 20_000  # messages listed by their queue entries only; further ones are counted
_MAGIC = re.compile(b"|".join(re.escape(magic.to_bytes(4, "big")) for magic in (MAGIC_V1_U32, MAGIC_V2_U32)))
_END = 1 << 62  # after every offset (bytes)
RecordAt = Callable[[int], Found | None]


@dataclass(frozen=True, slots=True)
class LostMessage:
    """One message. Fields that are neither in its record nor in its queue entry are None.

    `cause`: damage (the log lacks it), cut (it is sound, but a start would delete it), no-unit (it is sound, but no
    unit leads a consumer to it), same-offset (it is sound, but another message has its queue offset), or expired (its
    log file is gone). `body`: intact, damaged or gone. `mended`: the repair restores it; `incomplete`: except for
    properties that nothing proves. `filler`: after the repair, a filler has its queue offset. `key_hashes`: hashes of
    its index entries; `indexed_time`: store time according to them, up to 1 s too early. `consumed_by`: groups, or None
    if consumer progress is unknown. Units: bytes, ms.
    """

    topic: str
    queue_id: int
    queue_offset: int
    offset: int | None
    size: int | None = None
    keys: str | None = None
    key_hashes: tuple[int, ...] = ()
    unique_key: str | None = None
    tags: str | None = None
    store_timestamp: int | None = None
    indexed_time: int | None = None
    cause: str = "damage"
    body: str = GONE
    mended: bool = False
    incomplete: bool = False
    filler: bool = False
    consumed_by: tuple[str, ...] | None = ()
    found: Found | None = None

    @property
    def time(self) -> int | None:
        """The store time (ms), by the record or up to 1 s too early by the index; None if nothing shows it."""
        return self.indexed_time if self.store_timestamp is None else self.store_timestamp

    def to_json(self) -> dict[str, Any]:
        """Return the row of `lost --json`."""
        row = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "found"}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in row.items()}


@dataclass(slots=True)
class Losses:
    """The lost messages of a store: `damaged` in log order, then those from `cut_from` on (see `LostMessages.cut`).

    `unlisted`: number of further lost messages per queue (`TOPIC/ID`). `at_least`: there may be even more. `expired`:
    the first and the last queue offset, per queue, of messages in files that `expire --delete` has deleted for ever.
    """

    when: str
    damaged: list[LostMessage] = field(default_factory=list)
    cut_from: int | None = None
    served_below: int = 0
    """Cut messages below this offset are not lost if they have their unit (`StartForecast.outside_dledger`)."""
    misplaced: Misplaced | None = None
    """Log files that would be renamed."""
    unlisted: dict[str, int] = field(default_factory=dict)
    at_least: bool = False
    expired: dict[str, tuple[int, int]] = field(default_factory=dict)
    account: Account | None = None

    @property
    def count(self) -> int:
        """The number of known messages that are permanently lost, without those of `LostMessages.cut`."""
        return sum(not one.mended for one in self.damaged) + sum(self.unlisted.values())


def _with_entries(one: LostMessage, entries: Indexed | None) -> LostMessage:
    return one if entries is None else replace(one, key_hashes=tuple(entries.hashes), indexed_time=entries.time)


class LostMessages:
    """Collects the lost messages of one store.

    `offsets`: the progress of consumer groups, by default that of today. `pointing`: what is known about the queue
    directories, by default that each has the units of its own queue.
    """

    def __init__(self, store: Store, offsets: ConsumerOffsets | None = None, pointing: Pointing | None = None) -> None:
        self.store = store
        self.queue = lookup.queue_reader(store)
        self.offsets = offsets or ConsumerOffsets.read(store)
        self.pointing = pointing or Pointing()

    def before(self, plan: Plan) -> LostMessages:
        """Return this view with the progress before a repair, if its plan has it: groups may have read fillers."""
        known = before(plan)
        return self if known is None or known.offsets is None else LostMessages(self.store, known.offsets)

    @cached_property
    def pop(self) -> PopProgress:
        """What groups have received through POP."""
        return PopProgress.read(self.store)

    # --- before a repair ----------------------------------------------------------------------------------------------

    def at_next_start(self, verified: Verified, plan: Plan | None) -> Losses:
        """Return the messages that are damaged according to the plan of a repair, and where the start cuts the log.

        What the plan leaves as it is, such as a log file of another broker, and all damage without a plan (None), shows
        its messages only by the queue entries that point there.
        """
        out = Losses(Text("next start"))
        broker = verified.report.broker or {}
        stop = broker.get("commitlog_stop")
        if broker.get("starts") and isinstance(stop, int) and broker.get("messages_lost"):
            out.cut_from = stop
            out.misplaced = verified.misplaced if verified.wrong_names is not None else None
            if broker.get("outside_dledger") and self.store.dledger is not None:
                size = self.store.dledger.data.file_size
                out.served_below = (stop + size - 1) // size * size
        stays: object = None
        if plan is not None:
            self._from_plan(out, plan, self._here, self._index())
            stays = plan.facts.get("stays")
        left = [
            finding
            for finding in verified.report.findings.listed
            if finding.damages_log and (plan is None or (isinstance(stays, Mapping) and finding.code in stays))
        ]
        spans = [(finding.offset, finding.offset + finding.length) for finding in left]
        if codes.CL_NO_MESSAGES in verified.report.findings.counts:  # the whole log is gone
            spans = [(0, _END)]
            out.unlisted.clear()
        self._from_units(out, spans)
        if verified.report.account is not None:
            self._from_account(out, verified.report.account)
        out.damaged.sort(key=lambda one: one.offset or 0)
        return out

    def _from_units(self, out: Losses, spans: Sequence[tuple[int, int]]) -> None:
        """Add the messages of queue entries that point into some spans of the log and not to their own record."""
        known = {(one.topic, one.queue_id, one.queue_offset) for one in out.damaged}
        found: list[LostMessage] = []
        for place, unit in self._units_into(spans):
            if place in known or not self._is_gone(place, unit):
                continue
            known.add(place)
            if len(found) < _MOST_UNITS:
                found.append(self._consumed(LostMessage(*place, unit.offset, unit.size)))
            else:
                name = f"{place[0]}/{place[1]}"
                out.unlisted[name] = out.unlisted.get(name, 0) + 1
        out.damaged += self._indexed(found)

    def _indexed(self, found: list[LostMessage]) -> list[LostMessage]:
        """Return messages with what their index entries tell."""
        sizes = index_sizes(self.store)
        offsets = {one.offset for one in found if one.offset is not None}
        entries: Mapping[int, Indexed] = {}
        if found and sizes is not None:
            entries = entries_at(*self._index(), sizes, offsets)
        return [_with_entries(one, entries.get(-1 if one.offset is None else one.offset)) for one in found]

    def _from_account(self, out: Losses, account: Account) -> None:
        """Add the messages of the account that the plan and the units into damage do not show.

        Only the number of those is known that the index lists, or that are more than `_MOST_UNITS`.
        """
        out.account = account
        out.at_least = account.at_least
        known = {(one.topic, one.queue_id, one.queue_offset) for one in out.damaged}
        readable = {place for place in known if _is_in_log(account, place)}
        out.damaged = [
            one  # brokers read what else is only mended
            for one in out.damaged
            if not one.mended or (one.topic, one.queue_id, one.queue_offset) not in readable
        ]
        counts = Counter(place[:2] for place in known - readable)
        found: list[LostMessage] = []
        unlisted: dict[str, int] = {}
        for (topic, queue_id), one in sorted(account.queues.items()):
            if properties.is_lmq(topic):
                continue
            listed = counts[topic, queue_id]
            room = max(0, _MOST_UNITS - len(known) - len(found))
            new = [n for n in islice(one.lost_already - one.fillers, room) if (topic, queue_id, n) not in known]
            for number in new:
                unit = self.unit((topic, queue_id, number))
                at, size = (None, None) if unit is None else (unit.offset, unit.size)
                found.append(self._consumed(LostMessage(topic, queue_id, number, at, size)))
            left = len(one.lost_already - one.fillers) - listed - len(new)
            if left > 0:
                unlisted[f"{topic}/{queue_id}"] = left
        out.damaged += self._indexed(found)
        listed = sum((one.topic, one.queue_id, one.queue_offset) not in readable for one in out.damaged)
        left = account.lacking - listed - sum(unlisted.values())
        out.unlisted = unlisted | ({"": left} if left > 0 else {})

    def undelivered(self, verified: Verified) -> Iterator[LostMessage]:
        """Yield the messages that stay in the log and reach no consumer, once for each queue that lacks them.

        Of several records with one queue offset, the unit leads to one. Log files are read by their right names.
        """
        account, logs, misplaced = verified.report.account, verified.logs, verified.misplaced
        if account is None:
            return
        if misplaced is not None and misplaced.store is not self.store:
            yield from LostMessages(misplaced.store, self.offsets, self.pointing).undelivered(verified)
            return
        wanted = {name: one for name, one in account.queues.items() if one.undelivered or one.more}
        for (topic, queue_id), one in wanted.items():
            if properties.is_lmq(topic):  # the record is of another queue
                for number in one.undelivered:
                    yield self._consumed(LostMessage(topic, queue_id, number, None, cause=NO_UNIT, body=INTACT))
        if all(properties.is_lmq(topic) for topic, _ in wanted):
            return
        wrong, parts = _true_places(logs), logs.queues
        shared = {(*name, number) for name, one in wanted.items() for number in one.more.values()}
        lacking = {name: Ranges.of((m.start, m.stop) for m in parts[name].missing) for name in wanted if name in parts}
        missing = chain.from_iterable(parts[name].missing for name in wanted if name in parts)
        misfiled = {m.first_at for m in missing if logs.misfiled.explains(m)}  # a unit of another queue leads to them
        offsets = (one.offset for one in chain.from_iterable(read_records(self.store, "messages", Job(Selection()))))
        for offset in merge(offsets, sorted(at for whole in logs.witnesses.whole.values() for _, at in whole)):
            found = lookup.by_offset(self.store, offset)
            if found is None or not found.sound or found.log_offset in misfiled:
                continue
            name, places = wrong.get(found.log_offset) or _places(found)
            queue = wanted.get(name)
            if queue is None or (name in parts and found.log_offset < max(parts[name].restarts, default=-1)):
                continue
            more = queue.more.get(found.log_offset)
            for number in queue.undelivered & places if more is None else (more,):
                place, leads_to = (*name, number), self._leads_to((*name, number))
                has_unit = leads_to == found.log_offset
                if has_unit and place not in shared and number in lacking.get(name, Ranges()):
                    continue  # it is another record of this place that lacks its unit
                is_other = leads_to is not None and not has_unit and self._is_at(leads_to, place)
                cause = SAME_OFFSET if is_other else NO_UNIT
                row = _with_record(LostMessage("", 0, 0, found.offset, cause=cause), found)
                yield self._consumed(replace(row, topic=name[0], queue_id=name[1], queue_offset=number))

    def _leads_to(self, place: Place) -> int | None:
        """Return the log offset that a broker finds at a place of a queue; None without a unit, or unreadable."""
        with suppress(CannotRead):
            unit = self.queue(*place[:2]).at(place[2])
            return None if unit is None else unit.offset
        return None

    def _is_at(self, offset: int, place: Place) -> bool:
        """Return whether a sound record at a log offset has this queue offset."""
        found = lookup.by_offset(self.store, offset)
        return found is not None and found.sound and found.queue_place == place

    def expired(self, account: Account) -> Iterator[LostMessage]:
        """Yield the messages before the begin of the log that queue files still list, with the groups that read them.

        Nothing else is left of them.
        """
        for (topic, queue_id), one in sorted(account.queues.items()):
            for number in one.before if not properties.is_lmq(topic) else ():
                unit = self.unit((topic, queue_id, number))
                at, size = (None, None) if unit is None else (unit.offset, unit.size)
                yield self._consumed(LostMessage(topic, queue_id, number, at, size, cause=EXPIRED))

    def _units_into(self, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[tuple[str, int, int], lookup.Unit]]:
        """Yield (place, unit) of the queue entries that point into some spans of the log, without light queues."""
        try:
            names = sorted(queue_names(self.store)) if spans else []
        except CannotRead:
            return
        for name in names:
            queue = self.pointing.queue_in(name)
            if queue is None or queue[0].startswith(properties.LMQ_PREFIX):
                continue  # messages of a light queue are in the queue of their topic, too
            with suppress(CannotRead):
                for low, high in spans:
                    for number, unit in self.queue(*name).between(low, high):
                        yield (*queue, number), unit

    def _is_gone(self, place: tuple[str, int, int], unit: lookup.Unit) -> bool:
        found = lookup.by_offset(self.store, unit.offset)
        return found is None or not found.sound or (unit.batch == 1 and found.queue_place != place)

    def cut(self, losses: Losses) -> Iterator[LostMessage]:
        """Yield the sound messages that the next start would delete, in log order.

        A start goes by the present names of log files, and the messages are read by their right ones.
        """
        if losses.cut_from is None:
            return
        misplaced = losses.misplaced
        if misplaced is not None and misplaced.store is not self.store:
            yield from LostMessages(misplaced.store, self.offsets, self.pointing).cut(losses)
            return
        damaged = {one.offset for one in losses.damaged}
        start = losses.cut_from if misplaced is None else None
        records = read_records(self.store, "messages", Job(Selection(start=start)))
        for one in chain.from_iterable(records):
            at = one.offset if misplaced is None else misplaced.position(one.offset)
            if at is None or at < losses.cut_from:
                continue
            found = lookup.by_offset(self.store, one.offset)
            if found is None or not (found.sound and found.message.is_dispatched) or found.offset in damaged:
                continue
            unit = self.unit(found.queue_place) if one.offset < losses.served_below else None
            if unit is None or unit.offset != found.offset:
                row = _with_record(LostMessage("", 0, 0, found.offset, cause="cut"), found)
                yield from (self._consumed(replace(row, queue_offset=number)) for number in _places(found)[1])

    def unit(self, place: Place) -> lookup.Unit | None:
        """Return the queue entry of a message; None if there is none, or if it cannot be read."""
        directory = self.pointing.directory_of(place[:2])
        with suppress(CannotRead):
            return None if directory is None else self.queue(*directory).at(place[2])
        return None

    # --- after a repair -----------------------------------------------------------------------------------------------

    def in_repair(self, folder: Journal, plan: Plan) -> Losses:
        """Return the messages that a repair replaced by fillers or mended, from its plan and its lost+found."""
        out = Losses("repair")
        kept = kept_records(folder)
        made = {step.path for step in plan.steps if isinstance(step, Create)}
        paths = [entry.path for entry in self.store.index_files if self.store.relative(entry.path) not in made]
        today = OpenedIndex(self.store.files, paths)
        self.before(plan)._from_plan(out, plan, kept.get, quarantined_index(folder), today)
        out.damaged.sort(key=lambda one: one.offset or 0)
        if plan.deletes:
            out.expired = dict(_expired(plan.facts.get("expire")))
        return out

    def _from_plan(self, out: Losses, plan: Plan, record_at: RecordAt, *indexes: OpenedIndex) -> None:
        """Add the messages of a plan. Each list of index files is searched for what the lists before it do not have."""
        out.damaged += [self.damaged(record, record_at) for record in _records(plan.facts.get("fillers"))]
        incomplete = {record.offset for record in _records(plan.facts.get("damaged"))}
        kept = (record for fact in ("mended", "kept") for record in _records(plan.facts.get(fact)))
        for record in {record.offset: record for record in kept}.values():
            one = replace(self.damaged(record, self._here), mended=True, filler=False)
            out.damaged.append(replace(one, incomplete=record.offset in incomplete))
        offsets = {one.offset for one in out.damaged if one.offset is not None}
        sizes = index_sizes(self.store)
        known: dict[int, Indexed] = {}
        for files, paths in indexes if sizes is not None else ():
            assert sizes is not None
            known |= entries_at(files, paths, sizes, offsets - known.keys())
        out.damaged = [_with_entries(one, known.get(-1 if one.offset is None else one.offset)) for one in out.damaged]
        listed = Counter(f"{one.topic}/{one.queue_id}" for one in out.damaged if not one.mended)
        for queue, count in plan.loss.queues.items():
            if count > listed[queue]:
                out.unlisted[queue] = count - listed[queue]
        unplaced = plan.loss.messages - sum(plan.loss.queues.values())
        if unplaced > 0:
            out.unlisted[""] = unplaced
        out.at_least |= bool(plan.loss.more.get("at_least"))

    def damaged(self, record: _LostRecord, record_at: RecordAt) -> LostMessage:
        """Return the message of a record that a filler replaced; `record_at`: what is left at an offset."""
        one = LostMessage(*record.place, record.offset, filler=True)
        found = record_at(record.offset)
        if found is not None and _is_of(found, record.place):
            return self._consumed(_with_record(one, found))
        if not record.placed:  # its unit and its index entries, if there are any, are of the filler
            return self._consumed(replace(one, offset=None))
        unit = self.unit(record.place)
        if unit is not None:
            one = replace(one, offset=unit.offset, size=unit.size)
            found = record_at(unit.offset)
            if found is not None and _is_of(found, record.place):
                one = _with_record(one, found)
        return self._consumed(one)

    def _here(self, offset: int) -> Found | None:
        return lookup.by_offset(self.store, offset) or lookup.with_body(self.store, offset)

    def _index(self) -> OpenedIndex:
        return OpenedIndex(self.store.files, [entry.path for entry in self.store.index_files])

    def _consumed(self, one: LostMessage) -> LostMessage:
        if self.offsets.unreadable:
            return replace(one, consumed_by=None)
        groups = self.offsets.of(one.topic, one.queue_id)
        place = one.topic, one.queue_id, one.queue_offset
        return replace(one, consumed_by=tuple(p.group for p in groups if self.pop.has_consumed(p, *place)))


def with_keys(rows: Iterable[LostMessage], keys: Iterable[str]) -> Iterator[tuple[LostMessage, tuple[str, ...]]]:
    """Yield the lost messages that may have one of these keys, and these keys, by record or by hashes of the index.

    Another key can have the same hash of 31 bits, with a probability of one in two billion per pair.
    """
    wanted = list(dict.fromkeys(keys))
    by_topic: dict[str, dict[int, list[str]]] = {}
    for one in rows:
        if one.found is not None:
            own = {*(one.keys or "").split(" "), one.unique_key}
            fits = tuple(key for key in wanted if key in own)
        else:
            table = by_topic.get(one.topic)
            if table is None:
                table = by_topic[one.topic] = {}
                for key in wanted:
                    table.setdefault(index.key_hash(index.key_text(one.topic, key)), []).append(key)
            fits = tuple(key for key_hash in one.key_hashes for key in table.get(key_hash, ()))
        if fits:
            yield one, fits


def _places(found: Found) -> tuple[QueueName, Ranges]:
    """Return the queue and the queue offsets of a record: several for an inner batch."""
    name, start, stop = place_of(found.message)
    return name, Ranges.span(start, stop)


def _true_places(logs: Logs) -> dict[int, tuple[QueueName, Ranges]]:
    """Return the queue and the queue offset of records whose header is wrong, by log offset."""
    true = records_elsewhere(logs)
    for (topic, queue_id), part in logs.queues.items():
        rows = ((one.at, one.expected) for one in part.outliers)
        true |= {at: (topic, queue_id, number) for at, number in rows if number is not None}
    return {at: ((topic, queue_id), Ranges.span(number, number + 1)) for at, (topic, queue_id, number) in true.items()}


def _is_in_log(account: Account, place: Place) -> bool:
    """Return whether a damaged message is in the log all the same: a broker reads its record."""
    one = account.queues.get(place[:2])
    return one is not None and place[2] in one.in_log and place[2] not in one.lost_already


def applied_repairs(store: Store) -> Iterator[tuple[Journal, Plan]]:
    """Yield the repairs that are applied and not undone, the newest first; a damaged journal is left out."""
    for folder in reversed(list_journals(store.root, store.places)) if store.part is None else ():
        if folder.state is not State.DONE:
            continue
        try:
            plan = folder.load_plan()
        except CouldNotCheck:
            continue
        if "strategy" in plan.facts:  # plans of other commands lose no messages of the log
            yield folder, plan


class _LostRecord(NamedTuple):
    """The place of a message, and the offset and length (bytes; 0 if unknown) of its record, or of its filler.

    `placed`: the message was there; otherwise only its filler is.
    """

    place: Place
    offset: int
    length: int = 0
    placed: bool = True


def _records(fact: object) -> Iterator[_LostRecord]:
    """Yield the records of a plan's fact; skip invalid ones, as a saved plan is untrusted."""
    for row in fact if isinstance(fact, list) else ():
        if not isinstance(row, dict):
            continue
        topic, length = row.get("topic"), row.get("length", 0)
        numbers: list[Any] = [row.get(name) for name in ("queue_id", "queue_offset", "offset")]
        if isinstance(topic, str) and isinstance(length, int) and all(map(_is_offset, numbers)):
            queue_id, queue_offset, offset = numbers
            yield _LostRecord((topic, queue_id, queue_offset), offset, length, row.get("placed") is not False)


def _expired(fact: object) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the first and the last queue offset of each queue of a clean-up; skip invalid ones, as `_records`."""
    queues = fact.get("queues") if isinstance(fact, dict) else None
    for queue, row in queues.items() if isinstance(queues, dict) else ():
        first, last = (row.get(name) if isinstance(row, dict) else None for name in ("first", "last"))
        if isinstance(first, int) and isinstance(last, int):
            yield queue, (first, last)


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < 1 << 63


def _is_of(found: Found, place: Place) -> bool:
    """Return whether a record is that of a message; its topic may be lost."""
    topic, queue_id, queue_offset = found.queue_place
    return (topic or place[0], queue_id, queue_offset) == place


def _with_record(one: LostMessage, found: Found) -> LostMessage:
    message = found.message
    known = properties.parse_properties(message.properties)
    return replace(
        one,
        topic=message.topic_text or one.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        offset=one.offset if found.offset is None else found.offset,
        size=message.size,
        keys=known.get(properties.KEYS),
        unique_key=known.get(properties.UNIQ_KEY),
        tags=known.get(properties.TAGS),
        store_timestamp=message.store_timestamp,
        body=INTACT if found.sound or found.fault is Fault.LENGTHS else DAMAGED,
        found=found,
    )


def kept_records(folder: Journal) -> dict[int, Found]:
    """Return the records in lost+found by log offset. A file `OFFSET.bin` has the bytes from that offset on."""
    out: dict[int, Found] = {}
    for path in folder.regular(folder.path / LOST_FOUND):
        if not path.stem.isdecimal():
            continue
        try:
            data = b"".join(read_range(path, 0, _LARGEST_SPAN, folder.disk))
        except OSError:
            continue
        for match in _MAGIC.finditer(data):
            at = match.start() - HEAD.at("magic")
            message = parse_message(data, at)[0] if at >= 0 else None
            offset = int(path.stem) + at
            left = message_with_body(data, at) if message is None and at >= 0 else None
            if left is not None and left.physical_offset == offset:
                out[offset] = Found(left, None, str(path), at, Fault.LENGTHS)
            # at the start of the file, the record's offset is known even if its PHYSICALOFFSET is damaged
            if message is not None and (message.physical_offset == offset or at == 0):
                out[offset] = Found(message, None, str(path), at, check_message(message, offset))
    return out


class OpenedIndex(NamedTuple):
    """Index files, and how they are opened."""

    files: Files
    paths: list[Path]


def quarantined_index(folder: Journal) -> OpenedIndex:
    """Return the index files that the repair quarantined, which still have entries of lost messages."""
    paths = [path for home in folder.own_homes for path in folder.regular(home / QUARANTINE)]
    names = ((path, path.name.partition("-")[2]) for path in paths)
    found = [path for path, name in names if len(name) >= _NAME_DIGITS and name.isdigit()]
    return OpenedIndex(JournalFiles(folder), found)


UNKNOWN = -1
"""Queue id and queue offset of a message whose queue entry is not known."""


@dataclass(frozen=True, slots=True)
class MissingMessage:
    """A lost message. `cause`: filler, damaged (its record is), or missing-file (no log file has its offset).

    `repair`: name of the repair that put a filler in its place, "" if that is not known; `journal`: its directory.
    """

    message: LostMessage
    cause: str
    repair: str = ""
    journal: Path | None = None

    @property
    def place(self) -> tuple[str, int, int, int | None]:
        """What identifies the message."""
        return self.message.topic, self.message.queue_id, self.message.queue_offset, self.message.offset

    def to_json(self) -> dict[str, Any]:
        """Return the row of `find --json` and `get --json`."""
        row = self.message.to_json()
        for name in ("queue_id", "queue_offset"):
            row[name] = None if row[name] == UNKNOWN else row[name]
        journal = None if self.journal is None else str(self.journal)
        return row | {"cause": self.cause, "repair": self.repair or None, "journal": journal}


class _AppliedRepair:
    """A repair with the messages that it replaced. Its lost+found is read when it is needed."""

    def __init__(self, folder: Journal, plan: Plan) -> None:
        self.folder = folder
        self.records = {record.offset: record for record in _records(plan.facts.get("fillers"))}

    @cached_property
    def kept(self) -> dict[int, Found]:
        return kept_records(self.folder)

    def record_at(self, offset: int) -> _LostRecord | None:
        """Return the record of the filler that covers a log offset."""
        if offset in self.records:
            return self.records[offset]
        return next((one for at, one in self.records.items() if at < offset < at + one.length), None)


class LostFinder:
    """Finds the lost messages of one store. Journals are read once."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @cached_property
    def _view(self) -> LostMessages:
        return LostMessages(self.store)

    @cached_property
    def _repairs(self) -> list[_AppliedRepair]:
        return [_AppliedRepair(folder, plan) for folder, plan in applied_repairs(self.store)]

    @cached_property
    def _unmarked(self) -> frozenset[int]:
        from rmqstore.messages.repaired import repaired_records

        return frozenset(repaired_records(self.store).fillers)

    def is_filler(self, found: Found) -> bool:
        """Return whether a record of the log is a filler."""
        return is_filler(found.message) or found.offset in self._unmarked

    def of_filler(self, found: Found) -> MissingMessage:
        """Return the message in whose place a filler is."""
        known = self.in_repair(found.log_offset)
        if known is not None:
            return known
        own = properties.parse_properties(found.message.properties)
        one = self._view.damaged(_LostRecord(found.queue_place, found.log_offset), lambda _: None)
        keys, unique_key = own.get(properties.KEYS), own.get(properties.UNIQ_KEY)
        size = found.message.size if one.size is None else one.size
        return MissingMessage(replace(one, size=size, keys=keys, unique_key=unique_key), "filler")

    def in_repairs(self, texts: Collection[str]) -> Iterator[tuple[MissingMessage, str]]:
        """Yield the messages that repairs replaced and that a key, an id or TOPIC/QUEUE/OFFSET names, with that text.

        Ids and keys come from what the repair kept of the record, and from the index files that it replaced.
        """
        for repair in self._repairs:
            found = {(offset, text) for text in texts for offset in self._named(repair, text)}
            for offset, text in sorted(found):
                yield self._lost(repair, repair.records[offset]), text

    def _named(self, repair: _AppliedRepair, text: str) -> Iterator[int]:
        if not repair.records:
            return
        place = lookup.parsed_place(text)
        decoded = messageid.decode_offset_message_id(text)
        for offset, record in repair.records.items():
            kept = repair.kept.get(offset)
            if place == record.place:
                yield offset
            elif kept is not None and kept.queue_place == record.place:
                if lookup.has_key(kept.message, text):
                    yield offset
            elif decoded is not None and decoded.physical_offset == offset:
                yield offset
        topics = {record.place[0] for record in repair.records.values()}
        for hit in KeyIndex(self.store, *quarantined_index(repair.folder)).hits(topics, (text,)):
            known = repair.records.get(hit.offset)
            if known is not None and known.place[0] == hit.topic and hit.offset not in repair.kept:
                yield hit.offset

    def at(self, offset: int, topic: str) -> MissingMessage:
        """Return the message at a log offset where no good record is; `topic` comes from its index entry."""
        known = self.in_repair(offset)
        if known is not None:
            return known
        try:
            place = lookup.place_of(self.store, topic, offset)
        except CannotRead:
            place = None
        if place is None:
            return self._unrepaired(LostMessage(topic, UNKNOWN, UNKNOWN, offset, consumed_by=None), offset)
        return self._unrepaired(self._view.damaged(_LostRecord((topic, *place), offset), lambda _: None), offset)

    def at_place(self, place: Place) -> MissingMessage | None:
        """Return the message of a queue entry that points to no good record; None if there is no such entry."""
        unit = self._view.unit(place)
        if unit is None or lookup.by_offset(self.store, unit.offset) is not None:
            return None
        known = self.in_repair(unit.offset)
        if known is not None:
            return known
        return self._unrepaired(self._view.damaged(_LostRecord(place, unit.offset), lambda _: None), unit.offset)

    def _unrepaired(self, one: LostMessage, offset: int) -> MissingMessage:
        has_file = any(log.find(offset) is not None for log, _ in self.store.logs)
        return MissingMessage(replace(one, filler=False), "damaged" if has_file else "missing-file")

    def in_repair(self, offset: int) -> MissingMessage | None:
        """Return the message that a repair replaced by a filler that covers a log offset."""
        for repair in self._repairs:
            record = repair.record_at(offset)
            if record is not None:
                return self._lost(repair, record)
        return None

    def _lost(self, repair: _AppliedRepair, record: _LostRecord) -> MissingMessage:
        one = self._view.damaged(record, repair.kept.get)
        return MissingMessage(one, "filler", repair.folder.name, repair.folder.path)
