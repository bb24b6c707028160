"""Finds settings and directories of consume queues in RocksDB with which a broker does not start.

Source: CombineConsumeQueueStore's and RocksDBConsumeQueueStore's constructors, RocksDBLiteLifecycleManager#init
(RocketMQ 5.3.4 to 5.5.1). Confirmed with whole brokers of 5.5.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqstore.brokers.rules.versions import BrokerRules
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import QueueKind, Store
from rmqstore.files.store_queues import (
    DOUBLE_WRITE,
    LIGHT_IN_ROCKSDB,
    ROCKSDB,
    SEPARATE,
    SEPARATE_KEY,
    SHARED,
    is_current,
    place_is_configured,
    rocksdb_place,
)
from rmqstore.texts import Text

_FILES, _DATABASE = "default", ROCKSDB.lower()
_NO_BATCH = "java.lang.ClassCastException: class org.apache.rocketmq.store.queue.CombineConsumeQueueStore"
_ILLEGAL = "java.lang.IllegalArgumentException: CombineConsumeQueue"


@dataclass(frozen=True, slots=True)
class QueueStores:
    """Where a broker keeps consume queues: in RocksDB (`rocksdb`), or in files and in RocksDB (`both`), or in files."""

    rocksdb: bool
    both: bool


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why the broker does not start, and the line in its log."""

    reason: str
    log_line: str


def database_directory(store: Store, rules: BrokerRules, config: BrokerConfig) -> str:
    """Return the directory in which the broker keeps the RocksDB of its consume queues."""
    if not rules.separate_rocksdb_queues:
        return SHARED
    if not place_is_configured(config):
        return rocksdb_place(store.files, store.root, config)
    return SEPARATE if config.bool(SEPARATE_KEY) else SHARED


def conflict(store: Store, rules: BrokerRules, config: BrokerConfig, stores: QueueStores) -> Conflict | None:
    """Return what makes the broker refuse its queue settings or directories; None if nothing does."""
    wrong = _wrong_settings(rules, config) or _batch_queues(store) if stores.both else None
    if wrong is not None or not (stores.rocksdb or stores.both) or not rules.separate_rocksdb_queues:
        return wrong
    own = database_directory(store, rules, config)
    other = SHARED if own == SEPARATE else SEPARATE
    if not is_current(store.files, store.root / other):
        return None
    return Conflict(
        Text(
            "the consume queues belong in the RocksDB in {own}/, but {other}/ contains a RocksDB, too "
            "(useSeparateStorePathForRocksdbCQ)",
            own=own,
            other=other,
        ),
        "find RocksDBConsumeQueue in original/separate path, maybe incompatible config",
    )


def _batch_queues(store: Store) -> Conflict | None:
    """Return the conflict of a batch queue with queues in files and in RocksDB.

    Source: BatchConsumeQueue's constructor (RocketMQ 5.4.0 and 5.5.1, seen with both)
    """
    found = next(iter(store.queue_directories(QueueKind.BATCH)), None)
    if found is None:
        return None
    topic, queue_id, _ = found
    return Conflict(
        Text(
            "the batch queue {topic}/{queue_id} cannot be loaded beside a RocksDB of queues ({double_write})",
            topic=topic,
            queue_id=queue_id,
            double_write=DOUBLE_WRITE,
        ),
        _NO_BATCH,
    )


def _wrong_settings(rules: BrokerRules, config: BrokerConfig) -> Conflict | None:
    """Return what is wrong with the settings of queues in files and in RocksDB."""
    given = config.text("combineCQLoadingCQTypes") or f"{_FILES};{ROCKSDB}"
    loaded = {word.strip().lower() for word in given.split(";")} & {_FILES, _DATABASE}
    if not loaded:
        return Conflict(
            Text("combineCQLoadingCQTypes names no kind of queue"), "CombineConsumeQueueStore loadingCQTypes"
        )
    chosen = {}
    for key in ("combineAssignOffsetCQType", "combineCQPreferCQType"):
        chosen[key] = (config.text(key) or _FILES).lower()
        if chosen[key] not in loaded:
            return Conflict(
                Text("{key} names a kind of queue that combineCQLoadingCQTypes does not load", key=key), _ILLEGAL
            )
    light = rules.double_write_needs_lmq and config.bool(LIGHT_IN_ROCKSDB)
    if light and _DATABASE not in loaded:
        return Conflict(Text("combineCQUseRocksdbForLmq needs queues in RocksDB (combineCQLoadingCQTypes)"), _ILLEGAL)
    selective = rules.selective_double_write and config.bool("rocksdbCQSelectiveDoubleWriteEnable")
    for key, on in (("combineCQUseRocksdbForLmq", light), ("rocksdbCQSelectiveDoubleWriteEnable", selective)):
        if on and chosen["combineAssignOffsetCQType"] != _FILES:
            return Conflict(Text("{key} needs combineAssignOffsetCQType={files}", key=key, files=_FILES), _ILLEGAL)
    if selective and chosen["combineCQPreferCQType"] != _FILES:
        return Conflict(
            Text("rocksdbCQSelectiveDoubleWriteEnable needs combineCQPreferCQType={files}", files=_FILES), _ILLEGAL
        )
    return None


def refused_after_load(rules: BrokerRules, config: BrokerConfig, stores: QueueStores) -> Conflict | None:
    """Return why a whole broker refuses to serve a store that has loaded; None if it does not.

    Source: BrokerController#initialize, RocksDBLiteLifecycleManager#init (RocketMQ 5.5.1)
    """
    if not (stores.both and config.bool(DOUBLE_WRITE)):  # inferred from the files, so that the settings are unknown
        return None
    if not rules.double_write_needs_lmq or config.bool(LIGHT_IN_ROCKSDB):
        return None
    return Conflict(
        Text("rocksdbCQDoubleWriteEnable needs combineCQUseRocksdbForLmq=true"),
        "unexpected, rocksdbCQ is not ready for LMQ.",
    )
