"""Create a fixture: run a real broker with real traffic, and pack what is on disk when it ends.

    python -m tests.oracle.brokers.make VERSION SCENARIO OUTDIR [--seed N]

`README.md` beside this file describes the scenarios. Two runs never create equal bytes: times, ids and the interleaving
of threads differ.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.real_broker.oracle import Oracle, OracleResult
from tests.real_broker.whole_broker import WholeBroker
from tests.stores import clone

# The settings that the oracle needs to open the store.
_STORE_SETTINGS = (
    *("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "mappedFileSizeTimerLog", "maxHashSlotNum"),
    *("maxIndexNum", "flushDiskType", "enableDLegerCommitLog", "dLegerGroup", "dLegerSelfId", "storeType"),
    *("enabledAppendPropCRC", "enableLmq", "enableMultiDispatch"),
    *("compactionMappedFileSize", "compactionCqMappedFileSize"),
)
_NOT_RECORDED = ("namesrvAddr", "storePathRootDir", "storePathCommitLog")

_EVERY_KIND = {"delay": "true", "tx": "true", "batch": "true"}
_FORMATS = {
    "enabledAppendPropCRC": "true",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "compactionMappedFileSize": "20000",
    "compactionCqMappedFileSize": "4600",
}
_IPV6 = {"brokerIP1": "::1", "brokerIP2": "::1", "bindAddress": "::"}


class Maker:
    """The brokers, sends and stores of one scenario."""

    def __init__(self, version: str, scenario: str, out: Path, seed: int, folder: Path) -> None:
        self.version, self.scenario, self.out, self.seed, self.folder = version, scenario, out, seed, folder
        self.sent_file = folder / "sent.jsonl"
        self.count = 400 + seed % 50
        self.brokers: list[WholeBroker] = []

    def broker(self, store: str, conf: Mapping[str, str], name_server: str | None = None) -> WholeBroker:
        """Create a broker with files so small that a few hundred messages fill several of them."""
        large = self.seed % 2 == 1 and self.seed > 1000
        own = {
            "brokerName": f"broker-{self.seed}",
            "mappedFileSizeCommitLog": "131072" if large else "65536",
            "mappedFileSizeConsumeQueue": "1000" if large else "2000",
            "maxHashSlotNum": "50" if large else "100",
            "maxIndexNum": "200" if large else "400",
            "flushDiskType": "ASYNC_FLUSH",
            "deleteWhen": "04",
            "transactionTimeOut": "1500",
            "transactionCheckInterval": "2500",
            "transactionCheckMax": "3",
            "flushDelayOffsetInterval": "1000",
            "flushConsumerOffsetInterval": "1000",
        }
        if self.version.startswith("5"):
            own["transactionOpBatchInterval"] = "500"
            if large:
                own["mappedFileSizeTimerLog"] = "65536"
        path = self.folder / store
        self.brokers.append(WholeBroker(self.version, path, own={**own, **conf}, name_server=name_server))
        return self.brokers[-1]

    def dledger(self, node: str = "n0") -> dict[str, str]:
        """Return the settings of a DLedger broker, by default in a group of one."""
        return {"enableDLegerCommitLog": "true", "dLegerGroup": f"broker-{self.seed}", "dLegerSelfId": node}

    def flow(self, broker: WholeBroker, **words: str | int) -> object:
        """Send messages through the broker's name server, and return the counts."""
        arguments = [broker.name_server, str(self.seed), str(self.sent_file)]
        text = broker.run_java("Flow", *arguments, *(f"{key}={value}" for key, value in words.items()))
        return json.loads(text.splitlines()[-1])

    def finish(self, name: str, broker: WholeBroker, sent: object, stopped: str, note: str = "") -> None:
        """Record what the real classes read from copies of a store, and pack the store."""
        conf = {key: value for key, value in broker.conf.items() if key not in _NOT_RECORDED}
        settings = {key: conf[key] for key in _STORE_SETTINGS if key in conf}
        oracle_args = [f"{key}={value}" for key, value in settings.items() if key != "flushDiskType"]
        if "dLegerSelfId" in settings:
            oracle_args.append(f"dLegerPeers={settings['dLegerSelfId']}-127.0.0.1:0")
        store = self.folder / name
        if broker.store != store:
            clone(broker.store, store)
        document = {
            "name": name,
            "rocketmq": self.version,
            "scenario": self.scenario,
            "seed": self.seed,
            "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "settings": settings,
            "broker_conf": conf,
            "sent": sent,
            "stopped": stopped,
            "abort_present": (store / "abort").exists(),
            "note": note,
            "oracle_args": oracle_args,
            "oracle_load": self._read(store, oracle_args, start=False),
            "oracle_start": self._read(store, oracle_args, start=True),
        }
        (self.out / f"{name}.json").write_text(json.dumps(document, ensure_ascii=False, indent=1), "utf-8")
        with gzip.GzipFile(self.out / f"{name}.sent.jsonl.gz", "wb", mtime=0) as out:
            out.write(self.sent_file.read_bytes())
        archive = self.out / f"{name}.tar.gz"
        subprocess.run(["tar", "-S", "-czf", str(archive), "-C", str(self.folder), name], check=True)
        print(f"{name}: {archive.stat().st_size} bytes, {stopped}")

    def _read(self, store: Path, arguments: list[str], *, start: bool) -> dict[str, object]:
        copy = self.folder / "oracle-copy"
        clone(store, copy)
        settings = dict(argument.split("=", 1) for argument in arguments)
        result = Oracle(self.version).load(copy, settings, start=start)
        shutil.rmtree(copy)
        return _recorded(result)


