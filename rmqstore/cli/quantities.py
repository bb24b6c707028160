"""Times and sizes as people write them: `1763712000000`, `2026-11-21T08:00`, `-2h`, `today`; `64M`."""

from __future__ import annotations

import re
import time
import unicodedata
from datetime import datetime, timedelta

import click

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGO = re.compile(r"-\s*(\d+(?:\.\d+)?)\s*(ms|min|s|m|h|d|w)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(?:i?b)?", re.IGNORECASE)
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|s|m|h|d)?")


def parse_time(text: str, now: float | None = None) -> int:
    """Epoch ms of a time.

    ISO-8601 without a zone is local time; `today`, `yesterday` start at local midnight; `-2h` is that long ago.
    `now` is in seconds (default: the clock).
    Errors: ValueError
    """
    text = text.strip()
    if text.isascii() and text.isdigit():
        return int(text)
    now = time.time() if now is None else now
    ago = _AGO.fullmatch(text)
    if ago:
        return round(now * 1000 - float(ago[1]) * _UNITS[ago[2]])
    midnight = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
    match text.lower():
        case "now":
            return round(now * 1000)
        case "today":
            return round(midnight.timestamp() * 1000)
        case "yesterday":
            return round((midnight - timedelta(days=1)).timestamp() * 1000)
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def parse_size(text: str) -> int:
    """Bytes of a size; k, M, G, T, P are powers of 1024.

    Errors: ValueError
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return int(float(match[1]) * 1024 ** " kmgtp".index((match[2] or " ").lower()))


def parse_span(text: str) -> float:
    """Seconds of a duration such as `30s`, `10m`, `1.5h`; a bare number is seconds.

    Errors: ValueError
    """
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return float(match[1]) * _UNITS[match[2] or "s"] / 1000


class Time(click.ParamType[int]):
    """A time option; the value is epoch ms."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_time(str(value))
        except (ValueError, OverflowError, OSError):
            self.fail(f"{value!r} is no time: give epoch ms, ISO-8601, -2h, today or yesterday", param, ctx)


class Size(click.ParamType[int]):
    """A size option; the value is bytes."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_size(str(value))
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no size: give bytes, or a number with k, M, G or T", param, ctx)


class Span(click.ParamType[float]):
    """A duration option; the value is seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        try:
            return parse_span(str(value))
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no duration: give seconds, or 10m, 1.5h", param, ctx)


def bytes_text(count: float) -> str:
    """A size for people: `64.0 KiB`; exact below 10 kB."""
    if abs(count) < 10_000:
        return f"{int(count):,} B"
    units = ("KiB", "MiB", "GiB", "TiB")
    power = 0
    while True:
        count /= 1024
        if abs(count) < 1000 or power == len(units) - 1:
            return f"{count:,.1f} {units[power]}"
        power += 1


def time_text(ms: int) -> str:
    """A store time for people, local, to the second; numbers that are no time as they are."""
    if ms <= 0:
        return "never" if ms == 0 else str(ms)
    try:
        return datetime.fromtimestamp(ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return str(ms)


def columns(text: str) -> int:
    """Terminal columns that a text takes: wide characters take two."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def fitted(text: str, width: int) -> str:
    """A text in exactly so many columns: padded, or cut with an ellipsis."""
    if columns(text) > width:
        while text and columns(text) > width - 1:
            text = text[:-1]
        text += "…"
    return text + " " * (width - columns(text))


def many(count: int, word: str, plural: str = "") -> str:
    """`1 message`, `225 messages`, `7 queues`."""
    return f"{count:,} {word if count == 1 else plural or word + 's'}"


_WORDS = {
    "not-an-offset": "its name is no offset",
    "wrong-length": "of the wrong length",
    "empty": "of 0 bytes",
    "duplicate": "the same name in two paths",
    "misaligned": "its offset is no multiple of the file size",
    "special": "no plain file, or a link that leads nowhere",
    "unreadable": "cannot be read",
    "no-directory": "a file where a directory belongs",
    "hole": "the file is missing",
    "zero": "zeros",
    "short": "too few bytes for a record",
    "magic": "no record begins there",
    "size": "a record's size that cannot be",
    "lengths": "a record whose parts do not add up",
    "physical offset": "a record of another place",
}


def in_words(name: str) -> str:
    """What JSON has one word for: why an entry is odd, or why bytes are no record."""
    return _WORDS.get(name.replace("_", " "), name)
