"""Check the property texts of a chunk: syntax, UTF-8, tags codes, and which records need individual treatment.

All texts are examined at once, in C or as bit masks (`text_bits`). Rare cases (malformed or non-ASCII texts, dispatch
to light message queues) are handled one text at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from rmqstore.formats import properties
from rmqstore.scan import native
from rmqstore.scan.columns import Columns
from rmqstore.scan.hashes import hash_spans
from rmqstore.scan.kernels import I64, Bool
from rmqstore.scan.properties.text_bits import WORD, TextBits

# properties whose values need the broker's parsing rules, or that name further queues
PARSED_NAMES = (b"INNER_NUM\x01", b"INNER_MULTI_DISPATCH\x01", b"DELAY\x01")
_SPECIAL_ENDS = tuple(name[:-1] for name in PARSED_NAMES)
# a delay level that every parser accepts: a small number
_DELAY_NUMBER = re.compile(rb"(?<![^\x02])DELAY\x01[0-9]{1,9}(?![^\x02])")
_FAN_OUT = properties.INNER_MULTI_DISPATCH.encode() + b"\x01"
# index of the letter of each name that is rarest in other names at this distance from their end
_LETTER = {b"TAGS": 2, b"KEYS": 2, b"UNIQ_KEY": 3, b"INNER_NUM": 8, b"INNER_MULTI_DISPATCH": 19, b"DELAY": 2}
_VALUES = (b"TAGS", b"KEYS", b"UNIQ_KEY")  # names whose values are needed
_SPREAD = 96  # padding bytes per text that cost less than grouping texts by length
_WIDEST = 8 * WORD


@dataclass(slots=True)
class Texts:
    """Facts from the property texts of a chunk; the lists contain record numbers.

    `tags_code`: per record, 0 without tags, and not yet the deliver time in the schedule topic; `faults`: syntax faults
    by record; `controls`: control characters that a producer may have written; `fan_out`: dispatched to light message
    queues; `parsed`: has one of PARSED_NAMES, except a DELAY that is a small number.
    Shape: tags_code (n,)
    """

    tags_code: I64
    faults: dict[int, list[str]] = field(default_factory=dict)
    controls: list[int] = field(default_factory=list)
    fan_out: list[int] = field(default_factory=list)
    parsed: list[int] = field(default_factory=list)


class PropertyTexts:
    """The property texts of a chunk, examined once for all users.

    `odd`: texts that must be parsed one by one, because they are malformed, not UTF-8, or contain zero bytes.
    `controls`: texts with control characters other than separators, tab, LF and CR.
    Shapes: (n,)
    """

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.odd: Bool = np.zeros(len(columns), dtype=np.bool_)
        self.controls: Bool = np.zeros(len(columns), dtype=np.bool_)
        self._groups: list[tuple[I64 | None, TextBits]] = []
        self._native = loops = native.load()
        self._read = None
        if loops is not None:
            spans = columns.properties_at, columns.properties_length
            self._read = loops.texts(columns.buf, *spans, _VALUES, _SPECIAL_ENDS)
        if self._read is None:
            self._groups = [(rows, self._bits(rows, width)) for rows, width in _widths(columns.properties_length)]
        else:
            self._judge(np.arange(len(columns)), self._read.is_odd, self._read.is_wide)
            self.controls = self._read.has_controls

    def _bits(self, rows: I64 | None, width: int) -> TextBits:
        columns = self.columns
        start, length = columns.properties_at, np.maximum(columns.properties_length, 0)
        bits = TextBits(columns.buf, *((start, length) if rows is None else (start[rows], length[rows])), width)
        zero, wide = bits.not_plain()
        number = np.arange(len(columns)) if rows is None else rows
        self._judge(number, bits.odd_grammar() | zero, wide)
        self.controls[number] = bits.controls()
        return bits

    def _judge(self, number: I64, odd: Bool, wide: Bool) -> None:
        """Record which of the records `number` are odd; `wide` are those with a text that is not ASCII."""
        self.odd[number[odd]] = True
        number = number[wide & ~odd]
        if len(number):
            self.odd[number] = not_utf8(self.texts(number))

    def texts(self, records: I64) -> list[bytes]:
        """Return the texts of some records as raw bytes."""
        raw = self.columns.raw
        start, length = self.columns.properties_at[records], self.columns.properties_length[records]
        return [bytes(raw[a:b]) for a, b in zip(start.tolist(), (start + length).tolist(), strict=True)]

    def holds(self, byte: int) -> bool:
        """Whether any of the texts contains a byte."""
        columns = self.columns
        if self._native is not None:
            return self._native.holds(columns.buf, columns.properties_at, columns.properties_length, byte)
        return any(bits.holds(byte) for _, bits in self._groups)

    def values(self, name: bytes) -> tuple[I64, I64, I64]:
        """Return (records, positions of the values in the chunk, their lengths) of a property, without odd records.

        A record that has the property twice occurs twice, with the earlier value first. `name` is TAGS, KEYS or
        UNIQ_KEY. Shape: (m,) each
        """
        if self._read is not None:
            return self._of_sound(*self._read.values[_VALUES.index(name)])
        found = [np.empty((3, 0), dtype=np.int64)]
        for rows, bits in self._groups:
            for texts, start, length in bits.values(name, _LETTER[name]):
                number = texts if rows is None else rows[texts]
                found.append(np.array([number, start, length]))
        if len(found) == 2:
            number, start, length = found[1]
        else:
            number, start, length = np.concatenate(found, axis=1)
        return self._of_sound(number, start, length)

    def _of_sound(self, number: I64, start: I64, length: I64) -> tuple[I64, I64, I64]:
        sound = ~self.odd[number]
        return (number, start, length) if sound.all() else (number[sound], start[sound], length[sound])

    def with_special_names(self) -> I64:
        """Return the records that may have one of PARSED_NAMES, and all odd records."""
        if self._read is not None:
            return np.flatnonzero(self.odd | self._read.ends_like)
        found = self.odd.copy()
        for name in _SPECIAL_ENDS:
            for rows, bits in self._groups:
                for texts, _, _ in bits.ends_of(name, _LETTER[name]):
                    found[texts if rows is None else rows[texts]] = True
        return np.flatnonzero(found)


def _widths(length: I64) -> Iterator[tuple[I64 | None, int]]:
    """Yield groups of records (None: all) whose texts have similar lengths, with the width in bytes that fits them."""
    n = len(length)
    if not n:
        return
    words = np.maximum(-(-length // WORD), 1)
    width = int(words.max()) * WORD
    if width <= _WIDEST and n * width <= int(length.sum()) + n * _SPREAD:
        yield None, width
        return
    power = np.ceil(np.log2(words)).astype(np.int64)
    for k in np.unique(power).tolist():
        yield np.flatnonzero(power == k), WORD << k


def read_texts(columns: Columns, *, tags: bool = True, texts: PropertyTexts | None = None) -> Texts:
    """Examine the property texts of all records of a chunk; without `tags`, only `faults` and `controls` are filled."""
    texts = texts or PropertyTexts(columns)
    result = Texts(np.zeros(len(columns), dtype=np.int64))
    if tags:
        _put_tags(texts, result)
        special = texts.with_special_names()
        for i, raw in zip(special.tolist(), texts.texts(special), strict=True):
            _put_special(raw, i, result)
    suspect = np.flatnonzero(texts.odd | texts.controls)
    for i, raw in zip(suspect.tolist(), texts.texts(suspect), strict=True):
        if faults := properties.property_faults(raw):
            result.faults[i] = faults
        elif properties.holds_controls(raw):
            result.controls.append(i)
        if tags and texts.odd[i]:
            result.tags_code[i] = properties.tags_code(properties.parse_properties(raw).get(properties.TAGS, ""))
    return result


def _put_tags(texts: PropertyTexts, result: Texts) -> None:
    """Set the tags code of every record that is not odd, from the last TAGS that is not empty."""
    number, start, length = texts.values(b"TAGS")
    nonempty = length > 0
    if not nonempty.all():
        number, start, length = number[nonempty], start[nonempty], length[nonempty]
    codes, ascii_only = hash_spans(texts.columns.buf, start, length)
    codes = codes.astype(np.uint32).astype(np.int32).astype(np.int64)
    for j in np.flatnonzero(~ascii_only).tolist():
        value = texts.columns.raw[int(start[j]) : int(start[j] + length[j])]
        codes[j] = properties.tags_code(value.decode("utf-8", "replace"))
    result.tags_code[number] = codes  # the last one of a record wins, as in the broker's map


def _put_special(text: bytes, i: int, result: Texts) -> None:
    rest = _DELAY_NUMBER.sub(b"", text)
    if any(name in rest for name in PARSED_NAMES):
        result.parsed.append(i)
    if _FAN_OUT in text:
        result.fan_out.append(i)


def not_utf8(texts: list[bytes]) -> list[bool]:
    """Return which texts are not UTF-8; checks all together first, because nearly all are."""
    if is_utf8(b"\0".join(texts)):
        return [False] * len(texts)
    return [not is_utf8(text) for text in texts]


def is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
