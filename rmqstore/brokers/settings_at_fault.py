"""Which settings make a start fail, or take messages: those without which the same start would do better.

Nothing is assumed about a setting. A start that fails or loses something is simulated again with the values that the
files of the store show, and with the defaults elsewhere. If that start is better, the settings that make the
difference are at fault, and their values are the lines to write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rmqstore.brokers.dledger_nodes import mended_peers, nodes_fault
from rmqstore.brokers.forecast import StartForecast
from rmqstore.brokers.index_files import wanted_index_sizes
from rmqstore.brokers.load import has_plugin
from rmqstore.brokers.outcome import StartOutcome
from rmqstore.brokers.rules import rules_for
from rmqstore.brokers.simulate import Starts, in_dledger_mode
from rmqstore.errors import UsageError
from rmqstore.files.broker_config import FILE_SIZES, LOG_PATH, PLUGIN, ROOT_PATH, BrokerConfig
from rmqstore.files.broker_settings import STORE_SETTINGS, TIERED_STORE
from rmqstore.files.store import Store
from rmqstore.files.store_queues import (
    ASSIGNING,
    CONFIGURED_SIZES,
    DOUBLE_WRITE,
    LIGHT_IN_ROCKSDB,
    PREFERRED,
    ROCKSDB,
    SEPARATE,
    SEPARATE_KEY,
)
from rmqstore.formats.properties import can_be_parsed
from rmqstore.texts import Text

_DLEDGER, _SELF_ID, _PEERS, _STORE_TYPE = "enableDLegerCommitLog", "dLegerSelfId", "dLegerPeers", "storeType"
_SHOWN = (_DLEDGER, _SELF_ID, _STORE_TYPE, DOUBLE_WRITE, SEPARATE_KEY, LIGHT_IN_ROCKSDB)
"""Settings whose value the files of a store show."""
_OF_PARTS = ("indexRocksDBEnable", "transRocksDBEnable", "timerRocksDBEnable", "enableConsumeQueueExt")
"""Settings that name a part of the store: without them, its damage would only be ignored."""
_LEVELS = "messageDelayLevel"
OutcomeOf = Callable[[BrokerConfig, StartForecast], StartOutcome]
"""Returns what a start of the store with a configuration does to its messages."""
_OTHERS = (LOG_PATH, PLUGIN, "combineCQLoadingCQTypes", ASSIGNING, PREFERRED, "writeWithoutMmap")
_CANDIDATES = tuple(dict.fromkeys((*_SHOWN, *sorted(STORE_SETTINGS), *_OTHERS, _PEERS)))
"""Settings that a store shows come first: they are at fault only if no other one is."""


@dataclass(frozen=True, slots=True)
class SettingAtFault:
    """A setting, its line of broker.conf ("" without one), and the value that the store needs."""

    key: str
    has: str
    wanted: str

    @property
    def given(self) -> str:
        """The line of broker.conf, or that it has none."""
        return self.has or Text("no {key}", key=self.key)

    @property
    def line(self) -> str:
        """The line to write."""
        return f"{self.key}={self.wanted}"


def opens_beside(store: Store, config: BrokerConfig) -> SettingAtFault | None:
    """Return the setting because of which a broker opens another directory than this store; None if none does.

    It still reads the log of this store if storePathCommitLog names it (`Starts`).
    """
    beside = config.filled().directory_beside(store.root)
    wanted = config.text(ROOT_PATH).strip() or str(store.root)
    return SettingAtFault(ROOT_PATH, config.line_of(ROOT_PATH), wanted) if beside else None


class FaultFinder:
    """Finds the settings at fault for the starts of several versions of a store with `config`.

    `starts` makes the starts of the store as another broker sees it, `outcome` says what one with a configuration does.
    """

    def __init__(
        self, store: Store, config: BrokerConfig, starts: Callable[[Store], Starts], outcome: OutcomeOf
    ) -> None:
        self._store = store
        self._config = config
        self._starts = starts
        self._outcome = outcome
        self._made: dict[tuple[tuple[str, str], ...], Starts] = {}

    def find(self, forecast: StartForecast) -> tuple[SettingAtFault, ...]:
        """Return the settings without which the start of the forecast's version would do better, none if no one is."""
        config = self._config.read_by(forecast.version)
        if not config.given and config.file is None:
            return ()
        wanted = tuple(_contradicted(self._store, config))
        version, now = forecast.version, self._outcome(self._config, forecast).rank
        best = self._rank(wanted, version) if wanted else now
        before: tuple[tuple[str, str], ...] = ()
        while before != wanted:  # without one, another may play no part any more
            before = wanted
            for one in before:
                fewer = tuple(other for other in wanted if other != one)
                if fewer and (rank := self._rank(fewer, version)) >= best:
                    wanted, best = fewer, rank
        if best <= now:
            return ()
        return tuple(SettingAtFault(key, config.line_of(key), value) for key, value in wanted)

    def _rank(self, wanted: tuple[tuple[str, str], ...], version: str) -> tuple[int, ...]:
        """Return the rank of the start with the wanted values; the least if the version lacks the mode."""
        config = self._config.changed(dict(wanted))
        if wanted not in self._made:
            self._made[wanted] = self._starts(self._store.configured(config))
        try:
            return self._outcome(config, self._made[wanted].of(version)).rank
        except UsageError:
            return StartOutcome(starts=False).rank


