"""Count messages with control characters in property values: allowed, but an overwritten page looks the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from rmqstore.checks.log.record_findings import record_facts, topics_text
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding
from rmqstore.formats import properties
from rmqstore.scan.columns import Columns


@dataclass(slots=True)
class ControlTally:
    """The number of these messages in a log or a part of it, and their extent. Parts are merged in address order.

    `first` and `last` are offsets (bytes), `facts` identify the first message, `begin` and `end` are store times (ms).
    """

    messages: int = 0
    first: int = -1
    last: int = -1
    size: int = 0  # of the first one, bytes
    begin: int = 1 << 62
    end: int = -1
    facts: dict[str, Fact] = field(default_factory=dict)
    topics: Counter[str] = field(default_factory=Counter)

    def add(self, columns: Columns, rows: Sequence[int]) -> None:
        """Count the records `rows` of a chunk."""
        for i in rows:
            if not self.messages:
                self.first, self.size = (
                    int(columns.offset[i]) - columns.body_offset,
                    int(columns.size[i]) + columns.body_offset,
                )
                found = properties.parse_properties(columns.properties(i))
                self.facts = record_facts(columns, i)
                self.facts |= {"unique_key": found.get(properties.UNIQ_KEY), "keys": found.get(properties.KEYS)}
            self.messages += 1
            self.last = int(columns.offset[i]) - columns.body_offset
            time = int(columns.store_timestamp[i])
            self.begin, self.end = min(self.begin, time), max(self.end, time)
            self.topics[columns.topic(i).decode("utf-8", "backslashreplace")] += 1

    def merge(self, other: ControlTally) -> None:
        """Append the next part."""
        if not self.messages:
            self.first, self.size, self.facts = other.first, other.size, dict(other.facts)
        if other.messages:
            self.messages += other.messages
            self.last = other.last
            self.begin, self.end = min(self.begin, other.begin), max(self.end, other.end)
            self.topics.update(other.topics)

    def finding(self, queue: str, file: str) -> Finding:
        """Return the note about a log; `file` holds the first message."""
        facts: dict[str, Fact] = {"messages": self.messages, **self.facts}
        if self.messages > 1:
            facts |= {"topics": topics_text(self.topics), "last_offset": self.last}
        facts |= {"first_timestamp": self.begin, "last_timestamp": self.end}
        return Finding(codes.CL_CONTROL_CHARACTERS, queue, file, self.first, self.size, facts)
