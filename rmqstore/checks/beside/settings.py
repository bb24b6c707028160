"""Settings of broker.conf that contradict files beside the log: what the broker then does not read, or refuses.

With another storeType or configManagerVersion, a broker looks for topics, groups and offsets where they are not. In
controller mode, it does not register if brokerIdentity has another cluster or broker name. The broker id of
broker.conf plays no part there: the controller gives the id.

Source: BrokerController#initializeMetadata, MessageStoreConfig#isEnableRocksDBStore (RocketMQ 5.2.0 to 5.5.1);
ReplicasManager#checkMetadataValid (5.1.4 to 5.5.1)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqstore.brokers.rules import BrokerRules
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.config import OFFSETS, TOPICS, V2, tables_in
from rmqstore.files.store import Store
from rmqstore.files.store_queues import ROCKSDB
from rmqstore.formats.controller import parse_broker_identity
from rmqstore.texts import Text

_VERSION, _STORE_TYPE = "configManagerVersion", "storeType"
_JSON = ("topics.json", "consumerOffset.json")
_IDENTITIES = ("brokerIdentity", "brokerIdentity-temp")
_LARGEST = 4096  # bytes of an identity file that are read
_CLUSTER = "DefaultCluster"


class Misfit(NamedTuple):
    """A setting that contradicts a file: its line, the line to write, and what a broker with it does not do."""

    key: str
    given: str
    line: str
    words: str


def misfits(store: Store, config: BrokerConfig, rules: BrokerRules) -> Iterator[Misfit]:
    """Yield the settings that contradict files beside the log, for a version that reads both."""
    if store.part is None:
        yield from _of_configuration(store, config, rules)
        yield from _of_identity(store, config, rules)


def _of_configuration(store: Store, config: BrokerConfig, rules: BrokerRules) -> Iterator[Misfit]:
    databases = [name for name in store.rocksdb_config if {TOPICS, OFFSETS} & set(tables_in(name))]
    folder = store.root / "config"
    in_json = all(store.files.is_file(folder / name) for name in _JSON)
    if not databases or in_json or not rules.rocksdb_queues:
        return
    version_2 = config.text(_VERSION).strip() == "v2"
    rocksdb = config.text(_STORE_TYPE).strip().lower() == ROCKSDB.lower()
    if set(databases) == {V2}:
        key, wanted, read = _VERSION, "v2", version_2
    else:
        key, wanted, read = _STORE_TYPE, ROCKSDB, rocksdb or version_2
    if not read and key in config.given:
        words = Text(
            "it does not read the topics, groups and consumer offsets in config/{database}/ ({given})",
            database=databases[0],
            given=f"{key}={config.text(key)}",
        )
        yield Misfit(key, f"{key}={config.text(key)}", f"{key}={wanted}", words)


def _of_identity(store: Store, config: BrokerConfig, rules: BrokerRules) -> Iterator[Misfit]:
    if not (config.bool("enableControllerMode") and rules.batch_queues):
        return
    given = {"brokerClusterName": config.text("brokerClusterName"), "brokerName": config.text("brokerName")}
    given["brokerClusterName"] = given["brokerClusterName"] or (_CLUSTER if config.source else "")
    told: set[str] = set()
    for name in _IDENTITIES:
        if name not in store.top:
            continue
        identity = parse_broker_identity(store.files.read_at(store.root / name, _LARGEST, 0))
        stored = {"brokerClusterName": identity.cluster, "brokerName": identity.broker_name}
        for key, value in given.items():
            wanted = stored[key]
            if not value or not wanted or value == wanted or key in told:
                continue
            told.add(key)
            words = Text(
                "it never registers with its controller: {file} has {wanted}, not {given}",
                file=name,
                wanted=f"{key}={wanted}",
                given=f"{key}={value}",
            )
            yield Misfit(key, f"{key}={value}", f"{key}={wanted}", words)
