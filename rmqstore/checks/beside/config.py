"""CFG-*: the broker's JSON with its .bak, the controller's text files, and offsets against the queues."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings
from rmqstore.files.config_files import LARGEST, committed_offsets, delay_offsets, null_table, wrong_type
from rmqstore.files.disk.reading import open_regular
from rmqstore.files.mapped_file_queue import list_directory
from rmqstore.files.store import Store
from rmqstore.files.topic_types import types_of
from rmqstore.formats.configjson import Condition, ConfigJsonError, JsonValue, parse_config_object
from rmqstore.formats.properties import SCHEDULE_TOPIC

QueueRange = Callable[[str, int], tuple[int, int] | None]

JSON_FILES = (
    "topics.json",
    "topicQueueMapping.json",
    "consumerOffset.json",
    "lmqConsumerOffset.json",
    "consumerOrderInfo.json",
    "subscriptionGroup.json",
    "consumerFilter.json",
    "messageRequestMode.json",
    "delayOffset.json",
    "timermetrics",
    "transactionMetrics",
    "tieredStoreMetadata.json",
)
_CONTROLLER_FILES = ("epochFileCheckpoint", "brokerIdentity", "brokerIdentity-temp")
_OFFSET, _DELAY = codes.CFG_OFFSET_BEYOND, codes.CFG_DELAY_BEYOND
MISSING, UNREADABLE = "missing", "unreadable"
_NAMED = 5  # topics


@dataclass(slots=True)
class ConfigFacts:
    """What the configuration says. `tables` are its files by name, as they were read.

    `conditions` per file name (`.bak` too): a `Condition` word, or "missing". `queue_types` topic -> `queue.type`
    (None: topics.json cannot be had); `compacted` topics with cleanup.policy COMPACTION.
    """

    conditions: dict[str, str] = field(default_factory=dict)
    queue_types: dict[str, str] | None = None
    compacted: set[str] = field(default_factory=set)
    unchecked: list[str] = field(default_factory=list)
    tables: dict[str, dict[str, JsonValue]] = field(default_factory=dict, repr=False)


class _Read(NamedTuple):
    """One file of a pair: `problem` is None when it is sound."""

    condition: str
    problem: str | None = None
    position: int = 0
    length: int = 0
    value: dict[str, JsonValue] | None = None


def check_config(
    store: Store,
    findings: Findings,
    *,
    queue_range: QueueRange | None = None,
    slave: bool = False,
    live: bool = False,
    rocksdb: Mapping[str, dict[str, JsonValue]] | None = None,
) -> ConfigFacts:
    """Every known file of config/, compaction/position-checkpoint and the controller's files.

    `queue_range(topic, queue_id)` gives (min, max) of a queue as the log asks for it, None for queues that are not
    there; without it offsets are not compared. On a slave offsets come from the master and may be ahead.
    `rocksdb` are the tables of RocksDB directories by name, as a JSON file would have them.
    """
    facts = ConfigFacts()
    if store.part == "config":
        _part(store.path, findings, facts, queue_range if not slave else None)
        return facts
    if store.part in _CONTROLLER_FILES:
        _pair(store.path.parent, store.path.name, _read_text, findings, facts, live)
        return facts
    if store.part is not None:
        return facts
    config = store.root / "config"
    tables = _tables(config, findings, facts, live)
    _pair(store.root / "compaction", "position-checkpoint", _read_json, findings, facts, live)
    for name in _CONTROLLER_FILES:
        _pair(store.root, name, _read_text, findings, facts, live)
    tables |= rocksdb or {}
    if "topics" in tables:
        _topics(tables["topics"], facts, rocksdb=False)
    else:
        _topics(tables.get("topics.json"), facts, rocksdb=bool(store.rocksdb_config))
    facts.tables = tables
    if queue_range is not None and not slave:
        check_offsets(facts, queue_range, findings)
    return facts


def check_batch_topics(store: Store, facts: ConfigFacts, topics: Iterable[str], findings: Findings) -> None:
    """Topics with a BatchCQ that no topics.json names; a file that cannot be read has its own finding.

    A topic that a readable topics.json leaves out was deleted, or has a directory of the wrong kind: said elsewhere.
    """
    files = [store.root / "config" / name for name in ("topics.json", "topics.json.bak")]
    names = sorted(topics)
    if facts.queue_types is not None or store.rocksdb_config or not names or any(map(os.path.lexists, files)):
        return
    named = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    findings.add(Finding(codes.CFG_NO_TOPICS, "config", "topics.json", facts={"count": len(names), "topics": named}))


def check_offsets(facts: ConfigFacts, queue_range: QueueRange, findings: Findings) -> None:
    """Offsets of the tables that were read, against queues that were looked at later.

    In this order only: consumers and queues of a live broker move on in between, and a consumer that was read later
    may be ahead of a queue that is not.
    """
    _offsets(facts.tables, queue_range, findings)


def _part(path: Path, findings: Findings, facts: ConfigFacts, queue_range: QueueRange | None) -> None:
    if path.is_dir():
        tables = _tables(path, findings, facts, live=False)
    else:
        name = path.name.removesuffix(".bak")
        value = _pair(path.parent, name, _read_json, findings, facts, live=False)
        tables = {} if value is None else {name: value}
    _topics(tables.get("topics.json"), facts, rocksdb=False)
    if queue_range is not None:
        _offsets(tables, queue_range, findings)


def _tables(config: Path, findings: Findings, facts: ConfigFacts, live: bool) -> dict[str, dict[str, JsonValue]]:
    try:
        names = {e.path.name for e in list_directory(config)}
    except OSError as e:
        facts_: dict[str, Fact] = {"path": str(config), "error": e.strerror or "cannot be listed"}
        findings.add(Finding(codes.DIR_UNREADABLE, "config", config.name, facts=facts_))
        return {}
    tables = {}
    for name in JSON_FILES:
        if name in names or f"{name}.bak" in names:
            value = _pair(config, name, _read_json, findings, facts, live)
            if value is not None:
                tables[name] = value
    return tables


def _pair(
    directory: Path,
    name: str,
    read: Callable[[Path, ConfigFacts], _Read],
    findings: Findings,
    facts: ConfigFacts,
    live: bool,
) -> dict[str, JsonValue] | None:
    """Judge a file and its .bak; the value that a broker would load, None without one.

    Source: ConfigManager#load, #loadBak, RocketMQ 4.3 to 5.4.0
    """
    own, bak = read(directory / name, facts), read(directory / f"{name}.bak", facts)
    if own.condition == MISSING and bak.condition in (MISSING, UNREADABLE):
        return None
    facts.conditions[name] = own.condition
    facts.conditions[f"{name}.bak"] = bak.condition
    queue = "config" if directory.name == "config" else directory.name if directory.name == "compaction" else "store"
    if own.problem is None:
        half_written = live and bak.condition in (Condition.EMPTY, Condition.CUT)
        if bak.condition not in (MISSING, UNREADABLE, Condition.SOUND) and not half_written:
            findings.add(Finding(codes.CFG_BROKEN_BAK, queue, f"{name}.bak", bak.position, bak.length, _about(bak)))
        return own.value
    if own.condition == UNREADABLE:
        return bak.value
    if live and own.condition in (MISSING, Condition.EMPTY, Condition.CUT):
        return bak.value  # brokers from 5.1 to 5.3 write in place: it may be half-written just now
    about = _about(own)
    about["bak"] = bak.condition
    code = codes.CFG_BROKEN if bak.condition == Condition.SOUND else codes.CFG_UNREADABLE
    findings.add(Finding(code, queue, name, own.position, own.length, about))
    return bak.value


def _about(one: _Read) -> dict[str, Fact]:
    about: dict[str, Fact] = {"condition": str(one.condition)}
    if one.problem:
        about["problem"] = one.problem
    return about


def _bytes(path: Path, facts: ConfigFacts) -> bytes | str:
    """The file, or why it has no content: missing, or unreadable (reported in `unchecked`)."""
    try:
        fd = open_regular(path)
        try:
            raw = os.pread(fd, LARGEST + 1, 0)
        finally:
            os.close(fd)
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    except OSError as e:
        facts.unchecked.append(f"{path.name}: {e.strerror or 'cannot be read'}")
        return UNREADABLE
    if len(raw) > LARGEST:
        facts.unchecked.append(f"{path.name}: longer than {LARGEST} bytes, not read")
        return UNREADABLE
    return raw


def _read_json(path: Path, facts: ConfigFacts) -> _Read:
    raw = _bytes(path, facts)
    if isinstance(raw, str):
        return _Read(raw, raw)
    try:
        table = parse_config_object(raw)
        wrong = wrong_type(path.name, table) or null_table(path.name, table)
        if wrong:
            return _Read(Condition.BROKEN, wrong, 0, len(raw))
        return _Read(Condition.SOUND, None, 0, len(raw), table)
    except ConfigJsonError as e:
        return _Read(e.condition, str(e), min(e.position, len(raw)), max(0, len(raw) - e.position))


def _read_text(path: Path, facts: ConfigFacts) -> _Read:
    raw = _bytes(path, facts)
    if isinstance(raw, str):
        return _Read(raw, raw)
    from rmqstore.formats import controller

    epoch = path.name.startswith("epochFileCheckpoint")
    faults = controller.parse_epoch_file(raw).faults if epoch else controller.parse_broker_identity(raw).faults
    if not faults:
        return _Read(Condition.SOUND, None, 0, len(raw), {})
    nul = raw and not raw.strip(b"\0")
    condition = Condition.EMPTY if not raw.strip() else Condition.NUL_FILLED if nul else Condition.BROKEN
    return _Read(condition, "; ".join(faults), 0, len(raw))


def _topics(table: dict[str, JsonValue] | None, facts: ConfigFacts, rocksdb: bool) -> None:
    types = types_of(table)
    if rocksdb or types is None:
        return
    facts.queue_types = types
    for topic, config in _objects(table, "topicConfigTable"):
        attributes = config.get("attributes") if isinstance(config, dict) else None
        if isinstance(attributes, dict) and attributes.get("cleanup.policy") == "COMPACTION":
            facts.compacted.add(topic)


def _offsets(tables: dict[str, dict[str, JsonValue]], queue_range: QueueRange, findings: Findings) -> None:
    for file in ("consumerOffset.json", "lmqConsumerOffset.json", "consumerOffsets"):
        for topic, group, queue_id, offset in committed_offsets(tables.get(file, {})) or ():
            _beyond(_OFFSET, file, _Position(topic, queue_id, offset, group), queue_range, findings)
    for queue_id, offset in (delay_offsets(tables.get("delayOffset.json", {})) or {}).items():
        _beyond(_DELAY, "delayOffset.json", _Position(SCHEDULE_TOPIC, queue_id, offset), queue_range, findings)


class _Position(NamedTuple):
    """How far a consumer group, or the delivery of a delay level, has come in a queue."""

    topic: str
    queue_id: int
    offset: int
    group: str | None = None


def _beyond(
    code: str,
    file: str,
    at: _Position,
    queue_range: QueueRange,
    findings: Findings,
) -> None:
    known = queue_range(at.topic, at.queue_id)
    if known is None or at.offset <= known[1]:
        return
    about: dict[str, Fact] = {"topic": at.topic, "queue_id": at.queue_id, "offset": at.offset, "max": known[1]}
    if at.group is not None:
        about["group"] = at.group
    findings.add(Finding(code, f"{at.topic}/{at.queue_id}", file, facts=about))


def _objects(table: dict[str, JsonValue] | None, name: str) -> list[tuple[str, JsonValue]]:
    inner = table.get(name) if table is not None else None
    return list(inner.items()) if isinstance(inner, dict) else []
