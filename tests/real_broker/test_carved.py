"""Real classes and a whole broker read stores that were carved from a disk."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqstore.files.store import open_store
from rmqstore.scan.columns import filler_mask
from rmqstore.scan.records import good_records
from tests.carving.images import delete_all, ext4
from tests.carving.test_scattered import Scattered
from tests.command import run, run_json
from tests.real_broker.oracle_server import OracleServers
from tests.real_broker.reading import messages, unreadable
from tests.real_broker.whole_broker import WholeBroker
from tests.stores import copy_store, meta, unpack, write_broker_conf

NewBroker = Callable[..., WholeBroker]
STORES = ("4.9.7-clean", "5.1.4-clean", "5.4.0-clean", "5.5.1-clean", "5.4.0-dledger", "5.5.1-dledger-mixed")


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", STORES)
def test_a_deleted_store_is_what_it_was(name: str, tmp_path: Path, oracle_servers: OracleServers) -> None:
    made, store = meta(name), copy_store(name, tmp_path)
    conf = write_broker_conf(name, store)
    image = ext4(store, tmp_path / "disk.img")
    delete_all(store, image)
    out = tmp_path / "out"
    assert run("carve", str(image), str(out), "-c", str(conf)).exit_code in (0, 1)
    assert run("recover", str(out), "--apply").exit_code in (0, 1)
    seen, original = (oracle_servers.load(made.version, place, made.oracle_args) for place in (out, unpack(name)))
    assert (seen.load, seen.crash) == (True, None)
    assert messages(seen) == messages(original)


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", STORES)
def test_what_is_left_of_a_store_is_served(name: str, tmp_path: Path, oracle_servers: OracleServers) -> None:
    made, disk, out = meta(name), Scattered(name, 7, 0.1), tmp_path / "out"
    (tmp_path / "disk.img").write_bytes(disk.image)
    conf = str(write_broker_conf(name, tmp_path / "out"))
    found: Any = run_json("carve", str(tmp_path / "disk.img"), str(out), "-c", conf, exit_code=1)
    plan = run_json("recover", str(out), "--accept-shift", exit_code=1)
    digest = str(plan["digest"])
    assert run("recover", str(out), "--accept-shift", "--apply", "--force", digest).exit_code in (0, 1)
    seen = oracle_servers.load(made.version, out, made.oracle_args)
    assert (seen.load, seen.crash) == (True, None)
    assert unreadable(seen) == {}
    there = {message.commitlog_offset for message in messages(seen).values()} - fillers(out)
    assert len(there) > 0.8 * sum(store["messages"] for store in found["stores"])
    whole = messages(oracle_servers.load(made.version, unpack(name), made.oracle_args))
    original = {message.commitlog_offset for message in whole.values()}
    assert there <= original


def fillers(store: Path) -> frozenset[int]:
    """Return the log offsets of the records that a repair made."""
    found: list[int] = []
    for queue, body_offset in open_store(store).logs:
        for file in queue.files:
            for columns in good_records(file, body_offset):
                mask = filler_mask(columns)
                found += [] if mask is None else columns.offset[mask].tolist()
    return frozenset(found)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.7", "5.1.4", "5.4.0", "5.5.1"])
def test_a_broker_runs_on_a_carved_store(version: str, tmp_path: Path, whole_broker: NewBroker) -> None:
    store = copy_store(f"{version}-clean", tmp_path)
    conf = meta(f"{version}-clean").broker_conf
    image = ext4(store, tmp_path / "disk.img")
    delete_all(store, image)
    out = tmp_path / "out"
    given = str(write_broker_conf(f"{version}-clean", out))
    found: Any = run_json("carve", str(image), str(out), "-c", given, exit_code=0)
    with whole_broker(version, out, conf) as broker:
        broker.produce("Order_11", 20)
        time.sleep(1)
        log = broker.log()
    assert "exception" not in log.lower()
    after: Any = json.loads(run("verify", str(out), "-c", given, "--json").stdout)
    assert after["counts"] == {}
    assert after["commitlog"]["messages"] >= found["stores"][0]["messages"] + 20
