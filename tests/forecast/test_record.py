"""Each check of checkMessageAndReturnSize, for the versions in which it differs."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.brokers.record import Checked, ParserSettings, check_message_and_return_size, parse_properties
from rmqstore.brokers.rules import rules_for
from rmqstore.files.versions import VERSIONS
from rmqstore.formats.javatext import java_split
from rmqstore.formats.message import BLANK, BLANK_MAGIC, HEAD, build_message

FILE = 4096


def check(data: bytes, version: str = "5.4.0", at: int = 0, *, body: bool = True, **settings: bool | int) -> Checked:
    data = data.ljust(FILE, b"\0")

    def read(size: int, position: int) -> bytes:
        return data[position : position + size] if position >= 0 and size > 0 else b""

    parser = ParserSettings(**settings)  # type: ignore[arg-type]
    return check_message_and_return_size(read, at, len(data), rules_for(version), parser, body=body)


def with_field(record: bytes, name: str, value: bytes) -> bytes:
    return record[: HEAD.at(name)] + value + record[HEAD.at(name) + len(value) :]


PLAIN = build_message(topic="TopicTest", body=b"hello", properties=b"TAGS\x01TagA\x02", queue_id=3, queue_offset=7)


@pytest.mark.parametrize("version", VERSIONS)
def test_sound_record_is_taken_by_every_version(version: str) -> None:
    got = check(PLAIN, version)
    assert (got.size, got.success, got.topic, got.queue_id, got.queue_offset) == (len(PLAIN), True, "TopicTest", 3, 7)


def test_record_of_another_place_is_taken() -> None:
    assert check(with_field(PLAIN, "physical_offset", struct.pack(">q", 1 << 40))).physical_offset == 1 << 40


def test_flipped_body_is_refused_unless_crc_is_off_or_the_body_unread() -> None:
    bad = PLAIN.replace(b"hello", b"hellp")
    assert check(bad).reason == "CRC check failed"
    assert check(bad, check_crc=False).success
    assert check(bad, body=False).success


def test_v2_magic_is_unknown_before_5_1_0() -> None:
    record = build_message(topic="T" * 200, body=b"x", v2=True)
    assert check(record, "5.1.0").topic == "T" * 200
    assert check(record, "5.0.0").reason == "found a illegal magic code 0xdaa320ab"


def test_ipv6_hosts_are_unknown_before_4_6_0() -> None:
    record = build_message(topic="T", body=b"x", born_host=bytes(16) + b"\0\0\0\1")
    assert check(record, "4.6.0").success
    assert not check(record, "4.5.2").success


@pytest.mark.parametrize("size", [8, 1234, -5, 0])
def test_blank_of_any_small_size_ends_the_file(size: int) -> None:
    got = check(BLANK.build(size=size, magic=BLANK_MAGIC))
    assert (got.size, got.success) == (0, True)


def test_blank_larger_than_the_file_is_refused_from_5_3_2_on() -> None:
    blank = BLANK.build(size=FILE + 1, magic=BLANK_MAGIC)
    assert check(blank, "5.3.1").success
    assert not check(blank, "5.3.2").success


def test_huge_size_kills_a_broker_that_allocates_first() -> None:
    huge = with_field(PLAIN, "size", struct.pack(">i", 0x7FFFFFFF))
    assert check(huge, "5.1.4").fatal
    assert not check(huge, "5.4.0").fatal
    large = with_field(PLAIN, "size", struct.pack(">i", 500 << 20))
    assert not check(large, "4.9.7").fatal
    assert check(large, "4.9.7", heap=400 << 20).fatal


def test_negative_size_is_refused() -> None:
    got = check(with_field(PLAIN, "size", struct.pack(">i", -len(PLAIN))))
    assert (got.size, got.success, got.fatal) == (-1, False, False)


def test_parts_that_do_not_add_up_are_a_half_message() -> None:
    got = check(with_field(PLAIN, "size", struct.pack(">i", len(PLAIN) + 1)))
    assert (got.size, got.success) == (len(PLAIN) + 1, False)


def test_negative_body_length_counts_as_empty_body() -> None:
    empty = build_message(topic="T", body=b"")
    got = check(with_field(empty, "body_length", struct.pack(">i", -9)))
    assert (got.success, got.size) == (True, len(empty))


def test_topic_length_of_v1_is_signed() -> None:
    record = bytearray(build_message(topic="T" * 127, body=b"x"))
    record[HEAD.size + 1] = 0x80
    assert not check(bytes(record)).success


def test_delay_must_be_a_number_in_the_schedule_topic_only() -> None:
    odd = b"DELAY\x01x3\x02"
    assert not check(build_message(topic="SCHEDULE_TOPIC_XXXX", body=b"x", properties=odd)).success
    assert check(build_message(topic="Other", body=b"x", properties=odd)).success


@pytest.mark.parametrize("text", ["3", "+3", "-3", "0003"])
def test_delay_takes_what_integer_parse_int_takes(text: str) -> None:
    assert check(
        build_message(topic="SCHEDULE_TOPIC_XXXX", body=b"x", properties=f"DELAY\x01{text}\x02".encode())
    ).success


@pytest.mark.parametrize("text", ["1_0", "3 ", "2147483648", "1.0"])
def test_delay_refuses_what_only_python_takes(text: str) -> None:
    record = build_message(topic="SCHEDULE_TOPIC_XXXX", body=b"x", properties=f"DELAY\x01{text}\x02".encode())
    assert not check(record).success


def test_inner_batch_numbers_must_parse_from_5_0_0_on() -> None:
    record = build_message(topic="T", body=b"x", properties=b"INNER_NUM\x0140000\x02INNER_BASE\x015\x02")
    assert not check(record, "5.0.0").success
    assert check(record, "4.9.8").success
    fine = check(build_message(topic="T", body=b"x", properties=b"INNER_NUM\x014\x02INNER_BASE\x015\x02"))
    assert (fine.base_offset, fine.batch_size) == (5, 4)


def test_duplication_demands_dup_info_with_two_parts_from_5_0_0_on() -> None:
    assert not check(PLAIN, "5.1.4", duplication=True).success
    assert check(PLAIN, "4.9.7", duplication=True).success
    assert check(build_message(topic="T", body=b"x", properties=b"DUP_INFO\x01a_b\x02"), duplication=True).success
    assert not check(build_message(topic="T", body=b"x", properties=b"DUP_INFO\x01ab_\x02"), duplication=True).success


def test_record_crc_replaces_body_crc_when_it_is_forced() -> None:
    record = build_message(topic="T", body=b"hello", properties=b"TAGS\x01a", append_crc=True)
    assert check(record, force_property_crc=True).success
    assert check(with_field(record, "queue_id", b"\0\0\0\5")).success
    assert not check(with_field(record, "queue_id", b"\0\0\0\5"), force_property_crc=True).success
    assert not check(PLAIN, force_property_crc=True).success
    assert check(PLAIN, "5.1.4", force_property_crc=True).success


def test_property_text_is_split_as_each_version_splits_it() -> None:
    text = "a\x01b\x02c\x01d\x01e\x02\x01x\x02y\x01\x02a\x01z"
    assert parse_properties(text, rules_for("5.4.0")) == {"a": "z", "c": "d\x01e"}
    assert parse_properties(text, rules_for("4.9.0")) == {"a": "z", "": "x"}


@pytest.mark.parametrize(("text", "parts"), [("a_b", 2), ("a_", 1), ("_", 0), ("", 1), ("a__b", 3), ("_b", 2)])
def test_split_drops_empty_parts_at_the_end(text: str, parts: int) -> None:
    assert len(java_split(text, "_")) == parts


@given(st.binary(min_size=0, max_size=400), st.sampled_from(VERSIONS), st.integers(0, 500))
def test_any_bytes_are_not_a_record_unless_their_size_says_so(data: bytes, version: str, at: int) -> None:
    got = check(data, version, at, heap=1 << 20)
    size = int.from_bytes(data[at : at + 4], "big", signed=True)
    assert got.size in ((size, 0) if got.success else (size, -1))


@given(st.integers(0, len(PLAIN) - 1), st.integers(0, 7), st.sampled_from(VERSIONS))
def test_flipped_record_never_reaches_over_the_file(at: int, bit: int, version: str) -> None:
    record = bytearray(PLAIN)
    record[at] ^= 1 << bit
    got = check(bytes(record), version)
    assert not got.success or got.size <= FILE
