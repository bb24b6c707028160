"""The oracle still reads what it read when the fixtures were created, so its other results can be trusted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.damage import flip
from tests.real_broker.oracle import Oracle
from tests.stores import Queue, Reading, copy_store, meta, unpack

SAMPLE = (
    "4.9.7-clean",
    "4.9.7-dledger-mixed",
    "5.1.4-killed",
    "5.4.0-formats",
    "5.4.0-rocksdb",
    "5.4.0-dledger",
    "5.5.1-rocksdb-separate",
)


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", SAMPLE)
def test_oracle_reads_what_was_recorded(name: str, tmp_path: Path, oracle: Callable[[str], Oracle]) -> None:
    made = meta(name)
    result = oracle(made.version).load(copy_store(name, tmp_path), made.oracle_args)
    assert result.crash is None
    assert result.unknown_settings == ()
    seen = Reading(
        load=result.load,
        min_phy=result.min_phy,
        max_phy=result.max_phy,
        queues={key: Queue(q.min, q.max, q.readable, q.first_bad) for key, q in result.queues.items()},
        offsets=result.offsets,
        readable=result.readable,
    )
    assert seen == made.oracle_load


def test_oracle_starts_and_shuts_down_a_killed_store(tmp_path: Path, oracle: Callable[[str], Oracle]) -> None:
    made = meta("5.4.0-killed")
    store = copy_store(made.name, tmp_path)
    assert (store / "abort").exists()
    result = oracle("5.4.0").load(store, made.oracle_args, start=True, shutdown=True)
    assert (result.max_phy, result.readable) == (made.oracle_start.max_phy, made.oracle_start.readable)
    assert result.shutdown == "clean"
    assert not (store / "abort").exists()


def test_oracle_lists_every_message(tmp_path: Path, oracle: Callable[[str], Oracle]) -> None:
    made = meta("4.9.7-clean")
    result = oracle("4.9.7").load(copy_store(made.name, tmp_path), made.oracle_args, list=True)
    assert sum(len(queue.messages) for queue in result.queues.values()) == made.oracle_load.readable
    assert [message.queue_offset for message in result.queues["Order_11/0"].messages] == list(range(41))


def test_oracle_names_the_offset_of_a_flipped_body(tmp_path: Path, oracle: Callable[[str], Oracle]) -> None:
    made = meta("5.4.0-clean")
    whole = oracle("5.4.0").load(copy_store(made.name, tmp_path / "whole"), made.oracle_args, list=True)
    message = whole.queues["Order_11/0"].messages[5]
    store = copy_store(made.name, tmp_path / "damaged")
    size = int(made.settings["mappedFileSizeCommitLog"])
    file = store / "commitlog" / f"{message.commitlog_offset // size * size:020}"
    flip(file, message.commitlog_offset % size + 100)
    queue = oracle("5.4.0").load(store, made.oracle_args).queues["Order_11/0"]
    assert (queue.readable, queue.first_bad, queue.why) == (queue.max - 1, 5, ("5:body crc",))


def test_oracle_refuses_a_master_copy() -> None:
    with pytest.raises(ValueError, match="master copy"):
        Oracle("5.4.0").load(unpack("5.4.0-clean"))
