"""CFG-*: the broker's configuration, and the progress of its consumer groups.

Files: the broker's JSON files with their .bak, and the controller's text files. Offsets of consumers and delay levels:
against the ends of the queues; those of delayOffset.json may skip or repeat messages, or be of levels that the broker
does not have.

Missing files: a broker writes all files of config/ every few seconds, also empty ones
(BrokerController#initializeScheduledTasks). A store that only rmqstore made has topics.json at most. So a missing file
was removed if a broker has run on the store: it has left other files, or config/ is gone and the log has messages of
its own topics.

Source: ScheduleMessageService#start, ConfigManager#persist (RocketMQ 4.9.7 to 5.5.1)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings, QueueRange, QueueState
from rmqstore.errors import about
from rmqstore.files.config import (
    LARGEST,
    METADATA,
    OFFSETS,
    TABLES,
    TIER_METADATA,
    TOPICS,
    V2,
    Committed,
    StoredTable,
    committed_offsets,
    delay_offsets,
    directory_of,
    loaded_config,
    null_table,
    tier_queues,
    types_of,
    wrong_type,
)
from rmqstore.files.files import Files
from rmqstore.files.mapped_file_queue import MAX_RECORD
from rmqstore.files.store import Store
from rmqstore.formats import consumequeue
from rmqstore.formats.configuration import (
    ConfigJsonError,
    ConfigState,
    ConfigText,
    JsonReader,
    JsonValue,
    object_of,
    parse_config_text,
)
from rmqstore.formats.consumequeue import split_queue_label, topic_of
from rmqstore.formats.properties import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, is_lmq, is_system_topic
from rmqstore.scan.units import unit_chunks
from rmqstore.texts import Text, joined

if TYPE_CHECKING:
    from rmqstore.checks.log.logs import Logs

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


class _ConfigFile(NamedTuple):
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
    findings.add(Finding(codes.CFG_NO_TOPICS, "config", "topics.json", facts=_listed("topics", names)))


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
        self, directory: Path, name: str, read: Callable[[Files, Path, ConfigFacts], _ConfigFile]
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

    def _syntax(self, queue: str, name: str, read: _ConfigFile) -> None:
        """Report a text that the JSON reader of some versions rejects."""
        rejected = {r: s for r in JsonReader if read.text is not None and (s := read.text.rejected_by(r)) is not None}
        if read.text is None or not rejected:
            return
        first = next(iter(rejected.values()))
        facts: dict[str, Fact] = {"syntax": Text(first.value), "versions": joined(Text(r.value) for r in rejected)}
        self.findings.add(Finding(codes.CFG_SYNTAX, queue, name, read.text.used[first], 0, facts))


def _bytes(files: Files, path: Path, facts: ConfigFacts) -> bytes | str:
    """Return the content of a file, or why there is none: missing, or unreadable (reported in `unchecked`)."""
    try:
        with files.open(path) as file:
            long = file.length > LARGEST
            raw = b"" if long else file.read(LARGEST + 1, 0)
    except (FileNotFoundError, NotADirectoryError):
        return _MISSING
    except OSError as e:
        facts.unchecked.append(about(path.name, e))
        return _UNREADABLE
    if long or len(raw) > LARGEST:
        facts.unchecked.append(Text("{path}: longer than {largest} bytes, not read", path=path.name, largest=LARGEST))
        return _UNREADABLE
    return raw


def _read_json(files: Files, path: Path, facts: ConfigFacts) -> _ConfigFile:
    raw = _bytes(files, path, facts)
    if isinstance(raw, str):
        return _ConfigFile(raw, raw)
    try:
        text = parse_config_text(raw)
        table = object_of(text.value)
        wrong = wrong_type(path.name, table) or null_table(path.name, table)
        if wrong:
            return _ConfigFile(ConfigState.BROKEN, wrong, 0, len(raw))
        return _ConfigFile(ConfigState.SOUND, None, 0, len(raw), table, text)
    except ConfigJsonError as e:
        return _ConfigFile(e.condition, e.words, min(e.position, len(raw)), max(0, len(raw) - e.position))


def _read_text(files: Files, path: Path, facts: ConfigFacts) -> _ConfigFile:
    raw = _bytes(files, path, facts)
    if isinstance(raw, str):
        return _ConfigFile(raw, raw)
    from rmqstore.formats import controller

    epoch = path.name.startswith("epochFileCheckpoint")
    faults = controller.parse_epoch_file(raw).faults if epoch else controller.parse_broker_identity(raw).faults
    if not faults:
        return _ConfigFile(ConfigState.SOUND, None, 0, len(raw), {})
    nul = raw and not raw.strip(b"\0")
    condition = ConfigState.EMPTY if not raw.strip() else ConfigState.NUL_FILLED if nul else ConfigState.BROKEN
    return _ConfigFile(condition, joined(faults, "; "), 0, len(raw))


_OF_BROKERS = ("compaction", "rocksdbstore", "kvStore", "timerwheel", "timerlog", "brokerIdentity")
_CONFIG_OF_BROKERS = set(JSON_FILES) - {"topics.json"}
_WITH_TOPICS = {"subscriptionGroup.json", "topicQueueMapping.json", "delayOffset.json"}
"""Files of a broker that has topics; a slave that has never asked its master for them has none of these."""
_OFFSETS = {"consumerOffset.json", "lmqConsumerOffset.json"}  # with enableLmq, a broker writes only the second
_DATABASES = frozenset({TOPICS, OFFSETS, METADATA, V2})
_NAMED = 5


def check_missing_config(
    store: Store,
    config: ConfigFacts,
    states: Mapping[str, QueueState],
    known_topics: Collection[str] | None,
    findings: Findings,
) -> None:
    """Report missing topics and consumer offsets of a store with messages on which a broker has run.

    `states`: all queues, by name ("TOPIC/ID"). `known_topics`: those of the configuration; None: unknown.
    """
    queues = list(states)
    names = _names(store)
    if config.databases.get(TOPICS) == V2:
        _check_stored_topics(config, _own(_topics(queues)), findings)
    elif known_topics is not None and store.config.role != "slave":
        _check_known_topics(states, known_topics, findings)
    if _DATABASES & set(store.rocksdb_config) or not broker_has_run(store, queues):
        return
    topics = _topics(queues)
    with_topics = not names or bool(names & _WITH_TOPICS)
    if with_topics and "topics.json" not in names and codes.CFG_NO_TOPICS not in findings.counts:
        own = _own(topics)
        if own:
            findings.add(Finding(codes.CFG_LOST_TOPICS, "config", "topics.json", facts=_listed("topics", own)))
    if not names & _OFFSETS:
        known = [*topics, *(config.queue_types or ())]
        groups = sorted({topic.removeprefix(RETRY_PREFIX) for topic in known if topic.startswith(RETRY_PREFIX)})
        if groups:
            facts = _listed("groups", groups)
            findings.add(Finding(codes.CFG_NO_OFFSETS, "config", "consumerOffset.json", facts=facts))


def _check_stored_topics(config: ConfigFacts, own: Sequence[str], findings: Findings) -> None:
    """Report topics with queues that version 2 of the configuration did not store.

    Source: TopicConfigManager#createTopicInSendMessageMethod, which calls #putTopicConfig, and TopicConfigManagerV2,
    which stores topics only in #updateTopicConfig (RocketMQ 5.5.1; after a restart, whole brokers do not know them)
    """
    table = config.tables[TOPICS].get(TABLES[TOPICS])
    stored = table if isinstance(table, dict) else {}
    if lacking := [topic for topic in own if topic not in stored]:
        findings.add(Finding(codes.CFG_UNSTORED_TOPICS, "config", V2, facts=_listed("topics", lacking)))


def _check_known_topics(states: Mapping[str, QueueState], known: Collection[str], findings: Findings) -> None:
    """Report topics with messages in their queues that a broker does not know, and so does not serve.

    A slave may have them: it takes topics.json from its master, and keeps the queues of a topic that was deleted there.
    """
    messages: dict[str, int] = {}
    for label, state in states.items():
        topic = topic_of(label)
        if topic not in known and state.max > state.min:
            messages[topic] = messages.get(topic, 0) + state.max - state.min
    if unknown := _own(sorted(messages)):
        facts = _listed("topics", unknown) | {"messages": sum(messages[topic] for topic in unknown)}
        findings.add(Finding(codes.CFG_UNKNOWN_TOPICS, "config", "topics.json", facts=facts))


def broker_has_run(store: Store, queues: Iterable[str]) -> bool:
    """Return whether a broker has left files. Without config/, topics that only brokers create show it, too.

    `queues`: the names of all queues ("TOPIC/ID").
    """
    names = _names(store)
    if any(name in store.top for name in _OF_BROKERS) or names & _CONFIG_OF_BROKERS:
        return True
    return not names and any(is_system_topic(topic) or topic.startswith(RETRY_PREFIX) for topic in _topics(queues))


def _names(store: Store) -> set[str]:
    """Return the names of the files in config/, a .bak under the name of its file."""
    return {e.path.name.removesuffix(".bak") for e in store.files.list(store.root / "config")}


def _topics(queues: Iterable[str]) -> list[str]:
    return sorted(set(map(topic_of, queues)))


def _own(topics: Iterable[str]) -> list[str]:
    """Return the topics that users create: not those of the broker, of retries, of dead letters, or light queues."""
    return [t for t in topics if not (is_system_topic(t) or is_lmq(t) or t.startswith((RETRY_PREFIX, DLQ_PREFIX)))]


def _listed(what: str, names: list[str]) -> dict[str, Fact]:
    listed = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    return {"count": len(names), what: listed}


_FILE = "delayOffset.json"
_LATE = 1_000  # ms; a running broker delivers when a message is due
_SAVED = 20_000  # ms; it saves delayOffset.json every 10 s, but topics.json at once


def check_delay_offsets(
    store: Store,
    facts: ConfigFacts,
    queue_range: QueueRange,
    queues: Iterable[str],
    times: tuple[int, int],
    logs: Logs,
    findings: Findings,
) -> None:
    """Compare delay offsets with the messages of their levels.

    `queues`: the names of all queues ("TOPIC/ID"). `times`: of the log's last message, and the latest (ms). No message
    that is due after the latest time has been delivered, because it would be in the log. The offsets must have been
    read before the queues, as for `check_offsets`.
    """
    table = facts.tables.get(_FILE)
    offsets = delay_offsets(table or {}) or {}
    for queue_id, offset in offsets.items():
        if beyond := beyond_end(queue_range, SCHEDULE_TOPIC, queue_id, offset):
            if skipped := _due(store, queue_id, times[1] + 1, 1 << 62):
                beyond["messages"] = skipped
            findings.add(Finding(codes.CFG_DELAY_BEYOND, f"{SCHEDULE_TOPIC}/{queue_id}", _FILE, facts=beyond))
    if "messageDelayLevel" in store.config.given:
        _check_levels(len(delay_levels(store).delays), offsets, queue_range, queues, findings)
    names = _names(store)
    reads_it = table is not None or _FILE not in names or _is_empty(store, _FILE)
    if not logs.grows and reads_it and broker_has_run(store, queues):
        until = times[0] - (_SAVED if names else _LATE)
        lacking = (label for label in queues if split_queue_label(label)[1] not in offsets)
        _check_delivered(store, queue_range, lacking, until, logs, findings)


def _is_empty(store: Store, name: str) -> bool:
    """Return whether a file of config/ and its .bak have no content: a broker then starts as without them.

    Source: ConfigManager#load, #loadBak
    """
    lengths = {e.path.name: e.length for e in store.files.list(store.root / "config")}
    return not lengths.get(name) and not lengths.get(f"{name}.bak")


def _level_ranges(queue_range: QueueRange, queues: Iterable[str]) -> Iterator[tuple[int, int, int]]:
    """Yield queue id, minimum and maximum queue offset of the delay levels among the named queues."""
    for topic, queue_id in map(split_queue_label, queues):
        known = queue_range(topic, queue_id) if topic == SCHEDULE_TOPIC else None
        if known is not None:
            yield queue_id, *known


def _check_levels(
    count: int, offsets: Mapping[int, int], queue_range: QueueRange, queues: Iterable[str], findings: Findings
) -> None:
    """Report messages that wait in levels after the last of the broker's `count` levels."""
    for queue_id, begin, end in _level_ranges(queue_range, queues):
        waiting = end - max(begin, offsets.get(queue_id, 0))
        if queue_id >= count and waiting > 0:
            about: dict[str, Fact] = {"level": queue_id + 1, "levels": count, "messages": waiting}
            findings.add(Finding(codes.CFG_NO_LEVEL, f"{SCHEDULE_TOPIC}/{queue_id}", "broker.conf", facts=about))


