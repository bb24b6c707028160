"""Salvage on copies of real stores: damage records by number, salvage, apply, verify."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.verified import Verified
from rmqstore.documents.plan import Loss, Plan
from rmqstore.documents.steps import Span, Step
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.files.store import Store, open_store
from rmqstore.formats import dledger
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.message import HEAD, TRANSACTION_ROLLBACK, Message, build_message
from rmqstore.repair.journal import journal
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.planned import after, examine_again, with_loss
from rmqstore.repair.salvage.evidence import Evidence
from rmqstore.repair.salvage.framed import FramedRecords
from rmqstore.repair.salvage.salvage import Filler, Salvage
from rmqstore.repair.salvage.solve import reach
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from tests import damage
from tests.planning import counts_of, look

_KEPT = 200  # files; more than the files of all master copies of a run


@dataclass(frozen=True, slots=True)
class Row:
    """A good record of a store: position `at` in its file, physical offset (after a DLedger entry's header), bytes."""

    path: Path
    at: int
    offset: int
    body_offset: int
    message: Message

    @property
    def size(self) -> int:
        return self.message.size

    @property
    def stop(self) -> int:
        """The position of the record's end in the file."""
        return self.at + self.size

    @property
    def slot(self) -> tuple[str, int, int]:
        return self.message.topic_text, self.message.queue_id, self.message.queue_offset


def rows(store: Path | Store) -> list[Row]:
    """Return the good records of all logs in offset order."""
    return [
        Row(file.path, offset - file.start, offset, body_offset, message)
        for queue, body_offset in (store if isinstance(store, Store) else open_store(store)).logs
        for file in queue.files
        for offset, message in _records(file, body_offset, hashlib.sha256(file.read_at(_MOST, 0)).digest())
    ]


_MOST = 8 << 20  # bytes; no file of a fixture's log is longer, but damage can make one longer
_known: dict[tuple[int, int, bytes], list[tuple[int, Message]]] = {}


def _records(file: MappedFile, body_offset: int, content: bytes) -> list[tuple[int, Message]]:
    """Return the good records of a file, cached by content, because most files of copies equal those of a master."""
    key = (file.start, body_offset, content)
    if key not in _known:
        if len(_known) > _KEPT:
            _known.clear()
        _known[key] = [
            (int(run.columns.offset[i]), run.columns.message(i))
            for run in scan_file(file, body_offset=body_offset)
            if run.kind is Kind.RECORDS and run.columns is not None
            for i in range(len(run.columns))
        ]
    return _known[key]


def roll_back(row: Row) -> None:
    """Make a record look like a rolled back message, which is in no queue, and whose queue offset is 0."""
    damage.overwrite(row.path, row.at + HEAD.at("queue_offset"), bytes(8))
    flag = row.message.sys_flag | TRANSACTION_ROLLBACK
    damage.overwrite(row.path, row.at + HEAD.at("sys_flag"), flag.to_bytes(4, "big"))


def pick(store: Path, wanted: Callable[[Row], bool], number: int = 0) -> Row:
    """Return the N-th record that `wanted` accepts."""
    return [row for row in rows(store) if wanted(row)][number]


def shrink(row: Row, by: int) -> None:
    """Replace a record by a shorter good one with `by` bytes of garbage after it, too few for a record."""
    old = row.message
    record = build_message(
        topic=old.topic,
        body=old.body[: len(old.body) - by],
        properties=old.properties.removesuffix(old.properties[-20:]) if old.carries_crc else old.properties,
        queue_id=old.queue_id,
        queue_offset=old.queue_offset,
        physical_offset=old.physical_offset,
        flag=old.flag,
        sys_flag=old.sys_flag,
        born_timestamp=old.born_timestamp,
        born_host=old.born_host,
        store_timestamp=old.store_timestamp,
        store_host=old.store_host,
        reconsume_times=old.reconsume_times,
        prepared_transaction_offset=old.prepared_transaction_offset,
        append_crc=old.carries_crc,
    )
    assert len(record) == row.size - by
    if row.body_offset:
        head = dledger.ENTRY.parse(row.path.read_bytes(), row.at - row.body_offset)
        head["size"] -= by
        head["body_length"] -= by
        damage.overwrite(row.path, row.at - row.body_offset, dledger.ENTRY.build(**head))
    damage.overwrite(row.path, row.at, record)
    damage.garble(row.path, row.at + len(record), by)


@dataclass(frozen=True, slots=True)
class Salvaged:
    """A plan that only covers damage within the logs, with what the salvage knows of its steps."""

    plan: Plan
    work: Salvage
    store: Store
    verified: Verified

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.plan.steps

    @property
    def spans(self) -> tuple[Span, ...]:
        return self.plan.spans

    @property
    def loss(self) -> Loss:
        then = examine_again(after(self.store, self.plan), VerifyOptions(jobs=1))
        loss = with_loss(self.plan, self.verified, then).loss
        return replace(loss, more={name: value for name, value in loss.more.items() if name == "at_least"})

    @property
    def decisions(self) -> tuple[str, ...]:
        return self.plan.decisions

    @property
    def notes(self) -> tuple[str, ...]:
        return self.plan.notes

    @property
    def refusals(self) -> tuple[str, ...]:
        return tuple(self.work.refusals)

    @property
    def fillers(self) -> tuple[Filler, ...]:
        return tuple(sorted(self.work.steps.fillers, key=lambda filler: filler.offset))

    @property
    def visible_fillers(self) -> int:
        return int(str(self.plan.loss.more["visible_fillers"]))

    @property
    def groups_that_will_see_them(self) -> object:
        return self.plan.loss.more["groups_that_will_see_them"]

    @property
    def rebuild_queues(self) -> frozenset[QueueName]:
        return frozenset(self.work.steps.rebuild)

    @property
    def given_up(self) -> int:
        return self.work.steps.given_up


def salvage(store: Path, *, accept_fillers: bool = False, allow_shift: bool = False, merge: bool = False) -> Salvaged:
    opened, verified = look(store)
    options = RecoverOptions(accept_fillers=accept_fillers, allow_shift=allow_shift, merge_neighbours=merge, now_ms=1)
    draft = PlanBuilder(opened)
    evidence = Evidence(opened, verified)
    ends = [reach(evidence, log) for log in verified.results]
    work = Salvage(draft, FramedRecords(evidence).solve(), options, ends)
    work.run()
    draft.facts["strategy"] = "salvage"
    return Salvaged(draft.plan(), work, opened, verified)


def apply(store: Path, result: Salvaged) -> Path:
    """Apply the steps, and return the journal."""
    plan = Plan(str(store.absolute()), result.steps, result.plan.loss, spans=result.spans)
    done = journal.apply(plan)
    assert done.journal is not None
    return done.journal


def log_faults(store: Path) -> dict[str, int]:
    """Return the counts of problems of the log and the consume queues that verify finds."""
    counts = counts_of(store)
    return {code: n for code, n in sorted(counts.items()) if n and code[:3] in ("CL-", "DL-", "CQ-", "BCQ")}
