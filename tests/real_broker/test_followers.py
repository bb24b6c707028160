"""A killed follower of a DLedger group: queues are rebuilt up to the committed entry; the leader replaces the rest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqstore.formats.message import HEAD
from tests import damage
from tests.command import run_json
from tests.real_broker.oracle_server import OracleServers
from tests.repair.salvaging import Row, rows
from tests.stores import copy_store, meta, unpack, write_broker_conf

NAME = "5.4.0-dledger3-n2"


def recovered(store: Path) -> dict[str, object]:
    conf = write_broker_conf(NAME, store)
    return dict(run_json("recover", str(store), "-c", str(conf), "--apply", exit_code=0))


def leader_replaces(row: Row, queue_id: int, queue_offset: int) -> None:
    """Replace an entry that was never committed by another message of the same length."""
    for field, value, width in (("queue_id", queue_id, 4), ("queue_offset", queue_offset, 8)):
        damage.overwrite(row.path, row.at + HEAD.at(field), value.to_bytes(width, "big"))


@pytest.mark.parametrize(
    ("gone", "version"),
    [
        ("consumequeue index", "5.4.0"),
        pytest.param("consumequeue", "5.4.0", marks=pytest.mark.slow),
        pytest.param("consumequeue index", "5.5.1", marks=pytest.mark.slow),  # as after an upgrade
        pytest.param("consumequeue", "5.5.1", marks=pytest.mark.slow),
    ],
)
def test_uncommitted_entries_have_no_units_until_the_leader_commits_or_replaces_them(
    gone: str, version: str, tmp_path: Path, oracle_servers: OracleServers
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
        topic, queue_id, offset = row.slot
        ends[f"{topic}/{queue_id}"] = max(ends.get(f"{topic}/{queue_id}", 0), offset + 1)
    topic, queue_id, _ = last.slot
    other = (queue_id + 2) % 4
    leader_replaces(last, other, ends[f"{topic}/{other}"])
    ends[f"{topic}/{queue_id}"] -= 1
    ends[f"{topic}/{other}"] += 1
    result = oracle_servers.load(version, store, made.oracle_args)
    assert (result.load, result.crash) == (True, None)
    assert {queue: reading.why for queue, reading in result.queues.items() if reading.bad} == {}
    assert {queue: reading.max for queue, reading in result.queues.items() if reading.max} == ends


def test_consumer_offsets_after_the_rebuilt_end_stay(tmp_path: Path) -> None:
    store = copy_store(NAME, tmp_path)
    for folder in ("consumequeue", "index"):
        shutil.rmtree(store / folder)
    before = (store / "config" / "consumerOffset.json").read_bytes()
    recovered(store)
    assert (store / "config" / "consumerOffset.json").read_bytes() == before


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("gone", [False, True], ids=["units", "no units"])
@pytest.mark.parametrize(
    ("name", "version"),
    [
        pytest.param("5.4.0-slave", "4.9.7", marks=pytest.mark.slow),
        pytest.param("5.4.0-slave", "5.1.4", marks=pytest.mark.slow),
        ("5.4.0-slave", "5.4.0"),
        pytest.param("5.4.0-slave", "5.5.1", marks=pytest.mark.slow),
        pytest.param("5.4.0-dledger3-n1", "5.4.0", marks=pytest.mark.slow),
        pytest.param("5.4.0-dledger3-n1", "5.5.1", marks=pytest.mark.slow),
    ],
)
def test_no_broker_stops_at_a_wrong_queue_offset_and_a_replica_is_not_cut_there(
    name: str, version: str, gone: bool, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    """Every broker keeps the log after it, so a truncation would lose messages that no master sends again."""
    settings: dict[str, str | int] = {
        **meta(name).oracle_args,
        **({"commitLogRecoverMaxNum": 1000} if version >= "5.4.0" else {}),
    }
    sound = oracle_servers.load(version, unpack(name), settings)
    store = copy_store(name, tmp_path)
    queue = [row for row in rows(store) if row.message.topic_text == "Order_11" and row.message.queue_id == 0]
    hit = queue[len(queue) // 3]
    damage.flip(hit.path, hit.at + HEAD.at("queue_offset") + 7, 1)
    logs = {path: path.read_bytes() for path in {row.path for row in queue}}
    if gone:
        shutil.rmtree(store / "consumequeue" / "Order_11")
    else:  # as after a crash, when the whole log is read
        crashed = shutil.copytree(store, tmp_path / "crashed")
        (crashed / "abort").touch()
        (crashed / "checkpoint").write_bytes(bytes(4096))
        result = oracle_servers.load(version, crashed, settings)
        assert (result.load, result.crash, result.max_phy) == (True, None, sound.max_phy)
    conf = write_broker_conf(name, store)
    done = run_json("recover", str(store), "-c", str(conf), "--apply", exit_code=1)
    assert (done["strategy"], done["loss"]["messages"]) == ("truncate", 0)  # type: ignore[index]
    assert {path: path.read_bytes() for path in logs} == logs
    assert done["remaining"]["counts"].get("CL-QUEUE-OFFSET") == 1  # type: ignore[index]
    result = oracle_servers.load(version, store, settings)
    assert result.max_phy == sound.max_phy
    assert {label: q.max for label, q in result.queues.items()} == {label: q.max for label, q in sound.queues.items()}
    bad = {label: reading.bad for label, reading in result.queues.items() if reading.bad}
    assert bad == {"Order_11/0": 1}
