"""Records that are the only one of their queue, and that another queue lacks: their TOPIC or QUEUEID is damaged. Pure.

No checksum covers these fields before 5.0, and a CRC that was computed over damaged bytes agrees with them.
"""

from __future__ import annotations

from collections import Counter

from rmqstore.checks.log.logs import Logs
from rmqstore.checks.log.queue_parts import QueuePart
from rmqstore.formats import properties
from rmqstore.repair.salvage.evidence.values import Name, QueueSlot


def strangers(logs: Logs) -> dict[int, QueueSlot]:
    """Return the slot where each such record belongs, by its global offset.

    The log begins at 0, so its first record of a queue has queue offset 0, but this one has another. No unit points to
    it in its own queue. Just one queue has a gap there: of the same topic, or with a topic that differs in one bit.
    """
    if logs.min_offset != 0:
        return {}
    by_topic: dict[str, list[int]] = {}
    by_length: dict[tuple[int, int], list[str]] = {}
    for (topic, queue_id), part in logs.queues.items():
        if part.gaps and not properties.is_lmq(topic):
            by_topic.setdefault(topic, []).append(queue_id)
            by_length.setdefault((queue_id, len(topic)), []).append(topic)
    found: dict[int, QueueSlot] = {}
    for (topic, queue_id), part in sorted(logs.queues.items()) if by_topic else ():
        if part.messages != 1 or part.first <= 0 or part.accounted or part.first_at in logs.misfiled.offsets:
            continue
        near: list[Name] = [(topic, other) for other in by_topic.get(topic, ())]
        near += [(one, queue_id) for one in by_length.get((queue_id, len(topic)), ()) if one_bit_apart(topic, one)]
        owners = [name for name in near if _lacks(logs.queues[name], part)]
        if len(owners) == 1:
            found[part.first_at] = QueueSlot(*owners[0], part.first)
    times = Counter(slot.key for slot in found.values())
    return {at: slot for at, slot in found.items() if times[slot.key] == 1}


def _lacks(part: QueuePart, only: QueuePart) -> bool:
    """Return whether a queue has a gap for the only record of another one."""
    return any(g.expected <= only.first < g.got and g.before < only.first_at < g.at for g in part.gaps)


def one_bit_apart(one: str, other: str) -> bool:
    """Return whether two topics of the same length differ in one bit; bytes that are not UTF-8 fit any character."""
    different = [(a, b) for a, b in zip(one, other, strict=True) if a != b]
    if len(different) != 1:
        return False
    a, b = different[0]
    return a == "\ufffd" or (ord(a) ^ ord(b)).bit_count() == 1
