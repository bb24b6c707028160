"""Plans expiry: removes the log files that the broker's clean-up would delete, with their queue and index files.

Like everything that a repair removes, the files are moved into the journal's quarantine; removing the journal frees the
space. Where that is no help, on a full disk, they are deleted for ever: the only plan that cannot be undone. It deletes
in the order of a broker, the log first and from its beginning, so that a broker can start whatever is left of it.
Source: DefaultMessageStore.CleanCommitLogService, .CleanConsumeQueueService, IndexService#deleteExpiredFile, DLedger's
CleanSpaceService (RocketMQ 4.9.7, 5.1.4 and 5.4.0, DLedger 0.3.2).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rmqstore.brokers.clean_up import (
    BATCH,
    Decision,
    DLedgerDisks,
    FileSystem,
    RetentionRules,
    Why,
    decide_commitlog,
    decide_dledger,
    expired_below,
)
from rmqstore.brokers.outlook import candidates, disk_of, disk_of_log, rules_of
from rmqstore.checks.misplaced_files import find_misplaced
from rmqstore.checks.parts import kept_by_compaction
from rmqstore.documents.content import Json
from rmqstore.documents.journal import State, list_journals
from rmqstore.documents.plan import Plan
from rmqstore.documents.steps import Delete
from rmqstore.errors import Refused, UsageError
from rmqstore.files.config import TIER_METADATA, loaded_config, tier_queues, tier_words
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.rocksdb.queues import simple_queue
from rmqstore.files.store import Store, StoreKind
from rmqstore.formats import consumequeue, dledger, index
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.ranges import Ranges
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.scan.columns import Columns
from rmqstore.scan.dispatch import QueueTable, message_counts
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.units import unit_chunks
from rmqstore.scan.window import ScanOptions
from rmqstore.texts import Text, first_few, many

_LISTED = 8


@dataclass(frozen=True, slots=True)
class ExpireOptions:
    """The conditions of a clean-up; None means the broker's setting.

    `reserved` hours; `any_hour` ignores deleteWhen; `now` in ms; `disk_of` returns the usage of a path's disk;
    `version` of the broker. `delete`: delete the files for ever, instead of moving them to quarantine.
    """

    reserved: int | None = None
    any_hour: bool = False
    now: int | None = None
    disk_of: Callable[[Path], FileSystem] | None = None
    version: str | None = None
    delete: bool = False

    @property
    def facts(self) -> dict[str, Json]:
        """What a plan says about how it was asked for."""
        return {"reserved": self.reserved, "any_hour": self.any_hour, "delete": self.delete}

    @staticmethod
    def of(facts: Json, version: str | None) -> ExpireOptions:
        """Return the options that a plan was made with; what is not understood counts as not given."""
        given = facts if isinstance(facts, Mapping) else {}
        reserved = given.get("reserved")
        hours = reserved if type(reserved) is int and reserved >= 0 else None
        return ExpireOptions(hours, given.get("any_hour") is True, version=version, delete=given.get("delete") is True)


@dataclass(frozen=True, slots=True)
class Expiry:
    """The plan, and the decisions on which it is based, for the plain log and for DLedger."""

    plan: Plan
    commitlog: Decision | None
    dledger: Decision | None


def plan_expire(store: Store, options: ExpireOptions | None = None) -> Expiry:
    """Plan what the clean-up of a broker that is started now would delete.

    Errors: UsageError for a part of a store; BadBrokerConfig; Refused for a store of DLedger 0.4, which has another
    clean-up, and if log files have wrong names.
    """
    _refuse(store)
    options = options or ExpireOptions()
    rules = rules_of(store.config, options.reserved, options.version)
    now = options.now if options.now is not None else time.time_ns() // 1_000_000
    hour = time.localtime(now // 1000).tm_hour
    if options.any_hour:
        rules = replace(rules, delete_when=str(hour))
    ask = options.disk_of or disk_of
    draft = PlanBuilder(store)
    remove = draft.delete if options.delete else draft.discard
    lost = _Lost(kept_by_compaction(store))
    root_disk = ask(store.root)
    plain = data = None
    logs: list[tuple[MappedFileQueue, Decision]] = []
    legacy = store.commitlog if store.commitlog is not None and store.commitlog.files else None
    group = store.dledger if store.dledger is not None and store.dledger.data.files else None
    if legacy is not None:
        log_disk, own = disk_of_log(legacy, root_disk, store.root, ask)
        plain = decide_commitlog(
            candidates(legacy),
            rules,
            now=now,
            hour=hour,
            log_disk=log_disk,
            queue_disk=root_disk if own else None,
            legacy=group is not None,
        )
        logs.append((legacy, plain))
    if group is not None:
        log_disk, own = disk_of_log(group.data, root_disk, store.root, ask)
        data = decide_dledger(
            candidates(group.data),
            rules,
            now=now,
            hour=hour,
            disks=DLedgerDisks(root_disk, log_disk if own else None),
            legacy=plain is not None and bool(plain.keep),
        )
        logs.append((group.data, data))
    for queue, decision in logs:
        _take(remove, lost, queue, decision, 0 if queue is legacy else dledger.ENTRY.size)
    draft.lose(lost.counts, lost.bytes)
    minimum = _minimum(logs)
    _queues(store, remove, minimum)  # also remains of an earlier clean-up: a broker's first round checks all of them
    _index(store, remove, minimum)
    _tier(draft, minimum)
    if lost.compacted:
        keeps = many(lost.compacted, "message")
        draft.notes.append(Text("compaction/ keeps {messages} of the files that go: they are not lost", messages=keeps))
    decisions = {"commitlog": plain, "dledger": data}
    _explain(draft, rules, hour, decisions, root_disk)
    if options.delete:
        _warn(draft)
    elif draft.steps:
        draft.notes.append(
            Text(
                "the files are moved to quarantine on the same disk: removing the journal frees the space; --delete "
                "frees it at once, and cannot be undone"
            )
        )
    draft.facts["expire"] = {
        **{name: _fact(decision) for name, decision in decisions.items()},
        "min_offset": minimum,
        "disk_used": round(root_disk.ratio, 4),
        "queues": lost.to_json(),
        **options.facts,
    }
    return Expiry(draft.plan([directory for queue, _ in logs for directory in queue.directories]), plain, data)


def _refuse(store: Store) -> None:
    """Refuse a store of which the clean-up cannot be planned. Errors: as `plan_expire`."""
    if store.kind is StoreKind.PART:
        raise UsageError(
            Text("{path} is a part of a store", path=store.path), Text("name the broker's storePathRootDir")
        )
    if store.dledger is not None and store.dledger.newer:
        raise Refused(
            Text("DLedger 0.4 wrote {path}: it frees space with snapshots, not by age", path=store.path),
            Text("no RocketMQ release uses it"),
        )
    if find_misplaced(store).store.is_rearranged:
        raise Refused(
            Text("log files have wrong names: a clean-up deletes the oldest by name"),
            Text("run `rmqstore recover` first"),
        )


Remove = Callable[[Path, str], None]
"""Adds the step that removes a file, with the reason."""


def _take(remove: Remove, lost: _Lost, queue: MappedFileQueue, decision: Decision, body_offset: int) -> None:
    reasons = {candidate.path: why for candidate, why in decision.delete}
    for file in queue.files:
        why = reasons.get(str(file.path))
        if why is not None:
            remove(file.path, Text(why.value))
            lost.add(file, body_offset)


class _Lost:
    """The messages in the files that go: their number per queue, their bytes, and their queue offsets.

    `counts` and `offsets` (the first and the last one) are by queue, `TOPIC/ID`. `kept`: what compaction keeps, which
    is not lost; `compacted` counts it.
    """

    def __init__(self, kept: Mapping[QueueName, Ranges]) -> None:
        self._kept = {name: np.array(numbers.parts, dtype=np.int64) for name, numbers in kept.items() if numbers}
        self.compacted = 0
        self.counts: Counter[str] = Counter()
        self.bytes = 0
        self.offsets: dict[str, tuple[int, int]] = {}
        self._table = QueueTable()

    def add(self, file: MappedFile, body_offset: int) -> None:
        """Count the messages of a file."""
        for run in scan_file(file, body_offset=body_offset, options=ScanOptions(crc=False)):
            if run.kind is not Kind.RECORDS or run.columns is None:
                continue
            columns = self._lost(run.columns) if self._kept else run.columns
            messages = message_counts(columns)
            columns, messages = columns.take(messages > 0), messages[messages > 0]
            if not len(columns):
                continue
            self.bytes += int(columns.size.sum()) + len(columns) * body_offset
            queues = self._table.of(columns)
            numbers = np.argsort(queues, kind="stable")
            names, starts = np.unique(queues[numbers], return_index=True)
            offsets = columns.queue_offset[numbers]
            each = messages[numbers]
            lowest, counts = np.minimum.reduceat(offsets, starts), np.add.reduceat(each, starts)
            highest = np.maximum.reduceat(offsets + each - 1, starts)
            rows = (names.tolist(), counts.tolist(), lowest.tolist(), highest.tolist())
            for number, count, low, high in zip(*rows, strict=True):
                name = self._table.label(number)
                self.counts[name] += count
                first, last = self.offsets.get(name, (low, high))
                self.offsets[name] = min(first, low), max(last, high)

    def _lost(self, columns: Columns) -> Columns:
        """Return the records that compaction does not keep."""
        queues = self._table.of(columns)
        stays = np.zeros(len(columns), dtype=np.bool_)
        for number in np.unique(queues).tolist():
            spans = self._kept.get((self._table.topic(number), self._table.queue_ids[number]))
            if spans is not None:
                own = np.flatnonzero(queues == number)
                offsets = columns.queue_offset[own]
                part = np.searchsorted(spans[:, 0], offsets, "right") - 1
                stays[own] = (part >= 0) & (offsets < spans[part, 1])
        self.compacted += int(stays.sum())
        return columns.take(np.flatnonzero(~stays)) if stays.any() else columns

    def to_json(self) -> dict[str, Json]:
        """Return the number of messages with the first and the last queue offset, by queue."""
        return {
            name: {"messages": count, "first": self.offsets[name][0], "last": self.offsets[name][1]}
            for name, count in self.counts.items()
        }


def _warn(draft: PlanBuilder) -> None:
    """Make a plan that deletes files need its digest, and say what cannot be undone."""
    if not draft.steps:
        return
    size = sum(step.length for step in draft.steps if isinstance(step, Delete))
    draft.decisions.append(
        Text(
            "to be deleted for ever: {files} with {bytes}, and {messages} in them; no `undo` brings them back",
            files=many(len(draft.steps), "file"),
            bytes=many(size, "byte"),
            messages=many(draft.lost_messages, "message"),
        )
    )
    if draft.linked:
        draft.notes.append(
            Text(
                "deleting {files} frees no space, because of another name (a hard link)",
                files=many(draft.linked, "file"),
            )
        )
    earlier = [one for one in list_journals(draft.root) if one.state is State.DONE]
    if earlier:
        repairs = many(len(earlier), "earlier repair")
        draft.notes.append(Text("{repairs} of this store can no longer be undone after it", repairs=repairs))


def _minimum(logs: Sequence[tuple[MappedFileQueue, Decision]]) -> int:
    """Return the log's minimum offset after the clean-up."""
    for queue, decision in logs:
        gone = {candidate.start for candidate, _ in decision.delete}
        left = [file.start for file in queue.files if file.start not in gone]
        if left:
            return left[0]
    return 0


