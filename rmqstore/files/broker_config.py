"""broker.conf -> the settings that decide paths, sizes and recovery; defaults are RocketMQ 5.4.0's.

Source: MessageStoreConfig, BrokerConfig (RocketMQ 4.3 to 5.4.0). The file is Java properties text.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

from rmqstore.errors import BadBrokerConfig, NotReadable
from rmqstore.files.disk.paths import read_small
from rmqstore.formats.text.javatext import parse_java_properties

Number = int  # the class below has methods named like the types
Truth = bool

COMMITLOG_FILE_SIZE = 1 << 30
CONSUME_QUEUE_FILE_SIZE = 6_000_000
EXT_FILE_SIZE = 50_331_648
BATCH_FILE_SIZE = 13_800_000
TIMER_LOG_FILE_SIZE = 104_857_600
DLEDGER_INDEX_FILE_SIZE = 167_772_160

DEFAULTS: Mapping[str, str] = {
    "mappedFileSizeCommitLog": str(COMMITLOG_FILE_SIZE),
    "mappedFileSizeConsumeQueue": str(CONSUME_QUEUE_FILE_SIZE),
    "mappedFileSizeConsumeQueueExt": str(EXT_FILE_SIZE),
    "mapperFileSizeBatchConsumeQueue": str(BATCH_FILE_SIZE),
    "mappedFileSizeTimerLog": str(TIMER_LOG_FILE_SIZE),
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
    "maxMessageSize": "4194304",
    "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    "flushDiskType": "ASYNC_FLUSH",
    "brokerRole": "ASYNC_MASTER",
    "storeType": "default",
    "fileReservedTime": "72",
    "deleteWhen": "04",
    "diskMaxUsedSpaceRatio": "75",
    "cleanFileForciblyEnable": "true",
    "checkCRCOnRecover": "true",
    "duplicationEnable": "false",
    "enabledAppendPropCRC": "false",
    "forceVerifyPropCRC": "false",
    "messageIndexEnable": "true",
    "messageIndexSafe": "false",
    "commitLogRecoverMaxNum": "10",
    "recheckReputOffsetFromCq": "false",
    "enableConsumeQueueExt": "false",
    "enableDLegerCommitLog": "false",
    "enableLmq": "false",
    "enableMultiDispatch": "false",
    "enableControllerMode": "false",
    "enableCompaction": "true",
    "timerWheelEnable": "true",
    "timerPrecisionMs": "1000",
    "indexRocksDBEnable": "false",
    "transRocksDBEnable": "false",
    "timerRocksDBEnable": "false",
    "rocksdbCQDoubleWriteEnable": "false",
    "combineCQMaxExtraSearchCommitLogFiles": "3",
}

_RENAMED_IN = (4, 5, 2)
"""The first version that reads the new spelling, and no longer the old one (javap of rocketmq-store 4.3.0 to 5.4.0)."""
_OLD_SPELLING = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}
_TEXT = frozenset({"deleteWhen"})
"""Settings that are lists, though their defaults look like numbers."""

_MAX_FILE = 1 << 20


class BrokerConfig:
    """Settings of a broker; `given` holds only what a file or the caller said, the rest are defaults."""

    def __init__(self, given: Mapping[str, str] | None = None, source: str = "") -> None:
        self.given = dict(given or {})
        self.source = source

    @classmethod
    def read(cls, path: Path, version: str = "") -> BrokerConfig:
        """From a broker.conf, as a broker of this version reads it (default: the newest).

        Up to 4.5.1 a broker reads `mapedFileSize…` and ignores `mappedFileSize…`; later versions do the opposite.
        Errors: NotReadable; BadBrokerConfig for a file that is not text, or is far too large.
        """
        try:
            raw = read_small(path, _MAX_FILE)
        except OSError as e:
            if e.errno == errno.EFBIG:
                raise BadBrokerConfig(f"{path} is not a broker.conf: {e.strerror}") from None
            raise NotReadable(f"{path}: {e.strerror or e}") from None
        if b"\0" in raw:
            raise BadBrokerConfig(f"{path} is not a broker.conf")
        text = raw.decode("utf-8", "replace")
        given = parse_java_properties(text)[0]
        if version and tuple(int(part) for part in version.split(".")) < _RENAMED_IN:
            given = {k: v for k, v in given.items() if k not in _OLD_SPELLING.values()}
            given = {_OLD_SPELLING.get(k, k): v for k, v in given.items()}
        config = cls(given, str(path))
        for key, default in DEFAULTS.items():
            if key in config.given and default.isdigit() and key not in _TEXT:
                config._check_int(key)
        return config

    def _check_int(self, key: str) -> None:
        """Errors: BadBrokerConfig for a number that a broker's int cannot hold, or a size that no file has."""
        value = self.int(key)
        if not -(1 << 31) <= value < 1 << 31:
            raise BadBrokerConfig(f"{self.source}: {key}={value} is more than a broker's int holds")
        if "FileSize" in key and value <= 0:
            raise BadBrokerConfig(f"{self.source}: {key}={value} is not a file size")

    def text(self, key: str) -> str:
        """A setting as text; empty when neither given nor known."""
        value = self.given.get(key)
        return DEFAULTS.get(key, "") if value is None else value

    def int(self, key: str) -> Number:
        """A setting as a number.

        Errors: BadBrokerConfig when the file gives something else.
        """
        value = self.text(key)
        try:
            return int(value)
        except ValueError:
            raise BadBrokerConfig(f"{self.source or 'settings'}: {key}={value} is not a number") from None

    def bool(self, key: str) -> Truth:
        """A setting as Java's Boolean.parseBoolean reads it."""
        return self.text(key).strip().lower() == "true"

    def paths(self, key: str) -> list[Path]:
        """A path setting, split at `,` (MixAll#MULTI_PATH_SPLITTER); empty when it is not given."""
        value = self.given.get(key, "")
        return [Path(p.strip()) for p in value.split(",") if p.strip()]

    def given_int(self, key: str) -> Number | None:
        """A number only when the file gives it."""
        return self.int(key) if key in self.given else None

    @property
    def role(self) -> str:
        """ "master", "slave", "controller", "dledger-group", "single" or "unknown", from what was given."""
        if not self.given:
            return "unknown"
        if self.bool("enableDLegerCommitLog"):
            peers = [p for p in self.text("dLegerPeers").split(";") if p.strip()]
            return "dledger-group" if len(peers) > 1 else "single"
        if self.bool("enableControllerMode"):
            return "controller"
        if self.text("brokerRole") == "SLAVE" or self.given.get("brokerId", "0").strip() not in ("", "0"):
            return "slave"
        if "brokerRole" in self.given or "brokerId" in self.given:
            return "master"
        return "unknown"
