"""Timer log, wheel and checkpoint."""

from __future__ import annotations

from rmqstore.formats import timer
from rmqstore.formats.javatext import java_string_hash

# first two units of the timer log, and the first used wheel slot, of a 5.4.0 broker
LOG_5_4_0 = bytes.fromhex(
    "00000034ffffffffffffffff00000001000001a1fcf74168000003e8000000000002a0e70000018b4d6c5cd10000000000000000"
    "00000034ffffffffffffffff00000001000001a1fcf74168000007d0000000000002a2720000017d2fb895480000000000000000"
)
SLOT_5_4_0 = bytes.fromhex("000000006b0145720000000000000000000000000000016c0000000200000000")
SLOT_5_4_0_AT = 6368832
# first 56 bytes of config/timercheck of the same store
TIMERCHECK_5_4_0 = bytes.fromhex(
    "000001a1fcf7dda80000000000001a34000000000000008100000000000000810000000000000000000001a1fcf7dfb3000000000000001f"
)


def test_units_of_a_real_timer_log() -> None:
    first, second = timer.LOG_UNIT.array(LOG_5_4_0).tolist()
    assert first == (52, -1, 1, 1795245425000, 1000, 172263, 395, java_string_hash("Order_11"), 0)
    assert second == (52, -1, 1, 1795245425000, 2000, 172658, 381, java_string_hash("log-15445"), 0)


def test_real_wheel_slot_is_at_the_position_of_its_time() -> None:
    slot = timer.WHEEL_SLOT.parse(SLOT_5_4_0)
    assert slot == {"time": 1795245426, "first_pos": 0, "last_pos": 364, "num": 2, "magic": 0}
    assert timer.slot_at(timer.slot_index(slot["time"] * 1000)) == SLOT_5_4_0_AT


def test_real_timercheck_parses() -> None:
    assert timer.parse_timercheck(TIMERCHECK_5_4_0.ljust(timer.TIMERCHECK_FILE_SIZE, b"\0")) == {
        "last_read_time": 1795245465000,
        "last_timer_log_flush_pos": 6708,
        "last_timer_queue_offset": 129,
        "master_timer_queue_offset": 129,
        "state_version": 0,
        "timestamp": 1795245465523,
        "counter": 31,
    }
    assert timer.parse_timercheck(b"")["last_timer_queue_offset"] == 0


def test_unit_blank_and_slot_of_the_vectors() -> None:
    unit = timer.LOG_UNIT.build(
        prev_pos=-1,
        magic=1,
        write_time=1795216452000,
        delayed_time=5000,
        commitlog_offset=405,
        message_size=136,
        real_topic_hash=java_string_hash("TopicTest"),
    )
    assert unit == bytes.fromhex(
        "00000034FFFFFFFFFFFFFFFF00000001000001A1FB3D29A0000013880000000000000195000000888E9876410000000000000000"
    )
    assert timer.LOG_BLANK.build(size=40) == bytes.fromhex("000000280000000000000000CBD43194")
    assert timer.slot_index(1795216457000) == 170057
    assert timer.slot_index(1795216457000 + 604_800_000) == 774857  # a week later; the wheel covers two weeks
    assert timer.WHEEL_SLOT.build(time=1795216457)[:8] == bytes.fromhex("000000006B00D449")


def test_wheel_size_is_the_default_files() -> None:
    assert timer.wheel_size() == 38_707_200
