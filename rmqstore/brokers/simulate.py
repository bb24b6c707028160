"""Simulates the start of a broker on a store, without a broker and without writing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from rmqstore.brokers.dledger_nodes import own_group
from rmqstore.brokers.forecast import StartForecast, StartOptions
from rmqstore.brokers.plain_start import PlainStart
from rmqstore.brokers.queues import RecoveredFiles
from rmqstore.brokers.rules import BrokerRules, rules_for, writer_of
from rmqstore.errors import UsageError
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import Store
from rmqstore.formats.consumequeue import QueueName
from rmqstore.scan.tiling import Tiling
from rmqstore.scan.units import KnownUnits
from rmqstore.texts import Text


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
    ) -> None:
        self._store, self._tiling = store, tiling
        self._config = store.config.changed(settings or {})
        self._options = options or StartOptions()
        self._units, self._unreadable_rows = units, unreadable_rows
        self._recovered: RecoveredFiles = {}
        self._known: list[tuple[_AskedRules, StartForecast]] = []

    def of(self, version: str | None = None) -> StartForecast:
        """Return the forecast for a version."""
        rules = rules_for(version or writer_of(self._store).forecast_version)
        found = next((forecast for asked, forecast in self._known if asked.are_those_of(rules)), None)
        if found is None:
            asked = _AskedRules(rules)
            found = self._sharing(self._simulate(cast(BrokerRules, asked)))
            self._known.append((asked, found))
        return replace(found, version=rules.version, evidence=rules.evidence)

    def _sharing(self, new: StartForecast) -> StartForecast:
        """Return a forecast with the tables of an earlier one where they are equal: they have a row for each queue."""
        for _, known in self._known:
            if new.queue_ends == known.queue_ends:
                new = replace(new, queue_ends=known.queue_ends)
            if new.units_put == known.units_put:
                new = replace(new, units_put=known.units_put)
        return new

    def _simulate(self, rules: BrokerRules) -> StartForecast:
        store, config = self._store, self._config
        if store.part is not None:
            raise UsageError(
                Text("{path} is only a part of a store: a broker needs a whole one", path=store.path),
                Text("name the store's root"),
            )
        kind: type[PlainStart] = PlainStart
        if in_dledger_mode(store, config):
            if not rules.has_dledger_mode:
                raise UsageError(Text("RocketMQ {version} has no DLedger mode", version=rules.version))
            from rmqstore.brokers.dledger import DLedgerStart

            kind = DLedgerStart
        start = kind(store, self._tiling, rules, config, self._options)
        start.queues.recovered = self._recovered
        if not start.queues.settings.half_rows_fail:  # then each message counts
            start.tiled_reader.units = self._units
        start.unreadable_rows = self._unreadable_rows
        return start.run()


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
