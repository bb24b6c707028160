"""Text on a terminal: control characters, counts in words, width.

Control characters (C0, DEL and C1, U+0080 to U+009F) are escaped, because terminals may act on them. Marks that nobody
sees are escaped as well: those of direction show a text in another order than it is read and copied, and those without
a width make two different names look the same.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

from rmqstore.texts import many as many

INVISIBLE = (0x061C, *range(0x200B, 0x2010), *range(0x202A, 0x202F), 0x2060, *range(0x2066, 0x206A), 0xFEFF)
"""Code points of marks of direction (Bidi_Control, Unicode 15) and of those without a width."""
CONTROLS = (*range(0x20), *range(0x7F, 0xA0), *INVISIBLE)
"""Code points of all characters that are never shown as they are."""
LAYOUT = "\t\n\r"
"""Control characters that are allowed in text."""

DOT = "·"
"""What a terminal and a page show in the place of such a character."""
_WORDS = re.compile(  # what a line keeps together: a word or a wide character, with its brackets and punctuation
    r"\s+|[（“「『《(]*(?:[\u2e80-\u9fff\uff00-\uffef]|(?:`[^`]*`|[^\s\u2e80-\u9fff\uff00-\uffef])+)"
    r"[，。；：、）！？”’」』》…,.;:)]*"
)
_CSV = {code: f"\\u{code:04x}" for code in CONTROLS if chr(code) not in LAYOUT}
_LINES = {code: DOT for code in CONTROLS if chr(code) not in "\t\n"}


def pattern_of(codes: Iterable[int]) -> re.Pattern[bytes]:
    """Return a pattern for characters in UTF-8, in which a lead byte is never a part of another character."""
    last: dict[bytes, list[bytes]] = {}
    for code in codes:
        text = chr(code).encode()
        last.setdefault(text[:-1], []).append(text[-1:])
    ends = ((re.escape(first), b"".join(map(re.escape, found))) for first, found in last.items())
    return re.compile(b"|".join(first + b"[" + found + b"]" for first, found in ends))


_LEFT_BY_JSON = pattern_of(code for code in CONTROLS if code >= 0x7F)
_LEFT_BY_LINES = pattern_of(_LINES)


def harmless(text: str) -> str:
    """Return a text with dots in the place of control characters other than tab and newline."""
    return text if text.isascii() and text.isprintable() else text.translate(_LINES)


def harmless_bytes(text: bytes) -> bytes:
    """Return a text in UTF-8 as `harmless` does."""
    return _LEFT_BY_LINES.sub(DOT.encode(), text)


def escape_json(text: bytes) -> bytes:
    """Escape DEL, C1 and invisible characters, which JSON allows unescaped, in a JSON text (UTF-8)."""
    return text if text.isascii() and b"\x7f" not in text else _LEFT_BY_JSON.sub(_escape, text)


def has_unescaped(text: bytes) -> bool:
    """Return whether `escape_json` would change a text."""
    return _LEFT_BY_JSON.search(text) is not None


def escape_csv(text: str) -> str:
    r"""Escape control characters other than tab, LF and CR as \uXXXX, for CSV.

    CSV has no escapes of its own, so this loses information; the properties column, which is JSON, has the exact value.
    """
    return text if text.isprintable() else text.translate(_CSV)


_RUN = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")


def not_run(text: str) -> str:
    """Return a text for a cell of a table for people: with a ' before it if a spreadsheet would run it as a formula.

    These are texts that begin with =, +, -, @ (also with their wide forms), a tab, CR or LF, except plain numbers. A
    text that begins with ' and one of these gets a ' too, so that `as_written` finds the text again.
    """
    return f"'{text}" if _RUN.match(text) and not _NUMBER.fullmatch(text) else text


def as_written(cell: str) -> str:
    """Return the text of a cell that `not_run` made."""
    return cell[1:] if cell[:1] == "'" and _RUN.match(cell) else cell


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
