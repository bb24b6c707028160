"""Commands that need a part of a store that cannot be read name it, and end with exit code 4."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.command import run, run_json
from tests.rocksdb_rows import need_rocksdict
from tests.stores import copy_store, unpack

_POP = "5.4.0-pop-kv"
_POPPED = "7F000001000066B6000000000001C07C"


@pytest.fixture(params=[True, False], ids=["with rocksdict", "without rocksdict"])
def can_read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param:
        need_rocksdict()
    else:
        monkeypatch.setitem(sys.modules, "rocksdict", None)
    return bool(request.param)


def test_offsets_say_that_what_pop_consumers_received_is_unknown(can_read: bool) -> None:
    store = unpack(_POP)
    answer = run_json("offsets", str(store), exit_code=0 if can_read else 4)
    received = [row["pop"] for row in answer["offsets"]]  # type: ignore[attr-defined]
    assert received == ([{"invisible": 9}, {"invisible": 10}, {"invisible": 10}] if can_read else [None] * 3)
    told = answer["unreadable"]
    assert (told is None) == can_read
    assert told is None or str(told).startswith("kvStore/: what POP consumers have received is not read: ")
    shown = run("offsets", str(store), "--format", "table")
    assert (shown.exit_code, shown.stdout.count("unknown")) == ((0, 0) if can_read else (4, 3))
    assert ("note: kvStore/: what POP consumers have received is not read" in shown.stderr) != can_read


def test_find_says_that_what_pop_consumers_did_is_not_read(can_read: bool) -> None:
    answer = run_json("find", str(unpack(_POP)), _POPPED, exit_code=0 if can_read else 4)
    assert len(answer["unread"]) == (0 if can_read else 1)  # type: ignore[arg-type]
    shown = run("find", str(unpack(_POP)), _POPPED)
    assert shown.exit_code == (0 if can_read else 4)
    assert ("not everything was read: kvStore/" in shown.stderr) != can_read


def test_find_names_offsets_that_it_did_not_read(can_read: bool, tmp_path: Path) -> None:
    store = copy_store("5.5.1-config-v2", tmp_path)
    answer = run_json("find", str(store), "Order_11/0/3", exit_code=0 if can_read else 4)
    unread = answer["unread"]
    assert isinstance(unread, list)
    assert [words.partition(" cannot be read: ")[0] for words in unread] == ([] if can_read else ["config/rdb"])
