"""The delay levels that a store was written with, derived from its units.

The due time in a unit of SCHEDULE_TOPIC_XXXX is the message's store time plus the delay of its level. A broker delivers
at the time in the unit, even if messageDelayLevel has changed since (at once, if that time is further away than the
present delay). So units from an earlier setting are correct, and a store with its own levels must not count as damaged
because broker.conf was not given.

Source: ScheduleMessageService.DeliverDelayedMessageTimerTask#correctDeliverTimestamp (RocketMQ 4.9.7, 5.1.4, 5.4.0)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from typing import NamedTuple
from weakref import WeakKeyDictionary

from rmqstore.files.mapped_file_queue import MappedFileQueue, message_at
from rmqstore.files.store import Store, StoreKind
from rmqstore.formats import consumequeue, properties
from rmqstore.formats.consumequeue import UNIT_SIZE
from rmqstore.formats.javatext import parse_int
from rmqstore.formats.properties import DEFAULT_DELAY_LEVELS, SCHEDULE_TOPIC, DelayLevels
from rmqstore.scan.kernels import I64, Bool
from rmqstore.scan.units import last_nonzero
from rmqstore.texts import Text, joined

_SAMPLE = 48  # units of a level that are read, spread over its queue; more where they differ
_LEAST = 3  # consecutive units that prove a setting
_LONGEST = 4 << 20  # bytes that are read of a message
_LEVELS = 1000  # no messageDelayLevel has as many levels
_SECOND = 1000  # ms; the shortest unit of time in messageDelayLevel
_FAR = 10 * 366 * 86_400_000  # ms; longer than any level
_CACHE: WeakKeyDictionary[Store, DelayLevels] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class DelayRun:
    """Consecutive units of a level with the same delay (ms); `since`, `until`: store times of the first and last."""

    delay: int
    units: int
    since: int
    until: int


class _DelayedUnit(NamedTuple):
    """A unit with its delay, and the store time of its message (ms)."""

    number: int
    delay: int
    stored: int


def delay_levels(store: Store) -> DelayLevels:
    """Return the configured delay levels; if none are configured, those of the store's units, else the default.

    A setting that a broker would refuse counts as the default. If units show an earlier setting, it applies up to the
    store time of the change. A change that lasted for less than a 48th of a queue may be missed.
    """
    if store not in _CACHE:
        _CACHE[store] = _levels_of(store)
    return _CACHE[store]


def due_by_another_table(code: I64, expected: I64, delay: int) -> Bool:
    """Return which delivery times (ms) differ from the expected ones as if messageDelayLevel had been different.

    Nothing proves such a time wrong. Delays are whole seconds, and a flipped bit never changes a time by whole seconds,
    because no power of 2 is a multiple of 1,000. `delay` is the longest of the level: a message is never due before it
    was stored.
    """
    apart = code - expected
    found: Bool = (apart % _SECOND == 0) & (apart > -delay) & (apart <= _FAR)
    return found


def note(store: Store) -> str:
    """Return a note about levels that were not given, or that have changed; "" if there is nothing to say."""
    levels = delay_levels(store)
    other = levels.delays != DEFAULT_DELAY_LEVELS.delays and "messageDelayLevel" not in store.config.given
    notes = []
    if other:
        notes.append(
            Text(
                "messageDelayLevel is not the default, as the units of SCHEDULE_TOPIC_XXXX show: give broker.conf (-c)"
            )
        )
    # a broker does not read the levels after its last one
    if changed := sorted({level for level, _, _ in levels.earlier if level <= len(levels.delays)}):
        numbers = ", ".join(map(str, changed))
        notes.append(
            Text(
                "messageDelayLevel was different before (level {numbers}): units keep their original "
                "delivery time, and brokers use it",
                numbers=numbers,
            )
        )
    return joined(notes, "; ")


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
    shown = {level: found for level in _level_numbers(store) if (found := _stretches(store, level))}
    odd = [s for level, found in shown.items() for s in found if levels.delays[level - 1 : level] != (s.delay,)]
    if not any(s.units > 1 for s in odd):  # one such level proves another table; for other levels, one unit is enough
        return levels
    return _with_earlier(levels if given else _newest(levels, shown), shown)


def _newest(levels: DelayLevels, shown: Mapping[int, list[DelayRun]]) -> DelayLevels:
    """Return the levels according to the newest units."""
    table = list(levels.delays)
    table += levels.delays[-1:] * (max(shown) - len(table))
    for level, found in shown.items():
        table[level - 1] = found[-1].delay
    return DelayLevels(tuple(table))


def _with_earlier(levels: DelayLevels, shown: Mapping[int, list[DelayRun]]) -> DelayLevels:
    """Return `levels` with the earlier delays of the units."""
    earlier = []
    for level, found in sorted(shown.items()):
        for one, after in pairwise(found):
            earlier.append((level, after.since, one.delay))
        if levels.delays[level - 1 : level] != (found[-1].delay,):
            earlier.append((level, found[-1].until + 1, found[-1].delay))
    return DelayLevels(levels.delays, tuple(earlier))


def _level_numbers(store: Store) -> list[int]:
    entries = store.files.list(store.root / "consumequeue" / SCHEDULE_TOPIC)
    numbers = (parse_int(entry.path.name) for entry in entries)
    return [number + 1 for number in numbers if number is not None and 0 <= number < _LEVELS]


def _stretches(store: Store, level: int) -> list[DelayRun]:
    """Return the stretches of a level's units, the oldest first, without those that no setting explains."""
    queue = store.consume_queue(SCHEDULE_TOPIC, level - 1).queue
    logs = [log for log, _ in store.logs]
    end = last_nonzero(queue, UNIT_SIZE)
    if end is None or not logs:
        return []
    first, last = queue.start // UNIT_SIZE, end // UNIT_SIZE
    read = partial(_read, queue, logs, level)
    numbers = sorted({first + (last - first) * k // (_SAMPLE - 1) for k in range(_SAMPLE)})
    units: list[_DelayedUnit] = []
    for unit in filter(None, map(read, numbers)):
        units += _between(read, units[-1], unit) if units else [unit]
    groups = [list(group) for _, group in groupby(units, key=lambda unit: unit.delay)]
    out: list[DelayRun] = []
    for group in groups:
        begin, final = group[0], group[-1]
        count = final.number - begin.number + 1
        can_be_set = begin.delay > 0 and begin.delay % _SECOND == 0
        if (count < _LEAST and len(groups) > 1) or not can_be_set:
            continue
        if out and out[-1].delay == begin.delay:  # the units between were damaged
            out[-1] = DelayRun(begin.delay, out[-1].units + count, out[-1].since, final.stored)
        else:
            out.append(DelayRun(begin.delay, count, begin.stored, final.stored))
    return out


def _between(read: Callable[[int], _DelayedUnit | None], one: _DelayedUnit, other: _DelayedUnit) -> list[_DelayedUnit]:
    """Return `other`, and before it the units that show where the delay changes after `one`."""
    if one.delay == other.delay or other.number - one.number < 2:
        return [other]
    middle = read((one.number + other.number) // 2)
    return [other] if middle is None else [*_between(read, one, middle), *_between(read, middle, other)]


def _read(queue: MappedFileQueue, logs: list[MappedFileQueue], level: int, number: int) -> _DelayedUnit | None:
    """Read a unit and the store time of its message; None if there is no unit, or no such message."""
    unit = queue.unit(consumequeue.UNIT, number)
    if unit is None or not consumequeue.is_message_unit(unit["commitlog_offset"], unit["size"]):
        return None
    offset, size, code = unit["commitlog_offset"], unit["size"], unit["tags_code"]
    for log in logs:
        message = message_at(log, offset, min(size, _LONGEST))
        if message is None or message.physical_offset != offset or message.topic != SCHEDULE_TOPIC.encode():
            continue
        delay = properties.parse_properties(message.properties).get(properties.DELAY, "")
        if parse_int(delay) == level:
            return _DelayedUnit(number, code - message.store_timestamp, message.store_timestamp)
    return None
