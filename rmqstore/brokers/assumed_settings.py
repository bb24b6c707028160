"""Settings that nobody gave, and of which another value would give another answer.

Without a broker.conf, a forecast takes the values that the files of a store show, and the defaults elsewhere. The
broker's own may be others: without a line in its file it has the default and not what the files show, and some
settings leave no trace in files. Each start with one other value is simulated; those that end alike decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from rmqstore.brokers.forecast import StartForecast
from rmqstore.brokers.outcome import StartOutcome
from rmqstore.brokers.settings_at_fault import OutcomeOf, shown_settings
from rmqstore.brokers.simulate import Starts
from rmqstore.errors import UsageError
from rmqstore.files.broker_config import shown_value
from rmqstore.files.broker_settings import release
from rmqstore.files.store import Store, StoreKind
from rmqstore.files.store_queues import ASSIGNING, PREFERRED, ROCKSDB
from rmqstore.texts import Text, joined

VERSION = "--broker"
"""Stands for the version among the settings."""


class Basis(StrEnum):
    """Why a value is assumed."""

    FILES = "files"  # the files of the store show it
    DEFAULT = "default"  # no file shows anything


@dataclass(frozen=True, slots=True)
class AssumedSetting:
    """A setting that decides the forecast, the value assumed for it, and what a start with `other` would do."""

    key: str
    value: str
    basis: Basis
    other: str
    outcome: str

    def to_json(self) -> dict[str, str]:
        """Return the assumption as JSON values."""
        return {
            "setting": self.key,
            "value": self.value,
            "from": self.basis.value,
            "other": self.other,
            "outcome": self.outcome,
        }


def assumed_words(settings: Iterable[AssumedSetting]) -> str:
    """Return assumptions in words; settings that files show are named together, as their other value is the default."""
    clauses: list[str] = []
    shown: dict[str, list[str]] = {}
    for one in settings:
        setting = f"{one.key}={shown_value(one.value)}"
        if one.basis is Basis.FILES and one.key != VERSION:
            shown.setdefault(one.outcome, []).append(setting)
        else:
            clause = Text("{setting} (with {other} it {outcome})")
            clauses.append(clause.format(setting=setting, other=shown_value(one.other), outcome=one.outcome))
    clause = Text("{settings}, as the files show (with the default it {outcome})")
    clauses[:0] = [clause.format(settings=joined(names), outcome=outcome) for outcome, names in shown.items()]
    return joined(clauses, "; ")


class _Alternative(NamedTuple):
    key: str
    value: str
    basis: Basis
    other: str


_SWITCHES = (
    *("checkCRCOnRecover", "forceVerifyPropCRC", "recheckReputOffsetFromCq"),
    *("checkCommitLogOffsetOnRecover", "enableAcceleratedRecovery", "messageIndexEnable", "messageIndexSafe"),
    *("enableConsumeQueueExt", "enableLmq", "enableMultiDispatch", "timerWheelEnable", "indexRocksDBEnable"),
    *("timerRocksDBEnable", "transRocksDBEnable"),
)
"""Settings that are true or false, and that a start depends on although no file shows them."""
_CONTROLLER = "enableControllerMode"


def assumed_settings(
    store: Store, forecast: StartForecast, starts: Starts, outcome_of: OutcomeOf, *, only_shown: bool = False
) -> tuple[AssumedSetting, ...]:
    """Return the settings that decide `forecast`, which is one of `starts`; none that the store's configuration has.

    `outcome_of` says what a start with a configuration does.
    `only_shown`: without the settings that no file shows, each of which costs a start. They change nothing in a store
    that is sound and was closed.
    """
    found = list(_shown(store, forecast.version))
    decided = {one.key for one in found}
    more = () if only_shown else _not_shown(store, forecast.version)
    found += (one for one in more if one.key not in decided)
    assumed = []
    for one in found:
        if one.key in store.config.given:
            continue
        changed = {one.key: one.other}
        config = store.config.changed(changed)
        moves = one.basis is Basis.FILES or one.key == "storeType"
        others = starts.of_broker(store.configured(config)) if moves else starts.changed(changed)
        try:
            other = others.of(forecast.version)
        except UsageError:  # the version has no DLedger mode
            continue
        if outcome := _words(outcome_of(store.config, forecast), outcome_of(config, other), other, one.basis):
            assumed.append(AssumedSetting(*one, outcome))
    return tuple(assumed)


def _shown(store: Store, version: str) -> Iterator[_Alternative]:
    """Yield the settings that files show, if the default is another one."""
    for key, value in shown_settings(store).items():
        other = _default(key, version)
        if other and other != value:
            yield _Alternative(key, value, Basis.FILES, other)


def _not_shown(store: Store, version: str) -> Iterator[_Alternative]:
    known = release(version)
    both = store.rocksdb_beside or (store.kind is StoreKind.ROCKSDB and any(store.names_in_files()))
    if both:
        value, other = ("default", ROCKSDB) if store.rocksdb_beside else (ROCKSDB, "default")
        yield _Alternative("storeType", value, Basis.DEFAULT, other)
    if store.rocksdb_beside:
        yield from (_Alternative(key, "default", Basis.DEFAULT, ROCKSDB) for key in (PREFERRED, ASSIGNING))
    for key in (*_SWITCHES, *([_CONTROLLER] if store.controller_files else [])):
        if known.setting_of(key) is not None:
            value = _default(key, version)
            yield _Alternative(key, value, Basis.DEFAULT, "false" if value == "true" else "true")


def _default(key: str, version: str) -> str:
    setting = release(version).setting_of(key)
    return "" if setting is None or setting.machine else setting.default or ""


def _words(assumed: StartOutcome, changed: StartOutcome, other: StartForecast, basis: Basis) -> str:
    """Return what the start with another value would do, in words that follow "it"; "" if it ends alike.

    A broker that does not accept a single record did not write this store: such a setting is not its own.
    """
    if changed == assumed or (other.starts and basis is Basis.DEFAULT and _accepts_none(other)):
        return ""
    return changed.words or Text("would start and lose nothing")


def _accepts_none(forecast: StartForecast) -> bool:
    first, stop = forecast.start_file, forecast.commitlog_stop
    return first is not None and stop is not None and stop <= int(first)
