"""CFG-NO-READ, -READ-QUEUES, -GROUP-OFF: messages in the queues that the configuration keeps from consumers.

Topics that the broker does not know have their own finding (CFG-UNKNOWN-TOPICS).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rmqstore.checks.beside.config import ConsumerOffsets
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings, QueueState
from rmqstore.files.config import GROUPS, TOPICS, directory_of
from rmqstore.files.read_rights import ReadRights, Refusal
from rmqstore.files.store import Store
from rmqstore.formats.consumequeue import split_queue_label
from rmqstore.texts import first_few

_NAMED = 5
_CODES = {Refusal.NO_PERMISSION: codes.CFG_NO_READ, Refusal.NO_QUEUE: codes.CFG_READ_QUEUES}


@dataclass(slots=True)
class _Withheld:
    """Messages that are not read, by queue and for whom."""

    messages: int = 0
    queues: list[int] = field(default_factory=list)
    groups: set[str] = field(default_factory=set)

    def facts(self) -> dict[str, Fact]:
        facts: dict[str, Fact] = {"messages": self.messages}
        return facts | ({"groups": first_few(sorted(self.groups), _NAMED)} if self.groups else {})


def check_read_rights(store: Store, states: Mapping[str, QueueState], findings: Findings) -> None:
    """Report topics, queues and groups whose messages consumers do not get because of the configuration.

    `states`: all queues, by name ("TOPIC/ID").
    """
    if store.part is not None:  # it has no configuration, and its queues may have any name
        return
    rights = ReadRights.read(store)
    offsets = ConsumerOffsets.read(store)
    refused: dict[tuple[str, str], _Withheld] = {}
    disabled: dict[str, _Withheld] = {}
    for label, state in states.items():
        topic, queue_id = split_queue_label(label)
        own = offsets.queues.get(topic, {}).get(queue_id, {})
        code = _CODES.get(rights.refusal(topic, queue_id) or Refusal.NO_TOPIC)
        if code is not None and (count := _left(state, min(own.values(), default=0))):
            unread = refused.setdefault((code, topic), _Withheld())
            unread.messages += count
            unread.queues.append(queue_id)
            unread.groups.update(group for group, offset in own.items() if _left(state, offset))
        for group in rights.disabled & own.keys():
            if count := _left(state, own[group]):
                disabled.setdefault(group, _Withheld()).messages += count
    findings.extend(_refused(store, rights, refused))
    file = directory_of(store, GROUPS) or "subscriptionGroup.json"
    for group, unread in sorted(disabled.items()):
        facts: dict[str, Fact] = {"group": group}
        findings.add(Finding(codes.CFG_GROUP_OFF, "config", file, facts=facts | unread.facts()))


def _left(state: QueueState, offset: int) -> int:
    """Return how many messages of a queue are at or after a queue offset."""
    return max(0, max(state.max, state.expected_max) - max(state.min, offset))


def _refused(store: Store, rights: ReadRights, found: Mapping[tuple[str, str], _Withheld]) -> Iterator[Finding]:
    file = directory_of(store, TOPICS) or "topics.json"
    for (code, topic), unread in sorted(found.items()):
        topics = rights.topics or {}
        about: dict[str, Fact] = {"topic": topic}
        if code == codes.CFG_NO_READ:
            about["perm"] = topics[topic].perm
        else:
            about |= {
                "read_queues": topics[topic].read_queues,
                "queues": first_few([str(one) for one in sorted(unread.queues)], _NAMED),
            }
        yield Finding(code, "config", file, facts=about | unread.facts())
