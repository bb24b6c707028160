"""The data of reports: of a store (findings, forecasts, map of the log, usage, consumer lag), and of one repair.

The report of one repair is for those who must account for it. What was damaged and how far groups were comes from the
plan in the journal; what holds today comes from the store.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from typing import Any

from rmqstore.brokers.forecast import StartForecast
from rmqstore.brokers.rules import rules_for
from rmqstore.brokers.simulate import simulate_start
from rmqstore.checks.beside.config import ConsumerOffsets
from rmqstore.checks.examine import examine_named
from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems.report import Report
from rmqstore.checks.verified import Verified
from rmqstore.documents.journal import STATE, Journal, State, list_journals
from rmqstore.documents.outcome import Before, before
from rmqstore.documents.plan import Plan
from rmqstore.errors import CouldNotCheck, UsageError
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.store import Store
from rmqstore.files.versions import RUN_VERSIONS
from rmqstore.formats.consumequeue import split_queue_label
from rmqstore.formats.times import iso_utc, parse_stamp
from rmqstore.scan.tiling import Kind, Run
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import Workers, jobs_or_default
from rmqstore.texts import Text
from rmqstore.views import lookup
from rmqstore.views.lost import Losses, LostFinder, LostMessage, LostMessages, applied_repairs
from rmqstore.views.progress import PopProgress, PopState
from rmqstore.views.usage import Usage, unit_for, usage


class Fate(StrEnum):
    """What a consumer gets at a queue offset."""

    FILLER = "filler"
    PRESENT = "present"
    """The message itself: another copy of the log gave it back, or it was never lost."""
    DAMAGED = "damaged"
    """A queue entry without a good record."""
    EXPIRED = "expired"
    """The queue begins after it."""
    GONE = "gone"
    """Nothing: the queue has no entry there."""
    UNKNOWN = "unknown"


class Fates:
    """Reads what is at places of the queues of one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._queue = lookup.queue_reader(store)
        self._is_filler = LostFinder(store).is_filler

    def of(self, topic: str, queue_id: int, queue_offset: int) -> Fate:
        """Return what is at a queue offset now."""
        try:
            units = self._queue(topic, queue_id)
            bounds = units.bounds(self.store.log_start)
            unit = units.at(queue_offset)
        except CannotRead:
            return Fate.UNKNOWN
        if bounds is not None and queue_offset < bounds[0]:
            return Fate.EXPIRED
        if unit is None:
            return Fate.GONE
        found = lookup.by_offset(self.store, unit.offset)
        if found is None or not found.sound:
            return Fate.DAMAGED
        if self._is_filler(found):
            return Fate.FILLER
        same = unit.batch > 1 or found.queue_place == (topic, queue_id, queue_offset)
        return Fate.PRESENT if same else Fate.DAMAGED


LOST = 200
"""Lost messages listed for each repair."""
STEPS = 96
"""Maximum number of steps of messages over time."""
CELLS = 200
"""Maximum number of cells per row of the map."""
ROWS = 48
"""Maximum number of rows of the map: files of a long log share rows."""
_RANK = (Kind.ZERO, Kind.INTERNAL, Kind.BLANK, Kind.RECORDS, Kind.DIRTY, Kind.HOLE)
_NAMES = {Kind.HOLE: "missing", Kind.DIRTY: "damaged", Kind.ZERO: "empty", Kind.BLANK: "blank"}


@dataclass(frozen=True, slots=True)
class MapPart:
    """Bytes [start, stop) of a log, global offsets. `kind`: records, damaged, missing, filler, blank or empty."""

    kind: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class MapRow:
    """A row of the map: one file of a log, or several adjacent files."""

    log: str
    name: str
    start: int
    stop: int
    files: int
    stretches: tuple[MapPart, ...]


