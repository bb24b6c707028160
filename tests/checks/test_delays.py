"""A store whose broker has a messageDelayLevel of its own is sound, also for someone without its broker.conf."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.checks.delays import delay_levels
from rmqstore.checks.verify import VerifyOptions, examine, verify
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import Store, open_store
from rmqstore.formats.consumequeue import UNIT
from rmqstore.formats.properties import DEFAULT_DELAY_LEVELS, parse_delay_levels
from rmqstore.repair import journal
from rmqstore.repair.recover import plan_recovery
from tests.damage import overwrite, zero

Copy = Callable[[str], Path]
TEXT = "2s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"  # level 1 is a second longer than by default


def later(store: Path, level: int, by: int, units: slice = slice(None)) -> int:
    """Makes the due times of a level later, as a broker with another delay writes them; gives how many."""
    path = store / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / str(level - 1) / f"{0:020d}"
    rows = [row for row in UNIT.array(path.read_bytes()).tolist() if row[1]]
    for number in range(len(rows))[units]:
        offset, size, code = rows[number]
        overwrite(path, number * UNIT.size, UNIT.build(commitlog_offset=offset, size=size, tags_code=code + by))
    return len(rows)


def found(store: Store) -> dict[str, int]:
    return dict(verify(store, VerifyOptions(jobs=1)).findings.counts)


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.4.0-dledger"])
def test_levels_are_learned_from_the_units(store_copy: Copy, name: str) -> None:
    store = store_copy(name)
    assert later(store, 1, 1000) > 2
    assert delay_levels(open_store(store)) == parse_delay_levels(TEXT)
    assert found(open_store(store)) == {}


def test_a_completed_schedule_queue_has_the_store_s_own_delays(store_copy: Copy) -> None:
    store = store_copy("4.9.7-clean")
    units = later(store, 1, 1000)
    path = store / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "0" / f"{0:020d}"
    before = path.read_bytes()
    zero(path, units // 2 * UNIT.size, 3 * UNIT.size)
    opened = open_store(store)
    journal.apply(plan_recovery(opened, examine(opened)))
    assert path.read_bytes() == before


@pytest.mark.parametrize(("by", "units"), [(1000, slice(3, 4)), (1001, slice(None)), (-3000, slice(None))])
def test_what_no_setting_explains_stays_wrong(store_copy: Copy, by: int, units: slice) -> None:
    store = store_copy("4.9.7-clean")
    later(store, 1, by, units)
    assert delay_levels(open_store(store)) == DEFAULT_DELAY_LEVELS
    assert "CQ-WRONG-TAG" in found(open_store(store))


def test_a_given_setting_is_not_doubted(store_copy: Copy) -> None:
    store = store_copy("4.9.7-clean")
    later(store, 1, 1000)
    given = open_store(store, BrokerConfig({"messageDelayLevel": TEXT.replace("2s", "7s", 1)}))
    assert delay_levels(given) == parse_delay_levels(TEXT.replace("2s", "7s", 1))
    assert "CQ-WRONG-TAG" in found(given)
