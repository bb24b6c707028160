"""The progress of consumer groups: which file it is read from, and when it is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.checks.beside.config import ConsumerOffsets, QueueProgress
from rmqstore.files.config import Committed
from rmqstore.files.store import open_store
from tests.rocksdb_rows import need_rocksdict, opened_rows
from tests.stores import copy_store


def test_groups_without_an_offset_in_a_queue_are_at_zero(store: Path) -> None:
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@b":{0:4},"T@a":{1:5},"U@c":{0:6}}}')
    offsets = ConsumerOffsets.read(open_store(store))
    assert offsets.of("T", 0) == [QueueProgress("a", 0), QueueProgress("b", 4)]
    assert set(offsets.rows()) == {Committed("T", "b", 0, 4), Committed("T", "a", 1, 5), Committed("U", "c", 0, 6)}


def test_the_file_of_light_message_queues_counts_before_the_plain_one(store: Path) -> None:
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@G":{0:4}}}')
    (store / "config" / "lmqConsumerOffset.json").write_text('{"offsetTable":{"T@G":{0:6}},"lmqOffsetTable":{"L@G":2}}')
    offsets = ConsumerOffsets.read(open_store(store))
    assert (offsets.of("T", 0), offsets.of("L", 0)) == ([QueueProgress("G", 6)], [QueueProgress("G", 2)])


@pytest.mark.parametrize(
    ("broken", "reason"), [(b"{}", ""), (b"{", "config/consumerOffsets has values that no broker reads")]
)
def test_offsets_in_a_rocksdb_count(broken: bytes, reason: str, tmp_path: Path) -> None:
    need_rocksdict()
    store = copy_store("5.4.0-rocksdb", tmp_path)
    with opened_rows(store / "config" / "consumerOffsets") as database:
        rows = database.get_column_family("default")
        rows[b"T@G"] = b'{"offsetTable":{"2":13}}'
        rows[b"T@H"] = broken
    offsets = ConsumerOffsets.read(open_store(store))
    assert (offsets.of("T", 2), offsets.unreadable) == ([QueueProgress("G", 13)], reason)


def test_without_a_file_the_progress_is_unknown(store: Path) -> None:
    for path in (store / "config").glob("consumerOffset.json*"):
        path.unlink()
    assert ConsumerOffsets.read(open_store(store)).unreadable == "there is no readable consumerOffset.json"
    assert ConsumerOffsets.read(open_store(store / "commitlog")).unreadable == "a part of a store has no configuration"
