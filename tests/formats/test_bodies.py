"""Compressed bodies: real ones, round trips, and hostile input."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats import bodies
from rmqstore.formats.bodies import BodyError, Compression, compression, decompress
from tests.packing import compress

# three messages of 4096 zero bytes in the commitlog of a 4.9.7 broker: SYSFLAG, stored body
REAL = [
    (0x301, "785eedc1010d000000c2a0f74f6d0f0714000000f06e10000001"),
    (0x101, "04224d186070731a0000001f000100fffffffffffffffffffffffffffffff650000000000000000000"),
    (0x201, "28b52ffd00584c00001000000100fbf70116010000"),
]


@pytest.mark.parametrize(("sys_flag", "body"), REAL)
def test_real_bodies_unpack(sys_flag: int, body: str) -> None:
    assert decompress(sys_flag, bytes.fromhex(body)) == b"\0" * 4096


@pytest.mark.parametrize(("sys_flag", "body"), REAL)
def test_limit_is_exact(sys_flag: int, body: str) -> None:
    assert len(decompress(sys_flag, bytes.fromhex(body), 4096)) == 4096
    with pytest.raises(BodyError, match="more than 4095 bytes"):
        decompress(sys_flag, bytes.fromhex(body), 4095)


@pytest.mark.parametrize(("sys_flag", "body"), REAL)
def test_every_cut_is_an_error(sys_flag: int, body: str) -> None:
    data = bytes.fromhex(body)
    for stop in range(len(data)):
        with pytest.raises(BodyError):
            decompress(sys_flag, data[:stop])


@pytest.mark.parametrize(
    ("sys_flag", "kind"),
    [
        (0, None),
        (0x300, None),
        (0x1, Compression.ZLIB),
        (0x101, Compression.LZ4),
        (0x201, Compression.ZSTD),
        (0x3F1, Compression.ZLIB),
    ],
)
def test_type_is_read_from_sys_flag(sys_flag: int, kind: Compression | None) -> None:
    assert compression(sys_flag) is kind


@pytest.mark.parametrize("kind", [4, 5, 6, 7])
def test_unknown_types_are_errors_only_if_compressed(kind: int) -> None:
    with pytest.raises(BodyError, match=f"unknown compression type {kind}"):
        decompress(1 | kind << 8, b"x")
    assert decompress(kind << 8, b"x") == b"x"


def test_plain_body_is_returned() -> None:
    assert decompress(0, b"hello", limit=1) == b"hello"


@pytest.mark.parametrize("kind", Compression)
@pytest.mark.parametrize("size", [0, 1, 100_000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_a_compressed_body_comes_back(kind: Compression, size: int) -> None:
    body = random.Random(size).randbytes(size // 2).ljust(size, b"z")
    packed = compress(kind, body)
    assert decompress(kind.sys_flag, packed, size) == body
    assert compression(kind.sys_flag) is kind


@pytest.mark.parametrize("kind", Compression)
def test_bomb_stops_at_the_limit(kind: Compression) -> None:
    bomb = compress(kind, b"\0" * (8 << 20))
    assert len(bomb) < 40_000
    with pytest.raises(BodyError, match="more than 1000 bytes"):
        decompress(kind.sys_flag, bomb, 1000)


@pytest.mark.parametrize("kind", [Compression.LZ4, Compression.ZSTD])
def test_bytes_after_a_frame_are_an_error(kind: Compression) -> None:
    with pytest.raises(BodyError, match="3 bytes after the frame"):
        decompress(kind.sys_flag, compress(kind, b"hello") + b"xyz")


def test_bytes_after_a_zlib_stream_are_ignored_as_in_java() -> None:
    assert decompress(1, compress(Compression.ZLIB, b"hello") + b"xyz") == b"hello"


def test_zlib_works_without_zlib_ng(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "zlib_ng", None)
    assert decompress(REAL[0][0], bytes.fromhex(REAL[0][1])) == b"\0" * 4096
    with pytest.raises(BodyError, match="zlib: "):
        decompress(1, b"garbage")


@given(st.sampled_from([0x1, 0x101, 0x201, 0x301]), st.binary(max_size=64), st.integers(0, 8))
def test_any_bytes_give_a_body_or_a_body_error(sys_flag: int, tail: bytes, keep: int) -> None:
    head = bytes.fromhex(dict(REAL).get(sys_flag, REAL[0][1]))[:keep]
    try:
        assert len(decompress(sys_flag, head + tail, 1 << 16)) <= 1 << 16
    except BodyError as e:
        assert str(e)


def test_default_limit_is_64_mib() -> None:
    assert bodies.DEFAULT_LIMIT == 67_108_864
