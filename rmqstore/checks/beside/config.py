"""CFG-*: the broker's JSON files with their .bak, the controller's text files, and offsets against the queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings, QueueRange
from rmqstore.files.config import (
    LARGEST,
    OFFSETS,
    TIER_METADATA,
    TOPICS,
    StoredTable,
    committed_offsets,
    directory_of,
    null_table,
    tier_queues,
    types_of,
    wrong_type,
)
from rmqstore.files.files import Files
from rmqstore.files.store import Store
from rmqstore.formats.configuration import (
    ConfigJsonError,
    ConfigState,
    ConfigText,
    JsonReader,
    JsonValue,
    object_of,
    parse_config_text,
)
from rmqstore.texts import Placed, Text, joined

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
    TIER_METADATA,
)
_CONTROLLER_FILES = ("epochFileCheckpoint", "brokerIdentity", "brokerIdentity-temp")
_MISSING, _UNREADABLE = "missing", "unreadable"
_NAMED_TOPICS = 5

Tables = dict[str, dict[str, JsonValue]]
"""Parsed configuration files by file name."""


@dataclass(slots=True)
class ConfigFacts:
    """The configuration of a store.

    `queue_types` maps topics to their `queue.type`; None if topics.json cannot be read. `unchecked` names files that
    were not read, and why. `databases` maps tables in RocksDB to the database in config/.
    """

    queue_types: dict[str, str] | None = None
    unchecked: list[str] = field(default_factory=list)
    tables: Tables = field(default_factory=dict, repr=False)
    databases: dict[str, str] = field(default_factory=dict)


class _Read(NamedTuple):
    """One file of a pair: `problem` is None if the file is sound."""

    condition: str
    problem: str | None = None
    position: int = 0
    length: int = 0
    value: dict[str, JsonValue] | None = None
    text: ConfigText | None = None

    def facts(self) -> dict[str, Fact]:
        facts: dict[str, Fact] = {"condition": str(self.condition)}
        return facts | {"problem": self.problem} if self.problem else facts


def check_config(
    store: Store, findings: Findings, *, live: bool = False, rocksdb: Mapping[str, StoredTable] | None = None
) -> ConfigFacts:
    """Check every known file of config/, compaction/position-checkpoint and the controller's files.

    `rocksdb` are the tables in RocksDB.
    """
    facts = ConfigFacts()
    check = _ConfigCheck(store.files, findings, facts, live)
    if store.part == "config":
        if store.files.is_directory(store.path):
            facts.tables = check.directory(store.path)
        else:
            facts.tables = check.json_files(store.path.parent, [store.path.name.removesuffix(".bak")])
        facts.queue_types = types_of(facts.tables.get("topics.json"))
    elif store.part in _CONTROLLER_FILES:
        check.pair(store.path.parent, store.path.name, _read_text)
    elif store.part is None:
        facts.tables = check.directory(store.root / "config")
        for name, stored in (rocksdb or {}).items():
            facts.tables[name] = stored.as_json
            facts.databases[name] = stored.directory
        check.pair(store.root / "compaction", "position-checkpoint", _read_json)
        for name in _CONTROLLER_FILES:
            check.pair(store.root, name, _read_text)
        if "topics" in facts.tables:
            facts.queue_types = types_of(facts.tables["topics"])
        elif directory_of(store, TOPICS) is None:
            facts.queue_types = types_of(facts.tables.get("topics.json"))
    return facts


def check_batch_topics(store: Store, facts: ConfigFacts, topics: Iterable[str], findings: Findings) -> None:
    """Report topics with a BatchCQ if there is no topics.json at all.

    An unreadable topics.json has its own finding. A readable one without the topic means that the topic was deleted,
    or that its directory has the wrong kind, which is checked with the directories.
    """
    files = [store.root / "config" / name for name in ("topics.json", "topics.json.bak")]
    names = sorted(topics)
    if (
        facts.queue_types is not None
        or directory_of(store, TOPICS)
        or not names
        or any(map(store.files.has_entry, files))
    ):
        return
    named = ", ".join(names[:_NAMED_TOPICS]) + (", …" if len(names) > _NAMED_TOPICS else "")
    findings.add(Finding(codes.CFG_NO_TOPICS, "config", "topics.json", facts={"count": len(names), "topics": named}))


def check_offsets(facts: ConfigFacts, queue_range: QueueRange, findings: Findings) -> None:
    """Compare consumer offsets with the ends of their queues.

    The offsets must have been read before the queues: on a live broker both move on, so a later offset could be ahead
    of an earlier queue end.
    """
    for file in ("consumerOffset.json", "lmqConsumerOffset.json", OFFSETS):
        for topic, group, queue_id, offset in committed_offsets(facts.tables.get(file, {})) or ():
            if beyond := beyond_end(queue_range, topic, queue_id, offset):
                beyond["group"] = group
                place = facts.databases.get(file, file)
                findings.add(Finding(codes.CFG_OFFSET_BEYOND, f"{topic}/{queue_id}", place, facts=beyond))


def check_tier(
    facts: ConfigFacts, queue_range: QueueRange, first: Callable[[str, int], int], findings: Findings
) -> None:
    """Report queues whose end in tiered storage lies before their minimum here: the broker destroys the tier's file.

    `first` returns the queue offset of a queue's first message in the log, at which the queue begins after a rebuild.
    Source: MessageStoreDispatcherImpl#doScheduleDispatch (RocketMQ 5.4.0)
    """
    for topic, queue_id, _, end in tier_queues(facts.tables.get(TIER_METADATA, {})):
        known = queue_range(topic, queue_id)
        begin = (known[0] or first(topic, queue_id)) if known is not None else 0
        if end < begin:
            about: dict[str, Fact] = {"topic": topic, "queue_id": queue_id, "tier_end": end, "min": begin}
            findings.add(Finding(codes.CFG_TIER_ENDS, f"{topic}/{queue_id}", TIER_METADATA, facts=about))


def beyond_end(queue_range: QueueRange, topic: str, queue_id: int, offset: int) -> dict[str, Fact]:
    """Return the facts of an offset beyond the end of its queue; empty if it is not, or if the queue is unknown."""
    known = queue_range(topic, queue_id)
    if known is None or offset <= known[1]:
        return {}
    return {"topic": topic, "queue_id": queue_id, "offset": offset, "max": known[1]}


class _ConfigCheck:
    def __init__(self, files: Files, findings: Findings, facts: ConfigFacts, live: bool) -> None:
        self.files = files
        self.findings = findings
        self.facts = facts
        self.live = live

    def directory(self, config: Path) -> Tables:
        """Check the JSON files of config/, and return the tables that a broker would load."""
        try:
            names = {e.path.name for e in self.files.list(config)}
        except OSError as e:
            facts: dict[str, Fact] = {"path": str(config), "error": e.strerror or Text("cannot be listed")}
            self.findings.add(Finding(codes.DIR_UNREADABLE, "config", config.name, facts=facts))
            return {}
        return self.json_files(config, (n for n in JSON_FILES if n in names or f"{n}.bak" in names))

    def json_files(self, directory: Path, names: Iterable[str]) -> Tables:
        loaded = ((name, self.pair(directory, name, _read_json)) for name in names)
        return {name: table for name, table in loaded if table is not None}

    def pair(
        self, directory: Path, name: str, read: Callable[[Files, Path, ConfigFacts], _Read]
    ) -> dict[str, JsonValue] | None:
        """Check a file and its .bak, and return the value that a broker would load; None if it loads none.

        Source: ConfigManager#load, #loadBak, RocketMQ 4.3 to 5.4.0
        """
        own, bak = (read(self.files, directory / one, self.facts) for one in (name, f"{name}.bak"))
        if own.condition == _MISSING and bak.condition in (_MISSING, _UNREADABLE):
            return None
        queue = directory.name if directory.name in ("config", "compaction") else "store"
        self._syntax(queue, name, own)
        self._syntax(queue, f"{name}.bak", bak)
        if own.problem is None:
            half_written = self.live and bak.condition in (ConfigState.EMPTY, ConfigState.CUT)
            if bak.condition not in (_MISSING, _UNREADABLE, ConfigState.SOUND) and not half_written:
                finding = Finding(codes.CFG_BROKEN_BAK, queue, f"{name}.bak", bak.position, bak.length, bak.facts())
                self.findings.add(finding)
            return own.value
        if own.condition == _UNREADABLE:
            return bak.value
        if self.live and own.condition in (_MISSING, ConfigState.EMPTY, ConfigState.CUT):
            return bak.value  # brokers from 5.1 to 5.3 write in place, so the file may be half-written at the moment
        code = codes.CFG_BROKEN if bak.condition == ConfigState.SOUND else codes.CFG_UNREADABLE
        facts = own.facts() | {"bak": bak.condition}
        self.findings.add(Finding(code, queue, name, own.position, own.length, facts))
        return bak.value

    def _syntax(self, queue: str, name: str, read: _Read) -> None:
        """Report a text that the JSON reader of some versions rejects."""
        rejected = {r: s for r in JsonReader if read.text is not None and (s := read.text.rejected_by(r)) is not None}
        if read.text is None or not rejected:
            return
        first = next(iter(rejected.values()))
        facts: dict[str, Fact] = {"syntax": first.value, "versions": ", ".join(rejected)}
        self.findings.add(Finding(codes.CFG_SYNTAX, queue, name, read.text.used[first], 0, facts))


def _bytes(files: Files, path: Path, facts: ConfigFacts) -> bytes | str:
    """Return the content of a file, or why there is none: missing, or unreadable (reported in `unchecked`)."""
    try:
        with files.open(path) as file:
            raw = file.read(LARGEST + 1, 0)
    except (FileNotFoundError, NotADirectoryError):
        return _MISSING
    except OSError as e:
        facts.unchecked.append(
            Placed("{path}: {strerror}", path=path.name, strerror=e.strerror or Text("cannot be read"))
        )
        return _UNREADABLE
    if len(raw) > LARGEST:
        facts.unchecked.append(Text("{path}: longer than {largest} bytes, not read", path=path.name, largest=LARGEST))
        return _UNREADABLE
    return raw


def _read_json(files: Files, path: Path, facts: ConfigFacts) -> _Read:
    raw = _bytes(files, path, facts)
    if isinstance(raw, str):
        return _Read(raw, raw)
    try:
        text = parse_config_text(raw)
        table = object_of(text.value)
        wrong = wrong_type(path.name, table) or null_table(path.name, table)
        if wrong:
            return _Read(ConfigState.BROKEN, wrong, 0, len(raw))
        return _Read(ConfigState.SOUND, None, 0, len(raw), table, text)
    except ConfigJsonError as e:
        return _Read(e.condition, str(e), min(e.position, len(raw)), max(0, len(raw) - e.position))


def _read_text(files: Files, path: Path, facts: ConfigFacts) -> _Read:
    raw = _bytes(files, path, facts)
    if isinstance(raw, str):
        return _Read(raw, raw)
    from rmqstore.formats import controller

    epoch = path.name.startswith("epochFileCheckpoint")
    faults = controller.parse_epoch_file(raw).faults if epoch else controller.parse_broker_identity(raw).faults
    if not faults:
        return _Read(ConfigState.SOUND, None, 0, len(raw), {})
    nul = raw and not raw.strip(b"\0")
    condition = ConfigState.EMPTY if not raw.strip() else ConfigState.NUL_FILLED if nul else ConfigState.BROKEN
    return _Read(condition, joined(faults, "; "), 0, len(raw))
