"""Snapshots of real brokers under traffic that rolls and expires files; the restored stores start and are complete.

RMQSTORE_BACKUP_SECONDS sets how long each version is tested (default: 30; a snapshot every 10 s).
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqstore.files.rocksdb.queues import RocksDBQueues
from tests.command import run, run_json
from tests.planning import opened
from tests.real_broker.oracle import Oracle
from tests.real_broker.oracle_server import OracleServers
from tests.real_broker.reading import messages, unreadable
from tests.real_broker.test_live_rolling import CONF, TOPIC, _traffic
from tests.real_broker.whole_broker import WholeBroker
from tests.rocksdb_rows import need_rocksdict
from tests.stores import meta, unpack

NewBroker = Callable[..., WholeBroker]
SECONDS, PAUSE = int(os.environ.get("RMQSTORE_BACKUP_SECONDS", "30")), 10


def backed_up(store: Path, repo: Path) -> dict[str, Any]:
    """Add a snapshot. Nothing is wrong but that messages may have expired since the snapshot before."""
    result = run("backup", str(store), str(repo), "--name", "a", "--json")
    row: dict[str, Any] = json.loads(result.stdout)
    assert "error" not in row, result.output
    assert (result.exit_code, row["counts"]) == (int(bool(row["branches"])), {}), result.output
    assert all(branch["missing_to"] is not None for branch in row["branches"]), row["branches"]
    return row


@pytest.mark.slow
@pytest.mark.other_processes
@pytest.mark.parametrize("version", ["5.4.0", "4.9.7", "5.1.4", "5.5.1"])
def test_every_snapshot_of_a_broker_starts_with_all_messages(
    version: str, tmp_path: Path, whole_broker: NewBroker, oracle_servers: OracleServers
) -> None:
    store, repo = tmp_path / "store", tmp_path / "repo"
    store.mkdir()
    made = []
    with whole_broker(version, store, CONF) as broker:
        ends: list[BaseException] = []
        enough = threading.Event()
        traffic = threading.Thread(target=_traffic, args=(broker, enough, ends))
        traffic.start()
        first = store / "commitlog" / f"{0:020d}"
        deadline = time.monotonic() + 300
        while (not first.parent.exists() or first.exists() or not any(first.parent.iterdir())) and not ends:
            assert time.monotonic() < deadline, "the broker expired nothing"
            time.sleep(0.2)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and not ends:
            begin = time.monotonic()
            made.append(backed_up(store, repo))
            time.sleep(max(0.0, begin + PAUSE - time.monotonic()))
        enough.set()
        traffic.join()
        assert ends == []
    heads = {row["log"]["from"] for row in made}
    assert len(heads) > len(made) // 4, "too few files expired"
    assert run("snapshots", str(repo), "--check").exit_code == 0
    sizes = {key: value for key, value in CONF.items() if key.startswith(("mapped", "max"))}
    for number, row in enumerate(made):
        copy = tmp_path / f"copy{number}"
        done = run_json("restore", f"{repo}::a@{row['snapshot']}", str(copy), "--broker", version, exit_code=0)
        assert (done["messages"], done["counts"], done["unchecked"]) == (row["messages"], {}, [])
        seen = oracle_servers.load(version, copy, sizes)
        assert (seen.load, seen.crash, unreadable(seen)) == (True, None, {})
        assert len(messages(seen)) == row["messages"]
        assert seen.max_phy == row["log"]["to"]
    copy = tmp_path / f"copy{len(made) - 1}"
    keeping = {key: value for key, value in CONF.items() if key not in ("fileReservedTime", "deleteWhen")}
    queues = {name: row for name, row in done["broker"]["queues"].items() if name.startswith(f"{TOPIC}/")}  # type: ignore[index]
    with whole_broker(version, copy, keeping) as broker:
        before = broker.read(TOPIC)
        assert len(before) == sum(row["max"] - row["min"] for row in queues.values())
        broker.produce(TOPIC, 5)
        assert len(broker.read(TOPIC)) == len(before) + 5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["5.4.0-rocksdb-double", "5.5.1-rocksdb-double", "5.5.1-rocksdb-double-separate"])
def test_a_restored_double_write_has_both(name: str, tmp_path: Path, oracle: Callable[[str], Oracle]) -> None:
    """A broker adds only new messages to the RocksDB, so a restored store has all rows already."""
    need_rocksdict()
    made, copy = meta(name), tmp_path / "copy"
    assert run("backup", str(unpack(name)), str(tmp_path / "repo"), "--name", "a").exit_code == 0
    done = run_json("restore", f"{tmp_path / 'repo'}::a", str(copy), exit_code=0)
    queues = RocksDBQueues(opened(copy, made.oracle_args))
    count = sum(len(units) for name in queues.names() for _, units, _ in queues.queue(*name).runs(0, 1 << 40))
    assert count == done["messages"]
    answer = oracle(made.version).load(copy, made.oracle_args, start=True, shutdown=True)
    assert (answer.load, answer.readable, answer.shutdown) == (True, done["messages"], "clean")
    run_json("verify", str(copy), exit_code=0)
