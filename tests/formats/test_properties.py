"""The text of properties, and the values that the store derives from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats import properties as p

# KEYS, UNIQ_KEY, CLUSTER, TAGS as a 4.9.7 broker stored them (first record of a clean store): no last 0x02
FIRST_4_9_7 = (
    b"KEYS\x01ready\x02UNIQ_KEY\x01FD00000000000000000000000000000253C14E0E2F2A68891E4E0000\x02"
    b"CLUSTER\x01DefaultCluster\x02TAGS\x01first"
)
# a delayed message of the same store, SCHEDULE_TOPIC_XXXX, stored 1795245017823.
DELAYED_4_9_7 = (
    b"REAL_TOPIC\x01Order_11\x02KEYS\x01ord11_90003 \xe7\x94\xa8\xe6\x88\xb727\x02"
    b"UNIQ_KEY\x01FD00000000000000000000000000000253C14E0E2F2A688922DD0004\x02CLUSTER\x01DefaultCluster\x02"
    b"DELAY\x013\x02WAIT\x01true\x02TAGS\x01TagA\x02REAL_QID\x011"
)
# written by the classes after 5.3.3, with the last 0x02
FIRST_HEAD = bytes.fromhex(
    "4B455953016B31206B3202554E49515F4B45590137463030303030313030303032413133394634423042414446303044303030310254414753"
    "015461674102"
)


def test_properties_of_real_records_parse() -> None:
    assert p.parse_properties(FIRST_4_9_7) == {
        "KEYS": "ready",
        "UNIQ_KEY": "FD00000000000000000000000000000253C14E0E2F2A68891E4E0000",
        "CLUSTER": "DefaultCluster",
        "TAGS": "first",
    }
    assert p.parse_properties(FIRST_HEAD) == {
        "KEYS": "k1 k2",
        "UNIQ_KEY": "7F00000100002A139F4B0BADF00D0001",
        "TAGS": "TagA",
    }
    assert p.property_faults(FIRST_4_9_7) == p.property_faults(FIRST_HEAD) == p.property_faults(DELAYED_4_9_7) == []


def test_properties_build_as_the_brokers_wrote_them() -> None:
    assert p.build_properties(p.parse_properties(FIRST_HEAD)) == FIRST_HEAD
    assert p.build_properties(p.parse_properties(FIRST_4_9_7), last_separator=False) == FIRST_4_9_7
    assert p.build_properties([("TAGS", "TagA")]) == bytes.fromhex("54414753015461674102")
    assert p.build_properties({}) == b""


@pytest.mark.parametrize("pair", [("", "x"), ("a\x01", "x"), ("a\x02", "x"), ("a", "x\x02")])
def test_separators_cannot_be_written(pair: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        p.build_properties([pair])


@pytest.mark.parametrize(
    ("data", "values"),
    [
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x01\x02b\x01c", {"b": "c"}),
        (b"\x01x\x02b\x01c", {"b": "c"}),
        (b"nothing\x02b\x01c", {"b": "c"}),
        (b"a\x011\x02a\x012\x02", {"a": "2"}),
        (b"\x02\x02a\x01b\x02\x02", {"a": "b"}),
        (b"a\x01\xff\x02", {"a": "�"}),
        (b"", {}),
    ],
)
def test_reader_skips_what_the_broker_skips(data: bytes, values: dict[str, str]) -> None:
    assert p.parse_properties(data) == values


@pytest.mark.parametrize(
    ("data", "faults"),
    [
        (b"a\x01b\x02", []),
        (b"ab\x01\x02", []),
        (b"TAGS\x01x\x02zzz\x02", ["segment without separator at 7"]),
        (b"\x01x\x02", ["empty name at 0"]),
        (b"a\x01b\x02\x02", ["too short at 4"]),
        (b"a\x01\x02", ["too short at 0"]),
        (b"a\x01\xc3", ["invalid UTF-8 at 2"]),
        (b"\xff\x02\x01", ["invalid UTF-8 at 0", "segment without separator at 0", "empty name at 2"]),
    ],
)
def test_strict_grammar_names_each_fault(data: bytes, faults: list[str]) -> None:
    assert p.property_faults(data) == faults


def test_faults_of_hostile_text_are_bounded() -> None:
    assert p.property_faults(b"\x02" * 32767) == [f"too short at {at}" for at in range(p.MAX_FAULTS)]


names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
values = st.text(st.characters(exclude_characters="\x02", exclude_categories=["Cs"]), min_size=2, max_size=7)


@given(st.dictionaries(names, values, max_size=6), st.booleans())
def test_what_was_built_parses_back_and_has_no_fault(pairs: dict[str, str], last: bool) -> None:
    data = p.build_properties(pairs, last_separator=last)
    assert p.parse_properties(data) == pairs
    assert p.property_faults(data) == []


@given(st.binary(max_size=64))
def test_any_bytes_can_be_read(data: bytes) -> None:
    assert all(name and value for name, value in p.parse_properties(data).items())
    assert all(" at " in fault for fault in p.property_faults(data))


@pytest.mark.parametrize(
    ("tags", "code"), [(None, 0), ("", 0), ("TagA || TagB", 1359775119), ("polygenelubricants", -2147483648)]
)
def test_tags_code_is_the_sign_extended_hash(tags: str | None, code: int) -> None:
    assert p.tags_code(tags) == code


def test_schedule_topic_gets_the_due_time() -> None:
    delayed = p.parse_properties(DELAYED_4_9_7)
    assert p.dispatch_tags_code(p.SCHEDULE_TOPIC, delayed, 1795245017823) == 0x1A1FCF131EF
    assert p.dispatch_tags_code("Order_11", delayed, 1795245017823) == 2598919
    assert p.dispatch_tags_code(p.SCHEDULE_TOPIC, {"DELAY": "3"}, 1795216452344) == 0x1A1FB3D5208


@pytest.mark.parametrize(
    ("delay", "code"),
    [("1", 1000), ("18", 7_200_000), ("19", 7_200_000), ("0", 97), ("-1", 97), ("x", None), ("99999999999", None)],
)
def test_levels_outside_the_table_follow_the_broker(delay: str, code: int | None) -> None:
    assert p.dispatch_tags_code(p.SCHEDULE_TOPIC, {"DELAY": delay, "TAGS": "a"}, 0) == code


def test_delay_table_of_the_default_setting() -> None:
    levels = p.DEFAULT_DELAY_LEVELS
    assert levels.maximum == 18
    assert levels.delays[:5] == (1000, 5000, 10_000, 30_000, 60_000)
    assert levels.delays[-3:] == (1_800_000, 3_600_000, 7_200_000)
    assert levels.deliver_time(0, 5) == 1005
    assert p.parse_delay_levels("2d 1s  ").delays == (172_800_000, 1000)


@pytest.mark.parametrize("text", ["", "1s  2s", "1", "s", "1x", "1.5s", "1s\t2s"])
def test_bad_delay_setting_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a delay"):
        p.parse_delay_levels(text)


def test_index_keys_come_in_the_order_of_the_entries() -> None:
    values = {"UNIQ_KEY": "U", "KEYS": " k1  k2 ", "TAGS": "a || b"}
    assert p.index_keys("T", values) == ["T#U", "T#k1", "T#k2"]
    assert p.index_keys("T", values, tag_key=True) == ["T#U", "T#k1", "T#k2", "T#T#a || b"]
    assert p.index_keys("T", {}, tag_key=True) == []


def test_inner_batch_and_fan_out_are_read_from_properties() -> None:
    assert p.inner_batch({"INNER_BASE": "8", "INNER_NUM": "2"}) == (8, 2)
    assert p.inner_batch({"INNER_BASE": "8"}) is None
    fan_out = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "3,0"}
    assert p.lmq_queues(fan_out) == [("%LMQ%a", 3), ("%LMQ%b", 0)]
    assert p.lmq_queues({"INNER_MULTI_DISPATCH": "%LMQ%a"}) == []
    assert p.lmq_queues({}) == []
    assert p.lmq_queues({"INNER_MULTI_DISPATCH": "a,b", "INNER_MULTI_QUEUE_OFFSET": "1"}) == []
    assert p.lmq_queues({"INNER_MULTI_DISPATCH": "a,b,c", "INNER_MULTI_QUEUE_OFFSET": "1,x,3"}) == [("a", 1)]


@pytest.mark.parametrize(
    ("topic", "good"),
    [("log-15445", True), ("%RETRY%a|b_C", True), ("a.b", False), ("a b", False), ("", False), ("a\n", False)],
)
def test_topic_names_have_the_brokers_alphabet(topic: str, good: bool) -> None:
    assert p.is_topic_name(topic) is good


def test_reserved_topics_are_known() -> None:
    assert [t for t in ("TBW102", "rmq_sys_wheel_timer", "%RETRY%g", "Order") if p.is_system_topic(t)] == [
        "TBW102",
        "rmq_sys_wheel_timer",
    ]
    assert p.is_retry_topic(p.retry_topic("g")) and p.is_dlq_topic(p.dlq_topic("g")) and p.is_lmq("%LMQ%q")
    assert not p.is_retry_topic("RETRY") and not p.is_dlq_topic("%RETRY%g") and not p.is_lmq("LMQ")


@pytest.mark.parametrize(
    ("data", "faults"),
    [
        (b"K\x03Y\x01v\x02", ["control characters at 1"]),  # in a name
        (b"WAIT\x01tr\x1fe\x02", ["control characters at 7"]),  # in a value that clients set
        (b"a\x01b\x02c\x01\x04\x05\x06\x07\x08\x0b\x0c\x0e\x02", ["control characters at 6"]),  # eight in a row
        (b"a\x01\0\0\0\0\0\0\0\0\x02", ["zero bytes at 2"]),
        (b"a\x01\x03\x1b[0m\x02", []),  # in a producer's own value
        (b"KEYS\x01k\x03\x02TAGS\x01\x05\x02", []),
        (b"WAIT\x01a\tb\r\nc\x02", []),  # newlines and tabs are text
    ],
)
def test_control_characters_are_faults_where_no_writer_puts_them(data: bytes, faults: list[str]) -> None:
    assert p.property_faults(data) == faults