def _check_delivered(
    store: Store, queue_range: QueueRange, queues: Iterable[str], until: int, logs: Logs, findings: Findings
) -> None:
    """Report levels with messages that a broker delivered before `until` (ms), and will deliver again.

    `queues`: the names of queues ("TOPIC/ID") without an offset in delayOffset.json.
    """
    for queue_id, _, end in _level_ranges(queue_range, queues):
        about: dict[str, Fact] = {"topic": SCHEDULE_TOPIC, "queue_id": queue_id, "max": end}
        if again := _due(store, queue_id, 1, until):
            about["delivered_again"] = again
        else:
            again, all_known = _due_in_log(store, queue_id, until, logs)
            about |= {"delivered_again": again} | ({} if all_known else {"at_least": True})
        if again:
            findings.add(Finding(codes.CFG_NO_DELAYS, f"{SCHEDULE_TOPIC}/{queue_id}", _FILE, facts=about))


def _due(store: Store, queue_id: int, since: int, until: int) -> int:
    """Count the messages of a level that are due in [since, until) (ms); 0 if its rows cannot be read."""
    from rmqstore.files.rocksdb.database import CannotRead
    from rmqstore.files.rocksdb.queues import simple_queue

    count = 0
    with suppress(CannotRead):
        for chunk in unit_chunks(simple_queue(store, SCHEDULE_TOPIC, queue_id), consumequeue.UNIT):
            due = chunk.units["tags_code"]
            count += int(np.count_nonzero((chunk.units["size"] > 0) & (since <= due) & (due < until)))
    return count


