"""Without `--jobs`, a command uses all cores. In other tests, it sees only one core: see tests/conftest.py."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rmqstore.scan import workers
from tests.cases.case import locate_record
from tests.command import run_json
from tests.damage import flip
from tests.stores import copy_store


def test_the_default_is_one_process_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 5}, raising=False)
    assert (workers.jobs_or_default(None), workers.jobs_or_default(2)) == (3, 2)


@pytest.mark.parametrize(("forks", "enough"), [(True, 64 << 20), (False, 2 << 30)])
def test_small_log_is_read_by_one_process_unless_jobs_are_given(
    forks: bool, enough: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 5}, raising=False)
    monkeypatch.setattr(workers, "can_fork", lambda: forks)
    assert [workers.jobs_or_default(None, size) for size in (0, enough - 1, enough)] == [1, 1, 3]
    assert workers.jobs_or_default(2, 0) == 2


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", ["5.4.0-clean", "5.1.4-dledger-mixed"])
def test_the_report_does_not_depend_on_the_number_of_cores(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = copy_store(name, tmp_path)
    flip(*locate_record(store / "commitlog", "record 5 body"))
    one = {**run_json("verify", str(store), exit_code=1), "seconds": 0}
    used: list[int] = []
    whole = workers.map_ordered

    def noted(function: Any, splits: Any, jobs: int = 1) -> Any:
        used.append(jobs)
        return whole(function, splits, jobs)

    monkeypatch.setattr(workers, "map_ordered", noted)
    monkeypatch.setattr(workers, "WORTH_PROCESSES", 0)
    monkeypatch.setattr(workers, "WORTH_NEW_PROCESSES", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    assert {**run_json("verify", str(store), exit_code=1), "seconds": 0} == one
    assert max(used) == 2
