"""Writes JSON: bytes that are not text, paths, and numbers that some parsers cannot represent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmqstore.formats.text import escape_json

_WIDE = """
offset physical_offset queue_offset born_timestamp store_timestamp prepared_transaction_offset commitlog_offset
tags_code index term pos min max expected_max min_offset max_offset wrote next_append bytes length start stop
commitlog_stop messages messages_lost first_index last_index first_pos committed_index entries physic_msg_timestamp
logics_msg_timestamp index_msg_timestamp master_flushed_offset confirm_phy_offset logics_physical_offset
begin_timestamp end_timestamp begin_phy_offset end_phy_offset phy_offset timestamp prev_pos write_time time last_pos
base_offset last_read_time last_timer_log_flush_pos last_timer_queue_offset size_bytes master_timer_queue_offset
state_version counter
"""
WIDE = frozenset(_WIDE.split())
"""Fields with 64-bit numbers; with --string-ints they are always strings, whatever their value."""


def quote_wide(value: Any, name: str = "") -> Any:
    """Turn 64-bit numbers into strings: all values of the fields in WIDE, in other fields values beyond 2^53."""
    if isinstance(value, dict):
        return {k: quote_wide(v, k) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [quote_wide(v, name) for v in value]
    if isinstance(value, int) and not isinstance(value, bool) and (name in WIDE or abs(value) > 1 << 53):
        return str(value)
    return value


def json_bytes(value: Any, *, indent: bool = False) -> bytes:
    """Encode JSON; invalid UTF-8 becomes escapes, integers beyond 64 bits become strings.

    DEL, U+0080 to U+009F and invisible characters are escaped too: JSON allows them, but terminals act on them.
    """
    import orjson

    option = orjson.OPT_NON_STR_KEYS | (orjson.OPT_INDENT_2 if indent else 0)
    try:
        text = orjson.dumps(value, option=option)
    except TypeError:
        text = orjson.dumps(_plain(value), option=option)
    return escape_json(text)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_plain(k) if isinstance(k, str) else str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, frozenset, set)):
        return [_plain(v) for v in value]
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "backslashreplace")
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, int) and not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 64:
        return str(value)
    if isinstance(value, Path):
        return str(value)
    return value
