"""Text on a terminal: control characters, counts in words, width.

Control characters (C0, DEL and C1, U+0080 to U+009F) are escaped, because terminals may act on them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from rmqstore.texts import many as many

CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
"""Code points of all control characters."""
LAYOUT = b"\t\n\r"
"""Control characters that are allowed in text."""

_LEFT_BY_JSON = re.compile(rb"\x7f|\xc2[\x80-\x9f]")  # in UTF-8 the byte C2 always starts a character
_WORDS = re.compile(  # what a line keeps together: a word or a wide character, with its brackets and punctuation
    r"\s+|[（“「『《(]*(?:[\u2e80-\u9fff\uff00-\uffef]|(?:`[^`]*`|[^\s\u2e80-\u9fff\uff00-\uffef])+)"
    r"[，。；：、）！？”’」』》…,.;:)]*"
)
_CSV = {code: f"\\u{code:04x}" for code in CONTROLS if code not in LAYOUT}


def escape_json(text: bytes) -> bytes:
    """Escape DEL and C1 characters, which JSON allows unescaped, in a JSON text (UTF-8)."""
    return _LEFT_BY_JSON.sub(_escape, text) if b"\xc2" in text or b"\x7f" in text else text


def has_unescaped(text: bytes) -> bool:
    """Return whether `escape_json` would change a text."""
    return (b"\xc2" in text or b"\x7f" in text) and _LEFT_BY_JSON.search(text) is not None


def escape_csv(text: str) -> str:
    r"""Escape control characters other than tab, LF and CR as \uXXXX, for CSV.

    CSV has no escapes of its own, so this loses information; the properties column, which is JSON, has the exact value.
    """
    return text if text.isprintable() else text.translate(_CSV)


def _escape(found: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(found[0].decode())


def columns(text: str) -> int:
    """Return the columns that a text needs on a terminal; wide characters need two."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def broken(text: str, width: int, first: str = "", then: str = "") -> Iterator[str]:
    """Yield a text in lines of at most `width` columns, with the indents `first` and `then`.

    A line is broken at spaces and between wide characters. Longer words, and commands in backticks, stay whole.
    """
    line, empty = first, True
    for word in _WORDS.findall(text):
        if word.isspace():
            line += " " * len(word)
            continue
        if not empty and columns(line + word) > width:
            yield line.rstrip()
            line = then
        line += word
        empty = False
    if not empty:
        yield line.rstrip()
