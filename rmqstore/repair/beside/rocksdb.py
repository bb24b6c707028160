"""RocksDB directories that a repair does not write: refusals and notes about them."""

from __future__ import annotations

from rmqstore.checks.queues.double_write import BEFORE_READING
from rmqstore.errors import Refused
from rmqstore.files.store import QueueKind, Store, StoreKind
from rmqstore.files.store_queues import QueueHome, configured_home
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.texts import Text

_LEFT = Text(
    "the RocksDB beside the queue files is left unchanged: a broker that writes both aligns its "
    "ends with the log at the next start, and consumers are served from the files; "
    "{before_reading}",
    before_reading=BEFORE_READING,
)
_WHICH = Text(
    "the store has queue files and a RocksDB of queues. If consumers are served from the RocksDB "
    "(combineCQPreferCQType), it would no longer match the log: give the broker's broker.conf "
    "with -c"
)


def refuse_rows(store: Store) -> None:
    """Refuse a repair after which rows of consume queues would be wrong, if rmqstore cannot write them.

    Errors: Refused.
    """
    if store.queue_home is QueueHome.UNKNOWN and any(store.queue_directories(QueueKind.SIMPLE)):
        raise Refused(
            Text("the store has queues in files and in RocksDB, and nothing says which of them the broker reads"),
            Text("give its broker.conf with -c (storeType, rocksdbCQDoubleWriteEnable)"),
        )
    if store.kind is StoreKind.ROCKSDB and store.dledger is not None and store.dledger.data.files:
        raise Refused(
            Text(
                "the store needs a repair, after which consume queues of DLedger entries in RocksDB would no "
                "longer match the log"
            ),
            Text("use a replica of the store, or export the readable messages"),
        )


def tell_left(draft: PlanBuilder, *, touches_log: bool) -> None:
    """Add notes and a decision for a RocksDB beside queues in files that the plan leaves unchanged."""
    draft.notes.append(_LEFT)
    if touches_log and configured_home(draft.store.config) is not QueueHome.FILES:
        draft.decisions.append(_WHICH)
