"""Carry out plans in a store that is just being made, and that nobody has seen without these changes."""

from __future__ import annotations

from pathlib import Path

from rmqstore.append.disk import make_directories, write_new_file
from rmqstore.append.scratch import ScratchFolder
from rmqstore.documents.plan import Plan
from rmqstore.documents.steps import Create, MakeDirectory
from rmqstore.files.trees import remove_left
from rmqstore.files.users import JOURNAL_FOLDER
from rmqstore.repair.journal.journal import apply


def carry_out(plan: Plan, place: Path) -> None:
    """Carry out a plan in the new store at `place`, without a journal. Files are written once.

    Errors: as `write_new_file`; for a plan that changes files, as `apply`.
    """
    if all(isinstance(step, Create | MakeDirectory) for step in plan.steps):
        for number in plan.ordered():
            step = plan.steps[number]
            if isinstance(step, Create):
                write_new_file(place / step.path, step.size, step.content.pieces())
            else:
                make_directories(place / step.path)
        return
    scratch = ScratchFolder()
    apply(plan, journal_dir=scratch.path, force_digest=plan.digest if plan.decisions else None)
    remove_left(place / JOURNAL_FOLDER)
