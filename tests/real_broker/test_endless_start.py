"""A start of 4.9.7 that never ends, because it waits until re-dispatch has reached the end of the log."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqstore.brokers.forecast import StartForecast
from rmqstore.brokers.simulate import simulate_start
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from tests.real_broker.oracle import Oracle, OracleResult
from tests.stores import copy_store, meta

_NAME = "4.9.7-clean"


def _start(version: str, folder: Path, *, still: int = 35, **settings: str) -> tuple[StartForecast, OracleResult]:
    store = folder / _NAME
    forecast = simulate_start(open_store(store, BrokerConfig(dict(settings))), version=version)
    return forecast, Oracle(version).load(store, {**meta(_NAME).oracle_args, **settings}, start=True, still=still)


def _move_a_file_to_the_end(store: Path) -> None:
    (store / "abort").touch()
    names = sorted(file.name for file in (store / "commitlog").iterdir())
    size = int(names[1]) - int(names[0])
    (store / "commitlog" / names[3]).rename(store / "commitlog" / f"{int(names[-1]) + 3 * size:020d}")


def test_a_gap_in_the_log_stops_re_dispatch_and_the_start_waits(tmp_path: Path) -> None:
    _move_a_file_to_the_end(copy_store(_NAME, tmp_path))
    forecast, real = _start("4.9.7", tmp_path, still=10)  # no queue is written again and again, which takes 30 s
    assert real.crash is not None
    assert "re-dispatch is 195636 bytes behind" in real.crash
    assert f"{forecast.log_line}, reputOffset=458752 maxOffset=654388" in real.log
    assert (forecast.starts, forecast.exit_code) == (False, None)
    assert forecast.reason == (
        "re-dispatch stops at 458,752, before the end of the log at 654,388, and the start waits for it without end"
    )
    assert forecast.sentence().startswith("RocketMQ 4.9.7 would not start (its start never ends): re-dispatch stops at")


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("version", ["5.1.4", "5.4.0", pytest.param("5.5.1", marks=pytest.mark.slow)])
def test_a_newer_version_starts_beside_the_gap(version: str, tmp_path: Path) -> None:
    _move_a_file_to_the_end(copy_store(_NAME, tmp_path))
    forecast, real = _start(version, tmp_path)
    assert (forecast.starts, forecast.max_offset) == (real.load, real.max_phy) == (True, real.max_phy)


@pytest.mark.slow
def test_duplication_holds_re_dispatch_back(tmp_path: Path) -> None:
    """It dispatches up to the confirm offset, which is -1 (DefaultMessageStore.ReputMessageService#doReput, 4.9.7)."""
    shutil.rmtree(copy_store(_NAME, tmp_path) / "consumequeue")
    forecast, real = _start("4.9.7", tmp_path, duplicationEnable="true")
    assert real.crash is not None
    assert "start() does not end" in real.crash
    assert (forecast.starts, forecast.exit_code) == (False, None)