def _queues(store: Store, remove: Remove, minimum: int) -> None:
    """Remove consume queue files whose units all point below the minimum."""
    for consume_queue in store.consume_queues():
        files = consume_queue.queue.files
        unit = consume_queue.kind.unit
        last = []
        for file in files:
            raw = file.read_at(8, file.file_size - unit)
            last.append(int.from_bytes(raw, "big", signed=True) if len(raw) == 8 else minimum)
        for file in files[: expired_below(last, minimum)]:
            remove(file.path, Text("all its units point below {minimum}", minimum=minimum))


def _index(store: Store, remove: Remove, minimum: int) -> None:
    entries = store.index_files
    ends = []
    for entry in entries:
        raw = store.files.read_at(entry.path, index.HEADER.size, 0).ljust(index.HEADER.size, b"\0")
        ends.append(index.HEADER.parse(raw)["end_phy_offset"])
    for entry in entries[: expired_below(ends, minimum)]:
        remove(entry.path, Text("all its entries point below {minimum}", minimum=minimum))


def _tier(draft: PlanBuilder, minimum: int) -> None:
    """Note the queues of which the broker then destroys what tiered storage has: it ends before their new minimum.

    Source: MessageStoreDispatcherImpl#doScheduleDispatch (RocketMQ 5.4.0)
    """
    store, note = draft.store, draft.notes.append
    if not (words := tier_words(store.files, store.root)):
        return
    note(words)
    ended = []
    for topic, queue_id, _, end in loaded_config(store.files, store.root, TIER_METADATA, tier_queues) or ():
        begin = _begin_after(store, topic, queue_id, minimum)
        if end < begin:
            ended.append(
                Text(
                    "{topic}/{queue_id} (tier up to {end:,}, queue from {begin:,})",
                    topic=topic,
                    queue_id=queue_id,
                    end=end,
                    begin=begin,
                )
            )
    if ended:
        note(
            Text(
                "the broker destroys what the tier has of queues that then begin after its end: {queues}",
                queues=first_few(ended),
            )
        )


