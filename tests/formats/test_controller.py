"""Text files of controller mode; epoch files are compared with CheckpointFile of 5.4.0."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats.controller import BrokerIdentity, EpochEntry, EpochFile, parse_broker_identity, parse_epoch_file
from rmqstore.formats.message import body_crc

# printed by CheckpointFile#write, 5.4.0
WRITTEN = b"3\n714226774\n1-0\n2-1000\n7-1073741824\n"
ENTRIES = (EpochEntry(1, 0), EpochEntry(2, 1000), EpochEntry(7, 1 << 30))


def test_epoch_file_both_ways() -> None:
    assert parse_epoch_file(WRITTEN) == EpochFile(ENTRIES)
    assert EpochFile(ENTRIES).build() == WRITTEN


def test_empty_epoch_file_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="at least one entry"):
        EpochFile(()).build()


@pytest.mark.parametrize(
    ("data", "entries", "faults"),
    [
        (b"1\n0\n1-0\n", 1, ()),
        (b"1\r\n0\r\n1-0\r\n", 1, ()),
        (b"1\n0\n1-0", 1, ()),
        (b"2\n0\n1-0\n", 1, ("1 entry instead of 2",)),
        (b"1\n5\n1-0\n", 1, ("CRC is 1725254278 instead of 5",)),
        (b"1\n0\n1-0\nx\n", 1, ("line 4 is not an epoch-offset pair",)),
        (b"1\n0\nx-0\n1-0\n", 0, ("line 3 has no numbers", "0 entries instead of 1")),
        (b"2\n0\n3-7\n2-9\n", 2, ("line 4 is not in order",)),
        (b"2\n0\n3-7\n3-9\n", 2, ("line 4 is not in order",)),
        (b"2\n0\n1-7\n2-6\n", 2, ("line 4 is not in order",)),
        (b"1 \n0\n1-0\n", 1, ("line 1 is not an entry count",)),
        (b"", 0, ("empty",)),
        (b"1", 0, ("line 2 is not a CRC", "0 entries instead of 1")),
    ],
)
def test_faults_of_an_epoch_file(data: bytes, entries: int, faults: tuple[str, ...]) -> None:
    got = parse_epoch_file(data)
    assert (len(got.entries), got.faults) == (entries, faults)


ROWS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 1 << 40)), min_size=1, max_size=4)
BYTES = st.binary(max_size=60) | st.text("0123456789-#\n\r;ab", max_size=30).map(str.encode)


@given(ROWS)
def test_rows_that_rise_are_read_back_and_others_are_faults(rows: list[tuple[int, int]]) -> None:
    entries = tuple(EpochEntry(*row) for row in rows)
    rising = all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(rows))
    got = parse_epoch_file(EpochFile(entries).build())
    assert got.entries == entries
    assert (got.faults == ()) is rising


@given(ROWS, st.integers(0, 200), st.binary(min_size=1, max_size=1))
def test_changed_byte_of_the_rows_is_a_fault(rows: list[tuple[int, int]], at: int, byte: bytes) -> None:
    data = EpochFile(tuple(EpochEntry(*row) for row in rows)).build()
    start = data.index(b"\n", data.index(b"\n") + 1) + 1
    at = start + at % (len(data) - start - 1)  # except the last newline, which may be missing
    changed = data[:at] + byte + data[at + 1 :]
    if changed != data and byte not in b"\r\n" and data[at : at + 1] != b"\n":
        assert any(fault.startswith("CRC is ") for fault in parse_epoch_file(changed).faults)


@given(BYTES)
def test_epoch_file_without_a_fault_contains_exactly_its_entries(data: bytes) -> None:
    got = parse_epoch_file(data)
    if not got.faults:
        count, crc, *rows = data.decode().splitlines()
        assert (int(count), int(crc)) in (
            (len(rows), 0),
            (len(rows), body_crc("".join(f"{r}\n" for r in rows).encode())),
        )
        assert [tuple(map(int, row.split("-"))) for row in rows] == [(e.epoch, e.start_offset) for e in got.entries]


@given(BYTES)
def test_identity_has_a_fault_exactly_when_a_part_is_missing(data: bytes) -> None:
    got = parse_broker_identity(data)
    whole = None not in (got.cluster, got.broker_name, got.broker_id)
    assert (got.faults == ()) is whole
    if whole:
        assert parse_broker_identity(got.build()) == got


@pytest.mark.parametrize(
    ("data", "identity"),
    [
        (b"DefaultCluster#broker-a#2", BrokerIdentity("DefaultCluster", "broker-a", 2)),
        (b"c#b#2#1700000000;code", BrokerIdentity("c", "b", 2, "1700000000;code")),
    ],
)
def test_identity_both_ways(data: bytes, identity: BrokerIdentity) -> None:
    assert parse_broker_identity(data) == identity
    assert identity.build() == data


@pytest.mark.parametrize(
    ("data", "fault"), [(b"", "empty"), (b"c#b", "2 parts instead of 3"), (b"c#b#x", "broker id is not a number")]
)
def test_faults_of_an_identity(data: bytes, fault: str) -> None:
    got = parse_broker_identity(data)
    assert got.faults == (fault,)
    with pytest.raises(ValueError, match="needs cluster"):
        got.build()
