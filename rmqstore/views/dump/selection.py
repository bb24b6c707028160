"""Which records are wanted: the filters of `dump`, `du` and others, applied to columns first and texts last."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from rmqstore.errors import UsageError
from rmqstore.formats import properties
from rmqstore.formats.bodies import BodyError, decompress
from rmqstore.formats.message import Message
from rmqstore.formats.messageid import decode_offset_message_id
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import Bool
from rmqstore.scan.queues import QueueTable


@dataclass(frozen=True, slots=True)
class Selection:
    """Filters that all have to hold; an empty one holds for every record.

    `queue_ids` count for every topic, `queues` are (topic, id) pairs; `keys` are words of KEYS; `msg_ids` offset
    message ids or UNIQ_KEYs; `texts` are words of KEYS or UNIQ_KEYs; `grep` is a regular expression for the body as the
    producer sent it, and for lines `NAME=value` of the properties. Units: `since` and `until` store time in ms,
    half-open; `start` and `stop` offsets of records (queue offsets for consume queues), half-open.
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

    def __post_init__(self) -> None:
        """Errors: TypeError for one text where several are expected: "Order" would be the letters O, r, d and e."""
        for name in ("topics", "tags", "keys", "msg_ids"):
            if isinstance(getattr(self, name), str):
                raise TypeError(f"{name} is a set of texts: frozenset({{{getattr(self, name)!r}}})")

    @property
    def by_text(self) -> bool:
        """Whether property texts have to be read."""
        return bool(self.tags or self.keys or self.msg_ids or self.texts or self.grep)

    @property
    def by_queue(self) -> bool:
        return bool(self.topics or self.queue_ids or self.queues)

    def wants_queue(self, topic: str, queue_id: int) -> bool:
        """Whether records of this queue are wanted."""
        if self.topics and topic not in self.topics:
            return False
        if not self.queue_ids and not self.queues:
            return True
        return queue_id in self.queue_ids or (topic, queue_id) in self.queues

    def wants_texts(self, text: bytes, msg_id: str) -> bool:
        """Whether a record with this property text is wanted."""
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
        """Texts of which a chunk with a wanted record contains at least one; empty: no such text is known."""
        if any(decode_offset_message_id(i) is not None for i in self.msg_ids):
            return []
        wanted = self.keys or self.texts or self.tags or self.msg_ids
        return [t.encode("utf-8", "surrogateescape") for t in wanted]

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """`grep`, compiled; ^ and $ are the ends of lines.

        Errors: UsageError for what is not a regular expression.
        """
        if not self.grep:
            return None
        try:
            return re.compile(self.grep, re.MULTILINE)
        except re.error as error:
            raise UsageError(f"--grep {self.grep}: {error}", "give a regular expression of Python's re") from None


def matches(pattern: re.Pattern[str], message: Message) -> bool:
    """Whether a pattern is found in a message's properties, or in its body as the producer sent it."""
    found = properties.parse_properties(message.properties)
    if pattern.search("\n".join(f"{name}={value}" for name, value in found.items())):
        return True
    try:
        body = decompress(message.sys_flag, message.body)
    except BodyError:
        body = message.body
    return pattern.search(body.decode("utf-8", "surrogateescape")) is not None


class Selector:
    """Applies a selection to chunks; remembers the queues it has met."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.table = QueueTable()
        self._wanted: Bool = np.zeros(0, dtype=np.bool_)
        self._needles = selection.needles
        self._pattern = selection.pattern

    def mask(self, columns: Columns) -> Bool | None:
        """Which records of a chunk are wanted; None for all.

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
                topic = self.table.topics[number].decode("utf-8", "backslashreplace")
                self._wanted = np.append(self._wanted, s.wants_queue(topic, self.table.queue_ids[number]))
            out = _both(out, self._wanted[numbers])
        if s.by_text:
            out = self._texts(columns, out)
        return out

    def _texts(self, columns: Columns, out: Bool | None) -> Bool:
        n = len(columns)
        out = np.ones(n, dtype=np.bool_) if out is None else out
        if self._needles and n:
            raw = columns.buf[int(columns.at[0]) : int(columns.at[-1] + columns.size[-1])].tobytes()
            if not any(needle in raw for needle in self._needles):
                return np.zeros(n, dtype=np.bool_)
        view = columns.buf.data
        for i in np.flatnonzero(out).tolist():
            at = int(columns.properties_at[i])
            text = bytes(view[at : at + int(columns.properties_length[i])])
            msg_id = columns.message(i).offset_message_id() if self.selection.msg_ids else ""
            out[i] = self.selection.wants_texts(text, msg_id)
            if out[i] and self._pattern is not None:
                out[i] = matches(self._pattern, columns.message(i))
        return out


def _both(a: Bool | None, b: Bool) -> Bool:
    return b if a is None else a & b
