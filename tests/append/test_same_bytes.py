"""Appending the messages of real stores again creates the same files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore.append.message_store import MessageStore
from rmqstore.files.store import open_store
from rmqstore.formats.checkpoint import parse_checkpoint
from rmqstore.formats.dledger import BODY_OFFSET
from tests.append.rewriting import again, index_bytes, log_bytes, messages_of, options_like, queue_bytes
from tests.planning import log_of
from tests.stores import meta, unpack

CLEAN = (
    "4.9.7-clean",
    "5.1.4-clean",
    "5.4.0-clean",
    "5.1.4-formats",
    "5.4.0-formats",
    "4.9.7-ipv6",
    "5.4.0-ipv6",
    "5.4.0-master",
)


def rewrite(name: str, target: Path) -> tuple[Path, Path]:
    """Append all messages of a fixture to a new store, which assigns the queue offsets; return the paths of both."""
    source = unpack(name)
    store = open_store(source)
    assert store.commitlog is not None
    options = options_like(source, dict(meta(name).settings), meta(name).version, start=store.commitlog.start)
    with MessageStore.create(target, options) as writer:
        for message in messages_of(store.commitlog):
            put = writer.put(again(message, append_crc=options.limits.append_crc))
            assert (put.offset, put.queue_offset) == (message.physical_offset, message.queue_offset)
            assert put.message_id == message.offset_message_id()
    return source, target


@pytest.mark.parametrize("name", CLEAN)
def test_a_real_store_appended_again_has_the_same_log_queues_and_index(name: str, tmp_path: Path) -> None:
    source, target = rewrite(name, tmp_path / "store")
    was, now = open_store(source), open_store(target)
    assert was.commitlog is not None and now.commitlog is not None
    assert log_bytes(now.commitlog) == log_bytes(was.commitlog)
    assert queue_bytes(target) == queue_bytes(source)
    assert index_bytes(target) == index_bytes(source)


def test_the_checkpoint_of_a_closed_store_names_its_last_message(tmp_path: Path) -> None:
    source, target = rewrite("5.4.0-clean", tmp_path / "store")
    log = log_of(source)
    last = list(messages_of(log))[-1].store_timestamp
    point = parse_checkpoint((target / "checkpoint").read_bytes())
    real = parse_checkpoint((source / "checkpoint").read_bytes())
    assert (point.physic_msg_timestamp, point.logics_msg_timestamp) == (last, last)
    assert point.index_msg_timestamp == real.index_msg_timestamp
    assert not (target / "abort").exists()
    assert (target / "lock").read_bytes() == b"lock"


def test_a_killed_store_appended_again_continues_what_the_broker_had_dispatched(tmp_path: Path) -> None:
    source, target = rewrite("5.4.0-killed", tmp_path / "store")
    was, now = queue_bytes(source), queue_bytes(target)
    assert was.keys() <= now.keys()
    for name, data in was.items():
        assert now[name].startswith(data.rstrip(b"\0"))


@pytest.mark.parametrize(
    ("name", "term"), [("4.9.7-dledger", 0), ("5.1.4-dledger", 0), ("5.4.0-dledger", 0), ("5.4.0-dledger3-n0", 1)]
)
def test_a_real_dledger_store_appended_again_has_the_same_entries_units_and_texts(
    name: str, term: int, tmp_path: Path
) -> None:
    source, target = unpack(name), tmp_path / "store"
    group = open_store(source).dledger
    assert group is not None
    options = options_like(source, dict(meta(name).settings), meta(name).version, start=group.data.start)
    with MessageStore.create(target, replace(options, dledger=group.self_id, term=term)) as writer:
        for message in messages_of(group.data, BODY_OFFSET):
            put = writer.put(again(message))
            assert (put.offset, put.queue_offset) == (message.physical_offset, message.queue_offset)
    made = open_store(target).dledger
    assert made is not None
    assert log_bytes(made.data, BODY_OFFSET) == log_bytes(group.data, BODY_OFFSET)
    for queue, file in ((made.index, group.index.files[0]), (group.index, made.index.files[0])):
        assert queue.files[0].length == file.length
    assert made.index.pread(1 << 20, 0) == group.index.pread(1 << 20, 0)
    for text in ("checkpoint", "currterm"):
        assert (made.directory / text).read_bytes() == (group.directory / text).read_bytes()
    assert queue_bytes(target) == queue_bytes(source)
    assert index_bytes(target) == index_bytes(source)
