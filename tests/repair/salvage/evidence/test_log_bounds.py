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


def tail(store: Path) -> Path:
    return max((store / "commitlog").iterdir())


@pytest.mark.parametrize("name", ["4.9.7-dledger-mixed", "5.1.4-dledger-mixed", NAME])
def test_a_sound_legacy_log_has_no_zeros_at_its_end(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    assert run_json("verify", str(store), "-c", str(write_broker_conf(name, store)), exit_code=0)["clean"]


def test_without_accepted_fillers_nothing_is_planned(tmp_path: Path) -> None:
    store = copy_store(NAME, tmp_path)
    tail(store).unlink()
    for role in ("single", "dledger-group"):
        plan = run_json("recover", str(store), "--role", role, exit_code=1)
        assert plan["steps"] == []
        assert plan["brakes"] == []
        stays = plan["facts"]["stays"]  # type: ignore[index]
        assert "--accept-fillers" in stays["DL-MISSING-FILE"]["do"] or role != "single"
        assert set(stays) == {"DL-MISSING-FILE"}


def test_units_of_a_missing_file_stay_beside_another_repair_of_their_queue(tmp_path: Path) -> None:
    """Only these units refer to its messages: fillers that are accepted later get their places from them."""
    store = copy_store("5.4.0-clean", tmp_path)
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


def test_a_legacy_tail_of_zeros_is_damage_and_is_filled(tmp_path: Path) -> None:
    store = copy_store(NAME, tmp_path)
    path = tail(store)
    damage.zero(path, 0, path.stat().st_size)
    report = run_json("verify", str(store), exit_code=1)
    assert "CL-NO-BLANK" in report["counts"]  # type: ignore[operator]
    done = run_json("recover", str(store), "--role", "single", "--apply", exit_code=0)
    assert done["loss"]["messages"] == 20  # type: ignore[index]
    assert done["loss"]["visible_fillers"] == 20  # type: ignore[index]


def without_first_entries(tmp_path: Path) -> tuple[Path, Path]:
    store = copy_store(NAME, tmp_path)
    first = min((store / "dledger-n0" / "data").iterdir())
    first.unlink()
    return store, first


def planned(store: Path, *words: str) -> dict[str, Any]:
    return dict(json.loads(run("recover", str(store), "--role", "single", *words, "--json").stdout))


def test_a_missing_first_entry_is_no_legacy_tail(tmp_path: Path) -> None:
    """DLedger's own first file is lost: the legacy log is complete, and nothing is added to it."""
    store, first = without_first_entries(tmp_path)
    plan = planned(store, "--accept-fillers")
    assert not any(step["path"].startswith("commitlog/") for step in plan["steps"])
    made = [step for step in plan["steps"] if step["path"].startswith("dledger-n0/")]
    assert [(step["do"], step["path"]) for step in made] == [("create", f"dledger-n0/data/{first.name}")]
    assert plan["loss"]["messages"] == plan["loss"]["visible_fillers"] == 67


def test_without_accepted_fillers_the_units_of_dledgers_first_entries_stay(tmp_path: Path) -> None:
    store, _ = without_first_entries(tmp_path)
    plan = planned(store)
    assert (plan["steps"], plan["brakes"], plan["loss"]["messages"]) == ([], [], 67)
    assert "--accept-fillers" in plan["facts"]["stays"]["DL-MISSING-FILE"]["do"]


def test_no_file_is_created_if_nothing_shows_whose_file_is_missing(tmp_path: Path) -> None:
    """Without DLedger's index and without consume queues, the lost file may be one of the legacy log."""
    store, _ = without_first_entries(tmp_path)
    for folder in (store / "dledger-n0" / "index", store / "consumequeue"):
        shutil.rmtree(folder)
    plan = planned(store, "--accept-fillers")
    logs = ("commitlog/", "dledger-n0/data/")
    assert not any(step["path"].startswith(logs) for step in plan["steps"])
    assert "DL-MISSING-FILE" in plan["facts"]["stays"]
