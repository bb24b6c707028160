"""RocksDB directories that a repair does not write: refusals and notes about them."""

from __future__ import annotations

from rmqstore.checks.queues.double_write import BEFORE_READING
from rmqstore.errors import Refused
from rmqstore.files.queue_home import QueueHome, configured_home
from rmqstore.files.store import QueueKind, Store, StoreKind
from rmqstore.repair.plan.plan_builder import PlanBuilder

_LEFT = (
    "the RocksDB beside the queue files is left unchanged: a broker that writes both aligns its ends with the log at "
    f"the next start, and consumers are served from the files; {BEFORE_READING}"
)
_WHICH = (
    "the store has queue files and a RocksDB of queues. If consumers are served from the RocksDB "
    "(combineCQPreferCQType), it would no longer match the log: give the broker's broker.conf with -c"
)
_FEATURES = ("timerRocksDBEnable", "transRocksDBEnable")
_ROWS = "rocksdbstore"


def row_features(store: Store) -> list[str]:
    """Return the settings by which the broker keeps rows of timed or half messages in rocksdbstore/."""
    return [key for key in _FEATURES if _ROWS in store.top and store.config.bool(key)]


def tell_rows(draft: PlanBuilder) -> None:
    """Add a note for rows that stay although bytes of the log change.

    A row has the offset and the size of its message, and a repair in place changes neither. A broker that reads a
    filler there finds no real topic, logs an error, and drops the row.
    Source: TimerMessageRocksDBStore#convertMessage, TransactionalMessageRocksDBService#sendCheckMessage (5.4.0)
    """
    if features := row_features(draft.store):
        draft.notes.append(
            f"rows of {' and '.join(features)} in {_ROWS}/ are not read, and stay: they hold offsets and sizes of "
            "messages, which do not change"
        )


def refuse_rows(store: Store, *, shrinks: bool) -> None:
    """Refuse a repair after which rows that a broker reads would be wrong, if rmqstore cannot write them.

    `shrinks`: the repaired log ends before messages that it had.
    Errors: Refused.
    """
    if store.queue_home is QueueHome.UNKNOWN and any(store.queue_directories(QueueKind.SIMPLE)):
        raise Refused(
            "the store has queues in files and in RocksDB, and nothing says which of them the broker reads",
            "give its broker.conf with -c (storeType, rocksdbCQDoubleWriteEnable)",
        )
    if store.kind is StoreKind.ROCKSDB and store.dledger is not None and store.dledger.data.files:
        raise Refused(
            "the store needs a repair, after which consume queues of DLedger entries in RocksDB would no longer match "
            "the log",
            "use a replica of the store, or export the readable messages",
        )
    if shrinks and (features := row_features(store)):
        raise Refused(
            f"the log will end earlier, and rows of {' and '.join(features)} in {_ROWS}/ may point behind its new end: "
            "a broker ignores new half messages until the log has grown past it",
            _way_out(store),
        )


def _way_out(store: Store) -> str:
    """Return the advice for a shorter log; if queues are complete, no start recreates the rows of half messages."""
    replica = "use --replica with --extend"
    if store.config.bool("transRocksDBEnable") and not store.config.bool("transWriteOriginTransHalfEnable"):
        return (
            f"{replica}; otherwise, first let the broker finish the open transactions: nothing makes their rows again"
        )
    return (
        f"{replica}; or move {_ROWS}/ out of the store and run this command again: the broker reads the timer topic "
        "from its beginning, and delivers messages whose time has passed once more"
    )


def tell_left(draft: PlanBuilder, *, touches_log: bool) -> None:
    """Add notes and a decision for a RocksDB beside queues in files that the plan leaves unchanged."""
    draft.notes.append(_LEFT)
    if touches_log and configured_home(draft.store.config) is not QueueHome.FILES:
        draft.decisions.append(_WHICH)
