"""TAGS that a unit contradicts are repaired if one flipped bit of the message explains it, and the unit is right."""

from __future__ import annotations

import pytest

from rmqstore.formats import properties
from rmqstore.formats.consumequeue import may_be_right, one_bit_apart
from rmqstore.formats.message import HEAD, Message, parse_message
from rmqstore.repair.salvage.candidates import proved_tags
from tests.stores import unpack


def record() -> tuple[bytes, Message]:
    """Return the first record of a real store."""
    data = sorted((unpack("5.4.0-clean") / "commitlog").iterdir())[0].read_bytes()
    raw = data[: HEAD.parse(data)["size"]]
    message, _ = parse_message(raw)
    assert message is not None
    return raw, message


def code_of(message: Message) -> int:
    return properties.tags_code(properties.parse_properties(message.properties)[properties.TAGS])


def test_every_flipped_bit_of_the_tags_is_put_right() -> None:
    raw, message = record()
    code = code_of(message)
    part = next(p for p in message.properties.split(b"\x02") if p.startswith(b"TAGS\x01"))
    at = raw.rindex(part)
    mended = told = 0
    for place in range(at, at + len(part)):
        for bit in range(8):
            damaged = raw[:place] + bytes([raw[place] ^ (1 << bit)]) + raw[place + 1 :]
            now, _ = parse_message(damaged)
            assert now is not None
            if properties.property_faults(now.properties):
                continue  # a grammar error, reported as CL-PROPERTIES
            found = proved_tags(damaged, now, code)
            assert found in (None, raw)
            told += 1
            mended += found == raw
    assert mended == told > 40


def test_a_code_that_no_bit_explains_changes_nothing() -> None:
    raw, message = record()
    for code in (0, 12345, 1 << 40, code_of(message) ^ 0b11):
        assert proved_tags(raw, message, code) is None


@pytest.mark.parametrize(("a", "b", "apart"), [(5, 4, True), (-1, -2, True), (-1, 1 << 63, False), (7, 4, False)])
def test_one_bit_apart(a: int, b: int, apart: bool) -> None:
    assert one_bit_apart(a, b) is apart


@pytest.mark.parametrize(
    ("code", "expected", "may"),
    [
        (2598919, 2658501, True),
        (-2598919, 2658501, True),
        (2598919, 0, True),  # the message no longer has TAGS
        (0, 2658501, False),  # a torn unit
        (2658501 ^ 8, 2658501, False),  # one bit
        (1 << 40 | 2598919, 2658501, False),  # not a hash
        (-(1 << 62), 2658501, False),  # an address in the extension
    ],
)
def test_only_another_hash_may_be_right(code: int, expected: int, may: bool) -> None:
    assert may_be_right(code, expected) is may
