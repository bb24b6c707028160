"""Keys and values of rocksdbstore/, as 5.4.0 wrote them."""

from __future__ import annotations

import pytest

from rmqstore.formats.rocksdbstore import (
    HOUR,
    IndexRow,
    TimerRow,
    TransRow,
    parse_index_row,
    parse_position,
    parse_timer_row,
    parse_trans_row,
)

ID = "FD000000000000000000000000000002019D4E0E2F2A75D24180002D"
TIMER = (
    b"\x00\x00\x01\xa2\n7D\xe0FD0000000000000000000000000000025A374E0E2F2A75CF57630088",
    b"\x00\x00\x01t\x00\x00\x00\x00\x00\x01\xd2U",
)
TRANS = (
    b"\x00\x00\x00\x00\x00\x00\x07A@Order_11@FD00000000000000000000000000000264314E0E2F2A75D0225F0003",
    b"\x00\x00\x00\x05\x00\x00\x01\xb9",
)
INDEX = (
    b"\x00\x00\x01\xa2\n5`\x80@%DLQ%CG_dlq_11@K@b1_0@" + ID.encode() + b"@\x00\x00\x00\x00\x00\x02\xb7s",
    b"\x00\x00\x01\xa2\n:9\x90",
)


def test_a_row_of_a_timed_message() -> None:
    expected = TimerRow(1795467724000, "FD0000000000000000000000000000025A374E0E2F2A75CF57630088", 119381, 372)
    assert parse_timer_row(*TIMER) == expected


def test_a_row_of_a_half_message() -> None:
    expected = TransRow(1857, "Order_11", "FD00000000000000000000000000000264314E0E2F2A75D0225F0003", 441, 5)
    assert parse_trans_row(*TRANS) == expected


def test_a_row_of_the_index() -> None:
    expected = IndexRow(1795467600000, "%DLQ%CG_dlq_11", "K", "b1_0", ID, 178035, 1795467917712)
    assert parse_index_row(*INDEX) == expected
    assert expected.hour == expected.store_timestamp // HOUR * HOUR


def test_a_key_of_a_message_may_contain_the_separator() -> None:
    found = parse_index_row(INDEX[0].replace(b"b1_0", b"b1@0@"), INDEX[1])
    assert found is not None and (found.word, found.unique_id) == ("b1@0@", ID)


@pytest.mark.parametrize(
    ("parse", "row"), [(parse_timer_row, TIMER), (parse_trans_row, TRANS), (parse_index_row, INDEX)]
)
def test_other_bytes_are_no_rows(parse: object, row: tuple[bytes, bytes]) -> None:
    assert callable(parse)
    for key, value in ((b"", b""), (row[0], row[1][:-1]), (row[0], row[1] + b"\0"), (row[0][:8], row[1])):
        assert parse(key, value) is None


def test_a_position_needs_eight_bytes() -> None:
    assert parse_position(b"\0\0\0\0\0\0\x44\xae") == 17582
    assert parse_position(b"\0" * 7) is None
