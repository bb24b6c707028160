"""Find what repairs left in a chunk of records: fillers (`formats.message`) and mended messages."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np

from rmqstore.formats import message
from rmqstore.formats.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from rmqstore.scan import native
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, Bool

_OP_LENGTHS = tuple({len(topic) for topic in message.OP_TOPICS})
_OP_BODY = message.OP_BODY[0]
NONE: I64 = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Repaired:
    """What the journals of completed repairs tell about the records of a store's logs. All offsets are global.

    `message`: sorted offsets of fillers without a mark. `written`: ranges (start, stop, time of the repair in ms) that
    repairs wrote, sorted and disjoint.
    """

    fillers: tuple[int, ...] = ()
    written: tuple[tuple[int, int, int], ...] = ()

    def wrote(self, start: int, stop: int, store_timestamp: int) -> bool:
        """Return whether a repair wrote bytes of the record [start, stop) after it was stored (ms)."""
        first, after = bisect_right(self.written, start, key=_stop), bisect_left(self.written, (stop,))
        return any(store_timestamp <= time for _, _, time in self.written[first:after])


def _stop(one: tuple[int, int, int]) -> int:
    return one[1]


NOTHING = Repaired()


def filler_mask(columns: Columns, repaired: Repaired = NOTHING) -> Bool | None:
    """Return which records are fillers; None if none is.

    Shape: (n,)
    """
    found = [i for i in _candidates(columns).tolist() if message.is_filler(columns.message(i))]
    if repaired.fillers:
        found += np.flatnonzero(np.isin(columns.offset, np.array(repaired.fillers, dtype=np.int64))).tolist()
    if not found:
        return None
    mask: Bool = np.zeros(len(columns), dtype=np.bool_)
    mask[found] = True
    return mask


def mended_mask(columns: Columns, repaired: Repaired, fillers: Bool | None) -> Bool | None:
    """Return which messages have bytes that a repair wrote; None if none has. `message`: see `filler_mask`.

    A message that was stored after the repair is not mended: the broker has used the space again.
    Shape: (n,)
    """
    if not repaired.written or not len(columns):
        return None
    low, high = int(columns.offset.min()), int((columns.offset + columns.size).max())
    mask: Bool = np.zeros(len(columns), dtype=np.bool_)
    first, after = bisect_right(repaired.written, low, key=_stop), bisect_left(repaired.written, (high,))
    for start, stop, time in repaired.written[first:after]:
        touched = (columns.offset < stop) & (columns.offset + columns.size > start)
        mask |= touched & (columns.store_timestamp <= time)
    if fillers is not None:
        mask &= ~fillers
    return mask if mask.any() else None


def _candidates(columns: Columns) -> I64:
    """Return the records that may be fillers."""
    if not len(columns):
        return NONE
    masks = [_mentions(columns)]
    rollback = (columns.sys_flag & TRANSACTION_MASK) == TRANSACTION_ROLLBACK
    masks.append(rollback if rollback.any() else None)
    for length in _OP_LENGTHS:
        in_op_topic = columns.topic_length == length
        if in_op_topic.any():
            masks.append(in_op_topic & (columns.body_length > 0) & (columns.buf[columns.body_at] == _OP_BODY))
    given = [mask for mask in masks if mask is not None]
    return np.flatnonzero(np.logical_or.reduce(given)) if given else NONE


def _mentions(columns: Columns) -> Bool | None:
    """Return which property texts contain `message.WORD`; None if none does."""
    loops = native.load()
    if loops is not None:
        return loops.mentions(columns.buf, columns.properties_at, columns.properties_length, message.WORD)
    start, stop = int(columns.at[0]), int(columns.at[-1] + columns.size[-1])
    if columns.raw.find(message.WORD, start, stop) < 0:
        return None
    mask: Bool = np.array([message.WORD in columns.properties(i) for i in range(len(columns))])
    return mask
