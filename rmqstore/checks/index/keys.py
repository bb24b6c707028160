"""The index entries that the messages of a chunk should have: hashes of topic and key, for all records at once.

Rare records (non-ASCII text, unusual grammar, a duplicate name) are processed one by one, with the same result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from rmqstore.formats import index, properties
from rmqstore.formats.javatext import java_string_hash, java_text
from rmqstore.formats.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from rmqstore.scan import native
from rmqstore.scan.columns import Columns
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.kernels import I64, Bool
from rmqstore.scan.properties import PropertyTexts

_MOD = (1 << 32) - 1
_TAG_PREFIX = "T#"


@dataclass(frozen=True, slots=True)
class Keys:
    """Entries that records should have: message offset, key hash, store time (ms), and whether it is required.

    Entries for the whole TAGS value are not required: only 5.4.0 and newer write them. Shape: (m,) each.
    """

    offset: I64
    hash: I64
    time: I64
    required: Bool

    def take(self, rows: Bool) -> Keys:
        """Return the entries selected by a mask."""
        return Keys(self.offset[rows], self.hash[rows], self.time[rows], self.required[rows])


class KeyReader:
    """Reads keys chunk by chunk, and remembers the hash of every topic. Not safe for threads."""

    def __init__(self, table: QueueTable) -> None:
        self.table = table
        self._prefix: I64 = np.empty(0, dtype=np.int64)  # hash of `topic#` per queue number
        self._odd: Bool = np.empty(0, dtype=np.bool_)

    def keys(self, columns: Columns, numbers: I64, texts: PropertyTexts | None = None) -> Keys:
        """Return the entries of a chunk, mostly in the order in which a broker writes them.

        `numbers` is `table.of(columns)`, `texts` are the properties.
        Source: IndexService#buildIndex, RocketMQ 4.3 to 5.4.0
        """
        self._learn()
        texts = texts or PropertyTexts(columns)
        indexed = columns.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK
        odd = self._odd[numbers] | texts.odd
        parts = []
        for rows, start, length, prefix, required in (
            (*_once(texts, properties.UNIQ_KEY, odd), "", True),
            (*_split(texts, *_once(texts, properties.KEYS, odd)), "", True),
            (*_once(texts, properties.TAGS, odd), _TAG_PREFIX, False),
        ):
            hashed, ascii_ = native.load().hashes(columns.buf, start, length)
            odd[rows[~ascii_]] = True
            first = self._prefix[numbers[rows]]
            first = first * 31 ** len(prefix) + java_string_hash(prefix) & _MOD
            parts.append((rows, _finish(first, hashed, length), np.full(len(rows), required)))
        rows = np.concatenate([p[0] for p in parts])
        hashes = np.concatenate([p[1] for p in parts])
        required_ = np.concatenate([p[2] for p in parts])
        keep = np.flatnonzero(indexed[rows] & ~odd[rows])
        narrow = rows[keep].astype(np.uint16 if len(columns) < 1 << 16 else np.int64)  # NumPy has a radix sort
        keep = keep[np.argsort(narrow, kind="stable")]
        kept = rows[keep]
        fast = Keys(columns.offset[kept], hashes[keep], columns.store_timestamp[kept], required_[keep])
        slow = np.flatnonzero(odd & indexed)
        return fast if not len(slow) else _joined(fast, self._slow(columns, slow))

    def _learn(self) -> None:
        known = len(self._prefix)
        if known == len(self.table):
            return
        prefix, odd = [], []
        for topic in self.table.topics[known:]:
            odd.append(not topic.isascii())
            prefix.append(java_string_hash(java_text(topic) + "#") & _MOD)
        self._prefix = np.append(self._prefix, np.array(prefix, dtype=np.int64))
        self._odd = np.append(self._odd, np.array(odd, dtype=np.bool_))

    def _slow(self, columns: Columns, rows: I64) -> Keys:
        owner, hashes, required = [], [], []
        for i in rows.tolist():
            parsed = properties.parse_properties(columns.properties(i))
            topic = java_text(columns.topic(i))
            must = properties.index_keys(topic, parsed)
            may = properties.index_keys(topic, parsed, tag_key=True)[len(must) :]
            for n, text in enumerate(must + may):
                owner.append(i)
                hashes.append(index.key_hash(text))
                required.append(n < len(must))
        at_ = np.array(owner, np.int64)
        times = columns.store_timestamp[at_]
        return Keys(columns.offset[at_], np.array(hashes, np.int64), times, np.array(required, np.bool_))


def _joined(a: Keys, b: Keys) -> Keys:
    return Keys(
        np.concatenate((a.offset, b.offset)),
        np.concatenate((a.hash, b.hash)),
        np.concatenate((a.time, b.time)),
        np.concatenate((a.required, b.required)),
    )


def _once(texts: PropertyTexts, name: str, odd: Bool) -> tuple[I64, I64, I64]:
    """Return (record, start, length) of the values of a property, and mark records that have it twice in `odd`."""
    rows, start, length = texts.values(name.encode())
    odd[np.flatnonzero(np.bincount(rows) > 1)] = True
    some = length > 0
    return rows[some], start[some], length[some]


def _split(texts: PropertyTexts, rows: I64, start: I64, length: I64) -> tuple[I64, I64, I64]:
    """Split KEYS values at spaces, without empty parts."""
    if not len(rows) or not texts.holds(0x20):
        return rows, start, length
    raw = texts.columns.raw
    several = np.array([b" " in raw[a : a + n] for a, n in zip(start.tolist(), length.tolist(), strict=True)])
    if not several.any():
        return rows, start, length
    more: list[tuple[int, int, int]] = []
    for i in np.flatnonzero(several).tolist():
        at = int(start[i])
        for part in raw[at : at + int(length[i])].split(b" "):
            if part:
                more.append((int(rows[i]), at, len(part)))
            at += len(part) + 1
    one = ~several
    added = np.array(more, dtype=np.int64).reshape(-1, 3)
    return (
        np.concatenate((rows[one], added[:, 0])),
        np.concatenate((start[one], added[:, 1])),
        np.concatenate((length[one], added[:, 2])),
    )


@cache
def _powers(size: int) -> npt.NDArray[np.uint64]:
    """Return 31 to the power of 0 to `size` - 1, modulo 2^32."""
    out = np.ones(size, dtype=np.uint64)
    value = 1
    for i in range(1, size):
        value = value * 31 & _MOD
        out[i] = value
    return out


def _finish(prefix: I64, hashed: I64, length: I64) -> I64:
    """Return the hash of prefix + text as an index stores it: the absolute value, and 0 for Integer.MIN_VALUE."""
    power = _powers(256 if length.max(initial=0) < 256 else 1 << 16)[length]
    whole = (prefix.astype(np.uint64) * power + hashed.astype(np.uint64)) & np.uint64(_MOD)
    signed = whole.astype(np.uint32).astype(np.int32).astype(np.int64)
    out: I64 = np.abs(signed)
    out[out > 0x7FFFFFFF] = 0
    return out
