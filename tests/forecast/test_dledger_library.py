"""DLedger 0.4 on its own: its recovery against recorded answers, and how a store of its own is recognised."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.brokers.rules.forecast import PROCESS_EXIT, StartForecast
from rmqstore.brokers.simulate import simulate_start
from rmqstore.errors import UsageError
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import Store, open_store
from tests.forecast.dledger_cases import LIBRARY_CASES, STORE, LibraryAnswer, blank_over, load_library_answers
from tests.stores import copy_store, meta, unpack

ANSWERS = load_library_answers()


def of_library_forecast(forecast: StartForecast) -> LibraryAnswer:
    """A forecast in the words of a recorded answer."""
    gone = forecast.other_files_deleted
    if not forecast.starts:
        return LibraryAnswer(255 if forecast.exit_code == PROCESS_EXIT else 4, gone=gone)
    return LibraryAnswer(0, **forecast.entries, gone=gone)


def opened(folder: Path, name: str = "undamaged") -> Store:
    store = copy_store(STORE, folder)
    damage = LIBRARY_CASES[name]
    if damage is not None:
        damage(store)
    return open_store(store, BrokerConfig(meta(STORE).oracle_args))


def test_every_case_has_a_recorded_answer() -> None:
    assert ANSWERS.keys() == LIBRARY_CASES.keys()


@pytest.mark.parametrize("name", LIBRARY_CASES)
def test_forecast_is_what_the_library_did(name: str, tmp_path: Path) -> None:
    forecast = simulate_start(opened(tmp_path, name), version="dledger-0.4.0")
    assert of_library_forecast(forecast) == ANSWERS[name]
    assert (forecast.program, forecast.version, forecast.evidence) == ("DLedger", "0.4.0", "run")


def test_a_blank_of_size_0_is_never_passed(tmp_path: Path) -> None:
    store = opened(tmp_path)
    blank_over(-1, 3, 0)(store.root)
    forecast = simulate_start(store, version="dledger")
    assert (forecast.starts, forecast.sentence()) == (
        False,
        "DLedger 0.4.0 would not start (with an exception): a BLANK of size 0 at 460172: the recovery never ends",
    )


def test_a_store_with_snapshots_is_taken_for_one_of_the_library(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert simulate_start(store).program == "RocketMQ"
    for name in ("snapshot_9", "snapshot_120", "tmp"):
        (store.root / "dledger-n0" / "snapshot" / name).mkdir(parents=True)
    forecast = simulate_start(store)
    assert forecast.sentence() == "DLedger 0.4.0 would start and lose nothing"
    assert "a state machine goes on from snapshot_120; entries up to 120 are dropped then" in forecast.notes
    assert simulate_start(store, version="5.4.0").program == "RocketMQ"


def test_what_the_library_would_lose_is_counted(tmp_path: Path) -> None:
    forecast = simulate_start(opened(tmp_path, "magic of an entry"), version="dledger-0.4")
    assert forecast.sentence() == ("DLedger 0.4.0 would start and lose 31 messages of 8 topics (entries cut at 460982)")
    assert forecast.stop_reason == "unknown magic 0"


@pytest.mark.parametrize("version", ["dledger-0.3.1", "dledger-0.5", "DLedger x"])
def test_other_versions_of_the_library_alone_are_not_known(version: str) -> None:
    with pytest.raises(UsageError, match=r"no rules for DLedger .* there are some for 0\.4\.0"):
        simulate_start(open_store(unpack(STORE)), version=version)


def test_the_library_needs_a_group(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no DLedger group"):
        simulate_start(open_store(unpack("5.4.0-clean")), version="dledger-0.4.0")
