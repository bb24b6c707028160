"""Plans and journals for the small store of `trees.build`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.documents.plan import Plan
from rmqstore.documents.steps import Step
from rmqstore.errors import HalfApplied
from rmqstore.repair.journal import journal
from tests.repair.trees import CountingDisk, failing_at, full_plan


def plan_of(store: Path, *steps: Step, **more: object) -> Plan:
    return Plan(str(store), steps, **more)  # type: ignore[arg-type]


def apply_full(store: Path) -> Path:
    path = journal.apply(full_plan(store), disk=CountingDisk()).journal
    assert path is not None
    return path


def half_apply(store: Path) -> Path:
    with pytest.raises(HalfApplied):
        journal.apply(full_plan(store), disk=failing_at(150, for_good=True))
    [info] = journal.find_unfinished(store)
    assert info.state == "applying" and 0 < info.batches_done < info.record.batches
    return info.path
