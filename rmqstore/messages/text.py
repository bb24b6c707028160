"""Single values as text, in JSON and in a cell of CSV."""

from __future__ import annotations

from typing import Any

import orjson

from rmqstore.formats.text import escape_csv, escape_json


def valid_text(text: str) -> str:
    """Return a text that can be encoded as UTF-8: lone surrogates (from invalid UTF-8) become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def dumps(value: Any) -> str:
    """Return JSON text without raw control characters; lone surrogates become escapes."""
    try:
        text = orjson.dumps(value)
    except TypeError:
        import json

        text = json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return escape_json(text).decode()


def csv_cell(value: Any) -> bytes:
    """Return a value as a cell of CSV, quoted if necessary. Objects become JSON text, None becomes nothing."""
    if value is None:
        return b""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, (dict, list)):
        value = dumps(value)
    elif isinstance(value, str):
        value = escape_csv(value)
    return csv_quoted(str(value).encode("utf-8", "backslashreplace"))


def csv_quoted(text: bytes) -> bytes:
    """Return a text as a cell of CSV, quoted if necessary.

    Some versions of `csv.writer` do not quote a lone CR, at which `csv.reader` ends the row.
    """
    if b'"' in text or b"," in text or b"\n" in text or b"\r" in text:
        return b'"' + text.replace(b'"', b'""') + b'"'
    return text
