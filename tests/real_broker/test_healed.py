"""Stores healed from a replica: the real classes read every message that they read from the undamaged store."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.command import run_json
from tests.real_broker.oracle_server import OracleServers
from tests.real_broker.reading import messages, not_the_same
from tests.repair.replica.pairs import damage_place, log_files
from tests.repair.salvaging import rows
from tests.seeds import seeds
from tests.stores import copy_store, meta, unpack

PAIRS = [
    ("5.4.0-slave", "5.4.0-master"),
    ("5.4.0-dledger3-n1", "5.4.0-dledger3-n0"),
    ("4.9.7-clean", "4.9.7-clean"),
    ("5.1.4-formats", "5.1.4-formats"),
    ("5.4.0-dledger-mixed", "5.4.0-dledger-mixed"),
    ("5.5.1-master", "5.5.1-master"),
    ("5.5.1-formats", "5.5.1-formats"),
    ("5.5.1-dledger", "5.5.1-dledger"),
]


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize(("name", "replica"), PAIRS, ids=[name for name, _ in PAIRS])
def test_the_real_store_reads_all_of_a_healed_one(
    name: str, replica: str, seed: int, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    rng = random.Random(seed)
    sound, store = copy_store(name, tmp_path / "sound"), copy_store(name, tmp_path / "damaged")
    done = [damage_place(rng, rows(store)) for _ in range(6)]
    assert any(done)
    words = ("--replica", str(unpack(replica)), "--role", "single")
    planned = run_json("recover", str(store), *words, exit_code=1)
    force = ("--force", str(planned["digest"])) if planned["brakes"] else ()
    answer = run_json("recover", str(store), *words, "--apply", *force, exit_code=0)
    assert answer["loss"]["messages"] == 0  # type: ignore[index]
    assert log_files(store) == log_files(sound), done
    made = meta(name)
    before, after = (oracle_servers.load(made.version, each, made.oracle_args) for each in (sound, store))
    assert (after.load, after.crash) == (True, None)
    assert messages(before)
    assert messages(after).keys() == messages(before).keys()
    assert not_the_same(before, after) == {}


@pytest.mark.parametrize("name", ["5.4.0-slave", pytest.param("5.4.0-dledger3-n2", marks=pytest.mark.slow)])
def test_the_real_store_reads_what_extend_brought(name: str, tmp_path: Path, oracle_servers: OracleServers) -> None:
    other = {"5.4.0-slave": "5.4.0-master", "5.4.0-dledger3-n2": "5.4.0-dledger3-n0"}[name]
    store = copy_store(name, tmp_path)
    before = len(rows(store))
    words = ("--replica", str(unpack(other)), "--extend", "--apply")
    answer = run_json("recover", str(store), *words, exit_code=0)
    found = rows(store)
    assert answer["facts"]["restored"]["messages"] == len(found) - before > 0  # type: ignore[index]
    made = meta(name)
    result = oracle_servers.load(made.version, store, made.oracle_args)
    assert (result.load, result.crash) == (True, None)
    assert {queue: reading.why for queue, reading in result.queues.items() if reading.bad} == {}
    ends: dict[str, int] = {}
    for row in found:
        if row.message.transaction_type == 0:
            topic, queue_id, offset = row.slot
            ends[f"{topic}/{queue_id}"] = max(ends.get(f"{topic}/{queue_id}", 0), offset + 1)
    read = {queue: reading.max for queue, reading in result.queues.items()}
    assert {queue: end for queue, end in ends.items() if read.get(queue) != end} == {}
