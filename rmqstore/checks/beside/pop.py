"""POP-BEYOND, RDB-POP-BEYOND: POP's marks that name messages which their queue does not have; RDB-POP-ROW.

POP-BEYOND is about check points and acknowledgements. A check point is a message in the revive log, or in the timer on
its way there. Those that the broker has processed, and those before a queue's minimum (their messages have expired),
are not a problem; nor are those of topics without queues: the broker skips them (PopReviveService#mergeAndRevive,
RocketMQ 5.4.0).

RDB-POP-BEYOND is about rows of kvStore/, RDB-POP-ROW about rows there that cannot be parsed, or whose keys do not fit
their values. A row is a message that a POP consumer has received and not acknowledged.
Source: PopConsumerService#revive and #run, PopConsumerRocksdbStore#scanExpiredRecords (RocketMQ 5.5.1)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rmqstore.checks.beside.config import ConsumerOffsets
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings, QueueRange, QueueState, Report
from rmqstore.files.mapped_file_queue import message_at
from rmqstore.files.rocksdb.database import CannotRead, is_readable, missing_extra
from rmqstore.files.rocksdb.queues import RocksDBQueues
from rmqstore.files.rocksdb.rows import pop_rows
from rmqstore.files.store import Store
from rmqstore.formats import pop
from rmqstore.formats.consumequeue import UNIT, QueueName, split_queue_label
from rmqstore.formats.javatext import parse_long
from rmqstore.formats.pop import KV_DIRECTORY
from rmqstore.formats.properties import REAL_TOPIC, TAGS, TIMER_OUT_MS, TIMER_TOPIC, parse_properties, tags_code
from rmqstore.formats.times import iso_utc
from rmqstore.texts import Text


def check_pop_rows(store: Store, report: Report, queue_range: QueueRange | None) -> int:
    """Compare the rows of kvStore/ with the ends of their queues; `queue_range` None: do not compare.

    Return the number of rows: messages that POP consumers received, and did not acknowledge. Rows before a queue's
    minimum are not a problem: their messages have expired, and the broker drops them.
    Errors: none; see `unchecked` of the report.
    """
    if not is_readable():
        report.unchecked.append(
            Text(
                "{kv_directory}/: messages that POP consumers received are not checked: that {missing_extra}",
                kv_directory=KV_DIRECTORY,
                missing_extra=missing_extra(),
            )
        )
        return 0
    beyond: Counter[QueueName] = Counter()
    other = count = 0
    try:
        for _, _, row in pop_rows(store):
            count += 1
            if row is None:
                other += 1
            elif queue_range is not None:
                bounds = queue_range(row.topic, row.queue_id)
                if bounds is not None and row.queue_offset >= bounds[1]:
                    beyond[row.topic, row.queue_id] += 1
    except CannotRead as e:
        report.unchecked.append(
            Text("{kv_directory}/: this RocksDB cannot be read: {e}", kv_directory=KV_DIRECTORY, e=e)
        )
        return count
    if other and not report.live:
        report.findings.add(Finding(codes.RDB_POP_ROW, KV_DIRECTORY, facts={"rows": other}))
    for (topic, queue_id), rows in sorted(beyond.items()) if not report.live else ():
        facts: dict[str, Fact] = {"topic": topic, "queue_id": queue_id, "rows": rows}
        report.findings.add(Finding(codes.RDB_POP_BEYOND, f"{topic}/{queue_id}", KV_DIRECTORY, facts=facts))
    return count


_NEWEST = 20_000  # messages of a queue
_TAGS = (pop.CHECK_POINT_TAG, pop.ACK_TAG, pop.BATCH_ACK_TAG)
_CODES = frozenset(map(tags_code, _TAGS))


@dataclass(slots=True)
class _Beyond:
    """What points after the end of one queue. `until`: when the last check point is due, in ms."""

    check_points: set[pop.PopKey] = field(default_factory=set)
    acknowledgements: set[tuple[pop.PopKey, int]] = field(default_factory=set)
    until: int = 0


@dataclass(slots=True)
class _Received:
    """What the check points that the broker has not processed, and their acknowledgements, name."""

    offsets: dict[pop.PopKey, set[int]] = field(default_factory=dict)
    acknowledged: dict[pop.PopKey, set[int]] = field(default_factory=dict)
    beyond: dict[QueueName, _Beyond] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReviveFacts:
    """Messages that POP consumers received and did not acknowledge, by the revive log.

    `in_timer`: check points and acknowledgements that wait in the timer, as timed messages do.
    """

    not_acknowledged: int = 0
    in_timer: int = 0


def check_revive_log(
    store: Store,
    states: Mapping[str, QueueState],
    queue_range: QueueRange | None,
    latest: int,
    findings: Findings,
) -> ReviveFacts:
    """Read the newest check points that the broker has not processed; compare them with the ends of their queues.

    `states`: all queues, by name ("TOPIC/ID"). `queue_range` None: do not compare. `latest`: the store time of the last
    message, in ms: what was due before it has left the timer.
    """
    if queue_range is None:
        return ReviveFacts()
    revive = sorted(label for label in states if label.startswith(pop.REVIVE_TOPIC))
    offsets = ConsumerOffsets.read(store)
    processed = {(o.topic, o.queue_id): o.offset for o in offsets.rows() if o.group == pop.REVIVE_GROUP}
    received, in_timer = _Received(), 0
    try:
        for label in [*revive, f"{TIMER_TOPIC}/0"]:
            topic, queue_id = split_queue_label(label)
            state = states.get(label)
            if state is None:
                continue
            low = max(state.min, state.max - _NEWEST, processed.get((topic, queue_id), -1) + 1)
            for known, body in _messages(store, topic, queue_id, range(low, state.max)):
                if topic == TIMER_TOPIC:
                    if (parse_long(known.get(TIMER_OUT_MS, "")) or 0) <= latest:
                        continue
                    in_timer += 1
                _add(received, queue_range, known[TAGS], body, in_timer=topic == TIMER_TOPIC)
    except CannotRead:
        return ReviveFacts()  # RDB-* and CQ-ROCKSDB* say so
    for (topic, queue_id), beyond in sorted(received.beyond.items()):
        facts: dict[str, Fact] = {"topic": topic, "queue_id": queue_id, "check_points": len(beyond.check_points)}
        facts |= {"acknowledgements": len(beyond.acknowledgements)}
        facts |= {"until": iso_utc(beyond.until)} if beyond.until else {}
        findings.add(Finding(codes.POP_BEYOND, f"{topic}/{queue_id}", "", facts=facts))
    return ReviveFacts(
        sum(len(offsets - received.acknowledged.get(key, set())) for key, offsets in received.offsets.items()), in_timer
    )


def _add(received: _Received, queue_range: QueueRange, tag: str, body: bytes, *, in_timer: bool) -> None:
    point = pop.parse_check_point(body) if tag == pop.CHECK_POINT_TAG else None
    acknowledgement = None if point is not None else pop.parse_acknowledgement(body)
    if point is not None:
        key, offsets = point.key, set(point.offsets) - point.acknowledged
        received.offsets.setdefault(key, set()).update(offsets)
    elif acknowledgement is not None:
        key, offsets = acknowledgement.key, set(acknowledgement.offsets)
        received.acknowledged.setdefault(key, set()).update(offsets)
    else:
        return
    bounds = queue_range(key.topic, key.queue_id)
    beyond = set() if bounds is None else {offset for offset in offsets if offset >= bounds[1]}
    if not beyond or (point is None and in_timer):
        return
    one = received.beyond.setdefault((key.topic, key.queue_id), _Beyond())
    if point is not None:
        one.check_points.add(key)
        one.until = max(one.until, point.visible_time)
    else:
        one.acknowledgements |= {(key, offset) for offset in beyond}


def _messages(store: Store, topic: str, queue_id: int, queue_offsets: range) -> Iterator[tuple[dict[str, str], bytes]]:
    """Yield properties and body of the check points and acknowledgements in a queue. Errors: CannotRead."""
    rows = RocksDBQueues(store) if store.reads_rows(topic) else None
    queue = rows.queue(topic, queue_id) if rows is not None else store.consume_queue(topic, queue_id).queue
    for number in queue_offsets:
        unit = queue.unit(UNIT, number)
        if unit is None or unit["tags_code"] not in _CODES:
            continue
        at = int(unit["commitlog_offset"])
        message = next((m for log, _ in store.logs if (m := message_at(log, at)) is not None), None)
        known = {} if message is None else parse_properties(message.properties)
        in_timer = topic == TIMER_TOPIC and not known.get(REAL_TOPIC, "").startswith(pop.REVIVE_TOPIC)
        if message is not None and not in_timer and known.get(TAGS) in _TAGS:
            yield known, bytes(message.body)
