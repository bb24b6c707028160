"""Renames log files that have each other's names. Pure.

All else of a recovery is planned for the store as it is then: `store.moved` says which file will have which name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial

from rmqstore.checks.log.misplaced_files import CODES, COPY
from rmqstore.checks.verify import Verified
from rmqstore.errors import Refused
from rmqstore.files.store import Store
from rmqstore.repair.plan.fingerprints import fingerprint_entry
from rmqstore.repair.plan.plan_builder import PlanBuilder, readable
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.plan.steps import Rename, SetAside, Step

MISPLACED = tuple(CODES.values())
_WHY = "the name that its records prove"
_ROOM = "makes room: it holds no good record"


def store_in_place(store: Store, verified: Verified, options: RecoverOptions) -> Store:
    """The store that a plan is made for: with its files where they belong.

    Errors: Refused when the files are to stay as they are, but something else is to be cured.
    """
    misplaced = verified.misplaced
    if misplaced is None or not misplaced.store.is_rearranged:
        return store
    if not options.wants(*MISPLACED):
        codes = [code for code in MISPLACED if verified.report.findings.counts[code]]
        raise Refused(
            "log files have wrong names, and all else is judged as it is when they are back",
            f"add {' '.join(f'--only {code}' for code in codes)}",
        )
    return misplaced.store


def plan_misplaced(draft: PlanBuilder, verified: Verified) -> None:
    """Steps that give the files their names; anything else there is not a log file, and goes into quarantine."""
    moved, misplaced = draft.store.moved, verified.misplaced
    if misplaced is None:
        return
    sure = {file.claim.file.path for file in misplaced.files}
    for now, then in sorted(moved.items(), key=lambda row: row[1].name):
        if os.path.lexists(then) and then not in moved:
            draft.discard(then, "is in the place of a log file")
        expect, size = readable(now, partial(fingerprint_entry, now)), now.stat().st_size
        why = _WHY if now in sure else _ROOM
        draft.add(SetAside(draft.name(now), expect, why, size))
        draft.add(Rename(draft.name(then), draft.name(now), why, size))
    for path in sorted(draft.store.left_out):
        draft.discard(path, "another log file holds the same bytes")
        draft.cures.update(code for code in MISPLACED if code in verified.report.findings.counts)
    if moved:
        count = len(moved)
        words = f"{count:,} log files get their right names"
        if count == 1:
            words = "1 log file gets its right name"
        draft.notes.append(f"{words}, content unchanged; the rest of this plan assumes these names")
        draft.cures.update(code for code in MISPLACED if code in verified.report.findings.counts)
    for file in misplaced.files:
        path = file.claim.file.path
        if file.why_not and path not in draft.store.left_out and (file.why_not != COPY or file.claim.file.start >= 0):
            name, right = file.claim.file.name, file.right_name
            draft.notes.append(
                f"{name} holds the records of {right} and cannot go there: {file.why_not}. Is the right {name} kept "
                "elsewhere, in a backup or by a replica? Put it there before --apply: otherwise its content is lost"
            )


def but_names(steps: Iterable[Step]) -> list[Step]:
    """The steps that change more than names."""
    return [step for step in steps if not isinstance(step, SetAside | Rename)]