def _due_in_log(store: Store, queue_id: int, until: int, logs: Logs) -> tuple[int, bool]:
    """Return how many messages of a level without a unit are due before `until` (ms), and whether there are no more.

    A broker that rebuilds their units delivers them. Only the first and the last message of each range are read.
    """
    part = logs.queues.get((SCHEDULE_TOPIC, queue_id))
    count, all_known = 0, True
    for missing in part.missing if part is not None else ():
        first, last = (logs.record(at, MAX_RECORD) for at in (missing.first_at, missing.last_at))
        if last is not None and delay_levels(store).deliver_time(queue_id + 1, last.store_timestamp) < until:
            count += missing.count
        elif first is not None and delay_levels(store).deliver_time(queue_id + 1, first.store_timestamp) < until:
            count, all_known = count + 1, False
    return count, all_known


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """The progress of a group in a queue: `offset` is the queue offset that it consumes next."""

    group: str
    offset: int

    def has_consumed(self, queue_offset: int) -> bool:
        """Return whether the group is past a message; it may also have skipped it."""
        return self.offset > queue_offset


@dataclass(slots=True)
class ConsumerOffsets:
    """Progress of all groups: topic -> queue id -> group -> offset. `unreadable`: why it is unknown, or "".

    A broker reads one of consumerOffset.json, lmqConsumerOffset.json and RocksDB. If a store has several, the last in
    this order counts, because settings usually change in this order.
    """

    queues: dict[str, dict[int, dict[str, int]]] = field(default_factory=dict)
    unreadable: str = ""

    @classmethod
    def read(cls, store: Store) -> ConsumerOffsets:
        """Read the offsets of a store. Errors: none; see `unreadable`."""
        out = cls()
        if store.part is not None:
            out.unreadable = Text("a part of a store has no configuration")
            return out
        known = False
        for name in ("consumerOffset.json", "lmqConsumerOffset.json"):
            offsets = loaded_config(store.files, store.root, name, committed_offsets)
            known |= offsets is not None
            out._add(offsets or [])
        if (directory := directory_of(store, OFFSETS)) is not None:
            out._add_rocksdb(store, directory)
        elif not known:
            out.unreadable = Text("there is no readable consumerOffset.json")
        return out

    def of(self, topic: str, queue_id: int) -> list[QueueProgress]:
        """Return the groups of a queue by name; groups of the topic without an offset in this queue are at 0."""
        queues = self.queues.get(topic, {})
        own = queues.get(queue_id, {})
        names = sorted({group for groups in queues.values() for group in groups})
        return [QueueProgress(group, own.get(group, 0)) for group in names]

    def rows(self) -> Iterator[Committed]:
        """Yield all offsets."""
        for topic, queues in self.queues.items():
            for queue_id, groups in queues.items():
                for group, offset in groups.items():
                    yield Committed(topic, group, queue_id, offset)

    def _add(self, offsets: list[Committed]) -> None:
        for one in offsets:
            self.queues.setdefault(one.topic, {}).setdefault(one.queue_id, {})[one.group] = one.offset

    def _add_rocksdb(self, store: Store, directory: str) -> None:
        from rmqstore.files.rocksdb.database import CannotRead
        from rmqstore.files.rocksdb.rows import stored_table

        try:
            table = stored_table(store, directory, OFFSETS)
        except CannotRead as error:
            self.unreadable = Text("config/{directory} cannot be read: {error}", directory=directory, error=error)
            return
        offsets = committed_offsets(table.as_json)
        self._add(offsets or [])
        if table.broken or offsets is None:
            self.unreadable = Text("config/{directory} has values that no broker reads", directory=directory)
