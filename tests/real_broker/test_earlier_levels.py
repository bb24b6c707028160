"""A broker delivers delayed messages at the time in their unit, even if it is from an earlier messageDelayLevel."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.formats.configuration import build_config_json, parse_config_object
from rmqstore.formats.consumequeue import UNIT
from rmqstore.formats.properties import UNIQ_KEY, parse_properties
from tests.command import run_json
from tests.damage import overwrite, zero
from tests.real_broker.oracle import Oracle
from tests.real_broker.whole_broker import WholeBroker
from tests.repair.salvaging import rows
from tests.stores import copy_store, meta, write_broker_conf

DEADLINE_SECONDS = 600


@pytest.mark.slow
@pytest.mark.parametrize("version", ["5.4.0", "5.5.1"])
def test_the_time_in_the_unit_decides(version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]) -> None:
    """The broker waits for level 5 (a minute), but delivers level 1 (a second) at once if its unit has an hour."""
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


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.7", "5.1.4", "5.4.0", "5.5.1"])
def test_a_level_that_is_gone_is_not_delivered(
    version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    """With three levels, the broker delivers level 1, but not the overdue messages of levels 5 and 18."""
    name = f"{version}-clean"
    store = copy_store(name, tmp_path)
    path = store / "config" / "delayOffset.json"
    path.write_bytes(build_config_json({"offsetTable": {1: 0, 3: 4}}))
    conf = write_broker_conf(name, store, messageDelayLevel="1s 5s 10s")
    report = run_json("verify", str(store), "-c", str(conf), exit_code=1)
    gone = {f["queue"]: f["facts"]["messages"] for f in report["findings"]}  # type: ignore[attr-defined]
    assert gone == {"SCHEDULE_TOPIC_XXXX/4": 2, "SCHEDULE_TOPIC_XXXX/17": 2}
    found = rows(store)
    keys: dict[int, set[str]] = {}
    for row in found:
        if row.slot[0] == "SCHEDULE_TOPIC_XXXX":
            keys.setdefault(row.slot[1] + 1, set()).add(parse_properties(row.message.properties)[UNIQ_KEY])
    end, new = time.monotonic() + DEADLINE_SECONDS, set[str | None]()
    with whole_broker(version, store, {**meta(name).broker_conf, "messageDelayLevel": "1s 5s 10s"}):
        while not keys[1] <= new:
            assert time.monotonic() < end, f"not delivered in {DEADLINE_SECONDS} s: {keys[1] - new}"
            time.sleep(0.5)
            new = {parse_properties(row.message.properties).get(UNIQ_KEY) for row in rows(store)[len(found) :]}
    new = {parse_properties(row.message.properties).get(UNIQ_KEY) for row in rows(store)[len(found) :]}
    assert not new & (keys[5] | keys[18])


# without a broker, the store of 4.9.7 knows no levels during its recovery
@pytest.mark.parametrize(
    "version", [pytest.param("5.1.4", marks=pytest.mark.slow), "5.4.0", pytest.param("5.5.1", marks=pytest.mark.slow)]
)
def test_two_units_of_another_table_stay(version: str, tmp_path: Path, oracle: Callable[[str], Oracle]) -> None:
    """The real store dispatches the messages again with another messageDelayLevel, but two of these units stay."""
    name = f"{version}-clean"
    store, other = copy_store(name, tmp_path / "store"), copy_store(name, tmp_path / "other")
    shutil.rmtree(other / "consumequeue")
    (other / "abort").touch()
    (other / "checkpoint").write_bytes(bytes(4096))
    settings = {**meta(name).oracle_args, "messageDelayLevel": "7s 8s 9s 10s"}
    more = {"commitLogRecoverMaxNum": 1000} if version >= "5.4.0" else {}
    assert oracle(version).load(other, {**settings, **more}, start=True, shutdown=True).load
    queue = Path("consumequeue", "SCHEDULE_TOPIC_XXXX", "0", f"{0:020d}")
    size = UNIT.size
    was, made = (store / queue).read_bytes(), (other / queue).read_bytes()
    assert [a[:2] == b[:2] and b[2] - a[2] for a, b in zip(units(was), units(made), strict=True)][:4] == [6000] * 4
    overwrite(store / queue, size, made[size : 3 * size])
    before = (store / queue).read_bytes()
    conf = write_broker_conf(name, store)
    assert run_json("verify", str(store), "-c", str(conf), exit_code=0)["clean"]
    zero(store / queue, 3 * size, size)
    run_json("recover", str(store), "-c", str(conf), "--apply", exit_code=0)
    assert (store / queue).read_bytes() == before
    result = oracle(version).load(store, meta(name).oracle_args, start=True, shutdown=True)
    assert {label: q.why for label, q in result.queues.items() if q.bad} == {}
    assert (store / queue).read_bytes() == before


def units(raw: bytes) -> list[tuple[int, int, int]]:
    """Return offset, size and tags code of the units in a queue file."""
    return [(offset, size, code) for offset, size, code in UNIT.array(raw).tolist() if size]
