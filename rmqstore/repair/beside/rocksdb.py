"""What a repair does to a store with a RocksDB, which no command here writes: nothing, or it says what is then."""

from __future__ import annotations

from rmqstore.checks.queues.double_write import BEFORE_READING
from rmqstore.errors import Refused
from rmqstore.files.queue_home import QueueHome, says_where
from rmqstore.files.store import StoreKind
from rmqstore.repair.plan.plan_builder import PlanBuilder

_LEFT = (
    "the RocksDB beside the queue files is left as it is: a broker that writes both brings its ends to the log's at "
    f"the next start, and consumers get what the files say; {BEFORE_READING}"
)
_WHICH = (
    "a RocksDB stands beside the queue files, and the store alone does not tell whether consumers are served from it "
    "(combineCQPreferCQType), where it would no longer fit the log: give the broker's broker.conf with -c"
)


def refuse_or_tell(draft: PlanBuilder, *, touches_log: bool) -> None:
    """Errors: Refused where the log would have to change under rows that a broker reads."""
    store = draft.store
    rows = store.kind is StoreKind.ROCKSDB
    features = [k for k in ("timerRocksDBEnable", "transRocksDBEnable") if store.config.bool(k)]
    if (rows or features) and touches_log:
        raise Refused(
            f"the log needs a repair, and {'consume queues' if rows else ', '.join(features)} in RocksDB would no "
            "longer fit it",
            "take the store's replica, or export what is readable",
        )
    if store.rocksdb_beside and draft.steps:
        draft.notes.append(_LEFT)
        if touches_log and says_where(store.config) is not QueueHome.FILES:
            draft.brakes.append(_WHICH)
