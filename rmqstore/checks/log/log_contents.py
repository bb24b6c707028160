"""The good records of a log or of a part of it: number, times and queues."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rmqstore.checks.log.control_tally import ControlTally
from rmqstore.checks.log.entry_tally import EntryTally
from rmqstore.checks.log.queue_parts import QueuePart
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64


@dataclass(slots=True, kw_only=True)
class LogContents:
    """The good records, added in address order. Offsets are global, in bytes; times in ms.

    `first_at`: offset of the first record (DLedger: of its entry). `back_from`: the first record after the youngest one
    (None: the last record is the youngest); `back_max`: the youngest time from there on. `fillers`: offsets of records
    written by a repair.
    """

    messages: int = 0
    bytes: int = 0
    max_time: int = -1
    first_time: int = -1
    first_at: int = -1
    last_time: int = -1
    back_from: int | None = None
    back_max: int = -1
    entries: EntryTally = field(default_factory=EntryTally)
    queues: dict[tuple[str, int], QueuePart] = field(default_factory=dict)
    fillers: list[int] = field(default_factory=list)
    controls: ControlTally = field(default_factory=ControlTally)

    def add_times(self, columns: Columns, sound: I64 | slice) -> None:
        """Add the times of the `sound` records of a chunk."""
        times, offset = columns.store_timestamp[sound], columns.offset[sound]
        first_at, high = int(offset[0]) - columns.body_offset, int(times.max())
        if self.first_time < 0:
            self.first_time, self.first_at = int(times[0]), first_at
        self.last_time = int(times[-1])
        top = int(np.flatnonzero(times == high)[-1])
        behind = times[top + 1 :]
        next_at = int(offset[top + 1]) - columns.body_offset if len(behind) else None
        self._add_back(high, first_at, next_at, int(behind.max()) if len(behind) else -1)

    def append(self, part: LogContents) -> None:
        """Append the next part, except for its queues."""
        self.messages += part.messages
        self.bytes += part.bytes
        self.fillers.extend(part.fillers)
        self.controls.merge(part.controls)
        if part.messages:
            if self.first_time < 0:
                self.first_time, self.first_at = part.first_time, part.first_at
            self.last_time = part.last_time
            self.entries.merge(part.entries)
            self._add_back(part.max_time, part.first_at, part.back_from, part.back_max)

    def _add_back(self, high: int, first_at: int, back_from: int | None, back_max: int) -> None:
        """Add records from `first_at` on with the greatest time `high`, and `back_from`, `back_max` among them."""
        if high >= self.max_time:
            self.max_time, self.back_from, self.back_max = high, back_from, back_max
            return
        if self.back_from is None:
            self.back_from = first_at
        self.back_max = max(self.back_max, high)
