"""Messages of deleted topics that are still in the log, and what brings such a topic back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import QueueState
from rmqstore.checks.verified import Verified
from rmqstore.files.store import Store
from rmqstore.formats.configuration import topic_config
from rmqstore.formats.consumequeue import parse_queue_label, split_queue_label
from rmqstore.formats.properties import is_lmq, is_system_topic
from rmqstore.views.lookup import QueueUnits


@dataclass(slots=True)
class DeletedTopic:
    """A topic that is not in topics.json, with messages in the log, at [first_offset, last_offset] (log offsets)."""

    topic: str
    messages: int = 0
    first_offset: int = 1 << 63
    last_offset: int = -1
    queues: int = 0
    """Number of queues that the topic had at least."""
    has_queues: bool = False
    """Whether its consume queues still exist."""

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


def deleted_topics(store: Store, verified: Verified) -> list[DeletedTopic]:
    """Return the topics of messages that topics.json does not name, by name.

    If their queues are gone, `verify` has findings. If not, no broker serves the queues either (TOPIC_NOT_EXIST): so it
    is after a topics.json was restored that is too old.
    """
    found: dict[str, DeletedTopic] = {}
    for finding in verified.report.findings.listed:
        if finding.code == codes.CQ_DELETED_TOPIC and (name := parse_queue_label(finding.queue)) is not None:
            found.setdefault(name[0], DeletedTopic(name[0])).add(name[1], finding.facts)
    known = verified.logs.topics
    for label, state in verified.report.queues.items():
        topic, queue_id = split_queue_label(label)
        served = known is None or topic in known or is_system_topic(topic) or is_lmq(topic)
        if not served and state.max > state.min:
            one = found.setdefault(topic, DeletedTopic(topic, has_queues=True))
            one.add(queue_id, _facts(store, topic, queue_id, state))
    return [found[topic] for topic in sorted(found)]


def _facts(store: Store, topic: str, queue_id: int, state: QueueState) -> dict[str, int]:
    """Return the facts of `DeletedTopic.add` for a queue."""
    units = QueueUnits(store, topic, queue_id)
    first, last = units.at(state.min), units.at(state.max - 1)
    return {
        "messages": state.max - state.min,
        "first_offset": 0 if first is None else first.offset,
        "last_offset": 0 if last is None else last.offset,
    }
