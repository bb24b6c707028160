"""Stores that this library wrote, opened by the real classes: loaded, read, started, stopped, started again."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore.append.dispatch import DispatchOptions
from rmqstore.append.encoder import NewMessage
from rmqstore.append.store import MessageStore, StoreOptions
from rmqstore.checks.verify import examine
from rmqstore.files.store import open_store
from rmqstore.formats.dledger import BODY_OFFSET
from tests.append.rewriting import again, messages_of, options_like
from tests.append.test_store import kill_at_random
from tests.broker.oracle import Oracle
from tests.broker.whole_broker import WholeBroker
from tests.stores import clone, copy_store, meta, unpack

OPTIONS = StoreOptions(
    commitlog_file_size=1 << 14,
    index_slots=20,
    index_units=60,
    dispatch=DispatchOptions(consume_queue_file_size=1000),
)
SETTINGS: Mapping[str, int | str] = {
    "mappedFileSizeCommitLog": 1 << 14,
    "mappedFileSizeConsumeQueue": 1000,
    "maxHashSlotNum": 20,
    "maxIndexNum": 60,
}
DLEDGER = {**SETTINGS, "enableDLegerCommitLog": "true", "dLegerGroup": "g", "dLegerSelfId": "n0"}


def write(root: Path, options: StoreOptions, count: int, seed: int = 1) -> dict[str, list[tuple[int, int, int]]]:
    """A store of random messages; per queue what is in it: (queue offset, commitlog offset, size)."""
    chance = random.Random(seed)
    put: dict[str, list[tuple[int, int, int]]] = {}
    with MessageStore.create(root, options) as store:
        for number in range(count):
            topic, queue_id = chance.choice(("Order", "Pay", "%RETRY%group")), chance.randrange(3)
            text = b"UNIQ_KEY\x01%032X\x02TAGS\x01%s\x02KEYS\x01k%d z%d\x02" % (
                number,
                chance.choice((b"TagA", b"TagB", "中文".encode())),
                number,
                number % 7,
            )
            one = store.put(NewMessage(topic, chance.randbytes(chance.randrange(900)), text, queue_id))
            put.setdefault(f"{topic}/{queue_id}", []).append((one.queue_offset, one.offset, one.size))
    return put


@pytest.mark.parametrize(
    ("version", "dledger"),
    [
        ("4.9.7", None),
        pytest.param("5.1.4", None, marks=pytest.mark.slow),
        ("5.4.0", None),
        pytest.param("4.9.7", "n0", marks=pytest.mark.slow),
        pytest.param("5.1.4", "n0", marks=pytest.mark.slow),
        ("5.4.0", "n0"),
    ],
)
def test_the_real_store_reads_every_message_and_starts_twice(
    version: str, dledger: str | None, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    root = tmp_path / "store"
    put = write(root, replace(OPTIONS, dledger=dledger), 400)
    settings = DLEDGER if dledger else SETTINGS
    for _ in range(2):
        seen = oracle(version).load(root, settings, start=True, shutdown=True, list=True)
        assert (seen.load, seen.crash, seen.shutdown) == (True, None, "clean")
        assert seen.readable == seen.offsets == 400
        found = {
            name: [(m.queue_offset, m.commitlog_offset, m.size) for m in queue.messages]
            for name, queue in seen.queues.items()
            if queue.messages
        }
        assert found == put


@pytest.mark.parametrize(
    "name",
    ["5.4.0-formats", *(pytest.param(n, marks=pytest.mark.slow) for n in ("5.4.0-ipv6", "5.4.0-dledger"))],
)
def test_a_real_store_appended_again_is_read_as_the_original(
    name: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    source, root, made = unpack(name), tmp_path / "store", meta(name)
    store = open_store(source)
    group = store.dledger if store.dledger is not None and store.dledger.data.files else None
    log = group.data if group else store.commitlog
    assert log is not None
    options = options_like(source, dict(made.settings), made.version, start=log.start)
    with MessageStore.create(root, replace(options, dledger=group.self_id if group else None)) as writer:
        for message in messages_of(log, BODY_OFFSET if group else 0):
            writer.put(again(message, append_crc=options.limits.append_crc))
    shutil.copytree(source / "config", root / "config")
    seen = oracle(made.version).load(root, made.oracle_args, start=True)
    assert (seen.load, seen.crash) == (True, None)
    expected = {n: (q.min, q.max, q.readable) for n, q in made.oracle_start.queues.items() if q.max}
    assert {n: (q.min, q.max, q.readable) for n, q in seen.queues.items() if q.max} == expected
    assert seen.max_phy == made.oracle_start.max_phy


@pytest.mark.parametrize(
    "name",
    ["5.4.0-dledger", *(pytest.param(n, marks=pytest.mark.slow) for n in ("4.9.7-clean", "5.1.4-formats"))],
)
def test_a_brokers_store_that_was_appended_to_is_read_to_its_end(
    name: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    root, made = copy_store(name, tmp_path), meta(name)
    store = open_store(root)
    group = store.dledger if store.dledger is not None and store.dledger.data.files else None
    options = replace(options_like(root, dict(made.settings), made.version), dledger=group.self_id if group else None)
    with MessageStore.open(root, options) as writer:
        put = [writer.put(NewMessage("Order_11", b"more %d" % n, b"TAGS\x01x\x02", n % 4)) for n in range(40)]
    assert [p.queue_offset for p in put[:4]] == [made.oracle_start.queues[f"Order_11/{q}"].max for q in range(4)]
    seen = oracle(made.version).load(root, made.oracle_args, start=True)
    assert (seen.load, seen.crash) == (True, None)
    assert seen.readable == made.oracle_start.readable + 40
    assert examine(open_store(root)).report.clean


@pytest.mark.parametrize("rounds", [1, pytest.param(12, marks=pytest.mark.slow)])
@pytest.mark.parametrize("policy", ["sync", "async"])
def test_after_kill_9_the_broker_finds_what_the_library_finds(
    policy: str, rounds: int, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    root = tmp_path / "store"
    chance = random.Random(rounds)
    for number in range(rounds):
        acknowledged = kill_at_random(root, policy, "", chance)
        copy = tmp_path / f"copy{number}"
        clone(root, copy)
        seen = oracle(("5.4.0", "4.9.7", "5.1.4")[number % 3]).load(copy, SETTINGS, start=True, list=True)
        assert (seen.load, seen.crash) == (True, None)
        verified = examine(open_store(root)).report
        log = verified.commitlog or {"next_append": 0, "messages": 0}
        assert seen.max_phy == log["next_append"]
        assert seen.readable == seen.offsets == log["messages"]
        if policy == "sync":
            there = {
                (int(name.rpartition("/")[2]), m.queue_offset, m.commitlog_offset)
                for name, queue in seen.queues.items()
                for m in queue.messages
            }
            assert set(acknowledged) <= there


@pytest.mark.parametrize("rounds", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_after_kill_9_a_dledger_member_starts_with_every_acknowledged_message(
    rounds: int, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    root = tmp_path / "store"
    chance = random.Random(rounds)
    acknowledged: list[tuple[int, int, int]] = []
    for number in range(rounds):
        acknowledged += kill_at_random(root, "sync", "n0", chance)
        copy = tmp_path / f"copy{number}"
        clone(root, copy)
        seen = oracle(("5.4.0", "4.9.7")[number % 2]).load(copy, DLEDGER, start=True, list=True)
        assert (seen.load, seen.crash, seen.leader) == (True, None, True)
        verified = examine(open_store(root)).report
        entries = verified.dledger["entries"] if verified.dledger else 0
        # a leader of one shows an entry when the next one, or its own start, has committed it
        assert entries - 1 <= seen.readable == seen.offsets <= entries
        there = {
            (int(name.rpartition("/")[2]), m.queue_offset, m.commitlog_offset)
            for name, queue in seen.queues.items()
            for m in queue.messages
        }
        assert len(set(acknowledged) - there) <= entries - seen.readable


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.7", "5.1.4", "5.4.0"])
@pytest.mark.parametrize("dledger", [None, "n0"])
def test_a_whole_broker_serves_the_store_and_appends_to_it(
    version: str, dledger: str | None, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    root = tmp_path / "store"
    put = write(root, replace(OPTIONS, dledger=dledger), 60)
    conf = {key: str(value) for key, value in (DLEDGER if dledger else SETTINGS).items()}
    conf |= {"autoCreateTopicEnable": "true", "brokerClusterName": "DefaultCluster"}
    with whole_broker(version, root, conf) as broker:
        acknowledged = broker.produce("Order", 8)
        read = broker.read("Order")
    ours = {(int(n[-1]), at) for n, queue in put.items() if n.startswith("Order/") for at, _, _ in queue}
    seen = {(m.queue_id, m.queue_offset) for m in read}
    assert seen >= {(m.queue_id, m.queue_offset) for m in acknowledged}
    assert {one for one in ours if one[0] in {m.queue_id for m in read}} <= seen
    assert not (root / "abort").exists()
    with MessageStore.open(root, replace(OPTIONS, dledger=dledger, version=version)) as store:  # and back again
        more = store.put(NewMessage("Order", b"last", b"", acknowledged[0].queue_id))
    assert more.queue_offset == max(m.queue_offset for m in read if m.queue_id == acknowledged[0].queue_id) + 1
    assert examine(open_store(root)).report.findings.counts == {}
