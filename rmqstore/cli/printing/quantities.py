"""Parses and formats times, sizes and offsets: `1763712000`, `2026-11-21T08:00`, `-2h`, `today 10:00`, `64M`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, tzinfo
from typing import Any

import click

from rmqstore.cli import lang
from rmqstore.cli.lang import AsIs
from rmqstore.errors import reason
from rmqstore.formats import times
from rmqstore.formats.text import broken
from rmqstore.formats.text import columns as columns
from rmqstore.formats.text import many as many
from rmqstore.texts import Text

UTC_KEY = "rmqstore.utc"
"""Key of --utc in the `meta` of a click context."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(?:i?b)?", re.IGNORECASE)
_GROUPED = re.compile(r"[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+(?:_[0-9]+)+")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|s|m|h|d)?")


def zone() -> tzinfo | None:
    """Return the time zone for input and output: UTC with --utc, else None, the local one."""
    context = click.get_current_context(silent=True)
    return UTC if context is not None and context.meta.get(UTC_KEY) else None


def parse_time(text: str, now: float | None = None) -> int:
    """Parse a time into epoch ms; without a zone it is local, or UTC with --utc.

    Errors: ValueError with the reason, also for an ambiguous text.
    """
    return times.parse_time(text, now, zone())


def parse_size(text: str) -> int:
    """Parse a size into bytes; k, M, G, T, P are powers of 1024. Errors: ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return int(float(match[1]) * 1024 ** " kmgtp".index((match[2] or " ").lower()))


def parse_span(text: str) -> float:
    """Parse a duration such as `30s`, `10m`, `1.5h` into seconds, the default unit. Errors: ValueError."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return float(match[1]) * times.UNITS[match[2] or "s"] / 1000


def parse_offset(text: str) -> int:
    """Parse an offset, with or without separators. Errors: ValueError."""
    if not _GROUPED.fullmatch(text):
        raise ValueError(text)
    return int(text.replace(",", "").replace("_", ""))


def parse_directory_mode(text: str) -> int:
    """Parse the mode of directories, which the owner can use and not all users can change. Errors: ValueError."""
    return _parse_mode(text, 0o700, 0o775)


def parse_page_mode(text: str) -> int:
    """Parse the mode of a page, which only the owner can change. Errors: ValueError."""
    return _parse_mode(text, 0o600, 0o644)


def _parse_mode(text: str, least: int, most: int) -> int:
    if not re.fullmatch("0?[0-7]{3}", text):
        raise ValueError(text)
    mode = int(text, 8)
    if mode & least != least or mode & ~most:
        raise ValueError(text)
    return mode


class Quantity(click.ParamType[Any]):
    """Type of an option whose text `parse` turns into a number; `expected` completes the error."""

    def __init__(self, name: str, parse: Callable[[str], object], expected: Text) -> None:
        self.name, self._parse, self._expected = name, parse, expected

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, int | float):
            return value
        try:
            return self._parse(str(value))
        except (ValueError, OverflowError, OSError) as error:
            self.fail(self.reason(str(value), error), param, ctx)

    def reason(self, text: str, error: Exception) -> str:
        """Return why a text cannot be parsed: a text of ours says more than those of Python."""
        if error.args and isinstance(error.args[0], Text):
            return reason(error)
        return Text("{text!r} is not {expected}", text=text, expected=self._expected)


TIME = Quantity("time", parse_time, Text("a time: give 2026-11-21T08:00, -2h, today, 'yesterday 10:00' or epoch ms"))
"""In epoch ms."""
SIZE = Quantity("size", parse_size, Text("a size: give bytes, or a number with k, M, G or T"))
"""In bytes."""
DURATION = Quantity("duration", parse_span, Text("a duration: give seconds, or 10m, 1.5h"))
"""In seconds."""
OFFSET = Quantity("offset", parse_offset, Text("an offset: give a number, such as 180887 or 180,887"))
"""Tables print offsets with separators, so an option accepts them."""
MODE = Quantity("mode", parse_directory_mode, Text("a mode from 700 to 775, which the owner can use, such as 750"))
PAGE_MODE = Quantity("mode", parse_page_mode, Text("a mode from 600 to 644, such as 640 or 644"))


def bytes_text(count: float) -> str:
    """Format a size: `64.0 KiB`; exact below 10 kB."""
    if abs(count) < 10_000:
        return f"{int(count):,} B"
    units = ("KiB", "MiB", "GiB", "TiB")
    power = 0
    while True:
        count /= 1024
        if abs(count) < 1000 or power == len(units) - 1:
            return f"{count:,.1f} {units[power]}"
        power += 1


def time_text(ms: int, *, exact: bool = False) -> str:
    """Format epoch ms to the second (`exact`: to the ms), with a zone: local, or UTC with --utc.

    Numbers out of range stay numbers.
    """
    if ms <= 0:
        return "never" if ms == 0 else str(ms)
    try:
        when = datetime.fromtimestamp(ms / 1000, UTC)
        when = when if zone() is UTC else when.astimezone()
    except (OverflowError, OSError, ValueError):
        return str(ms)
    part = f".{ms % 1000:03}" if exact else ""
    return f"{when:%Y-%m-%d %H:%M:%S}{part} {when.isoformat()[-6:] if when.utcoffset() else 'UTC'}"


