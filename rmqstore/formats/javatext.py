"""Java's text functions: UTF-8 decoding, String.hashCode and split, Integer.parseInt, Long.parseLong, Properties.load.

They follow Java exactly where Python differs, because the broker's behavior depends on it.
"""

from __future__ import annotations

import re
import sys
from operator import mul
from typing import NamedTuple

from rmqstore.texts import Text

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1

_UTF16 = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_POWERS = [pow(31, n, 1 << 32) for n in reversed(range(256))]
_MOST_DIGITS = 100
_DECIMAL = re.compile(r"[+-]?\d+")


def java_text(data: bytes) -> str:
    """Decode UTF-8 like `new String(data, UTF_8)`: invalid bytes become U+FFFD, an encoded surrogate a single one.

    Source: sun.nio.cs.UTF_8 (JDK 8 to 21)
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        # Python writes a replacement character for each byte of an encoded surrogate
        return _ENCODED_SURROGATE.sub(b"\xef\xbf\xbd", data).decode("utf-8", "replace")


def java_string_hash(text: str) -> int:
    """Compute String.hashCode: h = 31 h + c over the UTF-16 code units, as a signed 32-bit number."""
    units: bytes | memoryview[int]
    units = text.encode() if text.isascii() else memoryview(text.encode(_UTF16, "surrogatepass")).cast("H")
    h = 0
    # whole slices of units times powers of 31, instead of Horner's rule in a Python loop
    for at in range(0, len(units), len(_POWERS)):
        piece = units[at : at + len(_POWERS)]
        powers = _POWERS[len(_POWERS) - len(piece) :]
        shifted = h * pow(31, len(piece), 1 << 32) if h else 0
        h = (shifted + sum(map(mul, piece, powers))) & 0xFFFFFFFF
    return h - (1 << 32) if h >= 1 << 31 else h


def _parse(text: str, low: int, high: int) -> int | None:
    # int() also accepts whitespace, underscores and digits beyond the BMP
    if not _DECIMAL.fullmatch(text) or max(text) > "\uffff":
        return None
    if len(text) > _MOST_DIGITS:  # int() rejects very many digits, also zeros at the start
        digits = text.lstrip("+-")
        first = next((i for i, digit in enumerate(digits) if int(digit)), len(digits) - 1)
        text = ("-" if text[0] == "-" else "") + digits[first:]
    value = int(text) if len(text) <= _MOST_DIGITS else high + 1
    return value if low <= value <= high else None


def as_int(value: int) -> int:
    """Return the Java int that a calculation gives, which overflows."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def parse_short(text: str) -> int | None:
    """Parse like Short.parseShort; None where Java throws NumberFormatException."""
    return _parse(text, -(1 << 15), (1 << 15) - 1)


def parse_int(text: str) -> int | None:
    """Parse like Integer.parseInt; None where Java throws NumberFormatException."""
    return _parse(text, INT_MIN, INT_MAX)


def parse_long(text: str) -> int | None:
    """Parse like Long.parseLong; None where Java throws NumberFormatException."""
    return _parse(text, LONG_MIN, LONG_MAX)


_JAVA_BLANKS = "".join(map(chr, range(0x21)))


def java_trim(text: str) -> str:
    """Remove the characters up to U+0020 at both ends, like String.trim."""
    return text.strip(_JAVA_BLANKS)


def java_split(text: str, separator: str) -> list[str]:
    """Split like String.split with a literal separator: drops empty parts at the end, and splits "" into [""]."""
    if not text:
        return [""]
    parts = text.split(separator)
    while parts and not parts[-1]:
        parts.pop()
    return parts


def _unescape(text: str) -> str | None:
    r"""Resolve escapes; None for a \u without four hex digits, on which Properties.load throws.

    Two escapes that are a surrogate pair are one character; a single surrogate stays one.
    """
    if "\\" not in text:
        return text
    chars: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\" or at == len(text):
            if char != "\\":
                chars.append(char)
            continue
        char = text[at]
        at += 1
        if char == "u":
            digits = text[at : at + 4]
            if len(digits) < 4 or not all(d in "0123456789abcdefABCDEF" for d in digits):
                return None
            chars.append(chr(int(digits, 16)))
            at += 4
        else:
            chars.append({"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(char, char))
    units = "".join(chars).encode(_UTF16, "surrogatepass")
    return units.decode(_UTF16, "surrogatepass")


def java_path(text: str) -> str:
    """Return the path that Java opens for a text where names are in UTF-8: a single surrogate is a question mark.

    Source: JNU_GetStringPlatformChars (JDK 17)
    """
    return text.encode("utf-8", "replace").decode("utf-8")


def _odd_backslashes(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


class PropertyLine(NamedTuple):
    r"""A key and its value, and the number of the line where the key begins; `key` None: a broken \u escape."""

    number: int
    key: str | None
    value: str


def java_property_lines(text: str) -> list[PropertyLine]:
    """Parse key-value lines like java.util.Properties#load (JDK 17), in order, with all lines of a key.

    `text` is decoded as ISO-8859-1. `load` throws at the first line without a key, and the lines before it count.
    """
    found: list[PropertyLine] = []
    logical, first = "", 0
    lines = re.split(r"\r\n|\n|\r", text)
    for number, line in enumerate(lines, 1):
        line = line.lstrip(" \t\f")
        if not logical:
            first = number
            if not line or line[0] in "#!":
                continue
        if _odd_backslashes(line):
            logical += line[:-1]
            if number < len(lines):
                continue
        else:
            logical += line
        at = 0
        while at < len(logical) and logical[at] not in "=: \t\f":
            at += 2 if logical[at] == "\\" else 1
        key, rest = logical[:at], logical[at:].lstrip(" \t\f")
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(" \t\f")
        logical = ""
        name, value = _unescape(key), _unescape(rest)
        broken = name is None or value is None
        found.append(PropertyLine(first, None if broken else name, value or ""))
    return found


def parse_java_properties(text: str) -> tuple[dict[str, str], list[str]]:
    r"""Parse key-value lines like java.util.Properties#load; the second part lists faults on which it throws.

    The last line for a key wins. Lines with a broken \u escape are skipped and listed as faults.
    """
    lines = java_property_lines(text)
    faults: list[str] = [broken_escape(line.number) for line in lines if line.key is None]
    return {line.key: line.value for line in lines if line.key is not None}, faults


def broken_escape(number: int) -> str:
    r"""Return the fault of a line with a broken \u escape in words."""
    return Text("line {number}: broken \\u escape", number=number)
