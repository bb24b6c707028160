"""Messages that consumers would not get after the next start, though they stay in the log.

They have no consume queue unit then, a unit at a wrong queue offset, or a unit that the broker cannot read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqstore.brokers.forecast import StartForecast
from rmqstore.brokers.rules import BrokerRules
from rmqstore.checks.log.commitlog import Misfiled
from rmqstore.checks.log.queue_parts import QueuePart
from rmqstore.checks.log.records_elsewhere import records_elsewhere
from rmqstore.checks.log.witnesses import END
from rmqstore.checks.problems.problem import Area
from rmqstore.checks.problems.report import Findings, QueueState
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.formats.consumequeue import QueueName, split_queue_label
from rmqstore.formats.javatext import java_text
from rmqstore.formats.ranges import Ranges
from rmqstore.formats.text import many
from rmqstore.scan.columns import Columns
from rmqstore.scan.dispatch import QueueTable, message_counts
from rmqstore.scan.kernels import I64, consecutive
from rmqstore.scan.records import good_records
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
    from rmqstore.checks.log.logs import Logs
    from rmqstore.files.rocksdb.queues import RocksDBQueue, RocksDBQueues
    from rmqstore.files.store import Store

Interval = tuple[int, int]


class AllDispatched:
    """KnownUnits of a log whose messages all have their unit: dispatching them again changes nothing.

    Source: ConsumeQueue#putMessagePositionInfo leaves out what ends at or below maxPhysicOffset, RocketMQ 5.4.0
    """

    complete = True

    def known_units(self) -> Iterator[tuple[QueueName, I64, I64, I64]]:
        """Return no units."""
        return iter(())


def all_dispatched(
    parts: Mapping[QueueName, QueuePart], states: Mapping[str, QueueState], codes: Iterable[str]
) -> bool:
    """Return whether every message of the log has its unit, and recovery reads every queue up to its last unit.

    `states` are the queues that were compared, `codes` those of all findings.
    """
    found = [PROBLEMS[code] for code in codes]
    if not states or any(p.of_queues or p.area is Area.DIRECTORY or p.disturbs_queues for p in found):
        return False
    return not any(part.missing or part.shifted or part.restarts or part.outliers for part in parts.values())


@dataclass(slots=True)
class Undelivered:
    """The places of messages in the log that no consumer gets after the start, by queue.

    `records`: those without a place of their own (`RecordsElsewhere`). `dropped`: how many of the places have a unit
    that the start cuts, which the verdict names apart.
    """

    places: dict[QueueName, Ranges] = field(default_factory=dict)
    records: dict[QueueName, dict[int, int]] = field(default_factory=dict)
    dropped: Counter[QueueName] = field(default_factory=Counter)

    def add(self, name: QueueName, places: Ranges, dropped: int = 0) -> None:
        if places:
            self.places[name] = self.places.get(name, Ranges()) | places
        if dropped := min(dropped, len(places)):
            self.dropped[name] += dropped

    @property
    def messages(self) -> int:
        """The number of messages, without those whose unit is dropped."""
        return self.all - self.dropped.total()

    @property
    def all(self) -> int:
        """The number of all messages."""
        return sum(map(len, self.places.values())) + sum(map(len, self.records.values()))

    @property
    def queues(self) -> int:
        """The number of queues with such a message."""
        held = (name for name, places in self.places.items() if len(places) > self.dropped[name])
        return len({*held, *self.records})

    def text(self) -> str:
        return Text(
            "{messages} of {queues}", messages=many(self.messages, "message"), queues=many(self.queues, "queue")
        )


class Moved(NamedTuple):
    """The number of messages at wrong queue offsets, and of their queues."""

    messages: int = 0
    queues: int = 0

    def text(self) -> str:
        return Text(
            "{messages} of {queues}", messages=many(self.messages, "message"), queues=many(self.queues, "queue")
        )


@dataclass(frozen=True, slots=True)
class Left:
    """Messages that a start leaves in the log: `gone` for consumers, or `moved` to wrong queue offsets (a number).

    `hidden`: those in log files with wrong names, where no unit leads. `withheld` says which other messages the
    services of the broker do not deliver; "" for none.
    """

    gone: Undelivered = field(default_factory=Undelivered)
    moved: Moved = field(default_factory=Moved)
    hidden: Undelivered = field(default_factory=Undelivered)
    withheld: str = ""

    def is_nothing(self, forecast: StartForecast) -> bool:
        """Return whether the start removes no message, and delivers all messages of the log at their queue offsets."""
        nothing_left = not (self.gone.messages or self.moved.messages or self.hidden.messages or self.withheld)
        return forecast.starts and nothing_left and not forecast.messages_taken

    def sentence(self, forecast: StartForecast, damage: str = "") -> str:
        """Return the verdict. It says "lose nothing" only if consumers get all messages of the log undamaged.

        `damage` says what is damaged in the log; a start that leaves it as it is "cuts nothing".
        """
        if damage and self.is_nothing(forecast):
            return Placed("{damage}; {sentence}", damage=damage, sentence=forecast.sentence(damaged=True))
        then = []
        if forecast.messages_taken:
            if self.gone.messages:
                then.append(Text("leave {gone} without consume queue units: nobody gets them", gone=self.gone.text()))
        elif self.gone.messages:
            then.append(
                Text(
                    "never deliver {gone}, which would stay in the log without consume queue units",
                    gone=self.gone.text(),
                )
            )
        if self.moved.messages:
            then.append(Text("put {moved} at wrong queue offsets", moved=self.moved.text()))
        if self.withheld:
            then.append(Text("never deliver {withheld}", withheld=self.withheld))
        if not then:
            return forecast.sentence()
        acts = joined(then, ", and ")
        if forecast.messages_taken:
            return Text("{sentence}, and {acts}", sentence=forecast.sentence(), acts=acts)
        return Text(
            "RocketMQ {version} would start and {acts}{caveat}",
            version=forecast.version,
            acts=acts,
            caveat=forecast.caveat,
        )


def withheld_words(findings: Findings, rules: BrokerRules) -> str:
    """Return how many messages the services for timed and delayed messages do not deliver; "" for none.

    Services that the version does not have are left out.
    """
    serves = {Area.TIMER: rules.timer_wheel, Area.ROWS: rules.message_rows_limit_start}
    lacks = {area for area, there in serves.items() if not there}
    timed = delayed = 0
    limit = False
    for finding in findings.listed:
        row = finding.problem
        if not row.withholds or not (messages := int(finding.facts.get("messages") or 0)):
            continue
        if row.area in lacks:
            continue
        if row.area in (Area.TIMER, Area.ROWS):
            timed, limit = timed + messages, limit or row.withholds_at_most
        else:
            delayed += messages
    words = many(timed, "timed message")
    parts = [Text("up to {words}", words=words) if limit else words] if timed else []
    return joined(parts + ([many(delayed, "delayed message")] if delayed else []), " and ")


def left_unreadable(
    forecast: StartForecast,
    states: Mapping[str, QueueState],
    logs: Logs,
    kept: Mapping[QueueName, Ranges],
    *,
    other_units: bool = False,
) -> Left:
    """Return the messages that remain in the log after the start, but that consumers do not get.

    `states` are the queues that were compared with their units, `kept` the places of the messages that remain.
    `other_units`: the broker reads other units than those that were compared, and all of them are taken for good.
    """
    gone, moved = Undelivered(), []
    parts, elsewhere = logs.queues, logs.misfiled.offsets | records_elsewhere(logs).keys()
    if not forecast.starts or not forecast.consume_queues_simulated or not states:
        return Left()
    if sum(forecast.lost_by_queue.values()) != forecast.messages_lost:
        return Left()  # the queues of the lost messages are unknown
    for label, state in states.items():
        name = split_queue_label(label)
        end = forecast.queue_ends.get(name, (state.min, state.min))
        part, here = parts.get(name), kept.get(name, Ranges())
        if other_units:
            missing = here - Ranges.span(*end)
        elif part is None or part.restarts or name not in forecast.units_put:
            missing = here.clip(end[1], END)
        else:
            missing = here & _without_unit(part, end, forecast, name, logs.misfiled)
        if part is not None and part.wrong_sizes:
            missing |= (_unreadable(part, logs) & here.clip(*end)) - Ranges.of(forecast.units_put.get(name, ()))
        gone.add(name, missing, forecast.units_cut.get(name, 0))
        if part is not None and (records := _without_place(part, elsewhere, missing, end, forecast.commitlog_stop)):
            gone.records[name] = records
        if shifted := forecast.shifted(name):
            moved.append(shifted)
    return Left(gone, Moved(sum(moved), len(moved)))


def _unreadable(part: QueuePart, logs: Logs) -> Ranges:
    """Return the queue offsets of units from whose size no broker gets the message.

    A size that is too short ends within the message, and a long one can end after its file.
    Source: MappedFileQueue#findMappedFileByOffset, MappedFile#selectMappedBuffer (4.9.7 to 5.5.1)
    """
    ends = ((one, logs.file_start(one.offset) + logs.result_at(one.offset).queue.file_size) for one in part.wrong_sizes)
    return Ranges.points(
        one.queue_offset for one, stop in ends if one.size < one.expected or one.offset + one.size > stop
    )


def _without_place(
    part: QueuePart, elsewhere: Container[int], places: Ranges, end: Interval, stop: int | None
) -> dict[int, int]:
    """Return the log offsets and queue offsets of records of a queue that have neither a place of their own nor a unit.

    `places`: those that nobody gets. A place counts there for one record; it can be that of this one. `elsewhere`: log
    offsets of records that have their place in another queue.
    """
    out = {}
    for at, number in part.odd_records:
        lacking = [m for m in part.missing if m.start <= number < m.stop]
        own = any(m.first_at <= at <= m.last_at for m in lacking)
        if not own or at in elsewhere or (stop is not None and at >= stop):
            continue
        if number not in places or len(lacking) > 1 or not end[0] <= number < end[1]:
            out[at] = number
    return out


def left_in_light_queues(
    forecast: StartForecast,
    parts: Mapping[QueueName, QueuePart],
    light: Iterable[QueueName],
    log: MappedFileQueue,
    dispatched: int | None,
) -> Undelivered:
    """Count the messages without units in `light`, queues in a RocksDB beside files, which no start dispatches.

    A start dispatches from its first file on; after a clean exit, only messages after the `dispatched` ones.
    Source: CombineConsumeQueueStore#getDispatchFromPhyOffset, CommitLog#recoverNormally (RocketMQ 5.5.1)
    """
    out = Undelivered()
    begin = next((file.start for file in log.files if file.name == forecast.start_file), 0)
    if forecast.clean_exit and dispatched is not None:
        begin = max(begin, dispatched + 1)
    for name in light:
        part = parts.get(name)
        if part is not None and forecast.starts:
            restart = max(part.restarts, default=-1)
            lacking = ((m.start, m.stop) for m in part.missing if restart <= m.last_at and m.first_at < begin)
            out.add(name, Ranges.of(lacking))
    return out


def at_missing_rows(
    store: Store, parts: Mapping[QueueName, QueuePart], forecast: StartForecast, *, seen: bool, before: int
) -> Moved:
    """Count the messages that queue offsets without a row in RocksDB keep from consumers, who do not get past them.

    A start adds rows for messages only, so a queue offset that no message has gets none. `parts` are queues that are
    read from RocksDB; `seen`: the broker reads the rows that the store has now; `before`: the most messages before
    such a queue offset that consumers do not get, either.
    Source: DefaultMessageStore#getMessage. It sends the consumer back to queue offset 0 (RocksDBConsumeQueue
    #rollNextFile, RocketMQ 5.4.0), or throws a NullPointerException (RocksDBReusableIterator#next, 5.5.0 and 5.5.1).
    """
    from rmqstore.files.rocksdb.database import CannotRead
    from rmqstore.files.rocksdb.queues import RocksDBQueues

    counts: list[int] = []
    end = forecast.commitlog_stop
    low, high = forecast.not_dispatched or (0, 0)
    rows: RocksDBQueues | None = None
    for name, part in parts.items():
        restart = max(part.restarts, default=-1)
        gaps = [g for g in part.gaps if g.before >= restart and not low <= g.at < high and (end is None or g.at < end)]
        if not gaps:
            continue
        if seen and rows is None:
            try:
                rows = RocksDBQueues(store)
            except CannotRead:
                return Moved()  # the report says why the rows are not checked
        if rows is not None:
            queue = rows.queue(*name)
            while gaps and _has_rows(queue, gaps[0].expected, gaps[0].got):
                del gaps[0]
        if gaps:
            after = part.next - gaps[0].got - sum(gap.got - gap.expected for gap in gaps[1:])
            counts.append(after + min(before, gaps[0].expected - part.first))
    held = [count for count in counts if count > 0]
    return Moved(sum(held), len(held))


def _has_rows(queue: RocksDBQueue, start: int, stop: int) -> bool:
    """Return whether each queue offset in [start, stop) has a row; one that cannot be read counts as a row."""
    found = sum(len(units) for _, units, _ in queue.runs(start, stop))
    return found + queue.unreadable_in(start, stop) >= stop - start


def never_dispatched(log: MappedFileQueue, span: Interval, parts: Mapping[QueueName, QueuePart] | None) -> Undelivered:
    """Return the messages without units in a span of the log that no start dispatches. It reads the span again.

    `parts`: the queues according to the log; None: the broker has no unit of any message.
    """
    files = (file for file in log.files if file.stop > span[0] and file.start < span[1])
    chunks = chain.from_iterable(good_records(file, 0) for file in files)
    inside = (columns.take((columns.offset >= span[0]) & (columns.offset < span[1])) for columns in chunks)
    out = Undelivered()
    for name, places in queue_offsets(inside).items():
        part = None if parts is None else parts.get(name)
        lacking = Ranges.of((m.start, m.stop) for m in part.missing) if part is not None else Ranges()
        out.add(name, places if parts is None else places & lacking)
    return out


def queue_offsets(chunks: Iterable[Columns]) -> dict[QueueName, Ranges]:
    """Return the queue offsets of messages, by queue: several of an inner batch."""
    table, found = QueueTable(), dict[int, list[Interval]]()
    for columns in chunks:
        counts, numbers = message_counts(columns), table.of(columns)
        for number in np.unique(numbers[counts > 0]).tolist():
            own, rows = numbers == number, found.setdefault(number, [])
            single = np.sort(columns.queue_offset[own & (counts == 1)])
            rows.extend((int(single[a]), int(single[b - 1]) + 1) for a, b in consecutive(single))
            batches = np.flatnonzero(own & (counts > 1))
            base, size = columns.queue_offset[batches], counts[batches]
            rows.extend(zip(base.tolist(), (base + size).tolist(), strict=True))
    return {(java_text(table.topics[n]), table.queue_ids[n]): Ranges.of(rows) for n, rows in found.items()}


def _without_unit(
    part: QueuePart, end: Interval, forecast: StartForecast, name: QueueName, misfiled: Misfiled
) -> Ranges:
    """Return the messages of a queue without a unit between its ends: they get none, or it is cut.

    A message whose unit the start appends at a wrong queue offset has one.
    """
    shifted = forecast.shifted_units.get(name, ())
    put = Ranges.of(forecast.units_put[name]) - Ranges.of((s.start, s.stop) for s in shifted)
    lacking = Ranges.of((m.start, m.stop) for m in part.missing if not misfiled.explains(m))
    low = min(max(end[0], part.first), part.next)
    high = max(low, min(end[1], part.next))
    outside = Ranges.of(((part.first, low), (high, part.next)))
    return ((lacking.clip(low, high) - put) | outside) - Ranges.of(s.queue_offsets for s in shifted)
