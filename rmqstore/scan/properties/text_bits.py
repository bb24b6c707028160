"""Examine many texts at once as bit masks: one bit for each byte of a text, in 64-bit words.

Comparing all bytes with a value and packing the result into bits costs a tenth of finding the matching positions. The
grammar (0x01 and 0x02 alternate, starting with 0x01) then depends only on the parity of the number of separators before
each separator, and a name is found by one of its letters at the right distance before a 0x01.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rmqstore.scan.hashes import U64, words_at
from rmqstore.scan.kernels import I64, U8, Bool, u32

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
