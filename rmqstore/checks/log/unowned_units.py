"""Units of a consume queue that no message of it accounts for: which to believe, and what they are said to be.

A unit and the record it points to may contradict each other. One such unit among many that fit proves its record's
header damaged. Units in a row that all say the same other queue, or a queue of which most units fit nothing, prove
nothing of records: there the queue's files are those of another queue, or of another broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqstore.checks.problems.report import Fact, Finding
from rmqstore.formats import properties

_ROW = 3  # units one behind the other with the same other queue: no damage of records does that
_LEAST = 10  # units that fit nothing, before a store's queues are said to be of another
NO_RECORD = "no record starts there"
IN_A_BLANK = "the file ends there with a BLANK"
ANOTHER_RECORD = "another record starts there"


class UnownedUnits(NamedTuple):
    """One unit. `reason` says why it points to no message; else the message's queue, queue offset and size follow.

    `file` is the start of the log file that it points into; `owned`: the message has its unit in its own queue.
    """

    number: int
    offset: int
    size: int
    tags: int
    file: int
    reason: str = ""
    topic: str = ""
    queue_id: int = -1
    queue_offset: int = -1
    length: int = 0
    owned: bool = False
    sound: bool = True

    @property
    def kind(self) -> tuple[str, str, int, bool, int]:
        """Units of the same kind, one behind the other, are one thing."""
        return self.reason, self.topic, self.queue_id, self.owned, self.file if self.reason else 0


class Pointed(NamedTuple):
    """A finding about units, held until all queues were seen; `file` as in `UnownedUnits`, -1 if irrelevant."""

    finding: Finding
    file: int
    units: int


@dataclass(slots=True)
class Pointing:
    """Where the units of a store lead: how many fit, how many do not, into which files, and into which damage.

    `nowhere`: units that point to no message, by the start of the log file; `lost`: units that point into damage, by
    the start of the damage and by topic; `held`: findings that one of a whole file or store may replace.
    """

    fit: int = 0
    loose: int = 0
    nowhere: Counter[int] = field(default_factory=Counter)
    lost: dict[int, Counter[str]] = field(default_factory=dict)
    held: list[Pointed] = field(default_factory=list)

    def damaged(self, start: int, topic: str) -> None:
        """A unit of a topic points into damage. Light queues only point to messages of others."""
        lost = self.lost.setdefault(start, Counter())
        if not properties.is_lmq(topic):
            lost[topic] += 1

    @property
    def foreign(self) -> bool:
        """Whether the queues and the log cannot be of one store."""
        return self.loose >= _LEAST and self.loose > 9 * self.fit


def rows(loose: Iterable[UnownedUnits]) -> Iterator[list[UnownedUnits]]:
    """Units one behind the other that are of the same kind."""
    row: list[UnownedUnits] = []
    for one in loose:
        if row and (one.number != row[-1].number + 1 or one.kind != row[-1].kind):
            yield row
            row = []
        row.append(one)
    if row:
        yield row


def are_of_another_queue(row: list[UnownedUnits], fit: int, known: bool) -> bool:
    """Whether units in a row are those of another queue, where each alone could prove its record wrong.

    `fit`: units of the queue that fit; `known`: topics.json knows the topic of this queue, or not that of the other.
    """
    if row[0].reason:
        return False
    return len(row) >= _ROW or (not fit and (len(row) > 1 or not known))


def row_facts(row: list[UnownedUnits]) -> dict[str, Fact]:
    """Facts of units that point to no message, or each to one of another queue."""
    one = row[0]
    facts: dict[str, Fact] = {"queue_offset": one.number}
    if len(row) > 1:
        return facts | {"units": len(row), "commitlog_offset": one.offset, "last_offset": row[-1].offset}
    return facts | {"commitlog_offset": one.offset, "size": one.size, "tags_code": one.tags}
