"""Read broker configuration from RocksDB (config v1): one row per topic, group or `topic@group`, with a JSON value."""

from __future__ import annotations

from pathlib import Path

from rmqstore.files.rocksdb.database import config_rows
from rmqstore.formats.configjson import ConfigJsonError, JsonValue, parse_config_object
from rmqstore.formats.text.javatext import java_text

TABLES = {
    "topics": "topicConfigTable",
    "subscriptionGroups": "subscriptionGroupTable",
    "consumerOffsets": "offsetTable",
}
"""Name of the directory → name of the table in the corresponding JSON file."""


def config_table(root: Path, name: str) -> tuple[dict[str, JsonValue], int]:
    """Read a database of `TABLES` in the form of its JSON file, and count the values that are not valid JSON.

    Errors: CannotRead.
    """
    rows: dict[str, JsonValue] = {}
    broken = 0
    for keys, values in config_rows(root / "config" / name):
        for key, value in zip(keys, values, strict=True):
            try:
                parsed = parse_config_object(value)
            except ConfigJsonError:
                broken += 1
                continue
            rows[java_text(key)] = parsed.get("offsetTable", {}) if name == "consumerOffsets" else parsed
    return {TABLES[name]: rows}, broken
