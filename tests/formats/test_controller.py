"""Controller mode's text files; epoch files checked against CheckpointFile of 5.4.0."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats.controller import BrokerIdentity, EpochEntry, EpochFile, parse_broker_identity, parse_epoch_file

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
        (b"2\n0\n1-0\n", 1, ("1 entries instead of 2",)),
        (b"1\n5\n1-0\n", 1, ("CRC is 1725254278 instead of 5",)),
        (b"1\n0\n1-0\nx\n", 1, ("line 4 is no epoch-offset pair",)),
        (b"1\n0\nx-0\n1-0\n", 0, ("line 3 has no numbers", "0 entries instead of 1")),
        (b"2\n0\n3-7\n2-9\n", 2, ("line 4 is not in order",)),
        (b"2\n0\n3-7\n3-9\n", 2, ("line 4 is not in order",)),
        (b"2\n0\n1-7\n2-6\n", 2, ("line 4 is not in order",)),
        (b"1 \n0\n1-0\n", 1, ("line 1 is no entry count",)),
        (b"", 0, ("empty",)),
        (b"1", 0, ("line 2 is no CRC", "0 entries instead of 1")),
    ],
)
def test_faults_of_an_epoch_file(data: bytes, entries: int, faults: tuple[str, ...]) -> None:
    got = parse_epoch_file(data)
    assert (len(got.entries), got.faults) == (entries, faults)


@given(st.binary(max_size=60))
def test_any_bytes_can_be_read(data: bytes) -> None:
    assert parse_epoch_file(data).entries or parse_epoch_file(data).faults or data.startswith(b"0")
    assert parse_broker_identity(data).faults or parse_broker_identity(data).broker_id is not None


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
    ("data", "fault"),
    [(b"", "empty"), (b"c#b", "2 parts instead of 3"), (b"c#b#x", "broker id is no number")],
)
def test_faults_of_an_identity(data: bytes, fault: str) -> None:
    got = parse_broker_identity(data)
    assert got.faults == (fault,)
    with pytest.raises(ValueError, match="needs cluster"):
        got.build()
