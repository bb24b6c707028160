"""Units of a consume queue that no message of the queue accounts for.

A unit and its record may contradict each other. One such unit among many good ones proves that the header of its record
is damaged. Several units in a row that point to the same other queue, or a queue without good units, prove nothing
about records: the files of the queue belong to another queue, or to another broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqstore.checks.problems.report import Fact, Finding
from rmqstore.formats import properties
from rmqstore.texts import Text

_ROW = 3  # consecutive units that point to the same other queue: not caused by damaged records
_LEAST = 10  # units that fit nothing, before all queues count as foreign
NO_RECORD = Text("no record starts there")
IN_A_BLANK = Text("the file ends there with a BLANK")
ANOTHER_RECORD = Text("another record starts there")


class UnownedUnit(NamedTuple):
    """One unit. `reason` says why it points to no message; otherwise, the fields from `topic` on describe the message.

    `file`: start of the log file that the unit points into. `owned`: the message has its unit in its own queue.
    `sound`: the topic of the message is valid text.
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
        """Consecutive units of the same kind are reported together."""
        return self.reason, self.topic, self.queue_id, self.owned, self.file if self.reason else 0


class Held(NamedTuple):
    """A finding about units, held back until all queues were checked; `file` as in `UnownedUnit`, -1 if irrelevant."""

    finding: Finding
    file: int


@dataclass(slots=True)
class Pointing:
    """Where the units of a store point: `fit` to their message, `loose` not.

    `nowhere`: number of units that point to no message, by start of the log file; `lost`: units that point into damage,
    by start of the damage and by topic; `held`: findings that one finding about a file or all queues may replace.
    """

    fit: int = 0
    loose: int = 0
    nowhere: Counter[int] = field(default_factory=Counter)
    lost: dict[int, Counter[str]] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)

    def damaged(self, start: int, topic: str) -> None:
        """Count a unit of a topic that points into damage, except of light queues: they share messages of others."""
        lost = self.lost.setdefault(start, Counter())
        if not properties.is_lmq(topic):
            lost[topic] += 1

    @property
    def foreign(self) -> bool:
        """Whether the queues and the log belong to different stores."""
        return self.loose >= _LEAST and self.loose > 9 * self.fit


def rows(loose: Iterable[UnownedUnit]) -> Iterator[list[UnownedUnit]]:
    """Group consecutive units of the same kind."""
    row: list[UnownedUnit] = []
    for one in loose:
        if row and (one.number != row[-1].number + 1 or one.kind != row[-1].kind):
            yield row
            row = []
        row.append(one)
    if row:
        yield row


def are_of_another_queue(row: list[UnownedUnit], fit: int, known: bool) -> bool:
    """Whether consecutive units belong to another queue; otherwise, each of them may prove that its record is damaged.

    `fit`: number of good units of the queue. `known`: topics.json has this topic, or does not have the other.
    """
    if row[0].reason:
        return False
    return len(row) >= _ROW or (not fit and (len(row) > 1 or not known))


def row_facts(row: list[UnownedUnit]) -> dict[str, Fact]:
    """Return the facts about consecutive units of the same kind."""
    one = row[0]
    facts: dict[str, Fact] = {"queue_offset": one.number}
    if len(row) > 1:
        return facts | {"units": len(row), "commitlog_offset": one.offset, "last_offset": row[-1].offset}
    return facts | {"commitlog_offset": one.offset, "size": one.size, "tags_code": one.tags}
