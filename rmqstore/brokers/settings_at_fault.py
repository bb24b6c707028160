"""Which settings make a start fail, or take messages: those without which the same start would do better.

Nothing is assumed about a setting. A start that fails or loses something is simulated again with the values that the
files of the store show, and with the defaults elsewhere. If that start is better, the settings that make the
difference are at fault, and their values are the lines to write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rmqstore.brokers.dledger_nodes import mended_peers, peers_fault
from rmqstore.brokers.forecast import StartForecast
from rmqstore.brokers.simulate import Starts, in_dledger_mode
from rmqstore.errors import UsageError
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.broker_settings import STORE_SETTINGS
from rmqstore.files.store import Store
from rmqstore.files.store_queues import (
    ASSIGNING,
    DOUBLE_WRITE,
    LIGHT_IN_ROCKSDB,
    PREFERRED,
    ROCKSDB,
    SEPARATE,
    SEPARATE_KEY,
)
from rmqstore.texts import Text

_DLEDGER, _SELF_ID, _PEERS, _STORE_TYPE = "enableDLegerCommitLog", "dLegerSelfId", "dLegerPeers", "storeType"
_SHOWN = (_DLEDGER, _SELF_ID, _STORE_TYPE, DOUBLE_WRITE, SEPARATE_KEY, LIGHT_IN_ROCKSDB)
"""Settings whose value the files of a store show."""
_OF_PARTS = ("indexRocksDBEnable", "transRocksDBEnable", "timerRocksDBEnable", "enableConsumeQueueExt")
"""Settings that name a part of the store: without them, its damage would only be ignored."""
_OF_SIZES = ("maxHashSlotNum", "maxIndexNum")
_LEVELS = "messageDelayLevel"
_OTHERS = ("combineCQLoadingCQTypes", ASSIGNING, PREFERRED, "writeWithoutMmap")
_CANDIDATES = tuple(dict.fromkeys((*_SHOWN, *sorted(STORE_SETTINGS), *_OTHERS, _PEERS)))
"""Settings that a store shows come first: they are at fault only if no other one is."""


@dataclass(frozen=True, slots=True)
class SettingAtFault:
    """A setting with the value that the broker has ("" if broker.conf lacks it), and the value that the store needs."""

    key: str
    value: str
    wanted: str

    @property
    def given(self) -> str:
        """The line of broker.conf, or that it has none."""
        return f"{self.key}={self.value}" if self.value else Text("no {key}", key=self.key)

    @property
    def line(self) -> str:
        """The line to write."""
        return f"{self.key}={self.wanted}"


class FaultFinder:
    """Finds the settings at fault for the starts of several versions of a store with `config`.

    `starts` makes the starts of the store as another broker sees it.
    """

    def __init__(self, store: Store, config: BrokerConfig, starts: Callable[[Store], Starts]) -> None:
        self._store = store
        self._config = config
        self._starts = starts
        self._made: dict[tuple[str, ...], Starts] = {}
        self._wanted: dict[str, str] | None = None

    def find(self, forecast: StartForecast) -> tuple[SettingAtFault, ...]:
        """Return the settings without which the start of the forecast's version would do better, none if no one is."""
        if not self._config.given:
            return ()
        if self._wanted is None:
            self._wanted = dict(_contradicted(self._store, self._config))
        keys = tuple(self._wanted)
        version, now = forecast.version, _merit(forecast)
        best = self._merit(keys, version) if keys else now
        if best <= now:
            return ()
        for key in keys:
            fewer = tuple(one for one in keys if one != key)
            if fewer and self._merit(fewer, version) >= best:
                keys = fewer
        return tuple(SettingAtFault(key, self._config.given.get(key, ""), self._wanted[key]) for key in keys)

    def _merit(self, keys: tuple[str, ...], version: str) -> tuple[int, ...]:
        """Return the merit of the start with the wanted values of `keys`; the least if the version lacks the mode."""
        assert self._wanted is not None
        if keys not in self._made:
            store = self._store.configured(self._config.changed({key: self._wanted[key] for key in keys}))
            self._made[keys] = self._starts(store)
        try:
            return _merit(self._made[keys].of(version))
        except UsageError:
            return (0,)


def _merit(forecast: StartForecast) -> tuple[int, ...]:
    """Return what compares starts: whether it starts, messages that it takes, and those that consumers get."""
    if not forecast.starts:
        return (0,)
    served = sum(high - low for low, high in forecast.queue_ends.values())
    if not forecast.consume_queues_simulated:
        begin, end = forecast.not_dispatched or (0, 0)
        served = max((forecast.max_offset or 0) - (forecast.min_offset or 0) - (end - begin), 0)
    return 1, -forecast.messages_taken, served


def _contradicted(store: Store, config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """Yield the settings that differ from what the files show, or from the default, with that value."""
    plain = store.configured(BrokerConfig({k: v for k, v in config.given.items() if k not in _SHOWN}, config.source))
    shown = _shown(plain, config)
    for key in _CANDIDATES:
        if "FileSize" in key or key in _OF_PARTS or key in _OF_SIZES:
            continue
        if key == _PEERS:
            self_id = shown.get(_SELF_ID) or config.text(_SELF_ID)
            if in_dledger_mode(store, config) and self_id and peers_fault(config.changed({_SELF_ID: self_id})):
                yield key, mended_peers(config, self_id)
            continue
        wanted = shown.get(key) or config.default(key)
        if key == _LEVELS:  # its levels are not known from the store: only blanks can be wrong
            wanted = " ".join(config.text(key).split())
        if (key in config.given or key in shown) and wanted and config.text(key).strip() != wanted:
            yield key, wanted


def _shown(store: Store, config: BrokerConfig) -> dict[str, str]:
    """Return the values that the files of a store show; `store` is read without these settings."""
    entries = store.dledger is not None and bool(store.dledger.data.files)
    double = store.rocksdb_beside
    shown = {
        _DLEDGER: str(entries).lower(),
        _STORE_TYPE: ROCKSDB if store.rocksdb_consume_queue else "default",
        DOUBLE_WRITE: str(double).lower(),
        SEPARATE_KEY: str(store.rocksdb_directory.name == SEPARATE).lower(),
        LIGHT_IN_ROCKSDB: str(double or config.bool(DOUBLE_WRITE)).lower(),
    }
    if entries and store.dledger is not None:
        shown[_SELF_ID] = store.dledger.self_id
    return shown
