"""What an export skips: the spans of a log that are not records, segment by segment.

Rows cannot report what is not a row, so the files are walked once more, by their size fields only (no CRC, no texts):
a few hundredths of what the export itself costs.
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
    """Some whole files of a log: global offsets [start, stop).

    `end` is where the last good record of the log ends: zeros in front of it are damage, those behind it are not.
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
    """{"spans", "bytes", "first"}: the damaged spans of a stretch, counted as `rmqstore du` and `export` count them.

    `first` has the first of them as [log, start, stop, why]. Errors: OSError for a file that cannot be opened.
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
