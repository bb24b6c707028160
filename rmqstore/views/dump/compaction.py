"""What compaction keeps, as `dump` shows it: records and units, queue by queue, file by file, in bulk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from rmqstore.files.store import QueueKind, Store
from rmqstore.formats import properties
from rmqstore.formats.compaction import SPARSE_UNIT, is_sparse_end
from rmqstore.scan.columns import Columns
from rmqstore.scan.compaction import OPTIONS, CompactedQueue, compacted_queues
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions
from rmqstore.views.dump.batches import Batch, fields_of, wanted_rows, within
from rmqstore.views.dump.messages import Progress, Skipped
from rmqstore.views.dump.selection import Selection
from rmqstore.views.dump.units import unit_arrays


@dataclass(slots=True, eq=False)  # a job is looked up by its hash
class CompactedRecords:
    """Reads the sound records of compaction logs, instead of messages of the log (`Job.instead`).

    Fills in `damage`.
    """

    selection: Selection
    damage: Skipped

    def __call__(
        self, store: Store, options: ScanOptions, jobs: int = 1, progress: Progress = None
    ) -> Iterator[tuple[str, Columns]]:
        how = replace(options, check_offset=OPTIONS.check_offset)
        for queue in selected_queues(store, self.selection):
            for file in queue.log.files if queue.log is not None else ():
                with suppress(FileNotFoundError):  # a running broker has replaced it
                    for run in scan_file(file, options=how):
                        self.damage.feed(f"compaction/{queue.label}", replace(run, columns=None))
                        if run.kind is Kind.RECORDS and run.columns is not None:
                            yield file.name, run.columns
                self.damage.close()  # zeros end a file: its BLANK is never written
                if progress is not None:
                    progress(file.length)


def selected_queues(store: Store, selection: Selection) -> list[CompactedQueue]:
    """Return the compacted queues that can have records of a selection."""
    return [one for one in compacted_queues(store) if selection.wants_queue(one.topic, one.queue_id)]


def bytes_to_read(store: Store, selection: Selection) -> int:
    """Return the bytes of the compaction logs that can have records of a selection."""
    return sum(one.log.bytes_on_disk for one in selected_queues(store, selection) if one.log is not None)


def read_units(store: Store, selection: Selection) -> Iterator[Batch]:
    """Yield the units of compacted queues, without zeros and end markers; `selection.start`, `stop`: queue offsets."""
    layout = SPARSE_UNIT
    codes = np.array([properties.tags_code(t) for t in selection.tags], dtype=np.int64)
    for one in selection.ordered(list(store.consume_queues(QueueKind.COMPACTION_CQ))):
        for file in selection.ordered(one.queue.files) if selection.wants_queue(one.topic, one.queue_id) else ():
            for _, units in unit_arrays(file, layout, selection):
                wanted = (units["size"] != 0) | (units["log_offset"] != 0)
                wanted &= ~is_sparse_end(units["log_offset"], units["size"])
                wanted &= within(units["store_timestamp"], selection.since, selection.until)
                wanted &= within(units["queue_offset"].astype(np.int64), selection.start, selection.stop)
                if len(codes):
                    wanted &= np.isin(units["tags_code"].astype(np.int64), codes)
                place = {"topic": one.topic, "queue_id": one.queue_id, "file": file.name}
                yield from wanted_rows({**place, **fields_of(units, layout)}, wanted, selection)
