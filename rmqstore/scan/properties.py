"""Check the property texts of a chunk: syntax, UTF-8, tags codes, and which records need individual treatment.

Rare cases (malformed or non-ASCII texts, dispatch to light message queues) are handled one text at a time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from rmqstore.formats import properties
from rmqstore.scan import native
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, Bool

# properties whose values need the broker's parsing rules, or that name further queues
PARSED_NAMES = (b"INNER_NUM\x01", b"INNER_MULTI_DISPATCH\x01", b"DELAY\x01")
_SPECIAL_ENDS = tuple(name[:-1] for name in PARSED_NAMES)
# a delay level that every parser accepts: a small number
_DELAY_NUMBER = re.compile(rb"(?<![^\x02])DELAY\x01[0-9]{1,9}(?![^\x02])")
_FAN_OUT = properties.INNER_MULTI_DISPATCH.encode() + b"\x01"
_VALUES = (b"TAGS", b"KEYS", b"UNIQ_KEY")  # names whose values are needed


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
        spans = columns.properties_at, columns.properties_length
        self._read = native.load().texts(columns.buf, *spans, _VALUES, _SPECIAL_ENDS)
        self._judge(np.arange(len(columns)), self._read.is_odd, self._read.is_wide)
        self.controls: Bool = self._read.has_controls

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
        return native.load().holds(columns.buf, columns.properties_at, columns.properties_length, byte)

    def values(self, name: bytes) -> tuple[I64, I64, I64]:
        """Return (records, positions of the values in the chunk, their lengths) of a property, without odd records.

        A record that has the property twice occurs twice, with the earlier value first. `name` is TAGS, KEYS or
        UNIQ_KEY. Shape: (m,) each
        """
        number, start, length = self._read.values[_VALUES.index(name)]
        sound = ~self.odd[number]
        return (number, start, length) if sound.all() else (number[sound], start[sound], length[sound])

    def with_special_names(self) -> I64:
        """Return the records that may have one of PARSED_NAMES, and all odd records."""
        return np.flatnonzero(self.odd | self._read.ends_like)


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
    codes, ascii_only = native.load().hashes(texts.columns.buf, start, length)
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
