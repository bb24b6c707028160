"""Forecasts for damaged small files, compared with the recorded results of the real classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.brokers.forecast import StartForecast, StartOptions
from rmqstore.brokers.simulate import simulate_start
from rmqstore.checks.examine import verify
from rmqstore.checks.options import VerifyOptions
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from tests.forecast.small_files import ROCKSDB, SmallDamage, forecast_of, load_answers
from tests.rocksdb_rows import need_rocksdict
from tests.stores import copy_store, meta

ANSWERS = load_answers()
MESSAGES = 292


@pytest.mark.quick_rows(50)
@pytest.mark.parametrize("damage", ANSWERS, ids=str)
def test_forecast_is_what_the_broker_did(damage: SmallDamage, tmp_path: Path) -> None:
    if damage.store == ROCKSDB:
        need_rocksdict()
    answer = ANSWERS[damage]
    store = copy_store(damage.store, tmp_path)
    damage.apply(store)
    forecast, missing = forecast_of(damage, store)
    assert forecast.starts == answer.starts
    assert None in (forecast.max_offset, answer.max_offset) or forecast.max_offset == answer.max_offset
    assert (missing > 0) == (answer.readable not in (None, MESSAGES))


GARBAGE = '{"dataVersion":{"x'


def forecast_with_config_file(folder: Path, version: str, name: str, text: str) -> StartForecast:
    """Return the forecast for a sound store in which a file of config/ and its .bak contain `text`."""
    store = copy_store(f"{version}-clean", folder)
    for path in (store / "config" / name, store / "config" / f"{name}.bak"):
        path.write_text(text)
    config = BrokerConfig(meta(f"{version}-clean").oracle_args)
    return simulate_start(open_store(store, config), version=version, options=StartOptions(dispatch=False))


# the exit codes of whole brokers if both the file and its .bak are garbled; None: the broker started
CONFIG_EXITS: dict[str, dict[str, int | None]] = {
    "topics.json": {"4.9.7": 253, "5.1.4": 255, "5.4.0": 253},
    "topicQueueMapping.json": {"4.9.7": None, "5.1.4": 255, "5.4.0": 253},
    "consumerOffset.json": {"5.1.4": 255, "5.4.0": 253},
    "consumerFilter.json": {"5.1.4": 255, "5.4.0": 253},
    "consumerOrderInfo.json": {"5.1.4": 255, "5.4.0": 253},
    "delayOffset.json": {"5.1.4": 253, "5.4.0": 253},
    "timermetrics": {"5.1.4": 253, "5.4.0": 253},
    "timercheck": {"5.1.4": None, "5.4.0": None},
    "transactionMetrics": {"5.1.4": None, "5.4.0": None},
    "broadcastOffset.json": {"5.1.4": None, "5.4.0": None},
}


@pytest.mark.parametrize(
    ("name", "version", "code"), [(n, v, code) for n, codes in CONFIG_EXITS.items() for v, code in codes.items()]
)
def test_unreadable_configuration_ends_a_broker_as_it_did(
    name: str, version: str, code: int | None, tmp_path: Path
) -> None:
    forecast = forecast_with_config_file(tmp_path, version, name, GARBAGE)
    assert (forecast.starts, forecast.exit_code) == (code is None, code)
    assert forecast.starts or name in (forecast.reason or "")


# the exit codes of whole brokers if both the file and its .bak contain this text
WRONG_TYPES: dict[str, tuple[str, dict[str, int | None]]] = {
    "consumerOffset.json": ('{"offsetTable":[]}', {"4.9.7": 253, "5.1.4": 255, "5.4.0": 253}),
    "delayOffset.json": ('{"offsetTable":{"3":"x"}}', {"4.9.7": 253, "5.1.4": 253, "5.4.0": 253}),
    "subscriptionGroup.json": ('{"subscriptionGroupTable":[]}', {"5.1.4": 255, "5.4.0": 253}),
    "topics.json": ('{"topicConfigTable":{"Order_11":[]}}', {"5.1.4": 255, "5.4.0": 253}),
    "topicQueueMapping.json": ('{"topicQueueMappingInfoMap":null}', {"5.1.4": 255, "5.4.0": 253}),
    "consumerOrderInfo.json": ('{"table":{"T@G":{"x":7}}}', {"5.1.4": 255, "5.4.0": 253}),
    "consumerFilter.json": ('{"filterDataByTopic":[]}', {"5.1.4": 255, "5.4.0": 253}),
    "timermetrics": ('{"timingCount":{"T":7}}', {"5.1.4": 253, "5.4.0": 253}),
    "transactionMetrics": ('{"transactionCount":[]}', {"5.1.4": None, "5.4.0": None}),
}


@pytest.mark.parametrize(
    ("name", "version", "text", "code"),
    [(n, v, text, code) for n, (text, codes) in WRONG_TYPES.items() for v, code in codes.items()],
)
def test_configuration_with_values_of_wrong_types_ends_a_broker_as_it_did(
    name: str, version: str, text: str, code: int | None, tmp_path: Path
) -> None:
    forecast = forecast_with_config_file(tmp_path, version, name, text)
    assert (forecast.starts, forecast.exit_code) == (code is None, code)
    assert forecast.starts or name in (forecast.reason or "")


@pytest.mark.parametrize(
    ("path", "kind", "starts"),
    [
        ("topics/CURRENT", "zero", False),
        ("topics/CURRENT", "gone", False),
        ("topics/000011.sst", "noise", False),
        ("topics/000012.sst", "noise", True),  # an older data version, which is not read
        ("topics/000015.sst", "noise", False),
        ("subscriptionGroups/000011.sst", "noise", True),
        ("subscriptionGroups/000014.sst", "noise", False),
        ("consumerOffsets/CURRENT", "zero", False),
        ("consumerOffsets/000009.sst", "noise", False),
    ],
)
def test_unreadable_rocksdb_of_the_configuration_ends_a_broker_as_it_did(
    path: str, kind: str, starts: bool, tmp_path: Path
) -> None:
    need_rocksdict()
    store = copy_store(ROCKSDB, tmp_path)
    SmallDamage(ROCKSDB, f"config/{path}", kind, 10).apply(store)
    opened = open_store(store, BrokerConfig(meta(ROCKSDB).oracle_args))
    forecast = simulate_start(opened)
    assert forecast.starts is starts
    if not starts:
        assert f"config/{path.split('/')[0]}" in (forecast.reason or "")
        assert verify(opened, VerifyOptions(jobs=1)).exit_code == 4


def test_damaged_rows_are_reported_in_the_verdict(tmp_path: Path) -> None:
    """The broker starts and reads none of the 292 messages."""
    need_rocksdict()
    store = copy_store(ROCKSDB, tmp_path)
    SmallDamage(ROCKSDB, "consumequeue/000011.sst", "noise", 500).apply(store)
    opened = open_store(store, BrokerConfig(meta(ROCKSDB).oracle_args))
    report = verify(opened, VerifyOptions(jobs=1))
    assert report.verdict == (
        "RocketMQ 5.4.0 would start, but up to 292 messages of 21 consume queues cannot be read: "
        "rows in RocksDB are damaged"
    )
    assert simulate_start(opened).sentence() == report.verdict
    assert report.exit_code == 1


def test_a_lost_current_without_a_log_makes_a_new_database(tmp_path: Path) -> None:
    """The broker reads 291 of 292 messages after a clean exit: the first one gets no row."""
    need_rocksdict()
    store = copy_store(ROCKSDB, tmp_path)
    for name in ("CURRENT", "000004.log"):
        (store / "consumequeue" / name).unlink()
    forecast = simulate_start(open_store(store, BrokerConfig(meta(ROCKSDB).oracle_args)))
    assert (forecast.starts, forecast.not_dispatched) == (True, (0, 1))
    assert forecast.to_json()["not_dispatched"] == {"start": 0, "stop": 1}


@pytest.mark.parametrize("name", ["LOCK", "CURRENT"])
def test_a_directory_in_place_of_a_file_of_the_database_ends_the_load(name: str, tmp_path: Path) -> None:
    store = copy_store(ROCKSDB, tmp_path)
    (store / "consumequeue" / name).unlink()
    (store / "consumequeue" / name).mkdir()
    forecast = simulate_start(open_store(store, BrokerConfig(meta(ROCKSDB).oracle_args)))
    assert (forecast.starts, forecast.exit_code) == (False, 253)
    assert f"{name} is a directory" in (forecast.reason or "")
