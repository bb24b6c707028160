"""Filters of `dump`, `du` and others for records. They are applied to columns first and to texts last."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from rmqstore.errors import UsageError
from rmqstore.formats import properties
from rmqstore.formats.bodies import BodyError, decompress, messages_in
from rmqstore.formats.message import COMPRESSED, INNER_BATCH, Message
from rmqstore.scan.columns import NOTHING, Columns, Repaired, filler_mask
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.kernels import Bool
from rmqstore.texts import Text

Ordered = TypeVar("Ordered", list[Any], tuple[Any, ...], range, npt.NDArray[Any])


@dataclass(frozen=True, slots=True)
class Selection:
    """Filters for records. A record must match all of them; an empty filter matches every record.

    `queue_ids`: in any topic; `queues`: pairs (topic, queue id). `keys`: words of KEYS; `msg_ids`: offset message ids
    or UNIQ_KEYs; `texts`: words of KEYS, or UNIQ_KEYs. `grep`: regular expression, searched in the decompressed body
    and in lines `NAME=value` of the properties. `limit`: number of records; `reverse`: newest first. `fillers`: whether
    records match that a repair put in the place of lost messages; `repaired`: what journals tell about records.
    Units: `since` and `until` are store times in ms, half-open; `start` and `stop` are global offsets of records (queue
    offsets for consume queues), half-open.
    """

    topics: frozenset[str] = frozenset()
    queue_ids: frozenset[int] = frozenset()
    queues: frozenset[tuple[str, int]] = frozenset()
    tags: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    msg_ids: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    grep: str = ""
    since: int | None = None
    until: int | None = None
    start: int | None = None
    stop: int | None = None
    limit: int | None = None
    reverse: bool = False
    fillers: bool = True
    repaired: Repaired = NOTHING

    def __post_init__(self) -> None:
        """Errors: TypeError for a string instead of a set of strings ("Order" would mean O, r, d and e)."""
        for name in ("topics", "tags", "keys", "msg_ids"):
            if isinstance(getattr(self, name), str):
                raise TypeError(f"{name} is a set of strings: frozenset({{{getattr(self, name)!r}}})")

    @property
    def by_text(self) -> bool:
        """Whether a filter needs the properties or the body."""
        return bool(self.tags or self.keys or self.msg_ids or self.texts or self.grep)

    @property
    def by_queue(self) -> bool:
        return bool(self.topics or self.queue_ids or self.queues)

    def wants_queue(self, topic: str, queue_id: int) -> bool:
        """Return whether records of this queue can match."""
        if self.topics and topic not in self.topics:
            return False
        if not self.queue_ids and not self.queues:
            return True
        return queue_id in self.queue_ids or (topic, queue_id) in self.queues

    def ordered(self, items: Ordered) -> Ordered:
        """Return items in the order in which they are read: the last one first with `reverse`."""
        return items[::-1] if self.reverse else items

    def wants_texts(self, text: bytes, msg_id: str) -> bool:
        """Return whether a record with this property text and offset message id matches."""
        found = properties.parse_properties(text)
        if self.tags and found.get(properties.TAGS) not in self.tags:
            return False
        keys = found.get(properties.KEYS, "").split(" ")
        if self.keys and self.keys.isdisjoint(keys):
            return False
        if self.texts and self.texts.isdisjoint((*keys, found.get(properties.UNIQ_KEY, ""))):
            return False
        return not (
            self.msg_ids and msg_id not in self.msg_ids and found.get(properties.UNIQ_KEY, "") not in self.msg_ids
        )

    @property
    def needles(self) -> list[bytes]:
        """Texts, at least one of which is in every chunk that contains a match; empty if there are no such texts."""
        if self.msg_ids:
            from rmqstore.formats.messageid import decode_offset_message_id

            if any(decode_offset_message_id(i) is not None for i in self.msg_ids):
                return []
        wanted = self.keys or self.texts or self.tags or self.msg_ids
        return [t.encode("utf-8", "surrogateescape") for t in wanted]

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """`grep`, compiled; ^ and $ match at lines.

        Errors: UsageError if it is not a regular expression.
        """
        if not self.grep:
            return None
        try:
            return re.compile(self.grep, re.MULTILINE)
        except re.error as error:
            raise UsageError(f"--grep {self.grep}: {error}", Text("use the syntax of Python's re module")) from None


def matches(pattern: re.Pattern[str], message: Message) -> bool:
    """Return whether a pattern is found in a message's properties (`NAME=value`) or in its decompressed body."""
    found = properties.parse_properties(message.properties)
    if pattern.search("\n".join(f"{name}={value}" for name, value in found.items())):
        return True
    try:
        body = decompress(message.sys_flag, message.body)
    except BodyError:
        body = message.body
    return pattern.search(body.decode("utf-8", "surrogateescape")) is not None


class Selector:
    """Applies a selection to chunks of records; remembers which queues match."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.table = QueueTable()
        self._wanted: Bool = np.zeros(0, dtype=np.bool_)
        self._needles = selection.needles
        self._pattern = selection.pattern
        self.repaired = selection.repaired

    def mask(self, columns: Columns) -> Bool | None:
        """Return the mask of the matching records of a chunk; None if all match.

        Shape: (n,)
        """
        s = self.selection
        out: Bool | None = None
        if s.start is not None:
            out = columns.offset >= s.start
        if s.stop is not None:
            out = _both(out, columns.offset < s.stop)
        if s.since is not None:
            out = _both(out, columns.store_timestamp >= s.since)
        if s.until is not None:
            out = _both(out, columns.store_timestamp < s.until)
        if s.by_queue:
            numbers = self.table.of(columns)
            for number in range(len(self._wanted), len(self.table)):
                wanted = s.wants_queue(self.table.topic(number), self.table.queue_ids[number])
                self._wanted = np.append(self._wanted, wanted)
            out = _both(out, self._wanted[numbers])
        if s.by_text:
            out = self._texts(columns, out)
        if not s.fillers:
            fillers = filler_mask(columns, self.repaired)
            out = out if fillers is None else _both(out, ~fillers)
        return out

    def _texts(self, columns: Columns, out: Bool | None) -> Bool:
        n = len(columns)
        out = np.ones(n, dtype=np.bool_) if out is None else out
        packed = (columns.sys_flag & (INNER_BATCH | COMPRESSED)) == INNER_BATCH | COMPRESSED
        if self._needles and n and not packed.any():
            raw = columns.buf[int(columns.at[0]) : int(columns.at[-1] + columns.size[-1])].tobytes()
            if not any(needle in raw for needle in self._needles):
                return np.zeros(n, dtype=np.bool_)
        view = columns.buf.data
        for i in np.flatnonzero(out).tolist():
            at = int(columns.properties_at[i])
            text = bytes(view[at : at + int(columns.properties_length[i])])
            msg_id = columns.message(i).offset_message_id() if self.selection.msg_ids else ""
            out[i] = self.selection.wants_texts(text, msg_id)
            if not out[i] and columns.sys_flag[i] & INNER_BATCH:  # the messages of a batch have keys and ids, too
                inner = messages_in(columns.message(i))
                out[i] = any(self.selection.wants_texts(one.properties, msg_id) for one in inner)
            if out[i] and self._pattern is not None:
                out[i] = matches(self._pattern, columns.message(i))
        return out


def _both(a: Bool | None, b: Bool) -> Bool:
    return b if a is None else a & b
