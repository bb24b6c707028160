"""The ports of BORNHOST and STOREHOST: set bits beyond 16 are found and cleared, and no other bits are changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rmqstore.formats.message import HEAD, set_record_crc
from tests import damage
from tests.checks.log.test_sys_flag import FLAG_AT
from tests.command import run_json
from tests.planning import counts_of, report_of
from tests.repair.salvaging import Row, pick, rows
from tests.stores import copy_store

CODE = "CL-HOST"


def port_at(row: Row, field: str) -> int:
    """Return the position of a port's first byte in its record."""
    born = len(row.message.born_host)
    if field == "born":
        return HEAD.at("born_host") + born - 4
    return HEAD.at("born_host") + born + 8 + len(row.message.store_host) - 4


def flip(row: Row, field: str, bit: int) -> None:
    damage.flip(row.path, row.at + port_at(row, field) + 3 - bit // 8, bit % 8)


def counts(store: Path) -> Mapping[str, int]:
    return counts_of(store)


@pytest.mark.parametrize("field", ["born", "store"])
@pytest.mark.parametrize("name", ["4.9.7-ipv6", "5.4.0-clean", "5.1.4-dledger"])
def test_every_upper_bit_is_found_and_no_lower_one(name: str, field: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    hit = rows(store)[120:152]
    for bit, row in enumerate(hit):
        flip(row, field, bit)
    found = report_of(store).findings.listed
    assert [(f.code, f.offset) for f in found] == [(CODE, row.offset - row.body_offset) for row in hit[16:]]
    assert all(list(f.facts)[-1] == f"{field}_port" for f in found)


def test_cleared_port_bits_give_the_original_bytes(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger", tmp_path)
    row = pick(store, lambda r: r.message.sys_flag & 0x701 == 0x101)
    sound = row.path.read_bytes()
    for field in ("born", "store"):
        for bit in (16, 23, 24, 31):
            flip(row, field, bit)
    damage.flip(row.path, row.at + FLAG_AT + 3, 0)  # also SYSFLAG: one step repairs both
    done = run_json("recover", str(store), "--role", "single", "--apply", exit_code=0)
    assert done["cures"] == [CODE, "CL-SYSFLAG"]
    assert row.path.read_bytes() == sound


def test_a_port_under_a_record_crc_that_fits_is_cleared_too(tmp_path: Path) -> None:
    """No broker writes such a port: bad memory or a tool changed it before the record CRC was computed."""
    store = copy_store("5.4.0-formats", tmp_path)
    row = pick(store, lambda r: b"__CRC32#" in r.message.properties, 3)
    sound = row.path.read_bytes()
    flip(row, "store", 31)
    sealed = set_record_crc(row.path.read_bytes()[row.at : row.stop])
    damage.overwrite(row.path, row.at, sealed)
    assert counts(store)[CODE] == 1
    run_json("recover", str(store), "--role", "single", "--apply", exit_code=0)
    assert row.path.read_bytes() == sound


def test_repaired_records_and_fillers_have_valid_ports(store: Path) -> None:
    """The store has a repaired record, and a filler, which copies its host from the next record."""
    mended, (lost, behind) = pick(store, lambda r: len(r.message.body) > 20, 40), rows(store)[100:102]
    assert (lost.path, lost.stop) == (behind.path, behind.at)
    damage.flip(mended.path, mended.at + 2, 3)  # TOTALSIZE
    flip(mended, "store", 30)
    damage.garble(lost.path, lost.at, lost.size)
    flip(behind, "store", 30)
    run_json("recover", str(store), "--role", "single", "--accept-fillers", "--apply", exit_code=0)
    assert counts(store).get(CODE, 0) == 0
