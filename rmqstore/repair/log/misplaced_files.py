"""Files of the log that stand under each other's names go back under their own. Pure.

All else of a recovery is planned for the store as it is then: `store.moved` says which file will have which name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial

from rmqstore.checks.log.misplaced_files import CODES
from rmqstore.checks.verify import Verified
from rmqstore.errors import Refused
from rmqstore.files.store import Store
from rmqstore.repair.plan.fingerprints import fingerprint_entry
from rmqstore.repair.plan.plan_builder import PlanBuilder, readable
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.plan.steps import Rename, SetAside, Step

MISPLACED = tuple(CODES.values())
_WHY = "the right name by what its records say"
_ROOM = "makes room: it holds no good record"


def store_in_place(store: Store, verified: Verified, options: RecoverOptions) -> Store:
    """The store that a plan is made for: with its files where they belong.

    Errors: Refused when the files are to stay as they are, but something else is to be cured.
    """
    misplaced = verified.misplaced
    if misplaced is None or not misplaced.store.moved:
        return store
    if not options.wants(*MISPLACED):
        codes = [code for code in MISPLACED if verified.report.findings.counts[code]]
        raise Refused(
            "files of the log stand under wrong names, and all else is judged as it is when they are back",
            f"add {' '.join(f'--only {code}' for code in codes)}",
        )
    return misplaced.store


def plan_misplaced(draft: PlanBuilder, verified: Verified) -> None:
    """Steps that give the files their names; what else stands there is no file of the log, and goes into quarantine."""
    moved, misplaced = draft.store.moved, verified.misplaced
    if misplaced is None:
        return
    sure = {file.claim.file.path for file in misplaced.files}
    for now, then in sorted(moved.items(), key=lambda row: row[1].name):
        if os.path.lexists(then) and then not in moved:
            draft.discard(then, "stands where a file of the log belongs")
        expect, size = readable(now, partial(fingerprint_entry, now)), now.stat().st_size
        why = _WHY if now in sure else _ROOM
        draft.add(SetAside(draft.name(now), expect, why, size))
        draft.add(Rename(draft.name(then), draft.name(now), why, size))
    if moved:
        count = len(moved)
        words = f"{count:,} files of the log go back under their right names"
        if count == 1:
            words = "1 file of the log goes back under its right name"
        draft.notes.append(f"{words}, with every byte as it is; all else in this plan is judged as it is then")
        draft.cures.update(code for code in MISPLACED if code in verified.report.findings.counts)
    for file in misplaced.files:
        if file.why_not:
            name, right = file.claim.file.name, file.right_name
            draft.notes.append(
                f"{name} holds the records of {right} and cannot go there: {file.why_not}. Is the right {name} kept "
                "elsewhere, in a backup or by a replica? Put it there before --apply: what it held is lost otherwise"
            )


def but_names(steps: Iterable[Step]) -> list[Step]:
    """The steps that change more than names."""
    return [step for step in steps if not isinstance(step, SetAside | Rename)]
