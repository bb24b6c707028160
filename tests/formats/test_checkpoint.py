"""The store checkpoint."""

from __future__ import annotations

import pytest

from rmqstore.formats.checkpoint import FILE_SIZE, StoreCheckpoint, parse_checkpoint

# first 40 bytes of `checkpoint` after a clean stop, 4.9.7 and 5.4.0
REAL_4_9_7 = bytes.fromhex("000001a1fcf13275000001a1fcf13275000001a1fcf11a11" + "00" * 16)
REAL_5_4_0 = bytes.fromhex("000001a1fcfa9dc1000001a1fcfa9dc1000001a1fcfa9ca7" + "00" * 16)


def test_real_files_parse() -> None:
    assert parse_checkpoint(REAL_4_9_7) == StoreCheckpoint(1795245027957, 1795245027957, 1795245021713)
    assert parse_checkpoint(REAL_5_4_0.ljust(FILE_SIZE, b"\0")).index_msg_timestamp == 0x1A1FCFA9CA7


def test_built_file_is_the_brokers() -> None:
    built = StoreCheckpoint(1795216452344, 1795216452344).build()
    assert built == bytes.fromhex("000001A1FB3D2AF8000001A1FB3D2AF8") + bytes(4080)
    assert parse_checkpoint(REAL_4_9_7).build() == REAL_4_9_7.ljust(4096, b"\0")


@pytest.mark.parametrize(
    ("physic", "logics", "index", "low", "low_index"),
    [
        (1795216452344, 1795216452344, 0, 1795216449344, 0),
        (5000, 9000, 1500, 2000, 1500),
        (9000, 5000, 3000, 2000, 2000),
        (0, 9000, 9000, 0, 0),
        (2999, 2999, 9000, 0, 0),
        (-(1 << 63), 0, 5, (1 << 63) - 3000, 5),
        (5000, 9000, -7, 2000, -7),
    ],
)
def test_min_timestamps_are_the_brokers(physic: int, logics: int, index: int, low: int, low_index: int) -> None:
    checkpoint = StoreCheckpoint(physic, logics, index)
    assert (checkpoint.min_timestamp(), checkpoint.min_timestamp_index()) == (low, low_index)


@pytest.mark.parametrize("size", [0, 7, 8, 39])
def test_short_file_reads_as_extended_with_zeros(size: int) -> None:
    data = REAL_4_9_7[:size]
    assert parse_checkpoint(data) == parse_checkpoint(data + bytes(4096))
