"""The result of `compare`: both sides in numbers, the first difference, and the reasons for all differences."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

SCHEMA = "rmqstore.compare/1"
_DAMAGE = ("damaged", "missing-file", "zeros")


@dataclass(frozen=True, slots=True)
class ComparedRecord:
    """One record of one side. `offset`: of the record or DLedger entry. Units: bytes, ms."""

    offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int
    index: int
    term: int

    def to_json(self) -> dict[str, int | str | None]:
        entry = self.index >= 0
        return {
            "offset": self.offset,
            "size": self.size,
            "index": self.index if entry else None,
            "term": self.term if entry else None,
            "topic": self.topic,
            "queue_id": self.queue_id,
            "queue_offset": self.queue_offset,
            "store_timestamp": self.store_timestamp,
        }


@dataclass(frozen=True, slots=True)
class Side:
    """One store in numbers: global offsets, number of messages, number of damaged ranges, DLedger indexes or None.

    `divided_offset`: the offset where DLedger starts, or in a plain store, where it would start after a conversion.
    """

    path: str
    kind: str
    min_offset: int
    wrote: int
    next_append: int
    divided_offset: int
    messages: int
    damaged: int
    dledger: dict[str, int] | None = None
    unreadable: bool = False


State = Literal["message", "damaged", "missing-file", "zeros", "blank", "other-record", "ended"]


@dataclass(slots=True)
class Divergence:
    """The lowest offset where the two stores differ, and the record that starts there on each side.

    `store_state` and `other_state`: what each side has at the offset.
    """

    log: str
    offset: int
    store: ComparedRecord | None
    other: ComparedRecord | None
    store_state: State = "message"
    other_state: State = "message"


@dataclass(slots=True)
class Messages:
    """Some messages: their number, the first ones, and per queue, number and ranges of queue offsets (inclusive)."""

    messages: int = 0
    queues: dict[str, tuple[int, list[tuple[int, int]]]] = field(default_factory=dict)
    listed: list[ComparedRecord] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "queues": {
                name: {"first": ranges[0][0], "messages": n, "ranges": [list(r) for r in ranges]}
                for name, (n, ranges) in sorted(self.queues.items())
            },
            "listed": [place.to_json() for place in self.listed],
        }


@dataclass(frozen=True, slots=True)
class BothDamaged:
    """Bytes [offset, until) that are damaged on both sides, and whether the bytes are the same."""

    offset: int
    until: int
    same_bytes: bool


@dataclass(slots=True)
class Comparison:
    """The result of a comparison.

    `equal_messages` are equal at the same offset on both sides; the first `leading_messages` of them, up to
    `common_stop` (bytes), precede the first difference. `changed`: same offset, queue and queue offset, other content.
    `damaged_in_*`: missing on this side because the bytes at their offset are damaged. `only_*`: on one side only, for
    another reason. `moved`: on both sides, at different offsets. `equal_index`: the last DLedger index before the first
    difference, or -1.
    """

    store: Side
    other: Side
    common_start: int
    common_stop: int
    leading_messages: int
    equal_messages: int
    divergence: Divergence | None = None
    changed: Messages = field(default_factory=Messages)
    damaged_in_store: Messages = field(default_factory=Messages)
    damaged_in_other: Messages = field(default_factory=Messages)
    only_store: Messages = field(default_factory=Messages)
    only_other: Messages = field(default_factory=Messages)
    moved: int = 0
    damaged_in_both: list[BothDamaged] = field(default_factory=list)
    equal_index: int = -1

    @property
    def equal(self) -> bool:
        """Whether no record differs, from the first offset for which both stores have files."""
        return self.divergence is None

    @property
    def relation(self) -> str:
        """`equal`, `store-is-prefix`, `other-is-prefix`, `moved` (same messages, other offsets), or `diverged`."""
        first = self.divergence
        if first is None:
            return "equal"
        if first.store_state == "ended":
            return "store-is-prefix"
        if first.other_state == "ended":
            return "other-is-prefix"
        bytes_differ = any(not both.same_bytes for both in self.damaged_in_both)
        return "diverged" if bytes_differ or any(part.messages for part in self._parts) else "moved"

    @property
    def heal_commands(self) -> list[str]:
        """Commands that replace what is damaged or missing on one side from the other; none without equal messages."""
        if not self.equal_messages:
            return []  # not replicas of each other: recover would refuse
        sides = (
            (self.store, self.other, self.damaged_in_store, "store_state"),
            (self.other, self.store, self.damaged_in_other, "other_state"),
        )
        out: list[str] = []
        for broken, good, damaged, name in sides:
            state = getattr(self.divergence, name, "")
            words = f"rmqstore recover {shlex.quote(broken.path)} --replica {shlex.quote(good.path)}"
            if damaged.messages or state in _DAMAGE:
                out.append(words)
            elif state == "ended":
                out.append(f"{words} --extend")
        return out

    @property
    def _parts(self) -> tuple[Messages, ...]:
        return self.changed, self.damaged_in_store, self.damaged_in_other, self.only_store, self.only_other

    def to_json(self) -> dict[str, Any]:
        """Return the object of `compare --json`."""
        first = self.divergence
        return {
            "schema": SCHEMA,
            "store": asdict(self.store),
            "other": asdict(self.other),
            "equal": self.equal,
            "relation": self.relation,
            "common": {"start": self.common_start, "stop": self.common_stop, "messages": self.leading_messages},
            "equal_messages": self.equal_messages,
            "first_divergence": None
            if first is None
            else {
                "log": first.log,
                "offset": first.offset,
                "store": None if first.store is None else first.store.to_json(),
                "other": None if first.other is None else first.other.to_json(),
                "store_state": first.store_state,
                "other_state": first.other_state,
            },
            "queues": {name: {"first_divergence": low} for name, low in sorted(self.queue_divergence.items())},
            "changed": self.changed.to_json(),
            "damaged_in_store": self.damaged_in_store.to_json(),
            "damaged_in_other": self.damaged_in_other.to_json(),
            "damaged_in_both": [asdict(both) for both in self.damaged_in_both],
            "only_in_store": self.only_store.to_json(),
            "only_in_other": self.only_other.to_json(),
            "moved": self.moved,
            "heal": self.heal_commands,
        }

    @property
    def queue_divergence(self) -> dict[str, int]:
        """The lowest queue offset of each queue whose message differs."""
        out: dict[str, int] = {}
        for part in self._parts:
            for queue, (_, ranges) in part.queues.items():
                out[queue] = min(ranges[0][0], out.get(queue, ranges[0][0]))
        return out
