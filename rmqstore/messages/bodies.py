"""The bodies of a chunk, as stored or decompressed, and which of them are text."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from rmqstore.formats.bodies import BodyError, decompress
from rmqstore.formats.message import COMPRESSED, COMPRESSION_TYPE_MASK
from rmqstore.messages.cells import Spans
from rmqstore.scan import native
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, U8, Bool
from rmqstore.scan.properties import not_utf8

CONTROL, WIDE, DELETE, INVALID, C1 = 1, 2, 4, 8, 16
_COMPRESSION = COMPRESSED | COMPRESSION_TYPE_MASK
_C1 = re.compile(rb"\xc2[\x80-\x9f]")
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")


class Bodies(NamedTuple):
    """Bodies, the mask of those that were decompressed (None: none), and by index, why others could not be."""

    spans: Spans
    unpacked: Bool | None
    errors: dict[int, str]

    def sys_flags(self, flags: I64) -> I64:
        """Return the SYSFLAG of each record, without the compression bits of decompressed bodies."""
        return flags if self.unpacked is None else np.where(self.unpacked, flags & ~_COMPRESSION, flags)


def bodies_of(columns: Columns, *, stored: bool = False) -> Bodies:
    """Return the bodies of all records, decompressed unless `stored`, or if that is impossible, as stored."""
    starts = columns.body_at
    stops = starts + np.maximum(columns.body_length, 0)
    flags = columns.sys_flag
    packed = np.flatnonzero(flags & (0 if stored else COMPRESSED))
    if not len(packed):
        return Bodies(Spans(columns.buf, starts, stops), None, {})
    source, at = [columns.buf.tobytes()], len(columns.buf)
    starts, unpacked = starts.copy(), np.zeros(len(columns), dtype=np.bool_)
    errors: dict[int, str] = {}
    for i in packed.tolist():
        try:
            body = decompress(int(flags[i]), source[0][int(starts[i]) : int(stops[i])])
        except BodyError as error:
            errors[i] = str(error)
            continue
        source.append(body)
        starts[i], stops[i], unpacked[i] = at, at + len(body), True
        at += len(body)
    return Bodies(Spans(np.frombuffer(b"".join(source), dtype=np.uint8), starts, stops), unpacked, errors)


def contents(texts: Spans) -> U8:
    """Return what each text contains, as a sum of flags.

    CONTROL: control characters except tabs and line ends; DELETE: 0x7F; WIDE: bytes from 0x80 on; C1: control
    characters U+0080 to U+009F; INVALID: not UTF-8.
    Shape: (n,)
    """
    loops = native.load()
    if loops is not None:
        marks = loops.contents(texts.source, texts.starts, texts.stops)
        wide = np.flatnonzero(marks & WIDE)
        if len(wide):
            found = texts.take(wide).raw()
            marks[wide] |= np.array(not_utf8(found)) * np.uint8(INVALID)
            marks[wide] |= np.array([bool(_C1.search(text)) for text in found]) * np.uint8(C1)
        return marks
    found = texts.raw()
    marks = np.zeros(len(found), dtype=np.uint8)
    for i, (text, invalid) in enumerate(zip(found, not_utf8(found), strict=True)):
        marks[i] = CONTROL * bool(_CONTROLS.search(text)) | WIDE * (not text.isascii())
        marks[i] |= DELETE * (b"\x7f" in text) | INVALID * invalid | C1 * bool(_C1.search(text))
    return marks
