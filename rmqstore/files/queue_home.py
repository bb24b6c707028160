"""Decide where the consume queues of a store are: in files, in a RocksDB, or in both, and in which directory.

With storeType=defaultRocksDB it reads only the RocksDB, and files are left over from an earlier setting. With
storeType=default and rocksdbCQDoubleWriteEnable=true it writes both, and uses the files for reads and queue offsets
unless combineCQPreferCQType or combineAssignOffsetCQType choose the RocksDB. A broker keeps its configuration in JSON
files with storeType=default, and in RocksDB directories with defaultRocksDB.

The RocksDB is in consumequeue/, or since 5.5.0 in consumequeue_rocksdb/ with useSeparateStorePathForRocksdbCQ=true. A
broker that uses one of them does not start if the other directory has a file CURRENT.

Source: DefaultMessageStore and RocksDBMessageStore#createConsumeQueueStore, CombineConsumeQueueStore,
RocksDBConsumeQueueStore#<init>, BrokerController#initializeMetadata (RocketMQ 5.4.0, 5.5.1)
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.disk.files import Files

ROCKSDB = "defaultRocksDB"
SHARED, SEPARATE = "consumequeue", "consumequeue_rocksdb"
"""The directories that can have the RocksDB of the consume queues."""
DOUBLE_WRITE = "rocksdbCQDoubleWriteEnable"
LIGHT_IN_ROCKSDB = "combineCQUseRocksdbForLmq"
SELECTIVE = "rocksdbCQSelectiveDoubleWriteEnable"
PREFERRED, ASSIGNING = "combineCQPreferCQType", "combineAssignOffsetCQType"
SEPARATE_KEY = "useSeparateStorePathForRocksdbCQ"
_DATABASE_FILE = re.compile(r"CURRENT|LOCK|IDENTITY|LOG(\.old\.\d+)?|(MANIFEST|OPTIONS)-\d+(\.dbtmp)?|\d+\.[a-z]+")
_TABLES = ("topics", "subscriptionGroups", "consumerOffsets", "metadata")


class QueueHome(StrEnum):
    """Where a broker reads its consume queues from."""

    FILES = "files"
    ROCKSDB = "rocksdb"
    UNKNOWN = "unknown"


def has_database(files: Files, directory: Path) -> bool:
    """Return whether a directory contains a RocksDB, even an incomplete one."""
    if all(files.is_file(directory / name) for name in ("CURRENT", "IDENTITY")):
        return True
    try:
        return any(entry.path.name.startswith("MANIFEST-") for entry in files.list(directory))
    except OSError:
        return False


def place_is_configured(config: BrokerConfig) -> bool:
    """Return whether broker.conf says in which directory the RocksDB of the consume queues is."""
    return not config.given.keys().isdisjoint((SEPARATE_KEY, "storeType", DOUBLE_WRITE))


def is_current(files: Files, directory: Path) -> bool:
    """Return whether a directory has the file CURRENT, by which a broker recognizes a RocksDB."""
    return files.is_file(directory / "CURRENT")


def rocksdb_place(files: Files, root: Path, config: BrokerConfig) -> str:
    """Return the name of the directory with the RocksDB of the consume queues, or where a broker will create it.

    Files come before settings: what is found decides, and only if it does not, broker.conf.
    """
    found = places_found(files, root)
    if len(found) == 1:
        return found[0]
    if place_is_configured(config):
        return SEPARATE if config.bool(SEPARATE_KEY) else SHARED
    return SHARED


def places_found(files: Files, root: Path) -> list[str]:
    """Return the directories that have a RocksDB of the consume queues, or else the remains of one."""
    for evidence in (is_current, has_database, _has_remains):
        found = [name for name in (SHARED, SEPARATE) if evidence(files, root / name)]
        if found:
            return found
    return [SEPARATE] if files.is_directory(root / SEPARATE) else []


def _has_remains(files: Files, directory: Path) -> bool:
    return any(not entry.directory and is_database_file(entry.path.name) for entry in files.list(directory))


def is_database_file(name: str) -> bool:
    """Return whether RocksDB uses a file name."""
    return _DATABASE_FILE.fullmatch(name) is not None


def chooses_rocksdb(config: BrokerConfig, key: str) -> bool:
    """Return whether a setting of double write chooses the RocksDB: `PREFERRED` is read, `ASSIGNING` assigns offsets.

    Source: StoreType#fromString, CombineConsumeQueueStore#getInnerStoreByString (RocketMQ 5.5.1)
    """
    return config.text(key).lower() == ROCKSDB.lower()


def configured_home(config: BrokerConfig) -> QueueHome:
    """Return the home that broker.conf configures; UNKNOWN if it configures none, or needs both files and RocksDB."""
    given = config.given.get("storeType", "").strip()
    if given.lower() == ROCKSDB.lower():
        return QueueHome.ROCKSDB
    if not given and "rocksdbCQDoubleWriteEnable" not in config.given:
        return QueueHome.UNKNOWN
    if config.bool(DOUBLE_WRITE) and (chooses_rocksdb(config, PREFERRED) or chooses_rocksdb(config, ASSIGNING)):
        return QueueHome.UNKNOWN
    return QueueHome.FILES


def queue_home(files: Files, root: Path, config: BrokerConfig) -> QueueHome:
    """Return the home of a store with both, by broker.conf or else by the format of the broker's configuration."""
    configured = configured_home(config)
    if configured is not QueueHome.UNKNOWN or "storeType" in config.given:
        return configured
    config_in_rocksdb = any(files.is_file(root / "config" / name / "CURRENT") for name in _TABLES)
    names = ("topics.json",) if config_in_rocksdb else ("topics.json", "topics.json.bak")  # a .bak may be an old one
    config_in_json = any(files.is_file(root / "config" / name) for name in names)
    if config_in_rocksdb == config_in_json:
        return QueueHome.UNKNOWN
    return QueueHome.FILES if config_in_json else QueueHome.ROCKSDB
