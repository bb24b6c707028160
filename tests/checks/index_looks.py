"""The check of a store's index as in verify: the files, the pass over the log, and the comparison of both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from rmqstore.checks.beside.index import check_index
from rmqstore.checks.index.catalog import IndexCatalog
from rmqstore.checks.index.keys import KeyReader
from rmqstore.checks.index.tally import IndexTally
from rmqstore.checks.problems.report import Findings
from rmqstore.files.store import Store
from rmqstore.formats import index
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind

Copy = Callable[[str], Path]
SLOTS, UNITS = 100, 400  # of the broker stores


def pass_over_log(store: Store, catalog: IndexCatalog) -> tuple[IndexTally, int]:
    table = QueueTable()
    reader = KeyReader(table)
    tally = IndexTally()
    wrote = 0
    for queue, body_offset in store.logs:
        for file in queue.files:
            for run in scan_file(file, body_offset=body_offset):
                if run.kind is Kind.RECORDS and run.columns is not None:
                    keys = reader.keys(run.columns, table.of(run.columns))
                    catalog.check(run.start, run.stop, keys, tally)
                    wrote = run.stop
    return tally, wrote


def check(store: Store, *, live: bool = False) -> Findings:
    """Run both passes like verify, and return their findings."""
    tally, wrote = pass_over_log(store, check_index(store, Findings(), live=live))
    findings = Findings()
    catalog = check_index(store, findings, live=live)
    catalog.check_end(wrote, findings)
    catalog.report(tally, findings)
    assert catalog.unchecked == []
    return findings


def first_index(store: Path) -> Path:
    return min((store / "index").iterdir())


def last_index(store: Path) -> Path:
    return max((store / "index").iterdir())


def units_of(path: Path) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    raw = path.read_bytes()[index.unit_at(0, SLOTS) :]
    return index.UNIT.array(raw)