def queue_time_text(ms: int) -> str:
    """Format the checkpoint's time of the queues; a broker of 5.5 that lived less than a minute leaves none."""
    return time_text(ms) if ms else Text("none (5.5 writes it every minute, with queues in files)")


def utc_text(ms: int) -> str:
    """Format epoch ms in UTC, to the minute if it is a full one; a time out of range stays a number."""
    try:
        when = times.utc(ms)
    except OverflowError:
        return str(ms)
    return f"{when:%Y-%m-%d %H:%M}" if ms % 60_000 == 0 else f"{when:%Y-%m-%d %H:%M:%S}"


def step_text(ms: int, *, counted: bool = False) -> str:
    """Format the length of a step of time: `hour` (`counted`: `1 hour`), `6 hours`, `5 minutes`, `day`."""
    units = {
        86_400_000: (Text("day"), many(ms // 86_400_000, "day")),
        3_600_000: (Text("hour"), many(ms // 3_600_000, "hour")),
        60_000: (Text("minute"), many(ms // 60_000, "minute")),
        1000: (Text("second"), many(ms // 1000, "second")),
    }
    length = next((length for length in units if ms % length == 0), 1000)
    one, number = units[length]
    return one if ms == length and not counted else number


def title(text: str, width: int = 0) -> str:
    """Return the title of a column in the language of the user, aligned to the right."""
    text = lang.translated(text)
    return " " * (width - columns(text)) + text


def printable(text: str) -> str:
    """Replace characters that cannot be printed by dots."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "·" for c in text)


def fitted(text: str, width: int) -> str:
    """Pad a text to `width` columns, or shorten it with an ellipsis."""
    if columns(text) > width:
        while text and columns(text) > width - 1:
            text = text[:-1]
        text += "…"
    return text + " " * (width - columns(text))


def table_line(cells: Iterable[str], widths: Iterable[int]) -> AsIs:
    """Return a line of a table, with cells of these widths; a negative one aligns to the right."""
    pairs = zip(cells, widths, strict=True)
    return AsIs(" ".join(fitted(cell, w) if w > 0 else f"{' ' * (-w - columns(cell))}{cell}" for cell, w in pairs))


def wrapped(text: str, width: int, first: str = "", then: str = "") -> list[str]:
    """Translate a text and break it into lines of `width` columns, with the indents `first` and `then`.

    Long words such as paths stay whole, and so do commands in backticks: a broken one cannot be pasted. The lines are
    not translated again.
    """
    return [AsIs(line) for line in broken(lang.translated(text), width, first, then)]


KINDS = {
    "plain": Text("plain store"),
    "dledger": Text("DLedger store"),
    "mixed": Text("mixed store (plain commitlog, continued by DLedger)"),
    "rocksdb": Text("store with consume queues in RocksDB"),
    "part": Text("part of a store"),
}
"""Kinds of stores in words."""
_WORDS = {
    "not-an-offset": Text("the name is not an offset"),
    "wrong-length": Text("wrong length"),
    "empty": Text("empty"),
    "duplicate": Text("another file starts at the same offset"),
    "misaligned": Text("the offset is not a multiple of the file size"),
    "special": Text("not a regular file, or a broken link"),
    "unreadable": Text("cannot be read"),
    "no-directory": Text("a file in the place of a directory"),
    "hole": Text("the file is missing"),
    "zero": Text("zeros"),
    "blank": Text("a BLANK that hides messages"),
    "short": Text("too few bytes for a record"),
    "magic": Text("no record starts there"),
    "size": Text("impossible record size"),
    "lengths": Text("the parts of the record do not add up to its size"),
    "physical offset": Text("a record from another offset"),
    "body crc": Text("the body does not match its CRC"),
    "record crc": Text("the record does not match its CRC"),
    "topic": Text("invalid topic"),
    "properties": Text("invalid properties"),
    "entry magic": Text("no DLedger entry starts there"),
    "entry size": Text("impossible DLedger entry size"),
    "entry pos": Text("a DLedger entry from another offset"),
    "entry index": Text("the DLedger index is out of order"),
    "entry term": Text("the DLedger term is out of order"),
}


def in_words(name: str) -> str:
    """Describe why an entry does not belong, or why bytes are not a record; JSON has only the keyword."""
    return _WORDS.get(name.replace("_", " "), name)


_HOUR, _DAY = 3_600_000, 86_400_000  # ms


def span_words(ms: int) -> str:
    """Format a length of time: `3.2 days`, `5 hours`, `12 minutes`."""
    if ms >= 2 * _DAY:
        return Text("{ms:.1f} days", ms=ms / _DAY)
    if ms >= 2 * _HOUR:
        return many(round(ms / _HOUR), "hour")
    return many(max(1, round(ms / 60_000)), "minute") if ms >= 60_000 else many(max(1, round(ms / 1000)), "second")
