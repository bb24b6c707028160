"""Rows in rocksdbstore/ after a repair: whole brokers deliver timed messages once, and check half messages."""

from __future__ import annotations

import shutil
import time
import zlib
from collections import Counter
from pathlib import Path

import pytest

from rmqstore.append.rocksdb import NewDatabase
from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems.report import problem_counts
from rmqstore.files.rocksdb.rows import MessageRows
from rmqstore.files.store import open_store
from rmqstore.formats.properties import TIMER_TOPIC, UNIQ_KEY, parse_properties
from rmqstore.formats.rocksdbstore import (
    FAMILIES,
    INDEX_FAMILY,
    LAST_OFFSET,
    POSITION,
    POSITION_KEYS,
    TIMELINE,
    TIMER_FAMILY,
    TRANS_FAMILY,
    parse_timer_row,
)
from rmqstore.repair.journal.journal import apply
from rmqstore.repair.recover import plan_recovery
from tests.planning import plan_of
from tests.real_broker.whole_broker import WholeBroker
from tests.repair.salvaging import rows
from tests.rocksdb_rows import need_rocksdict, opened_rows
from tests.stores import copy_store, meta

need_rocksdict()
pytestmark = pytest.mark.slow
VERSIONS = pytest.mark.parametrize("version", ["5.4.0", "5.5.1"])
TOPIC, COUNT = "Later", 3


def repair(store: Path) -> None:
    """Recover a store, and require that nothing is left to repair."""
    apply(plan_of(store))
    again = open_store(store)
    verified = examine(again, VerifyOptions(jobs=1))
    assert problem_counts(verified.report) == {}
    assert plan_recovery(again, verified).steps == ()


def overdue(store: Path) -> set[str]:
    """Return the unique ids of the timed messages that are due by now."""
    found = MessageRows.of(open_store(store))
    assert found is not None
    parsed = [
        parse_timer_row(k, v) for keys, values in found.rows(TIMER_FAMILY) for k, v in zip(keys, values, strict=True)
    ]
    return {row.unique_id for row in parsed if row is not None and row.deliver_time < time.time() * 1000 - 60_000}


def delivered(store: Path) -> Counter[str]:
    """Count the messages of every topic but the timer's, by unique id."""
    messages = [row.message for row in rows(store) if row.message.topic_text != TIMER_TOPIC]
    return Counter(parse_properties(message.properties).get(UNIQ_KEY, "") for message in messages)


@VERSIONS
def test_timed_messages_that_were_due_while_the_broker_was_down(version: str, tmp_path: Path) -> None:
    name = f"{version}-timer-rocksdb-pending"
    conf = meta(name).broker_conf
    found = {}
    for repaired in (False, True):
        store = copy_store(name, tmp_path / str(repaired))
        ids = overdue(store)
        assert ids and not any(delivered(store)[one] for one in ids)
        if repaired:
            repair(store)
        with WholeBroker(version, store, conf):
            time.sleep(25)
        counts = delivered(store)
        found[repaired] = {counts[one] for one in ids}
    assert found == {False: {0}, True: {1}}


def lose_pending_rows(store: Path, folder: Path) -> set[str]:
    """Write rocksdbstore/ again without the rows that are not delivered yet, and return their unique ids.

    A database to which rocksdict has written cannot be opened by a broker.
    """
    found = MessageRows.of(open_store(store))
    assert found is not None
    timeline = found.position(TIMER_FAMILY, TIMELINE) or 0
    new = NewDatabase(folder, FAMILIES)
    gone = set()
    for family in FAMILIES:
        for keys, values in found.chunks(family):
            kept = [(k, v) for k, v in zip(keys, values, strict=True) if not is_pending(family, k, timeline)]
            gone |= {key[8:].decode() for key in keys if is_pending(family, key, timeline)}
            new.put(family, [key for key, _ in kept], [value for _, value in kept])
    new.finish()
    shutil.rmtree(store / "rocksdbstore")
    shutil.copytree(folder, store / "rocksdbstore")
    return gone


