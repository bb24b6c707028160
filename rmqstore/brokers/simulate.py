"""simulate_start: the start of a broker over a store, without the broker and without writing."""

from __future__ import annotations

from collections.abc import Mapping

from rmqstore.brokers.log.plain_start import PlainStart
from rmqstore.brokers.rules.forecast import QueueKey, StartForecast, StartOptions
from rmqstore.brokers.rules.versions import rules_for
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
    """What RocketMQ `version` (default: the newest) would do with the store at its next start.

    `tiling` is that of `store.commitlog`, for a store with DLedger entries that of `store.dledger.data`; without it
    the files that recovery would read are scanned. `settings` are broker.conf keys on top of the store's own.
    `units` and `unreadable_rows` (messages per queue whose rows in RocksDB cannot be read) save a second look at the
    log and at the rows, where the caller knows them.
    Errors: UsageError for an unknown version, for DLedger mode in a version without it, and for a part of a store.
    """
    rules = rules_for(version)
    if store.part is not None:
        raise UsageError(
            f"{store.path} is only a part of a store: a broker starts on a whole one", "give the store's root"
        )
    options = options or StartOptions()
    config = BrokerConfig({**store.config.given, **(settings or {})}, store.config.source)
    if in_dledger_mode(store, config):
        if rules.dledger is None:
            raise UsageError(f"RocketMQ {rules.version} has no DLedger mode")
        from rmqstore.brokers.dledger.start import DLedgerStart

        start: PlainStart = DLedgerStart(store, tiling, rules, config, options)
    else:
        start = PlainStart(store, tiling, rules, config, options)
    return start.knowing(units, unreadable_rows).run()


def in_dledger_mode(store: Store, config: BrokerConfig) -> bool:
    """Whether the broker would start in DLedger mode: as it is configured, else when there are DLedger files."""
    if "enableDLegerCommitLog" in config.given:
        return config.bool("enableDLegerCommitLog")
    return store.dledger is not None and bool(store.dledger.data.files)
