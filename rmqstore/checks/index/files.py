"""One index file, and which of its units may point to a piece of the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmqstore.scan.kernels import I64


@dataclass(frozen=True, slots=True)
class Block:
    """Units [first, first + count) of a file, and the range of their offsets."""

    first: int
    count: int
    least: int
    greatest: int


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One index file; `last` is the number of its last entry, times in ms, offsets in bytes.

    `moving`: a live broker writes to it.
    """

    name: str
    path: Path
    slots: int
    last: int
    begin_phy_offset: int
    end_phy_offset: int
    begin_timestamp: int
    end_timestamp: int
    full: bool
    moving: bool = False


def time_diffs(files: Sequence[IndexFile], number: I64, time: I64) -> I64:
    """Time field (s) of entries in the files `number` that are of messages stored at `time` (ms)."""
    begins = np.array([f.begin_timestamp for f in files], dtype=np.int64)[number]
    return np.where(begins <= 0, 0, np.clip((time - begins) // 1000, 0, 0x7FFFFFFF))
