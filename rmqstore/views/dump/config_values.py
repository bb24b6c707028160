"""Summaries of a store's configuration for `info`: the broker's JSON files, and configuration in RocksDB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rmqstore.files.files import DirEntry
from rmqstore.files.store import Store
from rmqstore.formats import configuration
from rmqstore.texts import Text

_MAX_SIZE = 64 << 20  # larger files are not read


def config_files(store: Store) -> Iterator[DirEntry]:
    """Yield the broker's JSON files, without `.bak` files."""
    files = store.files
    if store.part == "config":
        entry = files.examined(store.path)
        if entry is not None and entry.regular:
            yield entry
            return
        folder = store.path
    elif store.part is None:
        folder = store.root / "config"
    else:
        return
    yield from (entry for entry in files.list(folder) if entry.regular and entry.path.suffix == ".json")


# file → (the table in it, what its entries are)
_TABLES = {
    "topics.json": ("topicConfigTable", "topics"),
    "subscriptionGroup.json": ("subscriptionGroupTable", "groups"),
    "consumerOffset.json": ("offsetTable", Text("topic@group pairs")),
    "delayOffset.json": ("offsetTable", Text("delay levels")),
    "consumerFilter.json": ("filterDataByTopic", "topics"),
}


def config_tables(store: Store) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name, summary) of each JSON file: its bytes, its condition, and the number of entries of its table."""
    for path, size, *_ in config_files(store):
        if size > _MAX_SIZE:
            yield path.name, {"bytes": size, "condition": Text("too large to read here")}
            continue
        raw = store.files.read_at(path, _MAX_SIZE, 0)
        row: dict[str, Any] = {"bytes": len(raw), "condition": configuration.ConfigState.SOUND.value}
        try:
            value = configuration.parse_config_object(raw)
        except configuration.ConfigJsonError as e:
            row["condition"] = e.condition.value
        else:
            key, what = _TABLES.get(path.name, ("", ""))
            table = value.get(key)
            if isinstance(table, dict):
                row |= {"entries": len(table), "what": what}
        yield path.name, row


# table in RocksDB → what its rows are
_ROWS = {"topics": "topics", "subscriptionGroups": "groups", "consumerOffsets": Text("topic@group pairs")}


def rocksdb_config_tables(store: Store, problems: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name, summary) of each table in RocksDB; adds what cannot be read to `problems`.

    The bytes are those of the database, which may contain several tables.
    """
    from rmqstore.files.config import WITHOUT_POSITIONS, tables_in
    from rmqstore.files.rocksdb.database import CannotRead, is_readable

    for name in store.rocksdb_config:
        if name in WITHOUT_POSITIONS:
            continue
        if not tables_in(name) or not is_readable():
            problems.append(Text("config/{name} is a RocksDB database: not read", name=name))
            continue
        from rmqstore.views.dump.rocksdb import config_entries

        try:
            size, rows = config_entries(store, name)
        except (CannotRead, OSError) as e:
            problems.append(Text("config/{name} is a RocksDB database that cannot be read: {e}", name=name, e=e))
            continue
        for table, count in rows.items():
            label = f"{name}/" if table == name else f"{name}/{table}"
            yield label, {"bytes": size, "condition": "sound", "entries": count, "what": _ROWS[table]}
