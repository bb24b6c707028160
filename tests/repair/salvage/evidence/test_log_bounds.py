"""A mixed store that lost the last file of its legacy commitlog: the file is filled, or the gap is left.

In tests/real_broker/test_random_damage.py, the real store reads the results.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests import damage
from tests.command import run, run_json
from tests.stores import copy_store, write_broker_conf

NAME = "5.4.0-dledger-mixed"


@pytest.mark.parametrize("name", ["4.9.7-dledger-mixed", "5.1.4-dledger-mixed", NAME])
def test_a_sound_legacy_log_has_no_zeros_at_its_end(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    assert run_json("verify", str(store), "-c", str(write_broker_conf(name, store)), exit_code=0)["clean"]


def test_units_of_a_missing_file_stay_beside_another_repair_of_their_queue(store: Path) -> None:
    """Only these units refer to its messages: fillers that are accepted later get their places from them."""
    (store / "commitlog" / "00000000000000393216").unlink()
    lost = run_json("recover", str(store), "--role", "single", "--accept-fillers", exit_code=1)["loss"]
    queue = store / "consumequeue" / "Pay_11_Topic" / "0" / "00000000000000000000"
    was = queue.read_bytes()
    damage.flip(queue, 3 * 20 + 11, 2)  # the size of another unit
    words = ("recover", str(store), "--role", "single", "--only", "CQ-WRONG-SIZE")
    digest = run_json(*words, exit_code=1)["digest"]  # more than a tenth of this log is lost, so it asks
    run(*words, "--apply", "--force", str(digest))
    assert queue.read_bytes() == was
    assert run_json("recover", str(store), "--role", "single", "--accept-fillers", exit_code=1)["loss"] == lost


def without_first_entries(tmp_path: Path) -> tuple[Path, Path]:
    store = copy_store(NAME, tmp_path)
    first = min((store / "dledger-n0" / "data").iterdir())
    first.unlink()
    return store, first


def planned(store: Path, *words: str) -> dict[str, Any]:
    return dict(json.loads(run("recover", str(store), "--role", "single", *words, "--json").stdout))


def test_no_file_is_created_if_nothing_shows_whose_file_is_missing(tmp_path: Path) -> None:
    """Without DLedger's index and without consume queues, the lost file may be one of the legacy log."""
    store, _ = without_first_entries(tmp_path)
    for folder in (store / "dledger-n0" / "index", store / "consumequeue"):
        shutil.rmtree(folder)
    plan = planned(store, "--accept-fillers")
    logs = ("commitlog/", "dledger-n0/data/")
    assert not any(step["path"].startswith(logs) for step in plan["steps"])
    assert "DL-MISSING-FILE" in plan["facts"]["stays"]


@pytest.mark.parametrize("gone", ["dledger-n0/index", "consumequeue"])
def test_either_index_or_queues_show_where_dledgers_data_began(gone: str, tmp_path: Path) -> None:
    store, first = without_first_entries(tmp_path)
    shutil.rmtree(store / gone)
    made = [step["path"] for step in planned(store, "--accept-fillers")["steps"] if step["do"] == "create"]
    assert f"dledger-n0/data/{first.name}" in made
