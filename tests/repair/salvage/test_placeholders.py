"""The unit that a repair puts at a queue offset without a message is no evidence about any message."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.command import run, run_json
from tests.repair.salvaging import pick, roll_back
from tests.stores import copy_store


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.4.0-dledger", "5.5.1-clean"])
def test_a_repeated_unit_before_the_second_message_leaves_nothing_to_plan(name: str, tmp_path: Path) -> None:
    """The only message before the gap is the first of its queue: the repeated unit is not its second proof."""
    store = copy_store(name, tmp_path)
    row = pick(store, lambda r: r.slot == ("log-15445", 3, 1))
    roll_back(row)
    shutil.rmtree(store / "consumequeue" / "log-15445")
    words = ("recover", str(store), "--accept-shift")
    plan = json.loads(run(*words, "--json").stdout)
    assert plan["facts"]["stays"].keys() == {"CL-QUEUE-OFFSET-GAP", "CQ-SHIFTED"}
    run_json(*words, "--apply", exit_code=1)
    assert json.loads(run("verify", str(store), "--json").stdout)["counts"] == {
        "CL-QUEUE-OFFSET-GAP": 1,
        "CQ-SHIFTED": 1,
    }
    assert run_json(*words, exit_code=1)["steps"] == []
