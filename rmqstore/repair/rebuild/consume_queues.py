"""Rebuilds consume queues from the log: chooses the queues, reads their messages, and plans the steps for each.

In a member of a DLedger group, only committed entries get units, because brokers dispatch only those. A leader may
replace later ones; their units would remain and shift those of the entries that replace them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.checks.log.queue_parts import QueuePart
from rmqstore.checks.problems import codes
from rmqstore.checks.verified import Verified
from rmqstore.files.broker_config import COMMITLOG_FILE_SIZE
from rmqstore.files.mapped_file_queue import MAX_RECORD, MappedFile, MappedFileQueue
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, Store, StoreKind
from rmqstore.formats import consumequeue, properties
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.layout import Layout
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.rebuild.consume_queue import (
    Extension,
    KeptCodes,
    QueueImage,
    gaps_text,
    plan_batch_queue,
    plan_queue,
)
from rmqstore.repair.rebuild.unit_buffer import BufferedUnits, KeptUnits, UnitBuffer
from rmqstore.repair.repaired_log import Redispatch, RepairedLog, Span, can_exist, meets
from rmqstore.repair.unrepaired import doubtful_tags
from rmqstore.scan.units import unit_chunks
from rmqstore.texts import Text, joined, many


def known_topic(topics: frozenset[str] | None, topic: str) -> bool:
    """Return False for a deleted topic, whose queues are not created again; `topics` as in `Logs`."""
    if topics is None or topic in topics:
        return True
    return properties.is_system_topic(topic) or properties.is_lmq(topic)


def size_decision(store: Store, kind: QueueKind) -> str | None:
    """Return what to decide if the size of a queue's files is assumed: neither files nor a broker.conf show it.

    A broker whose log files have the default size is taken to have the default size of queue files too.
    """
    if sizes := store.sizes_found(kind):
        several = Text(
            "the consume queue files do not agree about their size: {sizes}; {size:,} is assumed: give -c broker.conf, "
            "which has {key}, or accept it"
        )
        each = [
            Text("{files} of {size:,} bytes", files=many(count, "file"), size=size) for size, count in sizes.items()
        ]
        return several.format(sizes=joined(each, last=" and "), size=store.queue_file_size(kind), key=kind.size_key)
    if store.known_queue_file_size(kind) is not None or store.config.given:
        return None
    logs = (store.commitlog, store.dledger.data if store.dledger is not None else None)
    if any(log is not None and log.size_from == "files" and log.file_size == COMMITLOG_FILE_SIZE for log in logs):
        return None
    return Text(
        "the consume queue files do not show their size; {size:,} is assumed: give -c broker.conf, which has "
        "{key}, or accept it",
        size=store.queue_file_size(kind),
        key=kind.size_key,
    )


@dataclass(frozen=True, slots=True)
class RebuildChoices:
    """The options of a rebuild of queues.

    `wanted`: these queues; None: all. `deleted_too`: rebuild queues of deleted topics. `rewrite_codes`: replace tags
    codes that differ from their message even if the code may be right. `allow_gaps`: accept queue offsets without a
    message, with a note; False if an option of the command accepts them, None if it has no such option. `limit`:
    messages that end after this global offset get no unit; a broker dispatches them once they are committed.
    """

    wanted: frozenset[QueueName] | None = None
    deleted_too: bool = False
    allow_gaps: bool | None = None
    limit: int | None = None
    rewrite_codes: bool = False


class Odds(NamedTuple):
    """The ranges of queue offsets without a message in a queue, and those that no message can have.

    `unread` is the number of messages in the log that get no unit: their queue offset is impossible, or another
    message has it.
    """

    label: str
    gaps: list[tuple[int, int]]
    strays: list[tuple[int, int]]
    unread: int


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What a rebuild of queues needs to know about the repaired log besides the units of its messages.

    Offsets and ranges are global. `topics`: as in `Logs`. `lacks_topics`: with a new batch queue, no broker would
    start. `unrepaired`: ranges that are damaged or missing. `codes`: the tags codes on disk of messages of which either
    the TAGS or the unit are damaged, by offset. `parts`: queues with wrong or missing queue offsets. `corrected`:
    records without a queue offset of their own that the plan corrects.
    """

    topics: frozenset[str] | None
    batch_topics: frozenset[str]
    lacks_topics: bool
    min_offset: int
    unrepaired: tuple[Span, ...]
    codes: Mapping[int, int]
    parts: Mapping[QueueName, QueuePart]
    corrected: frozenset[int]

    @staticmethod
    def of(verified: Verified, views: Sequence[RepairedLog], *, rewrite_codes: bool = False) -> LogFacts:
        """Collect them from a verification, and from the logs as the plan leaves them."""
        logs = verified.logs
        doubtful = {} if rewrite_codes else doubtful_tags(verified, views)
        codes_of = {at: finding.facts["tags_code"] for at, finding in doubtful.items()}
        in_order = frozenset[int]().union(*(view.in_order for view in views))
        doubted = {n: p for n, p in logs.queues.items() if p.restarts or p.outliers or p.gaps or p.repeats}
        parts = {name: part.without_restarts(in_order) for name, part in doubted.items()}

        def is_corrected(at: int) -> bool:
            message = logs.record(at, MAX_RECORD)
            stop = at + (message.size if message is not None else 1)
            return any(view.differs(at, stop) for view in views)

        homeless = (one.at for part in parts.values() for one in part.outliers if one.expected is None)
        return LogFacts(
            logs.topics,
            verified.batch_topics,
            codes.CFG_NO_TOPICS in verified.report.findings.counts,
            logs.min_offset,
            tuple(span for view in views for span in view.unrepaired()),
            {at: code for at, code in codes_of.items() if isinstance(code, int)},
            parts,
            frozenset(at for at in homeless if is_corrected(at)),
        )

    def damaged(self, offset: int) -> bool:
        """Return whether a byte of the log is damaged or missing, and no step repairs it."""
        return meets((offset, offset + 1), self.unrepaired)


