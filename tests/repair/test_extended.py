"""Files extended to a terabyte by a hole: found, truncated and restored without reading the hole."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rmqstore.documents.plan import Plan
from rmqstore.documents.steps import Truncate
from rmqstore.repair.journal.journal import apply, undo
from rmqstore.repair.plan.plan_builder import fingerprint_range
from tests.command import run_json
from tests.stores import copy_store

TB = 1 << 40


@pytest.mark.quick_rows
@pytest.mark.parametrize(
    ("name", "tree"),
    [
        ("5.4.0-clean", "commitlog"),
        ("5.1.4-dledger", "dledger-n0/data"),
        ("5.4.0-clean", "consumequeue/Order_11/1"),
        ("5.4.0-clean", "index"),
    ],
)
@pytest.mark.parametrize("noise", [pytest.param(b"", id="holes"), pytest.param(b"noise" * 1000, id="noise")])
def test_a_terabyte_of_holes_is_cut_and_comes_back(name: str, tree: str, noise: bytes, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    path = sorted((store / tree).iterdir())[-1]
    before, size = path.read_bytes(), path.stat().st_size
    os.truncate(path, TB)
    with path.open("r+b") as file:
        file.seek(TB // 2)
        file.write(noise)
    began = time.monotonic()
    done = run_json("recover", str(store), "--apply", exit_code=0)
    assert done["loss"]["messages"] == 0  # type: ignore[index]
    assert (path.stat().st_size, path.read_bytes()) == (size, before)
    journal = Path(str(done["journal"]))
    kept = [file.stat().st_size for file in journal.glob("lost+found/*")]
    assert sum(kept) <= 64 << 20
    run_json("undo", str(journal), exit_code=0)
    assert path.stat().st_size == TB
    with path.open("rb") as restored:
        assert restored.read(size) == before
        restored.seek(TB // 2)
        assert restored.read(len(noise)) == noise
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("like", ["sha256:", "blake2b:", "runs:"])
def test_holes_are_cut_and_come_back_whatever_hash_the_plan_has(like: str, store: Path) -> None:
    path = max((store / "commitlog").iterdir())
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size + (3 << 20))
        file.write(b"noise")
        file.truncate(size + (8 << 20))
    before = path.read_bytes()
    name = path.relative_to(store).as_posix()
    expect = fingerprint_range(path, size, 8 << 20, like)
    done = apply(Plan(store.as_posix(), (Truncate(name, len(before), size, expect),)))
    assert path.read_bytes() == before[:size]
    assert done.journal is not None
    undo(done.journal)
    assert path.read_bytes() == before
