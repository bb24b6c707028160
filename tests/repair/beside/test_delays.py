"""The offsets of delay levels, computed from the delivered messages in the log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from rmqstore.files.config import delay_offsets, loaded_config
from rmqstore.files.store import open_store
from rmqstore.repair.beside.delays import Level, delivered_levels
from rmqstore.repair.repaired_log import RepairedLog
from tests import damage
from tests.command import run_json
from tests.repair.salvaging import rows
from tests.rocksdb_rows import need_rocksdict
from tests.stores import BROKER_STORES, copy_store, unpack

_CLEAN = [name for name in BROKER_STORES if "killed" not in name and "slave" not in name and "n2" not in name]


def _levels(path: Path) -> dict[int, Level]:
    store = open_store(path)
    results = examine(store, VerifyOptions(jobs=1)).results
    return delivered_levels([RepairedLog(result, result.queue.stop, store.files) for result in results])


@pytest.mark.quick_rows(6)
@pytest.mark.parametrize("name", _CLEAN)
def test_the_log_shows_the_offsets_that_a_broker_saved_at_its_end(name: str) -> None:
    if "rocksdb" in name:
        need_rocksdict()
    store = open_store(unpack(name))
    saved = loaded_config(store.files, store.root, "delayOffset.json", delay_offsets) or {}
    found = {queue_id: level.next_offset for queue_id, level in _levels(unpack(name)).items()}
    assert {queue_id: at for queue_id, at in found.items() if at} == {q: at for q, at in saved.items() if at}
    assert {level.again for level in _levels(unpack(name)).values()} <= {0}


def test_no_message_is_left_out_after_a_copy_that_is_missing() -> None:
    level = Level()
    for at in range(5):
        level.add(at)
    for at in (0, 2, 3):
        level.deliver(at)
    assert (level.next_offset, level.again) == (1, 2)
    level.deliver(1)
    assert (level.next_offset, level.again) == (4, 0)
    level.deliver(4)
    assert (level.next_offset, level.again) == (5, 0)


def test_a_damaged_copy_is_delivered_again_and_the_plan_says_how_many_follow(tmp_path: Path) -> None:
    store = copy_store("5.4.0-formats", tmp_path)
    copies = [
        row for row in rows(store) if b"REAL_TOPIC\1" + row.message.topic + b"\2" in row.message.properties + b"\2"
    ]
    damage.garble(copies[0].path, copies[0].at, copies[0].size)
    for name in ("delayOffset.json", "delayOffset.json.bak"):
        (store / "config" / name).unlink(missing_ok=True)
    done = run_json("recover", str(store), "--apply", exit_code=0)
    saved = json.loads((store / "config" / "delayOffset.json").read_text().replace("1:", '"1":').replace("3:", '"3":'))
    assert saved["offsetTable"] == {"1": 0, "3": 4}
    assert [note for note in done["notes"] if "delay level" in note] == [  # type: ignore[attr-defined]
        "delay level 1: the log has no delivered copy of the message at queue offset 0, so 5 delivered messages "
        "after it will be delivered again"
    ]
