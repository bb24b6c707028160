"""Property texts of a chunk: grammar, UTF-8, tags codes, and which records need a closer look.

The texts are laid side by side once, each between two zero bytes; the separators 0x01 and 0x02 are then found for all
records together. What is rare (non-ASCII tags, odd grammar, LMQ fan-out) is decided record by record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rmqstore.formats import properties
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, U8, Bool, u32

_TAGS = int.from_bytes(b"TAGS", "big")
# names whose values only the broker's own parser can judge, or that name further queues; they end in these words
PARSED_NAMES = (b"INNER_NUM\x01", b"INNER_MULTI_DISPATCH\x01", b"DELAY\x01", b"DUP_INFO\x01")
_PARSED_WORDS = [int.from_bytes(name[-5:-1], "big") for name in PARSED_NAMES]
_LONGEST = 64
_FILLER_BIT = 5  # 1 << 5 is a space, which is no mark
_NO_MARK = bytes(range(3, 256))
# what every parser takes: a delay level that is a small number
_DELAY_NUMBER = re.compile(rb"(?<![^\x02])DELAY\x01[0-9]{1,9}(?![^\x02])")
_FAN_OUT = properties.INNER_MULTI_DISPATCH.encode() + b"\x01"
# (separator, next separator) that a sound text has: 0 between texts, 1 name-value, 2 behind a value
_SOUND = bytes(a * 3 + b for a, b in ((0, 1), (0, 0), (1, 2), (1, 0), (2, 1), (2, 0)))


@dataclass(slots=True)
class Texts:
    """What the property texts of a chunk say.

    `tags_code` per record (0: no tags; not yet the deliver time of the schedule topic); `faults` of records whose
    text is wrong; `fan_out` records that were dispatched to further queues (LMQ); `parsed` records that hold one of
    PARSED_NAMES with more than a number for a delay level.
    Shape: tags_code (n,)
    """

    tags_code: I64
    faults: dict[int, list[str]] = field(default_factory=dict)
    fan_out: list[int] = field(default_factory=list)
    parsed: list[int] = field(default_factory=list)


class LaidTexts:
    """The property texts of a chunk side by side, and where their separators stand: found once, for all who ask.

    `joined` has behind each text a zero byte, a filler without marks, and another zero byte; `marks` are the bytes 0, 1
    and 2 of it in order, with a zero before the first; `at` the positions of marks[1:]. `sound` is false where a text
    holds a zero byte itself: marks then tell nothing.
    """

    def __init__(self, columns: Columns, *, positions: bool = True) -> None:
        self.joined = _side_by_side(columns)
        self.arr: U8 = np.frombuffer(self.joined, dtype=np.uint8)
        self.at: I64 | None = np.flatnonzero(self.arr <= 2) if positions else None
        found = self.arr[self.at].tobytes() if self.at is not None else self.joined.translate(None, _NO_MARK)
        self.marks: U8 = np.frombuffer(b"\0" + found, dtype=np.uint8)
        self.sound = int(np.count_nonzero(self.marks == 0)) == 2 * len(columns) + 1


def read_texts(columns: Columns, *, tags: bool = True, laid: LaidTexts | None = None) -> Texts:
    """Look at the property texts of all records of a chunk; `tags` off leaves all but the faults out."""
    out = Texts(np.zeros(len(columns), dtype=np.int64))
    laid = laid or LaidTexts(columns, positions=tags)
    joined, arr, at, marks = laid.joined, laid.arr, laid.at, laid.marks
    if not laid.sound:
        return _one_by_one(columns, out)
    for i in _suspects(marks, joined, columns):
        if faults := properties.property_faults(_text(columns, i)):
            out.faults[i] = faults
    if tags and at is not None:
        marks = marks[1:]
        index = np.flatnonzero(marks[:-1] == 1)  # a name ends there
        words = u32(arr)[np.maximum(at[index] - 4, 0)]
        _tags(arr, at, marks, index[words == _TAGS], joined, out)
        special = np.zeros(len(words), dtype=np.bool_)
        for word in _PARSED_WORDS:
            special |= words == word
        if special.any():
            ends = np.flatnonzero(marks == 0)[::2]  # the zero behind each text
            for i in np.unique(np.searchsorted(ends, index[special])).tolist():
                _special(_text(columns, i), i, out)
    return out


def _special(text: bytes, i: int, out: Texts) -> None:
    rest = _DELAY_NUMBER.sub(b"", text)
    if any(name in rest for name in PARSED_NAMES):
        out.parsed.append(i)
    if _FAN_OUT in text:
        out.fan_out.append(i)


def _suspects(marks: U8, joined: bytes, columns: Columns) -> list[int]:
    """Records whose text may be wrong: odd separators, none at all, or no UTF-8."""
    n = len(columns)
    suspects: set[int] = set()
    pairs = marks[:-1] * np.uint8(3) + marks[1:]
    if pairs.tobytes().translate(None, _SOUND):
        odd = ~np.isin(pairs, np.frombuffer(_SOUND, dtype=np.uint8))
        suspects.update(_text_of(marks)[:-1][odd].tolist())
    # a text that has no separator at all, and is not empty; n pairs are the fillers
    if int(np.count_nonzero(pairs == 0)) > n:
        bare = np.zeros(n, dtype=np.bool_)
        zero = np.cumsum(marks == 0)[:-1][pairs == 0]
        bare[zero[zero % 2 == 1] // 2] = True
        suspects.update(np.flatnonzero(bare & (columns.properties_length > 0)).tolist())
    if not joined.isascii():
        try:
            joined.decode("utf-8")
        except UnicodeDecodeError:
            suspects.update(i for i in range(n) if not _is_utf8(_text(columns, i)))
    return sorted(suspects)


def _side_by_side(columns: Columns) -> bytes:
    """All property texts as LaidTexts has them.

    Rows of one width can be gathered at once, which takes a tenth of the time of slices; so the filler. Where the
    lengths are too different for that the fillers are empty.
    """
    starts, length = columns.properties_at, columns.properties_length
    buf, n = columns.buf, len(length)
    if not n:
        return b""
    least, most = int(length.min()), int(length.max())
    width = most + 2
    last = len(buf) - width
    if least < 0 or last < 0 or n * width > 2 * int(length.sum()) + 64 * n:
        raw = columns.raw
        pieces = [raw[a:b] for a, b in zip(starts.tolist(), (starts + length).tolist(), strict=True)]
        return b"\0\0".join(pieces) + b"\0\0"
    every = np.ndarray((last + 1,), dtype=f"V{width}", buffer=buf, strides=(1,))
    rows = every[np.minimum(starts, last)].view(np.uint8).reshape(n, width)
    for i in np.flatnonzero(starts > last).tolist():  # a row would go over the buffer's end
        rows[i, : int(length[i])] = buf[int(starts[i]) : int(starts[i] + length[i])]
    tails = rows[:, least:]
    if least == most:
        tails[:] = 0
        return rows.tobytes()
    narrow: type[np.uint8] | type[np.uint16] = np.uint8 if width - least <= 255 else np.uint16
    behind = (length - least).astype(narrow)
    column: npt.NDArray[Any] = np.arange(width - least, dtype=narrow)
    is_filler = (column > behind[:, None]).view(np.uint8)
    tails &= is_filler - np.uint8(1)  # all bits of a text, none of what is behind it
    tails |= is_filler << np.uint8(_FILLER_BIT)
    tails[np.arange(n), behind] = 0
    tails[:, -1] = 0
    return rows.tobytes()


def _text_of(marks: U8) -> I64:
    """Number of the text that each mark stands in, or directly in front of; fillers count to the text before them."""
    number: I64 = np.cumsum(marks == 0) // 2
    return number


def _text(columns: Columns, i: int) -> bytes:
    at = int(columns.properties_at[i])
    return bytes(columns.raw[at : at + int(columns.properties_length[i])])


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _one_by_one(columns: Columns, out: Texts) -> Texts:
    for i in range(len(columns)):
        raw = _text(columns, i)
        faults = properties.property_faults(raw)
        if faults:
            out.faults[i] = faults
        parsed = properties.parse_properties(raw)
        out.tags_code[i] = properties.tags_code(parsed.get(properties.TAGS, ""))
        _special(raw, i, out)
    return out


def _tags(arr: U8, at: I64, marks: U8, index: I64, joined: bytes, out: Texts) -> None:
    """Tags code of every record: the last TAGS that is not empty.

    `marks` are the separators that stand at `at`; `index` those of them that end a name like TAGS.
    """
    mid = at[index]
    before = at[index - 1]  # -1 wraps to the last zero, which stands before no name
    before[index == 0] = -1
    hit = (before == mid - 5) & ((index == 0) | (marks[index - 1] != 1)) & (at[index + 1] > mid + 1)
    index = index[hit]
    if not len(index):
        return
    start = mid[hit] + 1
    length = at[index + 1] - start
    odd = marks[index + 1] == 1  # the value holds 0x01 itself: its end is not the next separator
    codes = _hashes(arr, start, length, odd)
    for j in np.flatnonzero(odd | (length > _LONGEST)).tolist():
        stop = joined.find(b"\2", int(start[j]))
        end = joined.find(b"\0", int(start[j]))
        stop = end if stop < 0 or 0 <= end < stop else stop
        value = joined[int(start[j]) : stop].decode("utf-8", "replace")
        codes[j] = properties.tags_code(value)
    ends = np.flatnonzero(marks == 0)[::2]  # index of the zero behind each text
    # a later duplicate wins, as in the broker's map
    out.tags_code[np.searchsorted(ends, index) if len(index) != len(ends) else _rows(ends, index)] = codes


def _rows(ends: I64, index: I64) -> I64:
    """Which text each separator stands in, where there are as many as texts: nearly always one in each."""
    number = np.arange(len(ends))
    starts = np.concatenate(([-1], ends[:-1]))
    return number if bool(((index < ends) & (index > starts)).all()) else np.searchsorted(ends, index)


def _hashes(arr: U8, start: I64, length: I64, odd: Bool) -> I64:
    """String.hashCode of ASCII values; values that hold other bytes are marked in `odd`, those over 64 bytes left."""
    codes = np.zeros(len(start), dtype=np.uint32)
    for k in range(min(int(length.max()), _LONGEST)):
        active = length > k
        whole = bool(active.all())
        c = arr[start + k if whole else np.where(active, start + k, 0)]
        odd |= (c >= 0x80) if whole else active & (c >= 0x80)
        codes = codes * np.uint32(31) + c if whole else np.where(active, codes * np.uint32(31) + c, codes)
    return codes.astype(np.int32).astype(np.int64)
