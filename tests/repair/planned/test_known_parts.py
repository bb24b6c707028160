"""The examination after a plan reads only what the plan changes, and finds what a complete one finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqstore.checks.examine import examine
from rmqstore.checks.log import commitlog
from rmqstore.checks.log.log_pass import LogPart, PassOptions, scan_split
from rmqstore.checks.options import VerifyOptions
from rmqstore.documents.outcome import Outcome
from rmqstore.documents.plan import Plan
from rmqstore.files.index import index_sizes
from rmqstore.files.store import Store
from rmqstore.formats import index
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.planned import FirstParts, after, examine_again
from rmqstore.scan.split import Split
from tests.planning import opened
from tests.stores import copy_store

SPLIT = 1 << 15
Change = Callable[[Store, PlanBuilder], None]


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Return the starts of the splits that are read."""
    starts: list[int] = []

    def noted(split: Split, options: PassOptions) -> LogPart:
        starts.append(split.file.start + split.start)
        return scan_split(split, options)

    monkeypatch.setattr(commitlog, "scan_split", noted)
    yield starts


def wrong_unit(store: Store, draft: PlanBuilder) -> None:
    """Change the size in a unit of one queue."""
    path = next(file.path for queue in store.consume_queues() for file in queue.queue.files if file.read_at(20, 0))
    draft.overwrite(path, 8, b"\0\0\0\7", "a test")


def wrong_body(store: Store, draft: PlanBuilder) -> None:
    """Change a byte in the body of the first record."""
    queue, body_offset = store.logs[0]
    file = queue.files[0]
    at = body_offset + 95
    draft.overwrite(file.path, at, bytes([file.read_at(1, at)[0] ^ 1]), "a test")


def wrong_entry(store: Store, draft: PlanBuilder) -> None:
    """Change the key hash of the first entry of the index."""
    sizes = index_sizes(store)
    assert sizes is not None
    draft.overwrite(store.index_files[0].path, index.unit_at(1, sizes[0]), b"\0\0\0\7", "a test")


def wrong_dledger_index(store: Store, draft: PlanBuilder) -> None:
    """Change the position in the first unit of the DLedger index."""
    assert store.dledger is not None
    draft.overwrite(store.dledger.index.files[0].path, 4, bytes(7) + b"\1", "a test")


def new_topics(store: Store, draft: PlanBuilder) -> None:
    draft.discard(store.root / "config" / "topics.json", "a test")


def new_checkpoint(store: Store, draft: PlanBuilder) -> None:
    draft.replace(store.root / "checkpoint", bytes(4096), "a test", old="a test")


def no_abort(store: Store, draft: PlanBuilder) -> None:
    draft.discard(store.root / "abort", "a test")


CASES: dict[str, tuple[str, Change]] = {
    "unit": ("5.4.0-clean", wrong_unit),
    "body": ("5.4.0-clean", wrong_body),
    "index entry": ("5.4.0-clean", wrong_entry),
    "DLedger index": ("5.4.0-dledger", wrong_dledger_index),
    "body in DLedger": ("4.9.7-dledger-mixed", wrong_body),
    "checkpoint": ("5.4.0-clean", new_checkpoint),
    "topics": ("5.4.0-clean", new_topics),
    "abort": ("5.4.0-killed", no_abort),
}


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("case", CASES)
def test_known_parts_change_no_result(case: str, tmp_path: Path, scanned: list[int]) -> None:
    name, change = CASES[case]
    store = opened(copy_store(name, tmp_path))
    first = FirstParts()
    options = VerifyOptions(jobs=1, split_size=SPLIT, last_run=first, ranges=True)
    before = Outcome.of(examine(store, options).report)
    everything = scanned.copy()
    plan = plan_of(store, change)
    scanned.clear()
    known = Outcome.of(examine_again(after(store, plan), options, first).report)
    read = scanned.copy()
    complete = Outcome.of(examine_again(after(store, plan), options).report)
    assert complete.differences(known) == []
    assert before.differences(known) != []
    assert len(read) <= 3 < len(everything)


def plan_of(store: Store, change: Change) -> Plan:
    draft = PlanBuilder(store)
    change(store, draft)
    return draft.plan()
