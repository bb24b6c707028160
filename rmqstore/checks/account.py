"""The account of the messages of a store: which are in the log, stay in it, are listed anywhere, and reach a consumer.

Every number of messages that are lost, will be lost or are not delivered comes from here. Messages are counted by their
places, so that two witnesses of one message count once:

* lost already: listed by a witness, and not in the log. A witness is a unit, a row, a gap between the queue offsets of
  records, an entry of an index, of DLedger's index or of the timer log, or what consumers and services have reached.
  Before the begin of the log there is only a note, because brokers delete whole log files in normal operation, and keep
  the last file of each queue and of the index.
* lost at the next start: in the log, and deleted by it.
* kept by compaction: not in the log any more, but consumers of the topic get it from compaction/. It is not lost.
* undelivered: in the log after the next start, and no unit leads a consumer to it. Counted per queue: a message of two
  light queues can be delivered by one of them only.

Messages count one by one, also those of an inner batch. Fillers, entries of DLedger without a message and records that
no broker dispatches (prepared, rolled back) are no messages. A record that the service of its system topic cannot
process, such as a delayed message that names no topic, lists a message that is lost.

Source: MappedFileQueue#deleteExpiredFileByOffset and IndexService#deleteExpiredFile keep the last file (4.9.7 to 5.5.1)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from rmqstore.checks.log.commitlog import framed_records, is_framed
from rmqstore.checks.log.queue_parts import QueuePart, place_of
from rmqstore.checks.log.records_elsewhere import records_elsewhere
from rmqstore.checks.log.witnesses import END, FILES_AFTER
from rmqstore.checks.parts import kept_by_compaction, reached_by_services
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.account import EXPIRED, GONE, NEW, Account, QueueAccount
from rmqstore.checks.progress import ConsumerProgress
from rmqstore.checks.room import open_queues, room, units_gone
from rmqstore.files.mapped_file_queue import MAX_RECORD
from rmqstore.formats.consumequeue import QueueName, split_queue_label
from rmqstore.formats.message import MIN_SIZE
from rmqstore.formats.properties import is_lmq
from rmqstore.formats.ranges import Ranges

if TYPE_CHECKING:
    from rmqstore.brokers.forecast import StartForecast
    from rmqstore.checks.log.logs import Logs
    from rmqstore.checks.queues.undelivered import Left
    from rmqstore.checks.queues.wrong_names import WrongNames
    from rmqstore.checks.verified import Verified
    from rmqstore.files.store import Store


def of_records(part: QueuePart) -> Ranges:
    """Return the queue offsets that the records of a queue have; after a restart, those of its present life."""
    gaps = ((gap.expected, gap.got) for gap in part.gaps if gap.before >= max(part.restarts, default=-1))
    return Ranges.span(0 if part.restarts else part.first, part.next) - Ranges.of(gaps) if part.messages else Ranges()


def _of_log(logs: Logs) -> dict[QueueName, Ranges]:
    """Return the queue offsets of all records of the log, with fillers."""
    out = {name: of_records(part) for name, part in logs.queues.items()}
    wrong = (*logs.misfiled.units, *records_elsewhere(logs).values())  # headers of records name another place
    for topic, queue_id, number in wrong:
        name = topic, queue_id
        out[name] = out.get(name, Ranges()) | Ranges.span(number, number + 1)
    batches: dict[QueueName, list[tuple[int, int]]] = {}
    for result in logs.results:
        for name, rows in result.batches.items():
            batches.setdefault(name, []).extend((row.base, row.base + row.count) for row in rows)
    for name, spans in batches.items():
        out[name] = out.get(name, Ranges()) | Ranges.of(spans)
    for name, whole in logs.witnesses.whole.items():
        out[name] = out.get(name, Ranges()) | Ranges.points(number for number, _ in whole)
    return out


def _fillers(store: Store, logs: Logs) -> dict[QueueName, Ranges]:
    """Return the queue offsets of the fillers that earlier repairs wrote, by queue."""
    repaired = store.files.planned is not None or store.files.has_entry(store.journal_directory)
    if not (repaired or any(result.fillers for result in logs.results)):
        return {}
    from rmqstore.checks.filler_notes import filler_offsets

    found = (logs.record(at, MAX_RECORD) for at in filler_offsets(store, logs))
    return by_queue(map(place_of, filter(None, found)))


def by_queue(places: Iterable[tuple[QueueName, int, int]]) -> dict[QueueName, Ranges]:
    """Return queue offsets by queue, from intervals in any order."""
    out: dict[QueueName, list[tuple[int, int]]] = {}
    for name, start, stop in places:
        out.setdefault(name, []).append((start, stop))
    return {name: Ranges.of(parts) for name, parts in out.items()}


def _listed(logs: Logs, records: Mapping[QueueName, Ranges]) -> dict[QueueName, Ranges]:
    """Return the queue offsets that units, rows, fillers and gaps between records name, of queues of the log."""
    units: dict[QueueName, Ranges] = {}
    old = logs.witnesses.of_another_life()
    for directory, spans in logs.witnesses.listed.items():
        name = logs.pointing.queue_in(directory)
        if name is not None and not is_lmq(name[0]):
            units[name] = Ranges.of(spans) - old.get(directory, Ranges())
    out = {}
    if logs.foreign_from is not None or logs.pointing.foreign:
        return dict(records)  # units and gaps tell of two logs
    for name in records.keys() | units.keys():
        # a filler is the witness of its message
        part, listed = logs.queues.get(name), records.get(name, Ranges()) | units.get(name, Ranges())
        # a record alone may be one of another queue, with a wrong header
        if part is not None and (part.messages > 1 or part.accounted) and part.messages and not is_lmq(name[0]):
            listed |= Ranges.of(_gaps(logs, part))
        out[name] = listed
    return out


def _gaps(logs: Logs, part: QueuePart) -> Iterable[tuple[int, int]]:
    """Yield the queue offsets that records of a queue leave out, if there was room for so many messages.

    If nothing is damaged there, and the units go on with the next records, QUEUEOFFSET of these is wrong: no message is
    missing.
    """
    restart = max(part.restarts, default=-1)
    go_on = {(shifted.start, shifted.start - shifted.by) for shifted in part.shifted}
    for gap in part.gaps:
        only_headers = (gap.expected, gap.got) in go_on and not logs.loses_between(gap.before, gap.at)
        if gap.before >= restart and gap.got - gap.expected <= (gap.at - gap.before) // MIN_SIZE and not only_headers:
            yield gap.expected, gap.got
    room = part.first_at // MIN_SIZE
    if logs.min_offset == 0 and not part.restarts and part.first <= room and logs.bad_between(0, part.first_at):
        yield 0, part.first


@dataclass(slots=True)
class _Headers:
    """What headers of damaged records list: places of queues.

    `right`: the log offsets of the records. `wrong`: of those whose place their queue does not leave open, because of a
    wrong bit.
    """

    places: dict[QueueName, Ranges] = field(default_factory=dict)
    right: list[int] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)


def _without_units(
    store: Store, verified: Verified, found: Mapping[QueueName, Ranges], listed: Mapping[QueueName, Ranges]
) -> tuple[dict[QueueName, Ranges], int, _Headers]:
    """Return the places that only headers of damaged records, and the progress of consumers and services, list.

    Return also how many of these messages were after the end of the log, and what the headers list.

    A consumer has read the last messages of its queue, which were in damage after the others, or after the end of the
    log. Garbage in its progress is more than there was room for. So has POP, a transaction, or the timer.
    """
    logs = verified.logs
    out: dict[QueueName, Ranges] = {}
    headers = _Headers()
    whole = {at for rows in logs.witnesses.whole.values() for _, at in rows}
    for name, number, at in _headers(logs):
        part, here = logs.queues.get(name), found.get(name, Ranges())
        is_open = part is not None and bool(part.messages) and _leaves_open(part, number, at)
        if number not in here and (is_open or number in listed.get(name, Ranges())):
            out[name] = out.get(name, Ranges()) | Ranges.span(number, number + 1)
            headers.right.append(at)
        elif at not in whole:
            headers.wrong.append(at)
    headers.places = dict(out)
    read, after_end = _read_further(store, verified, listed)
    for name, numbers in read.items():
        out[name] = out.get(name, Ranges()) | numbers
    return out, after_end, headers


def _read_further(
    store: Store, verified: Verified, listed: Mapping[QueueName, Ranges]
) -> tuple[dict[QueueName, Ranges], int]:
    """Return the places after the last known ones of queues without units that consumers and services have reached.

    Return also how many of these messages were after the end of the log, because nothing before it has room for them.
    """
    logs, after_end = verified.logs, 0
    out: dict[QueueName, Ranges] = {}
    spans = [span for span in logs.witnesses.outside.parts if span[0] < logs.wrote]
    after = FILES_AFTER * logs.results[-1].queue.file_size if units_gone(verified) and logs.results else 0
    is_sure = {name for name, part in logs.queues.items() if not (part.repeats or part.outliers)}
    names = set(open_queues(logs, logs.wrote + after)) & is_sure if logs.results else set()
    gone = after and logs.witnesses.begin == 0 and logs.topics  # every message that was ever sent should be there
    if not (names or gone):
        return out, 0
    progress, services = ConsumerProgress(store), reached_by_services(store, logs)
    if gone:
        known = {*progress.names(), *services} - logs.queues.keys()
        names |= {name for name in known if name[0] in gone and (name not in listed or name in logs.witnesses.cut)}
    repeats = {(topic, number) for (topic, _), part in logs.queues.items() for _, number in part.repeats}
    repeats |= {(topic, one.got) for (topic, _), part in logs.queues.items() for one in part.outliers}
    for name in names:
        part, reached = logs.queues.get(name), max(progress.furthest(*name), services.get(name, 0))
        end, last_at = (part.next, part.last_at) if part is not None and part.messages else (0, 0)
        start = max(end, listed[name].stop if listed.get(name) else 0)
        inside = sum(max(0, stop - max(low, last_at)) for low, stop in spans) // (MIN_SIZE + 1)
        if start < reached <= end + inside + after // (MIN_SIZE + 1):
            read = Ranges.span(start, reached)
            if not any(topic == name[0] and number in read for topic, number in repeats):
                out[name] = read
                after_end += max(0, len(read - _alone(logs, name)) - inside)
    return out, after_end


def _alone(logs: Logs, name: QueueName) -> Ranges:
    """Return the queue offsets of records that are alone in a queue: it may be this one, with a wrong topic."""
    others = logs.queues.items()
    return Ranges.points(part.first for (_, number), part in others if number == name[1] and part.messages == 1)


def _headers(logs: Logs) -> Iterable[tuple[QueueName, int, int]]:
    """Yield queue, queue offset and log offset of damaged records with valid framing, by their headers."""
    for log in logs.results:
        for run in log.tiling:
            if not is_framed(run):
                continue
            for at, message in framed_records(log, run.start, run.stop):
                if message.is_dispatched:
                    yield (message.topic_text, message.queue_id), message.queue_offset, at + log.body_offset


def _leaves_open(part: QueuePart, number: int, at: int) -> bool:
    """Return whether the good messages of a queue leave a queue offset open at an offset of the log."""
    if number >= part.next:
        return at > part.last_at and number - part.next <= (at - part.last_at) // MIN_SIZE
    return number < part.first and at < part.first_at


def kept_by(base: Account, forecast: StartForecast, names: WrongNames | None) -> dict[QueueName, Ranges]:
    """Return the messages of each queue that are in the log after a start."""
    kept = {name: one.in_log for name, one in base.queues.items()}
    cut = names.of(forecast).cut if names is not None else {}
    for name, count in (forecast.lost_by_queue if forecast.starts else {}).items():
        here = kept.get(name, Ranges())
        kept[name] = here - cut[name] if name in cut else here.without_last(count)
    return kept


def at_start(base: Account, forecast: StartForecast, kept: Mapping[QueueName, Ranges], left: Left) -> Account:
    """Return an account with the next start; `kept`: the messages that it leaves in the log, `left`: undelivered."""
    gone, hidden = left.gone, left.hidden
    queues = dict(base.queues)
    for name in forecast.lost_by_queue.keys() | gone.places.keys() | gone.records.keys() | hidden.places.keys():
        one, here = queues.get(name, QueueAccount()), kept.get(name, Ranges())
        served = here - gone.places.get(name, Ranges()) - hidden.places.get(name, Ranges())
        queues[name] = replace(one, kept=here, served=served, more=gone.records.get(name, {}))
    return replace(
        base,
        queues=queues,
        lost_at_next_start=forecast.messages_lost if forecast.starts else 0,
        undelivered=gone.all + hidden.all,
    )


def account(store: Store, verified: Verified) -> Account:
    """Return the account of a store as it is, by what its checks found; `at_start` adds what a start does.

    It reads fillers again, and index entries before the begin of the log.
    """
    logs = verified.logs
    records, fillers = _of_log(logs), _fillers(store, logs)
    none = dict(fillers)
    for result in logs.results:
        for name, numbers in result.unserved.items():
            none[name] = none.get(name, Ranges()) | numbers
    found = {name: numbers - none.get(name, Ranges()) for name, numbers in records.items()}
    listed = _listed(logs, records)
    for label, state in verified.alone.items():
        listed[split_queue_label(label)] = Ranges.span(state.min, state.max)
    read, headers = 0, _Headers()
    if units_gone(verified) or logs.witnesses.unnamed_from(logs.wrote):
        without, read, headers = _without_units(store, verified, found, listed)
        for name, more in without.items():
            listed[name] = listed.get(name, Ranges()) | more
    moved = logs.pointing.queue_in
    expired = ((moved(row), Ranges.of(spans)) for row, spans in logs.witnesses.before.items())
    before = {name: numbers for name, numbers in expired if name is not None}
    into_foreign = ((moved(row), Ranges.of(spans)) for row, spans in logs.witnesses.replaced.items())
    replaced = {name: numbers for name, numbers in into_foreign if name is not None and not is_lmq(name[0])}
    compacted = {name: kept - found.get(name, Ranges()) for name, kept in kept_by_compaction(store).items()}
    queues = {}
    for name in found.keys() | listed.keys() | before.keys() | replaced.keys():
        here, part = found.get(name, Ranges()), logs.queues.get(name)
        begin = part.first if part is not None and part.messages else 0
        filled = records.get(name, Ranges()) & fillers.get(name, Ranges()) if not is_lmq(name[0]) else Ranges()
        old = before.get(name, Ranges()) - here - compacted.get(name, Ranges())
        of_another = replaced.get(name, Ranges())
        queues[name] = QueueAccount(here, here, listed.get(name, here), here, begin, old, filled, of_another)
    placed = sum(len(one.lost_already) for name, one in queues.items() if not is_lmq(name[0]))
    known = _of_units(logs)
    for name, numbers in headers.places.items():
        known[name] = known.get(name, Ranges()) | numbers
    no_units = {name: one.lost_already - one.replaced - known.get(name, Ranges()) for name, one in queues.items()}
    floating = {name: numbers for name, numbers in no_units.items() if numbers and not is_lmq(name[0])}
    logs.witnesses.add_records(headers.right, headers.wrong)
    unnamed = logs.witnesses.unnamed
    if logs.witnesses.stale and not units_gone(verified):  # a broker removed them, and their units, before
        unnamed = unnamed[unnamed < logs.witnesses.tail]
    # a place that only a gap shows may be that of a message which only the index shows
    only_indexed = len(unnamed) - _matched(_intervals(logs, floating), unnamed.tolist() if floating else ())
    unplaced = only_indexed + (0 if placed else _of_no_log(verified))
    after_end = sum(len(units.number) for units in logs.witnesses.after) + logs.witnesses.unnamed_from(logs.wrote)
    count = sum(map(len, floating.values()))
    beyond = room(store, verified, count, only_indexed, after_end + read)
    unplaced += beyond.least
    gone_before, unread = _gone(store, verified, queues, sum(map(len, compacted.values())))
    return Account(
        queues=queues,
        unplaced=unplaced,
        floating=count,
        gone_before_begin=gone_before,
        unread_gone=unread,
        begin=_why_it_begins(verified),
        begin_at=logs.witnesses.begin,
        room=beyond.why,
    )


def _of_units(logs: Logs) -> dict[QueueName, Ranges]:
    """Return the queue offsets that have a unit outside of the records of the log."""
    out: dict[QueueName, Ranges] = {}
    for directory, spans in logs.witnesses.listed.items():
        if (name := logs.pointing.queue_in(directory)) is not None:
            filled = Ranges.of(logs.witnesses.filled.get(directory, ()))
            out[name] = out.get(name, Ranges()) | (Ranges.of(spans) - filled)
    return out


def _intervals(logs: Logs, numbers: Mapping[QueueName, Ranges]) -> list[tuple[int, int, int]]:
    """Return between which log offsets the messages at places without a unit were, and how many, by their queues."""
    out = []
    for name, ranges in numbers.items():
        part, count = logs.queues.get(name), len(ranges)
        if part is not None and part.messages and not (part.outliers or part.repeats or part.restarts):
            gaps = [(gap.expected, gap.got, gap.before, gap.at) for gap in part.gaps]
            for a, b, low, high in ((0, part.first, -1, part.first_at), *gaps, (part.next, END, part.last_at, END)):
                if inside := len(ranges.clip(a, b)):
                    out.append((low, high, inside))
                    count -= inside
        if count:
            out.append((-1, END, count))
    return out


def _matched(intervals: list[tuple[int, int, int]], offsets: Iterable[int]) -> int:
    """Return how many of these log offsets, in order, can be those of messages that are only known by an interval."""
    waiting = sorted(intervals, reverse=True)
    open_ones: list[tuple[int, int]] = []  # a heap of end and count: an offset takes the interval that ends first
    matched = 0
    for offset in offsets:
        while waiting and waiting[-1][0] < offset:
            _, high, count = waiting.pop()
            heappush(open_ones, (high, count))
        while open_ones and open_ones[0][0] <= offset:
            heappop(open_ones)
        if open_ones:
            high, count = heappop(open_ones)
            if count > 1:
                heappush(open_ones, (high, count - 1))
            matched += 1
    return matched


def _of_no_log(verified: Verified) -> int:
    """Return how many messages the queues of a store list whose log has no file."""
    found = (f for f in verified.report.findings.listed if f.code == codes.CL_NO_MESSAGES)
    return sum(int(finding.facts["units"] or 0) for finding in found)


def _why_it_begins(verified: Verified) -> str:
    if verified.logs.witnesses.begin == 0:
        return NEW
    return GONE if verified.too_young else EXPIRED


def _gone(
    store: Store, verified: Verified, queues: Mapping[QueueName, QueueAccount], compacted: int
) -> tuple[int, dict[str, int]]:
    """Return how many messages before the log are listed, and how many of them each group had not read.

    `compacted`: how many compaction keeps. They have index entries, because each has a key.
    """
    begin = verified.logs.witnesses.begin
    own = {name: one.before for name, one in queues.items() if one.before and not is_lmq(name[0])}
    by_units = sum(map(len, own.values()))
    by_index = verified.index.count_before(begin) - compacted if verified.index is not None and begin else 0
    unread: Counter[str] = Counter()
    if own:
        from rmqstore.checks.beside.config import ConsumerOffsets

        offsets = ConsumerOffsets.read(store)
        for (topic, queue_id), numbers in own.items():
            for one in offsets.of(topic, queue_id):
                unread[one.group] += len(numbers.clip(max(0, one.offset), numbers.stop))
    return max(by_units, by_index), {group: count for group, count in unread.items() if count}
