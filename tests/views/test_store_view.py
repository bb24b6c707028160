"""A store as Python objects, compared with `dump` of the same store."""

from __future__ import annotations

import base64
import itertools
from datetime import UTC, datetime
from pathlib import Path

import pytest

import rmqstore
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.formats.consumequeue import UNIT
from rmqstore.formats.message import Fault
from tests.damage import flip
from tests.stores import copy_store, unpack

STORES = ("5.4.0-killed", "4.9.7-dledger", "5.4.0-dledger-mixed", "5.1.4-formats", "4.9.7-ipv6")


def rows(store: rmqstore.Store, **filters: object) -> list[dict[str, object]]:
    return list(rmqstore.dump_messages(store, rmqstore.Selection(**filters), body="base64"))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", STORES)
def test_messages_have_the_fields_of_dump(name: str) -> None:
    store = rmqstore.open(unpack(name))
    count = 0
    for message, row in itertools.zip_longest(store.messages(), rows(store)):
        count += 1
        names: tuple[str, ...] = (
            "offset",
            "topic",
            "queue_id",
            "queue_offset",
            "store_timestamp",
            "born_timestamp",
            "born_host",
        )
        names += ("store_host", "properties", "tags", "msg_id", "unique_key")
        assert {name: getattr(message, name) for name in names} == {name: row[name] for name in names}
        assert message.keys == str(row["keys"] or "").split()
        assert message.body == base64.b64decode(str(row["body_base64"]))
        assert message.sound
    assert count > 100


