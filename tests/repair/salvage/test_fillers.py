"""Fillers in topics that the broker reads itself, in light queues, in batches and in retry topics with long names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqstore.formats import properties
from rmqstore.formats.message import FILLER_KEY, INNER_BATCH, MAGIC_V2, Message, parse_message, record_crc
from rmqstore.formats.properties import parse_properties
from rmqstore.repair.salvage.evidence import QueueSlot
from rmqstore.repair.salvage.fillers import SMALLEST, build_unseen, build_visible, smallest_visible, tag_with_code
from rmqstore.repair.salvage.places import Around
from tests import damage
from tests.repair.salvaging import Row, apply, log_faults, rows, salvage
from tests.stores import copy_store

AROUND = Around(1_700_000_000_000, bytes([127, 0, 0, 1, 0, 0, 0, 0]))
NEEDED = {
    properties.SCHEDULE_TOPIC: {"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
    properties.HALF_TOPIC: {"TRANSACTION_CHECK_TIMES": "2147483647"},
    properties.OP_HALF_TOPIC: {"TAGS": "d"},
    properties.TIMER_TOPIC: {"TIMER_OUT_MS": "1", "REAL_TOPIC": "SELF_TEST_TOPIC", "TIMER_DEL_UNIQKEY": "_"},
}


def of_topic(store: Path, prefix: str, flag: int = 0) -> list[Row]:
    return [r for r in rows(store) if r.message.topic_text.startswith(prefix) and r.message.sys_flag & flag == flag]


def filler_at(store: Path, row: Row) -> Message:
    message, _ = parse_message(row.path.read_bytes(), row.at)
    assert message is not None
    assert (message.size, *row.slot) == (row.size, message.topic_text, message.queue_id, message.queue_offset)
    return message


@pytest.mark.quick_rows
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.4.0-clean", "5.1.4-formats", "5.4.0-formats"])
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "body"])
def test_filler_in_a_topic_of_the_broker_is_one_that_it_passes(name: str, whole: bool, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    hit = []
    for topic in NEEDED:
        for row in of_topic(store, topic)[1:9:7]:
            if whole:
                damage.garble(row.path, row.at, row.size)
            else:
                damage.garble(row.path, row.at + 88, min(4, len(row.message.body)))
            hit.append(row)
    result = salvage(store)
    apply(store, result)
    assert (result.visible_fillers, result.rebuild_queues, log_faults(store)) == (len(hit), frozenset(), {})
    for row in hit:
        message = filler_at(store, row)
        found = parse_properties(message.properties)
        assert found.items() >= NEEDED[row.message.topic_text].items()
        if row.message.topic_text == properties.SCHEDULE_TOPIC:
            assert found["DELAY"] == str(row.message.queue_id + 1)
            assert message.store_timestamp == row.message.store_timestamp
        if row.message.topic_text == properties.OP_HALF_TOPIC:
            assert int(message.body) == -1
        assert message.body != b""


@pytest.mark.quick_rows
@pytest.mark.parametrize("name", ["5.1.4-formats", "5.4.0-formats"])
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "body"])
def test_pop_batch_light_and_long_named_queues_keep_their_units(name: str, whole: bool, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    light = [r for r in rows(store) if b"INNER_MULTI_DISPATCH" in r.message.properties][5]
    pop = of_topic(store, "rmq_sys_REVIVE_LOG_")[40]
    batch = of_topic(store, "BatchCq_11", INNER_BATCH)[3]
    single = [r for r in of_topic(store, "BatchCq_11") if not r.message.sys_flag & INNER_BATCH][1]
    retry = [r for r in of_topic(store, "%RETRY%") if r.message.magic == MAGIC_V2][7]
    hit = [light, pop, batch, single, retry]
    for row in hit:
        if whole:
            damage.garble(row.path, row.at, row.size)
        else:
            damage.garble(row.path, row.at + 88, min(4, len(row.message.body)))
    result = salvage(store)
    lost = result.loss.messages
    apply(store, result)
    assert (result.visible_fillers, result.rebuild_queues, log_faults(store)) == (len(hit), frozenset(), {})
    found = {row.offset: parse_properties(filler_at(store, row).properties) for row in hit}
    old = {row.offset: parse_properties(row.message.properties) for row in hit}
    for key in ("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"):
        names = [sorted(one[light.offset][key].split(",")) for one in (found, old)]
        assert names[0] == names[1]
    assert found[batch.offset]["INNER_NUM"] == old[batch.offset]["INNER_NUM"]
    assert found[batch.offset]["INNER_BASE"] == old[batch.offset]["INNER_BASE"]
    assert lost == 4 + int(old[batch.offset]["INNER_NUM"])
    assert found[pop.offset]["TAGS"] not in ("ck", "ack", "bAck")
    assert found[pop.offset]["TIMER_DELIVER_MS"] == "1"  # 5.1 stops at a message without it
    assert filler_at(store, retry).magic == MAGIC_V2
    assert all(FILLER_KEY in one for one in found.values())


def test_a_filler_gets_the_unit_that_only_light_queues_had(tmp_path: Path) -> None:
    """The message's own queue has zeros in place of its unit; the filler's queue is derived from that gap."""
    store = copy_store("5.4.0-formats", tmp_path)
    row = [r for r in rows(store) if b"INNER_MULTI_DISPATCH" in r.message.properties][5]
    queue = store / "consumequeue" / row.message.topic_text / str(row.message.queue_id)
    damage.zero(min(queue.iterdir()), row.message.queue_offset * 20, 20)
    damage.garble(row.path, row.at, row.size)
    result = salvage(store)
    assert (row.message.topic_text, row.message.queue_id) in result.rebuild_queues


def test_the_first_message_of_a_queue_with_one_other_gets_a_filler_without_any_unit(tmp_path: Path) -> None:
    store = copy_store("5.1.4-before-dledger", tmp_path)
    first, second = [row for row in rows(store) if row.slot[:2] == (properties.SCHEDULE_TOPIC, 4)]
    damage.zero(first.path, first.at, first.size)
    shutil.rmtree(store / "consumequeue" / properties.SCHEDULE_TOPIC / "4")
    apply(store, salvage(store))
    kept = [row.slot for row in rows(store) if row.offset in (first.offset, second.offset)]
    assert kept == [first.slot, second.slot]


def test_a_filler_beside_records_of_an_ipv6_host_has_the_local_one_and_their_port(tmp_path: Path) -> None:
    store = copy_store("5.4.0-ipv6", tmp_path)
    row = of_topic(store, "Order_11")[5]
    assert len(row.message.store_host) == 20
    damage.garble(row.path, row.at, row.size)
    apply(store, salvage(store, accept_fillers=True))
    assert filler_at(store, row).store_host == bytes([127, 0, 0, 1]) + row.message.store_host[16:]


def test_filler_carries_a_record_crc_where_its_neighbours_do(tmp_path: Path) -> None:
    store = copy_store("5.4.0-formats", tmp_path)
    row = of_topic(store, "Order_11")[20]
    damage.garble(row.path, row.at, row.size)
    apply(store, salvage(store))
    stored, computed = record_crc(row.path.read_bytes(), row.at, row.size)
    assert stored == computed


@pytest.mark.parametrize("field", [0, 1])
def test_one_flipped_bit_that_only_the_record_crc_sees_is_found_by_it(field: int, tmp_path: Path) -> None:
    store = copy_store("5.4.0-formats", tmp_path)
    row = of_topic(store, "Order_11")[20]
    at = row.at + 17 if field else row.stop - len(row.message.properties) + 4  # FLAG, or a property's name
    damage.flip(row.path, at, 3)
    result = salvage(store)
    apply(store, result)
    assert result.loss.messages == 0
    assert log_faults(store) == {}
    assert next(r.message for r in rows(store) if r.offset == row.offset) == row.message


@pytest.mark.quick_rows
@pytest.mark.parametrize("topic", ["T", "Order_11", *NEEDED, "rmq_sys_REVIVE_LOG_c", "%RETRY%" + "g" * 150])
@pytest.mark.parametrize("code", [None, 0, -2079])
@pytest.mark.parametrize("crc", [True, False])
def test_fillers_of_every_length_are_sound(topic: str, code: int | None, crc: bool) -> None:
    around = Around(AROUND.store_timestamp, AROUND.store_host, append_crc=crc)
    slot = QueueSlot(topic, 3, 77, code)
    least = smallest_visible(slot)
    assert build_visible(slot, 4096, least - 1, around) is None
    for length in range(least, least + 220):
        built = build_visible(slot, 4096, length, around)
        assert built is not None
        message, _ = parse_message(built[0])
        assert message is not None
        assert (message.size, message.topic_text, message.queue_id, message.queue_offset) == (length, topic, 3, 77)
        assert properties.property_faults(message.properties) == []
        found = parse_properties(message.properties)
        assert (FILLER_KEY in found) == (built[1] == "property")


def test_unseen_fillers_exist_from_92_bytes_on() -> None:
    assert SMALLEST == 92
    for length in range(92, 400):
        message, _ = parse_message(build_unseen(4096, length, AROUND))
        assert message is not None
        assert (message.size, message.sys_flag, message.physical_offset) == (length, 0xC, 4096)
    with pytest.raises(ValueError, match="91 bytes"):
        build_unseen(4096, 91, AROUND)


@pytest.mark.parametrize("code", [1, -1, 2**31 - 1, -(2**31), 100, 2569197])
def test_a_tag_can_be_made_for_every_code(code: int) -> None:
    tag = tag_with_code(code)
    assert tag is not None
    assert tag.startswith("RMQSTORE-FILLER-")
    assert properties.tags_code(tag) == code
    assert tag_with_code(0) is None
    assert tag_with_code(2**31) is None
