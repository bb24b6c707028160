"""A record with the queue id of a sibling queue: no repair takes the sibling's units, and a second one does nothing.

A gap in its own queue proves where it belongs; nothing does if it was the last one there.

damage → recover --apply → verify shows what was announced → second plan is empty → real store reads → undo
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqstore.formats.message import HEAD
from tests import damage
from tests.command import run_json
from tests.real_broker.oracle_server import OracleServers
from tests.real_broker.reading import Place, messages
from tests.repair.salvaging import Row, rows
from tests.stores import copy_store, meta, unpack, write_broker_conf
from tests.untouched import content

STORES = ("5.4.0-clean", "5.1.4-clean", "5.4.0-dledger", "5.4.0-rocksdb", "5.5.1-clean", "5.5.1-rocksdb")
TOPIC = "Order_11"


def move(store: Path, *, last: bool) -> tuple[Row, int]:
    """Give a record of a queue the id of another queue, which has no place for it; return it and that id.

    `last`: the last record of its queue. Otherwise one in the second half, in the same file as those before and after
    it; between these, the other queue has no record with its queue offset.
    """
    queues: dict[int, list[Row]] = {}
    for row in rows(store):
        if row.slot[0] == TOPIC:
            queues.setdefault(row.slot[1], []).append(row)
    for own, found in sorted(queues.items()):
        for i in (len(found) - 1,) if last else range(len(found) // 2, len(found) - 1):
            row = found[i]
            for other, beside in sorted(queues.items()):
                before = sum(one.offset < row.offset for one in beside)
                proved = last or (found[i - 1].path == found[i + 1].path and before not in _near(row.slot[2]))
                if own != other and before not in (row.slot[2], len(beside)) and proved:
                    damage.overwrite(row.path, row.at + HEAD.at("queue_id"), other.to_bytes(4, "big"))
                    return row, other
    raise ValueError("every record has a place in every queue")


def _near(number: int) -> range:
    return range(number - 3, number + 4)


def read(servers: OracleServers, name: str, store: Path) -> set[Place]:
    found = servers.load(meta(name).version, store, meta(name).oracle_args, list=True)
    return set(messages(found))


def stays(answer: Mapping[str, Any]) -> dict[str, int]:
    return {code: row["count"] for code, row in answer["facts"]["stays"].items()}


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", STORES)
def test_queues_rebuilt_without_the_moved_last_record(name: str, tmp_path: Path, oracle_servers: OracleServers) -> None:
    """It is put back only if just one queue ends with the message before it, and in the same file of the log."""
    store = copy_store(name, tmp_path)
    conf = ("-c", str(write_broker_conf(name, store)))
    row, other = move(store, last=True)
    ends = {one.slot[:2]: one for one in rows(store) if one.slot[0] == TOPIC}.values()
    before_it = (one for one in ends if one.slot[2] + 1 == row.slot[2] and one.offset < row.offset)
    proved = [one.path for one in before_it] == [row.path]
    sound = read(oracle_servers, name, unpack(name))
    shutil.rmtree(store / "consumequeue")
    before = content(store)
    words: tuple[str, ...] = ("recover", str(store), *conf, "--accept-fillers", "--accept-shift")
    plan = run_json(*words, exit_code=1)
    announced = stays(plan)
    assert bool(announced) is not proved
    remains = int(not proved)
    done = run_json(*words, "--apply", exit_code=remains)
    assert run_json("verify", str(store), *conf, exit_code=remains)["counts"] == announced
    for second in (words, words[:-1], ("rebuild", str(store), "cq", *conf)):
        again = run_json(*second, exit_code=remains)
        assert (again["steps"], again["brakes"]) == ([], [])
    now = read(oracle_servers, name, store)
    assert sound - now <= (set() if proved else {(f"{TOPIC}/{row.slot[1]}", row.slot[2])})
    assert f"{TOPIC}/{other}" in {queue for queue, _ in now}
    run_json("undo", str(done["journal"]), exit_code=0)
    assert content(store) == before


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", STORES)
def test_the_gap_in_its_own_queue_proves_the_place_of_the_moved_record(
    name: str, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    store = copy_store(name, tmp_path)
    conf = ("-c", str(write_broker_conf(name, store)))
    row, _ = move(store, last=False)
    shutil.rmtree(store / "consumequeue")
    run_json("recover", str(store), *conf, "--apply", exit_code=0)
    path = row.path.relative_to(store)
    assert (store / path).read_bytes() == (unpack(name) / path).read_bytes()
    assert read(oracle_servers, name, store) == read(oracle_servers, name, unpack(name))


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", STORES)
def test_rebuild_keeps_the_unit_that_proves_the_queue_of_its_record(
    name: str, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    store = copy_store(name, tmp_path)
    conf = ("-c", str(write_broker_conf(name, store)))
    row, _ = move(store, last=False)
    found = run_json("verify", str(store), *conf, exit_code=1)
    assert all(finding["facts"].get("expected", 0) >= 0 for finding in found["findings"])  # type: ignore[attr-defined]
    plan = run_json("rebuild", str(store), "cq", *conf, exit_code=1)
    assert (plan["steps"], plan["brakes"]) == ([], [])
    assert plan["facts"]["proved_queues"] == [row.offset]  # type: ignore[index]
    assert stays(plan) == found["counts"]
    assert run_json("recover", str(store), *conf, "--apply", exit_code=0)["remaining"] == {"counts": {}}
    assert read(oracle_servers, name, store) == read(oracle_servers, name, unpack(name))
