"""Files that a plan gives other names: where each of them is while that goes on, and whether it is still the same.

The names may go round in a circle, so all files are set aside first; each then gets its name. While one is aside its
directory holds a name that is not an offset, and no broker starts.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqstore.repair.journal.folder import JournalFolder, State
from rmqstore.repair.journal.plan_paths import PlanPaths, status_of
from rmqstore.repair.journal.probe import Status
from rmqstore.repair.journal.undo_log import Meta
from rmqstore.repair.plan.fingerprints import fingerprint_entry
from rmqstore.repair.plan.plan import Plan
from rmqstore.repair.plan.steps import InPlace, Rename, SetAside


@dataclass(frozen=True, slots=True)
class Move:
    """One file: its name before, what its bytes are then, and the batch of its Rename.

    `changed`: other steps of the plan change it when it has its new name.
    """

    source: str
    expect: str
    batch: int
    changed: bool


@dataclass(frozen=True, slots=True)
class Moves:
    """All renames of a plan, by the names that they give and by those that they take."""

    by_path: Mapping[str, Move]
    by_source: Mapping[str, Move]

    @staticmethod
    def of(plan: Plan, batches: Sequence[Sequence[int]]) -> Moves:
        """The renames of a plan whose steps are carried out in these batches."""
        steps = plan.steps
        expects = {step.path: step.expect for step in steps if isinstance(step, SetAside)}
        if not expects:
            return Moves({}, {})
        changed = {step.path for step in steps if isinstance(step, InPlace)}
        found = {
            step.path: Move(step.source, expects[step.source], batch, step.path in changed)
            for batch, numbers in enumerate(batches)
            for number in numbers
            if isinstance(step := steps[number], Rename)
        }
        return Moves(found, {move.source: move for move in found.values()})

    def place(self, path: str, begun: int, ground: PlanPaths, folder: JournalFolder) -> Path | None:
        """Where the bytes are now that will have this name; None when no rename gives it. `begun`: batches."""
        move = self.by_path.get(path)
        if move is None:
            return None
        source = ground.locate(move.source)
        aside = folder.aside(source)
        if status_of(aside) is not None:
            return aside
        return ground.locate(path) if move.batch < begun else source

    def probe(self, path: str, place: Path, now: os.stat_result, meta: Meta, folder: JournalFolder) -> Status:
        """Whether the file that has a new name is the one that got it.

        All of it is read, unless other steps change it too: they look at their own ranges, and here its time counts.
        """
        move, record = self.by_path[path], folder.record
        if not stat.S_ISREG(now.st_mode):
            return Status.FOREIGN
        if not move.changed:
            return Status.AFTER if fingerprint_entry(place, move.expect) == move.expect else Status.FOREIGN
        touched = record.state is State.DONE and record.times_kept and now.st_mtime_ns != meta.mtime_ns
        return Status.FOREIGN if touched else Status.AFTER
