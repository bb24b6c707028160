"""A store with many queues: descriptors stay few, each queue costs the same, and directories reach the disk in time."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqstore.append import exported_files
from rmqstore.append.dispatch import OPEN_QUEUES
from rmqstore.append.flush import CheckpointFile
from rmqstore.append.mapped_files import WritableMappedFile
from tests.command import run_json

TOPICS = 40


def exported(target: Path, queues: int, first: int = 0) -> str:
    """Write one message for each queue."""
    hosts = {"born_host": "10.0.0.1:10911", "store_host": "10.0.0.2:10911"}
    with target.open("w") as out:
        for i in range(queues):
            place = {"topic": f"Topic{i % TOPICS}", "queue_id": i // TOPICS, "queue_offset": first}
            times = {"born_timestamp": 1_700_000_000_000, "store_timestamp": 1_700_000_000_000 + i}
            print(json.dumps({**place, **hosts, **times, "body": "aGVsbG8="}), file=out)
    return str(target)


@contextmanager
def few_descriptors() -> Iterator[None]:
    """Allow 100 more descriptors than queues whose files stay open, fewer than the queues of these tests."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + OPEN_QUEUES + 100, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def test_a_store_of_many_queues_is_made_and_opened_with_few_descriptors(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with few_descriptors():
        made: Any = run_json("import", exported(tmp_path / "a.ndjson", 600), "-o", str(store), exit_code=0)
        assert made["messages"] == len(made["queues"]) == 600
        again = exported(tmp_path / "b.ndjson", 600, first=1)
        added: Any = run_json("import", again, "--into", str(store), exit_code=0)
        assert added["messages"] == 600
        assert set(added["queues"].values()) == {2}
    report: Any = run_json("verify", str(store), exit_code=0)
    assert report["commitlog"]["messages"] == 1200
    assert report["counts"] == {}


def test_the_work_for_a_queue_does_not_depend_on_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    release = WritableMappedFile.release_descriptor

    def counted(file: WritableMappedFile) -> None:
        nonlocal calls
        calls += 1
        release(file)

    monkeypatch.setattr(WritableMappedFile, "release_descriptor", counted)
    monkeypatch.setattr(exported_files, "ROWS", 256)
    found = []
    for queues in (1000, 2000):
        calls = 0
        source = exported(tmp_path / f"{queues}.ndjson", queues)
        run_json("import", source, "-o", str(tmp_path / str(queues)), exit_code=0)
        found.append(calls / queues)
    assert max(found) <= 2  # when the file was created, and after its flush


def test_directories_of_new_queues_are_on_disk_before_the_checkpoint_names_their_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    fsync, flush = os.fsync, CheckpointFile.flush

    def noted(descriptor: int) -> None:
        order.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    def checkpoint(file: CheckpointFile) -> None:
        if file.logics_msg_timestamp:
            order.append("checkpoint")
        flush(file)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(CheckpointFile, "flush", checkpoint)
    source = exported(tmp_path / "a.ndjson", 80)
    run_json("import", source, "-o", str(tmp_path / "store"), exit_code=0)
    before = order[: order.index("checkpoint")]
    root = tmp_path / ".store.importing" / "consumequeue"
    assert {str(root), *(str(root / f"Topic{i}") for i in range(TOPICS))} <= set(before)
    assert {str(root / f"Topic{i}" / str(q)) for i in range(TOPICS) for q in (0, 1)} <= set(before)
