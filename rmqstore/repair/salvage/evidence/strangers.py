"""Records that are the only one of their queue, and that another queue lacks: their TOPIC or QUEUEID is damaged. Pure.

No checksum covers these fields before 5.0, and a CRC that was computed over damaged bytes agrees with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from rmqstore.checks.log.logs import Logs
from rmqstore.checks.log.queue_parts import QueuePart
from rmqstore.formats import properties
from rmqstore.repair.salvage.evidence.values import Name, QueueSlot


def strangers(logs: Logs, numbers: Mapping[str, int]) -> dict[int, QueueSlot | None]:
    """Return the slot where each such record belongs by its global offset; None if nothing shows it.

    The log begins at 0, so its first record of a queue has queue offset 0, but this one has another. No unit points to
    it in its own queue. Just one queue has a gap there: of the same topic, or with a topic that differs in one bit. If
    the topic has no such queue by `numbers`, the configured numbers of queues, it may also continue a queue.
    """
    if logs.min_offset != 0:
        return {}
    near = _Near(logs)
    found: dict[int, QueueSlot | None] = {}
    for (topic, queue_id), part in sorted(logs.queues.items()):
        if part.messages != 1 or part.first <= 0 or part.accounted or part.first_at in logs.misfiled.offsets:
            continue
        owners = [name for name in near.with_gaps(topic, queue_id) if _lacks(logs.queues[name], part)]
        impossible = 0 < numbers.get(topic, 0) <= queue_id
        if impossible and not owners:
            ids = range(numbers[topic])
            owners = [(topic, other) for other in ids if _ends_before(logs.queues.get((topic, other)), part)]
        if len(owners) == 1:
            found[part.first_at] = QueueSlot(*owners[0], part.first)
        elif impossible:
            found[part.first_at] = None
    times = Counter(slot.key for slot in found.values() if slot is not None)
    return {at: slot if slot is not None and times[slot.key] == 1 else None for at, slot in found.items()}


class _Near:
    """The queues with gaps, by what they share with others."""

    def __init__(self, logs: Logs) -> None:
        self._by_topic: dict[str, list[int]] = {}
        self._by_length: dict[tuple[int, int], list[str]] = {}
        for (topic, queue_id), part in logs.queues.items():
            if part.gaps and not properties.is_lmq(topic):
                self._by_topic.setdefault(topic, []).append(queue_id)
                self._by_length.setdefault((queue_id, len(topic)), []).append(topic)

    def with_gaps(self, topic: str, queue_id: int) -> Iterator[Name]:
        """Yield the queues with gaps of the same topic, and of topics that differ in one bit with the same id."""
        yield from ((topic, other) for other in self._by_topic.get(topic, ()))
        near = self._by_length.get((queue_id, len(topic)), ())
        yield from ((other, queue_id) for other in near if one_bit_apart(topic, other))


def _ends_before(part: QueuePart | None, only: QueuePart) -> bool:
    """Return whether the only record of another queue would be the next one of a queue."""
    return part is not None and part.next == only.first and part.last_at < only.first_at


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
