"""STORETIMESTAMP: single records whose store time contradicts both neighbours and their own BORNTIMESTAMP.

A broker appends records in the order of time, to within seconds. Without `__CRC32#`, no checksum covers the store
time, and one flipped bit changes it by years. Brokers use it to select the file where recovery begins, to search
queues by time, and to compute when a delayed message is due.
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

_NEAR_MS = 60_000
"""Greatest normal difference between the clocks of producers and brokers, and between neighbouring records."""
_LONGEST_PAUSE_MS = 40 * 86_400_000
"""Longest pause of a broker, after which it delivers delayed messages."""

_NONE: I64 = np.empty(0, dtype=np.int64)


def wrong_times(columns: Columns) -> I64:
    """Return the numbers of the records of a chunk whose store time contradicts the neighbours and the born time."""
    times = columns.store_timestamp
    if len(times) < 3 or not bool(_far(times[1:], times[:-1]).any()):
        return _NONE
    # compare with the records before and after; at the ends of a chunk with the two nearest
    n = len(times)
    at = np.arange(n)
    one, two = np.where(at == 0, 1, at - 1), np.where(at == n - 1, n - 3, at + 1)
    two[0] = 2
    one[n - 1] = n - 2
    low, high = np.minimum(times[one], times[two]), np.maximum(times[one], times[two])
    wrong = ~_far(low, high) & _outside(times, low, high) & ~_outside(columns.born_timestamp, low, high)
    # nothing follows the last record: it may be a delayed message, born long ago and stored after a pause
    last = float(times[n - 1]) - float(high[n - 1])
    wrong[n - 1] &= not 0 < last < _LONGEST_PAUSE_MS
    return np.flatnonzero(wrong)


def time_findings(columns: Columns, wrong: I64, file: str) -> Iterator[Finding]:
    """Yield a finding for each record in `wrong`."""
    for i in wrong.tolist():
        facts: dict[str, Fact] = {
            "store_timestamp": int(columns.store_timestamp[i]),
            "born_timestamp": int(columns.born_timestamp[i]),
        }
        yield record_finding(codes.CL_STORE_TIME, columns, i, file, facts)


def _far(a: I64, b: I64) -> Bool:
    """Return whether times differ by more than `_NEAR_MS`, as floats: damaged times may differ by over 64 bits."""
    return np.abs(a.astype(np.float64) - b.astype(np.float64)) > _NEAR_MS


def _outside(times: I64, low: I64, high: I64) -> Bool:
    return (times.astype(np.float64) < low - float(_NEAR_MS)) | (times.astype(np.float64) > high + float(_NEAR_MS))
