"""Check the property texts of a chunk: syntax, UTF-8, tags codes, and which records need individual treatment.

All texts are examined at once, in C or as bit masks with one bit for each byte, in 64-bit words. Comparing all bytes
with a value and packing the result into bits costs a tenth of finding the matching positions. The grammar (0x01 and
0x02 alternate, starting with 0x01) then depends only on the parity of the number of separators before each separator,
and a name is found by one of its letters at the right distance before a 0x01.

Rare cases (malformed or non-ASCII texts, dispatch to light message queues) are handled one text at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from rmqstore.formats import properties
from rmqstore.scan import native
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, U8, U64, Bool, hash_spans, u32, words_at

WORD = 64
_ONE = np.uint64(1)
_NONE = np.uint64(0)
_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_LOWEST = np.array([(1 << n) - 1 for n in range(WORD + 1)], dtype=np.uint64)
_LINES = np.frombuffer(b"\t\n\r", dtype=np.uint8)
_EXPONENT_BITS, _EXPONENT_BIAS = 52, 1023  # of a 64-bit float


class TextBits:
    """Texts of at most `width` bytes (a multiple of 64) at `start` in a chunk, with bit masks of their separators.

    `one` and `two` are the masks of 0x01 and 0x02. Positions are relative to the start of a text.
    Shapes: start and length (n,), one and two (words, n)
    """

    def __init__(self, buf: U8, start: I64, length: I64, width: int) -> None:
        self.buf = buf
        self.start, self.length = start, length
        self.words = width // WORD
        self._bytes = self._gather(width)
        left = (length - first for first in range(0, width, WORD))
        self._valid: U64 = np.array([_LOWEST[np.minimum(np.maximum(bits, 0), WORD)] for bits in left])
        self.one = self.where(self._bytes == 1)
        self.two = self.where(self._bytes == 2)

    def _gather(self, width: int) -> U8:
        """Copy each text into a row of `width` bytes; the bytes after the text in its row are arbitrary."""
        buf, start, length = self.buf, self.start, self.length
        last = len(buf) - width
        if last < 0:
            buf, last = np.concatenate((buf, np.zeros(-last, dtype=np.uint8))), 0
        at_every_byte = np.ndarray((last + 1,), dtype=f"V{width}", buffer=buf, strides=(1,))
        rows = at_every_byte[np.minimum(start, last)].view(np.uint8).reshape(len(start), width)
        for i in np.flatnonzero(start > last).tolist():  # the row would extend past the buffer
            rows[i, : int(length[i])] = buf[int(start[i]) : int(start[i] + length[i])]
        return rows

    def where(self, mask: Bool) -> U64:
        """Pack a mask over all rows into bits, without the bytes after each text."""
        packed = np.packbits(mask, axis=None, bitorder="little").view("<u8").reshape(len(mask), self.words)
        bits: U64 = packed.T & self._valid
        return bits

    def holds(self, byte: int) -> bool:
        """Whether any of the texts contains a byte."""
        return bool(self.where(self._bytes == byte).any())

    def odd_grammar(self) -> Bool:
        """Return which texts are malformed: separators that do not alternate, or a text without separators.

        An empty text is not malformed. Shape: (n,)
        """
        marks = self.one | self.two
        parity = marks.copy()
        for k in (1, 2, 4, 8, 16, 32):
            parity ^= parity << np.uint64(k)
        for word in range(1, self.words):  # an odd number of separators before a word inverts its parities
            parity[word] ^= _NONE - (parity[word - 1] >> np.uint64(WORD - 1))
        wrong = self.one & ~parity
        wrong |= self.two & parity
        odd = _any(wrong)
        odd |= (self.length > 0) & ~_any(marks)
        return odd

    def not_plain(self) -> tuple[Bool, Bool]:
        """Return which texts contain a zero byte, and which are not ASCII.

        Shape: (n,) each
        """
        zero_or_high = self.where(self._bytes.view(np.int8) <= 0)
        if not zero_or_high.any():
            none = np.zeros(len(self.length), dtype=np.bool_)
            return none, none
        zero = self.where(self._bytes == 0)
        return _any(zero), _any(zero_or_high & ~zero)

    def controls(self) -> Bool:
        """Return which texts contain control characters other than NUL, separators, tab, LF and CR.

        Shape: (n,)
        """
        low = self._bytes < 0x20
        if not low.any():
            return np.zeros(len(self.length), dtype=np.bool_)
        return _any(self.where(low & (self._bytes > 2) & ~np.isin(self._bytes, _LINES)))

    def ends_of(self, name: bytes, letter: int) -> Iterator[tuple[I64, I64, I64]]:
        """Yield (texts, positions of the 0x01 after the name, ends of the values) of names that end like `name`.

        Names match if they have the last four bytes of `name`. `letter` is the index in `name` of a byte that is rare
        at this distance from the end of other names: it finds the candidates. Each round yields one more occurrence
        per text, from first to last. Only for well-formed texts.
        """
        letters = self.where(self._bytes == name[letter])
        distance = len(name) - letter
        candidates = letters << np.uint64(distance)
        candidates[1:] |= letters[:-1] >> np.uint64(WORD - distance)
        candidates &= self.one
        texts = np.flatnonzero(_any(candidates))
        candidates = candidates[:, texts] if len(texts) < len(self.length) else candidates
        last_four = int.from_bytes(name[-4:], "big")
        view = u32(self.buf)
        while len(texts):
            all_texts = len(texts) == len(self.length)
            at, word, bit = _lowest(candidates)
            ending_at = np.maximum((self.start if all_texts else self.start[texts]) + at - 4, 0)
            hit = (view[ending_at] == last_four) & (at >= 4)
            if hit.any():
                stop = self._next_two(None if all_texts else texts, word, bit)
                yield (texts, at, stop) if hit.all() else (texts[hit], at[hit], stop[hit])
            for k in range(self.words):
                candidates[k] ^= np.where(word == k, bit, _NONE)
            more = np.flatnonzero(_any(candidates))
            texts, candidates = texts[more], candidates[:, more]

    def _next_two(self, texts: I64 | None, word: I64, bit: U64) -> I64:
        """Return the position of the first 0x02 after a bit in each of `texts` (None: all), else the text's end."""
        two, length = (self.two, self.length) if texts is None else (self.two[:, texts], self.length[texts])
        above = ~(bit | (bit - _ONE))
        later = np.array(
            [two[k] & np.where(word < k, _ALL, np.where(word == k, above, _NONE)) for k in range(self.words)]
        )
        return np.where(_any(later), _lowest(later)[0], length)

    def values(self, name: bytes, letter: int) -> Iterator[tuple[I64, I64, I64]]:
        """Yield (texts, positions of values in the chunk, their lengths) of a property; its name has 4 or 8 bytes."""
        name_word = int.from_bytes(name, "big")
        for texts, at, stop in self.ends_of(name, letter):
            begin = at - len(name)
            matches = (begin == 0) | (self._bytes[texts, np.maximum(begin - 1, 0)] == 2)
            if len(name) > 4:
                matches &= words_at(self.buf, np.maximum(self.start[texts] + begin, 0)) == name_word
            if not matches.all():
                texts, at, stop = texts[matches], at[matches], stop[matches]
            yield texts, self.start[texts] + at + 1, stop - at - 1


def _any(bits: U64) -> Bool:
    """Return which texts have any bit set.

    Shape: (n,)
    """
    found: Bool = np.bitwise_or.reduce(bits, axis=0) != 0
    return found


def _lowest(bits: U64) -> tuple[I64, I64, U64]:
    """Return the position of the lowest bit of every text, the number of its word, and the bit in that word."""
    value, word = bits[0], np.zeros(bits.shape[1], dtype=np.int64)
    for k in range(1, len(bits)):
        none = value == 0
        value, word = np.where(none, bits[k], value), np.where(none, k, word)
    single = value & (~value + _ONE)  # a power of two, which a float holds exactly
    power = (single.astype(np.float64).view(np.int64) >> _EXPONENT_BITS) - _EXPONENT_BIAS
    return word * WORD + power, word, single


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
