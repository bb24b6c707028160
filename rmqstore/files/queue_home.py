"""Decide which consume queues a broker reads if consumequeue/ contains both queue files and a RocksDB.

With storeType=defaultRocksDB it reads only the RocksDB, and files are left over from an earlier setting. With
storeType=default and rocksdbCQDoubleWriteEnable=true it writes both, and uses the files for reads and queue offsets
unless combineCQPreferCQType or combineAssignOffsetCQType choose the RocksDB. A broker keeps its configuration in JSON
files with storeType=default, and in RocksDB directories with defaultRocksDB. Source: DefaultMessageStore and
RocksDBMessageStore#createConsumeQueueStore, CombineConsumeQueueStore, BrokerController#initializeMetadata
(RocketMQ 5.4.0)
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

from rmqstore.files.broker_config import BrokerConfig

ROCKSDB = "defaultRocksDB"
_DATABASE_FILE = re.compile(r"CURRENT|LOCK|IDENTITY|LOG(\.old\.\d+)?|(MANIFEST|OPTIONS)-\d+(\.dbtmp)?|\d+\.[a-z]+")
_TABLES = ("topics", "subscriptionGroups", "consumerOffsets", "metadata")


class QueueHome(StrEnum):
    """Where a broker reads its consume queues from."""

    FILES = "files"
    ROCKSDB = "rocksdb"
    UNKNOWN = "unknown"


def has_database(directory: Path) -> bool:
    """Return whether a directory contains a RocksDB, even an incomplete one."""
    return all((directory / n).is_file() for n in ("CURRENT", "IDENTITY")) or any(directory.glob("MANIFEST-*"))


def is_database_file(name: str) -> bool:
    """Return whether RocksDB uses a file name."""
    return _DATABASE_FILE.fullmatch(name) is not None


def configured_home(config: BrokerConfig) -> QueueHome:
    """Return the home that broker.conf configures; UNKNOWN if it configures none, or needs both files and RocksDB."""
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
    """Return the home of a store with both, by broker.conf or else by the format of the broker's configuration."""
    configured = configured_home(config)
    if configured is not QueueHome.UNKNOWN or "storeType" in config.given:
        return configured
    config_in_rocksdb = any((root / "config" / name / "CURRENT").is_file() for name in _TABLES)
    config_in_json = (root / "config" / "topics.json").is_file()
    if config_in_rocksdb == config_in_json:
        return QueueHome.UNKNOWN
    return QueueHome.FILES if config_in_json else QueueHome.ROCKSDB
