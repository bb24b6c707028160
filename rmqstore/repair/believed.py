"""Units that are right where the log is not: what is made from the log is not made to fit its damage.

A unit's tags code can prove that one bit of its message's TAGS is flipped. Salvage mends such a message. Where nothing
in the log is changed (a replica, a rebuild of one part, `--only`), queues and index are made as from the message that
was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rmqstore.checks.commitlog import LogResult
from rmqstore.checks.verify import Verified
from rmqstore.repair.content import Literal
from rmqstore.repair.draft import Draft
from rmqstore.repair.log_view import LogView, Patch
from rmqstore.repair.salvage_tags import proved_records

FACT = "proved_tags"
"""In a plan's facts: messages (global offsets) whose TAGS stay damaged though their units prove what they were."""
CODES = ("CQ-WRONG-TAG", "IX-DANGLING-ENTRY")
"""What stays to be said of such a message: its unit, and the index entry of its TAGS, say another than it does."""

_LISTED = 8


class Believed:
    """The records of a store that units prove, for the views of its logs."""

    def __init__(self, verified: Verified) -> None:
        self._records = list(proved_records(verified))

    def view(self, log: LogResult, end: int, draft: Draft) -> LogView:
        """A log as a draft leaves it, with those records as they were."""
        patches = [Patch(r.start, r.start + len(r.new), Literal(r.new)) for r in self._records if r.log is log]
        return LogView.of(log, end, draft, patches)


def tell(draft: Draft, views: Sequence[LogView]) -> None:
    """Say which messages of the views stay as they are, once."""
    places = sorted(patch.start for view in views for patch in view.believed)
    if not places or FACT in draft.facts:
        return
    draft.facts[FACT] = list(places)
    more = f" and {len(places) - _LISTED:,} more" if len(places) > _LISTED else ""
    draft.notes.append(
        f"the TAGS of the message at {', '.join(f'{at:,}' for at in places[:_LISTED])}{more} are damaged, as the tags "
        "code of its unit proves: the unit stays as it is, and so does the log"
    )


def cured(draft: Draft, codes: Iterable[str]) -> set[str]:
    """Those of the codes that are cured though such messages stay."""
    return {code for code in codes if FACT not in draft.facts or code not in CODES}
