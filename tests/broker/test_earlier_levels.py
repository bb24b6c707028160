"""A broker delivers delayed messages by the time in their unit, also where an earlier messageDelayLevel made it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.formats.configjson import build_config_json, parse_config_object
from rmqstore.formats.consumequeue import UNIT
from rmqstore.formats.properties import UNIQ_KEY, parse_properties
from tests.broker.whole_broker import WholeBroker
from tests.damage import overwrite
from tests.repair.salvaging import rows
from tests.stores import copy_store, meta

pytestmark = [pytest.mark.slow]

DEADLINE_SECONDS = 600


@pytest.mark.parametrize("version", ["5.4.0"])
def test_the_time_in_the_unit_decides(version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]) -> None:
    """Level 5 (a minute) is waited for; level 1 (a second) is not, where the unit says an hour: it comes at once."""
    name = f"{version}-clean"
    store = copy_store(name, tmp_path)
    found = rows(store)
    by_offset = {row.offset: row for row in found}
    begin = int(time.time() * 1000)
    due = {1: begin + 3_600_000, 5: begin + 40_000}
    keys: dict[int, set[str]] = {}
    for level, when in due.items():
        path = store / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / str(level - 1) / f"{0:020d}"
        units = [row for row in UNIT.array(path.read_bytes()).tolist() if row[1]]
        for number, (offset, size, _) in enumerate(units):
            unit = UNIT.build(commitlog_offset=offset, size=size, tags_code=when)
            overwrite(path, number * UNIT.size, unit)
            keys.setdefault(level, set()).add(parse_properties(by_offset[offset].message.properties)[UNIQ_KEY])
    path = store / "config" / "delayOffset.json"
    table = parse_config_object(path.read_bytes())["offsetTable"]
    assert isinstance(table, dict)
    offsets = {int(level): int(str(offset)) for level, offset in table.items()} | dict.fromkeys(due, 0)
    path.write_bytes(build_config_json({"offsetTable": offsets}))
    end = time.monotonic() + DEADLINE_SECONDS
    with whole_broker(version, store, meta(name).broker_conf):
        while True:
            new = {
                key: row.message.store_timestamp
                for row in rows(store)[len(found) :]
                if (key := parse_properties(row.message.properties).get(UNIQ_KEY)) is not None
            }
            if keys[1] | keys[5] <= set(new):
                break
            assert time.monotonic() < end, f"not delivered in {DEADLINE_SECONDS} s: {(keys[1] | keys[5]) - set(new)}"
            time.sleep(0.5)
    assert all(new[key] < due[1] for key in keys[1])
    assert all(new[key] >= due[5] for key in keys[5])
