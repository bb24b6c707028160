"""Starts: versions share a simulation only if each of them alone would have the same forecast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rmqstore.brokers.forecast import StartForecast
from rmqstore.brokers.rules import BrokerRules
from rmqstore.brokers.simulate import Starts, simulate_start
from rmqstore.errors import UsageError
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from rmqstore.files.versions import VERSIONS
from tests.real_broker.combined_faults import break_at_once
from tests.real_broker.random_damage import damage_any_file, damage_by_failures
from tests.seeds import seeds
from tests.stores import copy_store

DAMAGES: dict[str, Callable[[Path, int], Sequence[str]]] = {
    "none": lambda _store, _seed: [],
    "any": damage_any_file,
    "failures": damage_by_failures,
    "at once": break_at_once,
}
STORES = ("4.9.7-killed", "5.1.4-dledger", "5.4.0-clean", "5.4.0-killed", "5.4.0-dledger-mixed", "5.5.1-lmq")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", STORES)
@pytest.mark.quick_rows(4)
def test_sharing_changes_no_forecast(name: str, damage: str, tmp_path: Path) -> None:
    for seed in seeds(1):
        store = copy_store(name, tmp_path)
        said = DAMAGES[damage](store, seed)
        shared = Starts(open_store(store))
        for version in VERSIONS:
            assert forecast(shared, version) == alone(store, version), (version, seed, said)


def test_versions_that_behave_alike_share_one_simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(copy_store("5.4.0-clean", tmp_path))
    made: list[str] = []
    simulate = Starts._simulate

    def counted(self: Starts, rules: BrokerRules, config: BrokerConfig) -> StartForecast:
        made.append(rules.version)
        return simulate(self, rules, config)

    monkeypatch.setattr(Starts, "_simulate", counted)
    starts = Starts(store)
    found = {version: starts.of(version) for version in ("5.2.0", "5.3.0", "4.9.7", "4.9.6", "5.2.0")}
    assert [one.version for one in found.values()] == ["5.2.0", "5.3.0", "4.9.7", "4.9.6"]
    assert found["4.9.7"].evidence == "run"
    assert found["4.9.6"].evidence == "by source"
    assert made == ["5.2.0", "4.9.7"]


def forecast(starts: Starts, version: str) -> StartForecast | str:
    try:
        return starts.of(version)
    except UsageError as e:
        return str(e)


def alone(store: Path, version: str) -> StartForecast | str:
    try:
        return simulate_start(open_store(store), version=version)
    except UsageError as e:
        return str(e)
