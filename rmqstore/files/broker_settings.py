"""The settings of each release: which class has them, their type and default, and how a broker reads a value.

`broker_settings.tsv` has every setting that a broker.conf can set in RocketMQ 4.3.0 to 5.5.1. It is generated from the
released classes; those whose jar is missing on Maven Central are named there, and count as those of the release
before. A broker calls a public setter for each key, in each object that it fills: a key without a setter is ignored,
and a value that the setter's type does not accept leaves the default, without a word in the log.

Source: MixAll#properties2Object, BrokerStartup, MessageStorePluginContext#registerConfiguration (RocketMQ 4.3.0 to
5.5.1)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

from rmqstore.files.versions import version_number
from rmqstore.formats.javatext import java_trim, parse_int, parse_long

OWNERS = ("MessageStoreConfig", "NettyServerConfig", "NettyClientConfig", "BrokerConfig", "AuthConfig")
"""The classes that a broker fills itself, in the order in which their settings count for `setting_of`."""
PLUGINS = ("TieredStoreConfig",)
"""The classes that plug-ins fill with the same file: MessageStoreConfig of the tiered store."""

STORE_SETTINGS = frozenset(
    {
        *("brokerRole", "checkCRCOnRecover", "checkCommitLogOffsetOnRecover", "cleanFileForciblyEnable"),
        *("combineCQMaxExtraSearchCommitLogFiles", "combineCQUseRocksdbForLmq", "commitLogRecoverMaxNum"),
        *("deleteWhen", "diskMaxUsedSpaceRatio", "duplicationEnable", "enableAcceleratedRecovery"),
        *("enableCompaction", "enableConsumeQueueExt", "enableControllerMode", "enableDLegerCommitLog"),
        *("enableLmq", "enableMultiDispatch", "enabledAppendPropCRC", "fileReservedTime", "flushDiskType"),
        *("forceVerifyPropCRC", "indexRocksDBEnable", "iteratorWhenUseRocksdbConsumeQueue"),
        *("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "mappedFileSizeConsumeQueueExt"),
        *("mappedFileSizeTimerLog", "mapperFileSizeBatchConsumeQueue", "maxHashSlotNum", "maxIndexNum"),
        *("maxMessageSize", "messageDelayLevel", "messageIndexEnable", "messageIndexSafe"),
        *("recheckReputOffsetFromCq", "rocksdbCQDoubleWriteEnable", "rocksdbCQSelectiveDoubleWriteEnable"),
        *("storeType", "timerPrecisionMs", "timerRocksDBEnable", "timerWheelEnable", "transRocksDBEnable"),
        *("transWriteOriginTransHalfEnable", "useSeparateStorePathForRocksdbCQ"),
    }
)
"""The settings about files, recovery and dispatch: a start depends on them, and a snapshot keeps them."""

TIERED_STORE = "org.apache.rocketmq.tieredstore.TieredMessageStore"
"""The only message store plug-in of RocketMQ, since 5.1.0."""
_DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?"
    r"|0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?)"
)
_TIMER_PRECISIONS = (100, 200, 500, 1000)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of one release.

    `kinds`: what its setters take: "int", "long", "double", "boolean", "String", or the names of an enum's constants.
    `default` is None without one; `machine`: it depends on the machine, and is a text such as "{user.home}/store".
    """

    owner: str
    key: str
    kinds: tuple[str, ...]
    default: str | None
    machine: bool

    @property
    def kind(self) -> str:
        """The type in words for people: `int`, `boolean`, `A, B or C`."""
        return " | ".join(kind.replace(",", " | ") for kind in self.kinds)


def _number(setting: Setting, number: int, version: tuple[int, ...]) -> str:
    """Return what a setter makes of a number.

    Source: MessageStoreConfig#setHaListenPort, #setTimerPrecisionMs; MetricsExporterType#valueOf(int),
    TieredStorageLevel#valueOf(int)
    """
    if setting.key == "haListenPort" and version >= (5,):
        return str(max(number, 0))
    if setting.key == "timerPrecisionMs":
        return str(max((one for one in _TIMER_PRECISIONS if one <= number), default=_TIMER_PRECISIONS[0]))
    if len(setting.kinds) > 1:  # an enum that is also set by the numbers of its constants
        names = setting.kinds[0].split(",")
        return names[number] if 0 <= number < len(names) else names[0]
    return str(number)


