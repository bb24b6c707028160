"""Epochs that `recover` has dropped, read by the broker's own EpochFileCache beside those of a master."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rmqstore.files.store import open_store
from rmqstore.formats.controller import EpochEntry, EpochFile
from tests.command import run, run_json
from tests.conftest import need_classes
from tests.real_broker.java import java_classes
from tests.stores import copy_store

NAME = "epochFileCheckpoint"


def ask(version: str, folder: Path, *words: str | int | Path) -> list[str]:
    command = java_classes(version).command("Epochs", log=folder / "log", home=folder)
    done = subprocess.run([*command, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("version", ["5.4.0", pytest.param("5.1.4", marks=pytest.mark.slow), "5.5.1"])
def test_the_point_up_to_which_logs_are_equal_is_in_the_log_after_the_repair(version: str, tmp_path: Path) -> None:
    need_classes(version)
    store = copy_store("5.4.0-controller-master", tmp_path)
    log = open_store(store).commitlog
    assert log is not None
    stop = log.stop
    entries = EpochEntry(1, 0), EpochEntry(2, 1000), EpochEntry(3, stop + 5000)
    for name in (NAME, f"{NAME}.bak"):
        (store / name).write_bytes(EpochFile(entries).build())
    longer = tmp_path / "longer"  # a master that went on in the epoch that the log of this replica does not reach
    longer.write_bytes(EpochFile(entries).build())
    before = (store / NAME).read_bytes()

    *_, point = ask(version, tmp_path, store / NAME, stop, longer, stop + 9000)
    assert int(point) > stop  # the replica would ask for what is after its own end, and lack what is before
    done: Any = run_json("recover", str(store), "--apply", exit_code=0)
    *kept, point = ask(version, tmp_path, store / NAME, stop, longer, stop + 9000)
    assert kept == ["1-0..1000", f"2-1000..{stop}"]
    assert int(point) == stop
    shutil.copy(store / f"{NAME}.bak", tmp_path / "second")
    assert ask(version, tmp_path, tmp_path / "second", stop, longer, stop + 9000) == [*kept, point]
    assert run("undo", done["journal"]).exit_code == 0
    assert (store / NAME).read_bytes() == before
