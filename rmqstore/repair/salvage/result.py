"""What a salvage hands to the plan: the steps, what they cost, and who will see the fillers. Values only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rmqstore.repair.plan.content import Json
from rmqstore.repair.plan.plan import Loss
from rmqstore.repair.plan.steps import Span, Step
from rmqstore.repair.salvage.candidates.edit import Restored
from rmqstore.repair.salvage.evidence.entries import Entry


@dataclass(frozen=True, slots=True)
class Filler:
    """A record that replaces a damaged one.

    `offset` global, of the record itself (in DLedger: entry position + 48); `length` in bytes. `kind` is "visible" for
    one that keeps a queue offset, "unseen" for one that no queue gets. `tags_code` is what its unit must say (None:
    none). `groups` have not consumed this offset yet and will get it; `marked` says how a consumer can tell it:
    "property", "tag" or "" for not at all.
    """

    offset: int
    length: int
    kind: Literal["visible", "unseen"]
    topic: str = ""
    queue_id: int = 0
    queue_offset: int = 0
    tags_code: int | None = None
    groups: tuple[str, ...] = ()
    marked: str = ""

    def to_json(self) -> dict[str, Json]:
        """What a plan lists of it."""
        names = ("topic", "queue_id", "queue_offset", "offset", "length", "marked")
        return {**{name: getattr(self, name) for name in names}, "groups": list(self.groups)}


@dataclass(frozen=True, slots=True)
class SalvageResult:
    """The part of a plan that covers damage within the logs.

    `steps` and `spans` (bytes kept in lost+found) go into the plan as they are. `lost_spans`: (global offset, length)
    of what is covered. `restored`: messages that a CRC makes whole again. `damaged`: messages that
    stay readable although some of their original bytes are unknown, as facts of a plan. `entries`: DLedger entries that
    were rebuilt. `rebuild_queues`: queues whose consume queue must be brought to the repaired log. `given_up` counts
    good messages that made room for damage beside them. `cures` are problem codes that the steps cure. `brakes` stop
    an apply until the operator decides; `refusals` are damages that stay as they are, with the option that would
    change that.
    """

    steps: tuple[Step, ...] = ()
    spans: tuple[Span, ...] = ()
    lost_spans: tuple[tuple[int, int], ...] = ()
    fillers: tuple[Filler, ...] = ()
    restored: tuple[Restored, ...] = ()
    damaged: tuple[Mapping[str, Json], ...] = ()
    entries: tuple[Entry, ...] = ()
    rebuild_queues: frozenset[tuple[str, int]] = frozenset()
    loss: Loss = field(default_factory=Loss)
    given_up: int = 0
    cures: tuple[str, ...] = ()
    brakes: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def visible_fillers(self) -> int:
        """How many fillers a consumer can meet."""
        return sum(filler.kind == "visible" for filler in self.fillers)

    @property
    def groups_that_will_see_them(self) -> Mapping[str, int]:
        """Consumer group → how many fillers it has not passed."""
        return dict(sorted(Counter(group for filler in self.fillers for group in filler.groups).items()))
