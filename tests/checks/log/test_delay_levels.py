"""A store whose broker has its own messageDelayLevel is sound, also if verify runs without its broker.conf."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.checks.examine import verify
from rmqstore.checks.log import delay_levels as delays
from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.checks.options import VerifyOptions
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import Store, open_store
from rmqstore.formats.consumequeue import UNIT
from rmqstore.formats.message import parse_message
from rmqstore.formats.properties import DEFAULT_DELAY_LEVELS, parse_delay_levels
from rmqstore.repair.journal import journal
from tests.damage import overwrite, zero
from tests.planning import log_of, plan_of
from tests.stores import copy_store

STORE = "4.9.7-clean"

TEXT = "2s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"  # level 1 is a second longer than by default


def later(store: Path, level: int, by: int, units: slice = slice(None)) -> int:
    """Move the due times of a level, as a broker with another delay writes them; return the number of units."""
    path = store / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / str(level - 1) / f"{0:020d}"
    rows = [row for row in UNIT.array(path.read_bytes()).tolist() if row[1]]
    for number in range(len(rows))[units]:
        offset, size, code = rows[number]
        overwrite(path, number * UNIT.size, UNIT.build(commitlog_offset=offset, size=size, tags_code=code + by))
    return len(rows)


def found(store: Store) -> dict[str, int]:
    return dict(verify(store, VerifyOptions(jobs=1)).findings.counts)


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.4.0-dledger"])
def test_levels_are_learned_from_the_units(tmp_path: Path, name: str) -> None:
    store = copy_store(name, tmp_path)
    assert later(store, 1, 1000) > 2
    assert delay_levels(open_store(store)) == parse_delay_levels(TEXT)
    assert found(open_store(store)) == {}


def test_a_completed_schedule_queue_has_the_store_s_own_delays(store: Path) -> None:
    units = later(store, 1, 1000)
    path = store / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "0" / f"{0:020d}"
    before = path.read_bytes()
    zero(path, units // 2 * UNIT.size, 3 * UNIT.size)
    journal.apply(plan_of(store))
    assert path.read_bytes() == before


@pytest.mark.parametrize(("by", "units"), [(1001, slice(3, 4)), (1001, slice(None)), (-3000, slice(None))])
def test_what_no_setting_explains_stays_wrong(store: Path, by: int, units: slice) -> None:
    later(store, 1, by, units)
    assert delay_levels(open_store(store)) == DEFAULT_DELAY_LEVELS
    assert "CQ-WRONG-TAG" in found(open_store(store))


def test_a_given_setting_applies_to_new_units(store: Path) -> None:
    count = later(store, 1, 1000)
    conf = BrokerConfig({"messageDelayLevel": TEXT.replace("2s", "7s", 1)})
    levels = delay_levels(open_store(store, conf))
    assert levels.delays == parse_delay_levels(TEXT.replace("2s", "7s", 1)).delays
    last = stored(store, 1)[-1]
    assert levels.deliver_time(1, last) == last + 2000
    assert levels.deliver_time(1, last + 1) == last + 7001
    assert found(open_store(store, conf)) == {}
    unit = UNIT.array((schedule(store, 1)).read_bytes()).tolist()[count // 2]
    wrong = UNIT.build(commitlog_offset=unit[0], size=unit[1], tags_code=unit[2] + 5001)
    overwrite(schedule(store, 1), count // 2 * UNIT.size, wrong)
    assert found(open_store(store, conf)) == {"CQ-WRONG-TAG": 1}


def test_units_of_a_setting_that_was_changed_are_right_as_they_are(store: Path) -> None:
    times = stored(store, 1)
    half = len(times) // 2
    later(store, 1, 4000, slice(0, half))
    opened = open_store(store)
    levels = delay_levels(opened)
    assert levels.delays == DEFAULT_DELAY_LEVELS.delays
    assert [levels.deliver_time(1, t) - t for t in times] == [5000] * half + [1000] * (len(times) - half)
    due = [levels.deliver_time(1, t) for t in times]
    assert [levels.deliver_time(1, levels.stored_at(1, d)) for d in due] == due
    report = verify(opened, VerifyOptions(jobs=1))
    assert dict(report.findings.counts) == {}
    assert [note for note in report.notes if "was different before (level 1)" in note]


@pytest.mark.parametrize("units", [slice(3, 4), slice(0, 2), slice(-1, None)])
def test_a_few_units_of_another_setting_are_not_rewritten(store: Path, units: slice) -> None:
    """There are too few to infer the setting, but a broker uses their due times."""
    later(store, 1, 4000, units)
    assert found(open_store(store)) == {}
    path = schedule(store, 1)
    before = path.read_bytes()
    overwrite(path, 5 * UNIT.size + 8, bytes(4))  # the size of another unit, so that the queue is rebuilt
    journal.apply(plan_of(store))
    assert path.read_bytes() == before
    conf = BrokerConfig({"messageDelayLevel": TEXT.replace("2s", "1s", 1)})
    assert found(open_store(store, conf)) == {}


def test_a_rebuild_gives_units_the_time_that_they_had(store: Path) -> None:
    count = len(stored(store, 1))
    later(store, 1, 4000, slice(0, count // 2))
    before = schedule(store, 1).read_bytes()
    for number in (1, count - 2):
        zero(schedule(store, 1), number * UNIT.size, UNIT.size)
    journal.apply(plan_of(store))
    assert schedule(store, 1).read_bytes() == before


def test_learned_delay_levels_are_reported_if_they_are_not_the_default(store: Path) -> None:
    assert not delays.note(open_store(store))
    later(store, 1, 1000)
    assert "is not the default" in delays.note(open_store(store))
    assert "is not the default" in " ".join(verify(open_store(store), VerifyOptions(jobs=1)).notes)
    assert not delays.note(open_store(store, BrokerConfig({"messageDelayLevel": TEXT})))


@pytest.mark.parametrize("first", [0, 3])
def test_a_short_change_in_a_long_queue_is_found_to_the_unit(store: Path, first: int) -> None:
    count = len(stored(store, 1))
    later(store, 1, 4000, slice(first, first + 3))
    times = stored(store, 1)
    levels = delay_levels(open_store(store))
    expected = [5000 if first <= n < first + 3 else 1000 for n in range(count)]
    assert [levels.deliver_time(1, t) - t for t in times] == expected


def schedule(store: Path, level: int) -> Path:
    return store / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / str(level - 1) / f"{0:020d}"


def stored(store: Path, level: int) -> list[int]:
    """Return the store times of the messages of a level's units."""
    rows = [row for row in UNIT.array(schedule(store, level).read_bytes()).tolist() if row[1]]
    log = log_of(store)
    out = []
    for offset, size, _ in rows:
        message, _ = parse_message(log.pread(size, offset))
        assert message is not None
        out.append(message.store_timestamp)
    return out
