"""A whole RocketMQ on a given store: name server, broker and client.

    with WholeBroker("5.4.0", store, meta(name).broker_conf) as broker:
        broker.produce("Order_11", 10)
        messages = broker.read("Order_11")
    assert "exception" not in broker.log()

It changes the store, so pass a copy. It listens on free ports of 127.0.0.1 and ends when the block ends.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.real_broker.java import LOGGING, java_classes
from tests.real_broker.oracle import archive_option
from tests.stores import CACHE as MASTERS

# the files that the start-up classes of 4.9.x and 5.x need in ROCKETMQ_HOME/conf
_LOGBACK = ("logback.xml", "logback_broker.xml", "logback_namesrv.xml", "logback_tools.xml")
_RMQ_LOGBACK = ("rmq.logback.xml", "rmq.broker.logback.xml", "rmq.namesrv.logback.xml")

# settings of a fixture that depend on its machine and run, and are not reused
_OWN = ("brokerIP1", "brokerIP2", "bindAddress", "brokerId", "brokerRole", "listenPort", "haListenPort", "dLegerPeers")

_DEFAULTS = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker",
    "brokerId": "0",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "autoCreateTopicEnable": "true",
    "autoCreateSubscriptionGroup": "true",
    "fileReservedTime": "720000",  # the files of fixtures are old, and the broker must not expire them
    "fetchNamesrvAddrByAddressServer": "false",
    "traceTopicEnable": "false",
}


_RESERVED: list[socket.socket] = []  # while they are open, no other test process uses the same ports


class BrokerDidNotStart(Exception):
    """The broker ended or timed out; the message contains the end of its output."""

    def __init__(self, exit_code: int | None, words: str) -> None:
        super().__init__(f"exit code {exit_code}: {words[-800:]}")
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """A message as a client receives it; `commitlog_offset` is -1 in the response to a send."""

    topic: str
    queue_id: int
    queue_offset: int
    commitlog_offset: int
    body_crc: int
    id: str


def conf_text(conf: Mapping[str, str]) -> str:
    """Return the text of a broker.conf; a key with a byte order mark comes first, as the mark does in a file."""
    first = sorted(conf.items(), key=lambda item: not item[0].startswith("\ufeff"))
    return "".join(f"{key}={value}\n" for key, value in first)


class WholeBroker:
    """One broker of a RocketMQ version on `store`, and a name server if none is given.

    Addresses, ports and roles in `conf` (a fixture's `broker_conf`) are ignored, because they are those of the machine
    and the run that created the fixture. `own` sets them, and any other setting, for this run.
    """

    def __init__(
        self,
        version: str,
        store: Path,
        conf: Mapping[str, str] | None = None,
        *,
        own: Mapping[str, str] | None = None,
        name_server: str | None = None,
    ) -> None:
        if store.resolve().is_relative_to(MASTERS.resolve()):
            raise ValueError(f"{store} is a master copy, and a broker changes its store: use copy_store()")
        self.store = store
        self._classes = java_classes(version)
        self._home = Path(tempfile.mkdtemp(prefix="whole-broker-"))
        self._name_server_port, self._port, self._ha_port, self._dledger_port = _free_ports()
        self._has_name_server = name_server is None
        self.name_server = name_server or f"127.0.0.1:{self._name_server_port}"
        self._conf = _DEFAULTS | {key: value for key, value in (conf or {}).items() if key not in _OWN}
        self._conf |= {
            "namesrvAddr": self.name_server,
            "listenPort": str(self._port),
            "haListenPort": str(self._ha_port),
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            **(own or {}),
        }
        if self._conf.get("enableDLegerCommitLog") == "true":
            node = self._conf.setdefault("dLegerSelfId", "n0")
            self._conf.setdefault("dLegerPeers", f"{node}-127.0.0.1:{self._dledger_port}")
        if version.startswith("5"):
            self._conf.setdefault("enableControllerMode", "false")
        self._last_words = ""
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        (self._home / "conf").mkdir()
        for name in _LOGBACK:
            shutil.copy(LOGGING / "logback.xml", self._home / "conf" / name)
        for name in _RMQ_LOGBACK:
            shutil.copy(LOGGING / "rmq.logback.xml", self._home / "conf" / name)

    @property
    def address(self) -> str:
        """The address of the broker."""
        return f"127.0.0.1:{self._port}"

    @property
    def conf(self) -> Mapping[str, str]:
        """All settings with which the broker was started."""
        return self._conf

    @property
    def pid(self) -> int:
        """The process id of the broker."""
        return self._processes["broker"].pid

    @property
    def home(self) -> Path:
        """The broker's ROCKETMQ_HOME, whose conf/ it reads at its start."""
        return self._home

    @property
    def dledger_address(self) -> str:
        """The address for other nodes of a DLedger group, and for the brokers of a controller."""
        return f"127.0.0.1:{self._dledger_port}"

    def join(self, peers: str) -> None:
        """Make the broker, before its start, a member of a DLedger group (`n0-ADDRESS;n1-ADDRESS;…`)."""
        self._conf["dLegerPeers"] = peers

    def leave_out(self, *keys: str) -> None:
        """Remove lines from broker.conf, before the start."""
        self._conf = {key: value for key, value in self._conf.items() if key not in keys}

    def start(self, timeout: float = 300) -> None:
        """Start both, and wait until they serve requests. Errors: BrokerDidNotStart."""
        self.launch()
        self.wait(timeout)

    def launch(self) -> None:
        """Start the name server, wait for it, and start the broker without waiting."""
        if self._has_name_server:
            self.start_name_server()
        self._launch("broker", "org.apache.rocketmq.broker.BrokerStartup", self._conf)

    def start_name_server(self, *, controller: bool = False) -> None:
        """Start only the name server, and wait for it; with `controller`, it contains a controller.

        The controller elects any available broker, even one that lags.
        """
        conf = {
            "listenPort": str(self._name_server_port),
            "kvConfigPath": str(self._home / "kv.json"),
            "configStorePath": str(self._home / "namesrv.properties"),
        }
        if controller:
            conf |= {
                "enableControllerInNamesrv": "true",
                "controllerDLegerGroup": "controllers",
                "controllerDLegerPeers": f"n0-{self.dledger_address}",
                "controllerDLegerSelfId": "n0",
                "controllerStorePath": str(self._home / "controller"),
                "enableElectUncleanMaster": "true",
            }
        self._launch("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", conf)
        self._wait("namesrv", 300)

    def wait(self, timeout: float = 300) -> None:
        """Wait until the broker serves requests. Errors: BrokerDidNotStart."""
        self._wait("broker", timeout)

    def stop(self, timeout: float = 300) -> int:
        """Shut the broker down with SIGTERM, then the name server; return the broker's exit code."""
        return self._end(signal.SIGTERM, timeout)

    def kill(self) -> None:
        """Kill the broker with SIGKILL, like a crash, then the name server."""
        self._end(signal.SIGKILL, 10)

    def log(self) -> str:
        """Return everything that the broker has logged and printed."""
        return self._words("broker") if self._home.exists() else self._last_words

    def produce(self, topic: str, count: int) -> list[ClientMessage]:
        """Send messages, and return those that the broker acknowledged."""
        return self._client("produce", topic, str(count))

    def traffic(self, topic: str, seconds: int) -> None:
        """Send messages of 1 KiB continuously, and commit the end of every queue for a consumer group."""
        self.run_java("Client", "traffic", self.name_server, topic, str(seconds), timeout=seconds + 300)

    def flood(self, topic: str, seconds: int) -> list[tuple[float, int]]:
        """Send messages of 1 KiB without a pause; return when each second ended (s), and how many were sent in it."""
        sent = self.run_java("Client", "flood", self.name_server, topic, str(seconds), timeout=seconds + 300)
        rows = (line.split() for line in sent.splitlines() if line and not line.startswith("{"))
        return [(int(time) / 1000, int(count)) for time, count in rows]

    def read(self, topic: str) -> list[ClientMessage]:
        """Return the messages of all queues of a topic, as a consumer receives them."""
        return self._client("read", topic)

    def resume(self, topic: str, group: str) -> list[ClientMessage]:
        """Return the messages that the consumers of a group receive when they start."""
        return self._client("resume", topic, group)

    def __enter__(self) -> WholeBroker:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()

    def run_java(self, main: str, *arguments: str, timeout: float = 240) -> str:
        """Run another program with the jars of this version, and return its output."""
        options = archive_option(self._classes)
        command = self._classes.command(main, log=self._home / "client.log", home=self._home, options=options)
        done = subprocess.run(
            [*command, *arguments], cwd=self._home, capture_output=True, text=True, timeout=timeout, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{main} ended with {done.returncode}: {done.stderr[-800:]}")
        return done.stdout

    def _launch(self, name: str, main: str, conf: Mapping[str, str]) -> None:
        path = self._home / f"{name}.conf"
        path.write_text(conf_text(conf), "utf-8")
        options = (f"-Drocketmq.home.dir={self._home}", "-XX:MaxDirectMemorySize=1g", *archive_option(self._classes))
        command = self._classes.command(main, log=self._home / f"{name}.log", home=self._home, options=options)
        environment = dict(os.environ, ROCKETMQ_HOME=str(self._home))
        with (self._home / f"{name}.out").open("ab") as out:
            self._processes[name] = subprocess.Popen(
                [*command, "-c", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environment,
                cwd=self._home,
            )

    def _wait(self, name: str, timeout: float) -> None:
        process, end = self._processes[name], time.monotonic() + timeout
        while "boot success" not in (self._home / f"{name}.out").read_text("utf-8", "replace"):
            if process.poll() is not None or time.monotonic() > end:
                raise BrokerDidNotStart(process.poll(), self._words(name))
            time.sleep(0.05)

    def _end(self, with_signal: signal.Signals, timeout: float) -> int:
        code = 0
        for name, this_signal in (("broker", with_signal), ("namesrv", signal.SIGKILL)):
            process = self._processes.pop(name, None)
            if process is None:
                continue
            if process.poll() is None:
                process.send_signal(this_signal)
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if name == "broker":
                code = process.returncode
        if self._home.exists():
            self._last_words = self._words("broker")
            shutil.rmtree(self._home)
        return code

    def _words(self, name: str) -> str:
        paths = (self._home / f"{name}.log", self._home / f"{name}.out")
        return "".join(path.read_text("utf-8", "replace") for path in paths if path.exists())

    def _client(self, verb: str, *arguments: str) -> list[ClientMessage]:
        answer = self.run_java("Client", verb, self.name_server, *arguments)
        return [ClientMessage(**json.loads(line)) for line in answer.splitlines() if line.startswith("{")]


def _free_ports() -> tuple[int, int, int, int]:
    """Return four free ports; the port below the second one is also free, because a broker uses it as VIP channel.

    They are below the range of ports that Linux assigns to clients, so that no client takes them before the broker
    listens. They are reserved against other test processes by abstract sockets, which vanish with this process.
    """
    start = os.getpid() % 1900
    for number in range(1900):
        port = 12000 + (start + number) % 1900 * 10
        reservation = socket.socket(socket.AF_UNIX)
        sockets: list[socket.socket] = []
        try:
            reservation.bind(f"\0rmqstore-test-ports-{port}")
            for one in range(port, port + 8):
                sockets.append(socket.socket())
                sockets[-1].bind(("127.0.0.1", one))
        except OSError:
            reservation.close()
            continue
        finally:
            for bound in sockets:
                bound.close()
        _RESERVED.append(reservation)
        return port, port + 4, port + 5, port + 7
    raise RuntimeError("no free ports")
