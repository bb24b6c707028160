"""Texts as bits: one bit for each byte of a text, in words of 64, for all texts at once.

A comparison of all bytes with one value, packed into bits, costs a tenth of looking for the places where it holds. The
grammar (0x01 and 0x02 take turns, beginning with 0x01) is then the parity of the separators before each of them, and a
name is found by one of its letters at its place in front of a 0x01.
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
    """Texts of at most `width` bytes, a multiple of 64, that begin at `start` in a chunk and are `length` long.

    `one` and `two` have the bits of 0x01 and 0x02. Positions count from a text's begin.
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
        """One row of `width` bytes for each text; what is behind a text in its row means nothing."""
        buf, start, length = self.buf, self.start, self.length
        last = len(buf) - width
        if last < 0:
            buf, last = np.concatenate((buf, np.zeros(-last, dtype=np.uint8))), 0
        every = np.ndarray((last + 1,), dtype=f"V{width}", buffer=buf, strides=(1,))
        rows = every[np.minimum(start, last)].view(np.uint8).reshape(len(start), width)
        for i in np.flatnonzero(start > last).tolist():  # a row would go over the buffer's end
            rows[i, : int(length[i])] = buf[int(start[i]) : int(start[i] + length[i])]
        return rows

    def where(self, mask: Bool) -> U64:
        """Bits of the bytes of texts for which a mask over all rows is true."""
        packed = np.packbits(mask, axis=None, bitorder="little").view("<u8").reshape(len(mask), self.words)
        bits: U64 = packed.T & self._valid
        return bits

    def holds(self, byte: int) -> bool:
        """Whether a byte is in any of the texts."""
        return bool(self.where(self._bytes == byte).any())

    def odd_grammar(self) -> Bool:
        """Texts whose separators do not take turns, or that have none at all and are not empty.

        Shape: (n,)
        """
        marks = self.one | self.two
        parity = marks.copy()
        for k in (1, 2, 4, 8, 16, 32):
            parity ^= parity << np.uint64(k)
        for word in range(1, self.words):  # an odd number of separators up to here turns all that follow
            parity[word] ^= _NONE - (parity[word - 1] >> np.uint64(WORD - 1))
        wrong = self.one & ~parity
        wrong |= self.two & parity
        odd = _any(wrong)
        odd |= (self.length > 0) & ~_any(marks)
        return odd

    def not_plain(self) -> tuple[Bool, Bool]:
        """Texts that hold a zero byte, and texts that are not ASCII.

        Shape: (n,) each
        """
        odd = self.where(self._bytes.view(np.int8) <= 0)
        if not odd.any():
            none = np.zeros(len(self.length), dtype=np.bool_)
            return none, none
        zero = self.where(self._bytes == 0)
        return _any(zero), _any(odd & ~zero)

    def controls(self) -> Bool:
        """Texts that hold other control characters than the separators, lines and tabs.

        Shape: (n,)
        """
        low = self._bytes < 0x20
        if not low.any():
            return np.zeros(len(self.length), dtype=np.bool_)
        return _any(self.where(low & (self._bytes > 2) & ~np.isin(self._bytes, _LINES)))

    def ends_of(self, name: bytes, letter: int) -> Iterator[tuple[I64, I64, I64]]:
        """(texts, where the name's 0x01 is, where the value ends) of names that end like `name`.

        The last four bytes of `name` count, and `letter`, the index in it of a byte that is rare there in other
        names. Each round gives a further place of a text, from its first to its last. Only for texts of sound grammar.
        """
        letters = self.where(self._bytes == name[letter])
        by = len(name) - letter
        found = letters << np.uint64(by)
        found[1:] |= letters[:-1] >> np.uint64(WORD - by)
        found &= self.one
        texts = np.flatnonzero(_any(found))
        found = found[:, texts] if len(texts) < len(self.length) else found
        four = int.from_bytes(name[-4:], "big")
        view = u32(self.buf)
        while len(texts):
            whole = len(texts) == len(self.length)
            at, word, bit = _lowest(found)
            ahead = np.maximum((self.start if whole else self.start[texts]) + at - 4, 0)
            hit = (view[ahead] == four) & (at >= 4)
            if hit.any():
                stop = self._next_two(None if whole else texts, word, bit)
                yield (texts, at, stop) if hit.all() else (texts[hit], at[hit], stop[hit])
            for k in range(self.words):
                found[k] ^= np.where(word == k, bit, _NONE)
            more = np.flatnonzero(_any(found))
            texts, found = texts[more], found[:, more]

    def _next_two(self, texts: I64 | None, word: I64, bit: U64) -> I64:
        """Where the first 0x02 is behind a bit of each of the texts (None: of all); a text's end without one."""
        two, length = (self.two, self.length) if texts is None else (self.two[:, texts], self.length[texts])
        above = ~(bit | (bit - _ONE))
        behind = np.array(
            [two[k] & np.where(word < k, _ALL, np.where(word == k, above, _NONE)) for k in range(self.words)]
        )
        return np.where(_any(behind), _lowest(behind)[0], length)

    def values(self, name: bytes, letter: int) -> Iterator[tuple[I64, I64, I64]]:
        """(texts, positions of the values in the chunk, their lengths) of properties, names have 4 or 8 bytes."""
        eight = int.from_bytes(name, "big")
        for texts, at, stop in self.ends_of(name, letter):
            begin = at - len(name)
            ours = (begin == 0) | (self._bytes[texts, np.maximum(begin - 1, 0)] == 2)
            if len(name) > 4:
                ours &= words_at(self.buf, np.maximum(self.start[texts] + begin, 0)) == eight
            if not ours.all():
                texts, at, stop = texts[ours], at[ours], stop[ours]
            yield texts, self.start[texts] + at + 1, stop - at - 1


def _any(bits: U64) -> Bool:
    """Which texts have a bit.

    Shape: (n,)
    """
    found: Bool = np.bitwise_or.reduce(bits, axis=0) != 0
    return found


def _lowest(bits: U64) -> tuple[I64, I64, U64]:
    """Position of the lowest bit of every text, the word that holds it, and the bit in that word."""
    value, word = bits[0], np.zeros(bits.shape[1], dtype=np.int64)
    for k in range(1, len(bits)):
        none = value == 0
        value, word = np.where(none, bits[k], value), np.where(none, k, word)
    single = value & (~value + _ONE)  # a power of two, which a float holds exactly
    power = (single.astype(np.float64).view(np.int64) >> _EXPONENT_BITS) - _EXPONENT_BIAS
    return word * WORD + power, word, single
