"""Simulates the start of a broker on a store, without a broker and without writing."""

from __future__ import annotations

from collections.abc import Mapping

from rmqstore.brokers.log.plain_start import PlainStart
from rmqstore.brokers.rules.forecast import QueueKey, StartForecast, StartOptions
from rmqstore.brokers.rules.versions import rules_for
from rmqstore.brokers.rules.writer import writer_of
from rmqstore.errors import UsageError
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import Store
from rmqstore.scan.tiling import Tiling
from rmqstore.scan.units import KnownUnits


def simulate_start(
    store: Store,
    tiling: Tiling | None = None,
    *,
    version: str | None = None,
    settings: Mapping[str, str] | None = None,
    options: StartOptions | None = None,
    units: KnownUnits | None = None,
    unreadable_rows: Mapping[QueueKey, int] | None = None,
) -> StartForecast:
    """Predict what RocketMQ `version` does to the store at its next start.

    Without `version`, predict it for the newest one that can have written the store (`writer_of`).

    `tiling` covers `store.commitlog`, or `store.dledger.data` for a store with DLedger entries; without it, the files
    that recovery would read are scanned. `settings` are broker.conf keys that override the store's own.
    A caller that knows `units` and `unreadable_rows` (messages per queue whose RocksDB rows cannot be read) passes
    them to save a second pass over the log and the rows.
    Errors: UsageError for an unknown version, for DLedger mode in a version without it, and for a part of a store.
    """
    rules = rules_for(version or writer_of(store).forecast_version)
    if store.part is not None:
        raise UsageError(f"{store.path} is only a part of a store: a broker needs a whole one", "name the store's root")
    options = options or StartOptions()
    config = store.config.changed(settings or {})
    if in_dledger_mode(store, config):
        if rules.dledger is None:
            raise UsageError(f"RocketMQ {rules.version} has no DLedger mode")
        from rmqstore.brokers.dledger.start import DLedgerStart

        start: PlainStart = DLedgerStart(store, tiling, rules, config, options)
    else:
        start = PlainStart(store, tiling, rules, config, options)
    return start.with_known(units, unreadable_rows).run()


def in_dledger_mode(store: Store, config: BrokerConfig) -> bool:
    """Return whether the broker starts in DLedger mode: as configured, otherwise if the store has DLedger files."""
    if "enableDLegerCommitLog" in config.given:
        return config.bool("enableDLegerCommitLog")
    return store.dledger is not None and bool(store.dledger.data.files)
