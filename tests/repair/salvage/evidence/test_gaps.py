"""Queue offsets without a filler: reported and counted; such a plan is applied only with --accept-shift."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqstore.files.rocksdb.queues import RocksDBQueues
from rmqstore.files.store import open_store
from rmqstore.formats.consumequeue import UNIT
from rmqstore.formats.properties import INNER_MULTI_DISPATCH, lmq_queues, parse_properties
from rmqstore.repair.planned import after
from rmqstore.repair.salvage.evidence import Evidence, MissedOffsets
from tests import damage
from tests.command import run_json
from tests.planning import look, plan_of
from tests.repair.salvaging import Row, apply, log_faults, pick, roll_back, rows, salvage
from tests.stores import VERSIONS, copy_store, write_broker_conf


def plain(row: Row) -> bool:
    return row.message.topic_text == "Order_11" and row.message.queue_offset > 3


def texts(answer: object) -> str:
    assert isinstance(answer, list)
    return "\n".join(map(str, answer))


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("version", VERSIONS)
def test_queue_offset_without_message_and_queue_needs_confirmation(version: str, tmp_path: Path) -> None:
    store = copy_store(f"{version}-clean", tmp_path)
    row = pick(store, plain, 10)
    topic, queue_id, offset = row.slot
    roll_back(row)
    shutil.rmtree(store / "consumequeue" / topic / str(queue_id))
    plan = run_json("recover", str(store), exit_code=1)
    assert f"{topic}/{queue_id}: no message in the log has queue offset {offset};" in texts(plan["brakes"])
    assert "; --accept-shift accepts that" in texts(plan["brakes"])
    run_json("recover", str(store), "--apply", exit_code=5)
    assert not (store / "consumequeue" / topic / str(queue_id)).exists()
    done = run_json("recover", str(store), "--accept-shift", "--apply", exit_code=1)
    assert done["brakes"] == []
    assert f"no message in the log has queue offset {offset};" in texts(done["notes"])
    raw = b"".join(file.read_bytes() for file in sorted((store / "consumequeue" / topic / str(queue_id)).iterdir()))
    offsets = {r.slot: r.offset for r in rows(store) if r.slot[:2] == (topic, queue_id) and r.offset != row.offset}
    for (_, _, at), place in offsets.items():  # no message after the gap moves
        assert UNIT.parse(raw, at * UNIT.size)["commitlog_offset"] == place


def test_queue_offset_without_message_gets_a_row_in_a_lost_rocksdb(tmp_path: Path) -> None:
    store = copy_store("5.5.1-rocksdb", tmp_path)
    conf = ("-c", str(write_broker_conf("5.5.1-rocksdb", store)))
    roll_back(pick(store, lambda row: row.slot == ("Pay_11_Topic", 0, 7)))
    shutil.rmtree(store / "consumequeue")
    assert "no row in RocksDB" in str(run_json("verify", str(store), *conf, exit_code=1)["verdict"])
    run_json("recover", str(store), *conf, "--accept-shift", "--apply", exit_code=1)
    after = run_json("verify", str(store), *conf, exit_code=1)
    assert after["verdict"] == (
        "RocketMQ 5.5.1 would start and lose nothing, but the log lacks 1 message of Pay_11_Topic/0"
    )
    queue = RocksDBQueues(open_store(store)).queue("Pay_11_Topic", 0)
    assert queue.unit(UNIT, 7) == queue.unit(UNIT, 6)
    assert (queue.first, queue.behind) == (0, 26)


def test_zeros_in_place_of_a_unit_without_message_end_the_queue_for_a_broker(store: Path) -> None:
    row = pick(store, plain, 10)
    topic, queue_id, offset = row.slot
    roll_back(row)
    path = store / "consumequeue" / topic / str(queue_id) / f"{0:020}"
    before = UNIT.parse(path.read_bytes(), (offset - 1) * UNIT.size)
    damage.zero(path, offset * UNIT.size, UNIT.size)
    plan = run_json("recover", str(store), exit_code=1)
    assert f"{topic}/{queue_id}: no message in the log has queue offset {offset};" in texts(plan["brakes"])
    run_json("recover", str(store), "--accept-shift", "--apply", exit_code=1)
    assert UNIT.parse(path.read_bytes(), offset * UNIT.size) == before  # neither zeros nor a pre-blank
    assert log_faults(store) == {"CL-QUEUE-OFFSET-GAP": 1, "CQ-SHIFTED": 1}


def test_lost_message_without_room_is_counted_and_needs_confirmation(store: Path) -> None:
    row = pick(store, lambda r: plain(r) and r.size < 300, 2)
    folder = store / "consumequeue" / "Squeezed" / "0"  # its message was in the middle of what is now another message
    folder.mkdir(parents=True)
    (folder / f"{0:020}").write_bytes(
        UNIT.build(commitlog_offset=row.offset + 40, size=row.size - 60).ljust(2000, b"\0")
    )
    damage.garble(row.path, row.at, row.size)
    result = salvage(store)
    name = f"{row.slot[0]}/{row.slot[1]} {row.slot[2]}"
    assert f"no room for a filler for {name}" in result.decisions[0]
    assert "--accept-shift" in result.decisions[0]
    allowed = salvage(store, allow_shift=True)
    assert allowed.decisions == ()
    assert any(f"no room for a filler for {name}" in note for note in allowed.notes)
    run_json("recover", str(store), "--apply", exit_code=5)
    done = run_json("recover", str(store), "--accept-shift", "--apply", exit_code=1)
    loss = done["loss"]
    assert isinstance(loss, dict)
    assert (loss["messages"], loss["queues"]) == (2, {f"{row.slot[0]}/{row.slot[1]}": 1, "Squeezed/0": 1})
    assert log_faults(store) == {"CL-QUEUE-OFFSET-GAP": 1, "CQ-SHIFTED": 1}  # reported, and all units are right


def test_cut_in_the_legacy_log_leaves_no_commit_of_entries_that_are_gone(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger-mixed", tmp_path)
    row = next(r for r in rows(store) if not r.body_offset and r.offset > 70_000)
    damage.garble(row.path, row.at, row.size)
    plan = run_json("recover", str(store), "--strategy", "truncate", exit_code=1)
    assert "all DLedger entries would be lost" in texts(plan["brakes"])
    words = ("--strategy", "truncate", "--apply", "--force", str(plan["digest"]))
    done = run_json("recover", str(store), *words, exit_code=0)
    assert done["remaining"] == {"counts": {}}
    assert (store / "dledger-n0" / "checkpoint").read_text().split() == ["committedIndex=-1", "endIndex=-1"]


def test_messages_that_only_light_queues_point_to_get_the_queue_that_misses_them(tmp_path: Path) -> None:
    """The files of their own queue and of the log are lost; only units of light queues remain."""
    store = copy_store("5.4.0-formats", tmp_path)
    shutil.rmtree(store / "consumequeue" / "Order_11" / "3")
    (store / "commitlog" / "00000000000000131072").unlink()
    result = salvage(store, accept_fillers=True)
    placed = {f.offset: f for f in result.fillers if (f.topic, f.queue_id) == ("Order_11", 3)}
    light = {188_982, 190_406}  # where %LMQ%all_11 and %LMQ%dev_0_11 point to
    assert light <= placed.keys()
    in_order = [placed[offset].queue_offset for offset in sorted(placed)]
    assert in_order == sorted(in_order)
    assert not any("light message queues" in note for note in result.notes)
    apply(store, result)
    assert log_faults(store).get("CL-HEADER") is None


def test_where_several_queues_miss_them_each_gets_one_of_their_places(tmp_path: Path) -> None:
    """The files of their own queues are lost, too: it is known which messages are missing, but not at which offset."""
    store = copy_store("5.4.0-formats", tmp_path)
    for number in range(4):
        shutil.rmtree(store / "consumequeue" / "Order_11" / str(number))
    log = store / "commitlog" / "00000000000000131072"
    was = [row for row in rows(store) if row.path == log]
    texts_of = {row.offset: parse_properties(row.message.properties) for row in was}
    light = {offset: found for offset, found in texts_of.items() if INNER_MULTI_DISPATCH in found}
    assert len({row.slot[1] for row in was if row.offset in light}) == 4
    log.unlink()
    result = salvage(store, accept_fillers=True)
    placed = {f.offset: f for f in result.fillers if f.topic == "Order_11"}
    assert light.keys() <= placed.keys()
    assert sorted((f.queue_id, f.queue_offset) for f in placed.values()) == sorted(
        row.slot[1:] for row in was if row.slot[0] == "Order_11"
    )
    for number in range(4):
        in_order = [placed[offset].queue_offset for offset in sorted(placed) if placed[offset].queue_id == number]
        assert in_order == sorted(in_order)
    apply(store, result)
    now = {row.offset: parse_properties(row.message.properties) for row in rows(store) if row.path == log}
    assert {offset: sorted(lmq_queues(now[offset])) for offset in light} == {
        offset: sorted(lmq_queues(found)) for offset, found in light.items()
    }


@pytest.mark.quick_rows
@pytest.mark.parametrize("offset", [b"\xff" * 4 + b"\xcb\xd4\x31\x94", bytes(8)])
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.4.0-dledger"])
def test_damaged_unit_between_units_of_lost_messages_keeps_its_queue_offset(
    name: str, offset: bytes, tmp_path: Path
) -> None:
    """The last messages of a queue are lost: no later good message shows a gap, but their units do."""
    store = copy_store(name, tmp_path)
    lost = [row for row in rows(store) if row.slot[:2] == ("Order_11", 1)][-4:]
    for row in lost:
        damage.garble(row.path, row.at, row.size)
    topic, queue_id, number = lost[1].slot
    path = store / "consumequeue" / topic / str(queue_id) / f"{0:020}"
    damage.overwrite(path, number * 20, offset)
    missed = MissedOffsets(topic, queue_id, range(number, number + 1), lost[0].offset, lost[2].offset)
    assert missed in Evidence(*look(store)).missed
    result = salvage(store)
    assert (result.decisions, result.refusals, result.loss.messages) == ((), (), 4)
    slots = {(f.offset, f.queue_offset) for f in result.fillers}
    assert slots == {(row.offset, row.slot[2]) for row in lost}
    apply(store, result)
    assert [r.slot for r in rows(store) if r.slot[:2] == (topic, queue_id)][-4:] == [row.slot for row in lost]
    run_json("recover", str(store), "--apply", exit_code=0)
    assert log_faults(store) == {}


@pytest.mark.quick_rows
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.4.0-clean", "5.4.0-dledger"])
def test_good_message_with_a_damaged_unit_before_a_lost_message_is_not_lost(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    good, lost = [row for row in rows(store) if row.slot[:2] == ("Order_11", 1)][4:6]
    damage.garble(lost.path, lost.at, lost.size)
    topic, queue_id, number = good.slot
    path = store / "consumequeue" / topic / str(queue_id) / f"{0:020}"
    damage.flip(path, number * UNIT.size + 4, 2)  # the unit points past the log's end
    result = salvage(store)
    assert (result.decisions, result.refusals, result.loss.messages) == ((), (), 1)
    assert [(f.offset, f.queue_offset) for f in result.fillers] == [(lost.offset, lost.slot[2])]


def test_missed_queue_offsets_are_looked_for_only_in_their_own_gap(tmp_path: Path) -> None:
    """The units of two gaps are lost, and those of the good messages between them."""
    store = copy_store("5.4.0-clean", tmp_path)
    own = [row for row in rows(store) if row.slot[:2] == ("Order_11", 0)]
    lost = (*own[8:10], *own[14:16])
    for row in lost:
        damage.zero(row.path, row.at, row.size)
    queue = store / "consumequeue" / "Order_11" / "0" / "00000000000000000000"
    damage.zero(queue, 9 * UNIT.size, 6 * UNIT.size)
    shutil.rmtree(store / "index")
    planned = after(open_store(store), plan_of(store))
    found = [row for row in rows(planned) if row.slot[:2] == ("Order_11", 0)]
    assert [row.slot[2] for row in found] == list(range(len(own)))
    at = {row.slot[2]: row.offset for row in found}
    assert all(own[number - 1].offset < at[number] < own[number + 1].offset for number in (8, 9, 14, 15))
