"""The real store accepts salvaged logs: it reads all other messages, and every queue keeps its end."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rmqstore.checks.problems import codes
from rmqstore.formats.message import COMPRESSED, HEAD
from tests import damage
from tests.command import run_json
from tests.real_broker.oracle import Oracle, OracleResult
from tests.real_broker.oracle_server import OracleServers
from tests.real_broker.reading import UNIT
from tests.repair.salvaging import Row, rows, shrink
from tests.stores import VERSIONS, copy_store, meta, write_broker_conf

FULL_SCAN = {"commitLogRecoverMaxNum": 1000}


def files_of(found: list[Row]) -> list[Path]:
    return sorted({row.path for row in found})


def flips(store: Path, found: list[Row]) -> None:
    """Flip one bit in each of twelve records, alternately in header and body, except FLAG, times and hosts."""
    noise = random.Random(store.name)
    covered = [*range(16), *range(20, 36)]
    for i, row in enumerate(found[10 : len(found) - 10 : len(found) // 12]):
        damage.flip(row.path, row.at + (noise.choice(covered) if i % 2 else 88), noise.randrange(8))


def pages(store: Path, found: list[Row]) -> None:
    """Zero pages with several records in three files."""
    for number, path in enumerate(files_of(found)[1:4]):
        damage.zero(path, (3 + number) * 8192, 4096 * (1 + number))


def starts_and_ends(store: Path, found: list[Row]) -> None:
    """Garble the start of two files, and zero the last records and the BLANK of two others."""
    paths = files_of(found)
    for path in paths[1:3]:
        damage.garble(path, 0, 700)
    for path in paths[3:5]:
        last = [row for row in found if row.path == path][-2]
        damage.zero(path, last.at + 50, path.stat().st_size - last.at - 50)


def blanks(store: Path, found: list[Row]) -> None:
    """Damage the BLANKs of three files."""
    for path in files_of(found)[1:4]:
        end = max(row.stop for row in found if row.path == path)
        damage.garble(path, end, 8)


def short(store: Path, found: list[Row]) -> None:
    """Shorten records in three files, and one before a BLANK: the garbage after them is too short for a record."""
    whole = [row for row in found if not row.message.sys_flag & COMPRESSED]  # half of a compressed body is damage, too
    for number, path in enumerate(files_of(found)[1:4]):
        long = [row for row in whole if row.path == path and len(row.message.body) > 200]
        shrink(long[5 + number], 50 + 20 * number)
    last = {path: [row for row in found if row.path == path][-1] for path in files_of(found)[:-1]}
    shrink([row for row in last.values() if row in whole and len(row.message.body) > 50][-1], 40)


def read_all(servers: OracleServers, version: str, store: Path, settings: Mapping[str, str]) -> OracleResult:
    """Read a store as after a crash with a lost checkpoint, so that the whole log is scanned.

    This is not for DLedger: after a crash, 5.4.0 leaves out the last units even of an undamaged store.
    """
    if (store / "commitlog").exists():
        (store / "abort").touch()
        (store / "checkpoint").write_bytes(bytes(4096))
    more = FULL_SCAN if version >= "5.4.0" else {}
    return servers.load(version, store, {**settings, **more})


SAMPLE = {("4.9.7-clean", pages), ("5.4.0-clean", starts_and_ends), ("5.4.0-dledger", flips), ("5.1.4-clean", short)}


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize(
    ("name", "break_it"),
    [
        pytest.param(name, how, marks=() if (name, how) in SAMPLE else pytest.mark.slow, id=f"{name}-{how.__name__}")
        for name in [f"{version}-{kind}" for version in VERSIONS for kind in ("clean", "dledger")]
        for how in (flips, pages, starts_and_ends, blanks, short)
    ],
)
def test_real_store_reads_all_that_was_not_hit(
    name: str, break_it: Callable[[Path, list[Row]], None], tmp_path: Path, oracle_servers: OracleServers
) -> None:
    made = meta(name)
    store = copy_store(name, tmp_path)
    break_it(store, rows(store))
    options = ("--merge-neighbours",) if break_it is short else ()
    # if zeros hit only a record's properties, the message stays, and its unit shows that its tag was different
    tags_gone = break_it is pages and name in ("5.1.4-dledger", "5.4.0-dledger")
    done = run_json("recover", str(store), *options, "--apply", exit_code=1 if tags_gone else 0)
    assert done["remaining"] == {"counts": {codes.CQ_WRONG_TAG: 2} if tags_gone else {}}
    result = read_all(oracle_servers, made.version, store, made.oracle_args)
    assert (result.load, result.crash) == (True, None)
    assert {queue: reading.why for queue, reading in result.queues.items() if reading.bad} == {}
    ends = {queue: (reading.min, reading.max, reading.readable) for queue, reading in result.queues.items()}
    expected = {q: (r.min, r.max, r.readable) for q, r in made.oracle_start.queues.items()}
    assert ends == expected
    assert result.max_phy == made.oracle_start.max_phy


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("expired", [0, 2])
@pytest.mark.parametrize(
    "version",
    ["4.9.7", "5.1.4", pytest.param("5.4.0", marks=pytest.mark.slow), pytest.param("5.5.1", marks=pytest.mark.slow)],
)
def test_queue_offset_without_message_hides_and_moves_no_other_message(
    version: str, expired: int, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    """This includes a consumer that pulls many messages from the log's first file, and an expired first file."""
    made = meta(f"{version}-clean")
    store = copy_store(made.name, tmp_path)
    found = [r for r in rows(store) if r.message.topic_text == "Order_11" and r.message.queue_offset > 3]
    row = found[80 if expired else 1]
    topic, queue_id, offset = row.slot
    for bit in (2, 3):  # now a rollback record, which is in no queue
        damage.flip(row.path, row.at + HEAD.at("sys_flag") + 3, bit)
    damage.zero(row.path, row.at + HEAD.at("queue_offset"), 8)  # as brokers write it there
    damage.zero(store / "consumequeue" / topic / str(queue_id) / f"{0:020}", offset * UNIT, UNIT)
    for path in sorted((store / "commitlog").iterdir())[:expired]:
        path.unlink()
    run_json("recover", str(store), "--accept-shift", "--apply", exit_code=1)
    low = min(r.slot[2] for r in rows(store) if r.slot[:2] == (topic, queue_id) and r.offset != row.offset)
    for _ in range(2):  # every start searches for the minimum again
        result = oracle(version).load(store, made.oracle_args, start=True, shutdown=True, pull=32)
        assert (result.load, result.crash) == (True, None)
        reading, before = result.queues[f"{topic}/{queue_id}"], made.oracle_start.queues[f"{topic}/{queue_id}"]
        assert (reading.min, reading.max, reading.first_bad, reading.bad) == (low, before.max, offset, 1)
        again = [offset - 1 if at == offset else at for at in range(low, before.max)]
        assert list(reading.pulled) == again  # the previous message is returned twice


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("gone", ["", "dledger-n0/index consumequeue"])
@pytest.mark.parametrize("version", [*(pytest.param(v, marks=pytest.mark.slow) for v in VERSIONS[:-1]), VERSIONS[-1]])
def test_lost_file_of_dledger_entries_is_one_of_fillers_then(
    version: str, gone: str, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    made = meta(f"{version}-dledger")
    store = copy_store(made.name, tmp_path)
    sorted((store / "dledger-n0" / "data").iterdir())[2].unlink()
    for folder in gone.split():
        shutil.rmtree(store / folder)
    options = ("--accept-fillers", "-c", str(write_broker_conf(made.name, store)))
    run_json("recover", str(store), *options, "--apply", exit_code=0)
    result = oracle_servers.load(version, store, made.oracle_args)
    assert (result.load, result.crash) == (True, None)
    ends = {queue: (reading.min, reading.max, reading.readable) for queue, reading in result.queues.items()}
    assert ends == {q: (r.min, r.max, r.readable) for q, r in made.oracle_start.queues.items()}
    assert result.max_phy == made.oracle_start.max_phy


@pytest.mark.parametrize("version", [pytest.param(v, marks=pytest.mark.slow) for v in VERSIONS])
def test_a_group_member_that_lost_a_file_ends_there_and_starts(
    version: str, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    made = meta(f"{version}-dledger")
    store = copy_store(made.name, tmp_path)
    hole = sorted((store / "dledger-n0" / "data").iterdir())[2]
    cut = int(hole.name)
    kept = [row for row in rows(store) if row.offset < cut]
    hole.unlink()
    options = ("-c", str(write_broker_conf(made.name, store)), "--role", "dledger-group")
    plan = run_json("recover", str(store), *options, exit_code=1)
    done = run_json("recover", str(store), *options, "--apply", "--force", str(plan["digest"]), exit_code=0)
    assert done["strategy"] == "truncate"
    result = oracle_servers.load(version, store, made.oracle_args)
    assert (result.load, result.crash, result.max_phy) == (True, None, kept[-1].offset + kept[-1].size)
    assert {queue: reading.why for queue, reading in result.queues.items() if reading.bad} == {}
    assert sum(reading.readable for reading in result.queues.values()) == len(kept)


@pytest.mark.parametrize("version", ["5.1.4", pytest.param("5.5.1", marks=pytest.mark.slow)])
def test_last_message_of_a_queue_that_only_a_consumer_knows_keeps_the_queues_end(
    version: str, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    made = meta(f"{version}-clean")
    store = copy_store(made.name, tmp_path)
    found = rows(store)
    last = {row.slot[:2]: row for row in found}
    row = next(r for name, r in last.items() if name[0] == "Order_11" and r.offset < found[-10].offset)
    damage.garble(row.path, row.at, row.size)
    shutil.rmtree(store / "consumequeue" / "Order_11")
    options = ("-c", str(write_broker_conf(made.name, store)))
    run_json("recover", str(store), *options, "--apply", exit_code=0)
    result = oracle_servers.load(made.version, store, made.oracle_args)
    assert (result.load, result.crash) == (True, None)
    ends = {queue: (reading.min, reading.max, reading.readable) for queue, reading in result.queues.items()}
    assert ends == {q: (r.min, r.max, r.readable) for q, r in made.oracle_start.queues.items()}
