"""The delay levels that a store was written with, where nobody says what messageDelayLevel is.

The due time in a unit of SCHEDULE_TOPIC_XXXX is the message's store time and its level's delay. A store whose broker
has levels of its own must not count as damaged, nor be "cured", because it is looked at without broker.conf.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rmqstore.files.mapped_file_queue import MappedFileQueue, list_directory
from rmqstore.files.store import Store, StoreKind
from rmqstore.formats import consumequeue, properties
from rmqstore.formats.javatext import parse_int
from rmqstore.formats.message import Message, parse_message
from rmqstore.formats.properties import DEFAULT_DELAY_LEVELS, SCHEDULE_TOPIC, DelayLevels
from rmqstore.scan.units import last_nonzero_in

UNIT = consumequeue.UNIT.size
SAMPLE = 16  # units of a level that are looked at, from its newest on
LONGEST = 4 << 20  # bytes of a message that is looked at
_LEVELS = 1000  # more queues of the schedule topic than any messageDelayLevel has
_SECOND = 1000  # ms; the shortest unit of time that a messageDelayLevel can name


def delay_levels(store: Store) -> DelayLevels:
    """The configured delay levels; without any, those that the store's own units show, else the default ones.

    The default ones also where a broker would refuse the setting.
    """
    if "messageDelayLevel" in store.config.given:
        try:
            return properties.parse_delay_levels(store.config.text("messageDelayLevel"))
        except ValueError:
            return DEFAULT_DELAY_LEVELS
    return learned_levels(store) or DEFAULT_DELAY_LEVELS


def learned_levels(store: Store) -> DelayLevels | None:
    """Levels of which most units, two or more, agree upon another delay than the default; None when there are none.

    One such level shows that the table is another: then a single unit is enough for the next.
    """
    if store.part is not None or store.kind is StoreKind.ROCKSDB:
        return None
    shown = {level: Counter(_delays(store, level)) for level in _levels(store)}
    likely = {level: found.most_common(1)[0] for level, found in shown.items() if found}
    default = DEFAULT_DELAY_LEVELS.delays
    other = {
        level: delay
        for level, (delay, n) in likely.items()
        if n * 2 > shown[level].total() and _can_be_set(delay) and default[level - 1 : level] != (delay,)
    }
    if not any(likely[level][1] > 1 for level in other):
        return None
    table = list(default)
    table += default[-1:] * (max(other) - len(table))
    for level, delay in other.items():
        table[level - 1] = delay
    return DelayLevels(tuple(table))


def _can_be_set(delay: int) -> bool:
    return delay > 0 and delay % _SECOND == 0


def _levels(store: Store) -> list[int]:
    numbers = (parse_int(entry.path.name) for entry in list_directory(store.root / "consumequeue" / SCHEDULE_TOPIC))
    return [number + 1 for number in numbers if number is not None and 0 <= number < _LEVELS]


def _delays(store: Store, level: int) -> Iterator[int]:
    """Due time less store time of a level's newest units whose message can be read, in ms."""
    logs = [log for log in (store.commitlog, store.dledger.data if store.dledger else None) if log is not None]
    for offset, size, code in _newest_units(store.consume_queue(SCHEDULE_TOPIC, level - 1).queue):
        for log in logs:
            message = _message(log, offset, size)
            if message is not None and _level(message) == level:
                yield code - message.store_timestamp
                break


def _newest_units(queue: MappedFileQueue) -> Iterator[tuple[int, int, int]]:
    left = SAMPLE
    for file in reversed(queue.files):
        last = last_nonzero_in(file, UNIT)
        if last is None:
            continue
        stop = last // UNIT * UNIT + UNIT
        start = max(0, stop - left * UNIT)
        raw = queue.pread(stop - start, file.start + start)
        for unit in consumequeue.UNIT.array(raw[: len(raw) // UNIT * UNIT]).tolist():
            if consumequeue.is_unit(unit[0], unit[1]):
                left -= 1
                yield unit[0], unit[1], unit[2]
        if left <= 0:
            return


def _message(log: MappedFileQueue, offset: int, size: int) -> Message | None:
    file = log.find(offset)
    if file is None or size > LONGEST or offset + size > file.stop:
        return None
    message, _ = parse_message(log.pread(size, offset))
    return message if message is not None and message.physical_offset == offset else None


def _level(message: Message) -> int | None:
    if message.topic != SCHEDULE_TOPIC.encode():
        return None
    return parse_int(properties.parse_properties(message.properties).get(properties.DELAY, ""))
