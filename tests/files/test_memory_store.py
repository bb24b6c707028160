"""What reads a store reads one that has no directory on this machine, with the same results."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqstore.checks.examine import verify
from rmqstore.checks.options import VerifyOptions
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.files import LOCAL, Files
from rmqstore.files.store import Store, open_store
from rmqstore.views.disk_usage import disk_usage
from rmqstore.views.dump.messages import Job, Skipped, read_text
from rmqstore.views.dump.selection import Selection
from rmqstore.views.dump.small_files import checkpoint_rows, config_rows
from rmqstore.views.dump.units import READERS
from rmqstore.views.info import info
from rmqstore.views.search import Question, search
from tests.files.memory_files import MemoryFiles
from tests.stores import copy_store, sent


@pytest.mark.quick_rows  # each store, and each number of processes
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("name", ["5.1.4-dledger-mixed", "5.4.0-formats", "5.4.0-rocksdb", "5.5.1-timer-rocksdb"])
def test_every_view_of_a_store_in_memory_is_the_same(name: str, jobs: int, tmp_path: Path) -> None:
    if "rocksdb" in name:
        pytest.importorskip("rocksdict")
    root = copy_store(name, tmp_path)
    key = sent(name)[3].msg_id
    on_disk = views(root, LOCAL, key, jobs=1)
    files = MemoryFiles(root)
    shutil.rmtree(root)
    assert views(root, files, key, jobs) == on_disk
    assert not root.exists()


def views(root: Path, files: Files, key: str, jobs: int) -> Mapping[str, Any]:
    """Read a store in every way."""

    def opened() -> Store:
        return open_store(root, BrokerConfig(), files)

    report = verify(opened(), VerifyOptions(jobs=jobs)).to_json()
    report.pop("seconds", None)
    found = search(opened(), Question((key,)))
    return {
        "verify": report,
        "info": info(opened()).to_json(),
        "dump": [b"".join(text) for _, text in read_text(opened(), "messages", Job(Selection()), Skipped(), jobs=jobs)],
        "units": {what: [str(row) for row in read(opened(), Selection())] for what, read in READERS.items()},
        "small files": [*checkpoint_rows(opened()), *config_rows(opened())],
        "find": [(at, one.message) for at, one in found.found.items()],
        "du": {part: (space.files, space.bytes) for part, space in disk_usage(opened()).parts.items()},
    }
