"""A healed node rejoins its controller group: real brokers replicate to it and elect it.

As in production, the controller is the same as before the damage: a new one would start with epoch 1, and a node
refuses to become the master of an epoch that is not after its last one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.files.store import open_store
from rmqstore.formats.controller import parse_epoch_file
from rmqstore.views.compare import compare
from tests import damage
from tests.command import run_json
from tests.real_broker.whole_broker import WholeBroker
from tests.repair.salvaging import Row, rows

VERSIONS = ("5.4.0", "5.5.1")
TOPICS = ("Order_11", "Pay_11_Topic")
CONF = {
    "brokerName": "broker-11",
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "enableControllerMode": "true",
}
_PATIENCE = 120  # seconds


class Group:
    """Nodes A and B with their controller, which runs in the name server."""

    def __init__(self, version: str, folder: Path, whole_broker: Callable[..., WholeBroker]) -> None:
        self._version, self._new = version, whole_broker
        self.names = whole_broker(version, folder / "unused")
        self.names.start_name_server(controller=True)
        self.stores = {name: folder / name for name in ("a", "b")}
        self.brokers: dict[str, WholeBroker] = {}
        self.conf = CONF | {"controllerAddr": self.names.dledger_address, "namesrvAddr": self.names.name_server}

    def start(self, name: str) -> None:
        self.brokers[name] = self._new(self._version, self.stores[name], None, **self.conf)
        self.brokers[name].start()

    def log(self, name: str) -> str:
        return self.brokers[name].log()

    def produce(self, count: int) -> None:
        """Send messages to every topic; fail if one is not acknowledged."""
        for topic in TOPICS:
            assert len(self.names.produce(topic, count)) == count

    def wait_equal(self) -> None:
        """Wait until the slave has all messages of the master."""
        wait(lambda: len({last(store) for store in self.stores.values()}) == 1)

    def heal(self, name: str, replica: Path) -> None:
        """Plan with the node's broker.conf, which contains the role, and apply; nothing may be lost."""
        store = self.stores[name]
        conf = store.parent / f"{name}.conf"
        conf.write_text("".join(f"{k}={v}\n" for k, v in (self.conf | {"storePathRootDir": str(store)}).items()))
        words = ("recover", str(store), "-c", str(conf), "--replica", str(replica))
        planned = run_json(*words, exit_code=1)
        force = ("--force", str(planned["digest"])) if planned["brakes"] else ()
        done = run_json(*words, "--apply", *force, exit_code=0)
        assert done["loss"]["messages"] == 0  # type: ignore[index]
        assert done["facts"]["restored"]["messages"] > 0  # type: ignore[index]
        report = run_json("verify", str(store), "-c", str(conf), exit_code=0)
        assert report["clean"] is True, report

    def reads_all(self, expected: int) -> None:
        """Check that a consumer receives all messages of the topics from the current master."""
        for topic in TOPICS:
            got = self.names.read(topic)
            assert len(got) == expected
            by_queue: dict[int, list[int]] = {}
            for message in got:
                by_queue.setdefault(message.queue_id, []).append(message.queue_offset)
            assert all(offsets == list(range(len(offsets))) for offsets in by_queue.values())


@pytest.fixture(params=VERSIONS)
def group(request: pytest.FixtureRequest, tmp_path: Path, whole_broker: Callable[..., WholeBroker]) -> Group:
    """A running group: A is the master, B its in-sync slave."""
    made = Group(request.param, tmp_path, whole_broker)
    made.start("a")
    wait(lambda: "Begin to change to master" in made.log("a"))
    made.start("b")
    made.produce(300)
    made.wait_equal()
    return made


def wait(until: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE
    while not until():
        assert time.monotonic() < end
        time.sleep(0.5)


def last(store: Path) -> int:
    found = rows(store)
    return found[-1].offset if found else -1


def break_log(store: Path) -> list[Row]:
    """Damage three records, and delete the second file of the log."""
    found = rows(store)
    for row in (found[12], found[90], found[91]):
        damage.garble(row.path, row.at, 60)
    sorted({row.path for row in found})[1].unlink()
    return found


def epochs(store: Path) -> list[int]:
    return [entry.epoch for entry in parse_epoch_file((store / "epochFileCheckpoint").read_bytes()).entries]


def assert_equal_logs(group: Group) -> None:
    answer = compare(open_store(group.stores["a"]), open_store(group.stores["b"]), jobs=1)
    assert (answer.relation, answer.store.damaged, answer.other.damaged) == ("equal", 0, 0), answer.divergence


def produce_to_both(group: Group, *, slave: str) -> None:
    """Send 20 messages per topic; the healed node has to join as slave and replicate them."""
    group.produce(20)
    group.wait_equal()
    assert "Begin to change to slave" in group.log(slave)
    assert "exception" not in group.log(slave).lower()
    assert_equal_logs(group)


@pytest.mark.slow
def test_a_healed_follower_replicates_and_is_elected(group: Group) -> None:
    group.brokers["b"].stop()
    group.brokers["a"].stop()
    break_log(group.stores["b"])
    group.heal("b", group.stores["a"])
    group.start("a")
    group.start("b")
    produce_to_both(group, slave="b")
    before = epochs(group.stores["b"])
    group.brokers["a"].kill()
    wait(lambda: "Begin to change to master" in group.log("b"))
    group.produce(10)
    assert epochs(group.stores["b"])[-1] > before[-1]
    group.reads_all(300 + 20 + 10)


@pytest.mark.slow
def test_a_healed_former_master_replicates_and_is_elected_again(group: Group) -> None:
    group.brokers["a"].kill()
    wait(lambda: "Begin to change to master" in group.log("b"))
    group.produce(10)
    break_log(group.stores["a"])
    group.heal("a", group.stores["b"])  # while the new master runs
    group.start("a")
    produce_to_both(group, slave="a")
    assert epochs(group.stores["a"]) == epochs(group.stores["b"])
    group.brokers["b"].kill()
    wait(lambda: "Begin to change to master" in group.log("a"))
    group.produce(10)
    group.reads_all(300 + 10 + 20 + 10)
