"""SYSFLAG's compression bits compared with the body: each flipped bit is found and repaired if the body proves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.formats.bodies import Compression, proved_sys_flag
from rmqstore.formats.message import HEAD
from tests import damage
from tests.command import run_json
from tests.packing import compress
from tests.planning import counts_of
from tests.repair.salvaging import Row, pick
from tests.stores import copy_store

FLAG_AT = HEAD.at("sys_flag")


def flip(row: Row, bit: int) -> None:
    damage.flip(row.path, row.at + FLAG_AT + 3 - bit // 8, bit % 8)


def faults(store: Path) -> int:
    return counts_of(store).get("CL-SYSFLAG", 0)


def told(before: int, after: int) -> bool:
    """Return whether a change misleads a reader; type bits without the COMPRESSED bit are ignored on a plain body."""
    if not before & 1:
        return bool(after & 1)
    return {0: 3}.get(after >> 8 & 7, after >> 8 & 7) != before >> 8 & 7 or not after & 1


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("flag", [0x301, 0x101, 0x201, 0])
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.4.0-dledger"])
def test_every_bit_that_misleads_a_reader_is_found_and_repaired(name: str, flag: int, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    row = pick(store, lambda r: r.message.sys_flag & 0x70F == flag and len(r.message.body) > 20, 3)
    sound = row.path.read_bytes()
    for bit in (0, 8, 9, 10):
        row.path.write_bytes(sound)
        flip(row, bit)
        wrong = flag ^ 1 << bit
        assert faults(store) == told(flag, wrong), hex(wrong)
        if told(flag, wrong):
            done = run_json("recover", str(store), "--role", "single", "--apply", exit_code=0)
            assert done["cures"] == ["CL-SYSFLAG"]
            assert row.path.read_bytes() == sound, hex(wrong)


def test_a_replica_is_not_cut_for_it(store: Path) -> None:
    flip(pick(store, lambda r: r.message.sys_flag == 0x101), 0)
    plan = run_json("recover", str(store), "--role", "slave", exit_code=1)
    assert (plan["strategy"], plan["steps"], plan["remaining"]) == ("truncate", [], {"counts": {"CL-SYSFLAG": 1}})
    assert isinstance(plan["facts"], dict)
    assert "--strategy salvage" in plan["facts"]["stays"]["CL-SYSFLAG"]["do"]


def test_a_flag_under_a_record_crc_is_left_to_the_record_crc(tmp_path: Path) -> None:
    store = copy_store("5.4.0-formats", tmp_path)
    row = pick(store, lambda r: r.message.sys_flag & 0x701 == 0x101)
    flip(row, 0)
    counts = counts_of(store)
    assert counts.get("CL-SYSFLAG", 0) == 0
    assert counts["CL-RECORD-CRC"] == 1


def test_only_a_flag_that_the_body_proves_is_proposed() -> None:
    packed = {kind: compress(kind, b"a body, a body, a body") for kind in Compression}
    assert proved_sys_flag(0x101, b"plain text") is None  # two bits away from a plain body
    assert proved_sys_flag(0x1, b"plain text") == 0
    assert proved_sys_flag(0x1, b"\x78\x9cnothing that inflates") is None  # it begins like a zlib stream
    assert proved_sys_flag(0x301, packed[Compression.LZ4]) == 0x101
    assert proved_sys_flag(0x401, packed[Compression.ZLIB]) == 0x1
    assert proved_sys_flag(0x4401, packed[Compression.ZSTD]) == 0x4201  # several bits away
    assert proved_sys_flag(0x500, packed[Compression.LZ4]) is None  # maybe compressed by the producer
    assert proved_sys_flag(0x300, packed[Compression.ZLIB][:-3]) is None  # truncated, so it does not unpack completely
    assert proved_sys_flag(0, packed[Compression.ZLIB]) == 0x1  # verify calls it only if a type bit is set