def _recorded(result: OracleResult) -> dict[str, object]:
    queues = {
        name: {"min": queue.min, "max": queue.max, "readable": queue.readable, "first_bad": queue.first_bad}
        for name, queue in result.queues.items()
    }
    return {
        "load": result.load,
        "min_phy": result.min_phy,
        "max_phy": result.max_phy,
        "queues": queues,
        "crash": result.crash,
        "max_phy_after_load": result.max_phy_after_load,
        "offsets": result.offsets,
        "readable": result.readable,
    }


def single(maker: Maker) -> None:
    """Create clean, killed, dledger, dledger-killed, formats, rocksdb or ipv6: one broker, stopped or killed."""
    scenario, conf, words = maker.scenario, dict[str, str](), dict[str, str | int](_EVERY_KIND)
    if scenario.startswith("dledger"):
        conf = maker.dledger()
    elif scenario == "formats":
        conf = _FORMATS
    elif scenario == "rocksdb":
        conf = {"storeType": "defaultRocksDB"}
    elif scenario == "ipv6":
        conf = _IPV6
    broker = maker.broker("store", conf)
    broker.start()
    if scenario.endswith("killed"):
        words |= {"n": maker.count, "kill": broker.pid, "killAt": maker.count - maker.seed % 37}
    elif scenario == "formats":
        words |= {"n": 150, "formats": "true", "broker": broker.address, "popSec": 24}
        words |= {"brokerName": broker.conf["brokerName"]}
    elif scenario in ("rocksdb", "ipv6"):
        words |= {"n": 150, "consume": "true", "consumeSec": 5}
    else:
        words |= {"n": maker.count, "consume": "true", "consumeSec": 9 if scenario == "clean" else 6, "linger": 1}
    sent = maker.flow(broker, **words)
    if scenario.endswith("killed"):
        broker.kill()
        stopped = "kill -9 while three producer threads were sending"
    else:
        stopped = f"SIGTERM, exit code {broker.stop()}"
    name = f"{maker.version}-{scenario}"
    maker.finish(name, broker, sent, stopped)
    if scenario == "clean":
        mixed(maker, broker, sent, stopped)


def mixed(maker: Maker, plain: WholeBroker, sent: object, stopped: str) -> None:
    """Create before-dledger and dledger-mixed: pack the plain store, restart with DLedger, and send 200 messages."""
    maker.scenario = "mixed"
    before = f"{maker.version}-before-dledger"
    maker.finish(before, plain, sent, f"byte copy of {maker.version}-clean", "state before enableDLegerCommitLog=true")
    maker.sent_file.unlink()
    broker = maker.broker("store", maker.dledger())
    broker.start()
    after = maker.flow(broker, n=200, **{"from": 5000})
    stopped = f"SIGTERM, exit code {broker.stop()}"
    note = f"{before} restarted with DLedger; .sent.jsonl holds only the messages after the switch"
    maker.finish(f"{maker.version}-dledger-mixed", broker, {"before": sent, "after": after}, stopped, note)


