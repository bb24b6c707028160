"""Messages and queues at which a broker's dispatch throws: the forecast is what the real classes do."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from rmqstore.brokers.simulate import simulate_start
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from rmqstore.formats.message import record_crc, set_record_crc
from rmqstore.formats.properties import INNER_MULTI_QUEUE_OFFSET
from tests.command import run_json
from tests.damage import overwrite
from tests.real_broker.oracle_server import OracleServers
from tests.real_broker.starts import compare_forecast
from tests.repair.salvaging import rows
from tests.stores import VERSIONS, copy_store, meta

BESIDE = {"rocksdbCQDoubleWriteEnable": "true", "enableLmq": "true", "enableMultiDispatch": "true"}


def spoil_an_offset(store: Path) -> None:
    """Make the queue offset of a light queue "x", in a message with a sound record CRC."""
    name = INNER_MULTI_QUEUE_OFFSET.encode() + b"\1"
    row = [row for row in rows(store) if name in row.message.properties][3]
    record = row.path.read_bytes()[row.at : row.stop]
    at = record.index(name) + len(name)
    record = record[:at] + b"x" + record[at + 1 :]
    overwrite(row.path, row.at, record if record_crc(record, 0, len(record))[0] is None else set_record_crc(record))


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize(
    ("version", "name"),
    [("5.4.0", "5.4.0-formats"), ("4.9.7", "5.1.4-formats"), ("5.1.4", "5.1.4-formats"), ("5.5.1", "5.5.1-formats")],
)
@pytest.mark.parametrize("queues", [False, True])
def test_a_queue_offset_that_is_not_a_number(
    version: str, name: str, queues: bool, abort: bool, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    store = copy_store(name, tmp_path)
    spoil_an_offset(store)
    if not queues:
        shutil.rmtree(store / "consumequeue")
    (store / "abort").unlink(missing_ok=True)
    if abort:
        (store / "abort").touch()
    server = oracle_servers.of(version)
    real = server.answer(server.ask(store, meta(name).oracle_args, abort=abort))
    forecast = compare_forecast(name, store, version, real)
    if (version, queues, abort) == ("5.4.0", False, False):
        assert not forecast.starts and "the queue offset of a light queue is not a number" in (forecast.reason or "")


@pytest.mark.slow
@pytest.mark.parametrize("version", ["5.4.0", "5.5.1"])
def test_batch_queues_beside_a_rocksdb_of_queues(version: str, tmp_path: Path, oracle_servers: OracleServers) -> None:
    name = f"{version}-formats"
    settings = {**meta(name).oracle_args, **BESIDE, "combineCQUseRocksdbForLmq": "true"}
    _both_say(version, name, settings, "ClassCastException", "the batch queue BatchCq_11/0", tmp_path, oracle_servers)


@pytest.mark.slow
@pytest.mark.parametrize("preferred", ["default", "defaultRocksDB"])
def test_light_queues_in_files_beside_a_rocksdb_that_is_read(
    preferred: str, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    given = {key: value for key, value in meta("5.5.1-lmq").oracle_args.items() if "Rocksdb" not in key}
    settings = {**given, **BESIDE, "combineCQPreferCQType": preferred}
    reason = "light queues in files cannot be written" if preferred != "default" else ""
    _both_say("5.4.0", "5.5.1-lmq", settings, "ClassCastException", reason, tmp_path, oracle_servers)


def _both_say(
    version: str, name: str, settings: Mapping[str, str], line: str, reason: str, folder: Path, servers: OracleServers
) -> None:
    store = copy_store(name, folder)
    for directory in ("consumequeue", "consumequeue_rocksdb"):
        shutil.rmtree(store / directory, ignore_errors=True)
    real = servers.of(version).answer(servers.of(version).ask(store, settings, abort=(store / "abort").exists()))
    forecast = simulate_start(open_store(store, BrokerConfig(dict(settings))), version=version)
    assert forecast.starts is real.load is (not reason)
    if reason:
        assert line in real.log and line in (forecast.log_line or "")
        assert reason in (forecast.reason or "")


@pytest.mark.slow  # a broker tries for 30 s
@pytest.mark.parametrize("byte", [b"\0", b","])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_whose_directory_cannot_be_created(
    version: str, byte: bytes, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    """A NUL in TOPIC, or a comma, which separates paths: no later message of any queue gets a unit."""
    name = f"{version}-clean"
    store = copy_store(name, tmp_path)
    shutil.rmtree(store / "consumequeue")
    (store / "abort").touch()
    row = rows(store)[-5]
    topic = row.message.topic_text
    overwrite(row.path, row.path.read_bytes().index(topic.encode(), row.at) + 2, byte)
    server = oracle_servers.of(version)
    forecast = compare_forecast(
        name, store, version, server.answer(server.ask(store, meta(name).oracle_args, abort=True))
    )
    place = f"consumequeue/{topic[:2]}{byte.decode()}{topic[3:]}"
    assert any(f"no queue can be created at {place}: no later" in note for note in forecast.notes)
    report = run_json("verify", str(store), "--broker", version, exit_code=1)
    told, own = (found["queues"].items() for found in (report["broker"], forecast.to_json()))  # type: ignore[index]
    assert {queue: end for queue, end in told if end["max"]} == {queue: end for queue, end in own if end["max"]}
