"""The size of queue files, if most of them were cut: what the others show, and what `recover` asks for."""

from __future__ import annotations

import os
from pathlib import Path

from rmqstore.files.store import open_store
from rmqstore.files.store_queues import QueueKind
from tests.command import run_json
from tests.stores import copy_store

_KEY = "mappedFileSizeConsumeQueue"


def queue_files(store: Path) -> list[Path]:
    return sorted(path for path in (store / "consumequeue").rglob("0*") if path.is_file())


def cut(files: list[Path]) -> None:
    """Cut files in the middle of their units, each to another length."""
    for number, path in enumerate(files):
        os.truncate(path, 200 + 20 * number)


def test_files_that_a_broker_padded_show_the_size_although_most_were_cut(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    files = queue_files(store)
    cut(files[:12])
    assert len(files) - 12 == 9
    assert open_store(store).known_queue_file_size(QueueKind.SIMPLE) == 2_000
    assert run_json("recover", str(store), exit_code=1)["brakes"] == []
    assert run_json("recover", str(store), "--apply", exit_code=0)["applied"] is True
    assert {path.stat().st_size for path in queue_files(store)} == {2_000}


def test_files_that_were_copied_without_their_zeros_show_no_size(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    for path in queue_files(store):
        units = path.read_bytes().rstrip(b"\0")
        path.write_bytes(units + bytes(-len(units) % 20))
    assert open_store(store).known_queue_file_size(QueueKind.SIMPLE) is None
    plan = run_json("recover", str(store), exit_code=1)
    question = f"6,000,000 is assumed: give -c broker.conf, which has {_KEY}, or accept it"
    assert [line for line in plan["brakes"] if question in line]  # type: ignore[attr-defined]