def _begin_after(store: Store, topic: str, queue_id: int, minimum: int) -> int:
    """Return a queue's minimum if the log begins at `minimum` (global offset): without a message there, its maximum.

    Source: ConsumeQueue#correctMinOffset (RocketMQ 5.0.0 and newer; older ones have no tiered storage)
    """
    end = 0
    with suppress(CannotRead):
        for chunk in unit_chunks(simple_queue(store, topic, queue_id), consumequeue.UNIT):
            at, size = (chunk.units[name].astype(np.int64) for name in ("commitlog_offset", "size"))
            real = (size > 0) & ~consumequeue.is_pre_blank(at, size)
            kept = np.flatnonzero(real & (at >= minimum))
            if len(kept):
                return chunk.number + int(kept[0])
            if real.any():
                end = chunk.number + int(np.flatnonzero(real)[-1]) + 1
    return end


def _explain(
    draft: PlanBuilder, rules: RetentionRules, hour: int, decisions: Mapping[str, Decision | None], disk: FileSystem
) -> None:
    """Note why files are deleted, and why the others are kept."""
    note = draft.notes.append
    note(
        Text(
            "files older than {reserved} h are deleted at hour {delete_when} (now {hour:02d}), or if the "
            "disk has more than {max_used:.0%} used (now {ratio:.0%})",
            reserved=rules.reserved,
            delete_when=rules.delete_when,
            hour=hour,
            max_used=rules.bounded().max_used,
            ratio=disk.ratio,
        )
    )
    for name, decision in decisions.items():
        if decision is None:
            continue
        if decision.write_forbidden:
            note(Text("{name}: the disk counts as full, so the broker refuses messages", name=name))
        if decision.forced:
            note(
                Text(
                    "{name}: the disk is so full that files are deleted whatever their age, until there is room",
                    name=name,
                )
            )
        reasons = Counter(why for _, why in decision.keep)
        for why in Why:
            if reasons[why]:
                note(
                    Text(
                        "{name}: {reasons} kept: {why}",
                        name=name,
                        reasons=many(reasons[why], "file"),
                        why=Text(why.value),
                    )
                    if reasons[why] > 1
                    else Text(
                        "{name}: {reasons} file kept: {why}", name=name, reasons=reasons[why], why=Text(why.value)
                    )
                )
        if decision.rounds > 1:
            batch, apart = (rules.batch, "10 s") if name == "commitlog" else (BATCH, "0.1 s")
            note(
                Text(
                    "{name}: a broker takes {rounds} of {batch} files, {apart} apart",
                    name=name,
                    rounds=many(decision.rounds, "round"),
                    batch=batch,
                    apart=apart,
                )
            )


def _fact(decision: Decision | None) -> Json:
    if decision is None:
        return None
    return {
        "delete": [{"path": Path(c.path).name, "bytes": c.size, "why": w.value} for c, w in decision.delete],
        "keep": [{"path": Path(c.path).name, "why": w.value} for c, w in decision.keep[:_LISTED]],
        "freed": decision.freed,
        "rounds": decision.rounds,
        "time_up": decision.time_up,
        "space": decision.space,
        "forced": decision.forced,
        "write_forbidden": decision.write_forbidden,
    }
