"""DLedger entries, index units and text files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats import dledger
from rmqstore.formats.dledger import CurrTerm, DLedgerCheckpoint

# data file 524288 and index units 0 and 1 of a 5.4.0 store converted to DLedger
ENTRY_5_4_0 = bytes.fromhex(
    "000000010000016a0000000000000000000000000000000000000000000800000000000000000000000000000000013a"
)
INDEX_5_4_0 = bytes.fromhex(
    "0000000100000000000800000000016a00000000000000000000000000000000"
    "00000001000000000008016a0000017200000000000000010000000000000000"
)
BLANK_5_4_0 = bytes.fromhex("ffffffff000012bf")  # at 60737 of 65536


@pytest.mark.parametrize(
    ("body", "index", "term", "pos", "raw"),
    [
        (178, 0, 0, 49152, "00000001000000E200000000000000000000000000000000000000000000C000" + "00" * 12 + "000000B2"),
        (
            105,
            7,
            3,
            1 << 30,
            "0000000100000099000000000000000700000000000000030000000040000000" + "00" * 12 + "00000069",
        ),
        (169, 1, 0, 217, "00000001000000D90000000000000001000000000000000000000000000000D9" + "00" * 12 + "000000A9"),
    ],
)
def test_entry_header_bytes(body: int, index: int, term: int, pos: int, raw: str) -> None:
    head = dledger.ENTRY.build(size=dledger.ENTRY.size + body, index=index, term=term, pos=pos, body_length=body)
    assert head == bytes.fromhex(raw)


def test_index_unit_and_blank_bytes() -> None:
    assert dledger.INDEX_UNIT.build(pos=49152, size=226) == bytes.fromhex(
        "00000001000000000000C000000000E200000000000000000000000000000000"
    )
    assert dledger.build_blank(70) == bytes.fromhex("FFFFFFFF00000046")
    assert dledger.INDEX_FILE_SIZE == 167_772_160
    assert dledger.index_at(5_242_880) == dledger.INDEX_FILE_SIZE


def test_real_entry_and_its_index_unit_agree() -> None:
    entry = dledger.ENTRY.parse(ENTRY_5_4_0)
    unit, second = dledger.INDEX_UNIT.array(INDEX_5_4_0)
    assert {name: int(unit[name]) for name in unit.dtype.names} == {
        name: entry[name] for name in ("magic", "pos", "size", "index", "term")
    }
    assert entry["pos"] == 524288 and entry["body_length"] + dledger.BODY_OFFSET == entry["size"] == 362
    assert second.tolist() == (1, 524650, 370, 1, 0)


def test_real_blank_fills_its_file() -> None:
    assert dledger.BLANK.parse(BLANK_5_4_0) == {"magic": -1, "size": 65536 - 60737}


def test_header_size_leaves_the_body_length_out() -> None:
    assert (dledger.HEADER_SIZE, dledger.BODY_OFFSET) == (44, 48)


@pytest.mark.parametrize(
    ("data", "committed", "end"),
    [
        (b"committedIndex=149\nendIndex=149\n", 149, 149),
        (b"committedIndex=69\nendIndex=70\n", 69, 70),  # a follower of a 5.4.0 group
        (b"endIndex=-1\ncommittedIndex=-1\n", -1, -1),
    ],
)
def test_checkpoint_is_read_as_the_library_reads_it(data: bytes, committed: int, end: int) -> None:
    assert dledger.parse_dledger_checkpoint(data) == DLedgerCheckpoint(committed, end)


def test_texts_build_as_written_by_dledger() -> None:
    assert DLedgerCheckpoint(149, 149).build() == b"committedIndex=149\nendIndex=149\n"
    assert DLedgerCheckpoint(None, None).build() == b"committedIndex=-1\nendIndex=-1\n"
    assert CurrTerm(0, "n0").build() == b"voteLeader=n0\ncurrTerm=0\n"
    assert CurrTerm(3, None).build() == b"voteLeader=\ncurrTerm=3\n"


@pytest.mark.parametrize(
    ("data", "faults"),
    [
        (b"", ("empty", "committedIndex is missing", "endIndex is missing")),
        (bytes(35), ("filled with NUL bytes", "committedIndex is missing", "endIndex is missing")),
        (b"committedIndex=\nendIndex=x", ("committedIndex is missing", "endIndex is not a number")),
        (b"committedIndex=9223372036854775808\nendI", ("committedIndex is not a number", "endIndex is missing")),
    ],
)
def test_broken_checkpoint_has_no_value_but_faults(data: bytes, faults: tuple[str, ...]) -> None:
    parsed = dledger.parse_dledger_checkpoint(data)
    assert (parsed.committed_index, parsed.end_index, parsed.faults) == (None, None, faults)


@pytest.mark.parametrize(
    ("data", "committed", "refused"),
    [
        (b"committedIndex=abc\n", None, "abc"),
        (b"committedIndex=5x\n", None, "5x"),
        (b"committedIndex=9223372036854775808\n", None, "9223372036854775808"),
        (b"committedIndex=\xa05\n", None, "\xa05"),
        (b"committedIndex= 5 \\t\0\n", 5, None),
        (b"committedIndex=+5\n", 5, None),
        (b"committedIndex=  \n", None, None),
        (b"endIndex=x\n", None, None),
        (b"committedIndex=5\nother=\\u00\n", None, None),  # Properties#load throws, so no value is read
    ],
)
def test_committed_index_is_trimmed_or_ends_the_load(data: bytes, committed: int | None, refused: str | None) -> None:
    parsed = dledger.parse_dledger_checkpoint(data)
    assert (parsed.committed_index, parsed.refused) == (committed, refused)


@pytest.mark.parametrize(
    ("data", "term"),
    [
        (b"voteLeader=n0\ncurrTerm=0\n", CurrTerm(0, "n0")),
        (b"voteLeader=\ncurrTerm=3\n", CurrTerm(3, None)),
        (b"voteLeader=n2\ncurrTe", CurrTerm(0, "n2", ("currTerm is missing",))),
        (b"", CurrTerm(0, None, ("empty", "currTerm is missing"))),
    ],
)
def test_currterm_is_read_as_the_library_reads_it(data: bytes, term: CurrTerm) -> None:
    assert dledger.parse_currterm(data) == term


@given(st.binary(max_size=80))
def test_any_text_can_be_read(data: bytes) -> None:
    checkpoint = dledger.parse_dledger_checkpoint(data)
    assert bool(checkpoint.faults) or checkpoint.committed_index is not None
    assert dledger.parse_currterm(data).term >= -(1 << 63)
