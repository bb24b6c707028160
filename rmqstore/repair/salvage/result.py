"""The result of a salvage: steps, fillers, loss, and notes for the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rmqstore.repair.plan.content import Json
from rmqstore.repair.plan.plan import Loss
from rmqstore.repair.plan.steps import Span, Step
from rmqstore.repair.salvage.candidates.edit import Restored


@dataclass(frozen=True, slots=True)
class Filler:
    """A record that replaces a damaged one.

    `offset` is global, of the record itself (in DLedger: entry position + 48); `length` in bytes. `kind` is "visible"
    if it keeps a queue offset, "unseen" if no queue contains it. `groups` have not consumed this offset yet and will
    get it. `marked` is how a consumer can recognize it: "property", "tag", or "" for not at all.
    """

    offset: int
    length: int
    kind: Literal["visible", "unseen"]
    topic: str = ""
    queue_id: int = 0
    queue_offset: int = 0
    groups: tuple[str, ...] = ()
    marked: str = ""

    def to_json(self) -> dict[str, Json]:
        """Return what a plan lists of a visible filler."""
        names = ("topic", "queue_id", "queue_offset", "offset", "length", "marked")
        return {**{name: getattr(self, name) for name in names}, "groups": list(self.groups)}


@dataclass(frozen=True, slots=True)
class SalvageResult:
    """The part of a plan that covers damage within the logs.

    `spans` are bytes to save in lost+found. `restored` are messages that a CRC corrected. `damaged` are messages that
    stay readable although some of their original bytes are unknown, as facts of a plan. `rebuild_queues` are queues
    whose consume queue must be rebuilt. `given_up` counts good messages that are lost to damage beside them.
    `decisions` are what the operator must decide first; `refusals` are damage that is not repaired, with the option
    that would repair it. `unproved` counts findings per problem code that stay because nothing proves the right bytes.
    """

    steps: tuple[Step, ...] = ()
    spans: tuple[Span, ...] = ()
    fillers: tuple[Filler, ...] = ()
    restored: tuple[Restored, ...] = ()
    damaged: tuple[Mapping[str, Json], ...] = ()
    rebuild_queues: frozenset[tuple[str, int]] = frozenset()
    loss: Loss = field(default_factory=Loss)
    given_up: int = 0
    decisions: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unproved: Mapping[str, int] = field(default_factory=dict)

    @property
    def visible_fillers(self) -> int:
        """Return the number of fillers that consumers can receive."""
        return sum(filler.kind == "visible" for filler in self.fillers)

    @property
    def groups_that_will_see_them(self) -> Mapping[str, int]:
        """Return how many fillers each consumer group has not consumed yet."""
        return dict(sorted(Counter(group for filler in self.fillers for group in filler.groups).items()))
