"""Rows of the RocksDB databases that are not queues: the broker's configuration, rocksdbstore/ and kvStore/.

Configuration has the form of the JSON files (`stored_table`). rocksdbstore/ has rows of timed messages, half messages
and the index, since 5.4.0. kvStore/ has the messages that POP consumers have received and not acknowledged.

Source: RocksDBTopicConfigManager, RocksDBSubscriptionGroupManager, RocksDBConsumerOffsetManager and the managers of
version 2 (RocketMQ 5.5.1); MessageRocksDBStorage (5.4.0 and 5.5.1); PopConsumerRocksdbStore (5.5.1)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from rmqstore.files.config import GROUPS, METADATA, OFFSETS, TABLES, TOPICS, V2, StoredTable
from rmqstore.files.files import Files
from rmqstore.files.rocksdb.database import CHUNK, Database, NoDatabase, open_database
from rmqstore.files.store import MESSAGE_ROWS, Store
from rmqstore.formats import configuration
from rmqstore.formats.configuration import ConfigJsonError, JsonValue, parse_config_object
from rmqstore.formats.javatext import java_text
from rmqstore.formats.pop import KV_DIRECTORY, KV_FAMILY, PopRow, parse_pop_row
from rmqstore.formats.rocksdbstore import (
    FAMILIES,
    FIRST_NAME,
    LAST_OFFSET,
    POSITION_KEYS,
    TIMELINE,
    TIMER_FAMILY,
    TIMER_KEY,
    is_name,
    parse_position,
)

_DEFAULT, _DEFAULT_VERSION = "default", "kvDataVersion"
_FAMILIES = {TOPICS: "topic", GROUPS: "subscriptionGroup", OFFSETS: "consumerOffset"}  # of metadata/
_VERSION_KEY = b"kvDataVersionKey"
FORBIDDEN = "forbidden"
"""Column family of subscriptionGroups/ and metadata/: what a group may not read, by topic."""
_TABLE_IDS = {
    TOPICS: configuration.TOPIC,
    GROUPS: configuration.SUBSCRIPTION_GROUP,
    OFFSETS: configuration.CONSUMER_OFFSET,
}


def stored_table(store: Store, directory: str, table: str) -> StoredTable:
    """Read a table from a database in config/, in the form of its JSON file. Errors: CannotRead."""
    out = StoredTable(directory, table)
    for keys, values in table_rows(store.files, store.root / "config" / directory, table):
        for key, value in zip(keys, values, strict=True):
            row = parse_row(directory, table, key, value)
            if row is None:
                out.broken += 1
                continue
            name, content = row
            known = out.rows.get(name)
            if isinstance(known, dict) and isinstance(content, dict):  # a row of version 2 has one queue
                known.update(content)
            else:
                out.rows[name] = content
    return out


def table_rows(files: Files, directory: Path, table: str) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Yield keys and values of a table, then check that its data version is readable too.

    A missing column family has no rows: the broker creates it. Errors: CannotRead.
    Source: RocksDBConfigManager#loadData, #loadDataVersion (RocketMQ 5.5.1)
    """
    database = open_database(files, directory)
    if directory.name == V2:
        yield from database.chunks(_DEFAULT, *configuration.key_range(_TABLE_IDS[table]))
        return
    family = family_of(directory.name, table)
    version, key = version_row(directory.name, table)
    if family in database.families:
        yield from database.chunks(family)
    if version in database.families:
        database.value(version, key)


def version_row(directory: str, table: str) -> tuple[str, bytes]:
    """Return column family and key of the data version of a table in a database of version 1."""
    return (f"{family_of(directory, table)}Version" if directory == METADATA else _DEFAULT_VERSION), _VERSION_KEY


def data_version(store: Store, directory: str, table: str) -> dict[str, JsonValue]:
    """Return the data version of a table in a database of version 1; empty if it has none. Errors: CannotRead."""
    database = open_database(store.files, store.root / "config" / directory)
    family, key = version_row(directory, table)
    value = database.value(family, key) if family in database.families else None
    return (_json(value) or {}) if value is not None else {}


def forbidden_rows(store: Store, directory: str) -> dict[str, JsonValue]:
    """Return what groups may not read, in the form of subscriptionGroup.json. Errors: CannotRead."""
    database = open_database(store.files, store.root / "config" / directory)
    rows: dict[str, JsonValue] = {}
    for keys, values in database.chunks(FORBIDDEN) if FORBIDDEN in database.families else ():
        rows |= {java_text(key): _json(value) for key, value in zip(keys, values, strict=True)}
    return rows


def family_of(directory: str, table: str) -> str:
    """Return the column family of a table in a database in config/."""
    return _FAMILIES[table] if directory == METADATA else _DEFAULT


def parse_row(directory: str, table: str, key: bytes, value: bytes) -> tuple[str, JsonValue] | None:
    """Parse a row as (name, value) of the JSON file; None if it has another form.

    An offset of version 2 has one queue per row, so several rows have the same name. Its database also contains rows of
    other tables.
    """
    if directory == V2:
        if not key.startswith(configuration.KEY_HEAD.build(table=_TABLE_IDS[table])):
            return None
        return _parse_v2_offset(key, value) if table == OFFSETS else _parse_v2(key, value)
    parsed = _json(value)
    if parsed is None:
        return None
    return java_text(key), parsed.get(TABLES[OFFSETS], {}) if table == OFFSETS else parsed


def offset_key(directory: str, group: str, topic: str, queue_id: int) -> bytes:
    """Return the key of the row with an offset; except in version 2, it is the same for all queues of the topic."""
    if directory != V2:
        return f"{topic}@{group}".encode()
    names = {"group_length": len(group.encode()), "group": group.encode()}
    names |= {"topic_length": len(topic.encode()), "topic": topic.encode()}
    head = configuration.KEY_HEAD.build(table=configuration.CONSUMER_OFFSET)
    return head + configuration.OFFSET_KEY.build(names, queue_id=queue_id)


