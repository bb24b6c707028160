"""The configuration in RocksDB directories (v1): a row per topic, group or `topic@group`, its value in JSON."""

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
"""Directory to the name that the JSON file has for its table."""


def config_table(root: Path, name: str) -> tuple[dict[str, JsonValue], int]:
    """A directory of `TABLES` as its JSON file would have it, and how many of its values are not JSON.

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
