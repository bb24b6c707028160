"""Converts the consume queues of a store from files to RocksDB and back, with the configuration.

The queues are rebuilt from the log in the other form, and the old ones go into quarantine as a whole; of them, only
the ends of queues without a message in the log are needed.

With storeType=default a broker keeps topics, subscription groups and consumer offsets in JSON files, with
defaultRocksDB in RocksDB. A start with RocksDB imports a JSON file only if the counter of its data version is greater
than that of the RocksDB, which often is not so: the counter of consumer offsets grows once in 500 commits. So all rows
are written here, with the version of the JSON file, and nothing is imported later. The JSON files stay; a broker with
RocksDB does not change them. In the other direction the databases go into quarantine, and the counter grows by 1: a
broker that still has storeType=defaultRocksDB then imports the JSON files into new databases.

Source: RocksDBMessageStore#createConsumeQueueStore, RocksDBConsumeQueueStore#<init>, ConsumeQueueStore#load,
RocksDBTopicConfigManager#merge, RocksDBSubscriptionGroupManager#merge, RocksDBConsumerOffsetManager#merge,
LmqConsumerOffsetManager#decode, BrokerController#<init> (RocketMQ 5.4.0, 5.5.1)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rmqstore.checks.verified import Verified
from rmqstore.documents.content import Reencoded
from rmqstore.errors import Refused
from rmqstore.files.config import GROUPS, METADATA, TABLES, TOPICS, V2, directory_of, loaded_config
from rmqstore.files.config import OFFSETS as CONSUMER_OFFSETS
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.rocksdb.database import CannotRead, NoDatabase
from rmqstore.files.rocksdb.queues import OFFSETS, UNITS, Bound, RocksDBQueue
from rmqstore.files.rocksdb.rows import FORBIDDEN, data_version, family_of, forbidden_rows, stored_table, version_row
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, Store, StoreKind
from rmqstore.files.store_queues import (
    DOUBLE_WRITE,
    ROCKSDB,
    SEPARATE,
    SEPARATE_KEY,
    QueueHome,
    is_database_file,
)
from rmqstore.formats import consumequeue
from rmqstore.formats.configuration import JsonValue, build_config_json, integer_keys
from rmqstore.formats.consumequeue import UNIT_SIZE, QueueName, parse_queue_label
from rmqstore.formats.properties import is_lmq
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.rebuild.consume_queue import CHUNK, NO_MESSAGE, Extension
from rmqstore.repair.rebuild.consume_queues import (
    LogUnits,
    RebuildChoices,
    plan_queue_files,
    size_decision,
)
from rmqstore.repair.rebuild.rocksdb import replace_database
from rmqstore.repair.rebuild.rocksdb_queues import OldRows, RowsRebuild
from rmqstore.repair.repaired_log import RepairedLog, can_exist, end_of
from rmqstore.texts import Text, many

_FILES = {TOPICS: "topics.json", GROUPS: "subscriptionGroup.json", CONSUMER_OFFSETS: "consumerOffset.json"}
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
    if table != CONSUMER_OFFSETS:
        return found
    light = loaded_config(store.files, store.root, _LIGHT_OFFSETS, lambda one: one)
    if light is None or ("enableLmq" in store.config.given and not store.config.bool("enableLmq")):
        return found
    rows = {**_object(found.get("offsetTable")), **_object(light.get("offsetTable"))}
    rows |= {key: {"0": offset} for key, offset in _object(light.get("lmqOffsetTable")).items()}
    newest = max((found, light), key=lambda one: _counter(one.get("dataVersion")))
    return {"dataVersion": newest.get("dataVersion"), "offsetTable": rows}


def _write(draft: PlanBuilder, directory: str, tables: Mapping[str, Table]) -> None:
    rows: dict[str, dict[bytes, bytes]] = {"default": {}}
    for table, content in tables.items():
        found = rows.setdefault(family_of(directory, table), {})
        for name, value in _object(content.get(TABLES[table])).items():
            if table == CONSUMER_OFFSETS:
                value = {TABLES[CONSUMER_OFFSETS]: value}
            found[_bytes(name)] = _compact(value)
        version, key = version_row(directory, table)
        rows.setdefault(version, {})[key] = _compact(_NO_VERSION | _object(content.get("dataVersion")))
        if table == GROUPS and (forbidden := _object(content.get("forbiddenTable"))):
            rows[FORBIDDEN] = {_bytes(name): _compact(value) for name, value in forbidden.items()}
    in_order = {family: sorted(found.items()) for family, found in rows.items()}
    replace_database(draft, draft.store.root / "config" / directory, in_order, _why(", ".join(tables)))


def _why(content: str) -> str:
    return Text("{content}, which a broker with this storeType reads here", content=content)


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
        if table == CONSUMER_OFFSETS and _has_light(store, content):
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
            Text(
                "config/{directory} has {broken} that cannot be read",
                directory=directory,
                broken=many(found.broken, "row"),
            ),
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
    rows = _object(content[TABLES[CONSUMER_OFFSETS]])
    known = store.config.bool("enableLmq") or store.files.is_file(store.root / "config" / _LIGHT_OFFSETS)
    return known or any(is_lmq(key.partition("@")[0]) for key in rows)


def _with_light(content: Table) -> Table:
    """Return the offsets as lmqConsumerOffset.json: groups that are light queues have one offset per topic."""
    rows = _object(content[TABLES[CONSUMER_OFFSETS]])
    light = {key for key in rows if is_lmq(key.rpartition("@")[2])}
    return {
        "dataVersion": content["dataVersion"],
        "lmqOffsetTable": {key: _object(rows[key]).get("0", 0) for key in light},
        "offsetTable": {key: value for key, value in rows.items() if key not in light},
    }


def _replace(draft: PlanBuilder, path: Path, content: Table, like: Path | None) -> None:
    model = path if draft.store.files.is_file(path) else like
    offsets = TABLES[CONSUMER_OFFSETS]
    shown = (
        {**content, offsets: {k: integer_keys(_object(v)) for k, v in _object(content[offsets]).items()}}
        if (offsets in content)
        else content
    )
    raw = build_config_json(shown)
    draft.replace(path, raw, _why(path.stem), old=Text("replaced by the content of the database"), like=model)


def _counter(version: JsonValue) -> int:
    counter = _object(version).get("counter")
    return counter if isinstance(counter, int) else 0


def _object(value: JsonValue) -> Table:
    return value if isinstance(value, dict) else {}


Storage = Literal["files", "rocksdb"]
_NAMED = 5


def plan_storage(draft: PlanBuilder, verified: Verified, views: list[RepairedLog], storage: Storage) -> None:
    """Add the steps that move all consume queues, and the configuration, to `storage`.

    Errors: Refused for a store that has problems, or queues that the other form cannot have.
    """
    store = draft.store
    _refuse(store, verified, storage)
    convert = _to_rocksdb if storage == "rocksdb" else _to_files
    settings = convert(draft, verified, views)
    draft.facts["storage"] = storage
    draft.facts["settings"] = dict(settings)
    needs = ", ".join(f"{key}={value}" for key, value in settings.items())
    draft.notes.insert(0, Text("broker.conf needs {needs}: set it before the broker starts", needs=needs))


def _refuse(store: Store, verified: Verified, storage: Storage) -> None:
    if store.dledger is not None:
        raise Refused(Text("the queues of a DLedger store are not converted: their log positions include its entries"))
    if store.queue_home is QueueHome.UNKNOWN:
        raise Refused(
            Text("nothing says whether the broker reads the queue files or the RocksDB"),
            Text("give its broker.conf with -c (storeType)"),
        )
    if store.rocksdb_beside or store.config.bool(DOUBLE_WRITE):
        raise Refused(
            Text("the broker writes queues to files and to RocksDB (rocksdbCQDoubleWriteEnable)"),
            Text("its settings decide which of them it reads (combineCQPreferCQType, combineAssignOffsetCQType)"),
        )
    if store.other_rocksdb is not None:
        raise Refused(Text("there are two RocksDB of consume queues"), Text("run `rmqstore recover` first"))
    home = "rocksdb" if store.kind is StoreKind.ROCKSDB else "files"
    if home == storage:
        raise Refused(
            Text("the consume queues are in {name} already", name="RocksDB" if storage == "rocksdb" else "files"),
            Text("nothing has to be converted"),
        )
    if not verified.report.clean:
        raise Refused(Text("only a store without problems is converted"), Text("run `rmqstore recover` first"))
    batch = sorted({*verified.batch_topics, *(topic for topic, _ in store.names_in_files(QueueKind.BATCH))})
    if storage == "rocksdb" and batch:
        raise Refused(
            Text(
                "{listed}: a batch queue has one unit for many messages, and RocksDB has a row for each message",
                listed=", ".join(batch[:_NAMED]) + ", …" * (len(batch) > _NAMED),
            ),
            Text("a broker with RocksDB delivers only the first message of each batch: keep the files"),
        )


# --- files → RocksDB --------------------------------------------------------------------------------------------------


class FileRows(RocksDBQueue):
    """A queue in files as rows: units with the store time 0."""

    def __init__(self, files: ConsumeQueueFiles, behind: int) -> None:
        queue = files.queue
        MappedFileQueue.__init__(self, queue.name, queue.directories, queue.file_size, queue.files)
        self.unreadable = []
        self.first, self.behind = queue.start // UNIT_SIZE, behind

    def end_at(self, behind: int) -> None:
        """Do nothing: the end is that of the written units."""

    def runs(self, start: int, stop: int) -> Iterator[tuple[int, Any, Any]]:
        """Yield (first queue offset, units, store times) of the units in [start, stop)."""
        for at in range(max(0, start), min(stop, self.behind), CHUNK):
            count = min(CHUNK, stop - at, self.behind - at)
            raw = MappedFileQueue.pread(self, count * UNIT_SIZE, at * UNIT_SIZE)
            units = consumequeue.UNIT.array(raw[: len(raw) // UNIT_SIZE * UNIT_SIZE])
            yield at, units, np.zeros(len(units), dtype=np.int64)


class FileEnds(OldRows):
    """The ends of all queues in files, in the form of an old database."""

    def __init__(self, store: Store, verified: Verified, end: int) -> None:
        OldRows.__init__(self, NoDatabase(store.rocksdb_directory, (UNITS, OFFSETS)), ended=True, elsewhere=True)
        self.store = store
        self.ends: dict[QueueName, int] = {}
        for label, state in verified.report.queues.items():
            name = parse_queue_label(label)
            if name is not None and state.max > 0:
                self.ends[name] = state.max
        self.names = store.names_in_files(QueueKind.SIMPLE).union(self.ends)
        self.bounds = {n: {"min": Bound(end, top), "max": Bound(0, top - 1)} for n, top in self.ends.items()}

    def queue(self, name: QueueName) -> RocksDBQueue:
        """Return one queue, which may have no files."""
        return FileRows(self.store.consume_queue(*name), self.ends.get(name, 0))

    def extension(self, store: Store, name: QueueName) -> Extension:
        """Return an extension without units: RocksDB has no addresses."""
        nothing = MappedFileQueue("", [], store.config.int("mappedFileSizeConsumeQueueExt"), [])
        return Extension(ConsumeQueueFiles(*name, QueueKind.EXT, nothing))


def _to_rocksdb(draft: PlanBuilder, verified: Verified, views: list[RepairedLog]) -> dict[str, str]:
    store = draft.store
    units = LogUnits(draft, verified, views, RebuildChoices(), as_rows=True)
    work = RowsRebuild(units, FileEnds(store, verified, end_of(views)))
    work.plan()
    plan_config_rows(draft)
    for kind in (QueueKind.SIMPLE, QueueKind.EXT):
        for entry in store.files.list(store.root / kind.tree):
            if entry.directory:
                draft.discard(entry.path, Text("the broker will read its queues from RocksDB"))
    settings = {"storeType": ROCKSDB, SEPARATE_KEY: str(store.rocksdb_directory.name == SEPARATE).lower()}
    if any(is_lmq(topic) for topic, _ in work.names()):
        settings |= {"enableLmq": "true", "enableMultiDispatch": "true"}
    draft.notes.append(Text("only brokers from 5.2.0 on read consume queues from RocksDB"))
    return settings


# --- RocksDB → files --------------------------------------------------------------------------------------------------


def _plan_files(units: LogUnits, old: OldRows) -> list[QueueName]:
    """Add the steps for the files of all queues, and return these, without those that were deleted on purpose.

    Errors: Refused for a queue that cannot have a directory.
    """
    draft, store = units.draft, units.store
    names = sorted(name for name in {*units.names, *old.bounds} if not old.was_deleted(name, units.logs))
    for topic, queue_id in names:
        if not can_exist((topic, queue_id)):
            raise Refused(
                Text("{topic}/{queue_id}: no directory can have this name", topic=topic, queue_id=queue_id),
                Text("keep the queues in RocksDB"),
            )
    for kind in (QueueKind.SIMPLE, QueueKind.BATCH, QueueKind.EXT):
        for files in store.consume_queues(kind):
            for file in files.queue.files:
                draft.discard(file.path, Text("left over from an earlier storeType"))
    plan_queue_files(units, names)
    for name in names:
        last, found = old.bounds.get(name, {}).get("max"), units.of(name)
        if last is not None and last.queue_offset >= 0 and not (found.ranges() or found.batches):
            _keep_end(draft, name, last.queue_offset + 1)
    return names


def _keep_end(draft: PlanBuilder, name: QueueName, end: int) -> None:
    """Create the last file of a queue without a message in the log: the next message gets the queue offset `end`.

    Its last unit is that of an expired message, since a queue must not consist of pre-blanks.
    """
    files = draft.store.consume_queue(*name)
    size = files.queue.file_size
    start = consumequeue.first_file(end - 1, size)
    count = end - start // UNIT_SIZE
    path = files.queue.directories[0] / f"{start:020d}"
    draft.create(path, size, Reencoded(count * UNIT_SIZE, lambda: _expired(count)), NO_MESSAGE)
    draft.ends[files.label] = end


def _expired(count: int) -> Iterator[bytes]:
    for start in range(0, count - 1, CHUNK):
        yield consumequeue.PRE_BLANK * min(CHUNK, count - 1 - start)
    yield consumequeue.UNIT.build(size=1)


def _to_files(draft: PlanBuilder, verified: Verified, views: list[RepairedLog]) -> dict[str, str]:
    store = draft.store
    old = OldRows.of(store)
    if old.damage:
        raise Refused(Text("the RocksDB of the consume queues is damaged: {damage}", damage=old.damage))
    names = _plan_files(LogUnits(draft, verified, views, RebuildChoices()), old)
    plan_config_files(draft)
    why = Text("the broker will read its queues from files")
    directory = store.rocksdb_directory
    if directory.name == SEPARATE:
        draft.discard(directory, why)
    else:
        found = [e.path for e in store.files.list(directory) if not e.directory and is_database_file(e.path.name)]
        for path in sorted(found, key=lambda path: (not path.name.startswith("MANIFEST"), path.name)):
            draft.discard(path, why)
    settings = {"storeType": "default"}
    if size_decision(store, QueueKind.SIMPLE) is not None:
        key = QueueKind.SIMPLE.size_key
        settings[key] = str(store.queue_file_size(QueueKind.SIMPLE))
    if store.config.bool(DOUBLE_WRITE):
        settings[DOUBLE_WRITE] = "false"
    if any(is_lmq(topic) for topic, _ in names):
        settings |= {"enableLmq": "true", "enableMultiDispatch": "true"}
    return settings
