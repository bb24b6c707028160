"""Simulates the start of a broker on a store, without a broker and without writing."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from rmqstore.brokers.dledger_nodes import own_group
from rmqstore.brokers.forecast import StartForecast, StartOptions
from rmqstore.brokers.plain_start import PlainStart
from rmqstore.brokers.queues import RecoveredFiles
from rmqstore.brokers.rules import BrokerRules, rules_for
from rmqstore.brokers.writer import writer_of
from rmqstore.errors import UsageError
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import QueueKind, Store
from rmqstore.formats.consumequeue import QueueName
from rmqstore.scan.tiling import Tiling
from rmqstore.scan.units import KnownUnits
from rmqstore.texts import Text

STARTED_BY = {"dledger": "rmqstore.brokers.dledger"}
"""What simulates the start of a broker that does not use a plain commitlog."""


def simulate_start(
    store: Store,
    tiling: Tiling | None = None,
    *,
    version: str | None = None,
    settings: Mapping[str, str] | None = None,
    options: StartOptions | None = None,
    units: KnownUnits | None = None,
    unreadable_rows: Mapping[QueueName, int] | None = None,
) -> StartForecast:
    """Predict what RocketMQ `version` does to the store at its next start.

    Without `version`, predict it for the newest one that can have written the store (`writer_of`).

    `tiling` covers `store.commitlog`, or `store.dledger.data` for a store with DLedger entries; without it, the files
    that recovery would read are scanned. `settings` are broker.conf keys that override the store's own.
    A caller that knows `units` and `unreadable_rows` (messages per queue whose RocksDB rows cannot be read) passes
    them to save a second pass over the log and the rows.
    Errors: UsageError for an unknown version, for DLedger mode in a version without it, and for a part of a store.
    """
    starts = Starts(store, tiling, settings=settings, options=options, units=units, unreadable_rows=unreadable_rows)
    return starts.of(version)


class Starts:
    """The starts of several versions on one store. Arguments and errors: as `simulate_start`.

    `adjust` adds to each forecast what the files do not show by their names.
    Each simulation notes which rules it asks for. For versions in which these rules are equal, it is made once. A
    condition therefore asks for a rule last, only if the store and its settings do not decide.
    """

    def __init__(
        self,
        store: Store,
        tiling: Tiling | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        options: StartOptions | None = None,
        units: KnownUnits | None = None,
        unreadable_rows: Mapping[QueueName, int] | None = None,
        adjust: Callable[[StartForecast], StartForecast] | None = None,
    ) -> None:
        self._store, self._tiling, self._adjust = store, tiling, adjust
        self._config = store.config.changed(settings or {})
        self._options = options or StartOptions()
        self._units, self._unreadable_rows = units, unreadable_rows
        self._recovered: RecoveredFiles = {}
        self._known: list[_KnownStart] = []

    def changed(self, settings: Mapping[str, str]) -> Starts:
        """Return the starts with other settings; none that decides which files the store has (`Store.configured`).

        A start that does not ask for one of them is not simulated again.
        """
        other = copy.copy(self)
        other._config = self._config.changed(settings)
        return other

    def of_broker(self, store: Store) -> Starts:
        """Return the starts of this store as a broker with other settings sees it (`Store.configured`)."""
        same = _logs(store) == _logs(self._store)
        tiling, adjust = (self._tiling, self._adjust) if same else (None, None)
        known = self._unreadable_rows
        return Starts(store, tiling, options=self._options, unreadable_rows=known, adjust=adjust)

    def of(self, version: str | None = None) -> StartForecast:
        """Return the forecast for a version."""
        rules = rules_for(version or writer_of(self._store).forecast_version)
        config = as_configured(self._config, rules.version)
        found = next((start.forecast for start in self._known if start.is_that_of(rules, config)), None)
        if found is None:
            asked, settings = _AskedRules(rules), config.recording()
            found = self._sharing(self._simulate(cast(BrokerRules, asked), settings))
            found = found if self._adjust is None else self._adjust(found)
            self._known.append(_KnownStart(asked, settings, found))
        return replace(found, version=rules.version, evidence=rules.evidence)

    def _sharing(self, new: StartForecast) -> StartForecast:
        """Return a forecast with the tables of an earlier one where they are equal: they have a row for each queue."""
        for known in (start.forecast for start in self._known):
            if new.queue_ends == known.queue_ends:
                new = replace(new, queue_ends=known.queue_ends)
            if new.units_put == known.units_put:
                new = replace(new, units_put=known.units_put)
        return new

    def _simulate(self, rules: BrokerRules, config: BrokerConfig) -> StartForecast:
        store, tiling, units = self._store, self._tiling, self._units
        if store.part is not None:
            raise UsageError(
                Text("{path} is only a part of a store: a broker needs a whole one", path=store.path),
                Text("name the store's root"),
            )
        configured = _opened(store, config) if config.complete else store
        if _layout(configured) != _layout(store):
            tiling = tiling if _logs(configured) == _logs(store) else None
            store, units, recovered = configured, None, {}
        else:
            recovered = self._recovered
        kind: type[PlainStart] = PlainStart
        if in_dledger_mode(store, config):
            if not rules.has_dledger_mode:
                raise UsageError(Text("RocketMQ {version} has no DLedger mode", version=rules.version))
            kind = importlib.import_module(STARTED_BY["dledger"]).DLedgerStart
        start = kind(store, tiling, rules, config, self._options)
        start.queues.recovered = recovered
        start.tiled_reader.units = units
        start.unreadable_rows = self._unreadable_rows
        return start.run()


def as_configured(config: BrokerConfig, version: str) -> BrokerConfig:
    """Return the settings of a broker of this version that gets the broker.conf; without one, what is known of them."""
    return config.read_by(version).filled()


def _opened(store: Store, config: BrokerConfig) -> Store:
    """Return the store that a broker opens: this one, or the directory beside it, which may not exist yet."""
    beside = config.directory_beside(store.root)
    return Store(Path(beside), config, store.files) if beside else store.configured(config)


def _layout(store: Store) -> tuple[object, ...]:
    """Return what the settings decide about the reading of a store: which files it has, and how large they are."""
    return (
        store.root,
        store.commitlog_directories,
        *_logs(store),
        [store.queue_file_size(kind) for kind in QueueKind],
        store.queue_home,
        store.light_in_rocksdb,
        store.rocksdb_directory,
    )


def _logs(store: Store) -> tuple[object, ...]:
    """Return what decides whether a tiling of one store is that of another: its logs, and the one that it covers."""
    logs = [(log.name, log.file_size, [file.path for file in log.files]) for log, _ in store.logs]
    return logs, store.dledger is None, in_dledger_mode(store, store.config)


class _KnownStart(NamedTuple):
    """A simulated start, and the rules and settings that it depends on."""

    rules: _AskedRules
    settings: BrokerConfig
    forecast: StartForecast

    def is_that_of(self, rules: BrokerRules, config: BrokerConfig) -> bool:
        """Return whether a version with this configuration starts in the same way."""
        return self.rules.are_those_of(rules) and self.settings.answers_as(config)


class _AskedRules:
    """The rules of a version. After a rule has been asked for, it is an attribute of the instance."""

    def __init__(self, rules: BrokerRules) -> None:
        self._rules = rules

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._rules, name)
        setattr(self, name, value)
        return value

    def are_those_of(self, rules: BrokerRules) -> bool:
        """Return whether another version has equal rules, as far as they were asked for. Its name plays no part."""
        names = vars(self).keys() - {"version", "evidence", "_rules"}
        return all(getattr(rules, name) == getattr(self, name) for name in names)


def reads_entries(store: Store, config: BrokerConfig) -> bool:
    """Return whether the broker reads the store's DLedger entries: in DLedger mode, as the node that wrote them."""
    return in_dledger_mode(store, config) and own_group(store, config) is not None


def in_dledger_mode(store: Store, config: BrokerConfig) -> bool:
    """Return whether the broker starts in DLedger mode: as configured, otherwise if the store has DLedger files."""
    if "enableDLegerCommitLog" in config.given:
        return config.bool("enableDLegerCommitLog")
    return store.dledger is not None and bool(store.dledger.data.files)
