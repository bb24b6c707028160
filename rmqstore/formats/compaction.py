"""The unit of 46 bytes of a compacted queue. Source: SparseConsumeQueue (RocketMQ 5.1.0 to 5.5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from construct import Int16sb, Int32sb, Int64sb

from rmqstore.formats.layout import Field, Layout

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SPARSE_UNIT = Layout(
    "compaction queue unit",
    "SparseConsumeQueue, BatchConsumeQueue#putBatchMessagePositionInfo, RocketMQ 5.5.1",
    Field("log_offset", Int64sb, "Where the message starts in the compaction log of its queue.", "bytes"),
    Field("size", Int32sb, "TOTALSIZE of the message.", "bytes"),
    Field("tags_code", Int64sb, "Hash of TAGS."),
    Field("store_timestamp", Int64sb, "Broker's clock at append.", "ms"),
    Field("queue_offset", Int64sb, "Queue offset of the message.", "units"),
    Field("batch_size", Int16sb, "Always 1.", "messages"),
    Field("compacted_offset", Int32sb, "Always -1.", const=-1),
    Field("reserved", Int32sb, "Always 0."),
    about="Sorted by queue offset, with gaps: compaction removes all but the last message of each key. A unit with "
    "offset -1 ends a file. Files are named like those of the compaction log.",
)

SPARSE_END = SPARSE_UNIT.build(log_offset=-1)


def is_sparse_end(log_offset: npt.NDArray[np.integer], size: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Return which units are the marker that ends a file of a compacted queue.

    Source: SparseConsumeQueue#putEndPositionInfo
    """
    return (log_offset == -1) & (size == 0)