def is_pending(family: str, key: bytes, timeline: int) -> bool:
    return family == TIMER_FAMILY and key not in POSITION_KEYS[family] and int.from_bytes(key[:8], "big") >= timeline


@VERSIONS
def test_timed_messages_whose_rows_were_lost(version: str, tmp_path: Path) -> None:
    name = f"{version}-timer-rocksdb"
    conf = meta(name).broker_conf
    found = {}
    for repaired in (False, True):
        store = copy_store(name, tmp_path / str(repaired))
        ids = lose_pending_rows(store, tmp_path / f"{repaired} rows")
        assert len(ids) == 6
        assert not any(delivered(store)[one] for one in ids)
        if repaired:
            repair(store)
        with WholeBroker(version, store, conf):
            time.sleep(40)
        counts = delivered(store)
        found[repaired] = {counts[one] for one in ids}
    assert found == {False: {0}, True: {1}}


def set_last_offset(store: Path, family: str) -> None:
    """Write a position beyond the log, as if its end had been lost."""
    with opened_rows(store / "rocksdbstore") as database:
        database.get_column_family(family)[LAST_OFFSET] = POSITION.build(position=10_000_000)


@VERSIONS
def test_new_half_messages_are_checked_after_the_end_of_the_log_was_lost(version: str, tmp_path: Path) -> None:
    name = f"{version}-trans-rocksdb"
    conf = meta(name).broker_conf
    found = {}
    for repaired in (False, True):
        store = copy_store(name, tmp_path / str(repaired))
        set_last_offset(store, TRANS_FAMILY)
        if repaired:
            repair(store)
        with WholeBroker(version, store, conf) as broker:
            broker.run_java("Later", "half", broker.name_server, TOPIC, str(COUNT))
            broker.run_java("Later", "decide", broker.name_server, "15")
            counts = Counter(message.body_crc for message in broker.read(TOPIC)) if repaired else Counter()
        ours = {zlib.crc32(f"half {n}".encode()) & 0x7FFFFFFF for n in range(COUNT)}
        sound = [row.message for row in rows(store) if row.message.topic == TOPIC.encode()]
        found[repaired] = sorted(m.body_crc for m in sound if m.body_crc in ours)
        assert not repaired or {counts[one] for one in ours} == {1}
    assert found == {False: [], True: sorted(ours)}


@VERSIONS
def test_new_messages_get_index_rows_after_the_end_of_the_log_was_lost(version: str, tmp_path: Path) -> None:
    name = f"{version}-index-rocksdb"
    conf = meta(name).broker_conf
    found = {}
    for repaired in (False, True):
        store = copy_store(name, tmp_path / str(repaired))
        set_last_offset(store, INDEX_FAMILY)
        if repaired:
            repair(store)
        before = index_rows(store)
        with WholeBroker(version, store, conf) as broker:
            broker.produce("Order_11", 5)
        found[repaired] = index_rows(store) - before
    assert found[False] == 0
    assert found[True] >= 5


def index_rows(store: Path) -> int:
    found = MessageRows.of(open_store(store))
    assert found is not None
    return found.count(INDEX_FAMILY)


@VERSIONS
def test_open_half_messages_are_checked_after_their_rows_were_lost(version: str, tmp_path: Path) -> None:
    conf = meta(f"{version}-trans-rocksdb").broker_conf
    found = {}
    for repaired in (False, True):
        store = copy_store(f"{version}-trans-rocksdb", tmp_path / str(repaired))
        with WholeBroker(version, store, conf) as broker:
            broker.run_java("Later", "half", broker.name_server, TOPIC, str(COUNT))
        shutil.rmtree(store / "rocksdbstore")
        if repaired:
            repair(store)
        with WholeBroker(version, store, conf) as broker:
            broker.run_java("Later", "decide", broker.name_server, "20")
        found[repaired] = Counter(row.message.body for row in rows(store) if row.message.topic == TOPIC.encode())
    assert found == {False: {}, True: {f"half {n}".encode(): 1 for n in range(COUNT)}}
