"""Counts the damaged spans of a log that an export skips, segment by segment.

A damaged span has no row, so the files are walked once more, by size fields only (no CRC, no texts). This costs a few
percent of the export itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import SPLIT_SIZE, Mapper, joined, plan_splits
from rmqstore.views.dump.messages import Damage
from rmqstore.views.dump.selection import Selection
from rmqstore.views.usage import count_split

LISTED = 20


@dataclass(frozen=True, slots=True)
class Stretch:
    """A range of whole files of a log: global offsets [start, stop).

    `end` is the end of the last good record of the log: zeros before it are damage, zeros after it are not.
    """

    log: str
    queue: MappedFileQueue
    lead: int
    start: int
    stop: int
    end: int


def passed_over(
    stretch: Stretch, mapper: Mapper | None = None, *, live: bool = False, split_size: int = SPLIT_SIZE
) -> dict[str, Any]:
    """Count the damaged spans of a stretch as `rmqstore du` and `export` do: {"spans", "bytes", "first"}.

    `first` lists the first ones as [log, start, stop, why]. Errors: OSError for a file that cannot be opened.
    """
    damage = Damage(live=live)
    splits = plan_splits(stretch.queue, lead=stretch.lead, size=split_size)
    mine = [s for s in splits if stretch.start <= s.file.start < stretch.stop]
    for file in [f for f in stretch.queue.files if f.start < stretch.start][-1:]:
        damage.at_file(stretch.log, file)
    for split, part in joined(partial(count_split, (), Selection(), ScanOptions(crc=False)), mine, 1, mapper):
        damage.at_file(stretch.log, split.file)
        for run in part.runs:
            damage.feed(stretch.log, run)
    damage.close(records_follow=stretch.end > stretch.stop)
    return {"spans": damage.count, "bytes": damage.bytes, "first": [list(span) for span in damage.spans[:LISTED]]}
