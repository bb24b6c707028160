"""Messages of deleted topics that are still in the log, and what brings such a topic back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rmqstore.append.importing import topic_config
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Finding


@dataclass(slots=True)
class DeletedTopic:
    """A topic that is not in topics.json, with messages in the log, at [first_offset, last_offset] (log offsets)."""

    topic: str
    messages: int = 0
    first_offset: int = 1 << 63
    last_offset: int = -1
    queues: int = 0
    """Number of queues that the topic had at least."""

    def add(self, queue_id: int, facts: Any) -> None:
        """Add a queue by the facts of its finding."""
        self.messages += int(facts["messages"])
        self.first_offset = min(self.first_offset, int(facts["first_offset"]))
        self.last_offset = max(self.last_offset, int(facts["last_offset"]))
        self.queues = max(self.queues, queue_id + 1)

    def to_json(self) -> dict[str, Any]:
        """Return the row of `lost --json`; `topic_config` is its entry in topics.json."""
        return {
            "topic": self.topic,
            "queues": self.queues,
            "messages": self.messages,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "topic_config": topic_config(self.topic, self.queues),
        }


def deleted_topics(findings: Iterable[Finding]) -> list[DeletedTopic]:
    """Return the deleted topics that the findings of `verify` name, by name."""
    found: dict[str, DeletedTopic] = {}
    for finding in findings:
        if finding.code == codes.CQ_DELETED_TOPIC:
            topic, _, queue_id = finding.queue.rpartition("/")
            found.setdefault(topic, DeletedTopic(topic)).add(int(queue_id), finding.facts)
    return [found[topic] for topic in sorted(found)]
