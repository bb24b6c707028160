"""Files with swapped names, and a real broker that is started while recover renames them.

If the repair is killed at any call during the renames, the real store does not load, and changes neither log nor
queues. `undo` and `resume` then complete as if no broker had been started.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.errors import HalfApplied
from rmqstore.files.mapped_file_queue import file_name_to_offset, offset_to_file_name
from rmqstore.repair.journal import journal
from rmqstore.repair.journal.disk import Disk
from tests.planning import plan_of
from tests.real_broker.oracle import Oracle
from tests.stores import VERSIONS, copy_store, meta
from tests.untouched import Entry, content

JOURNAL = ".rmqstore"
DATA = ("commitlog/", "consumequeue/", "dledger-n0/data/", "dledger-n0/index/", "index/")


@pytest.mark.parametrize(
    "name",
    [
        "4.9.7-clean",
        *(pytest.param(f"{version}-clean", marks=pytest.mark.slow) for version in VERSIONS[1:]),
        *(pytest.param(f"{version}-dledger", marks=pytest.mark.slow) for version in VERSIONS),
    ],
)
def test_broker_that_starts_between_renames_stops_and_changes_nothing(
    name: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    store, log = swapped(name, tmp_path / "swapped")
    before = data(store)
    states = set()
    for renamed in range(1, 4):
        half = Path(shutil.copytree(store, tmp_path / str(renamed)))
        stop_at_rename(half, half / log, renamed)
        [info] = journal.find_unfinished(half)
        names = sorted(path.name for path in (half / log).iterdir())
        assert any(file_name_to_offset(one) is None for one in names)
        states.add(tuple(names))
        seen = data(half)
        if (
            renamed % 2 and log == "commitlog"
        ):  # with DLedger, the index is loaded first, and `abort` deletes one of its files
            (half / "abort").touch()
        answer = oracle(meta(name).version).load(half, meta(name).oracle_args, start=True, shutdown=True)
        assert not answer.load
        assert "NumberFormatException" in f"{answer.crash} {answer.log}"
        assert data(half) == seen
        for extra in ("abort", "lock"):  # a failed start leaves only these files
            if not (store / extra).exists():
                (half / extra).unlink(missing_ok=True)
        other = Path(shutil.copytree(half, tmp_path / f"{renamed}-on"))
        journal.undo(info.path)
        assert data(half) == before
        journal.resume(other / JOURNAL / info.path.name)
        assert data(other) == data(original(name, tmp_path / f"{renamed}-sound"))
    assert len(states) == 3


def swapped(name: str, folder: Path) -> tuple[Path, str]:
    """Copy a store, swap two of its log files, and return it with the path of its log."""
    store = original(name, folder)
    log = "dledger-n0/data" if (store / "dledger-n0").is_dir() else "commitlog"
    one, two = (store / log / offset_to_file_name(offset) for offset in (65536, 196608))
    one.rename(folder / "aside")
    two.rename(one)
    (folder / "aside").rename(two)
    return store, log


def original(name: str, folder: Path) -> Path:
    return copy_store(name, folder, rename="store")


class Stopping(Disk):
    """A disk that fails at a rename of a log file, after the first `left` renames."""

    def __init__(self, log: Path, left: int) -> None:
        self.log, self.left = log, left

    def rename(self, source: Path, target: Path) -> None:
        if self.log in (source.parent, target.parent):
            if not self.left:
                raise OSError(errno.EIO, "gone")
            self.left -= 1
        super().rename(source, target)


def stop_at_rename(store: Path, log: Path, number: int) -> None:
    """Stop a recovery after a number of renames: two files are set aside first, then each gets its name."""
    plan = plan_of(store)
    assert [plan.steps[at].do for at in plan.ordered()] == ["set-aside", "set-aside", "rename", "rename"]
    with pytest.raises(HalfApplied):
        journal.apply(plan, disk=Stopping(log, number))


def data(store: Path) -> dict[str, Entry]:
    """Return the entries of log, queues and index."""
    seen = content(store)
    return {name: entry for name, entry in seen.items() if name.startswith(DATA)}
