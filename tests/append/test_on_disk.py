"""MessageStore.open reads a store's settings from its files, and refuses contradicting options before it writes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore.append.dispatch import DispatchOptions
from rmqstore.append.encoder import NewMessage
from rmqstore.append.message_store import MessageStore, StoreOptions
from rmqstore.errors import NotAStore, Refused
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.formats.properties import DEFAULT_DELAY_LEVELS, SCHEDULE_TOPIC, parse_delay_levels
from tests.append.small import SMALL, clean, message, units
from tests.stores import copy_store
from tests.untouched import tree

LEVELS = parse_delay_levels("7s 9s 3m")


def written(root: Path, count: int = 60, **changes: object) -> Path:
    with MessageStore.create(root, replace(SMALL, **changes)) as store:  # type: ignore[arg-type]
        for number in range(count):
            store.put(message(number, size=400))
    return root


def refused(root: Path, words: str, options: StoreOptions | None = None, config: dict[str, str] | None = None) -> None:
    before = tree(root)
    with pytest.raises(Refused, match=words):
        MessageStore.open(root, options, config=BrokerConfig(config) if config else None)
    assert tree(root) == before


def test_a_plain_store_is_not_opened_as_a_dledger_member(tmp_path: Path) -> None:
    root = written(tmp_path / "s")
    refused(root, "is a plain store with 2 log files", replace(SMALL, dledger="n0"))
    refused(root, "is a plain store", config={"enableDLegerCommitLog": "true", "dLegerSelfId": "n0"})


def test_a_dledger_store_is_not_opened_as_a_plain_one_nor_as_another_member(tmp_path: Path) -> None:
    root = written(tmp_path / "s", dledger="n0")
    refused(
        root,
        "has the log of DLedger member n0; a plain store would overwrite it",
        config={"enableDLegerCommitLog": "false"},
    )
    refused(root, "member n0, not of n1", replace(SMALL, dledger="n1"))


def test_a_mixed_store_is_not_opened_as_a_plain_one(tmp_path: Path) -> None:
    refused(
        copy_store("5.4.0-dledger-mixed", tmp_path),
        "has the log of DLedger member n0",
        config={"enableDLegerCommitLog": "false"},
    )


@pytest.mark.parametrize("name", ["5.4.0-dledger-mixed", "4.9.7-dledger"])
def test_the_directory_names_the_member(name: str, tmp_path: Path) -> None:
    with MessageStore.open(copy_store(name, tmp_path)) as store:
        assert store.options.dledger == "n0"
        before = store.put(NewMessage("Order_11", b"first")).offset
        assert store.put(NewMessage("Order_11", b"second")).offset > before > 0


def test_a_follower_is_not_opened_by_the_name_of_its_directory(tmp_path: Path) -> None:
    refused(copy_store("5.4.0-dledger3-n1", tmp_path), "member n1 voted for n0")


def test_a_member_that_voted_for_another_is_a_replica(tmp_path: Path) -> None:
    refused(copy_store("5.4.0-dledger3-n1", tmp_path), "member n1 voted for n0", StoreOptions(dledger="n1"))


def test_a_replica_of_a_master_is_refused_unless_broker_conf_says_master(tmp_path: Path) -> None:
    root = written(tmp_path / "s", count=5)
    refused(root, "broker.conf says slave", config={"brokerRole": "SLAVE"})
    refused(root, "broker.conf says controller", config={"enableControllerMode": "true"})
    (root / "epochFileCheckpoint").write_bytes(b"")
    refused(root, "belongs to a group of brokers with master and slaves")
    with MessageStore.open(root, config=BrokerConfig({"brokerRole": "SYNC_MASTER"})) as store:
        assert store.put(message()).queue_offset == 5


def test_a_slave_is_known_by_the_offset_that_its_master_flushed(tmp_path: Path) -> None:
    root = written(tmp_path / "s", count=5)
    checkpoint = bytearray((root / "checkpoint").read_bytes())
    checkpoint[24:32] = (1000).to_bytes(8, "big")
    (root / "checkpoint").write_bytes(checkpoint)
    refused(root, "belongs to a group of brokers")


@pytest.mark.parametrize("dledger", [None, "n0"])
def test_everything_that_is_not_given_comes_from_the_files(tmp_path: Path, dledger: str | None) -> None:
    root = written(tmp_path / "s", dledger=dledger)
    with MessageStore.open(root, StoreOptions(dledger=dledger)) as store:
        found = store.options
        assert (found.commitlog_file_size, found.index_slots, found.index_units) == (1 << 14, 20, 60)
        assert found.dispatch.consume_queue_file_size == 1000
        assert store.put(message(60, size=400)).queue_offset == 60
    assert len(units(root)) == 61
    assert clean(root) == {}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"commitlog_file_size": 1 << 15}, "commitlog/0{20}: files of 16,384 bytes, not of 32,768"),
        ({"commitlog_file_size": 1 << 13}, "commitlog/0{20}: files of 16,384 bytes, not of 8,192"),
        ({"dispatch": DispatchOptions(2000)}, "TopicTest/0/0{20}: files of 1,000 bytes, not of 2,000"),
        ({"index_slots": 5_000_000, "index_units": 20_000_000}, "has 1,320 bytes; .* has 20 slots and 60 units"),
        ({"index_slots": 25, "index_units": 59}, "has 1,320 bytes; .* has 20 slots and 60 units"),  # of equal length
    ],
)
def test_other_sizes_are_refused(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    root = written(tmp_path / "s", count=40)
    refused(root, words, replace(SMALL, **changes))  # type: ignore[arg-type]


def test_default_index_sizes_do_not_make_a_small_index_file_longer(tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    before = {p.name: p.stat().st_size for p in (root / "index").iterdir()}
    refused(root, "maxHashSlotNum|slots", StoreOptions(index_slots=5_000_000, index_units=20_000_000))
    with MessageStore.open(root):
        pass
    assert {p.name: p.stat().st_size for p in (root / "index").iterdir()} == before
    assert clean(root) == {}


def test_an_index_without_entries_must_be_given_its_sizes(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with MessageStore.create(root, SMALL) as store:
        one = message()
        one.properties = b""
        store.put(one)
    refused(root, "another number of slots and units")
    with MessageStore.open(root, SMALL) as store:
        assert store.put(message()).queue_offset == 1


def delayed(number: int, level: int) -> object:
    one = message(number, topic=SCHEDULE_TOPIC, queue_id=level - 1)
    one.properties += b"DELAY\x01%d\x02" % level
    one.store_timestamp = 1_700_000_000_000
    return one


def test_delay_levels_come_from_the_units(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with MessageStore.create(root, replace(SMALL, dispatch=replace(SMALL.dispatch, delay_levels=LEVELS))) as store:
        for number in range(6):
            store.put(delayed(number, 1 + number % 3))  # type: ignore[arg-type]
    other = replace(SMALL.dispatch, delay_levels=DEFAULT_DELAY_LEVELS)
    refused(root, "level 1 is delayed by 7,000 ms, but messageDelayLevel says 1,000 ms", replace(SMALL, dispatch=other))
    refused(root, "level 1 is delayed by 7,000 ms", SMALL, {"messageDelayLevel": "8s 9s 3m"})
    with MessageStore.open(root, SMALL) as store:
        store.put(delayed(6, 1))  # type: ignore[arg-type]
    assert [due for _, _, due in units(root, SCHEDULE_TOPIC, 0)] == [1_700_000_007_000] * 3


def test_one_delayed_message_is_enough_to_contradict(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with MessageStore.create(root, replace(SMALL, dispatch=replace(SMALL.dispatch, delay_levels=LEVELS))) as store:
        store.put(delayed(0, 3))  # type: ignore[arg-type]
    given = replace(SMALL, dispatch=replace(SMALL.dispatch, delay_levels=LEVELS))
    refused(root, "level 3 is delayed by 180,000 ms, but messageDelayLevel says 10,000 ms", SMALL, {
        "messageDelayLevel": "1s 5s 10s"
    })  # fmt: skip
    MessageStore.open(root, given).close()


def test_batch_topics_are_those_with_batch_files(tmp_path: Path) -> None:
    root = tmp_path / "s"
    dispatch = DispatchOptions(1000, 460, batch_topics=frozenset({"BatchT"}))
    with MessageStore.create(root, replace(SMALL, dispatch=dispatch)) as store:
        store.put(message(topic="BatchT"))
        store.put(message(topic="Simple"))
    with MessageStore.open(root, StoreOptions()) as store:
        assert store.options.dispatch.batch_topics == {"BatchT"}
        assert store.options.dispatch.batch_file_size == 460
        assert store.put(message(topic="BatchT")).queue_offset == 1
    assert not (root / "consumequeue" / "BatchT").exists()
    wrong = DispatchOptions(batch_topics=frozenset({"Simple"}))
    refused(root, "units of 20 bytes; Simple is not a BatchCQ topic", StoreOptions(dispatch=wrong))


def test_a_directory_that_is_not_a_store_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(NotAStore):
        MessageStore.open(tmp_path, SMALL)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.1.4-formats", "5.4.0-formats", "5.4.0-killed"])
def test_stores_of_real_brokers_open_without_a_single_setting(name: str, tmp_path: Path) -> None:
    root = copy_store(name, tmp_path)
    shutil.rmtree(root / "config" / "none", ignore_errors=True)
    with MessageStore.open(root) as store:
        put = store.put(message(topic="NewTopic"))
    assert (put.queue_offset, len(units(root, "NewTopic"))) == (0, 1)


def test_without_queue_files_their_size_must_be_given(tmp_path: Path) -> None:
    root = written(tmp_path / "s")
    shutil.rmtree(root / "consumequeue")
    refused(root, "the size of consume queue files is unknown")
    with MessageStore.open(root, StoreOptions(dispatch=DispatchOptions(consume_queue_file_size=1000))):
        pass
    assert (len(units(root)), clean(root)) == (60, {})
