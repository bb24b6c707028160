"""The catalogue at work: a text in Chinese."""

from __future__ import annotations

import re
import string
from functools import cache

from rmqstore.cli.lang.catalogue import read
from rmqstore.errors import reason
from rmqstore.formats.text import columns
from rmqstore.texts import Joined, Placed, Text

_TIGHT = frozenset(" .（）()[]，。；：、“”《》！？…")
"""Characters that have no space beside them, also between a Chinese character and a letter."""
_PUNCTUATION = {
    ": ": "：",
    ", ": "，",
    "; ": "；",
    " (": "（",
    ")": "）",
    " and ": "和",
    " or ": "或",
    ", and ": "，并且",
    ". ": "。",
    ".": "。",
}
_BETWEEN = re.compile("|".join([r"\.$", *map(re.escape, sorted(_PUNCTUATION.keys() - {"."}, key=len, reverse=True))]))
_WIDE = re.compile(r"[\u2e80-\u9fff\uff00-\uffef]")


def in_chinese(text: str) -> str:
    """Return a text in Chinese; names, and other strings that are no texts, stay as they are."""
    if isinstance(text, Placed):
        return _laid_out(text)
    if isinstance(text, Joined):
        return _list(text)
    if not isinstance(text, Text) or (template := _texts().get(text.template)) is None:
        return text
    return _filled(template, text) if text.values else template


def spaced(left: str, right: str) -> str:
    """Join two texts, with a space between a Chinese character and a letter or digit."""
    if not left or not right:
        return f"{left}{right}"
    if left[-1] == " " and _is_han(left[-2:-1]) and _is_han(right[0]):
        left = left[:-1]  # the template has a space beside a value, which is Chinese
    elif right[0] == " " and _WIDE.match(left[-1]) and _is_han(right[1:2]):
        right = right[1:]
    a, b = left[-1], right[0]
    han = _is_han(a), _is_han(b)
    if han[0] != han[1] and not (a + b).isspace() and (b if han[0] else a) not in _TIGHT:
        return f"{left} {right}"
    return f"{left}{right}"


def _is_han(char: str) -> bool:
    return "\u4e00" <= char <= "\u9fff"


def _filled(template: str, text: Text) -> str:
    out = ""
    for literal, name, spec, conversion in _fields(template):
        out = spaced(out, literal)
        if name is not None:
            out = spaced(out, _value(text.values[name], spec or "", conversion))
    return out


def _laid_out(text: Placed) -> str:
    """Fill a template without words; its punctuation is Chinese if a value is."""
    values = {name: _value(value, "", None) for name, value in text.values.items() if isinstance(value, str)}
    if any(map(_WIDE.search, values.values())):
        return _filled(_BETWEEN.sub(lambda found: _PUNCTUATION[found[0]], text.template), text)
    return _filled(text.template, text)


def _list(text: Joined) -> str:
    parts = list(map(in_chinese, text.parts))
    wide = any(map(_WIDE.search, parts))
    out = ""
    for i, part in enumerate(parts):
        between = text.last if i == len(parts) - 1 else text.template
        if i and between.isspace() and out.endswith("。"):
            out = f"{out}{part}"
        elif i and between:
            out = spaced(spaced(out, _PUNCTUATION.get(between, between) if wide else between), part)
        else:
            out = f"{out}{part}"
    return out


def _value(value: object, spec: str, conversion: str | None) -> str:
    if conversion == "r":
        return format(repr(value), spec)
    if isinstance(value, Exception):
        value = reason(value) if value.args and isinstance(value.args[0], Text) else str(value)
    if not isinstance(value, str):
        return format(value, spec)
    shown = in_chinese(value)
    width = spec.lstrip("<>")
    if not width:
        return shown
    pad = " " * (int(width) - columns(shown))
    return pad + shown if spec.startswith(">") else shown + pad


@cache
def _fields(template: str) -> list[tuple[str, str | None, str | None, str | None]]:
    return list(string.Formatter().parse(template))


@cache
def _texts() -> dict[str, str]:
    return {entry.english: entry.chinese for entry in read() if entry.chinese}
