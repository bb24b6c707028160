"""Parses the options of Spark loads, which are all text."""

from __future__ import annotations

from collections.abc import Mapping

from rmqstore.errors import UsageError
from rmqstore.texts import Text
from rmqstore.views.dump.selection import Selection

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_SCALE = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    """Parse true or false. Errors: UsageError"""
    value = options.get(name, "").strip().lower()
    if not value:
        return default
    if value in _TRUE or value in _FALSE:
        return value in _TRUE
    raise UsageError(Text("{name}={value} is neither true nor false", name=name, value=value))


def number(options: Mapping[str, str], name: str, default: int) -> int:
    """Parse a whole number. Errors: UsageError"""
    value = options.get(name, "").strip()
    try:
        return int(value) if value else default
    except ValueError:
        raise UsageError(Text("{name}={value} is not a number", name=name, value=value)) from None


def offset(options: Mapping[str, str], name: str) -> int | None:
    """Parse a whole number; None if the option is not given. Errors: UsageError"""
    return number(options, name, 0) if options.get(name, "").strip() else None


def size_of(options: Mapping[str, str], name: str, default: int) -> int:
    """Parse a size such as 65536, 64k, 256m or 1g into bytes. Errors: UsageError"""
    value = options.get(name, "").strip().lower().removesuffix("ib").removesuffix("b")
    if not value:
        return default
    digits, scale = (value[:-1], value[-1]) if value[-1] in _SCALE else (value, "")
    try:
        out = int(digits) * _SCALE[scale]
    except ValueError:
        raise UsageError(Text("{name}={options} is not a size", name=name, options=options[name])) from None
    if out < 0:
        raise UsageError(Text("{name}={options} is negative", name=name, options=options[name]))
    return out


def words(options: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Parse comma-separated names."""
    return tuple(w.strip() for w in options.get(name, "").split(",") if w.strip())


def selection_of(options: Mapping[str, str]) -> Selection:
    """Parse the filters topics, queues (ids or TOPIC/ID), since and until (ms), from and to (offsets).

    Errors: UsageError
    """
    ids, pairs = set(), set()
    for text in words(options, "queues"):
        topic, slash, digits = text.rpartition("/")
        if not digits.isdigit() or (slash and not topic):
            raise UsageError(Text("queues={text} is neither a queue id nor TOPIC/ID", text=text))
        if slash:
            pairs.add((topic, int(digits)))
        else:
            ids.add(int(digits))
    return Selection(
        topics=frozenset((*words(options, "topics"), *words(options, "topic"))),
        queue_ids=frozenset(ids),
        queues=frozenset(pairs),
        since=offset(options, "since"),
        until=offset(options, "until"),
        start=offset(options, "from"),
        stop=offset(options, "to"),
    )
