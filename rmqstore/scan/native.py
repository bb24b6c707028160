"""Call the inner loops in C (`loops/`).

They are a shared library without Python's API, called through ctypes with addresses of arrays, so that one build works
with every Python version. CRCs are zlib-ng's if its wheel has the function, else those of the library.
"""

from __future__ import annotations

import ctypes
import zlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rmqstore.errors import CouldNotCheck, reason
from rmqstore.texts import Text

ABI = 8
LIBRARY = Path(__file__).with_name("_native.so")
CRC32 = "zng_crc32_z"
_MARKS = (1, 2, 4, 8)  # in the order of `Framed`
_REST = (
    *("at", "queue_id", "sys_flag", "store_timestamp", "body_at", "body_length", "wide", "topic_at", "topic_length"),
    *("properties_at", "properties_length"),
)
_ODD, _WIDE, _ENDS_LIKE, _CONTROL = 1, 2, 4, 8  # flags of rmqstore_texts


class TextFlags(NamedTuple):
    """Flags of property texts, and (texts, starts, lengths) of the values of each requested name.

    `is_odd`: malformed or with a zero byte; `is_wide`: not ASCII; `ends_like`: has a name with one of the requested
    endings; `has_controls`: has control characters other than separators, tab, LF and CR.
    """

    is_odd: Bool
    is_wide: Bool
    ends_like: Bool
    has_controls: Bool
    values: list[tuple[I64, I64, I64]]


class PropertyPairs(NamedTuple):
    """Property texts split into pairs: the bytes of all names and of all values, and the position where each ends.

    The ends begin with a 0. `after` counts the pairs up to each text. `first` and `last` are start and stop of the
    values of the requested names, -1 without one. Marks: 1 a name may occur twice, 2 not ASCII, 4 malformed part, 8 the
    text ends with a separator.
    Shapes: ends (pairs + 1,), after (n + 1,), first and last (names, n), marks (n,)
    """

    names: U8
    values: U8
    name_ends: npt.NDArray[np.int32]
    value_ends: npt.NDArray[np.int32]
    after: npt.NDArray[np.int32]
    first: I64
    last: I64
    marks: U8


class Framed(NamedTuple):
    """The framed records found by `Native.read`: their columns by the names in `Columns`, and their marks.

    `odd`: the next record is completely in the buffer but not framed. Marks: `wrong_crc` the body does not match
    BODYCRC, `elsewhere` PHYSICALOFFSET differs from the position, `has_tail` the record seems to end with the property
    __CRC32#, `odd_port` a host has a port above 65535.
    Shapes: (n,)
    """

    columns: dict[str, I64]
    odd: bool
    wrong_crc: Bool | None
    elsewhere: Bool
    has_tail: Bool
    odd_port: Bool