class MessageUnits:
    """Units of messages in a buffer, and what is known about their log."""

    def __init__(self, draft: PlanBuilder, facts: LogFacts, buffer: UnitBuffer, choices: RebuildChoices) -> None:
        self.draft = draft
        self.store = draft.store
        self.facts = facts
        self.choices = choices
        self._buffer = buffer

    @property
    def names(self) -> Collection[QueueName]:
        """The queues that have a unit."""
        return self._buffer.queues.keys()

    def of(self, name: QueueName) -> BufferedUnits:
        """Return the units of one queue."""
        return self._buffer.queues.get(name) or BufferedUnits(self._buffer.spill, times=self._buffer.times)

    def later(self, name: QueueName) -> int:
        """Return how many messages of a queue get their unit only when they are committed."""
        return self._buffer.later[name]

    def kept_codes(self, name: QueueName, extension: Extension) -> KeptCodes:
        """Return what keeps its tags code in one queue."""
        return KeptCodes(extension, delay_levels(self.store).longest(name[1] + 1), self.facts.codes)

    # --- queue offsets without a message --------------------------------------------------------------------------

    def odds(self, label: str, image: QueueImage) -> Odds:
        """Note the queue offsets without a message: their units repeat the one before, so they are shifted."""
        self.draft.gaps[label] = image.gaps
        if image.strays:
            kept = image.usable or not image.empty
            code = codes.CQ_MISSING_UNIT if kept else codes.CQ_MISSING_QUEUE
            self.draft.strays[code] += len(image.strays)
        unread = image.units.total - sum(b - a for a, b in image.ranges)
        part = self.facts.parts.get((image.files.topic, image.files.queue_id))
        if part is not None:
            unread += sum(one.expected is None and one.at not in self.facts.corrected for one in part.outliers)
        return Odds(label, image.gaps, image.strays, unread)

    def tell(self, odds: Odds) -> None:
        """Add notes and decisions for queue offsets without a message, and for impossible ones.

        A queue offset without a message was one of a lost message, or of one whose header is damaged.
        """
        draft, label, allow_gaps = self.draft, odds.label, self.choices.allow_gaps
        if odds.gaps and allow_gaps:
            draft.notes.append(gaps_text(label, odds.gaps))
        elif odds.gaps:
            hint = "" if allow_gaps is None else Text("; --accept-shift accepts that")
            draft.decisions.append(gaps_text(label, odds.gaps) + hint)
        if odds.strays:
            draft.notes.append(
                Text(
                    "{label}: records with impossible queue offsets ({strays}) get no unit",
                    label=label,
                    strays=odds.strays[0][0],
                )
            )
        if odds.unread and label not in draft.unread:
            draft.unread.add(label)
            draft.notes.append(
                Text(
                    "{label}: {messages} in the log without a queue offset of its own: consumers do not get it",
                    label=label,
                    messages=many(odds.unread, "message"),
                )
            )


class LogUnits(MessageUnits):
    """The units that the messages of the repaired log have in the wanted queues.

    `as_rows`: for a RocksDB, in which a row has a store time, and an inner batch has one row. The log is read once,
    unless the verification has kept the units of all messages.
    """

    def __init__(
        self,
        draft: PlanBuilder,
        verified: Verified,
        views: Sequence[RepairedLog],
        choices: RebuildChoices,
        *,
        as_rows: bool = False,
    ) -> None:
        self.verified = verified
        self.views = views
        self.logs = verified.logs
        facts = LogFacts.of(verified, views, rewrite_codes=choices.rewrite_codes)
        kept = None if as_rows or choices.limit is not None else self._kept()
        spill = kept.spill if kept is not None else None
        buffer = UnitBuffer(choices.wanted, facts.parts, choices.limit, spill, times=as_rows)
        super().__init__(draft, facts, buffer, choices)
        if kept is not None:
            buffer.take(kept)
            for result in self.logs.results:
                for name, rows in result.batches.items():
                    buffer.take_batches(name, rows)
        else:
            dispatcher = Redispatch(self.store, buffer, () if as_rows else verified.batch_topics)
            for view in views:
                dispatcher.run(view)
            buffer.flush()

    def _kept(self) -> KeptUnits | None:
        """Return the units that the verification kept; None if the plan changes the log."""
        kept = self.verified.units
        same = all(v.queue is v.result.queue and v.end >= v.result.wrote for v in self.views)
        return kept if isinstance(kept, KeptUnits) and same else None


