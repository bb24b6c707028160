"""Fillers without a mark: only the plan and its journal tell that they are no messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.command import run, run_json
from tests.damage import cut
from tests.stores import copy_store


def test_the_store_after_the_plan_is_counted_as_it_is_after_the_repair(tmp_path: Path) -> None:
    store = copy_store("5.5.1-clean", tmp_path)
    log = store / "commitlog"
    (log / "00000000000000327680").unlink()
    cut(log / "00000000000000262144", 44_190)
    words = ("recover", str(store), "--role", "single")
    plan: Any = run_json(*words, exit_code=1)
    assert any(row["marked"] != "property" for row in plan["facts"]["fillers"])
    assert plan["facts"]["after"]["account"]["lost_already"] == plan["loss"]["messages"] == 92
    done = run(*words, "--apply", "--force", plan["digest"])
    assert done.exit_code == 1, done.stderr  # the missing file remains