class Native:
    """The functions of the loaded library; `crc32` is the address of a C function for CRCs."""

    def __init__(self, library: ctypes.CDLL, crc32: int) -> None:
        self._crc32 = crc32
        for name in (
            "read",
            "holds",
            "mentions",
            "texts",
            "find_queues",
            "lay_out",
            "put_keys",
            "objects",
            "pairs",
            "decode_base64",
            "find_either",
        ):
            getattr(library, f"rmqstore_{name}").restype = ctypes.c_int64
        self._read = library.rmqstore_read
        self._crcs = library.rmqstore_crcs
        self._hashes = library.rmqstore_hashes
        self._holds = library.rmqstore_holds
        self._mentions = library.rmqstore_mentions
        self._texts = library.rmqstore_texts
        self._place_queues = library.rmqstore_place_queues
        self._find_queues = library.rmqstore_find_queues
        self._lay_out = library.rmqstore_lay_out
        self._put_keys = library.rmqstore_put_keys
        self._objects = library.rmqstore_objects
        self._pairs = library.rmqstore_pairs
        self._contents = library.rmqstore_contents
        self._line_ends = library.rmqstore_line_ends
        self._lines = library.rmqstore_lines
        self._decode_base64 = library.rmqstore_decode_base64
        self._find_either = library.rmqstore_find_either

    def find_either(self, buf: U8, have: int, start: int, numbers: tuple[int, int]) -> int:
        """Return the first position from `start` on of one of two 32-bit numbers; -1 if there is none.

        `have`: number of valid bytes. The first two bytes of both numbers are the same.
        """
        return int(self._find_either(_at(buf), *_numbers(have, start, *numbers)))

    def read(
        self,
        chunk: tuple[U8, int, int],
        span: tuple[int, int],
        frame: tuple[int, int, int],
        layout: I64,
        *,
        crc: bool,
        room: int,
    ) -> Framed:
        """Read the framed records from `span[0]` on that start before `span[1]`, at most `room`: see rmqstore_read.

        `chunk`: the buffer, the number of valid bytes, and the global offset of the first byte; `frame`: the bytes
        before a message, the position of the size field, and the smallest size; `layout`: `struct layout`; `crc`:
        compare bodies with BODYCRC.
        """
        buf, have, base = chunk
        # arrays of their own, because callers keep these two columns longer than the others
        size, queue_offset = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
        rest = np.empty((len(_REST), room), dtype=np.int64)
        marks, odd = np.empty(room, dtype=np.uint8), ctypes.c_int64()
        count = self._read(
            *(_at(buf), *_numbers(have, base, *span, *frame), _at(layout)),
            *(ctypes.c_void_p(self._crc32 if crc else None), _number(room)),
            *(_at(size), _at(queue_offset), _at(rest), _at(marks), ctypes.byref(odd)),
        )
        size, queue_offset, rest, marks = size[:count], queue_offset[:count], rest[:, :count], marks[:count]
        if 2 * count < room:  # do not keep much unused memory alive with the columns
            size, queue_offset, rest = size.copy(), queue_offset.copy(), rest.copy()
        columns = {"size": size, "queue_offset": queue_offset} | dict(zip(_REST, rest, strict=True))
        wrong, elsewhere, has_tail, odd_port = ((marks & bit) != 0 for bit in _MARKS)
        return Framed(columns, bool(odd.value), wrong if crc else None, elsewhere, has_tail, odd_port)

    def body_crcs(self, raw: bytearray, starts: I64, stops: I64) -> I64:
        """Compute the CRC-32, with the top bit cleared, of every range; 0 for an empty one.

        Shape: (n,)
        """
        n = len(starts)
        crcs = np.empty(n, dtype=np.int64)
        buf, starts, stops = np.frombuffer(raw, np.uint8), _contiguous(starts), _contiguous(stops)
        self._crcs(ctypes.c_void_p(self._crc32), _at(buf), *_numbers(len(buf), n), _at(starts), _at(stops), _at(crcs))
        return crcs

    def hashes(self, buf: U8, starts: I64, lengths: I64) -> tuple[I64, Bool]:
        """Return the hash (unsigned, 32 bits) of every span, and which spans are ASCII: only their hashes are valid.

        Shape: (n,) each.
        Source: java.lang.String#hashCode
        """
        n = len(starts)
        codes, ascii_only = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.bool_)
        starts, lengths = _contiguous(starts), _contiguous(lengths)
        self._hashes(_at(buf), *_numbers(len(buf), n), _at(starts), _at(lengths), _at(codes), _at(ascii_only))
        return codes, ascii_only

    def holds(self, buf: U8, starts: I64, lengths: I64, byte: int) -> bool:
        """Whether any of the spans contains a byte."""
        starts, lengths = _contiguous(starts), _contiguous(lengths)
        return bool(self._holds(_at(buf), *_numbers(len(buf), len(starts)), _at(starts), _at(lengths), _number(byte)))

    def mentions(self, buf: U8, starts: I64, lengths: I64, word: bytes) -> Bool | None:
        """Return the mask of the spans that contain a word of 8 bytes; None if none of them does."""
        n = len(starts)
        found = np.empty(n, dtype=np.bool_)
        starts, lengths = _contiguous(starts), _contiguous(lengths)
        count = self._mentions(
            *(_at(buf), *_numbers(len(buf), n), _at(starts), _at(lengths)),
            *(ctypes.c_uint64(int.from_bytes(word, "little")), _at(found)),
        )
        return found if count else None

    def texts(self, buf: U8, starts: I64, lengths: I64, names: tuple[bytes, ...], ends: tuple[bytes, ...]) -> TextFlags:
        """Return flags of property texts and the values of `names` (up to 8 bytes).

        `ends_like` is set for a text that has a name with the last four bytes of one of `ends`.
        """
        n = len(starts)
        starts, lengths = _contiguous(starts), _contiguous(lengths)
        flags = np.empty(n, dtype=np.uint8)
        count = np.empty(len(names), dtype=np.int64)
        words, sizes, last = _names(names, ends)
        room = n + _SPARE
        while True:
            found = np.empty((3, len(names), room), dtype=np.int64)
            done = self._texts(
                _at(buf),
                *_numbers(len(buf), n),
                *(_at(starts), _at(lengths), _at(flags)),
                *(_number(len(names)), _at(words), _at(sizes)),
                *(_number(len(ends)), _at(last)),
                *(_number(room), _at(count), *(_at(part) for part in found)),
            )
            if done:
                break
            room *= 4  # texts that repeat a name
        row, start, length = found
        values = [(row[k, :m], start[k, :m], length[k, :m]) for k, m in enumerate(count.tolist())]
        is_odd, is_wide, ends_like, has_controls = ((flags & bit) != 0 for bit in (_ODD, _WIDE, _ENDS_LIKE, _CONTROL))
        return TextFlags(is_odd, is_wide, ends_like, has_controls, values)

    def place_queues(self, queues: QueueSlots, first: int, stop: int) -> None:
        """Insert queues [first, stop) into the hash slots."""
        self._place_queues(*queues.names(), *_numbers(first, stop, len(queues.slots) - 1), _at(queues.slots))

    def find_queues(self, buf: U8, at: I64, length: I64, queue_id: I64, queues: QueueSlots) -> tuple[I64, int]:
        """Return the number of every record's queue, -1 for an unknown queue, and how many are unknown."""
        n = len(at)
        numbers = np.empty(n, dtype=np.int64)
        at, length, queue_id = _contiguous(at), _contiguous(length), _contiguous(queue_id)
        unknown = self._find_queues(
            _at(buf),
            *_numbers(len(buf), n),
            *(_at(at), _at(length), _at(queue_id)),
            *(*queues.names(), _number(len(queues.slots) - 1), _at(queues.slots), _at(numbers)),
        )
        return numbers, unknown

    def lay_out(
        self, number: I64, queues: int, index: I64, offset: I64, size: I64 | None, tags: I64 | None, units: Any
    ) -> tuple[I64, I64, I64]:
        """Group rows by queue: return the start of each queue and the grouped `index` and `offset`; fill `units`.

        Errors: ValueError if a queue number is not below `queues`.
        """
        n = len(number)
        required = [_at(_contiguous(column)) for column in (number, index, offset)]
        optional = [None if column is None else _at(_contiguous(column)) for column in (size, tags)]
        starts, cursors = np.empty(queues + 1, dtype=np.int64), np.empty(queues, dtype=np.int64)
        grouped_index, grouped_offset = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
        done = self._lay_out(
            *(_number(n), *required, *optional, _number(queues), _at(cursors), _at(starts)),
            *(_at(grouped_index), _at(grouped_offset), None if units is None else _at(units)),
        )
        if not done:
            raise ValueError("a queue number is out of range")
        return starts, grouped_index, grouped_offset

    def put_keys(
        self,
        keys: tuple[I64, I64, I64],
        first: int,
        table: npt.NDArray[np.int32],
        pages: tuple[int, Bool],
        units: Any,
    ) -> int:
        """Put keys (hash, offset, seconds) in order into the slot table of an index file, as unit `first` and so on.

        `pages`: the number of slots per page, and a flag per page, which is set if one of its slots changes. Fills
        `units`. Returns the number of slots that were empty. Errors: ValueError for a negative hash.
        """
        page_slots, changed = pages
        columns = [_contiguous(column) for column in keys]
        new_slots = self._put_keys(
            *(_number(len(units)), *map(_at, columns), *_numbers(first, len(table), page_slots)),
            *(_at(table), _at(changed), _at(units)),
        )
        if new_slots < 0:
            raise ValueError("a key hash is negative")
        return int(new_slots)

    def objects(
        self, buf: U8, starts: I64, stops: I64, style: U8, names: tuple[bytes, ...], out: U8, at: int
    ) -> tuple[int, I64, I64, U8]:
        """Write property texts as objects to `out` from `at` on; `style` is `struct style` of loops/lines.c.

        Returns the end of the last object, start and stop of each object and of its values of `names`, and marks: see
        rmqstore_objects.
        Shapes: start and stop (1 + names, n), marks (n,)
        """
        n = len(starts)
        starts, stops = _contiguous(starts), _contiguous(stops)
        first, last = np.full((1 + len(names), n), -1, dtype=np.int64), np.full((1 + len(names), n), -1, dtype=np.int64)
        marks = np.empty(n, dtype=np.uint8)
        words, sizes, _ = _names(names, ())
        end = self._objects(
            *(_at(buf), *_numbers(len(buf), n), _at(starts), _at(stops), _at(style)),
            *(_number(len(names)), _at(words), _at(sizes)),
            *(_at(out), *_numbers(at, len(out)), _at(first), _at(last), _at(marks)),
        )
        return end, first, last, marks

    def pairs(self, buf: U8, starts: I64, stops: I64, names: tuple[bytes, ...]) -> PropertyPairs:
        """Split property texts into names and values: see rmqstore_pairs."""
        n, total = len(starts), int(np.maximum(stops - starts, 0).sum())
        starts, stops = _contiguous(starts), _contiguous(stops)
        words, sizes, _ = _names(names, ())
        texts = np.empty((2, total + 16), dtype=np.uint8)
        ends = np.zeros((2, total // 3 + n + 2), dtype=np.int32)
        after = np.zeros(n + 1, dtype=np.int32)
        first, last = np.full((len(names), n), -1, dtype=np.int64), np.full((len(names), n), -1, dtype=np.int64)
        marks = np.empty(n, dtype=np.uint8)
        count = self._pairs(
            *(_at(buf), *_numbers(len(buf), n), _at(starts), _at(stops)),
            *(_number(len(names)), _at(words), _at(sizes)),
            *(_at(texts[0]), _at(texts[1]), _at(ends[0, 1:]), _at(ends[1, 1:]), _at(after[1:])),
            *(_at(first), _at(last), _at(marks)),
        )
        return PropertyPairs(texts[0], texts[1], ends[0, : count + 1], ends[1, : count + 1], after, first, last, marks)

    def contents(self, buf: U8, starts: I64, stops: I64) -> U8:
        """Return marks for the kinds of characters in every text: see rmqstore_contents.

        Shape: (n,)
        """
        marks = np.empty(len(starts), dtype=np.uint8)
        starts, stops = _contiguous(starts), _contiguous(stops)
        self._contents(_at(buf), *_numbers(len(buf), len(starts)), _at(starts), _at(stops), _at(marks))
        return marks

    def line_ends(self, n: int, parts: I64) -> I64:
        """Return where each of n lines ends; `parts` are rows of `struct part` of loops/lines.c."""
        ends = np.empty(n, dtype=np.int64)
        self._line_ends(*_numbers(n, len(parts)), _at(parts), _at(ends))
        return ends

    def lines(self, n: int, parts: I64, out: U8) -> None:
        """Write n lines to `out`, which must have room for all of them."""
        self._lines(*_numbers(n, len(parts)), _at(parts), _at(out))

    def decode_base64(self, text: bytes, stops: I64) -> tuple[U8, I64] | None:
        """Decode texts in base64 that follow each other; return all bytes, and where those of each text end.

        None if a text is not canonical: another alphabet, wrong padding, or bits set after the last byte.
        """
        out, ends = np.empty(len(text) // 4 * 3 + 1, dtype=np.uint8), np.empty(len(stops), dtype=np.int64)
        buf = np.frombuffer(text, dtype=np.uint8)
        done = self._decode_base64(
            *(_at(buf), *_numbers(len(text), len(stops)), _at(_contiguous(stops)), _at(out), _at(ends))
        )
        return (out, ends) if done else None


SAME, ROWS, SPANS, BASE64, HEX, ESCAPED, CELL = range(7)  # kinds of `struct part`
_SPARE = 64


class QueueSlots:
    """The hash table of queues that the C code uses; it grows with the `QueueTable`.

    Shape: slots (a power of two,), -1 in a free slot
    """

    def __init__(self, native: Native) -> None:
        self._native = native
        self._count = 0
        self._used = 0
        self._topics = np.zeros(1 << 12, dtype=np.uint8)
        self._queues = np.zeros((3, 64), dtype=np.int64)
        self.slots = np.full(256, -1, dtype=np.int32)

    def names(self) -> tuple[Any, ...]:
        """Return the addresses of the topics' bytes, positions and lengths, and of the queue ids."""
        return (_at(self._topics), *(_at(row) for row in self._queues))

    def add(self, topics: list[bytes], ids: list[int]) -> None:
        """Add the queues that are not in the table yet; the lists contain all queues."""
        first = self._count
        for topic, queue_id in zip(topics[first:], ids[first:], strict=True):
            if self._count == self._queues.shape[1]:
                self._queues = np.concatenate((self._queues, np.zeros_like(self._queues)), axis=1)
            while self._used + len(topic) > len(self._topics):
                self._topics = np.concatenate((self._topics, np.zeros_like(self._topics)))
            self._topics[self._used : self._used + len(topic)] = np.frombuffer(topic, dtype=np.uint8)
            self._queues[:, self._count] = self._used, len(topic), queue_id
            self._used += len(topic)
            self._count += 1
        if 4 * self._count > len(self.slots):
            self.slots = np.full(1 << (8 * self._count).bit_length(), -1, dtype=np.int32)
            first = 0
        self._native.place_queues(self, first, self._count)

    def find(self, buf: U8, at: I64, length: I64, queue_id: I64) -> tuple[I64, int]:
        return self._native.find_queues(buf, at, length, queue_id, self)


_Pointer = ctypes.c_char * 0


def _at(array: Any) -> Any:
    """Return an array's address as an argument for ctypes."""
    try:
        return _Pointer.from_buffer(array)  # ten times as fast as array.ctypes
    except TypeError:  # a read-only array
        return ctypes.c_void_p(array.ctypes.data)


def address(array: npt.NDArray[Any]) -> int:
    """Return the address of an array's first element."""
    pointer = _at(array)
    return int(pointer.value or 0) if isinstance(pointer, ctypes.c_void_p) else ctypes.addressof(pointer)


def _number(value: int) -> ctypes.c_int64:
    return ctypes.c_int64(value)


def _numbers(*values: int) -> tuple[ctypes.c_int64, ...]:
    return tuple(ctypes.c_int64(value) for value in values)


def _contiguous(array: I64) -> I64:
    """Return the array as contiguous 64-bit numbers, as C reads them."""
    return np.ascontiguousarray(array, dtype=np.int64)


@cache
def _names(names: tuple[bytes, ...], ends: tuple[bytes, ...]) -> tuple[npt.NDArray[Any], I64, npt.NDArray[Any]]:
    words = np.array([int.from_bytes(name, "little") for name in names], dtype=np.uint64)
    sizes = np.array([len(name) for name in names], dtype=np.int64)
    last = b"".join(name[-4:] for name in ends)
    return words, sizes, np.frombuffer(last, np.uint32).copy()  # aligned


def _library() -> ctypes.CDLL:
    """Open the library; if the package is in a zip, as on executors of Spark, from a temporary file."""
    if LIBRARY.parent.is_dir():
        return ctypes.CDLL(str(LIBRARY))
    from importlib.resources import as_file, files

    with as_file(files("rmqstore.scan") / LIBRARY.name) as extracted:
        return ctypes.CDLL(str(extracted))


@cache
def load() -> Native:
    """Load the library. Errors: CouldNotCheck if it is missing or from another version."""
    try:
        library = _library()
        library.rmqstore_abi.restype = ctypes.c_int64
        if library.rmqstore_abi() != ABI:
            raise OSError(Text("it is from another version of rmqstore"))
    except (OSError, AttributeError) as e:
        why = Text("the compiled part of rmqstore cannot be loaded: {why}", why=reason(e))
        raise CouldNotCheck(why, advice=Text("install rmqstore again; in a clone: make install")) from e
    own = ctypes.cast(library.rmqstore_crc32, ctypes.c_void_p).value
    assert own is not None
    return _with_crcs_of_zlib_ng(library) or Native(library, own)


def _with_crcs_of_zlib_ng(library: ctypes.CDLL) -> Native | None:
    """Use zlib-ng's CRC function, whose symbol its wheel exports but does not promise, after a check against zlib."""
    try:
        from zlib_ng import zlib_ng

        address = ctypes.cast(getattr(ctypes.CDLL(zlib_ng.__file__), CRC32), ctypes.c_void_p).value
    except (ImportError, OSError, AttributeError):
        return None
    if address is None:
        return None
    native = Native(library, address)
    sample = bytearray(b"123456789" * 40)
    starts, stops = np.array([0, 9, 0], dtype=np.int64), np.array([9, 9, 360], dtype=np.int64)
    expected = [zlib.crc32(sample[a:b]) & 0x7FFFFFFF for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    return native if native.body_crcs(sample, starts, stops).tolist() == expected else None


I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
Bool = npt.NDArray[np.bool_]
