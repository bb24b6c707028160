"""Index files and their entries, as the catalog holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rmqstore.files.files import LOCAL, Files
from rmqstore.formats.index import UNIT, unit_at
from rmqstore.scan.kernels import I64


@dataclass(frozen=True, slots=True)
class Block:
    """Units [first, first + count) of a file, and the range of the log offsets in them."""

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
    files: Files = field(default=LOCAL, repr=False, compare=False)

    def units(self, first: int, count: int) -> bytes:
        """Read units [first, first + count); short or empty if the file has changed or cannot be read."""
        return self.files.read_at(self.path, count * UNIT.size, unit_at(first, self.slots))


class Entries(NamedTuple):
    """Index entries as columns: file number, unit number, log offset, key hash and time field (s). Shape: (n,) each."""

    number: I64
    unit: I64
    offset: I64
    key_hash: I64
    diff: I64


def time_diffs(files: Sequence[IndexFile], number: I64, time: I64) -> I64:
    """Return the time field (s) that entries in the files `number` should have for messages stored at `time` (ms)."""
    begins = np.array([f.begin_timestamp for f in files], dtype=np.int64)[number]
    return np.where(begins <= 0, 0, np.clip((time - begins) // 1000, 0, 0x7FFFFFFF))
