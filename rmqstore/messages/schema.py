"""The fields of a message, with the same name, type and meaning in every output.

The layout in `formats.message` declares the fields of a record. This module adds the other fields of rows, and lists
the fields of each kind of row.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqstore.formats.message import MESSAGE


class Column(NamedTuple):
    """A field of a row. `type`: int32, int64, time (ms since 1970), string, binary, bool or map (of strings)."""

    name: str
    type: str
    about: str
    unit: str = ""


def _of_record() -> dict[str, Column]:
    out = {}
    for field in MESSAGE:
        kind = field.number.arrow if field.number else "binary" if field.name == "body" else "string"
        out[field.name] = Column(
            field.name, "time" if field.name.endswith("_timestamp") else kind, field.about, field.unit
        )
    return out


_MORE = (
    Column("offset", "int64", "Where the record starts in its log; in DLedger, after the entry's header.", "bytes"),
    Column("file", "string", "Name of the file."),
    Column("crc_ok", "bool", "Whether body CRC and record CRC are correct."),
    Column("tags", "string", "The property TAGS."),
    Column("keys", "string", "The property KEYS."),
    Column("unique_key", "string", "The property UNIQ_KEY: the producer's message id."),
    Column("properties", "map", "All properties; of a repeated name, the last value."),
    Column("msg_id", "string", "Offset message id: store host and physical offset in hex."),
    Column("topic_base64", "binary", "The topic's bytes if it is not printable UTF-8."),
    Column("properties_base64", "binary", "The stored property text if the pairs do not determine it."),
    Column("last_separator", "bool", "False if the property text does not end with 0x02."),
    Column("version", "int32", "2 for a record of version 2, otherwise missing."),
    Column("filler", "bool", "True for a filler: the message is lost, and a repair put this record in its place."),
    Column("mended", "bool", "True for a message with bytes that a repair restored, as the repair's journal tells."),
    Column("stale", "bool", "True for a record of an earlier log, which the log does not contain (`export --stale`)."),
    Column("body_base64", "binary", "The body if it is not shown as text."),
)
COLUMNS = _of_record() | {column.name: column for column in _MORE}
"""Every field by its name."""

DUMPED = (
    *("offset", "file", "size", "magic", "body_crc", "crc_ok", "queue_id", "flag", "queue_offset", "physical_offset"),
    *("sys_flag", "born_timestamp", "born_host", "store_timestamp", "store_host", "reconsume_times"),
    *("prepared_transaction_offset", "body_length", "topic", "tags", "keys", "unique_key", "properties", "msg_id"),
    *("filler", "mended"),
)
"""The fields of `dump`, in order."""
EXPORTED = (
    *("topic", "queue_id", "queue_offset", "store_timestamp", "born_timestamp", "store_host", "born_host"),
    *("tags", "keys", "unique_key", "flag", "sys_flag", "reconsume_times", "prepared_transaction_offset"),
    "properties",
)
"""The fields of `export` that every row has, in order."""
BODY = ("body", "body_base64")
SIDE = ("topic_base64", "properties_base64", "last_separator", "version", "filler", "mended", "stale")
"""Fields that only some rows of an export have: what other fields lose, and the marks of fillers and old records."""
POSITIONS = ("offset", "size", "msg_id")
"""The fields that `export --offsets` adds."""
