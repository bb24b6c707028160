"""migrate-to-commitlog: the parts that are migrated, the refusals, and that the source is only read."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from rmqstore.files.files import LOCAL
from rmqstore.formats.message import build_message, parse_message, record_crc
from rmqstore.formats.properties import TIMER_TOPIC, build_properties
from tests.command import run_json
from tests.repair.migrating import migrate, verified
from tests.repair.migration_stores import FILE_SIZE, all_records, dledger_records, end_of, plain_records
from tests.stores import copy_store, meta, sent, unpack, write_broker_conf
from tests.untouched import assert_untouched, tree

BLANK = bytes.fromhex("CBD43194")


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", ["4.9.7-dledger", "5.4.0-dledger-mixed", "5.1.4-dledger-killed", "head_dledger_150"])
def test_every_message_comes_along_and_the_source_is_only_read(name: str, tmp_path: Path) -> None:
    source, output = unpack(name), tmp_path / "plain"
    with assert_untouched(source):
        migrate(source, output, "--peers", "1")
    old, new = all_records(source), list(plain_records(output))
    assert [r.without_address for r in new] == [r.without_address for r in old]
    assert [r.physical_offset for r in new] == [r.address for r in new]
    report = verified(output)
    assert (report["clean"], report["kind"]) == (True, "plain")


def test_no_acknowledged_message_of_a_killed_group_of_one_is_missing(tmp_path: Path) -> None:
    name = "5.4.0-dledger-killed"
    output = tmp_path / "plain"
    conf = write_broker_conf(name, copy_store(name, tmp_path))
    document = migrate(tmp_path / name, output, "-c", str(conf))
    committed = document["committed_index"]
    assert isinstance(committed, int)
    assert committed < 300 < document["last_index"]  # type: ignore[operator]
    assert document["decided_by"] == "a group of one commits what it appends"
    there = set()
    for record in plain_records(output):
        message, _ = parse_message(record.data)
        assert message is not None
        there.add((message.topic_text, message.queue_id, message.queue_offset))
    acknowledged = {(row.topic, row.queue_id, row.queue_offset) for row in sent(name)}
    assert len(acknowledged) > 300
    assert acknowledged <= there


def test_files_end_with_a_blank_where_the_next_record_does_not_fit(tmp_path: Path) -> None:
    output = tmp_path / "plain"
    migrate(unpack("4.9.7-dledger"), output)
    records = list(plain_records(output))
    files = sorted((output / "commitlog").iterdir())
    assert [path.name for path in files] == [f"{i * FILE_SIZE:020d}" for i in range(len(files))]
    for path in files[:-1]:
        start = int(path.name)
        last = max((r for r in records if start <= r.address < start + FILE_SIZE), key=lambda r: r.address)
        following = min((r for r in records if r.address >= start + FILE_SIZE), key=lambda r: r.address)
        at = last.address + len(last.data) - start
        data = path.read_bytes()
        assert data[at : at + 8] == (FILE_SIZE - at).to_bytes(4, "big") + BLANK
        assert data[at + 8 :] == bytes(FILE_SIZE - at - 8)
        assert at + len(following.data) + 8 > FILE_SIZE


def test_references_to_half_messages_follow_them(tmp_path: Path) -> None:
    source, output = unpack("5.4.0-dledger-mixed"), tmp_path / "plain"
    document = migrate(source, output)
    old, new = all_records(source), list(plain_records(output))
    moved = {a.address: b for a, b in zip(old, new, strict=True)}
    referring = [(a, b) for a, b in zip(old, new, strict=True) if a.prepared]
    assert referring
    for before, after in referring:
        assert after.prepared == moved[before.prepared].address
        assert moved[before.prepared].topic == b"RMQ_SYS_TRANS_HALF_TOPIC"
    assert document["unmapped"] == 0


def test_legacy_files_stay_byte_for_byte_and_moved_records_follow_them(tmp_path: Path) -> None:
    source, output = unpack("5.4.0-dledger-mixed"), tmp_path / "plain"
    document = migrate(source, output)
    legacy = sorted((source / "commitlog").iterdir())
    assert document["first_offset"] == int(legacy[-1].name) + FILE_SIZE
    for path in legacy:
        assert (output / "commitlog" / path.name).read_bytes() == path.read_bytes()


def test_id_map_names_the_new_id_of_every_message_that_moved(tmp_path: Path) -> None:
    source, output, ids = unpack("4.9.7-dledger"), tmp_path / "plain", tmp_path / "ids.csv"
    migrate(source, output, "--id-map", str(ids))
    with ids.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["old_msg_id"] for row in rows] == [r.message_id for r in dledger_records(source)]
    assert [row["new_msg_id"] for row in rows] == [r.message_id for r in plain_records(output)]
    acknowledged = {one for row in sent("4.9.7-dledger") for one in (row.offset_msg_id or "").split(",") if one}
    assert acknowledged <= {row["old_msg_id"] for row in rows}


def test_queues_checkpoint_and_configuration_fit_without_the_marks_of_the_old_store(tmp_path: Path) -> None:
    source, output = unpack("5.4.0-dledger-killed"), tmp_path / "plain"
    migrate(source, output, "--peers", "n0-127.0.0.1:1")
    names = {path.name for path in output.iterdir()}
    assert names == {"checkpoint", "commitlog", "config", "consumequeue", "index", "timerwheel"}
    for path in (source / "config").iterdir():
        assert (output / "config" / path.name).read_bytes() == path.read_bytes()
    assert not list(output.glob("dledger-*"))


def _units(store: Path) -> dict[str, list[bytes]]:
    """Return size and tags code of every unit, without its commitlog offset."""
    out = {}
    for directory in sorted((store / "consumequeue").glob("*/*")):
        data = b"".join(path.read_bytes() for path in sorted(directory.iterdir()))
        out[str(directory.relative_to(store))] = [data[i + 8 : i + 20] for i in range(0, len(data), 20)]
    return out


@pytest.mark.parametrize("name", ["4.9.7-dledger", "5.1.4-dledger-mixed"])
def test_units_stand_at_the_same_queue_offsets_with_the_same_tags(name: str, tmp_path: Path) -> None:
    source, output = unpack(name), tmp_path / "plain"
    migrate(source, output)
    assert _units(output) == _units(source)


def test_record_crc_is_recomputed(tmp_path: Path) -> None:
    store = _made_store(tmp_path, [build_message(topic="T", body=b"%d" % i, append_crc=True) for i in range(3)])
    output = tmp_path / "plain"
    migrate(store, output)
    records = list(plain_records(output))
    assert len(records) == 3
    for record in records:
        stored, computed = record_crc(record.data, 0, len(record.data))
        assert stored == computed
        assert record.data.endswith(b"\x02")


def _made_store(tmp_path: Path, bodies: list[bytes], *, queue_offset: int = 0) -> Path:
    """Create a DLedger store with these records as a broker writes them, without queues."""
    from rmqstore.formats.dledger import ENTRY, INDEX_UNIT
    from rmqstore.formats.message import set_record_crc

    store = tmp_path / "made"
    (store / "dledger-n0" / "data").mkdir(parents=True)
    (store / "dledger-n0" / "index").mkdir()
    (store / "config").mkdir()
    data, units = bytearray(), bytearray()
    for number, body in enumerate(bodies):
        pos = len(data)
        record = bytearray(body)
        record[20:28] = (queue_offset + number).to_bytes(8, "big")
        record[28:36] = (pos + 48).to_bytes(8, "big")
        if b"__CRC32#" in record:
            record = bytearray(set_record_crc(bytes(record)))
        size = 48 + len(record)
        head = {"index": number, "term": 1, "pos": pos}
        data += ENTRY.build(magic=1, size=size, channel=0, chain_crc=0, body_crc=0, body_length=len(record), **head)
        data += record
        units += INDEX_UNIT.build(magic=1, size=size, **head)
    (store / "dledger-n0" / "data" / f"{0:020d}").write_bytes(data.ljust(FILE_SIZE, b"\0"))
    with (store / "dledger-n0" / "index" / f"{0:020d}").open("wb") as file:
        file.write(units)
        file.truncate(5242880 * 32)
    last = len(bodies) - 1
    (store / "dledger-n0" / "checkpoint").write_text(f"committedIndex={last}\nendIndex={last}\n")
    (store / "dledger-n0" / "currterm").write_text("currTerm=1\nvoteLeader=n0\n")
    return store


def test_log_begins_one_file_later_where_a_queue_begins_late(tmp_path: Path) -> None:
    """With a log at offset 0, brokers of 5.x would find a wrong minimum among the pre-blanks of such a queue."""
    store = _made_store(tmp_path, [build_message(topic="T", body=b"%d" % i) for i in range(3)], queue_offset=5)
    output = tmp_path / "plain"
    document = migrate(store, output, "-c", str(_sizes(tmp_path)))
    assert document["first_offset"] == FILE_SIZE
    assert [path.name for path in (output / "commitlog").iterdir()] == [f"{FILE_SIZE:020d}"]
    assert verified(output)["queues"] == {"T/0": {"min": 5, "max": 8, "expected_max": 8}}


def _sizes(tmp_path: Path) -> Path:
    config = tmp_path / "broker.conf"
    config.write_text("mappedFileSizeConsumeQueue=2000\nmaxHashSlotNum=100\nmaxIndexNum=400\n")
    return config


# --- there and back -------------------------------------------------------------------------------------------------


def test_migration_to_dledger_and_back_keeps_all_messages(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    migrate(unpack("5.4.0-dledger-mixed"), plain)
    before, last = list(plain_records(plain)), end_of(plain)
    there = run_json("migrate-to-dledger", str(plain), "--self-id", "n0", "--jobs", "1", "--apply", exit_code=0)
    assert there["ready"] is True
    back = tmp_path / "back"
    migrate(plain, back)
    assert list(plain_records(back)) == before
    assert end_of(back)[1] == last[1]
    assert tree(back)["checkpoint"] == tree(plain)["checkpoint"]
    assert verified(back)["clean"] is True


def test_store_that_was_migrated_and_never_started_comes_back(tmp_path: Path) -> None:
    plain = copy_store("4.9.7-before-dledger", tmp_path)
    before = list(plain_records(plain))
    run_json("migrate-to-dledger", str(plain), "--self-id", "n0", "--jobs", "1", "--apply", exit_code=0)
    back = tmp_path / "back"
    document = migrate(plain, back)
    assert (document["entries"], document["legacy_messages"]) == (0, meta("4.9.7-before-dledger").oracle_start.readable)
    assert list(plain_records(back)) == before


# --- timers ---------------------------------------------------------------------------------------------------------


def _with_timers(store: Path, count: int) -> list[int]:
    """Write a timer log with a unit for each of the last messages, and return their offsets."""
    from rmqstore.formats.timer import LOG_UNIT, TIMERCHECK

    records = all_records(store)[-count:]
    units = bytearray()
    for number, record in enumerate(records):
        units += LOG_UNIT.build(
            size=52,
            prev_pos=52 * (number - 1) if number else -1,
            magic=1,
            write_time=1_700_000_000_000,
            delayed_time=1000,
            commitlog_offset=record.address,
            message_size=len(record.data),
            real_topic_hash=7,
            reserved=0,
        )
    (store / "timerlog").mkdir()
    (store / "timerlog" / f"{0:020d}").write_bytes(units.ljust(5200, b"\0"))
    check = {"last_read_time": 1, "last_timer_log_flush_pos": len(units), "last_timer_queue_offset": count}
    rest = {"master_timer_queue_offset": count, "state_version": 0, "timestamp": 0, "counter": 0}
    (store / "config" / "timercheck").write_bytes(TIMERCHECK.build(**check, **rest).ljust(4096, b"\0"))
    return [record.address for record in records]


def _timer_addresses(store: Path) -> list[int]:
    from rmqstore.formats.timer import LOG_UNIT

    data = (store / "timerlog" / f"{0:020d}").read_bytes()
    assert len(data) == 5200
    rows = [LOG_UNIT.parse(data, at) for at in range(0, len(data), 52)]
    return [row["commitlog_offset"] for row in rows if row["size"] == 52]


def _timer_store(tmp_path: Path) -> Path:
    needed = build_properties({"REAL_TOPIC": "Orders", "REAL_QID": "0", "TIMER_OUT_MS": "1795245023000"})
    timed = [build_message(topic=TIMER_TOPIC, body=b"%d" % i, properties=needed) for i in range(5)]
    return _made_store(tmp_path, timed)


def test_timer_log_follows_its_messages(tmp_path: Path) -> None:
    store = _timer_store(tmp_path)
    old = _with_timers(store, 5)
    output = tmp_path / "plain"
    migrate(store, output)
    new = [record.address for record in plain_records(output)]
    assert _timer_addresses(store) == old
    assert _timer_addresses(output) == new
    assert (output / "config" / "timercheck").read_bytes() == (store / "config" / "timercheck").read_bytes()


def test_timer_log_is_cut_where_messages_did_not_come_along(tmp_path: Path) -> None:
    from rmqstore.formats.timer import TIMERCHECK

    store = _timer_store(tmp_path)
    _with_timers(store, 5)
    (store / "dledger-n0" / "checkpoint").write_text("committedIndex=2\nendIndex=4\n")
    output = tmp_path / "plain"
    document = migrate(store, output, "--only-committed")
    assert _timer_addresses(output) == [record.address for record in plain_records(output)]
    assert len(_timer_addresses(output)) == 3
    check = TIMERCHECK.parse((output / "config" / "timercheck").read_bytes())
    assert (check["last_timer_log_flush_pos"], check["last_timer_queue_offset"]) == (156, 3)
    assert "the timer log was cut at 156" in json.dumps(document["notes"])


# --- units and index entries of many records at once ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["5.4.0-formats", "5.1.4-formats", "5.4.0-clean", "4.9.7-ipv6"])
def test_queues_and_index_in_bulk_equal_those_of_the_broker(name: str, tmp_path: Path) -> None:
    """Batch and light queues, V2, delayed messages, IPv6: the same units and index entries at the same places."""
    from rmqstore.append.bulk import BulkDispatch, DispatchChunk
    from rmqstore.append.dispatch import Dispatcher, DispatchOptions
    from rmqstore.append.index import IndexService
    from rmqstore.files.config import batch_topics, configured_types
    from rmqstore.files.store import open_store
    from rmqstore.scan.records import scan_file
    from rmqstore.scan.tiling import Kind

    store = open_store(unpack(name))
    topics = batch_topics(store, configured_types(LOCAL, store.root))
    options = DispatchOptions(2000, 4600, tag_key=name.startswith("5.4"), lmq=True, batch_topics=topics)
    made = Dispatcher(tmp_path / "new", options, IndexService(tmp_path / "new" / "index", 100, 400))
    built = BulkDispatch(made)
    assert store.commitlog is not None
    for file in store.commitlog.files:
        for found in scan_file(file):
            if found.kind is Kind.RECORDS and found.columns is not None:
                numbers, _ = built.states(found.columns)
                built.dispatch(DispatchChunk(found.columns, found.columns.offset.copy(), numbers))
    for queue in made.files():
        queue.queue.flush()
        queue.queue.close()
    made.index.flush()
    made.index.close()
    for tree_name in ("consumequeue", "batchconsumequeue"):
        new, old = tmp_path / "new" / tree_name, unpack(name) / tree_name
        assert _queue_bytes(new) == _queue_bytes(old)
    files = [sorted((root / "index").iterdir()) for root in (tmp_path / "new", unpack(name))]
    assert [a.read_bytes() for a in files[0]] == [b.read_bytes() for b in files[1]]


def _queue_bytes(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every queue up to its last unit; queues without units are left out."""
    out = {}
    for directory in sorted(folder.glob("*/*")):
        data = b"".join(path.read_bytes() for path in sorted(directory.iterdir())).rstrip(b"\0")
        if data:
            out[f"{directory.relative_to(folder)}:{min(path.name for path in directory.iterdir())}"] = data
    return out


def test_a_log_on_several_paths_comes_along_into_one(tmp_path: Path) -> None:
    store, output = copy_store("5.4.0-dledger", tmp_path), tmp_path / "plain"
    data, other = store / "dledger-n0" / "data", store / "d2"
    other.mkdir()
    for path in sorted(data.iterdir())[1::2]:
        path.rename(other / path.name)
    conf = write_broker_conf("5.4.0-dledger", store, storePathDLedgerCommitLog=f"{data},{other}")
    words = ("migrate-to-commitlog", str(store), "-c", str(conf), "--output", str(output), "--jobs", "1")
    document = run_json(*words, exit_code=0)
    assert document["entries"] == document["messages"] == len(list(dledger_records(unpack("5.4.0-dledger"))))
    assert document["notes"] == []
    assert run_json("verify", str(output), "--jobs", "1", exit_code=0)["clean"] is True
