"""What a repair does to a store with a RocksDB, which no command here writes: nothing, or it says what is then."""

from __future__ import annotations

from rmqstore.checks.queues.double_write import BEFORE_READING
from rmqstore.errors import Refused
from rmqstore.files.queue_home import QueueHome, says_where
from rmqstore.files.store import StoreKind
from rmqstore.repair.plan.plan_builder import PlanBuilder

_LEFT = (
    "the RocksDB beside the queue files is left unchanged: a broker that writes both aligns its ends with the log at "
    f"the next start, and consumers are served from the files; {BEFORE_READING}"
)
_WHICH = (
    "the store has queue files and a RocksDB of queues. If consumers are served from the RocksDB "
    "(combineCQPreferCQType), it would no longer match the log: give the broker's broker.conf with -c"
)


def refuse_or_tell(draft: PlanBuilder, *, touches_log: bool) -> None:
    """Errors: Refused where the log would have to change under rows that a broker reads."""
    store = draft.store
    rows = store.kind is StoreKind.ROCKSDB
    features = [k for k in ("timerRocksDBEnable", "transRocksDBEnable") if store.config.bool(k)]
    if (rows or features) and touches_log:
        raise Refused(
            f"the log needs a repair, and {'consume queues' if rows else ', '.join(features)} in RocksDB would no "
            "longer match it",
            "use a replica of the store, or export the readable messages",
        )
    if store.rocksdb_beside and draft.steps:
        draft.notes.append(_LEFT)
        if touches_log and says_where(store.config) is not QueueHome.FILES:
            draft.brakes.append(_WHICH)
