"""The HA stream of real masters, in pieces of every length, and what no master sends."""

from __future__ import annotations

import struct

import pytest

from rmqstore.remoting.ha import PASSIVE, BadStream, FramePart, Heartbeat, Plain, report
from tests.remoting.recorded import VERSIONS, stream


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("step", [1, 5, 11, 12, 13, 100, 1 << 20])
def test_a_stream_of_a_real_master(version: str, step: int) -> None:
    start, log, sent = stream(version)
    plain = Plain(1 << 20)
    events = [event for at in range(0, len(sent), step) for event in plain.feed(sent[at : at + step])]
    at, received = start, b""
    for event in events:
        assert event.offset == at
        if isinstance(event, FramePart):
            received += event.data
            at += len(event.data)
    assert received == log
    assert events.count(Heartbeat(start + len(log))) == plain.frames - 1 >= 2


@pytest.mark.parametrize("size", [-1, 1025, 1 << 30, -(1 << 31)])
def test_a_frame_that_no_master_sends(size: int) -> None:
    with pytest.raises(BadStream):
        list(Plain(1024).feed(struct.pack(">qi", 0, size)))


def test_the_passive_report_does_not_overflow_in_the_subtraction_of_a_master() -> None:
    """HAConnection: masterPutWhere - slaveAckOffset < haMaxGapNotInSync, in 64 bits."""
    assert report(PASSIVE) == struct.pack(">q", PASSIVE)
    assert 256 << 20 < (1 << 62) - 1 - PASSIVE < 1 << 63
