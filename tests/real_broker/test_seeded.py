"""Seeded replicas join real brokers: they get new messages, are promoted, and lack nothing that was acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from rmqstore.files.store import open_store
from rmqstore.views.compare import compare
from tests.command import run_json
from tests.real_broker.test_healed_controller_group import Group, last, wait
from tests.real_broker.whole_broker import ClientMessage, WholeBroker
from tests.stores import copy_store, meta

NewBroker = Callable[..., WholeBroker]
TOPIC = "Order_11"


def places(messages: Iterable[ClientMessage]) -> set[tuple[int, int, str]]:
    return {(one.queue_id, one.queue_offset, one.id) for one in messages}


def produced(broker: WholeBroker, count: int) -> set[tuple[int, int, str]]:
    """Send messages, again while a new leader is elected; return those that were acknowledged."""
    end = time.monotonic() + 120
    while True:
        try:
            return places(broker.produce(TOPIC, count))
        except RuntimeError:
            assert time.monotonic() < end
            time.sleep(2)


def assert_has(broker: WholeBroker, acknowledged: set[tuple[int, int, str]]) -> None:
    """Read all messages; a client's id of a sent message is the id of the received one."""
    found = {(queue, offset) for queue, offset, _ in places(broker.read(TOPIC))}
    missing = {(queue, offset) for queue, offset, _ in acknowledged} - found
    assert not missing


@pytest.mark.slow
@pytest.mark.parametrize("version", ["5.4.0", "5.1.4"])
def test_a_seeded_member_joins_its_dledger_group(version: str, tmp_path: Path, whole_broker: NewBroker) -> None:
    """n1 is seeded from the stopped n0, n2 from the running one. In the end, n2 is needed for the majority."""
    made = meta(f"{version}-dledger")
    stores = [copy_store(f"{version}-dledger", tmp_path), tmp_path / "n1", tmp_path / "n2"]
    run_json("seed", str(stores[0]), str(stores[1]), "--role", "dledger", "--self-id", "n1", exit_code=0)
    names = whole_broker(version, tmp_path / "unused")
    names.start_name_server()
    own = {"namesrvAddr": names.name_server}
    brokers = [
        whole_broker(version, store, made.broker_conf, dLegerSelfId=f"n{n}", **own) for n, store in enumerate(stores)
    ]
    peers = ";".join(f"n{n}-{broker.dledger_address}" for n, broker in enumerate(brokers))
    for broker in brokers:
        broker.join(peers)
    for broker in brokers[:2]:
        broker.launch()
    for broker in brokers[:2]:
        broker.wait()
    acknowledged = produced(names, 20)
    seeded = run_json("seed", str(stores[0]), str(stores[2]), "--role", "dledger", "--self-id", "n2", exit_code=0)
    acknowledged |= produced(names, 20)
    brokers[2].start()
    acknowledged |= produced(names, 20)
    wait(lambda: len({last(store) for store in stores}) == 1)
    brokers[0].stop()
    acknowledged |= produced(names, 20)
    wait(lambda: last(stores[1]) == last(stores[2]))
    assert_has(names, acknowledged)
    for broker in brokers[1:]:
        broker.stop()
    assert isinstance(seeded["log"], dict)
    assert last(stores[2]) > seeded["log"]["to"]
    assert len(acknowledged) == 80
    answer = compare(open_store(stores[1]), open_store(stores[2]), jobs=1)
    assert (answer.relation, answer.store.damaged, answer.other.damaged) == ("equal", 0, 0), answer.divergence


@pytest.mark.slow
@pytest.mark.parametrize("version", ["5.4.0", "4.9.7", "5.5.1"])
def test_a_seeded_slave_becomes_the_master(version: str, tmp_path: Path, whole_broker: NewBroker) -> None:
    """The slave is seeded from a running master and follows it; later it is started as the master."""
    made = meta(f"{version}-clean")
    master, slave = copy_store(f"{version}-clean", tmp_path), tmp_path / "slave"
    conf = made.broker_conf
    with whole_broker(version, master, conf, brokerId="0", brokerRole="ASYNC_MASTER") as leading:
        acknowledged = produced(leading, 20)
        done = run_json("seed", str(master), str(slave), "--role", "slave", exit_code=0)
        acknowledged |= produced(leading, 20)
        names = leading.name_server
        with whole_broker(version, slave, conf, brokerId="1", brokerRole="SLAVE", namesrvAddr=names) as following:
            acknowledged |= produced(leading, 20)
            wait(lambda: last(slave) == last(master))
            log = following.log()
    assert "exception" not in log.lower()
    assert isinstance(done["log"], dict)
    assert last(slave) > done["log"]["to"]
    answer = compare(open_store(slave), open_store(master), jobs=1)
    assert answer.relation in ("equal", "store-is-prefix"), answer.divergence
    assert answer.store.damaged == 0
    with whole_broker(version, slave, conf, brokerId="0", brokerRole="ASYNC_MASTER") as promoted:
        assert_has(promoted, acknowledged)
        acknowledged |= produced(promoted, 20)
        assert_has(promoted, acknowledged)
    assert len(acknowledged) == 80


@pytest.mark.slow
@pytest.mark.parametrize("version", ["5.4.0", "5.5.1"])
def test_a_seeded_replica_is_elected_by_its_controller(version: str, tmp_path: Path, whole_broker: NewBroker) -> None:
    group = Group(version, tmp_path, whole_broker)
    group.start("a")
    wait(lambda: "Begin to change to master" in group.log("a"))
    group.produce(100)
    run_json("seed", str(group.stores["a"]), str(group.stores["b"]), "--role", "controller", exit_code=0)
    group.produce(20)
    group.start("b")
    group.produce(20)
    group.wait_equal()
    wait(lambda: "Begin to change to slave" in group.log("b"))
    group.brokers["a"].kill()
    wait(lambda: "Begin to change to master" in group.log("b"))
    group.produce(10)
    group.reads_all(150)