def test_filters_select_the_messages_that_dump_selects() -> None:
    store = rmqstore.open(unpack("5.4.0-killed"))
    everything = list(store.messages())
    middle = everything[len(everything) // 2]
    tag = next(m.tags for m in everything if m.tags)
    key = next(m.keys[0] for m in everything if m.keys)
    since = middle.store_time
    chosen: list[tuple[list[rmqstore.StoredMessage], list[rmqstore.StoredMessage]]] = [
        (list(store.messages(topic=middle.topic)), [m for m in everything if m.topic == middle.topic]),
        (
            list(store.messages(middle.topic, [0, 1])),
            [m for m in everything if m.topic == middle.topic and m.queue_id < 2],
        ),
        (list(store.messages(tag=tag)), [m for m in everything if m.tags == tag]),
        (list(store.messages(key=[key])), [m for m in everything if key in m.keys]),
        (list(store.messages(since=since)), [m for m in everything if m.store_timestamp >= middle.store_timestamp]),
        (list(store.messages(until=since)), [m for m in everything if m.store_timestamp < middle.store_timestamp]),
        (list(store.messages(reverse=True, limit=3)), everything[:-4:-1]),
    ]
    for found, expected in chosen:
        assert [m.offset for m in found] == [m.offset for m in expected]
        assert found


@pytest.mark.parametrize("name", ["5.4.0-killed", "5.4.0-dledger", "5.4.0-dledger-mixed"])
def test_one_message_is_found_by_every_address(name: str) -> None:
    store = rmqstore.open(unpack(name))
    message = next(m for m in store.messages() if m.unique_key and m.keys)
    assert message.offset is not None
    assert message.unique_key is not None
    place = f"{message.topic}/{message.queue_id}/{message.queue_offset}"
    for where in (message.offset, str(message.offset), message.msg_id, place):
        assert store.message(where) == message, where
    copies = [m for m in store.messages() if m.unique_key == message.unique_key]  # a retry keeps the unique key
    assert store.message(message.unique_key) in copies
    assert store.message("no such key") is None


def test_an_address_that_is_no_number_names_no_message() -> None:
    assert rmqstore.open(unpack("5.4.0-clean")).message("²") is None


@pytest.mark.parametrize("name", ["5.4.0-killed", "5.4.0-dledger", "5.4.0-formats", "5.4.0-rocksdb"])
def test_a_queue_is_a_sequence_of_its_messages(name: str) -> None:
    if name.endswith("rocksdb"):
        pytest.importorskip("rocksdict")
    store = rmqstore.open(unpack(name))
    first = next(m for m in store.messages() if not m.topic.startswith(("RMQ_SYS", "SCHEDULE", "rmq_sys", "%")))
    own = list(store.messages(topic=first.topic, queue=first.queue_id))
    queue = store.queue(first.topic, first.queue_id)
    assert (queue.min, queue.max, len(queue)) == (own[0].queue_offset, own[-1].queue_offset + 1, len(own))
    assert [m.offset for m in queue] == [m.offset for m in own]
    assert queue[queue.min + 1].record == own[1].record
    assert [m.offset for m in queue[1:4]] == [m.offset for m in own[1:4]]
    times = [m.store_timestamp for m in own]
    wanted = times[len(times) // 2]
    assert queue.at_time(wanted) == own[times.index(wanted)].queue_offset
    assert queue.at_time(times[-1] + 1) == queue.max
    for outside in (queue.max, -1):
        with pytest.raises(IndexError):
            queue[outside]


@pytest.mark.parametrize("name", ["5.4.0-killed", "5.4.0-formats", "5.4.0-rocksdb"])
def test_a_queue_lists_directories_and_reads_batch_files_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name.endswith("rocksdb"):
        pytest.importorskip("rocksdict")
    queue = rmqstore.open(unpack(name)).queue("BatchCq_11" if name == "5.4.0-formats" else "Order_11", 1)
    assert queue[queue.min].sound
    listed: list[Path] = []
    read = 0

    def counted(file: MappedFile, size: int, at: int) -> bytes:
        nonlocal read
        data = read_at(file, size, at)
        read += len(data)
        return data

    read_at = MappedFile.read_at
    monkeypatch.setattr("os.scandir", listed.append)
    monkeypatch.setattr(MappedFile, "read_at", counted)
    messages = list(queue)
    assert (listed, len(messages)) == ([], len(queue))
    assert read <= sum(m.record.size + 4 + UNIT.size for m in messages)


def test_an_unknown_queue_is_an_error() -> None:
    with pytest.raises(LookupError, match="no queue Order/99"):
        len(rmqstore.open(unpack("5.4.0-clean")).queue("Order", 99))


def test_a_message_with_a_wrong_body_is_marked(tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    message = next(m for m in rmqstore.open(root).messages() if m.record.body_length > 50)
    assert message.offset is not None
    at = message.offset + 84 + 30
    file = rmqstore.open(root).commitlog.find(at)  # type: ignore[union-attr]
    assert file is not None
    flip(file.path, at - file.start)
    damaged = [m for m in rmqstore.open(root).messages() if not m.sound]
    assert [(m.offset, m.fault) for m in damaged] == [(message.offset, Fault.BODY_CRC)]


def test_times_are_texts_milliseconds_or_datetimes_with_a_zone() -> None:
    store = rmqstore.open(unpack("5.4.0-clean"))
    count = len(list(store.messages()))
    early = datetime(2020, 1, 1, tzinfo=UTC)
    for since in (early, "2020-01-01T00:00:00Z", 1577836800000):
        assert len(list(store.messages(since=since))) == count
    with pytest.raises(ValueError, match="has no zone"):
        next(store.messages(since=early.replace(tzinfo=None)))
    with pytest.raises(ValueError, match="digits"):
        next(store.messages(since="123"))


def test_one_text_where_several_are_expected_is_an_error() -> None:
    with pytest.raises(TypeError, match="topics is a set of strings"):
        rmqstore.Selection(topics="Order")  # type: ignore[arg-type]
    with pytest.raises(rmqstore.RmqStoreError, match="keys must be a list of strings"):
        rmqstore.NewMessage("Order", b"", keys="42")


def test_a_record_is_parsed_from_its_bytes() -> None:
    store = rmqstore.open(unpack("5.4.0-clean"))
    message = next(store.messages())
    assert store.commitlog is not None
    assert message.offset is not None
    parsed = rmqstore.parse_message(store.commitlog.pread(message.record.size, message.offset))
    assert parsed.record == message.record
    assert parsed.offset is None
    with pytest.raises(rmqstore.RmqStoreError, match="no record at the start of 16 bytes"):
        rmqstore.parse_message(b"no record at all")


@pytest.mark.parametrize("dledger", [None, "n0"])
def test_messages_that_were_put_are_read_as_python_values(dledger: str | None, tmp_path: Path) -> None:
    options = rmqstore.StoreOptions(commitlog_file_size=1 << 20, dledger=dledger)
    with rmqstore.open_writable(tmp_path / "new", options, create=True) as new:
        new.put(rmqstore.NewMessage("Order", b"one", tags="paid", keys=["42", "43"], properties={"a": "b"}))
        new.put(rmqstore.NewMessage("Order", b"two", b"a\x01b\x02", tags="paid"))
    with rmqstore.open_writable(tmp_path / "new", rmqstore.StoreOptions(dledger=dledger)) as again:
        again.put(rmqstore.NewMessage("Order", b"three"))
    store = rmqstore.open(tmp_path / "new")
    found = [(m.body, m.tags, m.keys, m.properties.get("a")) for m in store.messages()]
    assert found == [(b"one", "paid", ["42", "43"], "b"), (b"two", "paid", [], "b"), (b"three", None, [], None)]
    assert rmqstore.verify(store).clean


def test_a_store_describes_itself() -> None:
    root = unpack("5.4.0-dledger")
    assert repr(rmqstore.open(root)) == f"<rmqstore store {str(root)!r}: dledger>"


@pytest.mark.parametrize("name", ["5.4.0-killed", "5.4.0-dledger-mixed"])
def test_a_table_has_the_rows_and_columns_of_an_export(name: str) -> None:
    pytest.importorskip("pyarrow")
    store = rmqstore.open(unpack(name))
    table = store.table().to_arrow()
    messages = list(store.messages())
    assert table.column("body").to_pylist() == [m.body for m in messages]
    assert table.column("msg_id").to_pylist() == [m.msg_id for m in messages]
    assert table.column("store_timestamp").to_pylist() == [m.store_time for m in messages]
    assert [dict(pairs) for pairs in table.column("properties").to_pylist()] == [m.properties for m in messages]
    topic = messages[0].topic
    chosen = store.table(topic=topic, limit=3, body=False).to_arrow()
    assert chosen.column("queue_offset").to_pylist() == [m.queue_offset for m in messages if m.topic == topic][:3]
    assert "body" not in chosen.column_names
    assert store.table(topic="no such topic").to_arrow().num_rows == 0


@pytest.mark.parametrize("tool", ["pandas", "polars"])
def test_a_table_is_a_frame_of_pandas_or_polars(tool: str) -> None:
    pytest.importorskip(tool)
    store = rmqstore.open(unpack("5.4.0-clean"))
    frame = getattr(store.table(topic="Order_11"), f"to_{tool}")()
    assert len(frame) == len(list(store.messages(topic="Order_11")))
    assert list(frame["queue_id"]) == [m.queue_id for m in store.messages(topic="Order_11")]
