"""Changes the offsets of consumer groups, wherever the broker keeps them: JSON files or RocksDB.

A change is a plan like any other: it is applied with a journal, and can be undone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rmqstore.documents.plan import Plan
from rmqstore.errors import NotReadable, Refused
from rmqstore.files.config import LARGEST, OFFSETS, Committed, committed_offsets, config_object, directory_of
from rmqstore.files.rocksdb.database import is_readable, missing_extra
from rmqstore.files.store import Store, StoreKind
from rmqstore.formats.configuration import JsonValue, build_config_json
from rmqstore.formats.properties import is_lmq
from rmqstore.repair.beside.config import build_offsets_json, change_offsets
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.texts import Text

FILES = ("consumerOffset.json", "lmqConsumerOffset.json")
_WHY = Text("new offsets of consumer groups")


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """A new offset of a group in a queue (units). `old`: None if the group has none.

    `again` and `skipped`: how many messages that the queue has are delivered again, and how many never.
    """

    group: str
    topic: str
    queue_id: int
    old: int | None
    new: int
    again: int = 0
    skipped: int = 0


def change_between(
    group: str, topic: str, queue_id: int, old: int | None, new: int, bounds: tuple[int, int] | None
) -> OffsetChange:
    """Return the change from one offset to another, with what it means for a queue with these `bounds` [min, max)."""
    if old is None or bounds is None:
        return OffsetChange(group, topic, queue_id, old, new)
    low, high = (min(max(offset, bounds[0]), bounds[1]) for offset in (min(old, new), max(old, new)))
    count = high - low
    return OffsetChange(group, topic, queue_id, old, new, *((count, 0) if new < old else (0, count)))


def plan_offset_changes(store: Store, changes: Collection[OffsetChange], facts: Mapping[str, str]) -> Plan:
    """Plan new offsets of consumer groups; `facts` say what was asked for.

    Errors: Refused for a part of a store, and without the library for offsets in RocksDB; NotReadable for a database
    or file that cannot be read; NoSpace.
    """
    if store.kind is StoreKind.PART:
        raise Refused(Text("{path} is a part of a store", path=store.path), Text("name the broker's storePathRootDir"))
    draft = PlanBuilder(store)
    wanted = [change for change in changes if change.old != change.new]
    if wanted:
        directory = directory_of(store, OFFSETS)
        if directory is not None:
            if not is_readable():
                raise Refused(
                    Text(
                        "config/{directory} is RocksDB: {missing_extra}",
                        directory=directory,
                        missing_extra=missing_extra(),
                    )
                )
            new = [Committed(c.topic, c.group, c.queue_id, c.new) for c in wanted]
            change_offsets(draft, store.root / "config" / directory, new, _WHY)
        else:
            _plan_files(draft, store.root / "config", wanted)
    draft.facts["command"] = "offsets"
    draft.facts["offsets"] = {
        **facts,
        "changes": [
            {"group": c.group, "topic": c.topic, "queue_id": c.queue_id, "from": c.old, "to": c.new} for c in wanted
        ],
    }
    return draft.plan()


def offsets_json(rows: Iterable[Committed]) -> bytes:
    """Return offsets as a file that a broker reads as consumerOffset.json, or as lmqConsumerOffset.json.

    Source: ConsumerOffsetManager#decode, LmqConsumerOffsetManager#decode, 5.4.0; the former ignores `lmqOffsetTable`.
    """
    queues: dict[str, dict[int, int]] = {}
    light: dict[str, int] = {}
    for row in sorted(rows):
        key = f"{row.topic}@{row.group}"
        if is_lmq(row.topic):
            light[key] = row.offset
        else:
            queues.setdefault(key, {})[row.queue_id] = row.offset
    return build_config_json({"offsetTable": queues, **({"lmqOffsetTable": light} if light else {})})


def plan_restore_backup(store: Store) -> Plan:
    """Plan to put consumerOffset.json.bak in the place of consumerOffset.json.

    Errors: Refused if the offsets are in RocksDB; NotReadable if the .bak cannot be read.
    """
    if directory_of(store, OFFSETS) is not None:
        raise Refused(
            Text("the offsets of this store are in RocksDB, which has no .bak"), Text("use --from with a backup")
        )
    files = store.files
    path = store.root / "config" / FILES[0]
    backup = path.with_name(f"{path.name}.bak")
    table = config_object(files, backup)
    if table is None or committed_offsets(table) is None:
        raise NotReadable(Text("{backup} cannot be read as consumer offsets", backup=backup))
    draft = PlanBuilder(store)
    content = files.read_small(backup, LARGEST)
    if not files.is_file(path) or files.read_small(path, LARGEST) != content:
        draft.replace(
            path, content, Text("a copy of {backup}", backup=backup.name), old=Text("replaced by its .bak"), like=backup
        )
    draft.facts["command"] = "offsets"
    draft.facts["offsets"] = {"restore": backup.name}
    return draft.plan()


# --- JSON files -------------------------------------------------------------------------------------------------------


def _plan_files(draft: PlanBuilder, config: Path, changes: list[OffsetChange]) -> None:
    """Write each change to the file that has the group's offsets; new ones to the file that the broker reads last."""
    files = draft.store.files
    tables: dict[str, dict[str, JsonValue]] = {}
    for name in FILES:
        table = config_object(files, config / name)
        if table is not None:
            tables[name] = table
        elif files.exists(config / name):
            raise NotReadable(Text("config/{name} cannot be read", name=name), Text("run `rmqstore recover` first"))
    if not tables:
        tables[FILES[0]] = {"offsetTable": {}}
    newest = list(tables)[-1]
    changed = {_put(tables, newest, change) for change in changes}
    for name in sorted(changed):
        path = config / name
        old = files.read_small(path, LARGEST) if files.is_file(path) else b""
        others = [entry.path for entry in files.list(config) if entry.path.suffix == ".json"]
        like = path if files.is_file(path) else next(iter(others), None)
        draft.replace(
            path, build_offsets_json(tables[name], old), _WHY, old=Text("replaced by changed offsets"), like=like
        )


def _put(tables: dict[str, dict[str, JsonValue]], newest: str, change: OffsetChange) -> str:
    """Put an offset into its table, and return the name of the file."""
    key = f"{change.topic}@{change.group}"
    for name, table in tables.items():
        light = table.get("lmqOffsetTable")
        if isinstance(light, dict) and (key in light or (is_lmq(change.topic) and name == newest)):
            light[key] = change.new
            return name
    holding = [name for name, table in tables.items() if key in _groups(table)]
    name = holding[-1] if holding else newest
    queues = _groups(tables[name]).setdefault(key, {})
    assert isinstance(queues, dict)
    queues[str(change.queue_id)] = change.new
    return name


def _groups(table: dict[str, JsonValue]) -> dict[str, JsonValue]:
    groups = table.setdefault("offsetTable", {})
    assert isinstance(groups, dict)  # `config_object` has checked it
    return groups
