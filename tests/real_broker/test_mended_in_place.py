"""Damage that recover repairs without fillers: afterwards, clients of a whole broker receive every message.

The damage: log files with swapped names, invalid ports of hosts, and compression flags that do not match the body.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.files.mapped_file_queue import offset_to_file_name
from rmqstore.formats.properties import SCHEDULE_TOPIC, UNIQ_KEY, parse_properties
from tests import damage
from tests.command import run_json
from tests.real_broker.test_salvaged_system_topics import delivered_since, of_topic, start_over, wait_until
from tests.real_broker.whole_broker import WholeBroker
from tests.repair.salvaging import Row, rows
from tests.stores import VERSIONS, copy_store, meta

pytestmark = pytest.mark.slow

TOPIC = "Order_11"
BORN_PORT, STORE_PORT, SYS_FLAG = 53, 69, 39  # positions: the bytes with bit 20 of the ports, SYSFLAG's lowest byte
COMPRESSED = 1


def swap(log: Path, one: int, two: int) -> None:
    """Swap the names of two files of the log."""
    first, second = log / offset_to_file_name(one), log / offset_to_file_name(two)
    first.rename(log.parent / "aside")
    second.rename(first)
    (log.parent / "aside").rename(second)


def break_log(store: Path, found: list[Row]) -> None:
    """Damage messages of a topic and of the delay levels, at the beginning, middle and end of their queues."""
    orders, delayed = of_topic(found, TOPIC), of_topic(found, SCHEDULE_TOPIC)
    for row in (orders[0], orders[40], orders[-1], delayed[2]):
        damage.flip(row.path, row.at + STORE_PORT, 4)
    damage.flip(orders[40].path, orders[40].at + BORN_PORT, 4)
    packed = [row for row in orders[1:-1] if row.message.sys_flag & COMPRESSED]
    plain = [row for row in orders[1:-1] if not row.message.sys_flag & COMPRESSED and row is not orders[40]]
    for row in (packed[0], packed[-1], plain[0], plain[-1]):
        damage.flip(row.path, row.at + SYS_FLAG, 0)
    swap(store / "commitlog", 65536, 196608)


@pytest.mark.parametrize("version", VERSIONS)
def test_consumers_delays_and_sends_continue(
    version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    name = f"{version}-clean"
    store = copy_store(name, tmp_path)
    start_over(store)
    found = rows(store)
    break_log(store, found)
    answer = run_json("recover", str(store), "--apply", exit_code=0)
    assert isinstance(answer["loss"], dict)
    assert (answer["loss"]["messages"], answer["loss"]["visible_fillers"]) == (0, 0)
    assert isinstance(answer["cures"], list)
    assert {"CL-HOST", "CL-SYSFLAG", "CL-MISPLACED-FILE"} <= set(answer["cures"])
    delayed = {parse_properties(row.message.properties)[UNIQ_KEY] for row in of_topic(found, SCHEDULE_TOPIC)}
    with whole_broker(version, store, meta(name).broker_conf) as broker:
        wait_until(lambda: delayed <= delivered_since(store, len(found)))
        sent = broker.produce(TOPIC, 4)
        read = broker.read(TOPIC)
    seen = {(m.queue_id, m.queue_offset, m.body_crc) for m in read}
    assert {(m.queue_id, m.queue_offset, m.body_crc) for m in sent} <= seen
    was = [row.message for row in of_topic(found, TOPIC)]
    assert {(m.queue_id, m.queue_offset, m.body_crc) for m in was} <= seen
    queues: dict[int, list[int]] = {}
    for message in read:
        queues.setdefault(message.queue_id, []).append(message.queue_offset)
    assert all(offsets == list(range(len(offsets))) for offsets in queues.values())
