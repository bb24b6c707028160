"""Finding the flipped bit that explains a wrong CRC, by the CRC alone."""

from __future__ import annotations

import random
import zlib

from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats.crcbits import FlippedBit, flipped_bits, odds_of_false_match
from rmqstore.formats.message import body_crc


@given(data=st.binary(min_size=1, max_size=2000), where=st.integers(0))
def test_the_flipped_bit_is_among_the_results_and_every_result_fits(data: bytes, where: int) -> None:
    where %= 8 * len(data)
    damaged = bytearray(data)
    damaged[where // 8] ^= 1 << where % 8
    found = flipped_bits(len(data), body_crc(data), body_crc(damaged))
    assert FlippedBit(where // 8, where % 8) in found
    for at, bit in found:
        mended = bytearray(damaged)
        mended[at] ^= 1 << bit
        assert body_crc(mended) == body_crc(data)


def test_a_flip_in_any_bit_of_a_large_body_has_one_explanation() -> None:
    source = random.Random(7)
    data = bytearray(source.randbytes(40_000))
    stored = zlib.crc32(data) & 0x7FFFFFFF
    for where in [0, 1, 8 * len(data) - 1, *source.sample(range(8 * len(data)), 20)]:
        data[where // 8] ^= 1 << where % 8
        assert flipped_bits(len(data), stored, body_crc(data)) == [(where // 8, where % 8)]
        data[where // 8] ^= 1 << where % 8


def test_other_damage_matches_as_often_as_the_stated_odds() -> None:
    source = random.Random(11)
    length, rounds = 2048, 1000
    matches = sum(bool(flipped_bits(length, source.getrandbits(31), source.getrandbits(31))) for _ in range(rounds))
    assert odds_of_false_match(length) == 8 * length / 2**31
    assert matches == 0  # the expected number is 0.008


def test_equal_crcs_have_no_explanation_in_short_data() -> None:
    assert flipped_bits(100, 5, 5) == []
