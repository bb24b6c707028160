"""Stores written by this library, opened by the real classes: loaded, read, started, stopped, restarted."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore.append.encoder import NewMessage
from rmqstore.append.message_store import MessageStore
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.store import open_store
from rmqstore.formats.dledger import BODY_OFFSET
from rmqstore.formats.index import key_hash, key_text
from rmqstore.formats.properties import parse_properties
from tests.append.rewriting import again, messages_of, options_like
from tests.append.test_crashes import kill_at_random
from tests.append.writing import DLEDGER, FIRST_TIME, OPTIONS, SETTINGS, TOPICS, Written, put_random, write
from tests.planning import counts_of, report_of
from tests.real_broker.oracle import KeyQuery, Oracle, OracleResult
from tests.real_broker.oracle_server import OracleServers
from tests.real_broker.whole_broker import WholeBroker
from tests.seeds import fresh
from tests.stores import VERSIONS, copy_store, meta, unpack

MOST = 1000  # maxMsgsNumBatch: the maximum number of messages in an answer
EVER = (0, (1 << 63) - 1)


def queries_of(written: Written, tags: bool) -> dict[KeyQuery, list[int]]:
    """Return queries and the offsets that the real store must return for them.

    The queries are for every key in every topic, for keys in time windows, and for tags if the version indexes them.
    """
    names = sorted({key for _, key in written.keys})
    asked = {KeyQuery(topic, key): written.keys.get((topic, key), []) for topic in TOPICS for key in names}
    asked[KeyQuery("Order", "none")] = asked[KeyQuery("NoSuchTopic", names[0])] = []
    # the index finds messages by hash, so a collision of test keys would make the expected results wrong
    hashes = {key_hash(key_text(query.topic, query.key)) for query in asked}
    assert len(hashes) == len(asked)
    for begin, end in ((0, 99), (100, 300), (399, 399), (250, 1 << 20)):
        first, last = FIRST_TIME + begin * 1000, FIRST_TIME + end * 1000
        for topic in TOPICS:
            inside = [at for at in written.keys[topic, "z3"] if first <= written.times[at] <= last]
            asked[KeyQuery(topic, "z3", first, last)] = inside
    if tags:
        asked |= {KeyQuery(topic, tag, *EVER, "T"): found for (topic, tag), found in written.tags.items()}
    assert max(map(len, asked.values())) < MOST
    return asked


def listed(seen: OracleResult) -> dict[str, list[tuple[int, int, int]]]:
    """Return all messages of all queues."""
    return {
        name: [(m.queue_offset, m.commitlog_offset, m.size) for m in queue.messages]
        for name, queue in seen.queues.items()
        if queue.messages
    }


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize(
    ("version", "dledger"),
    [
        ("4.9.7", None),
        pytest.param("5.1.4", None, marks=pytest.mark.slow),
        ("5.4.0", None),
        pytest.param("5.5.1", None, marks=pytest.mark.slow),
        pytest.param("4.9.7", "n0", marks=pytest.mark.slow),
        pytest.param("5.1.4", "n0", marks=pytest.mark.slow),
        ("5.4.0", "n0"),
        pytest.param("5.5.1", "n0", marks=pytest.mark.slow),
    ],
)
def test_the_real_store_reads_every_message_by_queue_and_key_appends_and_starts_again(
    version: str, dledger: str | None, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    root, chance = tmp_path / "store", random.Random(fresh(2))
    options = replace(
        OPTIONS, dledger=dledger, version=version, dispatch=replace(OPTIONS.dispatch, tag_key=version >= "5.4.0")
    )
    settings = {**(DLEDGER if dledger else SETTINGS), "maxMsgsNumBatch": MOST}
    written = write(root, options, 400)

    def ask(put: int) -> OracleResult:
        asked = queries_of(written, tags=version >= "5.4.0")
        seen = oracle(version).load(
            root, settings, start=True, shutdown=True, list=True, put=put, keys=(*asked, KeyQuery("Order", "put"))
        )
        assert (seen.load, seen.crash, seen.shutdown) == (True, None, "clean")
        answers = dict(zip(asked, (sorted(offsets) for offsets in seen.by_key), strict=False))
        assert answers == asked
        assert len(seen.by_key) == len(asked) + 1
        return seen

    seen = ask(put=30)  # the broker appends its messages after ours, in the queues and in the index
    for queue_id, queue_offset, offset, size in seen.puts:
        written.queues[f"Order/{queue_id}"].append((queue_offset, offset, size))
    assert listed(seen) == written.queues
    assert sorted(seen.by_key[-1]) == [offset for _, _, offset, _ in seen.puts]
    with MessageStore.open(root, options) as store:  # and now we append after the broker's
        put_random(store, range(400, 480), written, chance, None)
    # the store classes alone leave directories of a broker, but no config/
    assert counts_of(root).keys() <= {"CFG-LOST-TOPICS", "CFG-NO-OFFSETS"}
    again = ask(put=0)
    assert listed(again) == written.queues
    assert again.by_key[-1] == seen.by_key[-1]
    assert again.readable == again.offsets == 510


def indexed_queries(log: MappedFileQueue, body_offset: int) -> list[KeyQuery]:
    """Return queries for all keys and unique keys of the messages of a log."""
    asked: dict[KeyQuery, None] = {}
    for message in messages_of(log, body_offset):
        for name in ("UNIQ_KEY", "KEYS"):
            for key in parse_properties(message.properties).get(name, "").split():
                asked[KeyQuery(message.topic_text, key)] = None
    return list(asked)


@pytest.mark.parametrize(
    "name",
    [
        "5.4.0-formats",
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in ("5.4.0-ipv6", "5.4.0-dledger", "5.5.1-formats", "5.5.1-dledger")
        ),
    ],
)
def test_a_real_store_appended_again_is_read_as_the_original(
    name: str, tmp_path: Path, oracle_servers: OracleServers
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
    queries = indexed_queries(log, BODY_OFFSET if group else 0)
    seen = oracle_servers.load(made.version, root, made.oracle_args, keys=queries)
    original = oracle_servers.load(made.version, source, made.oracle_args, keys=queries)
    assert seen.by_key == original.by_key
    assert sum(map(len, seen.by_key)) > 100
    assert (seen.load, seen.crash) == (True, None)
    expected = {n: (q.min, q.max, q.readable) for n, q in made.oracle_start.queues.items() if q.max}
    assert {n: (q.min, q.max, q.readable) for n, q in seen.queues.items() if q.max} == expected
    assert seen.max_phy == made.oracle_start.max_phy


@pytest.mark.parametrize(
    "name",
    [
        "5.4.0-dledger",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("4.9.7-clean", "5.1.4-formats", "5.5.1-clean")),
    ],
)
def test_a_brokers_store_that_was_appended_to_is_read_to_its_end(
    name: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    root, made = copy_store(name, tmp_path), meta(name)
    store = open_store(root)
    group = store.dledger if store.dledger is not None and store.dledger.data.files else None
    options = replace(options_like(root, dict(made.settings), made.version), dledger=group.self_id if group else None)
    with MessageStore.open(root, options) as writer:
        put = [
            writer.put(NewMessage("Order_11", b"more %d" % n, b"KEYS\x01more m%d\x02" % n, n % 4)) for n in range(40)
        ]
    assert [p.queue_offset for p in put[:4]] == [made.oracle_start.queues[f"Order_11/{q}"].max for q in range(4)]
    keys = [KeyQuery("Order_11", key) for key in ("more", *(f"m{n}" for n in range(40)))]
    seen = oracle(made.version).load(root, made.oracle_args, start=True, shutdown=True, keys=keys)
    assert (seen.load, seen.crash) == (True, None)
    assert [sorted(found) for found in seen.by_key] == [[p.offset for p in put], *([p.offset] for p in put)]
    assert seen.readable == made.oracle_start.readable + 40
    assert report_of(root).clean


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("rounds", [1, pytest.param(12, marks=pytest.mark.slow)])
@pytest.mark.parametrize("policy", ["sync", "async"])
def test_after_kill_9_the_broker_finds_what_the_library_finds(
    policy: str, rounds: int, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    root = tmp_path / "store"
    chance = random.Random(fresh(rounds))
    for number in range(rounds):
        acknowledged = kill_at_random(root, policy, "", chance)
        seen = oracle_servers.load(("5.4.0", "4.9.7", "5.1.4", "5.5.1")[number % 4], root, SETTINGS)
        assert (seen.load, seen.crash) == (True, None)
        verified = report_of(root)
        log = verified.commitlog or {"next_append": 0, "messages": 0}
        assert seen.max_phy == log["next_append"]
        assert seen.readable == seen.offsets == log["messages"]
        there = {
            (int(name.rpartition("/")[2]), m.queue_offset, m.commitlog_offset)
            for name, queue in seen.queues.items()
            for m in queue.messages
        }
        assert set(acknowledged) <= there


@pytest.mark.parametrize("rounds", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_after_kill_9_a_dledger_member_starts_with_every_acknowledged_message(
    rounds: int, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    root = tmp_path / "store"
    chance = random.Random(fresh(rounds))
    acknowledged: list[tuple[int, int, int]] = []
    for number in range(rounds):
        acknowledged += kill_at_random(root, "sync", "n0", chance)
        seen = oracle_servers.load(("5.4.0", "4.9.7", "5.5.1")[number % 3], root, DLEDGER)
        assert (seen.load, seen.crash, seen.leader) == (True, None, True)
        verified = report_of(root)
        entries = verified.dledger["entries"] if verified.dledger else 0
        # in a group of one, an entry becomes readable when the next entry or a start commits it
        assert entries - 1 <= seen.readable == seen.offsets <= entries
        there = {
            (int(name.rpartition("/")[2]), m.queue_offset, m.commitlog_offset)
            for name, queue in seen.queues.items()
            for m in queue.messages
        }
        assert len(set(acknowledged) - there) <= entries - seen.readable


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dledger", [None, "n0"])
def test_a_whole_broker_serves_the_store_and_appends_to_it(
    version: str, dledger: str | None, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    root = tmp_path / "store"
    written = write(root, replace(OPTIONS, dledger=dledger), 60)
    conf = {key: str(value) for key, value in (DLEDGER if dledger else SETTINGS).items()}
    conf |= {"autoCreateTopicEnable": "true", "brokerClusterName": "DefaultCluster"}
    with whole_broker(version, root, conf) as broker:
        acknowledged = broker.produce("Order", 8)
        read = broker.read("Order")
    ours = {(int(n[-1]), at) for n, queue in written.queues.items() if n.startswith("Order/") for at, _, _ in queue}
    seen = {(m.queue_id, m.queue_offset) for m in read}
    assert seen >= {(m.queue_id, m.queue_offset) for m in acknowledged}
    assert {one for one in ours if one[0] in {m.queue_id for m in read}} <= seen
    assert not (root / "abort").exists()
    with MessageStore.open(root, replace(OPTIONS, dledger=dledger, version=version)) as store:  # and again by rmqstore
        more = store.put(NewMessage("Order", b"last", b"", acknowledged[0].queue_id))
    assert more.queue_offset == max(m.queue_offset for m in read if m.queue_id == acknowledged[0].queue_id) + 1
    assert counts_of(root) == {}