def build_offsets(directory: str, queues: JsonValue) -> bytes:
    """Return the value of a row of consumer offsets, for the queues that `parse_row` gave for it."""
    if directory == V2:
        assert isinstance(queues, dict)
        (offset,) = queues.values()
        return configuration.OFFSET_VALUE.build(offset=offset)
    return json.dumps({TABLES[OFFSETS]: queues}, separators=(",", ":"), ensure_ascii=False).encode()


def _parse_v2(key: bytes, value: bytes) -> tuple[str, JsonValue] | None:
    name, text = configuration.parse_name(key), configuration.parse_json_value(value)
    parsed = None if text is None else _json(text)
    return None if name is None or parsed is None else (java_text(name), parsed)


def _parse_v2_offset(key: bytes, value: bytes) -> tuple[str, JsonValue] | None:
    place, offset = configuration.parse_offset_place(key), configuration.parse_offset(value)
    if place is None or offset is None:
        return None
    return f"{java_text(place.topic)}@{java_text(place.group)}", {str(place.queue_id): offset}


def _json(text: bytes) -> dict[str, JsonValue] | None:
    try:
        return parse_config_object(text)
    except ConfigJsonError:
        return None


DIRECTORY = MESSAGE_ROWS
Rows = tuple[list[bytes], list[bytes]]


class MessageRows:
    """The open database of rocksdbstore/. A family that the database lacks has no rows.

    Errors: CannotRead if the database cannot be opened, and from every method that reads.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    @staticmethod
    def open(store: Store) -> MessageRows:
        """Open the rows of a store, which may have none. Errors: CannotRead."""
        return MessageRows.of(store) or MessageRows(NoDatabase(store.root / DIRECTORY, FAMILIES))

    @staticmethod
    def of(store: Store) -> MessageRows | None:
        """Return the rows of a store; None if it cannot have any. Errors: CannotRead."""
        return MessageRows(open_database(store.files, store.root / DIRECTORY)) if store.may_have_message_rows else None

    @property
    def unknown_families(self) -> list[str]:
        """Column families that no known broker has."""
        return sorted(set(self.database.families) - set(FAMILIES))

    def chunks(self, family: str, start: bytes = b"", count: int = CHUNK) -> Iterator[Rows]:
        """Yield keys and values of a family in key order, with its position keys, from `start` on."""
        if family in self.database.families:
            yield from self.database.chunks(family, start, count=count)

    def rows(self, family: str, count: int = CHUNK) -> Iterator[Rows]:
        """Yield keys and values of the rows of messages, in key order, without the keys that are names."""
        for keys, values in self.chunks(family, count=count):
            if keys and keys[-1] >= FIRST_NAME:
                kept = [i for i, key in enumerate(keys) if not is_name(key)]
                keys, values = [keys[i] for i in kept], [values[i] for i in kept]
            yield keys, values

    def unknown_names(self, family: str) -> dict[bytes, bytes]:
        """Return the keys of a family that are names, but that no known broker writes, with their values."""
        return {
            key: value
            for keys, values in self.chunks(family, FIRST_NAME)
            for key, value in zip(keys, values, strict=True)
            if is_name(key) and key not in POSITION_KEYS[family]
        }

    def count(self, family: str) -> int:
        """Return the number of rows of a family."""
        return sum(len(keys) for keys, _ in self.rows(family))

    def pending_timers(self) -> int:
        """Return the number of rows of timed messages that are still to be delivered."""
        start = TIMER_KEY.build(deliver_time=max(self.position(TIMER_FAMILY, TIMELINE) or 0, 0))
        return sum(not is_name(key) for keys, _ in self.chunks(TIMER_FAMILY, start) for key in keys)

    def stored(self, family: str, key: bytes) -> bytes | None:
        """Return the bytes of a position key; None if it is missing."""
        return self.database.value(family, key) if family in self.database.families else None

    def position(self, family: str, key: bytes) -> int | None:
        """Return the value of a position key; None if it is missing, or too short for a number."""
        value = self.stored(family, key)
        return None if value is None else parse_position(value)


def last_offset(store: Store, family: str) -> int | None:
    """Return `lastOffsetPy` of the family `trans` or `default` (the index), a log offset; None if it is not stored.

    A dispatch before this offset writes no row. Since 5.5.0, it also limits where a start begins to dispatch, if
    transRocksDBEnable or indexRocksDBEnable is true.

    Errors: CannotRead, also without the extra `rocksdb`.
    Source: MessageRocksDBStorage#getLastOffsetPy, CommitLogDispatchStore#getDispatchFromPhyOffset (RocketMQ 5.5.1)
    """
    rows = MessageRows.of(store)
    return None if rows is None else rows.position(family, LAST_OFFSET)


def access_rows(files: Files, directory: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of each row of config/users/ or config/acls/: a user or a subject, and JSON.

    Errors: CannotRead. Source: LocalAuthenticationMetadataProvider#initialize (RocketMQ 5.5.1)
    """
    for keys, values in open_database(files, directory).chunks("default"):
        yield from zip(keys, values, strict=True)


def pop_rows(store: Store) -> Iterator[tuple[bytes, bytes, PopRow | None]]:
    """Yield key, value and content of each row of kvStore/; the content is None if it has another form.

    Errors: CannotRead.
    """
    if not store.has_pop_rows:
        return
    database = open_database(store.files, store.root / KV_DIRECTORY)
    if KV_FAMILY in database.families:
        for keys, values in database.chunks(KV_FAMILY):
            yield from zip(keys, values, map(parse_pop_row, keys, values), strict=True)
