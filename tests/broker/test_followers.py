"""A killed follower of a DLedger group: its queues are rebuilt as far as is committed, and the leader's word is law."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.formats.message import HEAD
from tests import damage
from tests.broker.oracle import Oracle
from tests.command import run_json
from tests.repair.salvaging import Row, rows
from tests.stores import copy_store, meta, write_broker_conf

NAME = "5.4.0-dledger3-n2"


def recovered(store: Path) -> dict[str, object]:
    conf = write_broker_conf(NAME, store)
    return dict(run_json("recover", str(store), "-c", str(conf), "--apply", exit_code=0))


def leader_replaces(row: Row, queue_id: int, queue_offset: int) -> None:
    """Another message of the same length in place of an entry that was never committed."""
    for field, value, width in (("queue_id", queue_id, 4), ("queue_offset", queue_offset, 8)):
        damage.overwrite(row.path, row.at + HEAD.at(field), value.to_bytes(width, "big"))


@pytest.mark.parametrize("gone", ["consumequeue index", pytest.param("consumequeue", marks=pytest.mark.slow)])
def test_entries_without_commit_have_no_units_until_the_leader_says_what_they_are(
    gone: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    made = meta(NAME)
    store = copy_store(NAME, tmp_path)
    for folder in gone.split():
        shutil.rmtree(store / folder)
    done = recovered(store)
    assert done["remaining"] == {"counts": {}}
    assert not (store / "abort").exists()
    found = rows(store)
    last = found[-1]
    ends: dict[str, int] = {}
    for row in found:
        topic, queue_id, offset = row.seat
        ends[f"{topic}/{queue_id}"] = max(ends.get(f"{topic}/{queue_id}", 0), offset + 1)
    topic, queue_id, _ = last.seat
    other = (queue_id + 2) % 4
    leader_replaces(last, other, ends[f"{topic}/{other}"])
    ends[f"{topic}/{queue_id}"] -= 1
    ends[f"{topic}/{other}"] += 1
    result = oracle(made.version).load(store, made.oracle_args, start=True, shutdown=True)
    assert (result.load, result.crash) == (True, None)
    assert {queue: reading.why for queue, reading in result.queues.items() if reading.bad} == {}
    assert {queue: reading.max for queue, reading in result.queues.items() if reading.max} == ends


def test_consumer_offsets_behind_the_rebuilt_end_stay(tmp_path: Path) -> None:
    store = copy_store(NAME, tmp_path)
    for folder in ("consumequeue", "index"):
        shutil.rmtree(store / folder)
    before = (store / "config" / "consumerOffset.json").read_bytes()
    recovered(store)
    assert (store / "config" / "consumerOffset.json").read_bytes() == before
