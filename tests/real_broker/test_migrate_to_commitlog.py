"""The real store of each version starts on stores made by migrate-to-commitlog, and reads all messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.command import run_json
from tests.real_broker.oracle import Oracle, OracleResult
from tests.real_broker.whole_broker import WholeBroker
from tests.repair.migration_stores import VERSIONS, plain_records
from tests.stores import copy_store, meta, sent, unpack

KINDS = ("dledger", "dledger-mixed", "dledger-killed")
_DLEDGER_KEYS = ("enableDLegerCommitLog", "dLegerGroup", "dLegerSelfId", "dLegerPeers")


def _cases() -> list[object]:
    every = [(version, kind) for version in VERSIONS for kind in KINDS]
    fixed = {("5.4.0", "dledger-mixed"), ("5.1.4", "dledger"), ("4.9.7", "dledger-killed")}
    return [pytest.param(*case, marks=() if case in fixed else pytest.mark.slow) for case in every]


def _plain_settings(name: str) -> Mapping[str, str]:
    return {key: value for key, value in meta(name).oracle_args.items() if key not in _DLEDGER_KEYS}


def _messages(answer: OracleResult) -> dict[str, list[tuple[int, int, int]]]:
    """Return (queue offset, size, body CRC) of every message by queue, which do not depend on the physical offset."""
    return {
        name: [(m.queue_offset, m.size, m.body_crc) for m in queue.messages]
        for name, queue in answer.queues.items()
        if queue.messages
    }


def _migrate(name: str, output: Path) -> Mapping[str, object]:
    words = ("migrate-to-commitlog", str(unpack(name)), "--output", str(output), "--peers", "1", "--jobs", "1")
    return run_json(*words, exit_code=0)


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize(("version", "kind"), _cases())
def test_plain_store_starts_and_reads_every_message_of_every_queue(
    version: str, kind: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    name = f"{version}-{kind}"
    output = tmp_path / "plain"
    _migrate(name, output)
    now = oracle(version).load(output, _plain_settings(name), start=True, shutdown=True)
    assert (now.load, now.crash, now.shutdown) == (True, None, "clean")
    assert {queue: reading.why for queue, reading in now.queues.items() if reading.bad} == {}
    recorded = meta(name).oracle_start
    assert {queue: (r.min, r.max, r.readable) for queue, r in now.queues.items()} == {
        queue: (r.min, r.max, r.readable) for queue, r in recorded.queues.items()
    }
    assert run_json("verify", str(output), "--jobs", "1", exit_code=0)["clean"] is True


@pytest.mark.slow
@pytest.mark.parametrize(("version", "kind"), [(version, kind) for version in VERSIONS for kind in KINDS])
def test_plain_store_reads_the_same_messages_as_the_dledger_store(
    version: str, kind: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    name = f"{version}-{kind}"
    real = oracle(version)
    output = tmp_path / "plain"
    _migrate(name, output)
    now = real.load(output, _plain_settings(name), list=True)
    before = real.load(copy_store(name, tmp_path), meta(name).oracle_args, start=True, list=True)
    assert (now.load, before.load, before.leader) == (True, True, True)
    assert _messages(now) == _messages(before)


@pytest.mark.parametrize(
    "version",
    [
        "4.9.7",
        pytest.param("5.1.4", marks=pytest.mark.slow),
        pytest.param("5.4.0", marks=pytest.mark.slow),
        pytest.param("5.5.1", marks=pytest.mark.slow),
    ],
)
def test_no_acknowledged_message_of_a_killed_store_is_missing(
    version: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    name = f"{version}-dledger-killed"
    output = tmp_path / "plain"
    _migrate(name, output)
    answer = oracle(version).load(output, _plain_settings(name), list=True)
    readable = {
        (queue, message.queue_offset) for queue, reading in answer.queues.items() for message in reading.messages
    }
    acknowledged = {(f"{row.topic}/{row.queue_id}", row.queue_offset) for row in sent(name)}
    assert len(acknowledged) > 200
    assert acknowledged <= readable


@pytest.mark.slow
def test_store_without_its_queues_is_dispatched_to_the_same_messages(
    tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    import shutil

    name = "5.4.0-dledger-mixed"
    output = tmp_path / "plain"
    _migrate(name, output)
    settings = {**_plain_settings(name), "commitLogRecoverMaxNum": "1000"}
    before = _messages(oracle("5.4.0").load(output, settings, start=True, shutdown=True, list=True))
    shutil.rmtree(output / "consumequeue")
    (output / "abort").touch()
    (output / "checkpoint").unlink()
    assert _messages(oracle("5.4.0").load(output, settings, start=True, list=True)) == before


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_broker_continues_as_a_plain_one_and_its_consumers_find_their_offsets(
    version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    name = f"{version}-dledger-mixed"
    made = meta(name)
    output = tmp_path / "plain"
    _migrate(name, output)
    conf = {key: value for key, value in made.broker_conf.items() if key not in _DLEDGER_KEYS}
    with whole_broker(version, output, conf) as broker:
        sent_now = broker.produce("Order_11", 10)
        read = broker.read("Order_11")
    assert len(sent_now) == 10
    seen = {(m.queue_id, m.queue_offset, m.body_crc) for m in read}
    assert seen >= {(m.queue_id, m.queue_offset, m.body_crc) for m in sent_now}
    for queue_id in range(4):
        recorded = made.oracle_start.queues[f"Order_11/{queue_id}"].max
        assert {o for q, o, _ in seen if q == queue_id} >= set(range(recorded))
    assert [r.physical_offset for r in plain_records(output)] == [r.address for r in plain_records(output)]
    config = (output / "config" / "consumerOffset.json").read_text("utf-8")
    assert "Order_11" in config
