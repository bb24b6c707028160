"""Locates files that a plan renames, at any stage of the renames, and checks that they are unchanged.

The new names may form a cycle, so all files are set aside first, then each gets its name. Meanwhile their directory
holds a name that is not an offset, so that no broker starts.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqstore.repair.journal.folder import JournalFolder
from rmqstore.repair.journal.plan_paths import PlanPaths, status_of
from rmqstore.repair.journal.probe import Status
from rmqstore.repair.journal.undo_log import Meta
from rmqstore.repair.plan.fingerprints import fingerprint_entry
from rmqstore.repair.plan.plan import Plan
from rmqstore.repair.plan.steps import InPlace, Rename, SetAside


@dataclass(frozen=True, slots=True)
class Move:
    """The rename of one file: its old name, the fingerprint of its bytes, and the batch of its Rename step.

    `changed`: later steps of the plan change its bytes.
    """

    source: str
    expect: str
    batch: int
    changed: bool


@dataclass(frozen=True, slots=True)
class Moves:
    """All renames of a plan, by new name and by old name."""

    by_path: Mapping[str, Move]
    by_source: Mapping[str, Move]

    @staticmethod
    def of(plan: Plan, batches: Sequence[Sequence[int]]) -> Moves:
        """Collect the renames of a plan whose steps are executed in these batches."""
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

    def place(self, path: str, begun: int, paths: PlanPaths, folder: JournalFolder) -> Path | None:
        """Return the current path, after `begun` batches, of the file that gets this name; None if no rename does."""
        move = self.by_path.get(path)
        if move is None:
            return None
        source = paths.locate(move.source)
        aside = folder.aside(source)
        if status_of(aside) is not None:
            return aside
        return paths.locate(path) if move.batch < begun else source

    def probe(self, path: str, place: Path, now: os.stat_result, meta: Meta, folder: JournalFolder) -> Status:
        """Return AFTER if the file at the new name is the one that was renamed, else FOREIGN.

        Compares all of its bytes. If other steps change the file, their own probes compare the bytes; here only the
        mtime counts.
        """
        move = self.by_path[path]
        if not stat.S_ISREG(now.st_mode):
            return Status.FOREIGN
        if not move.changed:
            return Status.AFTER if fingerprint_entry(place, move.expect) == move.expect else Status.FOREIGN
        return Status.FOREIGN if folder.touched_since(now, meta.mtime_ns) else Status.AFTER
