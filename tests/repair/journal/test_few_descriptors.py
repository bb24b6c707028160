"""A plan for many files needs few descriptors, with every kind of step, for apply, resume and undo."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rmqstore.documents.content import Literal
from rmqstore.documents.plan import Plan
from rmqstore.documents.steps import Create, Extend, MakeDirectory, Step
from rmqstore.repair.journal import journal
from rmqstore.repair.journal.disk import OPEN_FILES
from tests.repair.trees import CountingDisk, discard, look, overwrite, pattern, truncate

FILES = 300
_ALLOWED = OPEN_FILES + 96
"""Descriptors of the process: fewer than the steps of a batch."""
_RUN = """
import resource
import sys
from pathlib import Path

from tests.repair.journal.test_few_descriptors import many_files
from rmqstore.errors import HalfApplied
from rmqstore.repair.journal import journal
from tests.repair.trees import CountingDisk

store, disk = Path(sys.argv[1]), CountingDisk()
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]),) * 2)


def stop(done, of):
    if done == 2:
        raise OSError("stopped by the test")


if sys.argv[3] == "undo":
    print(journal.undo(journal.last_journal(store).path, disk=disk).restored)
else:
    try:
        journal.apply(many_files(store), disk=disk, progress=stop)
    except HalfApplied as error:
        assert "stopped by the test" in error.message, error.message
    [info] = journal.find_unfinished(store)
    print(journal.resume(info.path, disk=disk).steps)
"""


def make(store: Path) -> None:
    for number in range(FILES):
        for topic in ("Written", "Shorter", "Longer", "Gone"):
            queue = store / "consumequeue" / topic / f"{number}"
            queue.mkdir(parents=True)
            (queue / f"{0:020}").write_bytes(pattern(400))
    (store / "commitlog").mkdir()


def many_files(store: Path) -> Plan:
    """Return a plan with more steps of each kind than there may be descriptors."""
    steps: list[Step] = []
    for number in range(FILES):
        written, shorter, longer, gone, new = (
            f"consumequeue/{topic}/{number}/{0:020}" for topic in ("Written", "Shorter", "Longer", "Gone", "New")
        )
        steps += [
            overwrite(store, written, 100, Literal(pattern(20, 9))),
            truncate(store, shorter, 200),
            Extend(longer, 400, 600, Literal(pattern(40, 6)), "test"),
            discard(store, gone),
            MakeDirectory(str(Path(new).parent), None, "test"),
            Create(new, 400, Literal(pattern(60, 5)), None, "test"),
        ]
    return Plan(str(store), (MakeDirectory("consumequeue/New", None, "test"), *steps))


def test_a_plan_for_many_files_needs_few_descriptors(tmp_path: Path) -> None:
    store, other = tmp_path / "store", tmp_path / "other"
    make(store)
    make(other)
    before = look(store)
    journal.apply(many_files(other), disk=CountingDisk())
    after = {name: entry[5] for name, entry in look(other).items()}
    steps = 6 * FILES + 1
    assert _in_a_process_with_few(store, "resume") == steps - 300  # two batches were done before: all discards
    assert {name: entry[5] for name, entry in look(store).items()} == after
    assert _in_a_process_with_few(store, "undo") == steps
    assert look(store) == before


def _in_a_process_with_few(store: Path, what: str) -> int:
    """Stop an apply and resume it, or undo it; return the number of steps."""
    words = [sys.executable, "-c", _RUN, str(store), str(_ALLOWED), what]
    done = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parents[3], check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
