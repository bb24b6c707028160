"""A healed node rejoins its group: real brokers continue to replicate from the healed log."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.files.store import open_store
from rmqstore.views.compare import compare
from tests import damage
from tests.command import run_json
from tests.real_broker.whole_broker import WholeBroker
from tests.repair.salvaging import rows
from tests.stores import copy_store, meta, unpack

NewBroker = Callable[..., WholeBroker]


def break_log(store: Path) -> None:
    found = rows(store)
    for row in (found[12], found[90], found[91]):
        damage.garble(row.path, row.at - row.body_offset, 200)
    sorted({row.path for row in found})[1].unlink()


def heal(store: Path, replica: Path, role: str) -> None:
    words = ("--replica", str(replica), "--role", role, "--apply")
    planned = run_json("recover", str(store), *words[:-1], exit_code=1)
    force = ("--force", str(planned["digest"])) if planned["brakes"] else ()
    assert run_json("recover", str(store), *words, *force, exit_code=0)["loss"]["messages"] == 0  # type: ignore[index]


def last_offset(store: Path) -> int:
    return rows(store)[-1].offset


@pytest.mark.slow
@pytest.mark.parametrize("version", ["5.4.0", "5.5.1"])
def test_a_healed_slave_continues_to_follow_its_master(version: str, tmp_path: Path, whole_broker: NewBroker) -> None:
    """The slave follows its master, is damaged and healed from it, and follows it again."""
    master, slave = (copy_store(f"{version}-{role}", tmp_path) for role in ("master", "slave"))
    conf = meta(f"{version}-slave").broker_conf

    def follow() -> str:
        with whole_broker(version, master, conf, brokerId="0", brokerRole="ASYNC_MASTER") as leading:
            names = leading.name_server
            with whole_broker(version, slave, conf, brokerId="1", brokerRole="SLAVE", namesrvAddr=names) as following:
                leading.produce("Order_11", 20)
                end = time.monotonic() + 60
                while last_offset(slave) < last_offset(master) and time.monotonic() < end:
                    time.sleep(1)
                return following.log()

    follow()
    before = rows(slave)
    break_log(slave)
    heal(slave, master, "slave")
    assert rows(slave) == before
    log = follow()
    assert "exception" not in log.lower()
    assert last_offset(slave) > before[-1].offset + 20 * 100
    answer = compare(open_store(slave), open_store(master), jobs=1)
    assert answer.relation in ("equal", "store-is-prefix"), answer.divergence
    assert answer.store.damaged == 0
    assert answer.leading_messages >= len(before) + 20


def knows(store: Path, topic: str) -> bool:
    """Return whether a follower has taken a topic from its leader (SlaveSynchronize#syncTopicConfig)."""
    path = store / "config" / "topics.json"
    return path.exists() and f'"{topic}"' in path.read_text("utf-8")


@pytest.mark.slow
def test_a_healed_follower_continues_in_its_dledger_group(tmp_path: Path, whole_broker: NewBroker) -> None:
    nodes = [f"5.4.0-dledger3-n{node}" for node in range(3)]
    stores = [copy_store(name, tmp_path) for name in nodes]
    break_log(stores[2])
    heal(stores[2], unpack(nodes[0]), "dledger-group")
    before = len(rows(stores[0]))
    version = meta(nodes[0]).version
    brokers = [whole_broker(version, stores[0], meta(nodes[0]).broker_conf)]
    names = brokers[0].name_server
    brokers += [whole_broker(version, stores[n], meta(nodes[n]).broker_conf, namesrvAddr=names) for n in (1, 2)]
    peers = ";".join(f"n{node}-{broker.dledger_address}" for node, broker in enumerate(brokers))
    try:
        for broker in brokers:
            broker.join(peers)
            broker.launch()
        for broker in brokers:
            broker.wait()
        acknowledged = brokers[0].produce("Order_11", 20)
        end = time.monotonic() + 90
        while not (len({last_offset(store) for store in stores}) == 1 and knows(stores[2], "Order_11")):
            assert time.monotonic() < end
            time.sleep(1)
    finally:
        for broker in reversed(brokers):
            broker.stop()
    assert len(acknowledged) == 20
    assert len(rows(stores[0])) >= before + 20
    for other in stores[1:]:
        answer = compare(open_store(stores[0]), open_store(other), jobs=1)
        assert (answer.relation, answer.store.damaged, answer.other.damaged) == ("equal", 0, 0), answer.divergence
        assert answer.leading_messages == len(rows(stores[0]))
    run_json("verify", str(stores[2]), exit_code=0)
