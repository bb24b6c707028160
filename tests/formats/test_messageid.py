"""Message ids in both directions, compared with MessageClientIDSetter and MessageDecoder of 5.4.0."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats import messageid as m

# UNIQ_KEY of the first message in a 4.9.7 store, stored at 1795245017059
KEY = "FD00000000000000000000000000000253C14E0E2F2A68891E4E0000"


def test_offset_message_id_both_ways() -> None:
    host = bytes.fromhex("0A01020300002A9F")
    assert m.offset_message_id(host, 405) == "0A01020300002A9F0000000000000195"
    assert m.decode_offset_message_id("0A01020300002A9F0000000000000195") == m.OffsetMessageId("10.1.2.3", 10911, 405)


def test_offset_message_id_of_ipv6_both_ways() -> None:
    host = bytes.fromhex("20010DB800000000000000000000000200002A9F")
    text = m.offset_message_id(host, 405)
    assert text == "20010DB800000000000000000000000200002A9F0000000000000195"
    assert m.decode_offset_message_id(text) == m.OffsetMessageId("2001:db8::2", 10911, 405)


@pytest.mark.parametrize("text", ["", "0A", "zz" * 16, "0A 1020300002A9F0000000000000195", "0" * 34, " " * 32])
def test_other_texts_are_not_ids(text: str) -> None:
    assert m.decode_offset_message_id(text) is None
    assert m.decode_uniq_key(text) is None


def test_uniq_key_of_a_real_client_decodes() -> None:
    key = m.decode_uniq_key(KEY)
    assert key == m.UniqKey("fd00::2", 0x53C1, 0x4E0E2F2A, 0x68891E4E, 0)
    assert key.time(1795245017059, UTC) == 1795245016654


def test_uniq_key_time_falls_into_the_month_before_where_needed() -> None:
    key = m.UniqKey("127.0.0.1", 0, 0, 86_400_000 * 29, 0)  # day 30
    near = int(datetime(2026, 11, 2, tzinfo=UTC).timestamp() * 1000)
    assert datetime.fromtimestamp(key.time(near, UTC) / 1000, UTC) == datetime(2026, 10, 30, tzinfo=UTC)
    zone = timezone(timedelta(hours=8))
    assert datetime.fromtimestamp(key.time(near, zone) / 1000, zone) == datetime(2026, 10, 30, tzinfo=zone)


def test_uniq_key_time_of_garbage_is_the_span() -> None:
    assert m.UniqKey("127.0.0.1", 0, 0, 7, 0).time(1 << 62, UTC) == 7
    assert m.UniqKey("127.0.0.1", 0, 0, 7, 0).time(-(1 << 62), UTC) == 7


@given(
    st.ip_addresses(), st.integers(0, 65535), st.integers(-(1 << 31), (1 << 31) - 1), st.integers(0, (1 << 32) - 1),
    st.integers(0, 65535),
)  # fmt: skip
def test_every_uniq_key_decodes(ip: IPv4Address | IPv6Address, pid: int, loader: int, span: int, counter: int) -> None:
    layout = m.UNIQ_KEYS[len(ip.packed) + 12]
    pid_, counter_ = (int.from_bytes(n.to_bytes(2), signed=True) for n in (pid, counter))
    raw = layout.build(address=ip.packed, pid=pid_, class_loader=loader, span=span, counter=counter_)
    assert m.decode_uniq_key(raw.hex().upper()) == m.UniqKey(str(ip), pid, loader, span, counter)
