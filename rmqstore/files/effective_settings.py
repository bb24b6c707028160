"""The value that every setting of a broker has once it runs, and where each value comes from.

The file comes first, then what BrokerStartup and the getters make of it: a port or a broker id that follows from other
settings, a file size that is rounded up.

Source: BrokerStartup#createBrokerController, #buildBrokerController; MessageStoreConfig's getters (RocketMQ 4.3.0 to
5.5.1). The real classes were asked for every setting of brokers of 4.9.7, 5.1.4, 5.4.0 and 5.5.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.broker_settings import Release, Setting, release
from rmqstore.files.versions import version_number
from rmqstore.formats.consumequeue import round_file_size
from rmqstore.texts import Text


class Origin(StrEnum):
    """Where a value comes from."""

    FILE = "file"
    DEFAULT = "default"
    DERIVED = "derived"  # the broker computes it at its start, or each time that it asks for it
    CALLER = "caller"  # a setting that the caller gave without a file


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """A setting with the value that the broker uses.

    `value` None: none, null in Java; a text such as "{user.home}/store" depends on the machine. `line`: the line of
    broker.conf that sets the key, or 0. `why`: how a derived value is computed, or "".
    """

    setting: Setting
    value: str | None
    origin: Origin
    line: int = 0
    why: str = ""


def effective_settings(config: BrokerConfig) -> list[EffectiveSetting]:
    """Return every setting of the version that reads `config`, by class and key."""
    of = release(config.version)
    found = {name: _read(config, of, setting) for name, setting in of.settings.items()}
    values = {name: one.value for name, one in found.items()}
    if found[_STORE, "haListenPort"].origin is Origin.DEFAULT and version_number(config.version) >= (5, 1, 1):
        values[_STORE, "haListenPort"] = "0"  # BrokerStartup sets it before it reads the file
    for name, value, why in _derived(values, version_number(config.version)):
        one = found.get(name)
        values[name] = value
        if one is not None and one.value != value:
            found[name] = EffectiveSetting(one.setting, value, Origin.DERIVED, one.line, why)
    return [found[name] for name in sorted(found)]


def _read(config: BrokerConfig, of: Release, setting: Setting) -> EffectiveSetting:
    if setting.key in config.own:
        return EffectiveSetting(setting, config.own[setting.key], Origin.CALLER)
    line = config.file.last.get(setting.key) if config.file is not None else None
    value = of.read(setting, line.value) if line is not None else None
    if line is None or value is None:
        return EffectiveSetting(setting, setting.default, Origin.DEFAULT)
    return EffectiveSetting(setting, value, Origin.FILE, line.number)


_STORE, _BROKER, _SERVER, _AUTH = "MessageStoreConfig", "BrokerConfig", "NettyServerConfig", "AuthConfig"
_Name = tuple[str, str]


def _derived(values: Mapping[_Name, str | None], version: tuple[int, ...]) -> Iterator[tuple[_Name, str | None, str]]:
    """Yield name, value and reason of each value that is computed, in the order in which the broker does."""
    role = values.get((_STORE, "brokerRole"))
    controller = values.get((_BROKER, "enableControllerMode")) == "true"
    if role == "SLAVE" and (5, 1, 0) <= version < (5, 4, 0):
        name = _STORE, "accessMessageInMemoryMaxRatio"
        yield name, str(int(values[name] or 0) - 10), Text("a slave uses 10 less")
    if role != "SLAVE" and not controller:
        yield (_BROKER, "brokerId"), "0", Text("the id of a master")
    if values.get((_STORE, "enableDLegerCommitLog")) == "true":
        yield (_BROKER, "brokerId"), "-1", Text("DLedger chooses the role")
    if version < (5, 1, 1) or values[_STORE, "haListenPort"] == "0":
        port = int(values[_SERVER, "listenPort"] or 0) + 1
        yield (_STORE, "haListenPort"), str(port), "listenPort + 1"
    if (_BROKER, "inBrokerContainer") in values:
        yield (_BROKER, "inBrokerContainer"), "false", Text("set at the start")
    if (bits := _filter_bits(values)) is not None:
        yield (_STORE, "bitMapLengthConsumeQueueExt"), bits, Text("the bits of a Bloom filter")
    yield from _of_getters(values)
    if (_AUTH, "authConfigPath") in values:
        yield (_AUTH, "configName"), values[_BROKER, "brokerName"], "brokerName"
        yield (_AUTH, "clusterName"), values[_BROKER, "brokerClusterName"], "brokerClusterName"
        root = values[_STORE, "storePathRootDir"]
        yield (_AUTH, "authConfigPath"), f"{root}/config", Text("a directory of storePathRootDir")


def _filter_bits(values: Mapping[_Name, str | None]) -> str | None:
    """Return the length of the Bloom filter, in bits; None for numbers that it refuses.

    Source: ConsumerFilterManager#<init>, BloomFilter#<init>
    """
    percent, count = (values.get((_BROKER, key)) for key in ("maxErrorRateOfBloomFilter", "expectConsumerNumUseFilter"))
    if percent is None or count is None or not 1 <= int(percent) < 100 or int(count) < 1:
        return None
    bits = math.ceil(int(count) * math.log2(1 / (int(percent) / 100)) * math.log2(math.e))
    return str(math.ceil(bits / 8) * 8)


def _of_getters(values: Mapping[_Name, str | None]) -> Iterator[tuple[_Name, str | None, str]]:
    if (ratio := values.get((_STORE, "diskMaxUsedSpaceRatio"))) is not None:
        yield (_STORE, "diskMaxUsedSpaceRatio"), str(min(max(int(ratio), 10), 95)), Text("from 10 to 95")
    if (size := values.get((_STORE, "mappedFileSizeConsumeQueue"))) is not None:
        whole = round_file_size(int(size))
        yield (_STORE, "mappedFileSizeConsumeQueue"), str(whole), Text("whole units of 20 bytes")
    root = values.get((_STORE, "storePathRootDir"))
    paths = {
        "storePathCommitLog": "commitlog",
        "storePathEpochFile": "epochFileCheckpoint",
        "storePathBrokerIdentity": "brokerIdentity",
    }
    for key, name in paths.items():
        if (_STORE, key) in values and values[_STORE, key] is None:
            yield (_STORE, key), f"{root}/{name}", Text("in storePathRootDir")
