"""Times, sizes and offsets as people write them: `1763712000`, `2026-11-21T08:00`, `-2h`, `today 10:00`; `64M`."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime, tzinfo

import click

from rmqstore.formats.text import times
from rmqstore.formats.text.counts import many as many

UTC_KEY = "rmqstore.utc"
"""Where a click context keeps --utc."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(?:i?b)?", re.IGNORECASE)
_GROUPED = re.compile(r"[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+(?:_[0-9]+)+")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|s|m|h|d)?")


def zone() -> tzinfo | None:
    """The zone of times without one, typed or shown: UTC with --utc, else None, which is the system's."""
    context = click.get_current_context(silent=True)
    return UTC if context is not None and context.meta.get(UTC_KEY) else None


def parse_time(text: str, now: float | None = None) -> int:
    """Epoch ms of a time as people write it; without a zone it is local, or UTC with --utc.

    Errors: ValueError, with the reason; also for a text with two meanings
    """
    return times.parse_time(text, now, zone())


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
    return float(match[1]) * times.UNITS[match[2] or "s"] / 1000


class Time(click.ParamType[int]):
    """A time option; the value is epoch ms."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_time(str(value))
        except (ValueError, OverflowError, OSError) as error:
            reason = str(error) if isinstance(error, ValueError) and ": " in str(error) else ""
            if not reason or reason.startswith("Invalid isoformat"):
                reason = f"{value!r} is not a time: give 2026-11-21T08:00, -2h, today, 'yesterday 10:00' or epoch ms"
            self.fail(reason, param, ctx)


class Size(click.ParamType[int]):
    """A size option; the value is bytes."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_size(str(value))
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a size: give bytes, or a number with k, M, G or T", param, ctx)


class Span(click.ParamType[float]):
    """A duration option; the value is seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        try:
            return parse_span(str(value))
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a duration: give seconds, or 10m, 1.5h", param, ctx)


class Offset(click.ParamType[int]):
    """An offset option: a number from 0 on, also with the separators that tables show (`180,887`)."""

    name = "offset"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value)
        if not _GROUPED.fullmatch(text):
            self.fail(f"{text!r} is not an offset: give a number, such as 180887 or 180,887", param, ctx)
        return int(text.replace(",", "").replace("_", ""))


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
    """A store time for people, to the second, with its zone: local, or UTC with --utc. Other numbers stay numbers."""
    if ms <= 0:
        return "never" if ms == 0 else str(ms)
    try:
        when = datetime.fromtimestamp(ms / 1000, UTC)
        when = when if zone() is UTC else when.astimezone()
    except (OverflowError, OSError, ValueError):
        return str(ms)
    return f"{when:%Y-%m-%d %H:%M:%S} {when.isoformat()[-6:] if when.utcoffset() else 'UTC'}"


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


_WORDS = {
    "not-an-offset": "the name is not an offset",
    "wrong-length": "wrong length",
    "empty": "empty",
    "duplicate": "another file starts at the same offset",
    "misaligned": "the offset is not a multiple of the file size",
    "special": "not a regular file, or a broken link",
    "unreadable": "cannot be read",
    "no-directory": "a file in the place of a directory",
    "hole": "the file is missing",
    "zero": "zeros",
    "blank": "a BLANK that hides messages",
    "short": "too few bytes for a record",
    "magic": "no record starts there",
    "size": "impossible record size",
    "lengths": "the parts of the record do not add up to its size",
    "physical offset": "a record from another offset",
    "body crc": "the body does not match its CRC",
    "record crc": "the record does not match its CRC",
    "topic": "invalid topic",
    "properties": "invalid properties",
    "entry magic": "no DLedger entry starts there",
    "entry size": "impossible DLedger entry size",
    "entry pos": "a DLedger entry from another offset",
    "entry index": "the DLedger index is out of order",
    "entry term": "the DLedger term is out of order",
}


def in_words(name: str) -> str:
    """The reason why an entry is odd, or why bytes are not a record; JSON has one word for it."""
    return _WORDS.get(name.replace("_", " "), name)
