"""Computes which delayed messages were delivered, for the delay levels that delayOffset.json lacks.

A broker delivers a delayed message by storing it again, in its own topic, with the same producer, times and body. It
keeps REAL_TOPIC in the copy. So the log shows which messages of SCHEDULE_TOPIC_XXXX were delivered, and the offset of a
level is that of the first one without a copy: a message may be delivered twice, but none is left out.

Source: ScheduleMessageService#messageTimeup, #start (RocketMQ 4.9.7, 5.1.4, 5.4.0, 5.5.1)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from rmqstore.checks.problems import codes
from rmqstore.files.config import config_bytes, config_object, delay_offsets
from rmqstore.formats.configuration import JsonValue
from rmqstore.formats.consumequeue import split_queue_label
from rmqstore.formats.message import Message
from rmqstore.formats.properties import REAL_QUEUE_ID, REAL_TOPIC, SCHEDULE_TOPIC, UNIQ_KEY, parse_properties
from rmqstore.repair.beside.config import build_offsets_json
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.recovery import LogAfter, Recovery
from rmqstore.repair.repaired_log import RepairedLog
from rmqstore.scan.columns import Columns
from rmqstore.texts import Text, many

_FILE = "delayOffset.json"
_NAME = REAL_TOPIC.encode() + b"\1"


_CONFIG = ("delayOffset.json", "delayOffset.json.bak")


def plan_delays(case: Recovery, draft: PlanBuilder, log: LogAfter) -> None:
    """Add the step for CFG-NO-DELAYS: delayOffset.json with the missing levels."""
    if codes.CFG_NO_DELAYS not in case.wanted:
        return
    config, files = draft.store.root / "config", draft.store.files
    table = next((found for name in _CONFIG if (found := config_object(files, config / name)) is not None), {})
    offsets = table.get("offsetTable")
    new: dict[str, JsonValue] = dict(offsets) if isinstance(offsets, dict) else {}
    levels = delivered_levels(log.logs)
    listed = case.verified.report.findings.listed
    lacking = {split_queue_label(finding.queue)[1] for finding in listed if finding.code == codes.CFG_NO_DELAYS}
    lacking |= {queue_id for queue_id, level in levels.items() if level.delivered}
    for queue_id in sorted(lacking - (delay_offsets(table) or {}).keys()):
        level = levels.get(queue_id, Level())
        new[str(queue_id + 1)] = level.next_offset
        if level.again:
            draft.notes.append(
                Text(
                    "delay level {level}: the log has no delivered copy of the message at queue offset {at:,}, so "
                    "{messages} after it will be delivered again",
                    level=queue_id + 1,
                    at=level.next_offset,
                    messages=many(level.again, "delivered message"),
                )
            )
    path = config / _FILE
    like = next((raw for name in (_FILE, "topics.json") if (raw := config_bytes(files, config / name))), b"")
    content = build_offsets_json({**table, "offsetTable": new}, like)
    why = Text("offsets of delay levels, from the delivered messages in the log")
    draft.replace(path, content, why, old=Text("has no offset for a delay level"))


@dataclass(slots=True)
class Level:
    """The messages of one delay level in the log, by queue offset.

    `waiting`: those without a delivered copy, in order. `stop`: one after the last message. `ahead`: a heap of those
    with a copy after the first one without.
    """

    waiting: dict[int, None] = field(default_factory=dict)
    stop: int = 0
    ahead: list[int] = field(default_factory=list)
    delivered: bool = False

    @property
    def next_offset(self) -> int:
        """The queue offset that the broker delivers next."""
        return next(iter(self.waiting), self.stop)

    @property
    def again(self) -> int:
        """How many messages with a copy are after that."""
        return len(self.ahead)

    def add(self, at: int) -> None:
        """Note a message."""
        self.waiting[at] = None
        self.stop = at + 1

    def deliver(self, at: int) -> None:
        """Note the copy of a message."""
        del self.waiting[at]
        self.delivered = True
        heappush(self.ahead, at)
        while self.ahead and self.ahead[0] < self.next_offset:
            heappop(self.ahead)


def delivered_levels(logs: Iterable[RepairedLog]) -> dict[int, Level]:
    """Return the delay levels with messages in the logs, by queue id.

    Memory grows with the messages that wait at one time.
    """
    levels: dict[int, Level] = {}
    waiting: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    for columns in (columns for log in logs for columns in log.chunks()):
        for message in _delayed(columns):
            known = parse_properties(message.properties)
            real = known.get(REAL_TOPIC, "")
            if message.topic_text == SCHEDULE_TOPIC:
                place = message.queue_id, message.queue_offset
                levels.setdefault(message.queue_id, Level()).add(message.queue_offset)
                waiting.setdefault(_identity(message, real, known), []).append(place)
            elif message.topic_text == real and (found := waiting.pop(_identity(message, real, known), None)):
                queue_id, at = found.pop(0)
                levels[queue_id].deliver(at)
                if found:
                    waiting[_identity(message, real, known)] = found
    return levels


def _delayed(columns: Columns) -> Iterator[Message]:
    """Yield the messages of a chunk whose properties may have REAL_TOPIC."""
    raw, last = columns.raw, -1
    stops = columns.at + columns.size
    at = raw.find(_NAME)
    while at >= 0:
        record = int(np.searchsorted(stops, at, side="right"))
        if record == len(columns):
            return
        if record != last and at >= columns.properties_at[record]:
            last = record
            yield columns.message(record)
        at = raw.find(_NAME, at + len(_NAME))


def _identity(message: Message, topic: str, known: Mapping[str, str]) -> tuple[object, ...]:
    """Return what a delayed message and its delivered copy have in common."""
    return (
        *(topic, known.get(REAL_QUEUE_ID), known.get(UNIQ_KEY), message.reconsume_times),
        *(message.born_timestamp, message.born_host, message.body_length, message.body_crc),
    )
