"""Messages with control characters in property values: legal, and what a page that was written over looks like too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from rmqstore.checks.log.record_findings import record_facts
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding
from rmqstore.formats import properties
from rmqstore.scan.columns import Columns

CODE = codes.CL_CONTROL_CHARACTERS
_TOPICS = 5  # that are named


@dataclass(slots=True)
class ControlTally:
    """How many such messages a log, or a part of it, has; parts merge in address order.

    `first` and `last` are offsets (bytes), `facts` say what the first one is, times in ms.
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
        """Count records of a chunk, in address order."""
        for i in rows:
            if not self.messages:
                self.first, self.size = int(columns.offset[i]) - columns.lead, int(columns.size[i]) + columns.lead
                at = int(columns.properties_at[i])
                text = bytes(columns.buf[at : at + int(columns.properties_length[i])])
                found = properties.parse_properties(text)
                self.facts = record_facts(columns, i)
                self.facts |= {"unique_key": found.get(properties.UNIQ_KEY), "keys": found.get(properties.KEYS)}
            self.messages += 1
            self.last = int(columns.offset[i]) - columns.lead
            time = int(columns.store_timestamp[i])
            self.begin, self.end = min(self.begin, time), max(self.end, time)
            self.topics[columns.topic(i).decode("utf-8", "backslashreplace")] += 1

    def merge(self, other: ControlTally) -> None:
        """Take over what the next part found."""
        if not self.messages:
            self.first, self.size, self.facts = other.first, other.size, dict(other.facts)
        if other.messages:
            self.messages += other.messages
            self.last = other.last
            self.begin, self.end = min(self.begin, other.begin), max(self.end, other.end)
            self.topics.update(other.topics)

    def finding(self, queue: str, file: str) -> Finding:
        """The note of a log; `file` is that of the first message."""
        facts: dict[str, Fact] = {"messages": self.messages, **self.facts}
        if self.messages > 1:
            most = ", ".join(f"{topic} {count:,}" for topic, count in self.topics.most_common(_TOPICS))
            more = ", …" if len(self.topics) > _TOPICS else ""
            facts |= {"topics": most + more, "last_offset": self.last}
        facts |= {"first_timestamp": self.begin, "last_timestamp": self.end}
        return Finding(CODE, queue, file, self.first, self.size, facts)
