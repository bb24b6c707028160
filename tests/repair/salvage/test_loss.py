"""A truncated or lost end of the log: the lost messages are counted by the units that still point to them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rmqstore.formats.consumequeue import UNIT
from tests import damage
from tests.command import run_json
from tests.repair.salvaging import Row, rows
from tests.stores import copy_store, write_broker_conf

NAMES = ("4.9.7-clean", "5.1.4-dledger", "5.4.0-dledger-mixed", "4.9.7-ipv6")


def of_last_file(found: list[Row]) -> list[Row]:
    return [row for row in found if row.path == found[-1].path]


def end_lost(found: list[Row], kind: str) -> list[Row]:
    """Damage the end of the log, and return the lost rows."""
    hit = of_last_file(found)[-7:]
    first, last = hit[0], hit[-1]
    match kind:
        case "file":
            hit = of_last_file(found)
            last.path.unlink()
        case "zeros":
            damage.zero(first.path, first.at - first.body_offset, last.stop - first.at + first.body_offset)
        case "garbage":
            damage.garble(first.path, first.at - first.body_offset, last.stop - first.at + first.body_offset)
        case _:
            damage.cut(first.path, first.at + 10)
    return hit


def recover(name: str, store: Path, *words: str) -> dict[str, object]:
    conf = write_broker_conf(name, store)
    answer = run_json("recover", str(store), "-c", str(conf), "--role", "single", *words, exit_code=1)
    loss = answer["loss"]
    assert isinstance(loss, dict)
    return loss


def per_queue(hit: list[Row]) -> dict[str, int]:
    return dict(Counter(f"{row.slot[0]}/{row.slot[1]}" for row in hit))


def test_a_damaged_unit_hides_neither_its_message_nor_those_after_it(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    hit = end_lost(rows(store), "file")
    expected = per_queue(hit)
    label = max(expected, key=lambda queue: expected[queue])
    queue_offset = max(row.slot[2] for row in hit if f"{row.slot[0]}/{row.slot[1]}" == label) - 1
    unit = queue_offset * UNIT.size
    file_size = next((store / "consumequeue" / label).iterdir()).stat().st_size
    path = store / "consumequeue" / label / f"{unit // file_size * file_size:020d}"
    damage.flip(path, unit % file_size + 3, 4)  # its commitlog offset is 64 GiB too large
    loss = recover("4.9.7-clean", store)
    assert loss["queues"] == expected


@pytest.mark.quick_rows
@pytest.mark.parametrize("kind", ["file", "zeros", "garbage", "cut"])
@pytest.mark.parametrize("name", NAMES)
def test_every_message_after_the_new_end_is_counted_by_its_unit(name: str, kind: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    hit = end_lost(rows(store), kind)
    loss = recover(name, store)
    assert loss["queues"] == per_queue(hit)
    assert (loss["messages"], loss["bytes"]) == (len(hit), sum(row.size for row in hit))
    assert "at_least" not in loss


def test_units_after_a_gap_show_that_those_before_them_had_messages_too(store: Path) -> None:
    """A broker numbers its units without a gap: zeros are a lost page, and a unit that goes back is damaged."""
    found = rows(store)
    end = found[-1].offset + found[-1].size
    path = store / "consumequeue" / "Order_11" / "0" / f"{0:020}"
    raw = path.read_bytes()
    used = len(raw.rstrip(b"\0")) // UNIT.size + 1
    ghost = UNIT.build(commitlog_offset=end + 900, size=300)
    damage.overwrite(path, (used + 1) * UNIT.size, ghost)  # after a zero unit
    path = store / "consumequeue" / "Order_11" / "1" / f"{0:020}"
    raw = path.read_bytes()
    used = -(-len(raw.rstrip(b"\0")) // UNIT.size)
    first, back = UNIT.build(commitlog_offset=end, size=300), UNIT.build(commitlog_offset=end - 5000, size=300)
    damage.overwrite(path, used * UNIT.size, first + back + UNIT.build(commitlog_offset=end + 300, size=300))
    loss = recover("5.4.0-clean", store)
    assert loss["queues"] == {"Order_11/0": 3, "Order_11/1": 3}


@pytest.mark.parametrize("size", [-300, 90, 65_536, 1 << 30])
def test_a_unit_that_no_record_after_the_end_can_have_is_no_loss(size: int, store: Path) -> None:
    last = rows(store)[-1]
    path = store / "consumequeue" / "Order_11" / "0" / f"{0:020}"
    used = -(-len(path.read_bytes().rstrip(b"\0")) // UNIT.size)
    damage.overwrite(path, used * UNIT.size, UNIT.build(commitlog_offset=last.offset + last.size, size=size))
    assert recover("5.4.0-clean", store)["queues"] == {}


def test_a_unit_that_points_where_no_log_ever_was_is_no_loss(store: Path) -> None:
    """Like after a misdirected write, there are other bytes in place of a queue's first unit."""
    path = store / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "17" / f"{0:020}"
    count = len(path.read_bytes().rstrip(b"\0")) // UNIT.size + 1
    damage.overwrite(path, 0, UNIT.build(commitlog_offset=373 << 40, size=17_664) * count)
    assert recover("5.4.0-clean", store)["messages"] == 0


def test_units_of_two_lives_are_not_both_counted(store: Path) -> None:
    found = rows(store)
    hit = end_lost(found, "zeros")
    queue = next(row.slot[:2] for row in reversed(found) if row.slot[0] not in {r.slot[0] for r in hit})
    path = store / "consumequeue" / queue[0] / str(queue[1]) / f"{0:020}"
    used = max(row.slot[2] for row in found if row.slot[:2] == queue) + 1
    old = (UNIT.build(commitlog_offset=row.offset + 11, size=100) for row in hit[2:4])  # messages that overlapped these
    damage.overwrite(path, used * UNIT.size, b"".join(old))
    assert recover("5.4.0-clean", store)["queues"] == per_queue(hit)


def test_a_loss_is_counted_once(store: Path) -> None:
    hit = end_lost(rows(store), "zeros")
    done = run_json("recover", str(store), "--apply", exit_code=0)
    again = run_json("recover", str(store), exit_code=0)
    loss, after = done["loss"], again["loss"]
    assert isinstance(loss, dict)
    assert isinstance(after, dict)
    assert (loss["messages"], after["messages"]) == (len(hit), 0)


@pytest.mark.parametrize("kind", ["cut", "garbage", "file"])
def test_the_end_of_a_legacy_log_is_no_end_but_damage_in_front_of_dledger(kind: str, tmp_path: Path) -> None:
    name = "5.4.0-dledger-mixed"
    store = copy_store(name, tmp_path)
    hit = end_lost([row for row in rows(store) if not row.body_offset], kind)
    loss = recover(name, store, "--accept-fillers")
    assert (loss["messages"], loss["queues"]) == (len(hit), per_queue(hit))
    if kind == "file":
        return
    conf = write_broker_conf(name, store)
    done = run_json("recover", str(store), "-c", str(conf), "--role", "single", "--apply", exit_code=0)
    assert done["remaining"] == {"counts": {}}
    assert {row.slot: row.offset for row in rows(store)}.keys() >= {row.slot for row in hit}  # each place has a filler
