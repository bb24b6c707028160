"""Databases of users and permissions, opened by a whole broker: a damaged one ends the start, as is forecast."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.brokers.simulate import simulate_start
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from tests.checks.beside.test_access import ACCESS, ACLS, USERS, damage
from tests.real_broker.whole_broker import BrokerDidNotStart, WholeBroker
from tests.stores import copy_store

SIZES = {"mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "12000"}


@pytest.mark.slow
@pytest.mark.parametrize("version", ["5.4.0", "5.5.1"])
@pytest.mark.parametrize("damaged", ["users", "acls", ""])
def test_a_whole_broker_ends_as_forecast(
    damaged: str, version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    store = copy_store(ACCESS, tmp_path)
    if damaged:
        damage(store, damaged)
    for settings in (SIZES | USERS | ACLS, SIZES):
        forecast = simulate_start(open_store(store, BrokerConfig(settings)), version=version)
        try:
            with whole_broker(version, store, settings):
                real = None
        except BrokerDidNotStart as end:
            real = end.exit_code
        assert (settings, forecast.exit_code) == (settings, real)
        assert forecast.starts is (real is None)
