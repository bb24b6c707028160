"""The account of the messages of a store: which are in the log, stay in it, are listed anywhere, and reach a consumer.

Every number of messages that are lost, will be lost or are not delivered comes from here. Messages are counted by their
places, so that two witnesses of one message count once:

* lost already: listed by a witness, and not in the log. A witness is a unit, a row, a gap between the queue offsets of
  records, an index entry, or an entry of DLedger's index. Before the begin of the log there is only a note, because
  brokers delete whole log files in normal operation, and keep the last file of each queue and of the index.
* lost at the next start: in the log, and deleted by it.
* kept by compaction: not in the log any more, but consumers of the topic get it from compaction/. It is not lost.
* undelivered: in the log after the next start, and no unit leads a consumer to it. Counted per queue: a message of two
  light queues can be delivered by one of them only.

Messages count one by one, also those of an inner batch. Fillers, entries of DLedger without a message and records that
no broker dispatches (prepared, rolled back) are no messages.

Source: MappedFileQueue#deleteExpiredFileByOffset and IndexService#deleteExpiredFile keep the last file (4.9.7 to 5.5.1)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rmqstore.checks.log.queue_parts import QueuePart
from rmqstore.checks.parts import kept_by_compaction
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.account import EXPIRED, GONE, NEW, Account, QueueAccount
from rmqstore.files.mapped_file_queue import MAX_RECORD
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.message import MIN_SIZE
from rmqstore.formats.properties import is_lmq
from rmqstore.formats.ranges import Ranges
from rmqstore.scan.tiling import Kind

if TYPE_CHECKING:
    from rmqstore.brokers.forecast import StartForecast
    from rmqstore.checks.log.logs import Logs
    from rmqstore.checks.queues.undelivered import Undelivered
    from rmqstore.checks.verified import Verified
    from rmqstore.files.store import Store

_UNITS_GONE = (
    codes.CQ_MISSING_UNIT,
    codes.CQ_MISSING_QUEUE,
    codes.CQ_MISSING_FILE,
    codes.CQ_PARTLY_REBUILT,
    codes.CQ_ROCKSDB,
    codes.BCQ_MISSING_UNIT,
)
"""Problems with which messages may have been lost that no unit lists any more."""


def of_records(part: QueuePart) -> Ranges:
    """Return the queue offsets that the records of a queue have; after a restart, those of its present life."""
    gaps = ((gap.expected, gap.got) for gap in part.gaps if gap.before >= max(part.restarts, default=-1))
    return Ranges.span(0 if part.restarts else part.first, part.next) - Ranges.of(gaps) if part.messages else Ranges()


def in_log(store: Store, logs: Logs) -> dict[QueueName, Ranges]:
    """Return the queue offsets of all messages of the log, without fillers."""
    out = {name: of_records(part) for name, part in logs.queues.items()}
    for topic, queue_id, number in logs.misfiled.units:  # the unit is right, and the header of the record is wrong
        name = topic, queue_id
        out[name] = out.get(name, Ranges()) | Ranges.span(number, number + 1)
    batches: dict[QueueName, list[tuple[int, int]]] = {}
    for result in logs.results:
        for name, rows in result.batches.items():
            batches.setdefault(name, []).extend((row.base, row.base + row.count) for row in rows)
    for name, spans in batches.items():
        out[name] = out.get(name, Ranges()) | Ranges.of(spans)
    for name, numbers in _fillers(store, logs).items():
        out[name] = out.get(name, Ranges()) - Ranges.points(numbers)
    return out


def _fillers(store: Store, logs: Logs) -> dict[QueueName, list[int]]:
    """Return the queue offsets of the fillers that earlier repairs wrote, by queue."""
    if not any(result.fillers for result in logs.results) and not store.files.has_entry(store.journal_directory):
        return {}
    from rmqstore.checks.filler_notes import filler_offsets

    out: dict[QueueName, list[int]] = {}
    for at in filler_offsets(store, logs):
        message = logs.record(at, MAX_RECORD)
        if message is not None:
            out.setdefault((message.topic_text, message.queue_id), []).append(message.queue_offset)
    return out


def _listed(logs: Logs, found: Mapping[QueueName, Ranges]) -> dict[QueueName, Ranges]:
    """Return the queue offsets that units, rows, fillers and gaps between records name, of queues of the log."""
    units: dict[QueueName, Ranges] = {}
    for directory, spans in logs.witnesses.listed.items():
        name = logs.pointing.queue_in(directory)
        if name is not None and not is_lmq(name[0]):
            units[name] = Ranges.of(spans)
    out = {}
    if logs.foreign_from is not None or logs.pointing.foreign:
        return dict(found)  # units and gaps tell of two logs
    for name in found.keys() | units.keys():
        part, listed = logs.queues.get(name), found.get(name, Ranges()) | units.get(name, Ranges())
        if part is not None and part.messages and not is_lmq(name[0]):
            if (
                part.messages > 1 or part.accounted
            ):  # otherwise it may be a record of another queue, with a wrong header
                listed |= Ranges.of(_gaps(logs, part))
            listed |= of_records(part)  # a filler is the witness of its message
        out[name] = listed
    return out


def _gaps(logs: Logs, part: QueuePart) -> Iterable[tuple[int, int]]:
    """Yield the queue offsets that records of a queue leave out, if there was room for so many messages."""
    restart = max(part.restarts, default=-1)
    for gap in part.gaps:
        if gap.before >= restart and gap.got - gap.expected <= (gap.at - gap.before) // MIN_SIZE:
            yield gap.expected, gap.got
    room = part.first_at // MIN_SIZE
    if logs.min_offset == 0 and not part.restarts and part.first <= room and logs.bad_between(0, part.first_at):
        yield 0, part.first


def at_start(base: Account, forecast: StartForecast, gone: Undelivered) -> Account:
    """Return an account with the next start; `gone`: what it leaves in the log without delivering it."""
    lost = forecast.lost_by_queue if forecast.starts else {}
    queues = dict(base.queues)
    for name in lost.keys() | gone.places.keys():
        one = queues.get(name, QueueAccount())
        kept = one.in_log.without_last(lost.get(name, 0))
        queues[name] = replace(one, kept=kept, served=kept - gone.places.get(name, Ranges()))
    return replace(
        base,
        queues=queues,
        lost_at_next_start=forecast.messages_lost if forecast.starts else 0,
        undelivered=sum(map(len, gone.places.values())),
    )


def account(store: Store, verified: Verified) -> Account:
    """Return the account of a store as it is, by what its checks found; `at_start` adds what a start does.

    It reads fillers again, and index entries before the begin of the log.
    """
    logs = verified.logs
    found = in_log(store, logs)
    listed = _listed(logs, found)
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
        filled = of_records(part) - here if part is not None and not is_lmq(name[0]) else Ranges()
        old = before.get(name, Ranges()) - here - compacted.get(name, Ranges())
        of_another = replaced.get(name, Ranges())
        queues[name] = QueueAccount(here, here, listed.get(name, here), here, begin, old, filled, of_another)
    placed = sum(len(one.lost_already) for name, one in queues.items() if not is_lmq(name[0]))
    # a place that only a gap shows may be that of a message which only the index shows
    unplaced = max(0, logs.witnesses.unnamed - max(0, placed - int(logs.witnesses.named.sum())))
    unplaced += 0 if placed else _of_no_log(verified)
    gone_before, unread = _gone(store, verified, queues, sum(map(len, compacted.values())))
    return Account(
        queues=queues,
        unplaced=unplaced,
        gone_before_begin=gone_before,
        unread_gone=unread,
        begin=_why_it_begins(verified),
        begin_at=logs.min_offset,
        at_least=_had_room(verified, placed + unplaced),
    )


def _of_no_log(verified: Verified) -> int:
    """Return how many messages the queues of a store list whose log has no file."""
    found = (f for f in verified.report.findings.listed if f.code == codes.CL_NO_MESSAGES)
    return sum(int(finding.facts["units"] or 0) for finding in found)


def _had_room(verified: Verified, lost: int) -> bool:
    """Return whether lost messages may be listed nowhere: bytes of the log are damaged or missing, and units are too.

    Of what a file of another log replaced, only units tell. Units of the last messages are missing after a kill, too;
    that matters only if some of the last are lost.
    """
    logs, counts = verified.logs, verified.report.findings.counts
    damaged = any(run.kind in (Kind.DIRTY, Kind.HOLE) for result in logs.results for run in result.tiling)
    ends = ((logs.queues.get(name), spans) for name, spans in logs.witnesses.listed.items())
    at_end = any(part is None or spans[-1][1] > part.next for part, spans in ends)
    after_end = lost and logs.lag_is_normal and at_end
    units_gone = any(counts.get(code) for code in _UNITS_GONE) or verified.damaged_rows
    return bool((damaged or lost) and units_gone) or bool(after_end) or logs.foreign_from is not None


def _why_it_begins(verified: Verified) -> str:
    if verified.logs.min_offset == 0:
        return NEW
    return GONE if verified.too_young else EXPIRED


def _gone(
    store: Store, verified: Verified, queues: Mapping[QueueName, QueueAccount], compacted: int
) -> tuple[int, dict[str, int]]:
    """Return how many messages before the log are listed, and how many of them each group had not read.

    `compacted`: how many compaction keeps. They have index entries, because each has a key.
    """
    begin = verified.logs.min_offset
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
