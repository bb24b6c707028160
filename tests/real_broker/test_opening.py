"""Incomplete stores that were opened for appending, read by the real classes afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore.append.message_store import MessageStore, StoreOptions
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.formats.properties import SCHEDULE_TOPIC, parse_delay_levels
from tests.append.small import NEVER, message
from tests.append.test_on_disk import delayed
from tests.append.writing import OPTIONS, SETTINGS
from tests.real_broker.oracle import KeyQuery, Oracle
from tests.real_broker.oracle_server import OracleServers
from tests.stores import copy_store, meta

EACH = pytest.mark.parametrize(
    "version",
    [
        "4.9.7",
        pytest.param("5.1.4", marks=pytest.mark.slow),
        pytest.param("5.4.0", marks=pytest.mark.slow),
        pytest.param("5.5.1", marks=pytest.mark.slow),
    ],
)


def two_hundred(root: Path, **changes: object) -> Path:
    with MessageStore.create(root, replace(OPTIONS, **changes)) as store:  # type: ignore[arg-type]
        for number in range(200):
            store.put(message(number, size=700, topic="Order"))
    return root


@pytest.mark.quick_rows(1)
@EACH
@pytest.mark.parametrize("lost", ["consumequeue", "consumequeue/Order/0/00000000000000002000", "index"])
def test_what_was_missing_is_served_again(
    version: str, lost: str, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    dispatch = replace(OPTIONS.dispatch, tag_key=version >= "5.4.0")
    root = two_hundred(tmp_path / "s", dispatch=dispatch)
    if (root / lost).is_dir():
        shutil.rmtree(root / lost)
    else:
        (root / lost).unlink()
        (root / "consumequeue/Order/0/00000000000000003000").unlink()
    given = StoreOptions(version=version, dispatch=dispatch)
    if lost == "index":
        given = replace(given, index_slots=OPTIONS.index_slots, index_units=OPTIONS.index_units)
    with MessageStore.open(root, given) as store:
        store.put(message(200, topic="Order"))
    keys = [KeyQuery("Order", f"k{number}") for number in range(201)]
    seen = oracle_servers.load(version, root, SETTINGS, put=3, keys=keys)
    assert (seen.load, seen.crash, seen.shutdown) == (True, None, "clean")
    assert (seen.queues["Order/0"].max, seen.readable, seen.offsets) == (202, 204, 204)
    assert [len(found) for found in seen.by_key] == [1] * 201


@EACH
def test_both_logs_of_a_mixed_store_are_served_again(
    version: str, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    name = f"{version}-dledger-mixed"
    root, made = copy_store(name, tmp_path), meta(name)
    shutil.rmtree(root / "consumequeue")
    config = BrokerConfig({key: str(value) for key, value in made.settings.items()})
    with MessageStore.open(root, StoreOptions(version=version), config=config):
        pass
    seen = oracle_servers.load(version, root, made.oracle_args)
    assert (seen.load, seen.crash) == (True, None)
    assert seen.readable == seen.offsets == made.oracle_start.readable


@EACH
def test_a_cut_at_the_border_of_a_queue_file_leaves_no_ghost(
    version: str, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    root = tmp_path / "s"
    options = replace(OPTIONS, commitlog_file_size=1 << 16, intervals=NEVER, version=version)
    store = MessageStore.create(root, options)
    put = [store.put(message(number, topic="Order")) for number in range(60)]
    store.flush()
    store.crash()
    log = root / "commitlog" / f"{0:020d}"

    def tear(number: int) -> None:
        with log.open("r+b") as out:
            out.seek(put[number].offset)
            out.write(bytes((1 << 16) - put[number].offset))

    tear(50)
    MessageStore.open(root, options).close()
    assert [p.name for p in (root / "consumequeue/Order/0").iterdir()] == [f"{0:020d}"]
    tear(49)
    (root / "abort").touch()
    seen = oracle_servers.load(version, root, {**SETTINGS, "mappedFileSizeCommitLog": 1 << 16})
    queue = seen.queues["Order/0"]
    assert (seen.load, seen.crash, queue.min, queue.max, queue.readable) == (True, None, 0, 49, 49)


# In 4.9, the broker's ScheduleMessageService sets the delay levels of the store; the store classes alone have none.
@pytest.mark.parametrize(
    "version", [pytest.param("5.1.4", marks=pytest.mark.slow), "5.4.0", pytest.param("5.5.1", marks=pytest.mark.slow)]
)
def test_delayed_messages_are_due_by_the_levels_of_their_store(
    version: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    root = tmp_path / "s"
    own = replace(OPTIONS.dispatch, delay_levels=parse_delay_levels("7s 9s 3m"))
    with MessageStore.create(root, replace(OPTIONS, dispatch=own)) as store:
        for number in range(6):
            store.put(delayed(number, 1))  # type: ignore[arg-type]
    with MessageStore.open(root, StoreOptions(version=version)) as store:
        store.put(delayed(6, 1))  # type: ignore[arg-type]
    before = (root / "consumequeue" / SCHEDULE_TOPIC / "0" / f"{0:020d}").read_bytes()
    shutil.rmtree(root / "consumequeue")  # the broker rebuilds the units, and they are the same
    (root / "abort").touch()
    (root / "checkpoint").write_bytes(bytes(4096))
    seen = oracle(version).load(root, {**SETTINGS, "messageDelayLevel": "7s 9s 3m"}, start=True, shutdown=True)
    assert (seen.load, seen.crash, seen.readable) == (True, None, 7)
    assert (root / "consumequeue" / SCHEDULE_TOPIC / "0" / f"{0:020d}").read_bytes() == before
