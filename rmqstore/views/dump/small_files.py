"""The small files of a store as rows: checkpoints, currterm, epochs, the broker's JSON files; for `info`, summaries."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rmqstore.files.files import DirEntry, Files
from rmqstore.files.store import Store
from rmqstore.formats import checkpoint, configuration, controller, dledger, timer
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


_LARGEST = 256 << 20
_TEXT = 1 << 20
Row = dict[str, Any]


def checkpoint_rows(store: Store) -> Iterator[Row]:
    """Yield {"file", "what", "bytes", fields …} for every existing file that records the progress of something."""
    for path, what in _checkpoint_files(store):
        raw = store.files.read_at(path, _TEXT, 0)
        row: Row = {"file": path.name if path == store.path else store.relative(path), "what": what, "bytes": len(raw)}
        match what:
            case "checkpoint":
                row |= asdict(checkpoint.parse_checkpoint(raw))
            case "timercheck":
                row |= timer.parse_timercheck(raw)
            case "dledger-checkpoint":
                point = dledger.parse_dledger_checkpoint(raw)
                row |= {"committed_index": point.committed_index, "end_index": point.end_index}
                row["faults"] = list(point.faults)
            case "currterm":
                term = dledger.parse_currterm(raw)
                row |= {"term": term.term, "vote_leader": term.vote_leader, "faults": list(term.faults)}
            case "epochFileCheckpoint":
                epochs = controller.parse_epoch_file(raw)
                row["epochs"] = [{"epoch": e.epoch, "start_offset": e.start_offset} for e in epochs.entries]
                row["faults"] = list(epochs.faults)
            case "brokerIdentity":
                row["text"] = raw.decode("utf-8", "backslashreplace").strip()
        yield row


def _checkpoint_files(store: Store) -> Iterator[tuple[Path, str]]:
    if store.part is not None:
        kinds = ("checkpoint", "dledger-checkpoint", "currterm", "timercheck", "epochFileCheckpoint", "brokerIdentity")
        if store.part in kinds:
            yield store.path, store.part
        if store.part == "dledger-group":
            yield from _existing(store.files, store.path, {"checkpoint": "dledger-checkpoint", "currterm": "currterm"})
        return
    names = ("checkpoint", "epochFileCheckpoint", "brokerIdentity")
    yield from _existing(store.files, store.root, {n: n for n in names})
    yield from _existing(store.files, store.root / "config", {"timercheck": "timercheck"})
    if store.dledger is not None:
        yield from _existing(
            store.files, store.dledger.directory, {"checkpoint": "dledger-checkpoint", "currterm": "currterm"}
        )


def _existing(files: Files, folder: Path, names: dict[str, str]) -> Iterator[tuple[Path, str]]:
    for name, what in names.items():
        if files.is_file(folder / name):
            yield folder / name, what


ROWS_BY = "rmqstore.views.dump.access", ("users", "acls")
"""What lists users and permissions, of a store that has these databases: module, and directories in config/."""


def config_rows(store: Store) -> Iterator[Row]:
    """Yield {"file", "bytes", "condition", "value"} for the broker's JSON files; the value of invalid JSON is None.

    A store with ACL 2.0 has two more rows: its users, without passwords, and the policies.
    """
    for path, *_ in config_files(store):
        raw = store.files.read_at(path, _LARGEST, 0)
        row: Row = {
            "file": path.name,
            "bytes": len(raw),
            "condition": configuration.ConfigState.SOUND.value,
            "value": None,
        }
        try:
            row["value"] = configuration.parse_config_json(raw)
        except configuration.ConfigJsonError as e:
            row |= {"condition": e.condition.value, "error": str(e)}
        yield row
    if any(name in store.rocksdb_config for name in ROWS_BY[1]) and store.part is None:
        yield from (one.row() for one in importlib.import_module(ROWS_BY[0]).access_of(store))
