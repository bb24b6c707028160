"""Real classes and whole brokers read restored stores: exactly the messages up to the cut."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.files.store import open_store
from rmqstore.views.compare import compare
from tests.command import run_json
from tests.real_broker.oracle_server import OracleServers
from tests.real_broker.reading import messages, unreadable
from tests.real_broker.whole_broker import WholeBroker
from tests.repair.salvaging import rows
from tests.stores import copy_store, meta, unpack

NewBroker = Callable[..., WholeBroker]


def last_offset(store: Path) -> int:
    return rows(store)[-1].offset


@pytest.mark.parametrize(
    "name",
    [
        "5.4.0-clean",
        "4.9.7-killed",
        pytest.param("5.4.0-dledger", marks=pytest.mark.slow),
        pytest.param("5.1.4-dledger-mixed", marks=pytest.mark.slow),
        *(
            pytest.param(f"5.5.1-{kind}", marks=pytest.mark.slow)
            for kind in ("killed", "flushed-killed", "nommap", "formats", "dledger", "dledger-mixed")
        ),
    ],
)
def test_the_real_store_reads_exactly_the_messages_up_to_the_cut(
    name: str, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    made, store, copy = meta(name), unpack(name), tmp_path / "copy"
    end = run_json("backup", str(store), str(tmp_path / "repo"), "--name", "a", exit_code=0)["log"]
    assert isinstance(end, dict)
    at = end["to"] * 2 // 3
    row = run_json("restore", f"{tmp_path / 'repo'}::a", str(copy), "--at", str(at), exit_code=0)
    assert isinstance(row["log"], dict)
    seen = oracle_servers.load(made.version, copy, made.oracle_args)
    assert (seen.load, seen.crash) == (True, None)
    assert unreadable(seen) == {}
    original = oracle_servers.load(made.version, store, made.oracle_args)
    found, there = messages(seen), messages(original)
    assert found
    assert found.items() <= there.items()
    assert len({message.commitlog_offset for message in found.values()}) == row["messages"]  # some are in many queues
    assert seen.readable < original.readable
    assert max(message.commitlog_offset + message.size for message in found.values()) <= at


@pytest.mark.slow
@pytest.mark.parametrize("version", ["5.4.0", "5.5.1"])
def test_a_seeded_slave_follows_its_master(version: str, tmp_path: Path, whole_broker: NewBroker) -> None:
    """The slave is seeded from a running master, joins it, and has every message in the end."""
    master, slave = copy_store(f"{version}-master", tmp_path), tmp_path / "slave"
    conf = meta(f"{version}-master").broker_conf
    with whole_broker(version, master, conf, brokerId="0", brokerRole="ASYNC_MASTER") as leading:
        leading.produce("Order_11", 20)
        done = run_json("seed", str(master), str(slave), "--role", "slave", exit_code=0)
        leading.produce("Order_11", 20)
        names = leading.name_server
        with whole_broker(version, slave, conf, brokerId="1", brokerRole="SLAVE", namesrvAddr=names) as following:
            leading.produce("Order_11", 20)
            end = time.monotonic() + 120
            while last_offset(slave) < last_offset(master) and time.monotonic() < end:
                time.sleep(1)
            log = following.log()
    assert "exception" not in log.lower()
    assert isinstance(done["log"], dict)
    assert last_offset(slave) > done["log"]["to"]
    answer = compare(open_store(slave), open_store(master), jobs=1)
    assert answer.relation in ("equal", "store-is-prefix"), answer.divergence
    assert answer.store.damaged == 0


@pytest.mark.slow
@pytest.mark.parametrize("version", ["5.4.0", "4.9.7", "5.5.1"])
def test_a_whole_broker_serves_a_restored_store(version: str, tmp_path: Path, whole_broker: NewBroker) -> None:
    """A snapshot of a running broker: the restored broker serves exactly the messages up to the cut, and more later."""
    name = f"{version}-clean"
    made, store, copy = meta(name), copy_store(name, tmp_path), tmp_path / "copy"
    with whole_broker(version, store, made.broker_conf) as broker:
        broker.produce("Order_11", 12)
        before = broker.read("Order_11")
        row = run_json("backup", str(store), str(tmp_path / "repo"), "--name", "a", exit_code=0)
        broker.produce("Order_11", 7)
    assert isinstance(row["log"], dict)
    done = run_json("restore", f"{tmp_path / 'repo'}::a", str(copy), exit_code=0)
    assert done["messages"] == row["messages"]
    with whole_broker(version, copy, made.broker_conf) as broker:
        after = broker.read("Order_11")
        broker.produce("Order_11", 3)
        assert len(broker.read("Order_11")) == len(after) + 3
    places = [{(m.queue_id, m.queue_offset, m.body_crc) for m in read} for read in (before, after)]
    assert places[1] >= places[0]