def _contradicted(store: Store, config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """Yield the settings that differ from what the files show, or from the default, with that value."""
    shown_by_files = {*_SHOWN, *FILE_SIZES}
    plain = store.configured(
        BrokerConfig({k: v for k, v in config.given.items() if k not in shown_by_files}, config.source)
    )
    shown = shown_settings(plain, config)
    has = config.filled()
    if (beside := opens_beside(store, config)) is not None:
        yield beside.key, beside.wanted
    if store.configured(has).commitlog_directories != store.configured(config).commitlog_directories:
        # blanks around paths, the home directory, or a list without a path
        named = ",".join(map(str, config.paths(LOG_PATH)))
        shown[LOG_PATH] = named or f"{config.text(ROOT_PATH).strip() or store.root}/commitlog"
    shown |= wanted_index_sizes(store, config)
    for key in _CANDIDATES:
        if key in _OF_PARTS or (key in FILE_SIZES and key not in shown):
            continue
        if key == _PEERS:
            self_id = shown.get(_SELF_ID) or config.text(_SELF_ID)
            if in_dledger_mode(store, has) and self_id and nodes_fault(config.changed({_SELF_ID: self_id}).filled()):
                yield key, mended_peers(config, self_id)
            continue
        wanted = shown.get(key) or config.default(key)
        if key == PLUGIN:
            rules = rules_for(config.version)
            known = {name: has_plugin(name, rules) for name in has.plugins}
            if False in known.values():
                meant = any("tiered" in name.lower() for name in known)
                yield key, TIERED_STORE if meant and rules.tiered_store else ""
            continue
        if key == _LEVELS and can_be_parsed(blanks := " ".join(config.text(key).split())):
            wanted = blanks  # the levels are not known from the store
        if (key in has.given or key in shown) and wanted and has.text(key) != wanted:
            yield key, wanted


def shown_settings(store: Store, config: BrokerConfig | None = None) -> dict[str, str]:
    """Return the values that the files of a store show; `store` is read without these settings, `config` has them."""
    config = config or store.config
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
    for log in (queue for queue, _ in store.logs if queue.size_from != "default"):
        shown["mappedFileSizeCommitLog"] = str(log.file_size)
    for kind in CONFIGURED_SIZES:
        if (size := store.known_queue_file_size(kind)) is not None:
            shown[kind.size_key] = str(size)
    return shown