def dledger3(maker: Maker) -> None:
    """Create dledger3: a group of three, in which a follower is killed before the last 100 messages."""
    brokers = [maker.broker("store-n0", maker.dledger("n0"))]
    brokers += [maker.broker(f"store-{name}", maker.dledger(name), brokers[0].name_server) for name in ("n1", "n2")]
    peers = ";".join(f"n{node}-{broker.dledger_address}" for node, broker in enumerate(brokers))
    for broker in brokers:
        broker.join(peers)
        broker.launch()
    for broker in brokers:
        broker.wait()
    one = maker.flow(brokers[0], n=300)
    votes = [_leader(broker.store / f"dledger-n{node}" / "currterm") for node, broker in enumerate(brokers)]
    leader = max(votes, key=votes.count)
    victim = max(node for node in range(3) if f"n{node}" != leader and node != 0)  # n0's process has the name server
    brokers[victim].kill()
    two = maker.flow(brokers[0], n=100, **{"from": 9000})
    time.sleep(2)
    stopped = {victim: "kill -9 after 300 messages"}
    for node in sorted(set(range(3)) - {victim}, key=lambda node: (f"n{node}" == leader, node == 0)):
        stopped[node] = f"SIGTERM, exit code {brokers[node].stop()}"
    note = f"leader {leader}, follower n{victim} was killed before the last 100 messages"
    for node, broker in enumerate(brokers):
        sent = {"first": one, "second": two}
        maker.finish(f"{maker.version}-dledger3-n{node}", broker, sent, stopped[node], note)


def masterslave(maker: Maker) -> None:
    """Create master and slave: asynchronous replication; the slave is killed in the middle."""
    master = maker.broker("store-m", {"brokerRole": "ASYNC_MASTER"})
    master.start()
    slave = maker.broker("store-s", {"brokerRole": "SLAVE", "brokerId": "1"}, master.name_server)
    slave.start()
    one = maker.flow(master, n=250, **_EVERY_KIND)
    time.sleep(10)  # the slave asks for the master's configuration files every 10 s
    slave.kill()
    two = maker.flow(master, n=150, **{"from": 7000})
    stopped = f"SIGTERM, exit code {master.stop()}"
    sent = {"first": one, "second": two}
    maker.finish(f"{maker.version}-master", master, sent, stopped, "the slave was killed after the first part")
    maker.finish(f"{maker.version}-slave", slave, sent, "kill -9 after the first part")


def controller(maker: Maker) -> None:
    """Create controller-master, controller-slave and controller-diverged: three nodes and a controller.

    A is the first master, B its slave. B is killed before A receives its last messages, then A is killed: its store is
    `diverged`. B is restarted alone and becomes the master of a new epoch; its new slave C is killed in the middle.
    """
    names = maker.broker("unused", {})
    names.start_name_server(controller=True)
    conf = {"enableControllerMode": "true", "controllerAddr": names.dledger_address}

    def node(name: str) -> WholeBroker:
        broker = maker.broker(f"store-{name}", conf, names.name_server)
        broker.start()
        return broker

    first, second = node("a"), node("b")
    sent = [maker.flow(first, n=110)]
    time.sleep(10)  # the slave asks for the master's configuration files every 10 s
    second.kill()
    sent.append(maker.flow(first, n=20, **{"from": 5000}))
    first.kill()
    maker.finish(
        f"{maker.version}-controller-diverged", first, sent, "kill -9", "its last 20 messages no other node has"
    )
    second = node("b")
    sent.append(maker.flow(second, n=40, **{"from": 7000}))
    third = node("c")
    sent.append(maker.flow(second, n=40, **{"from": 9000}))
    time.sleep(10)
    third.kill()
    sent.append(maker.flow(second, n=20, **{"from": 11000}))
    note = "acknowledged by the first master alone, and so not in this store: the second part"
    maker.finish(f"{maker.version}-controller-slave", third, sent, "kill -9 before the last 20 messages", note)
    maker.finish(f"{maker.version}-controller-master", second, sent, f"SIGTERM, exit code {second.stop()}", note)


SCENARIOS = {
    **dict.fromkeys(("clean", "killed", "dledger", "dledger-killed", "formats", "rocksdb", "ipv6"), single),
    "dledger3": dledger3,
    "masterslave": masterslave,
    "controller": controller,
}


def _leader(currterm: Path) -> str:
    lines = dict(line.split("=", 1) for line in currterm.read_text("utf-8").split())
    return lines["voteLeader"]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("scenario", choices=sorted(SCENARIOS))
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=11, help="odd seeds over 1000 use other file sizes")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="make-fixture-") as folder:
        maker = Maker(given.version, given.scenario, given.out, given.seed, Path(folder))
        try:
            SCENARIOS[given.scenario](maker)
        finally:
            for broker in maker.brokers:
                broker.kill()


if __name__ == "__main__":
    main()