def plan_queue_files(units: LogUnits, names: Iterable[QueueName] | None = None) -> None:
    """Add the steps for the files of the queues in `names`; None: of the wanted queues that are in files."""
    store = units.store
    if names is None:
        wanted = units.choices.wanted
        known = wanted if wanted is not None else store.names_in_files().union(units.names)
        names = sorted(name for name in known if not store.reads_rows(name[0]))
    for name in names:
        plan_files_of_queue(units, name)


def plan_files_of_queue(units: MessageUnits, name: QueueName) -> Sequence[MappedFile]:
    """Add the steps for the files of one queue; return its files of today."""
    draft, store, topic = units.draft, units.store, name[0]
    kind = QueueKind.BATCH if topic in units.facts.batch_topics else QueueKind.SIMPLE
    files = store.consume_queue(*name, kind)
    if files.queue.files:
        if draft.is_gone(files.queue.directories[0]):
            return []  # its topic directory is in the tree of the other kind, and is moved away
    else:
        if not can_exist(name) or not (units.choices.deleted_too or known_topic(units.facts.topics, topic)):
            return []
        if kind is QueueKind.BATCH and _needs_topics(units, topic):
            return []
    before = len(draft.steps)
    if kind is QueueKind.BATCH:
        rows = units.of(name).batches
        plan_batch_queue(draft, files, rows, units.facts.min_offset)
        if rows:
            draft.ends[files.label] = max(row.base + row.count for row in rows) + units.later(name)
    else:
        _plan_simple(units, files)
    converts = store.kind is StoreKind.ROCKSDB  # then the settings that the plan names have the size
    if len(draft.steps) > before and not converts and (decision := size_decision(store, kind)) is not None:
        draft.decisions.append(decision)
    return files.queue.files


def _needs_topics(units: MessageUnits, topic: str) -> bool:
    """Return whether a new batch queue would prevent brokers from starting, for lack of a topics.json; note it."""
    if not units.facts.lacks_topics:
        return False
    units.draft.notes.append(
        Text(
            "the batch queue of {topic} is not rebuilt: with it, no broker starts until config/topics.json is restored",
            topic=topic,
        )
    )
    return True


def _plan_simple(units: MessageUnits, files: ConsumeQueueFiles) -> None:
    draft, name = units.draft, (files.topic, files.queue_id)
    before = len(draft.steps)
    gone = {f.path for f in files.queue.files if draft.path(f.path) in draft.gone}
    extension = Extension.of(units.store, *name)
    kept = units.kept_codes(name, extension)
    image = QueueImage(files, units.of(name), units.facts.min_offset, units.facts.damaged, kept, gone)
    plan_queue(draft, image)
    extension.plan(draft, files)
    draft.ends[files.label] = image.high + units.later(name)
    odds = units.odds(files.label, image)
    if len(draft.steps) > before:
        units.tell(odds)


def cut_queues(draft: PlanBuilder, cut: int, rebuilt: frozenset[QueueName]) -> None:
    """Remove the units of messages at or after `cut` (global offset) from every queue that is not rebuilt.

    Without reading the log: a truncation costs what it removes.
    """
    for files in draft.store.consume_queues(QueueKind.SIMPLE, QueueKind.BATCH):
        if (files.topic, files.queue_id) in rebuilt:
            continue
        queue, batch = files.queue, files.kind is QueueKind.BATCH
        layout = consumequeue.BATCH_UNIT if batch else consumequeue.UNIT
        first = _first_beyond(queue, layout, cut)
        if first is None:
            continue
        end = first // layout.size
        last = queue.unit(layout, end - 1) if first > queue.start else None
        if batch:
            end = last["base_offset"] + last["batch_size"] if last is not None else 0
        elif last is not None and consumequeue.is_pre_blank(last["commitlog_offset"], last["size"]):
            first, end = queue.start, 0  # a queue must not consist of pre-blanks
        draft.ends[files.label] = end
        draft.cut(queue.files, first, Text("units of cut messages"), layout.size)


def _first_beyond(queue: MappedFileQueue, layout: Layout, cut: int) -> int | None:
    """Return the position of the first unit of a message at or after `cut` (global offset); None without one."""
    first: int | None = None
    for file in reversed(queue.files):
        found: int | None = None
        for chunk in unit_chunks(queue, layout, start=file.start, stop=file.stop):
            beyond = (chunk.units["commitlog_offset"] >= cut) & (chunk.units["size"] > 0)
            if beyond.any():
                found = chunk.start + int(np.argmax(beyond)) * layout.size
                break
        if found is None:
            break
        first = found
    return first
