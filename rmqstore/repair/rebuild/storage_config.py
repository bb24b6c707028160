"""Moves topics, subscription groups and consumer offsets to where a broker reads them with another storeType.

With storeType=default a broker keeps them in JSON files, with defaultRocksDB in RocksDB. A start with RocksDB imports a
JSON file only if the counter of its data version is greater than that of the RocksDB, which often is not so: the
counter of consumer offsets grows once in 500 commits. So all rows are written here, with the version of the JSON file,
and nothing is imported later. The JSON files stay; a broker with RocksDB does not change them.

In the other direction the databases go into quarantine, and the counter grows by 1: a broker that still has
storeType=defaultRocksDB then imports the JSON files into new databases.

Source: RocksDBTopicConfigManager#merge, RocksDBSubscriptionGroupManager#merge, RocksDBConsumerOffsetManager#merge,
LmqConsumerOffsetManager#decode, BrokerController#<init> (RocketMQ 5.4.0, 5.5.1)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from rmqstore.append.rocksdb import NewDatabase
from rmqstore.errors import Refused
from rmqstore.files.config import GROUPS, METADATA, OFFSETS, TABLES, TOPICS, V2, directory_of, loaded_config
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.rocksdb.rows import FORBIDDEN, data_version, family_of, forbidden_rows, stored_table, version_row
from rmqstore.files.store import Store
from rmqstore.formats.configuration import JsonValue, build_config_json, integer_keys
from rmqstore.formats.properties import is_lmq
from rmqstore.repair.journal.disk import ScratchFolder
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.rebuild.rocksdb_swap import StagedDatabase, swap_in, unwritten
from rmqstore.texts import Text

_FILES = {TOPICS: "topics.json", GROUPS: "subscriptionGroup.json", OFFSETS: "consumerOffset.json"}
_LIGHT_OFFSETS = "lmqConsumerOffset.json"
_SINGLE = "useSingleRocksDBForAllConfigs"
Table = dict[str, JsonValue]
_NO_VERSION: Table = {"counter": 0, "stateVersion": 0, "timestamp": 0}


def uses_v2(store: Store) -> bool:
    """Return whether the broker keeps them in config/rdb with every storeType (configManagerVersion=v2)."""
    if "configManagerVersion" in store.config.given:
        return store.config.text("configManagerVersion").strip() == "v2"
    return directory_of(store, TOPICS) == V2


# --- JSON → RocksDB ---------------------------------------------------------------------------------------------------


def plan_config_rows(draft: PlanBuilder) -> None:
    """Add the steps that write the JSON files as databases.

    Errors: NoSpace, NotReadable if the library fails.
    """
    store = draft.store
    if uses_v2(store):
        return
    tables = {table: _json_table(store, table) for table in TABLES}
    single = store.config.bool(_SINGLE)
    directories = {METADATA: tuple(TABLES)} if single else {table: (table,) for table in TABLES}
    for directory, inside in directories.items():
        _write(draft, directory, {table: tables[table] for table in inside})
    for name in ({*TABLES, METADATA} - set(directories)) & set(store.rocksdb_config):
        draft.discard(store.root / "config" / name, Text("left over from another setting, and would be imported"))


def _json_table(store: Store, table: str) -> Table:
    """Return the JSON file of a table; light offsets are among the others, as in RocksDB."""
    found = loaded_config(store.files, store.root, _FILES[table], lambda one: one) or {}
    if table != OFFSETS:
        return found
    light = loaded_config(store.files, store.root, _LIGHT_OFFSETS, lambda one: one)
    if light is None or ("enableLmq" in store.config.given and not store.config.bool("enableLmq")):
        return found
    rows = {**_object(found.get("offsetTable")), **_object(light.get("offsetTable"))}
    rows |= {key: {"0": offset} for key, offset in _object(light.get("lmqOffsetTable")).items()}
    newest = max((found, light), key=lambda one: _counter(one.get("dataVersion")))
    return {"dataVersion": newest.get("dataVersion"), "offsetTable": rows}


def _write(draft: PlanBuilder, directory: str, tables: Mapping[str, Table]) -> None:
    folder = ScratchFolder()
    rows: dict[str, dict[bytes, bytes]] = {}
    for table, content in tables.items():
        found = rows.setdefault(family_of(directory, table), {})
        for name, value in _object(content.get(TABLES[table])).items():
            shown = {TABLES[OFFSETS]: _texts(value)} if table == OFFSETS else value
            found[_bytes(name)] = _compact(shown)
        version, key = version_row(directory, table)
        rows.setdefault(version, {})[key] = _compact(_version(content))
        if table == GROUPS:
            forbidden = _object(content.get("forbiddenTable"))
            if forbidden:
                rows[FORBIDDEN] = {_bytes(name): _compact(value) for name, value in forbidden.items()}
    try:
        new = NewDatabase(folder.path / directory, list(dict.fromkeys(("default", *rows))))
        for family, found in rows.items():
            keys = sorted(found)
            new.put(family, keys, [found[key] for key in keys])
        files = new.finish()
    except CannotRead as e:
        raise unwritten(e) from e
    why = _why(", ".join(tables))
    swap_in(draft, draft.store.root / "config" / directory, StagedDatabase(new, files, folder), why)


def _why(content: str) -> str:
    return Text("{content}, which a broker with this storeType reads here", content=content)


def _texts(value: JsonValue) -> JsonValue:
    return {str(key): offset for key, offset in value.items()} if isinstance(value, dict) else value


def _compact(value: JsonValue) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


# --- RocksDB → JSON ---------------------------------------------------------------------------------------------------


def plan_config_files(draft: PlanBuilder) -> None:
    """Add the steps that write the databases as JSON files.

    Errors: Refused for a database that cannot be read completely.
    """
    store = draft.store
    if uses_v2(store):
        return
    config = store.root / "config"
    like = next((e.path for e in store.files.list(config) if e.regular and e.path.suffix == ".json"), None)
    for table, name in _FILES.items():
        directory = directory_of(store, table)
        if directory is None:
            continue
        content = _stored(store, directory, table)
        _replace(draft, config / name, content, like)
        if table == OFFSETS and _has_light(store, content):
            _replace(draft, config / _LIGHT_OFFSETS, _with_light(content), like)
    for name in sorted({*TABLES, METADATA} & set(store.rocksdb_config)):
        draft.discard(config / name, Text("the broker will read JSON files"))


def _stored(store: Store, directory: str, table: str) -> Table:
    try:
        found = stored_table(store, directory, table)
        version = _NO_VERSION | data_version(store, directory, table)
        forbidden = forbidden_rows(store, directory) if table == GROUPS else {}
    except CannotRead as e:
        raise Refused(
            Text("config/{directory} cannot be read: {e}", directory=directory, e=e),
            Text("run `rmqstore recover` first"),
        ) from e
    if found.broken:
        raise Refused(
            Text("config/{directory} has {broken} rows that cannot be read", directory=directory, broken=found.broken),
            Text("run `rmqstore verify`"),
        )
    version["counter"] = _counter(version) + 1
    out: Table = {"dataVersion": version}
    if table == GROUPS:
        out["forbiddenTable"] = forbidden
    out[TABLES[table]] = found.rows
    return out


def _has_light(store: Store, content: Table) -> bool:
    """Return whether a broker may read lmqConsumerOffset.json: with enableLmq it reads no other offsets."""
    rows = _object(content[TABLES[OFFSETS]])
    known = store.config.bool("enableLmq") or store.files.is_file(store.root / "config" / _LIGHT_OFFSETS)
    return known or any(is_lmq(key.partition("@")[0]) for key in rows)


def _with_light(content: Table) -> Table:
    """Return the offsets as lmqConsumerOffset.json: groups that are light queues have one offset per topic."""
    rows = _object(content[TABLES[OFFSETS]])
    light = {key for key in rows if is_lmq(key.rpartition("@")[2])}
    return {
        "dataVersion": content["dataVersion"],
        "lmqOffsetTable": {key: _object(rows[key]).get("0", 0) for key in light},
        "offsetTable": {key: value for key, value in rows.items() if key not in light},
    }


def _replace(draft: PlanBuilder, path: Path, content: Table, like: Path | None) -> None:
    model = path if draft.store.files.is_file(path) else like
    offsets = TABLES[OFFSETS]
    shown = (
        {**content, offsets: {k: integer_keys(_object(v)) for k, v in _object(content[offsets]).items()}}
        if (offsets in content)
        else content
    )
    raw = build_config_json(shown)
    draft.replace(path, raw, _why(path.stem), old=Text("replaced by the content of the database"), like=model)


def _version(content: Table) -> Table:
    return _NO_VERSION | _object(content.get("dataVersion"))


def _counter(version: JsonValue) -> int:
    counter = _object(version).get("counter")
    return counter if isinstance(counter, int) else 0


def _object(value: JsonValue) -> Table:
    return value if isinstance(value, dict) else {}
