"""Single values as text, in JSON and in a CSV cell."""

from __future__ import annotations

import csv
import io
from typing import Any

import orjson

_CONTROLS = {code: f"\\u{code:04x}" for code in range(32) if code not in (1, 2, 9, 10, 13)}


def dumps(value: Any) -> str:
    """JSON text; lone surrogates (from bytes that are no UTF-8) show as escapes."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        import json

        return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def plain_text(text: str) -> str:
    """A text whose control characters are shown as JSON shows them, but for tabs, ends of lines and property separators.

    CSV has no escapes of its own, and a control character in a topic or a tag could steer a terminal.
    """
    return text if text.isprintable() else text.translate(_CONTROLS)


def csv_cell(value: Any) -> bytes:
    """A value as a row of CSV has it, quoted where it must be; objects as JSON text, None as nothing."""
    if value is None:
        return b""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, (dict, list)):
        value = dumps(value)
    if isinstance(value, str):
        value = plain_text(value)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([value, ""])  # alone, an empty text would be quoted
    return text.getvalue()[:-2].encode("utf-8", "backslashreplace")
