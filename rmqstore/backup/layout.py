"""What of a store cannot be told from its log, so that a restored store gets the same form."""

from __future__ import annotations

from rmqstore.backup.manifest import StoreLayout
from rmqstore.files.broker_config import DEFAULTS, BrokerConfig
from rmqstore.files.index import index_sizes
from rmqstore.files.store import Store, StoreKind
from rmqstore.files.store_queues import SEPARATE, SEPARATE_KEY, SIZE_KEY
from rmqstore.texts import Text

_EPOCHS = "epochFileCheckpoint"


def layout_of(store: Store) -> StoreLayout:
    """Return the form of a store: the sizes of its files, where its queues are, and the settings that matter for them.

    Only settings about files and dispatch are taken, so that no address, path or credential gets into a repository.
    """
    settings = {key: value for key, value in store.config.given.items() if key in DEFAULTS}
    for kind, key in SIZE_KEY.items():
        if (size := store.queue_file_size(kind)) is not None:
            settings[key] = str(size)
    if store.logs:
        settings["mappedFileSizeCommitLog"] = str(store.logs[-1][0].file_size)
    if (sizes := index_sizes(store)) is not None:
        settings["maxHashSlotNum"], settings["maxIndexNum"] = map(str, sizes)
    if store.timer_log is not None and store.timer_log.files:
        settings["mappedFileSizeTimerLog"] = str(store.timer_log.file_size)
    rocksdb = store.kind is StoreKind.ROCKSDB
    beside = not rocksdb and store.rocksdb_beside
    if rocksdb:  # without its database, nothing else may say so
        settings["storeType"] = "defaultRocksDB"
    if (rocksdb or beside) and store.rocksdb_directory.name == SEPARATE:
        settings[SEPARATE_KEY] = "true"
    return StoreLayout(
        store.kind.value,
        store.dledger.self_id if store.dledger is not None else "",
        "rocksdb" if rocksdb else "both" if beside else "files",
        store.rocksdb_directory.name if rocksdb or beside else "",
        bool(store.index_files),
        _EPOCHS in store.top,
        dict(sorted(settings.items())),
    )


def config_of(layout: StoreLayout) -> BrokerConfig:
    """Return the settings with which a restored store is read."""
    return BrokerConfig(layout.settings, Text("the snapshot"))
