"""Messages that are damaged according to their own index entries: no checksum covers the keys of most records.

An entry proves damage if everything but the key fits: it points to the start of a good record, has that record's store
time, and is in the chain of its hash. Entries of an earlier log, or of another broker, do not have the right time; an
entry with a damaged hash is not in the chain of that hash.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmqstore.checks.index.files import Entries, IndexFile, time_diffs
from rmqstore.checks.index.tally import Contradicted
from rmqstore.files.index import index_chain
from rmqstore.formats import properties
from rmqstore.formats.javatext import java_text
from rmqstore.formats.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK, is_filler_text
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import Bool

_FEW = 8  # records; if more than these, and most of a chunk, are contradicted, the entries are of an unknown kind
_STEPS = 100_000  # along chains, for one chunk


def contradicted(
    files: Sequence[IndexFile], entries: Entries, loose: Bool, columns: Columns
) -> dict[int, Contradicted]:
    """Return the records that entries prove to be damaged, by offset.

    `entries` are all that point to these records, `loose` those that belong to no key of their record.
    """
    number, unit, offset, key_hash, diff = entries
    rows = np.flatnonzero(loose)
    at = np.minimum(np.searchsorted(columns.offset, offset[rows]), len(columns) - 1)
    same = columns.offset[at] == offset[rows]
    same &= columns.sys_flag[at] & TRANSACTION_MASK != TRANSACTION_ROLLBACK
    rows, at = rows[same], at[same]
    time = columns.store_timestamp[at]
    begins = np.array([f.begin_timestamp for f in files], dtype=np.int64)[number[rows]]
    # the first entry of a file was written with the begin time of the previous file
    fits = np.where(unit[rows] == 1, begins == time, diff[rows] == time_diffs(files, number[rows], time))
    rows, at = rows[fits], at[fits]
    if len(np.unique(at)) > max(_FEW, len(columns) // 2):
        return {}
    chains = _Chains(files)
    found: dict[int, int] = {}
    for row, i in zip(rows.tolist(), at.tolist(), strict=True):
        if chains.hold(int(number[row]), int(unit[row]), int(key_hash[row])):
            found[i] = found.get(i, 0) + 1
    out = {}
    for i, count in found.items():
        if is_filler_text(columns.properties(i)):
            continue  # a repair wrote it in place of the lost message of the entry
        own = np.flatnonzero(offset == columns.offset[i])
        own = own[np.lexsort((unit[own], number[own]))]
        one = _of_record(columns, i, tuple(key_hash[own].tolist()), count)
        out[one.offset] = one
    return out


class _Chains:
    """Follows chains, with at most `_STEPS` steps in all."""

    def __init__(self, files: Sequence[IndexFile]) -> None:
        self.files = files
        self.left = _STEPS

    def hold(self, number: int, unit: int, key_hash: int) -> bool:
        """Return whether a query for the hash of an entry finds it."""
        file = self.files[number]
        for at, _ in index_chain(file.files, file.path, file.slots, file.last + 1, key_hash):
            if at <= unit or self.left <= 0:
                return at == unit
            self.left -= 1
        return False


def _of_record(columns: Columns, i: int, hashes: tuple[int, ...], entries: int) -> Contradicted:
    found = properties.parse_properties(columns.properties(i))
    return Contradicted(
        int(columns.offset[i]),
        int(columns.size[i]),
        java_text(columns.topic(i)),
        int(columns.queue_id[i]),
        int(columns.queue_offset[i]),
        int(columns.store_timestamp[i]),
        found.get(properties.UNIQ_KEY, ""),
        found.get(properties.KEYS, ""),
        hashes,
        entries,
    )
