"""Which database in config/ holds topics, subscription groups and consumer offsets, if RocksDB holds them at all.

A broker keeps them in JSON files, or in one of these:

    config/topics/, subscriptionGroups/, consumerOffsets/   version 1: one database per table
    config/metadata/                                        version 1 with useSingleRocksDBForAllConfigs
    config/rdb/                                             version 2 (configManagerVersion=v2)

Source: BrokerController#initializeMetadata, RocksDBTopicConfigManager, ConfigStorage (RocketMQ 5.5.1)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rmqstore.files.store import Store
from rmqstore.formats.configuration import JsonValue

TOPICS, GROUPS, OFFSETS = "topics", "subscriptionGroups", "consumerOffsets"
TABLES = {TOPICS: "topicConfigTable", GROUPS: "subscriptionGroupTable", OFFSETS: "offsetTable"}
"""Table → its name in the corresponding JSON file."""
METADATA, V2 = "metadata", "rdb"
CONFIG_DATABASES = (*TABLES, METADATA, V2)
"""Names of the databases in config/, in the order in which brokers took to them."""
WITHOUT_POSITIONS = frozenset({"users", "acls"})
"""Databases in config/ that contain no position in a log or queue (LocalAuthenticationMetadataProvider)."""


@dataclass(slots=True)
class StoredTable:
    """A table in the form of its JSON file. `broken`: the number of rows that are not in the format of the table."""

    directory: str
    """Name of the database in config/."""
    table: str
    rows: dict[str, JsonValue] = field(default_factory=dict)
    broken: int = 0

    @property
    def as_json(self) -> dict[str, JsonValue]:
        return {TABLES[self.table]: self.rows}


def tables_in(directory: str) -> tuple[str, ...]:
    """Return the tables in a database in config/; empty for a database of another kind."""
    if directory in (METADATA, V2):
        return tuple(TABLES)
    return (directory,) if directory in TABLES else ()


def directory_of(store: Store, table: str) -> str | None:
    """Return the database in config/ that a broker reads a table from; None if it is in no RocksDB.

    If a store has several, broker.conf decides; without it, the newest form: settings usually change in this order.
    """
    found = [name for name in CONFIG_DATABASES if name in store.rocksdb_config and table in tables_in(name)]
    given = store.config.given
    wanted = found
    if "configManagerVersion" in given:
        is_v2 = given["configManagerVersion"].strip() == "v2"
        wanted = [name for name in wanted if (name == V2) == is_v2]
    if "useSingleRocksDBForAllConfigs" in given:
        single = store.config.bool("useSingleRocksDBForAllConfigs")
        wanted = [name for name in wanted if name == V2 or (name == METADATA) == single]
    usable = wanted or found
    return usable[-1] if usable else None
