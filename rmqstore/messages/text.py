"""Single values as text, in JSON and in a CSV cell."""

from __future__ import annotations

import csv
import io
from typing import Any

import orjson

_CONTROLS = {code: f"\\u{code:04x}" for code in range(32) if code not in b"\t\n\r"}


def dumps(value: Any) -> str:
    """JSON text; lone surrogates (from invalid UTF-8) show as escapes."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        import json

        return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def escape_controls(text: str) -> str:
    """A text for CSV: control characters except tab, LF and CR as the escapes of JSON.

    CSV has no escapes of its own, and a control character in a topic or a tag could steer a terminal that shows the
    file. The properties column, which is JSON, keeps the exact value.
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
    elif isinstance(value, str):
        value = escape_controls(value)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([value, ""])  # alone, an empty text would be quoted
    return text.getvalue()[:-2].encode("utf-8", "backslashreplace")
