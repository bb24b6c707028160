"""Epochs that begin after the end of the log are dropped: where recover cuts the log, and where it was cut before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqstore.files.store import open_store
from rmqstore.formats.controller import EpochEntry, EpochFile, parse_epoch_file
from tests.command import run, run_json
from tests.damage import flip
from tests.stores import copy_store

NAME = "epochFileCheckpoint"


def epochs(store: Path, *entries: tuple[int, int]) -> None:
    content = EpochFile(tuple(EpochEntry(*one) for one in entries)).build()
    for name in (NAME, f"{NAME}.bak"):
        (store / name).write_bytes(content)


def starts(path: Path) -> list[int]:
    found = parse_epoch_file(path.read_bytes())
    assert found.faults == ()
    return [one.start_offset for one in found.entries]


@pytest.mark.parametrize("name", ["5.4.0-controller-master", "5.4.0-controller-slave"])
def test_epochs_after_the_end_are_dropped_from_both_files_and_undo_restores_them(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    log = open_store(store).commitlog
    assert log is not None
    epochs(store, (1, 0), (4, 1000), (7, log.stop + 1), (9, log.stop + 5000))
    before = (store / NAME).read_bytes()
    report: Any = run_json("verify", str(store), exit_code=1)
    assert report["counts"] == {"CFG-EPOCH-BEYOND": 1}
    done: Any = run_json("recover", str(store), "--apply", exit_code=0)
    assert [starts(store / one) for one in (NAME, f"{NAME}.bak")] == [[0, 1000], [0, 1000]]
    assert run("verify", str(store)).exit_code == 0
    assert run("undo", done["journal"]).exit_code == 0
    assert (store / NAME).read_bytes() == before


def test_a_log_that_is_cut_ends_its_epochs_too(tmp_path: Path) -> None:
    store = copy_store("5.4.0-controller-master", tmp_path)
    log = open_store(store).commitlog
    assert log is not None
    second = log.files[1]
    epochs(store, (1, 0), (4, second.start + 1))
    flip(second.path, 4)
    plan: Any = run_json("recover", str(store), "--strategy", "truncate", exit_code=1)
    assert run("recover", str(store), "--strategy", "truncate", "--apply", "--force", plan["digest"]).exit_code == 0
    assert starts(store / NAME) == [0]
