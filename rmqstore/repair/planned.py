"""The examination of a store as it will be after a plan. Reads only; nothing is copied.

The store is read through an `Overlay`. The sound parts of the first examination are kept, so that the second one reads
only what the plan changes. A part is used again under the same conditions as with `--since-last`, see
`checks/since_last.py`, except that the plan tells which bytes change. Parts are kept in a temporary file, because their
size grows with the store.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqstore.append.scratch import Scratch
from rmqstore.checks.account import by_queue
from rmqstore.checks.examine import examine
from rmqstore.checks.log.log_pass import LogPart, PassOptions, watched_reads
from rmqstore.checks.log.queue_parts import place_of
from rmqstore.checks.log.stored_units import opened
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems.report import Findings
from rmqstore.checks.since_last import Identity, KeptPart, kept_part, options_key
from rmqstore.checks.verified import Verified
from rmqstore.documents.content import Json, objects
from rmqstore.documents.outcome import Outcome, measured
from rmqstore.documents.plan import Loss, Plan
from rmqstore.files.mapped_file_queue import MAX_RECORD, offset_to_file_name
from rmqstore.files.store import QueueKind, Store, open_store
from rmqstore.formats.consumequeue import QueueName
from rmqstore.repair.lost_by_plan import lost_by
from rmqstore.repair.overlay import Overlay
from rmqstore.repair.plan.plan_builder import WRONG_PLACES
from rmqstore.scan.split import Split
from rmqstore.scan.workers import Mapper, map_ordered
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.checks.index.catalog import IndexCatalog
    from rmqstore.checks.log.commitlog import IndexCheck
    from rmqstore.checks.log.stored_units import BesideSplit, WatchedReads


SPLIT = 32 << 20
"""Bytes of a part of the log: what a plan changes is read a second time in whole parts."""
_Place = tuple[Path, int, int, int, int]
_NO_IDENTITY = Identity(0, 0, 0, 0)


class FirstParts:
    """Keeps the sound parts of an examination while it is made. `options`: how each log was read, by `body_offset`."""

    reused = None
    digests = False

    def __init__(self) -> None:
        self._scratch = Scratch()
        self._places: dict[_Place, tuple[int, int]] = {}
        self.options: dict[int, PassOptions] = {}
        self.catalog: IndexCatalog | None = None
        self.settings: Mapping[str, str] = {}
        self.index_findings = Findings()

    def begin(self) -> None:
        """Start an examination."""
        self._places.clear()

    def index(self, store: Store, findings: Findings, check: IndexCheck) -> IndexCatalog:
        """Check the index files, and keep the result."""
        self.settings, self.index_findings = store.config.given, Findings(keep=findings.keep)
        self.catalog = check(self.index_findings)
        findings.merge(self.index_findings)
        return self.catalog

    def mapper(self, options: PassOptions, jobs: int, inner: Mapper | None) -> Mapper:
        """Return a mapper that keeps the sound parts."""

        def mapped(function: Callable[[Split], Any], splits: Sequence[Split]) -> Iterator[tuple[Split, Any]]:
            parts = map_ordered(function, splits, jobs) if inner is None else inner(function, splits)
            for split, part in parts:
                self.options[split.body_offset] = options
                self._keep(split, part, options)
                yield split, part

        return mapped

    def _keep(self, split: Split, part: LogPart, options: PassOptions) -> None:
        kept = kept_part(part, _NO_IDENTITY, options, 0)
        if kept is not None:
            data = pickle.dumps(kept, pickle.HIGHEST_PROTOCOL)
            self._places[_place(split)] = (self._scratch.append(data), len(data))

    def find(self, split: Split) -> KeptPart | None:
        """Return the part of a split; None if it was not sound, or not read."""
        place = self._places.get(_place(split))
        if place is None:
            return None
        found: KeptPart = pickle.loads(self._scratch.read(place[1], place[0]))
        return found


class PartsAfter:
    """Uses the parts of the first examination again where a plan changes nothing.

    What it changes is read in this process: contents of a plan cannot be sent to others.
    """

    reused = None
    digests = False

    def __init__(self, first: FirstParts, overlay: Overlay) -> None:
        self._first = first
        self._overlay = overlay

    def begin(self) -> None:
        """Start an examination."""

    def index(self, store: Store, findings: Findings, check: IndexCheck) -> IndexCatalog:
        """Return the first result if the plan changes nothing that it depends on; else check the index files."""
        changed = any(self._overlay.changes(store.root / name) for name in ("index", "abort"))
        if self._first.catalog is None or changed or store.config.given != self._first.settings:
            return check(findings)
        findings.merge(self._first.index_findings)
        return self._first.catalog

    def mapper(self, options: PassOptions, jobs: int, inner: Mapper | None) -> Mapper:
        """Return a mapper that reads only what is not known."""

        def mapped(function: Callable[[Split], Any], splits: Sequence[Split]) -> Iterator[tuple[Split, Any]]:
            key, beside = options_key(options), _Beside(self._first, self._overlay, options)
            for split in splits:
                known = self._first.find(split)
                same = known is not None and known.options == key and self._can_be_used(known, split, options)
                if known is not None and same and beside.is_same(known.beside, split.body_offset):
                    yield split, known.part()
                else:
                    yield split, function(split)

        return mapped

    def _can_be_used(self, known: KeptPart, split: Split, options: PassOptions) -> bool:
        """Return whether the log has the same bytes, and at least as many index entries are expected for them."""
        file = split.file
        if not known.is_enough(split, options):
            return False
        stop = max(split.stop, (known.end or 0) - file.start)
        if not self._overlay.keeps(file.path, split.start, stop):
            return False
        following = file.path.with_name(offset_to_file_name(file.stop))  # a BLANK is judged by the next file
        return split.stop < min(file.length, file.file_size) or not self._overlay.changes(following)


class _Beside:
    """Compares what the parts were compared with: before a plan, and after it. `after`: options of the examination."""

    def __init__(self, first: FirstParts, overlay: Overlay, after: PassOptions) -> None:
        self._first, self._overlay, self._after = first, overlay, after
        self._changed: dict[QueueName, bool] = {}
        self._readers: dict[int, tuple[WatchedReads, WatchedReads]] = {}

    def is_same(self, known: BesideSplit, body_offset: int) -> bool:
        """Return whether all that a part was compared with has the same content after the plan."""
        before = self._first.options[body_offset]
        stores = tuple(opened(one.store, one.given, one.run_id, one.files) for one in (before, self._after))
        groups = [store.dledger.index for store in stores if body_offset and store.dledger is not None]
        entries = any(self._overlay.changes(folder) for group in groups for folder in group.directories)
        index = self._overlay.changes(self._after.store / "index")
        changed = replace(
            known,
            units=[one for one in known.units if self._changes_queue(one[0], one[1], stores)],
            index=known.index if index else [],
            entries=known.entries if entries else [],
        )
        if entries and not known.entries:
            return False  # there was no index of the entries yet
        if not (changed.units or changed.index or changed.entries):
            return True
        if body_offset not in self._readers:
            self._readers[body_offset] = watched_reads(body_offset, before), watched_reads(body_offset, self._after)
        found = [reads.digests(changed) for reads in self._readers[body_offset]]
        return found[0] is not None and found[0] == found[1]

    def _changes_queue(self, topic: str, queue_id: int, stores: Sequence[Store]) -> bool:
        """Return whether the plan may change units of a queue."""
        key = topic, queue_id
        if key not in self._changed:
            if any(store.reads_rows(topic) for store in stores):
                places = [store.rocksdb_directory for store in stores]
            else:
                places = [store.root / QueueKind.SIMPLE.tree / topic / str(queue_id) for store in stores]
            sizes = {store.queue_file_size(QueueKind.SIMPLE) for store in stores}  # inferred from all files
            self._changed[key] = len(sizes) > 1 or any(map(self._overlay.changes, places))
        return self._changed[key]


def _place(split: Split) -> _Place:
    return split.file.path, split.file.start, split.start, split.stop, split.body_offset


def after(store: Store, plan: Plan) -> Store:
    """Return a store as it will be after a plan.

    Errors: as `open_store`.
    """
    overlay = Overlay(store.files, plan.steps, Path(plan.store))
    overlay.planned = {"facts": plan.facts}
    return open_store(store.path, store.config.changed(plan.settings), overlay)


def with_loss(plan: Plan, before: Verified, after: Verified) -> Plan:
    """Return a plan of `recover` with its loss, by the examinations of the store and of the store after it."""
    if "strategy" not in plan.facts:
        return plan
    fillers, wrong = (by_queue(_places(plan.facts.get(name))) for name in ("fillers", WRONG_PLACES))
    gives_up = bool(plan.loss.more.get("good_messages_given_up"))
    over = by_queue(_replaced_records(plan, before))
    lost = lost_by(before, after, fillers, wrong, over, only=bool(plan.facts.get("only")), gives_up=gives_up)
    queues = {f"{topic}/{queue_id}": count for (topic, queue_id), count in lost.queues.items()}
    more, notes = dict(plan.loss.more), plan.notes
    if lost.room:
        more["at_least"] = True
        notes = (*notes, Text("the loss is a lower bound: {why}", why=lost.room))
    return replace(plan, loss=Loss(lost.messages, plan.loss.bytes, queues, more), notes=notes)


def _places(rows: Json) -> Iterator[tuple[QueueName, int, int]]:
    for row in objects(rows):
        numbers = [row["queue_id"], row["queue_offset"], row.get("count", 1)]
        if all(isinstance(number, int) for number in numbers):
            queue_id, start, count = map(int, map(str, numbers))
            yield (str(row["topic"]), queue_id), start, start + count


def _replaced_records(plan: Plan, before: Verified) -> Iterator[tuple[QueueName, int, int]]:
    """Yield the places of the framed records that fillers replace: their properties cannot be recovered."""
    queues = before.account.queues if before.account is not None else {}
    for row in objects(plan.facts.get("fillers")):
        at = row.get("offset")
        for name, start, stop in _places([row]):
            known = queues.get(name)
            if known is None or start not in known.in_log or not isinstance(at, int) or before.logs.damaged(at):
                continue
            record = before.logs.record(at, MAX_RECORD)
            if record is not None and place_of(record) == (name, start, stop):
                yield name, start, stop


def measure(
    store: Store,
    plan: Plan,
    before: Verified,
    options: VerifyOptions | None = None,
    first: FirstParts | None = None,
) -> tuple[Plan, Outcome]:
    """Examine a store as it will be after a plan; return the plan with what was measured, and the outcome.

    `before`: the examination of the store as it is, made with the same options. Errors: as `examine_again`.
    """
    then = examine_again(after(store, plan), options or VerifyOptions(), first)
    outcome = Outcome.of(then.report)
    return measured(with_loss(plan, before, then), before.report, outcome), outcome


def examine_again(planned: Store, options: VerifyOptions, first: FirstParts | None = None) -> Verified:
    """Examine a store as it will be after a plan; parts that it does not change are taken from the `first` examination.

    Errors: as `examine`, and those of the contents of the plan.
    """
    parts = None
    if first is not None and isinstance(planned.files, Overlay):
        parts = PartsAfter(first, planned.files)
        options = replace(options, split_size=options.split_size or SPLIT)
    own = replace(options, jobs=1, last_run=parts, units=None, sink=None, progress=None)
    return examine(planned, own)
