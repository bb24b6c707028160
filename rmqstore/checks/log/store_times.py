"""STORETIMESTAMP: single records whose time contradicts both neighbours and their own BORNTIMESTAMP.

A broker appends in the order of time, to within seconds. No checksum covers the time where records have no
`__CRC32#`, and one flipped bit makes it years. Brokers choose the file where recovery begins by it (first record of a
file), search queues by time with it, and compute when a delayed message is due.
Source: CommitLog#isMappedFileMatchedRecover, ConsumeQueue#getOffsetInQueueByTime (RocketMQ 4.9.7 to 5.4.0)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rmqstore.checks.log.record_findings import record_finding
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, Bool

CODE = codes.CL_STORE_TIME
NEAR_MS = 60_000
"""Clocks of producers and brokers differ by less, and threads of a broker append in another order within less."""
_LONGEST_PAUSE_MS = 40 * 86_400_000
"""A broker may stand still that long, and then deliver its delayed messages."""

_NONE: I64 = np.empty(0, dtype=np.int64)


def wrong_times(columns: Columns) -> I64:
    """Numbers of the records of a chunk whose store time their neighbours and their born time contradict."""
    times = columns.store_timestamp
    if len(times) < 3 or not bool(_far(times[1:], times[:-1]).any()):
        return _NONE
    # the record before and the one behind; at the ends of a chunk the two next ones
    n = len(times)
    at = np.arange(n)
    one, two = np.where(at == 0, 1, at - 1), np.where(at == n - 1, n - 3, at + 1)
    two[0] = 2
    one[n - 1] = n - 2
    low, high = np.minimum(times[one], times[two]), np.maximum(times[one], times[two])
    wrong = ~_far(low, high) & _outside(times, low, high) & ~_outside(columns.born_timestamp, low, high)
    # nothing follows the last one: a delayed message, born long ago, may be stored after a pause
    last = float(times[n - 1]) - float(high[n - 1])
    wrong[n - 1] &= not 0 < last < _LONGEST_PAUSE_MS
    return np.flatnonzero(wrong)


def time_findings(columns: Columns, wrong: I64, file: str) -> Iterator[Finding]:
    """A finding for each record that `wrong_times` gives."""
    for i in wrong.tolist():
        facts: dict[str, Fact] = {
            "store_timestamp": int(columns.store_timestamp[i]),
            "born_timestamp": int(columns.born_timestamp[i]),
        }
        yield record_finding(CODE, columns, i, file, facts)


def _far(a: I64, b: I64) -> Bool:
    """Whether times differ by much; floats, since differences may be beyond 64 bits."""
    return np.abs(a.astype(np.float64) - b.astype(np.float64)) > NEAR_MS


def _outside(times: I64, low: I64, high: I64) -> Bool:
    return (times.astype(np.float64) < low - float(NEAR_MS)) | (times.astype(np.float64) > high + float(NEAR_MS))
