"""What stops a starting broker before it recovers its log, and what it loads until then.

In the order of a start: conditions that are checked before the load (`check_before_load`), the files of config/
(`unreadable_metadata`, `unreadable_after_load`) and the places of the consume queues (`check_queue_stores`,
`check_after_load`).

Source: BrokerController#initializeMetadata, #initializeMessageStore, #recoverAndInitService, #shutdown,
BrokerStartup#createBrokerController; DefaultMessageStore's constructor; TimerWheel's constructor, TimerMetrics,
TimerMessageStore#shutdown; ConfigManager#load, #loadBak; ScheduleMessageService#load (RocketMQ 4.3.0 to 5.4.0);
CombineConsumeQueueStore's and RocksDBConsumeQueueStore's constructors, RocksDBLiteLifecycleManager#init (5.3.4 to
5.5.1). Confirmed with whole brokers of 4.9.7, 5.1.4, 5.4.0 and 5.5.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rmqstore.brokers.forecast import LOAD_FALSE, PROCESS_EXIT, StartRefused
from rmqstore.brokers.mapped_files import Obstacle
from rmqstore.brokers.rules import BrokerRules
from rmqstore.files.broker_config import BrokerConfig, shown_value
from rmqstore.files.broker_settings import TIERED_STORE
from rmqstore.files.config import BATCH_CQ, config_bytes, configured_types, readers_of
from rmqstore.files.files import Files
from rmqstore.files.store import QueueKind, Store
from rmqstore.files.store_queues import (
    DOUBLE_WRITE,
    LIGHT_IN_ROCKSDB,
    ROCKSDB,
    SEPARATE,
    SEPARATE_KEY,
    SHARED,
    is_current,
    place_is_configured,
    rocksdb_place,
)
from rmqstore.formats.configuration import JsonReader
from rmqstore.formats.javatext import java_split, parse_int
from rmqstore.formats.properties import can_be_parsed
from rmqstore.formats.timer import snapshot_position, wheel_size
from rmqstore.texts import Text

_METADATA = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "consumerFilter.json")
_METADATA_5 = ("topicQueueMapping.json", "consumerOrderInfo.json")


def batch_topics(store: Store) -> frozenset[str]:
    """Return the topics that a starting broker treats as BatchCQ: only topics.json or its .bak decides."""
    types = store.files.once("topic types", partial(configured_types, store.files, store.root)) or {}
    return frozenset(topic for topic, kind in types.items() if kind == BATCH_CQ)


def unreadable_metadata(store: Store, rules: BrokerRules) -> Obstacle | None:
    """Return the first unparsable file (its .bak too) of those read before the store: initialize() returns false."""
    return _unreadable(store, (*_METADATA, *(_METADATA_5 if rules.more_metadata else ())), rules)


def unreadable_after_load(store: Store, rules: BrokerRules, config: BrokerConfig) -> Obstacle | None:
    """Return the first of delayOffset.json, timermetrics and messageDelayLevel that cannot be parsed.

    The broker reads these once the store is loaded.
    """
    timer = rules.timer_wheel and config.bool("timerWheelEnable")
    obstacle = _unreadable(store, ("delayOffset.json", *(("timermetrics",) if timer else ())), rules)
    if obstacle is not None:
        return obstacle
    if not can_be_parsed(config.text("messageDelayLevel")):
        text = f"parse message delay level failed. messageDelayLevel = {config.text('messageDelayLevel')}"
        return Obstacle(store.root, Text("messageDelayLevel cannot be parsed"), text)
    return None


def _unreadable(store: Store, names: Iterable[str], rules: BrokerRules) -> Obstacle | None:
    files = store.files
    for name in names:
        path = store.root / "config" / name
        readers = files.once(("readers", path), partial(_readers, files, path))
        if len(readers) == len(JsonReader) or rules.config_reader in readers:
            continue
        return Obstacle(
            path,
            Text("neither {path} nor its .bak can be parsed", path=path),
            f"load {path} failed, and try to load backup file",
        )
    return None


def _readers(files: Files, path: Path) -> frozenset[JsonReader]:
    """Return the readers that can parse a file of config/ or its .bak; all of them if there is no .bak."""
    readers, backup = readers_of(files, path), path.with_name(path.name + ".bak")
    if len(readers) == len(JsonReader) or not config_bytes(files, backup):
        return frozenset(JsonReader)
    return readers | readers_of(files, backup)


HIDDEN = Text(
    "the broker's log ends with a NullPointerException in TimerMessageStore#shutdown: a "
    "consequence of the failed start, not its cause"
)


def check_before_load(store: Store, rules: BrokerRules, config: BrokerConfig) -> None:
    """Fail if the constructor of the message store does, because of `lock` or the timer wheel. Errors: StartRefused."""
    lock = store.top.get("lock")
    if lock is not None and lock.directory:
        code = PROCESS_EXIT if rules.shutdown_throws else LOAD_FALSE
        raise StartRefused(Text("lock is a directory"), "java.io.FileNotFoundException: lock (Is a directory)", code)
    if not rules.timer_wheel or not config.bool("timerWheelEnable"):
        return
    name = _wheel_read(store, rules, config)
    wheel = store.top.get(name)
    if wheel is None:
        return
    if wheel.directory:
        line = f"java.io.FileNotFoundException: {name} (Is a directory)"
        raise StartRefused(Text("{name} is a directory", name=name), line)
    if wheel.length not in (0, wheel_size()):
        code = LOAD_FALSE if rules.any_wheel_failure_is_caught else PROCESS_EXIT
        line = f"Timer wheel length:{wheel.length} != expected:{wheel_size()}"
        words = Text("{name} is {length:,} bytes long, not {size:,}", name=name, length=wheel.length, size=wheel_size())
        raise StartRefused(words, line, code)


def _wheel_read(store: Store, rules: BrokerRules, config: BrokerConfig) -> str:
    """Return the file that the broker reads the timer wheel from: the newest snapshot if it uses snapshots."""
    if config.bool("timerWheelSnapshotFlush") and rules.wheel_snapshots:
        found = [at for name in store.top if (at := snapshot_position(name)) is not None]
        if found:
            return f"timerwheel.{max(found)}"
    return "timerwheel"


_OWN_CLASSES = "org.apache.rocketmq."
_CLASS = re.compile(r"[^\W\d][\w$]*(?:\.[^\W\d][\w$]*)*")


def has_plugin(name: str, rules: BrokerRules) -> bool | None:
    """Return whether a broker has the class of a message store plug-in; None: only if a jar in lib/ has it."""
    if name == TIERED_STORE:
        return rules.tiered_store
    return None if _CLASS.fullmatch(name) and not name.startswith(_OWN_CLASSES) else False


def check_plugins(rules: BrokerRules, config: BrokerConfig) -> None:
    """Fail if the broker has no class of a message store plug-in. Errors: StartRefused.

    Source: MessageStoreFactory#build, BrokerController#initializeMessageStore, which catches it since 5.3.1
    """
    missing = next((name for name in config.plugins if has_plugin(name, rules) is False), None)
    if not config.complete or missing is None:
        return
    code = LOAD_FALSE if rules.any_wheel_failure_is_caught and not rules.shutdown_throws else PROCESS_EXIT
    reason = Text("messageStorePlugIn: this version has no class {name}", name=shown_value(missing))
    raise StartRefused(reason, f"Initialize plugin's class: {missing} not found!", code)


def check_command_line(rules: BrokerRules, config: BrokerConfig) -> None:
    """Fail if the broker ends before it makes a store, because of its broker.conf. Errors: StartRefused.

    Source: BrokerStartup#createBrokerController, #buildBrokerController; NetworkUtil#string2SocketAddress
    """
    if not config.complete:
        return
    if config.file is not None and config.file.broken:
        words = Text("line {number} of broker.conf has a broken \\u escape", number=config.file.broken)
        raise StartRefused(words, "java.lang.IllegalArgumentException: Malformed \\uxxxx encoding.", PROCESS_EXIT)
    servers = config.given.get("namesrvAddr")
    none = servers is None or (rules.blank_name_server and not servers.strip())
    if servers is not None and not none and not all(map(_is_address, java_split(servers, ";"))):
        line = f"The Name Server Address[{servers}] illegal"
        shown = shown_value(servers)
        raise StartRefused(Text("namesrvAddr={servers} is not a list of HOST:PORT", servers=shown), line, LOAD_FALSE)
    has_roles = not (rules.more_metadata and config.bool("enableControllerMode"))
    if has_roles and config.text("brokerRole") == "SLAVE" and config.int("brokerId") <= 0:
        raise StartRefused(Text("a slave needs a brokerId above 0"), "Slave's brokerId must be > 0", LOAD_FALSE)
    if rules.one_mode and config.bool("enableControllerMode") and config.bool("enableDLegerCommitLog"):
        line = "The config enableControllerMode and enableDLegerCommitLog cannot both be true."
        words = Text("enableControllerMode and enableDLegerCommitLog exclude each other")
        raise StartRefused(words, line, _BOTH_MODES)


def _is_address(text: str) -> bool:
    _, colon, port = text.rpartition(":")
    number = parse_int(port)
    return bool(colon) and number is not None and 0 <= number <= 0xFFFF


_BOTH_MODES = 252
_FILES, _DATABASE = "default", ROCKSDB.lower()
_ILLEGAL = "java.lang.IllegalArgumentException: CombineConsumeQueue"


@dataclass(frozen=True, slots=True)
class QueueStores:
    """Where a broker keeps consume queues: in RocksDB (`rocksdb`), or in files and in RocksDB (`both`), or in files."""

    rocksdb: bool
    both: bool


def database_directory(store: Store, rules: BrokerRules, config: BrokerConfig) -> str:
    """Return the directory in which the broker keeps the RocksDB of its consume queues."""
    if not rules.separate_rocksdb_queues:
        return SHARED
    if not place_is_configured(config):
        return rocksdb_place(store.files, store.root, config)
    return SEPARATE if config.bool(SEPARATE_KEY) else SHARED


def check_queue_stores(store: Store, rules: BrokerRules, config: BrokerConfig, stores: QueueStores) -> None:
    """Fail if the broker refuses its queue settings or directories. Errors: StartRefused."""
    if stores.both:
        _check_settings(rules, config)
        _check_batch_queues(store)
    if not (stores.rocksdb or stores.both) or not rules.separate_rocksdb_queues:
        return
    own = database_directory(store, rules, config)
    other = SHARED if own == SEPARATE else SEPARATE
    if not is_current(store.files, store.root / other):
        return
    raise StartRefused(
        Text(
            "the consume queues belong in the RocksDB in {own}/, but {other}/ contains a RocksDB, too "
            "(useSeparateStorePathForRocksdbCQ)",
            own=own,
            other=other,
        ),
        "find RocksDBConsumeQueue in original/separate path, maybe incompatible config",
    )


def _check_batch_queues(store: Store) -> None:
    """Fail on a batch queue beside queues in files and in RocksDB.

    Source: BatchConsumeQueue's constructor (RocketMQ 5.4.0 and 5.5.1, seen with both)
    """
    for topic, queue_id, _ in store.queue_directories(QueueKind.BATCH):
        reason = Text("the batch queue {topic}/{id} cannot be loaded beside a RocksDB of queues ({name})")
        line = "java.lang.ClassCastException: class org.apache.rocketmq.store.queue.CombineConsumeQueueStore"
        raise StartRefused(reason.format(topic=topic, id=queue_id, name=DOUBLE_WRITE), line)


def _check_settings(rules: BrokerRules, config: BrokerConfig) -> None:
    """Fail on wrong settings of queues in files and in RocksDB."""
    given = config.text("combineCQLoadingCQTypes") or f"{_FILES};{ROCKSDB}"
    loaded = {word.strip().lower() for word in given.split(";")} & {_FILES, _DATABASE}
    if not loaded:
        raise StartRefused(
            Text("combineCQLoadingCQTypes names no kind of queue"), "CombineConsumeQueueStore loadingCQTypes"
        )
    chosen = {}
    for key in ("combineAssignOffsetCQType", "combineCQPreferCQType"):
        chosen[key] = (config.text(key) or _FILES).lower()
        if chosen[key] not in loaded:
            words = Text("{key} names a kind of queue that combineCQLoadingCQTypes does not load", key=key)
            raise StartRefused(words, _ILLEGAL)
    light = rules.double_write_needs_lmq and config.bool(LIGHT_IN_ROCKSDB)
    if light and _DATABASE not in loaded:
        words = Text("combineCQUseRocksdbForLmq needs queues in RocksDB (combineCQLoadingCQTypes)")
        raise StartRefused(words, _ILLEGAL)
    selective = rules.selective_double_write and config.bool("rocksdbCQSelectiveDoubleWriteEnable")
    for key, on in (("combineCQUseRocksdbForLmq", light), ("rocksdbCQSelectiveDoubleWriteEnable", selective)):
        if on and chosen["combineAssignOffsetCQType"] != _FILES:
            words = Text("{key} needs combineAssignOffsetCQType={files}", key=key, files=_FILES)
            raise StartRefused(words, _ILLEGAL)
    if selective and chosen["combineCQPreferCQType"] != _FILES:
        words = Text("rocksdbCQSelectiveDoubleWriteEnable needs combineCQPreferCQType={files}", files=_FILES)
        raise StartRefused(words, _ILLEGAL)


def check_after_load(rules: BrokerRules, config: BrokerConfig, stores: QueueStores) -> None:
    """Fail if a whole broker refuses to serve a store that has loaded. Errors: StartRefused.

    Source: BrokerController#initialize, RocksDBLiteLifecycleManager#init (RocketMQ 5.5.1)
    """
    configured = stores.both and config.bool(DOUBLE_WRITE)  # otherwise inferred from files: the settings are unknown
    if configured and rules.double_write_needs_lmq and not config.bool(LIGHT_IN_ROCKSDB):
        raise StartRefused(
            Text("rocksdbCQDoubleWriteEnable needs combineCQUseRocksdbForLmq=true"),
            "unexpected, rocksdbCQ is not ready for LMQ.",
        )