@dataclass(frozen=True, slots=True)
class Lag:
    """The number of messages of a topic, over all queues, that a consumer group has not consumed.

    `pop`: how many the group has received through POP, by state; empty for a group that does not use POP.
    """

    group: str
    topic: str
    messages: int
    pop: Mapping[PopState, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RepairLosses:
    """What a repair lost: a number of messages, of which `listed` are the first, without those that are back by now.

    `back`: messages in whose place the store has them again. `at_least`: there may be more.
    """

    repair: str
    messages: int
    listed: list[LostMessage]
    back: int = 0
    at_least: bool = False


@dataclass(slots=True)
class StoreReport:
    """The data of a report.

    `lags` is None if consumer progress is unknown, `pop_unknown` tells why what POP groups have received is.
    `lost`: what earlier repairs lost. `journals`: all repairs, oldest first. `unit`: by which time `usage` counts.
    """

    report: Report
    forecasts: list[StartForecast] = field(default_factory=list)
    rows: list[MapRow] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    lags: list[Lag] | None = None
    pop_unknown: str = ""
    lost: list[RepairLosses] = field(default_factory=list)
    journals: list[Journal] = field(default_factory=list)
    unit: str = "hour"


def store_report(store: Store, options: VerifyOptions, *, progress: Callable[[int], None] | None = None) -> StoreReport:
    """Verify a store, and collect the data of its report.

    Errors: as `examine_named`.
    """
    look, verified = examine_named(store, options)
    return report_of(look, verified, options, progress=progress)


def report_of(
    store: Store, verified: Verified, options: VerifyOptions, *, progress: Callable[[int], None] | None = None
) -> StoreReport:
    """Collect the data of the report of a store that has just been verified."""
    out = StoreReport(verified.report)
    if store.part is None:
        out.forecasts = list(_forecasts(store, verified, options.broker))
        _consumers(store, out)
        out.lost = losses_of_repairs(store, LOST)
        out.journals = [info for info in list_journals(store.root) if info.state is not State.PREPARING]
    for result in verified.logs.results:
        out.rows += _map(result)
    out.unit = unit_for(time_span(verified.report), STEPS)
    out.usage = usage(
        store,
        ("topic", out.unit),
        workers=Workers(jobs_or_default(options.jobs), progress=progress),
        options=ScanOptions(crc=False, drop_cache=verified.report.live),
    )
    return out


def losses_of_repairs(store: Store, most: int) -> list[RepairLosses]:
    """Return what each applied repair lost, the newest first, with at most `most` messages of each."""
    fates, out = Fates(store), []
    for folder, plan in applied_repairs(store):
        losses = LostMessages(store).in_repair(folder, plan)
        lost = [one for one in losses.damaged if not one.mended]
        left = [one for one in lost if fates.of(one.topic, one.queue_id, one.queue_offset) is not Fate.PRESENT]
        if count := losses.count:
            back = len(lost) - len(left)
            out.append(RepairLosses(folder.name, count - back, left[:most], back, losses.at_least))
    return out


def _forecasts(store: Store, verified: Verified, wanted: str) -> Iterator[StartForecast]:
    """Yield the forecasts for all tested versions and the wanted one, except versions that cannot open the store."""
    known = {*RUN_VERSIONS, rules_for(wanted or None).version}
    versions = sorted(known, key=lambda version: [int(part) for part in version.split(".") if part.isdigit()])
    result = verified.dledger or verified.legacy
    tiling = result.tiling if result is not None and verified.misplaced is None else None
    for version in versions:
        try:
            yield simulate_start(store, tiling, version=version, unreadable_rows=verified.unreadable_rows)
        except UsageError:  # no DLedger in this version
            continue


def time_span(report: Report) -> tuple[int, int] | None:
    """Return the first and the last store time (ms) in the logs of a report; None without messages."""
    times = [int(log[name]) for log in report.logs for name in ("first_timestamp", "last_timestamp") if log.get(name)]
    return (min(times), max(times)) if times else None


def _consumers(store: Store, out: StoreReport) -> None:
    """Add the lags of all groups, the largest first, including lags of zero, and what POP has handed out."""
    offsets = ConsumerOffsets.read(store)
    if offsets.unreadable:
        out.lags = None
        return
    left: dict[tuple[str, str], int] = {}
    for label, state in out.report.queues.items():
        topic, queue_id = split_queue_label(label)
        for progress in offsets.of(topic, queue_id):
            key = (progress.group, topic)
            left[key] = left.get(key, 0) + max(0, state.max - max(progress.offset, state.min))
    popped = PopProgress.read(store, offsets)
    out.pop_unknown = popped.unreadable or ("" if popped.is_complete else Text("only the newest check points are read"))
    received: dict[tuple[str, str], Counter[PopState]] = {}
    for one in popped.received.values():
        received.setdefault((one.group, one.topic), Counter())[one.state] += 1
    names = left.keys() | received.keys()
    rows = [Lag(*name, left.get(name, 0), received.get(name, {})) for name in names]
    out.lags = sorted(rows, key=lambda lag: (-lag.messages, lag.group, lag.topic))


def _map(result: LogResult) -> Iterator[MapRow]:
    """Yield the rows of a log, divided into cells that show the worst kind of run in them."""
    queue = result.queue
    if not queue.files:
        return
    size = queue.file_size
    count = -(-(max(queue.stop, result.tiling.stop) - queue.start) // size)
    share = -(-count // ROWS)
    wrote = result.tiling.wrote()
    # zeros before messages are damage
    runs = [
        replace(run, kind=Kind.DIRTY) if run.kind is Kind.ZERO and run.start < wrote else run for run in result.tiling
    ]
    fillers = sorted(result.fillers)
    for first in range(0, count, share):
        start = queue.start + first * size
        stop = min(queue.start + (first + share) * size, queue.start + count * size)
        low = bisect_right(runs, start, key=lambda run: run.stop)
        own = runs[low : bisect_left(runs, stop, key=lambda run: run.start)]
        here = [f for f in queue.files if start <= f.start < stop]
        name = here[0].name if here else f"{start:020}"
        marks = [offset for offset in fillers if start <= offset < stop]
        yield MapRow(queue.name, name, start, stop, len(here), tuple(_cells(own, marks, start, stop)))


def _cells(runs: list[Run], fillers: list[int], start: int, stop: int) -> Iterator[MapPart]:
    width = max(1, -(-(stop - start) // CELLS))
    worst = [Kind.ZERO] * -(-(stop - start) // width)
    for run in runs:
        low, high = max(run.start, start), min(run.stop, stop)
        for cell in range((low - start) // width, -(-(high - start) // width)):
            worst[cell] = max(worst[cell], run.kind, key=_RANK.index)
    names = [_NAMES.get(kind, "records") for kind in worst]
    for offset in fillers:
        cell = (offset - start) // width
        if names[cell] == "records":
            names[cell] = "filler"
    for name, group in groupby(range(len(names)), names.__getitem__):
        cells = list(group)
        yield MapPart(name, start + cells[0] * width, min(stop, start + (cells[-1] + 1) * width))


@dataclass(frozen=True, slots=True)
class Concerned:
    """A message that a repair lost or mended, and what the store has in its place today."""

    message: LostMessage
    now: Fate

    @property
    def is_lost(self) -> bool:
        """Whether the repair could not keep it, and the store does not have it today."""
        return not self.message.mended and self.now is not Fate.PRESENT

    def to_row(self) -> dict[str, Any]:
        """Return the row of the CSV list; times in ISO 8601, UTC."""
        one = self.message
        return {
            "topic": one.topic,
            "queue_id": one.queue_id,
            "queue_offset": one.queue_offset,
            "log_offset": one.offset,
            "stored": None if one.time is None else iso_utc(one.time),
            "keys": one.keys,
            "unique_key": one.unique_key,
            "tags": one.tags,
            "size": one.size,
            "lost": self.is_lost,
            "mended": one.mended,
            "body": "mended" if one.mended else one.body,
            "now": self.now.value,
            "consumed_by": None if one.consumed_by is None else " ".join(one.consumed_by),
        }


@dataclass(slots=True)
class Incident:
    """One repair: its journal, its plan, the messages that it concerns, and the store today.

    `began`, `ended` (ms): when the repair began, and when its state last changed; None if unknown. `later`: journals of
    changes that came after it.
    """

    folder: Journal
    plan: Plan
    report: Report
    losses: Losses
    messages: list[Concerned] = field(default_factory=list)
    before: Before | None = None
    began: int | None = None
    ended: int | None = None
    later: list[str] = field(default_factory=list)

    @property
    def state(self) -> State:
        return self.folder.record.state

    @property
    def in_effect(self) -> bool:
        """Whether the store has the changes of this repair."""
        return self.state is State.DONE

    @property
    def lost(self) -> list[Concerned]:
        """Messages that the repair could not keep, and that are not back."""
        return [one for one in self.messages if one.is_lost]

    @property
    def back(self) -> list[Concerned]:
        """Messages that the repair could not keep, and that the store has again."""
        return [one for one in self.messages if not one.message.mended and one.now is Fate.PRESENT]

    @property
    def unlisted(self) -> int:
        """Further lost messages, of which only the number is known."""
        return sum(self.losses.unlisted.values())

    @property
    def restored(self) -> int:
        """Messages that the repair took from another copy of the log."""
        return sum(n for row in self.plan.restored if isinstance(n := row.get("messages"), int))


def incident(store: Store, folder: Journal, report: Report) -> Incident:
    """Collect the data of the report of a repair; `report`: the store as it is today.

    Errors: CouldNotCheck for a journal whose plan cannot be read.
    """
    try:
        plan = folder.load_plan()
    except CouldNotCheck as error:
        raise CouldNotCheck(error.message, Text("without its plan, a journal does not tell what it did")) from error
    losses = LostMessages(store).in_repair(folder, plan)
    fates = Fates(store)
    names = [info.path.name for info in list_journals(store.root) if info.state is State.DONE]
    return Incident(
        folder,
        plan,
        report,
        losses,
        [Concerned(one, fates.of(one.topic, one.queue_id, one.queue_offset)) for one in losses.damaged],
        before(plan),
        parse_stamp(folder.name),
        _ended(folder),
        [name for name in names if name > folder.name],
    )


def rows(found: Incident) -> Iterator[dict[str, Any]]:
    """Yield the rows of the CSV list: every message that the repair concerns, those that are lost first."""
    for one in sorted(found.messages, key=lambda one: not one.is_lost):
        yield one.to_row()


def _ended(folder: Journal) -> int | None:
    """Return when the state of a journal last changed (ms)."""
    try:
        return (folder.path / STATE).stat().st_mtime_ns // 1_000_000
    except OSError:
        return None
