"""The delay levels that a store was written with, as its units show them.

The due time in a unit of SCHEDULE_TOPIC_XXXX is the message's store time and its level's delay. A broker delivers by
the time in the unit, whatever messageDelayLevel says meanwhile (at once, where it is further away than the level's
delay now). So units that an earlier setting made are right as they are, and a store whose broker has levels of its own
must not count as damaged, nor be "cured", because it is looked at without broker.conf.

Source: ScheduleMessageService.DeliverDelayedMessageTimerTask#correctDeliverTimestamp (RocketMQ 4.9.7, 5.1.4, 5.4.0)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from weakref import WeakKeyDictionary

from rmqstore.files.mapped_file_queue import MappedFileQueue, list_directory
from rmqstore.files.records import message_at
from rmqstore.files.store import Store, StoreKind
from rmqstore.formats import consumequeue, properties
from rmqstore.formats.message import Message
from rmqstore.formats.properties import DEFAULT_DELAY_LEVELS, SCHEDULE_TOPIC, DelayLevels
from rmqstore.formats.text.javatext import parse_int
from rmqstore.scan.kernels import I64, Bool
from rmqstore.scan.units import last_nonzero

UNIT = consumequeue.UNIT.size
SAMPLE = 48  # units of a level that are looked at, over all of its queue; more where they differ
LEAST = 3  # units in a row that show a setting; fewer stay as they are, but say nothing of others
LONGEST = 4 << 20  # bytes of a message that is looked at
_LEVELS = 1000  # more queues of the schedule topic than any messageDelayLevel has
_NEXT = 2  # numbers of units that follow each other are nearer
_SECOND = 1000  # ms; the shortest unit of time that a messageDelayLevel can name
_FAR = 10 * 366 * 86_400_000  # ms; no level is as long
_CACHE: WeakKeyDictionary[Store, DelayLevels] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Stretch:
    """Units of a level that follow each other and have the same delay (ms); store times of the first and the last."""

    delay: int
    units: int
    since: int
    until: int


def delay_levels(store: Store) -> DelayLevels:
    """The configured delay levels; without any, those that the store's own units show, else the default ones.

    The default ones also where a broker would refuse the setting. Where units show that the setting was another one
    before, that holds up to the store time of the change. A change that lasted for less than a 48th of a queue may be
    overlooked.
    """
    if store not in _CACHE:
        _CACHE[store] = _levels_of(store)
    return _CACHE[store]


def due_by_another_table(code: I64, expected: I64, delay: int) -> Bool:
    """Whether deliver times (ms) differ from the expected ones as where messageDelayLevel was another one.

    Then nothing proves them wrong, however few they are. A level's delay is a whole number of seconds, and a flipped
    bit never gives another one: no power of 2 is a multiple of 1,000. `delay`: the longest of the level; what is due
    before it was stored has none.
    """
    apart = code - expected
    found: Bool = (apart % _SECOND == 0) & (apart > -delay) & (apart <= _FAR)
    return found


def note(store: Store) -> str:
    """What to say of levels that nobody has given, or that were others before; empty when there is nothing to say."""
    levels = delay_levels(store)
    other = levels.delays != DEFAULT_DELAY_LEVELS.delays and "messageDelayLevel" not in store.config.given
    said = []
    if other:
        said.append(
            "messageDelayLevel is not the default, as the units of SCHEDULE_TOPIC_XXXX show: give broker.conf (-c)"
        )
    if levels.earlier:
        numbers = ", ".join(str(level) for level in sorted({level for level, _, _ in levels.earlier}))
        said.append(
            f"messageDelayLevel was different before (level {numbers}): units keep their original delivery "
            "time, and brokers use it"
        )
    return "; ".join(said)


def _levels_of(store: Store) -> DelayLevels:
    given = "messageDelayLevel" in store.config.given
    levels = DEFAULT_DELAY_LEVELS
    if given:
        try:
            levels = properties.parse_delay_levels(store.config.text("messageDelayLevel"))
        except ValueError:
            return levels
    if store.part is not None or store.kind is StoreKind.ROCKSDB:
        return levels
    shown = {level: found for level in _levels(store) if (found := _stretches(store, level))}
    odd = [s for level, found in shown.items() for s in found if levels.delays[level - 1 : level] != (s.delay,)]
    if not any(s.units > 1 for s in odd):  # one such level shows that the table is another: one unit is enough then
        return levels
    return _with_earlier(levels if given else _newest(levels, shown), shown)


def _newest(levels: DelayLevels, shown: Mapping[int, list[Stretch]]) -> DelayLevels:
    """The levels that the newest units show."""
    table = list(levels.delays)
    table += levels.delays[-1:] * (max(shown) - len(table))
    for level, found in shown.items():
        table[level - 1] = found[-1].delay
    return DelayLevels(tuple(table))


def _with_earlier(levels: DelayLevels, shown: Mapping[int, list[Stretch]]) -> DelayLevels:
    """`levels` for what comes, and what units show for what is there."""
    earlier = []
    for level, found in sorted(shown.items()):
        for one, after in pairwise(found):
            earlier.append((level, after.since, one.delay))
        if levels.delays[level - 1 : level] != (found[-1].delay,):
            earlier.append((level, found[-1].until + 1, found[-1].delay))
    return DelayLevels(levels.delays, tuple(earlier))


def _can_be_set(delay: int) -> bool:
    return delay > 0 and delay % _SECOND == 0


def _levels(store: Store) -> list[int]:
    numbers = (parse_int(entry.path.name) for entry in list_directory(store.root / "consumequeue" / SCHEDULE_TOPIC))
    return [number + 1 for number in numbers if number is not None and 0 <= number < _LEVELS]


def _stretches(store: Store, level: int) -> list[Stretch]:
    """Stretches of a level's units, the oldest first; those that no setting explains are left out."""
    queue = store.consume_queue(SCHEDULE_TOPIC, level - 1).queue
    logs = [log for log in (store.commitlog, store.dledger.data if store.dledger else None) if log is not None]
    end = last_nonzero(queue, UNIT)
    if end is None or not logs:
        return []
    first, last = queue.start // UNIT, end // UNIT
    read = partial(_read, queue, logs, level)
    wanted = {first + (last - first) * k // (SAMPLE - 1) for k in range(SAMPLE)}
    known = [(number, *found) for number in sorted(wanted) if (found := read(number)) is not None]
    if not known:
        return []
    groups: list[list[tuple[int, int, int]]] = [[known[0]]]
    for one in known[1:]:
        before = groups[-1][-1]
        for unit in _between(read, before, one):
            if unit[1] == groups[-1][-1][1]:
                groups[-1].append(unit)
            else:
                groups.append([unit])
    counted = [(g[-1][0] - g[0][0] + 1, g) for g in groups]
    kept = [(n, g) for n, g in counted if (n >= LEAST or len(counted) == 1) and _can_be_set(g[0][1])]
    out: list[Stretch] = []
    for n, g in kept:
        if out and out[-1].delay == g[0][1]:  # what stood between was damage
            out[-1] = Stretch(out[-1].delay, out[-1].units + n, out[-1].since, g[-1][2])
        else:
            out.append(Stretch(g[0][1], n, g[0][2], g[-1][2]))
    return out


def _between(
    read: Callable[[int], tuple[int, int] | None], one: tuple[int, int, int], other: tuple[int, int, int]
) -> list[tuple[int, int, int]]:
    """`other`, and before it what is needed to know where the delay changes: (number, delay, store time) each."""
    if one[1] == other[1] or other[0] - one[0] < _NEXT:
        return [other]
    middle = (one[0] + other[0]) // 2
    found = read(middle)
    if found is None:
        return [other]
    here = (middle, *found)
    return [*_between(read, one, here), *_between(read, here, other)]


def _read(queue: MappedFileQueue, logs: list[MappedFileQueue], level: int, number: int) -> tuple[int, int] | None:
    """Delay of a unit and store time of its message, in ms; None for a non-unit or an unreadable message."""
    unit = queue.unit(consumequeue.UNIT, number)
    if unit is None or not consumequeue.is_message_unit(unit["commitlog_offset"], unit["size"]):
        return None
    offset, size, code = unit["commitlog_offset"], unit["size"], unit["tags_code"]
    for log in logs:
        message = _message(log, offset, size)
        if message is not None and _level(message) == level:
            return code - message.store_timestamp, message.store_timestamp
    return None


def _message(log: MappedFileQueue, offset: int, size: int) -> Message | None:
    message = message_at(log, offset, min(size, LONGEST))
    return message if message is not None and message.physical_offset == offset else None


def _level(message: Message) -> int | None:
    if message.topic != SCHEDULE_TOPIC.encode():
        return None
    return parse_int(properties.parse_properties(message.properties).get(properties.DELAY, ""))