def parse_double(text: str) -> str | None:
    """Parse like Double.parseDouble, which trims; None where Java throws NumberFormatException."""
    text = java_trim(text)
    if not text.isascii() or not _DOUBLE.fullmatch(text):
        return None
    if "x" in text.lower():
        try:
            return repr(float.fromhex(text.rstrip("fFdD")))
        except OverflowError:
            return repr(float("-inf" if text.startswith("-") else "inf"))
    text = text if text.endswith(("NaN", "Infinity")) else text.rstrip("fFdD")
    return repr(float(text))


@dataclass(frozen=True, slots=True)
class Release:
    """The settings of one release, by class and key. `trims`: a text loses the blanks around it."""

    version: str
    settings: Mapping[tuple[str, str], Setting]
    trims: bool
    without_jar: tuple[str, ...]
    """The modules whose jar is missing, so that the settings are those of the release before."""

    @property
    def defaults(self) -> dict[str, str]:
        """The default of each key, except null, and what depends on the machine."""
        keys = {key for _, key in self.settings}
        found = ((key, self.setting_of(key)) for key in keys)
        return {key: s.default for key, s in found if s is not None and s.default is not None and not s.machine}

    def read(self, setting: Setting, text: str) -> str | None:
        """Return the value that a setter stores, as Java prints it (a double as Python does); None if it refuses it."""
        for kind in setting.kinds:  # at most two, which do not accept the same text
            value = self._stored(setting, kind, text)
            if value is not None:
                return value
        return None

    def _stored(self, setting: Setting, kind: str, text: str) -> str | None:
        if kind in ("int", "long"):
            number = parse_int(text) if kind == "int" else parse_long(text)
            return None if number is None else _number(setting, number, version_number(self.version))
        if kind == "boolean":
            return str(text.lower() == "true").lower()
        if kind == "double":
            return parse_double(text)
        text = java_trim(text) if self.trims else text
        return text if kind == "String" or text in kind.split(",") else None

    def of_key(self, key: str) -> Iterator[Setting]:
        """Yield the settings with this key: several classes may have one, such as listenPort."""
        for owner in (*OWNERS, *PLUGINS):
            if (found := self.settings.get((owner, key))) is not None:
                yield found

    def setting_of(self, key: str) -> Setting | None:
        """Return the setting of the first class that has it; None if a broker ignores the key."""
        return next(self.of_key(key), None)


@cache
def _table() -> tuple[tuple[str, ...], ...]:
    text = (resources.files("rmqstore.files") / "broker_settings.tsv").read_text("utf-8")
    return tuple(tuple(line.split("\t")) for line in text.splitlines() if not line.startswith("#"))


@cache
def release(version: str) -> Release:
    """Return the settings of a release, such as "5.4.0"; those of the newest one before it if it is unknown."""
    wanted = version_number(version)
    settings: dict[tuple[str, str], Setting] = {}
    trims = False
    without: tuple[str, ...] = ()
    for since, owner, key, kinds, default in _table():
        if version_number(since) > wanted:
            break
        if owner == "-":
            without = tuple(key.removeprefix("no jar of ").split(", ")) if since == version else without
        elif owner == "MixAll":
            trims = default == "true"
        elif kinds == "-":
            settings.pop((owner, key), None)
        else:
            known = None if default == "null" else default
            found = Setting(owner, key, tuple(kinds.split("|")), known, default.startswith("{") and default != "{}")
            settings[owner, key] = found
    return Release(version, MappingProxyType(settings), trims, without)


def releases_with(key: str) -> tuple[str, str | None] | None:
    """Return the first release that reads a key, and the first one that ignores it again; None for an unknown key."""
    if key not in known_keys():
        return None
    first: str | None = None
    for since, owner, name, kinds, _ in _table():
        if name == key and owner in (*OWNERS, *PLUGINS):
            first = first or since
            if kinds == "-" and release(since).setting_of(key) is None:
                return first, since
    return None if first is None else (first, None)


@cache
def known_keys() -> frozenset[str]:
    """Return every key that some release reads."""
    return frozenset(key for _, owner, key, *_ in _table() if owner in (*OWNERS, *PLUGINS))
