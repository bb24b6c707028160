"""Any bytes in any small file of a store: findings, never an exception."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqstore.checks.beside.checkpoint import VerifiedEnd, check_checkpoint
from rmqstore.checks.beside.compaction import check_compaction
from rmqstore.checks.beside.directory import check_directory
from rmqstore.checks.beside.dledger import check_dledger
from rmqstore.checks.beside.index import check_index
from rmqstore.checks.beside.timer import LogRange, check_timer
from rmqstore.checks.log.log_contents import EntryTally, add_entries
from rmqstore.checks.problems.report import Findings, Report
from rmqstore.files.store import open_store
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from tests.checks.sound import check_configuration, queue_range
from tests.seeds import seeds
from tests.stores import copy_store

_LOGS = {"commitlog", "consumequeue", "data"}
_FRONT = 9000  # bytes at the start of sparse files that contain their data


def wreck(path: Path, rng: random.Random) -> None:
    """Truncate, extend or overwrite a file at a random position."""
    size = path.stat().st_size
    way = rng.randrange(6)
    with path.open("r+b") as file:
        if way == 0:
            file.truncate(rng.randrange(size + 1))
            return
        if way == 1:
            file.truncate(0)
            file.write(rng.randbytes(rng.randrange(300)))
            return
        file.seek(rng.randrange(min(size, _FRONT) + 1))
        file.write(
            (
                rng.randbytes(rng.randrange(1, 200)),
                b"\xff" * rng.randrange(1, 64),
                bytes(rng.randrange(1, 5000)),
                (1 << rng.randrange(64)).to_bytes(8, "big"),
            )[way - 2]
        )


@pytest.mark.parametrize("name", ["5.4.0-formats", "5.4.0-dledger-mixed", "4.9.7-dledger-killed"])
@pytest.mark.parametrize("seed", seeds(4))
def test_wrecked_files_cause_only_findings(tmp_path: Path, name: str, seed: int) -> None:
    root = copy_store(name, tmp_path)
    rng = random.Random(f"{name} {seed}")
    files = sorted(p for p in root.rglob("*") if p.is_file() and not _LOGS & set(p.relative_to(root).parts))
    for path in rng.sample(files, 8):
        wreck(path, rng)
    store = open_store(root)
    findings = Findings()
    config = check_configuration(store, findings)
    check_directory(store, Report("", "", findings), queue_types=config.queue_types)
    check_checkpoint(store, VerifiedEnd(1_795_245_123_866, 700_000), findings)
    check_index(store, findings).check_end(700_000, findings)
    check_timer(store, LogRange(0, 700_000), findings, queue_range=lambda topic, qid: queue_range(store, topic, qid))
    check_compaction(store, findings)
    if store.dledger is not None:
        tally = EntryTally()
        for file in store.dledger.data.files:
            for run in scan_file(file, body_offset=48):
                if run.kind is Kind.RECORDS and run.columns is not None:
                    add_entries(run.columns, store.dledger.index, tally)
        check_dledger(store, store.dledger, tally, findings)
    assert findings.counts
