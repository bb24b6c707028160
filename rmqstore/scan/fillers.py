"""Find the fillers in a chunk of records: `formats.fillers` for columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmqstore.formats import fillers
from rmqstore.formats.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from rmqstore.scan import native
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, Bool

_OP_LENGTHS = tuple({len(topic) for topic in fillers.OP_TOPICS})
_OP_BODY = fillers.OP_BODY[0]
NONE: I64 = np.empty(0, dtype=np.int64)


def filler_mask(columns: Columns, unmarked: Sequence[int] = ()) -> Bool | None:
    """Return which records are fillers; None if none is. `unmarked`: offsets of fillers that only journals know.

    Shape: (n,)
    """
    found = [i for i in _candidates(columns).tolist() if fillers.is_filler(columns.message(i))]
    if unmarked:
        found += np.flatnonzero(np.isin(columns.offset, np.array(unmarked, dtype=np.int64))).tolist()
    if not found:
        return None
    mask: Bool = np.zeros(len(columns), dtype=np.bool_)
    mask[found] = True
    return mask


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
    """Return which property texts contain `fillers.WORD`; None if none does."""
    loops = native.load()
    if loops is not None:
        return loops.mentions(columns.buf, columns.properties_at, columns.properties_length, fillers.WORD)
    start, stop = int(columns.at[0]), int(columns.at[-1] + columns.size[-1])
    if columns.raw.find(fillers.WORD, start, stop) < 0:
        return None
    mask: Bool = np.array([fillers.WORD in columns.properties(i) for i in range(len(columns))])
    return mask
