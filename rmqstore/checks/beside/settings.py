"""Settings of broker.conf that contradict files beside the log: what the broker then does not read, or refuses.

With another storeType or configManagerVersion, a broker looks for topics, groups and offsets where they are not. In
controller mode, it does not register if its identity has another cluster or broker name: ReplicasManager compares
these two, and not the broker id, which comes from the controller and is not that of broker.conf. It reads
brokerIdentity-temp only if it cannot read brokerIdentity. With sizes of index files that take no entry, it starts if it
has nothing to dispatch, but the next message with a key ends the dispatch of all queues (`brokers/index_files.py`).

Source: BrokerController#initializeMetadata, MessageStoreConfig#isEnableRocksDBStore (RocketMQ 5.2.0 to 5.5.1);
ReplicasManager#checkMetadataValid, #confirmNowRegisteringState (the same in the classes of 5.1.4, 5.4.0 and 5.5.1)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqstore.brokers.index_files import entry_fault, wanted_index_sizes, writes_index_files
from rmqstore.brokers.rules import BrokerRules
from rmqstore.files.broker_config import LOG_PATH, BrokerConfig
from rmqstore.files.config import OFFSETS, TOPICS, V2, tables_in
from rmqstore.files.mapped_file_queue import file_name_to_offset
from rmqstore.files.store import Store
from rmqstore.files.store_queues import ROCKSDB, chooses_rocksdb
from rmqstore.formats.controller import BrokerIdentity, parse_broker_identity
from rmqstore.texts import Text

_VERSION, _STORE_TYPE = "configManagerVersion", "storeType"
_JSON = ("topics.json", "consumerOffset.json")
_IDENTITIES = ("brokerIdentity", "brokerIdentity-temp")
_LARGEST = 4096  # bytes of an identity file that are read


class Misfit(NamedTuple):
    """A setting that contradicts a file: its line, the line to write, and what a broker with it does not do."""

    key: str
    given: str
    line: str
    words: str


def misfits(store: Store, config: BrokerConfig, rules: BrokerRules) -> Iterator[Misfit]:
    """Yield the settings that contradict files beside the log, for a version that reads both.

    `config`: as this version reads it, with its defaults if there is a broker.conf (`as_configured`).
    """
    if store.part is None:
        yield from _of_configuration(store, config, rules)
        yield from _of_identity(store, config, rules)
        yield from _of_index(store, config)
        yield from _of_log(store, config)


def _of_configuration(store: Store, config: BrokerConfig, rules: BrokerRules) -> Iterator[Misfit]:
    databases = [name for name in store.rocksdb_config if {TOPICS, OFFSETS} & set(tables_in(name))]
    folder = store.root / "config"
    in_json = all(store.files.is_file(folder / name) for name in _JSON)
    if not databases or in_json or not rules.rocksdb_queues:
        return
    version_2 = config.text(_VERSION) == "v2"
    rocksdb = chooses_rocksdb(config, _STORE_TYPE)
    if set(databases) == {V2}:
        key, wanted, read = _VERSION, "v2", version_2
    else:
        key, wanted, read = _STORE_TYPE, ROCKSDB, rocksdb or version_2
    if not read and key in config.given:
        given = _given(config, key)
        words = Text(
            "it does not read the topics, groups and consumer offsets in config/{database}/ ({given})",
            database=databases[0],
            given=given,
        )
        yield Misfit(key, given, f"{key}={wanted}", words)


def _of_identity(store: Store, config: BrokerConfig, rules: BrokerRules) -> Iterator[Misfit]:
    if not (config.bool("enableControllerMode") and rules.batch_queues):
        return
    given = {key: config.given.get(key, "") for key in ("brokerClusterName", "brokerName")}
    name, identity = _identity(store)
    stored = {"brokerClusterName": identity.cluster, "brokerName": identity.broker_name} if identity else {}
    for key, wanted in stored.items():
        if given[key] and given[key] != wanted:
            words = Text(
                "it never registers with its controller: {file} has {wanted}, not {given}",
                file=name,
                wanted=f"{key}={wanted}",
                given=_given(config, key),
            )
            yield Misfit(key, _given(config, key), f"{key}={wanted}", words)


def _of_index(store: Store, config: BrokerConfig) -> Iterator[Misfit]:
    fault = entry_fault(config) if config.complete and writes_index_files(config) else None
    if fault is None:
        return
    wanted = wanted_index_sizes(store, config)
    alone = [key for key in wanted if entry_fault(config.with_values({key: wanted[key]})) is None]
    for key in alone[:1] or wanted:
        words = Text("the next message ends the dispatch: {reason}", reason=fault.reason)
        yield Misfit(key, _given(config, key), f"{key}={wanted[key]}", words)


def _of_log(store: Store, config: BrokerConfig) -> Iterator[Misfit]:
    """Yield a place of the log without a log file, if the default one has some, and no broker reads them."""
    own = store.root / "commitlog"
    if not config.complete or LOG_PATH not in config.given or own in store.commitlog_directories:
        return
    has_files = any(file_name_to_offset(entry.path.name) is not None for entry in store.files.list(own))
    if has_files and (store.commitlog is None or not store.commitlog.files):
        given = _given(config, LOG_PATH)
        yield Misfit(
            LOG_PATH, given, f"{LOG_PATH}={own}", Text("it does not read the log in commitlog/ ({given})", given=given)
        )


def _identity(store: Store) -> tuple[str, BrokerIdentity | None]:
    """Return the identity that a broker checks: that of the first file that it can read, as the rest is not read.

    Source: ReplicasManager#confirmNowRegisteringState, BrokerMetadata#isLoaded, TempBrokerMetadata#isLoaded
    """
    for name in _IDENTITIES:
        if name in store.top:
            identity = parse_broker_identity(store.files.read_at(store.root / name, _LARGEST, 0))
            if not identity.faults and (name == _IDENTITIES[0] or identity.register_check_code):
                return name, identity
    return "", None


def _given(config: BrokerConfig, key: str) -> str:
    return config.line_of(key) or Text("no {key}", key=key)
