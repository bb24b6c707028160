"""A migrated store equals the result of a real broker's first start in DLedger mode, and a broker starts on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.command import run, run_json
from tests.real_broker.oracle import Oracle, Setting
from tests.real_broker.oracle_server import OracleServers
from tests.real_broker.whole_broker import WholeBroker
from tests.repair.migration_stores import SITUATIONS, VERSIONS, end_of, make
from tests.stores import copy_store, meta
from tests.untouched import tree

# The broker creates and holds `lock`; its RocksDB creates new files at every start.
NOT_OURS = ("lock", "rocksdbstore")


def _cases() -> list[object]:
    every = [(version, situation) for version in VERSIONS for situation in SITUATIONS]
    fixed = {("5.4.0", "partly-filled"), ("5.1.4", "zero-file-after-blank"), ("4.9.7", "zero-file-after-end")}
    fixed |= {("5.4.0", "no-log")}
    return [pytest.param(*case, marks=() if case in fixed else pytest.mark.slow) for case in every]


def _settings(version: str) -> Mapping[str, Setting]:
    return {**meta(f"{version}-before-dledger").oracle_args, "enableDLegerCommitLog": "true", "dLegerSelfId": "n0"}


def _migrate(store: Path, *more: str) -> Mapping[str, object]:
    words = ("migrate-to-dledger", str(store), "--self-id", "n0", "--jobs", "1", *more)
    plan = run_json(*words, exit_code=1)
    force = ("--force", str(plan["digest"])) if plan["brakes"] else ()
    return run_json(*words, "--apply", *force, exit_code=0)


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize(("version", "situation"), _cases())
def test_migrated_store_equals_the_brokers_own_first_start(
    version: str, situation: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    theirs = make(version, situation, tmp_path, rename="theirs")
    ours = make(version, situation, tmp_path, rename="ours")
    config = tmp_path / "broker.conf"
    config.write_text("mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=2000\n", "utf-8")
    answer = oracle(version).load(theirs, _settings(version))
    assert (answer.load, answer.crash) == (True, None)
    _migrate(ours, "-c", str(config))
    assert tree(ours, without=NOT_OURS) == tree(theirs, without=NOT_OURS)


@pytest.mark.parametrize(
    "version",
    [
        "5.4.0",
        pytest.param("4.9.7", marks=pytest.mark.slow),
        pytest.param("5.1.4", marks=pytest.mark.slow),
        pytest.param("5.5.1", marks=pytest.mark.slow),
    ],
)
def test_store_reads_every_old_message_in_dledger_mode(
    version: str, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    store = make(version, "partly-filled", tmp_path)
    recorded = meta(f"{version}-before-dledger").oracle_start
    _migrate(store)
    answer = oracle_servers.load(version, store, _settings(version))
    assert (answer.load, answer.crash, answer.leader, answer.shutdown) == (True, None, True, "clean")
    assert (answer.offsets, answer.readable) == (recorded.offsets, recorded.readable)
    assert {name: (queue.min, queue.max) for name, queue in answer.queues.items()} == {
        name: (queue.min, queue.max) for name, queue in recorded.queues.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_broker_accepts_messages_and_reads_all_after_a_restart(
    version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    store = make(version, "partly-filled", tmp_path)
    made = meta(f"{version}-before-dledger")
    document = _migrate(store)
    lines = document["broker_conf"]
    assert isinstance(lines, list)
    dledger = {key: value for key, _, value in (line.partition("=") for line in lines) if key != "dLegerPeers"}
    old = {name: queue.max for name, queue in made.oracle_start.queues.items() if name.startswith("Order_11/")}
    with whole_broker(version, store, made.broker_conf, **dledger) as broker:
        sent = broker.produce("Order_11", 12)
        first = broker.read("Order_11")
    with whole_broker(version, store, made.broker_conf, **dledger) as broker:
        again = broker.read("Order_11")
    assert len(sent) == 12
    seen = {(m.queue_id, m.queue_offset, m.body_crc) for m in again}
    assert seen >= {(m.queue_id, m.queue_offset, m.body_crc) for m in first}
    assert seen >= {(m.queue_id, m.queue_offset, m.body_crc) for m in sent}
    for name, count in old.items():
        queue_id = int(name.rpartition("/")[2])
        assert {offset for queue, offset, _ in seen if queue == queue_id} >= set(range(count))


def _tear(store: Path) -> tuple[Path, int]:
    """Write a torn record after the last one (size, magic and few more bytes), and return its file and position."""
    path, at = end_of(store)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes.fromhex("00000123DAA320A7") + b"torn")
    return path, at


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_recovered_tail_is_padded_where_the_broker_pads_a_damaged_one(
    version: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    theirs = make(version, "partly-filled", tmp_path, rename="theirs")
    ours = make(version, "partly-filled", tmp_path, rename="ours")
    _tear(theirs)
    path, at = _tear(ours)
    assert oracle(version).load(theirs, _settings(version)).load is True
    refused = run_json("migrate-to-dledger", str(ours), "--self-id", "n0", "--apply", exit_code=5)
    assert "rmqstore recover" in str(refused["refusals"])
    assert run("recover", str(ours), "--apply", "--jobs", "1").exit_code == 0
    _migrate(ours)
    mine, real = tree(ours, without=NOT_OURS), tree(theirs, without=NOT_OURS)
    name = str(path.relative_to(ours))
    left = bytearray(real[name] or b"")
    left[at + 8 : at + 12] = bytes(4)  # recover zeroed the bytes after the BLANK, which the broker keeps
    assert mine == real | {name: bytes(left)}


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.7", "5.1.4"])
def test_killed_store_starts_to_the_same_bytes_with_and_without_us(
    version: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    name = f"{version}-killed"
    theirs, ours = copy_store(name, tmp_path, rename="theirs"), copy_store(name, tmp_path, rename="ours")
    _migrate(ours)
    settings = {**meta(name).oracle_args, "enableDLegerCommitLog": "true", "dLegerSelfId": "n0"}
    answers = [oracle(version).load(store, settings) for store in (theirs, ours)]
    assert [(a.load, a.readable) for a in answers] == [(True, meta(name).oracle_start.readable)] * 2
    assert tree(ours, without=NOT_OURS) == tree(theirs, without=NOT_OURS)


def test_undone_migration_starts_as_a_plain_store(tmp_path: Path, oracle_servers: OracleServers) -> None:
    store = make("5.4.0", "partly-filled", tmp_path)
    before = tree(store)
    document = _migrate(store)
    from rmqstore.repair.journal.journal import undo

    undo(Path(str(document["journal"])))
    assert tree(store) == before
    made = meta("5.4.0-before-dledger")
    answer = oracle_servers.load("5.4.0", store, made.oracle_args)
    assert (answer.load, answer.readable) == (True, made.oracle_start.readable)


@pytest.mark.slow
def test_three_migrated_copies_form_a_group_that_agrees(
    tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    version, nodes = "5.4.0", ("n0", "n1", "n2")
    made = meta(f"{version}-before-dledger")
    stores = [make(version, "partly-filled", tmp_path, rename=node) for node in nodes]
    group = {"enableDLegerCommitLog": "true", "dLegerGroup": "broker-11"}
    brokers: list[WholeBroker] = []
    for node, store in zip(nodes, stores, strict=True):
        shared = {"namesrvAddr": brokers[0].name_server} if brokers else {}
        brokers.append(whole_broker(version, store, made.broker_conf, dLegerSelfId=node, **group, **shared))
    peers = ";".join(f"{node}-{broker.dledger_address}" for node, broker in zip(nodes, brokers, strict=True))
    for i, (node, store) in enumerate(zip(nodes, stores, strict=True)):
        others = [word for j, other in enumerate(stores) if j != i for word in ("--check-replica", str(other))]
        words = ("migrate-to-dledger", str(store), "--self-id", node, "--peers", peers, *others, "--apply")
        assert run_json(*words, exit_code=0)["divided_commitlog_offset"] == 524288
    for broker in brokers:
        broker.join(peers)
        broker.launch()
    for broker in brokers:
        broker.wait()
    sent = brokers[0].produce("Order_11", 20)
    read = {(m.queue_id, m.queue_offset, m.body_crc) for m in brokers[0].read("Order_11")}
    for broker in reversed(brokers):
        broker.stop()
    assert len(sent) == 20
    assert read >= {(m.queue_id, m.queue_offset, m.body_crc) for m in sent}
    for other in stores[1:]:  # the broker may have delivered delayed messages while the nodes were stopped
        answer = json.loads(run("compare", str(stores[0]), str(other), "--json").stdout)
        assert answer["relation"] in ("equal", "store-is-prefix", "other-is-prefix")
        assert answer["common"]["messages"] >= made.oracle_start.readable + len(sent)
