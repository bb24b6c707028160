"""Which consume queues a broker reads where consumequeue/ has queues in files and a RocksDB of queues.

storeType=defaultRocksDB reads the RocksDB only; files beside it are from before. rocksdbCQDoubleWriteEnable=true with
storeType=default writes both, gives queue offsets and reads by the files, unless combineCQPreferCQType or
combineAssignOffsetCQType say otherwise. A broker with storeType=default keeps its configuration in JSON files, one with
defaultRocksDB in directories. Source: DefaultMessageStore#createConsumeQueueStore, RocksDBMessageStore
#createConsumeQueueStore, CombineConsumeQueueStore, BrokerController#initializeMetadata (RocketMQ 5.4.0).
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

from rmqstore.files.broker_config import BrokerConfig

ROCKSDB = "defaultRocksDB"
_DATABASE_FILE = re.compile(r"CURRENT|LOCK|IDENTITY|LOG(\.old\.\d+)?|(MANIFEST|OPTIONS)-\d+(\.dbtmp)?|\d+\.[a-z]+")
_TABLES = ("topics", "subscriptionGroups", "consumerOffsets", "metadata", "rdb")


class QueueHome(StrEnum):
    """Where the queues are that a broker reads."""

    FILES = "files"
    ROCKSDB = "rocksdb"
    UNKNOWN = "unknown"


def has_database(directory: Path) -> bool:
    """Whether a directory contains a RocksDB, even one that lost a file."""
    return all((directory / n).is_file() for n in ("CURRENT", "IDENTITY")) or any(directory.glob("MANIFEST-*"))


def is_database_file(name: str) -> bool:
    """Whether a file's name is one that RocksDB gives."""
    return _DATABASE_FILE.fullmatch(name) is not None


def says_where(config: BrokerConfig) -> QueueHome:
    """What broker.conf says; UNKNOWN where it says nothing of it, or that files and RocksDB are both needed."""
    given = config.given.get("storeType", "").strip()
    if given.lower() == ROCKSDB.lower():
        return QueueHome.ROCKSDB
    if not given and "rocksdbCQDoubleWriteEnable" not in config.given:
        return QueueHome.UNKNOWN
    chosen = (config.given.get(k, "") for k in ("combineCQPreferCQType", "combineAssignOffsetCQType"))
    if config.bool("rocksdbCQDoubleWriteEnable") and any(ROCKSDB.lower() in c.lower() for c in chosen):
        return QueueHome.UNKNOWN
    return QueueHome.FILES


def queue_home(root: Path, config: BrokerConfig) -> QueueHome:
    """For a store with both: by broker.conf, else by where the broker keeps its topics."""
    said = says_where(config)
    if said is not QueueHome.UNKNOWN or "storeType" in config.given:
        return said
    tables = any((root / "config" / name / "CURRENT").is_file() for name in _TABLES)
    texts = (root / "config" / "topics.json").is_file()
    if tables == texts:
        return QueueHome.UNKNOWN
    return QueueHome.FILES if texts else QueueHome.ROCKSDB
