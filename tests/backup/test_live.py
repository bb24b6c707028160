"""Snapshots beside a process that appends, rolls and expires many files per second."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.backup.growing import messages_in
from tests.command import run_json
from tests.live_writer import live_store

pytestmark = pytest.mark.other_processes


def test_every_snapshot_of_a_live_store_restores_to_a_whole_store(tmp_path: Path) -> None:
    """Nothing false is found, and each restored store has every message from the log's begin to the cut."""
    repo = tmp_path / "repo"
    made = []
    with live_store(tmp_path / "store", pause=0.04) as store:
        for _ in range(5):
            made.append(run_json("backup", str(store), str(repo), "--name", "a", exit_code=0))
            time.sleep(0.3)
    for number, row in enumerate(made):
        copy = tmp_path / f"copy{number}"
        done = run_json("restore", f"{repo}::a@{row['snapshot']}", str(copy), exit_code=0)
        assert (done["messages"], done["counts"], done["unchecked"]) == (row["messages"], {}, [])
        assert isinstance(done["log"], dict)
        assert isinstance(row["log"], dict)
        assert (done["log"]["from"], done["log"]["to"]) == (row["log"]["from"], row["log"]["to"])
        queues = messages_in(copy)
        assert sum(map(len, queues.values())) == row["messages"]
        assert all(numbers == list(range(numbers[0], numbers[0] + len(numbers))) for numbers in queues.values())
    ends = [row["log"]["to"] for row in made]  # type: ignore[index]
    assert ends == sorted(set(ends))
    assert run_json("snapshots", str(repo), "--check", exit_code=0)["stores"]
