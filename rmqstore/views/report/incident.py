"""The data of the report of one repair, for those who must account for it.

What was damaged and how far groups were comes from the plan in the journal; what holds today comes from the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rmqstore.checks.problems.report import Report
from rmqstore.errors import CouldNotCheck
from rmqstore.files.store import Store
from rmqstore.formats.times import iso_utc
from rmqstore.repair.journal.folder import STATE, JournalFolder, State
from rmqstore.repair.journal.journal import list_journals
from rmqstore.repair.plan.outcome import Before, before
from rmqstore.repair.plan.plan import Plan
from rmqstore.texts import Text
from rmqstore.views.lost import Losses, LostMessage, LostMessages
from rmqstore.views.report.fates import Fate, Fates

_MADE = "%Y%m%dT%H%M%S.%f"


@dataclass(frozen=True, slots=True)
class Concerned:
    """A message that a repair lost or mended, and what the store has in its place today."""

    message: LostMessage
    now: Fate

    @property
    def store_time(self) -> int | None:
        """The store time (ms), by the record or up to 1 s too early by the index; None if nothing shows it."""
        one = self.message
        return one.indexed_time if one.store_timestamp is None else one.store_timestamp

    @property
    def is_lost(self) -> bool:
        """Whether the repair could not keep it, and the store does not have it today."""
        return not self.message.mended and self.now is not Fate.PRESENT

    def to_row(self) -> dict[str, Any]:
        """Return the row of the CSV list; times in ISO 8601, UTC."""
        one = self.message
        return {
            "topic": one.topic,
            "queue_id": one.queue_id,
            "queue_offset": one.queue_offset,
            "log_offset": one.offset,
            "stored": None if self.store_time is None else iso_utc(self.store_time),
            "keys": one.keys,
            "unique_key": one.unique_key,
            "tags": one.tags,
            "size": one.size,
            "lost": self.is_lost,
            "mended": one.mended,
            "body": "mended" if one.mended else one.body,
            "now": self.now.value,
            "consumed_by": None if one.consumed_by is None else " ".join(one.consumed_by),
        }


@dataclass(slots=True)
class Incident:
    """One repair: its journal, its plan, the messages that it concerns, and the store today.

    `began`, `ended` (ms): when the repair began, and when its state last changed; None if unknown. `later`: journals of
    changes that came after it.
    """

    folder: JournalFolder
    plan: Plan
    report: Report
    losses: Losses
    messages: list[Concerned] = field(default_factory=list)
    before: Before | None = None
    began: int | None = None
    ended: int | None = None
    later: list[str] = field(default_factory=list)

    @property
    def state(self) -> State:
        return self.folder.record.state

    @property
    def in_effect(self) -> bool:
        """Whether the store has the changes of this repair."""
        return self.state is State.DONE

    @property
    def lost(self) -> list[Concerned]:
        """Messages that the repair could not keep, and that are not back."""
        return [one for one in self.messages if one.is_lost]

    @property
    def back(self) -> list[Concerned]:
        """Messages that the repair could not keep, and that the store has again."""
        return [one for one in self.messages if not one.message.mended and one.now is Fate.PRESENT]

    @property
    def unlisted(self) -> int:
        """Further lost messages, of which only the number is known."""
        return sum(self.losses.unlisted.values())

    @property
    def restored(self) -> int:
        """Messages that the repair took from another copy of the log."""
        restored = self.plan.facts.get("restored")
        places = restored.get("places") if isinstance(restored, dict) else None
        rows = [row for row in places if isinstance(row, dict)] if isinstance(places, list) else []
        return sum(n for row in rows if isinstance(n := row.get("messages"), int))


def incident(store: Store, folder: JournalFolder, report: Report) -> Incident:
    """Collect the data of the report of a repair; `report`: the store as it is today.

    Errors: CouldNotCheck for a journal whose plan cannot be read.
    """
    try:
        plan = folder.load_plan()
    except CouldNotCheck as error:
        raise CouldNotCheck(error.message, Text("without its plan, a journal does not tell what it did")) from error
    losses = LostMessages(store).in_repair(folder, plan)
    fates = Fates(store)
    names = [info.path.name for info in list_journals(store.root) if info.state is State.DONE]
    return Incident(
        folder,
        plan,
        report,
        losses,
        [Concerned(one, fates.of(one.topic, one.queue_id, one.queue_offset)) for one in losses.damaged],
        before(plan),
        _began(folder),
        _ended(folder),
        [name for name in names if name > folder.name],
    )


def rows(found: Incident) -> Iterator[dict[str, Any]]:
    """Yield the rows of the CSV list: every message that the repair concerns, those that are lost first."""
    for one in sorted(found.messages, key=lambda one: not one.is_lost):
        yield one.to_row()


def _began(folder: JournalFolder) -> int | None:
    """Return when the repair began (ms), from the name of its journal."""
    try:
        when = datetime.strptime(folder.name[:22], _MADE).replace(tzinfo=UTC)
    except ValueError:
        return None
    return round(when.timestamp() * 1000)


def _ended(folder: JournalFolder) -> int | None:
    """Return when the state of a journal last changed (ms)."""
    try:
        return (folder.path / STATE).stat().st_mtime_ns // 1_000_000
    except OSError:
        return None
