"""Renames log files that have each other's names. Pure.

The rest of a recovery is planned for the store with the new names: `store.moved` maps each file to its new path.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from rmqstore.checks.misplaced_files import CODES, COPY
from rmqstore.checks.verify import Verified
from rmqstore.errors import Refused
from rmqstore.files.store import Store
from rmqstore.repair.plan.fingerprints import fingerprint_entry
from rmqstore.repair.plan.plan_builder import PlanBuilder, readable
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.plan.steps import Rename, SetAside, Step
from rmqstore.texts import Text

MISPLACED = tuple(CODES.values())
_WHY = Text("the name that its records prove")
_DIGITS = Text("the same offset in 20 digits")
_ROOM = Text("makes room: it has no good record")


def store_in_place(store: Store, verified: Verified, options: RecoverOptions) -> Store:
    """Return the store for which to plan: with the log files at their right paths.

    Errors: Refused if options select other problems, but not the wrong names.
    """
    misplaced = verified.misplaced
    if misplaced is None or not misplaced.store.is_rearranged:
        return store
    if not options.wants(*MISPLACED):
        codes = [code for code in MISPLACED if verified.report.findings.counts[code]]
        raise Refused(
            Text("log files have wrong names, and everything else was checked with the right names"),
            Text("add {codes}", codes=" ".join(f"--only {code}" for code in codes)),
        )
    return misplaced.store


def plan_misplaced(draft: PlanBuilder, verified: Verified) -> None:
    """Plan the renames; entries at the new paths that are not log files go into quarantine."""
    moved, misplaced, files = draft.store.moved, verified.misplaced, draft.store.files
    if misplaced is None:
        return
    why_of = {file.claim.file.path: _DIGITS if file.only_digits else _WHY for file in misplaced.files}
    for now, then in sorted(moved.items(), key=lambda row: row[1].name):
        if files.has_entry(then) and then not in moved:
            draft.discard(then, Text("it is in the place of a log file"))
        expect, entry = readable(now, partial(fingerprint_entry, now)), files.examined(now)
        size = entry.length if entry is not None else 0
        why = why_of.get(now, _ROOM)
        draft.add(SetAside(draft.name(now), expect, why, size))
        draft.add(Rename(draft.name(then), draft.name(now), why, size))
    for path in sorted(draft.store.left_out):
        draft.discard(path, Text("another log file contains the same bytes"))
    if moved:
        words = (
            Text("1 log file gets its right name")
            if len(moved) == 1
            else Text("{count:,} log files get their right names", count=len(moved))
        )
        draft.notes.append(Text("{words}, content unchanged; the rest of this plan assumes these names", words=words))
    for file in misplaced.files:
        path = file.claim.file.path
        if file.why_not and path not in draft.store.left_out and (file.why_not != COPY or file.claim.file.start >= 0):
            name, right = file.claim.file.name, file.right_name
            draft.notes.append(
                Text(
                    "{name} contains the records of {right}, but cannot be renamed: {why_not}. If a backup or "
                    "replica has the right {name}, restore it before --apply: otherwise its content is lost",
                    name=name,
                    right=right,
                    why_not=file.why_not,
                )
            )


def without_renames(steps: Iterable[Step]) -> list[Step]:
    """Return the steps that change more than names."""
    return [step for step in steps if not isinstance(step, SetAside | Rename)]
