"""Stores whose queues were converted between files and RocksDB: real brokers read everything, consumers continue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command import run, run_json
from tests.real_broker.oracle_server import OracleServers
from tests.real_broker.reading import messages
from tests.real_broker.whole_broker import WholeBroker
from tests.rocksdb_rows import need_rocksdict
from tests.stores import copy_store, meta, unpack, write_broker_conf
from tests.untouched import content

need_rocksdict()
STORES = {
    "5.4.0-clean": "rocksdb",
    "5.5.1-clean": "rocksdb",
    "5.4.0-rocksdb": "files",
    "5.5.1-rocksdb": "files",
    "5.5.1-rocksdb-separate": "files",
}
TOPIC, GROUP = "Order_11", "CG_part_11"


def convert(name: str, store: Path) -> Any:
    """Convert the queues of a store; return the answer of the command."""
    conf = str(write_broker_conf(name, store))
    return run_json("rebuild", str(store), "cq", "--storage", STORES[name], "-c", conf, "--apply", exit_code=0)


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", STORES)
def test_both_versions_read_every_message_in_the_other_form(
    name: str, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    version, args = meta(name).version, dict(meta(name).oracle_args)
    sound = messages(oracle_servers.read(unpack(name), args, [(version, False)])[version, False])
    store = copy_store(name, tmp_path)
    before = content(store)
    done = convert(name, store)
    settings = {**args, **done["settings"]}
    cells = [(v, crash) for v in ("5.4.0", "5.5.1") for crash in (False, True)]
    for cell, result in oracle_servers.read(store, {**settings, "put": 40}, cells).items():
        assert (result.load, result.shutdown, result.crash) == (True, "clean", None), cell
        found = messages(result)
        assert {place: found[place] for place in sound} == sound, cell
        assert len(found) == len(sound) + 40, cell
        assert not any(queue.bad for queue in result.queues.values()), cell
    assert run("undo", done["journal"]).exit_code == 0
    assert content(store) == before


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("name", STORES)
def test_queues_without_a_message_go_on_at_their_end(name: str, tmp_path: Path, oracle_servers: OracleServers) -> None:
    version = meta(name).version
    store = copy_store(name, tmp_path)
    for file in sorted((store / "commitlog").iterdir())[:-1]:
        file.unlink()
    ends: Any = run_json("verify", str(store), exit_code=0)["queues"]
    empty = {label for label, one in ends.items() if one["min"] == one["max"] > 0}
    assert empty
    settings = {**meta(name).oracle_args, **convert(name, store)["settings"]}
    for cell, result in oracle_servers.read(store, settings, [(version, False), (version, True)]).items():
        assert result.load, cell
        now = {label: (queue.min, queue.max) for label, queue in result.queues.items()}
        assert {label: now[label] for label in empty} == {label: (ends[label]["max"],) * 2 for label in empty}, cell
        assert not any(queue.bad for queue in result.queues.values()), cell


@pytest.mark.slow
@pytest.mark.other_processes
@pytest.mark.parametrize("name", STORES)
def test_consumers_of_whole_brokers_continue_at_their_offsets(
    name: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    made = meta(name)
    store = copy_store(name, tmp_path)
    run_json("offsets", str(store), "--set", GROUP, TOPIC, "--to", "3", "--apply", exit_code=0)
    found: Any = run_json("offsets", str(store), "--group", GROUP, "--topic", TOPIC, exit_code=0)["offsets"]
    wanted = {(row["queue_id"], n) for row in found for n in range(row["offset"], row["max"])}
    settings = convert(name, store)["settings"]
    with whole_broker(made.version, store, {**made.broker_conf, **settings}) as broker:
        received = {(m.queue_id, m.queue_offset) for m in broker.resume(TOPIC, GROUP)}
        assert wanted <= received  # a delayed message may be delivered meanwhile
        assert min(n for _, n in received) == 3
        sent = broker.produce(TOPIC, 8)
        assert {(m.queue_id, m.queue_offset) for m in sent} <= {
            (m.queue_id, m.queue_offset) for m in broker.read(TOPIC)
        }
