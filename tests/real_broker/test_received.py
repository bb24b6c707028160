"""`receive` follows real brokers: the log arrives byte for byte, and passive, nothing of the master changes.

RMQSTORE_RECEIVE_SECONDS sets how long each version is followed under load (default: 6).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqstore.formats.configuration import parse_config_object
from rmqstore.remoting.connection import BrokerAddress
from rmqstore.remoting.frames import ResponseReader, request
from rmqstore.remoting.requests import RemoteBroker
from tests.command import run
from tests.real_broker.whole_broker import WholeBroker

NewBroker = Callable[..., WholeBroker]
SECONDS = float(os.environ.get("RMQSTORE_RECEIVE_SECONDS", "6"))
SIZE = 1 << 18
CONF = {"mappedFileSizeCommitLog": str(SIZE), "mappedFileSizeConsumeQueue": "20000"}
SEND, HA_STATUS = 10, 907
SEND_OK, SYSTEM_BUSY, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT = 0, 2, 11, 12  # ResponseCode
VERSIONS = [
    pytest.param("5.4.0"),
    *(pytest.param(version, marks=pytest.mark.slow) for version in ("4.9.7", "5.1.4", "5.5.1")),
]


def send(address: str, count: int, size: int = 300) -> Counter[int]:
    """Send messages one after another, as the Java client does; return how often the broker gave each answer."""
    host, port = address.split(":")
    codes: Counter[int] = Counter()
    with socket.create_connection((host, int(port)), 30) as connection:
        reader = ResponseReader()
        for number in range(count):
            fields = {
                "producerGroup": "p",
                "topic": "Followed",
                "defaultTopic": "TBW102",
                "defaultTopicQueueNums": "4",
                "queueId": str(number % 4),
                "sysFlag": "0",
                "bornTimestamp": str(int(time.time() * 1000)),
                "flag": "0",
                "properties": f"KEYS\x01k{number}\x02",
                "reconsumeTimes": "0",
                "unitMode": "false",
                "batch": "false",
            }
            connection.sendall(request(SEND, number, fields, bytes(size // 2) + os.urandom(size // 2)))
            while (answer := reader.next()) is None:
                data = connection.recv(1 << 16)
                assert data
                reader.feed(data)
            codes[answer.code] += 1
    return codes


@contextlib.contextmanager
def load(address: str) -> Iterator[Counter[int]]:
    """Send in a thread until the end of the block; yield the answers so far."""
    enough, codes = threading.Event(), Counter[int]()

    def work() -> None:
        with contextlib.suppress(OSError, AssertionError):
            while not enough.is_set():
                codes.update(send(address, 50))

    thread = threading.Thread(target=work)
    thread.start()
    yield codes
    enough.set()
    thread.join()


def start(address: str, repo: Path, *more: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "rmqstore", "receive", address, str(repo), "--name", "a", *more]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def caught_up(address: str, repo: Path, *more: str) -> dict[str, Any]:
    result = run("receive", address, str(repo), "--name", "a", "--until-caught-up", "--json", *more)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def log_of(store: Path) -> bytes:
    """Return the bytes of the log's files."""
    return b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()) if path.name.isdigit())


def wait_for(condition: Callable[[], bool], seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.other_processes
@pytest.mark.parametrize("version", VERSIONS)
def test_the_log_is_the_same_after_kills_of_both_sides(version: str, tmp_path: Path, whole_broker: NewBroker) -> None:
    store, repo = tmp_path / "store", tmp_path / "repo"
    store.mkdir()
    spool = repo / "a" / "receiving"
    broker = whole_broker(version, store, CONF)
    broker.start()
    with load(broker.address) as codes:
        wait_for(lambda: codes[SEND_OK] > 200)
        first = start(broker.address, repo, "--every", "2s")
        wait_for(lambda: (spool / "commitlog").exists() and len(log_of(spool)) >= SIZE)
        time.sleep(SECONDS / 2)
        first.kill()
        first.wait()
        before = len(log_of(spool).rstrip(b"\0"))
        second = start(broker.address, repo, "--every", "2s")
        wait_for(lambda: len(log_of(spool).rstrip(b"\0")) > before)
        time.sleep(SECONDS / 2)
        wait_for(lambda: codes[SEND_OK] > 2 * SIZE // 400)
        os.kill(broker.pid, signal.SIGKILL)
    assert codes.keys() <= {SEND_OK, SYSTEM_BUSY}  # the second one by a broker on a busy machine
    time.sleep(1)
    assert second.poll() is None, second.stderr.read() if second.stderr else ""
    broker.kill()
    again = whole_broker(version, store, CONF)
    again.start()
    second.terminate()
    assert second.wait() == 143
    send(again.address, 300)
    row = caught_up(again.address, repo)
    again.stop()
    assert (row["damaged"], row["branches"], row["lag_bytes"]) == ([], [], 0)
    end = row["log"]["to"]
    assert end > 2 * SIZE
    ours, theirs = log_of(spool), log_of(store)
    assert ours[:end] == theirs[:end]
    assert not any(ours[end:])
    restored = tmp_path / "restored"
    assert run("restore", f"{repo}::a", str(restored)).exit_code == 0
    assert log_of(restored)[:end] == theirs[:end]
    assert b"Followed" in (restored / "config" / "topics.json").read_bytes()


def in_sync(address: str) -> list[bool]:
    """Return for each client of the HA port whether the master counts it (getHaStatus of mqadmin)."""
    with contextlib.closing(RemoteBroker(BrokerAddress.parse(address))) as broker:
        answer = broker.ask(HA_STATUS)
        rows = parse_config_object(answer.body)["haConnectionInfo"]
        assert isinstance(rows, list)
        return [bool(row["inSync"]) for row in rows]  # type: ignore[index,call-overload]


@pytest.mark.other_processes
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("replicas", "alone"), [("1", SEND_OK), ("2", FLUSH_SLAVE_TIMEOUT)])
def test_sends_to_a_sync_master_end_as_without_a_passive_client(
    version: str, replicas: str, alone: int, tmp_path: Path, whole_broker: NewBroker
) -> None:
    if version == "4.9.7":
        if replicas == "2":
            return  # 4.9.x has no inSyncReplicas
        alone = SLAVE_NOT_AVAILABLE
    store, repo = tmp_path / "store", tmp_path / "repo"
    store.mkdir()
    own = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": replicas, "slaveTimeout": "2000"}
    with whole_broker(version, store, CONF, **own) as broker:
        assert send(broker.address, 2).keys() == {alone}
        if version == "4.9.7":
            refused = run("receive", broker.address, str(repo), "--name", "a", "--until-caught-up")
            assert (refused.exit_code, "every send would wait" in refused.stderr) == (5, True)
        else:
            passive = start(broker.address, repo)
            spool = repo / "a" / "receiving" / "commitlog"
            wait_for(lambda: spool.exists() and any(map(any, (path.read_bytes() for path in spool.iterdir()))))
            wait_for(lambda: in_sync(broker.address) == [False])
            assert send(broker.address, 2).keys() == {alone}
            assert in_sync(broker.address) == [False]
            passive.terminate()
            passive.wait()
            wait_for(lambda: in_sync(broker.address) == [])
        replica = start(broker.address, repo, "--ack")
        if version != "4.9.7":
            wait_for(lambda: in_sync(broker.address) == [True])
        wait_for(lambda: send(broker.address, 1).keys() == {SEND_OK})
        assert send(broker.address, 2).keys() == {SEND_OK}
        replica.terminate()
        replica.wait()
