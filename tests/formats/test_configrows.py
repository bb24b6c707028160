"""Rows of the configuration in RocksDB, version 2: bytes that a broker of 5.5.1 wrote."""

from __future__ import annotations

import pytest

from rmqstore.formats import configuration

KEY = b"\x01\x00\x01\x02\x00\nCG_part_11\x01\x00\x08Order_11\x01\x00\x00\x00\x03"
VALUE = b"\x00\x00\x00\x00\x00\x00\x00\x11"


def test_a_consumer_offset_of_a_real_broker_is_parsed_and_built() -> None:
    place = configuration.parse_offset_place(KEY)
    assert place == (b"CG_part_11", b"Order_11", 3)
    assert configuration.parse_offset(VALUE) == 17
    head = configuration.KEY_HEAD.build(table=configuration.CONSUMER_OFFSET)
    built = configuration.OFFSET_KEY.build(
        group_length=10, group=b"CG_part_11", topic_length=8, topic=b"Order_11", queue_id=3
    )
    assert head + built == KEY
    assert configuration.OFFSET_VALUE.build(offset=17) == VALUE


def test_the_key_range_of_a_table_contains_its_rows_and_no_data_version() -> None:
    start, stop = configuration.key_range(configuration.CONSUMER_OFFSET)
    assert start < KEY < stop
    assert not start <= b"\x01\x00\x01\x01" < stop
    assert not start <= KEY.replace(b"\x01\x00\x01", b"\x01\x00\x02", 1) < stop


@pytest.mark.parametrize(
    "key",
    [KEY[:-1], KEY + b"\0", KEY.replace(b"\x01\x00\x08", b"\x02\x00\x08"), KEY[:4], KEY[:4] + b"\xff\xff" + KEY[6:]],
)
def test_a_key_of_another_form_is_no_offset(key: bytes) -> None:
    assert configuration.parse_offset_place(key) is None


def test_names_and_values_of_topics() -> None:
    key = configuration.KEY_HEAD.build(table=configuration.TOPIC) + b"\x00\x03abc"
    assert configuration.parse_name(key) == b"abc"
    assert configuration.parse_name(key + b"d") is None
    assert configuration.parse_json_value(b"\x01{}") == b"{}"
    assert configuration.parse_json_value(b"\x02{}") is None
    assert configuration.parse_json_value(b"") is None
    assert configuration.parse_offset(b"\0" * 7) is None
