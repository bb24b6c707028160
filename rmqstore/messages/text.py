"""Single values as text, in JSON and in a CSV cell."""

from __future__ import annotations

import csv
import io
from typing import Any

import orjson

from rmqstore.formats.text.controls import escape_csv, escape_json


def dumps(value: Any) -> str:
    """JSON text without a raw control character; lone surrogates (from invalid UTF-8) show as escapes."""
    try:
        text = orjson.dumps(value)
    except TypeError:
        import json

        text = json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return escape_json(text).decode()


def csv_cell(value: Any) -> bytes:
    """A value as a row of CSV has it, quoted where it must be; objects as JSON text, None as nothing."""
    if value is None:
        return b""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, (dict, list)):
        value = dumps(value)
    elif isinstance(value, str):
        value = escape_csv(value)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([value, ""])  # alone, an empty text would be quoted
    return text.getvalue()[:-2].encode("utf-8", "backslashreplace")
