"""plan_rebuild: rebuilds one part of a store from the log, whether or not a verification finds problems in it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rmqstore.brokers.rules import rules_for
from rmqstore.brokers.writer import writer_of
from rmqstore.checks.beside.checkpoint import stale_position
from rmqstore.checks.verified import Verified
from rmqstore.documents.content import Literal
from rmqstore.documents.plan import Plan
from rmqstore.errors import Refused, UsageError
from rmqstore.files.store import Store, StoreKind
from rmqstore.formats.checkpoint import FILE_SIZE, STORE_CHECKPOINT, StoreCheckpoint, parse_checkpoint
from rmqstore.formats.consumequeue import QueueName, parse_queue_label
from rmqstore.repair.beside.checkpoint import KeptEnd, fit_checkpoint
from rmqstore.repair.beside.dledger import IndexPlan
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.plan.recover_options import offset_decisions
from rmqstore.repair.rebuild.consume_queues import LogUnits, RebuildChoices, plan_queue_files
from rmqstore.repair.rebuild.index import IndexRebuild
from rmqstore.repair.rebuild.rocksdb import refuse_rows, tell_left
from rmqstore.repair.repaired_log import RepairedLog, end_of, last_record_start
from rmqstore.repair.salvage.evidence import Evidence
from rmqstore.repair.salvage.framed import FramedRecords
from rmqstore.repair.salvage.solve import reach
from rmqstore.repair.store_guard import data_roots, refuse_overlap, refuse_whole
from rmqstore.repair.unrepaired import note_contradicted, unrebuilt_problems
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.repair.rebuild.storage import Storage

CQ, INDEX, CHECKPOINT, DLEDGER_INDEX = "cq", "index", "checkpoint", "dledger-index"
ROWS_BESIDE = "cq-rows"
"""The RocksDB of a broker with double write, in a store that has lost it."""


def plan_rebuild(
    store: Store,
    verified: Verified,
    part: str,
    *,
    topics: frozenset[str] = frozenset(),
    queue_ids: frozenset[int] = frozenset(),
    queues: frozenset[QueueName] = frozenset(),
    storage: Storage | None = None,
) -> Plan:
    """Plan to rebuild a part; for `cq`, only queues of these topics, queue ids, or (topic, queue id) pairs.

    `storage`: where the queues will be; None: where they are.

    Errors: UsageError; Refused without a log from which to rebuild, and if the library for RocksDB is missing.
    """
    _refuse_unknown(part)
    refuse_whole(store, verified)
    refuse_overlap(store)
    results = verified.results
    if not any(r.messages for r in results):
        raise Refused(Text("the log has no good message from which to rebuild"), Text("run `rmqstore verify` on it"))
    if part != CQ and (topics or queue_ids or queues):
        raise UsageError(Text("--topic and --queue are for consume queues"), Text("leave them out"))
    if storage is not None and (part != CQ or topics or queue_ids or queues):
        raise UsageError(
            Text("--storage converts all consume queues"), Text("use it with cq, without --topic and --queue")
        )
    draft = PlanBuilder(store)
    proved, views = proved_log(draft, verified)
    if storage is not None:
        from rmqstore.repair.rebuild.storage import plan_storage

        plan_storage(draft, verified, views, storage)
        _queue_ends(draft, verified, end_of(views), files=storage == "files")
    elif part == CQ:
        draft.decisions.extend(offset_decisions(results))
        wanted = _chosen(store, verified, topics, queue_ids, queues)
        _queues(draft, verified, views, RebuildChoices(wanted, deleted_too=bool(topics or queues)))
    elif part == ROWS_BESIDE:
        from rmqstore.repair.rebuild.rocksdb_queues import plan_beside

        plan_beside(draft, verified, views, RebuildChoices())
    elif part == INDEX:
        IndexRebuild(draft, verified, views, everything=True).plan()
    elif part == CHECKPOINT:
        _checkpoint(draft, verified, end_of(views))
    elif store.dledger is not None and verified.dledger is not None:
        IndexPlan(draft, store.dledger, views[-1]).run()
    else:
        raise Refused(Text("this store has no DLedger entries"), Text("rebuild cq, index or checkpoint"))
    if part in (CQ, INDEX):
        proved.note(draft, views)
        note_contradicted(draft, verified, views)
    draft.facts["part"] = part
    if verified.misplaced is not None and verified.misplaced.store.is_rearranged:
        draft.notes.append(
            Text(
                "log files have wrong names: rename them with `rmqstore recover` too; the result assumes the "
                "right names"
            )
        )
    for result in results:
        if result.tiling.first_bad() is not None:
            draft.notes.append(Text("{queue} is damaged: `rmqstore recover` repairs it first", queue=result.queue.name))
    if not verified.report.clean:
        draft.facts["stays"] = unrebuilt_problems(CQ if part == ROWS_BESIDE else part, verified.report, draft)
    return draft.plan(data_roots(store))


def proved_log(draft: PlanBuilder, verified: Verified) -> tuple[FramedRecords, list[RepairedLog]]:
    """Return what the rest of the store proves about damaged records, and the logs with these records as they were."""
    evidence = Evidence(draft.store, verified, mends_end=False)
    proved = FramedRecords(evidence).solve()
    return proved, [proved.view(log, reach(evidence, log), draft) for log in verified.results]


def _refuse_unknown(part: str) -> None:
    if part not in (CQ, ROWS_BESIDE, INDEX, CHECKPOINT, DLEDGER_INDEX):
        raise UsageError(
            Text("unknown part {part!r}", part=part),
            Text(
                "use {cq}, {index}, {checkpoint} or {dledger_index}",
                cq=CQ,
                index=INDEX,
                checkpoint=CHECKPOINT,
                dledger_index=DLEDGER_INDEX,
            ),
        )


def _queues(draft: PlanBuilder, verified: Verified, views: list[RepairedLog], choices: RebuildChoices) -> None:
    store = draft.store
    if store.kind is StoreKind.ROCKSDB:
        refuse_rows(store)
        from rmqstore.repair.rebuild.rocksdb_queues import plan_rows

        plan_rows(draft, verified, views, choices)
    else:
        plan_queue_files(LogUnits(draft, verified, views, choices))
    if store.rocksdb_beside:
        from rmqstore.repair.rebuild.rocksdb_queues import plan_beside

        if not plan_beside(draft, verified, views, choices) and draft.steps:
            tell_left(draft, touches_log=False)


def _chosen(
    store: Store, verified: Verified, topics: frozenset[str], ids: frozenset[int], pairs: frozenset[QueueName]
) -> frozenset[QueueName] | None:
    """Return the queues of the log and on disk that the arguments select; None for all queues.

    Errors: UsageError if they select none.
    """
    if not (topics or ids or pairs):
        return None
    known = store.names_in_files().union(verified.logs.queues)
    known.update(name for label in verified.report.queues if (name := parse_queue_label(label)) is not None)
    for result in verified.logs.results:
        known.update(result.batches)
    wanted = frozenset(
        name
        for name in known
        if name in pairs or ((topics or ids) and (not topics or name[0] in topics) and (not ids or name[1] in ids))
    )
    if not wanted:
        raise UsageError(Text("no such queue"), Text("`rmqstore info` lists the queues"))
    return wanted


def _checkpoint(draft: PlanBuilder, verified: Verified, end: int) -> None:
    last = max((r.max_time for r in verified.logs.results), default=0)
    if draft.store.checkpoint is not None:
        complete = not any(part.missing for part in verified.logs.queues.values())
        stale = complete and stale_position(draft.store, verified.logs) is not None
        kept = KeptEnd(last, end, last_record_start(verified.logs, end), stale)
        if draft.store.part is None:
            fit_checkpoint(draft, kept)
        return
    # brokers of 5.5.0 and newer with enableAcceleratedRecovery do not start without it after a crash; others ignore it
    newer = rules_for(writer_of(draft.store).newest).logics_offset and not draft.store.rocksdb_consume_queue
    offset = last_record_start(verified.logs, end) if newer else 0
    content = StoreCheckpoint(last, last, 0, 0, 0, offset).build()
    draft.create(draft.store.root / "checkpoint", FILE_SIZE, Literal(content), Text("the log's last store time"))


def _queue_ends(draft: PlanBuilder, verified: Verified, end: int, *, files: bool) -> None:
    """Set the time and the offset up to which queue files are complete: the last message, or 0 without queue files.

    A broker with RocksDB queues never sets them. Brokers before 5.5.0 do not know the offset, and leave it 0.
    Source: StoreCheckpoint, RocksDBConsumeQueueStore (RocketMQ 5.4.0, 5.5.1)
    """
    store = draft.store
    entry = store.checkpoint
    if entry is None or entry.length != FILE_SIZE:
        return
    size = STORE_CHECKPOINT.size
    raw = store.files.read_at(entry.path, size, 0)
    time = offset = 0
    if files:
        time = max((result.max_time for result in verified.logs.results), default=0)
        if rules_for(writer_of(store).newest).logics_offset:
            offset = last_record_start(verified.logs, end)
    wanted = replace(parse_checkpoint(raw), logics_msg_timestamp=time, logics_physical_offset=offset).build()[:size]
    if wanted != raw:
        draft.overwrite(entry.path, 0, Literal(wanted), Text("how far the queue files are complete"))
