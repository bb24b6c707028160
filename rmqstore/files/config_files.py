"""Load the JSON files of config/ as a broker does, with the fallback to .bak, and read consumer offsets from them.

Source: ConfigManager#load, #loadBak; ConsumerOffsetManager#decode, LmqConsumerOffsetManager#decode,
DelayOffsetSerializeWrapper (RocketMQ 4.9.7 to 5.4.0)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from rmqstore.files.disk.reading import read_at
from rmqstore.formats.configjson import ConfigJsonError, JsonValue, parse_config_object

T = TypeVar("T")

LARGEST = 256 << 20
"""Length in bytes of the largest file that is read."""


class Committed(NamedTuple):
    """A committed offset: the queue offset that a consumer group reads next."""

    topic: str
    group: str
    queue_id: int
    offset: int


def config_bytes(path: Path) -> bytes:
    """Read a file of config/; empty if it is unreadable or longer than `LARGEST`."""
    raw = read_at(path, LARGEST + 1, 0)
    return raw if len(raw) <= LARGEST else b""


def config_object(path: Path) -> dict[str, JsonValue] | None:
    """Parse a JSON file of config/; None if a broker would fall back to its .bak."""
    raw = config_bytes(path)
    try:
        return parse_config_object(raw) if raw else None
    except ConfigJsonError:
        return None


def loaded_config(root: Path, name: str, read: Callable[[dict[str, JsonValue]], T | None]) -> T | None:
    """Return what `read` gives for a file of config/ or, if that is None, for its .bak; None if both give None."""
    for path in (root / "config" / name, root / "config" / f"{name}.bak"):
        table = config_object(path)
        value = None if table is None else read(table)
        if value is not None:
            return value
    return None


def committed_offsets(table: Mapping[str, JsonValue]) -> list[Committed] | None:
    """List the offsets in consumerOffset.json or lmqConsumerOffset.json; None if a broker rejects one of the values.

    Light message queues have only queue 0.
    """
    try:
        rows: list[tuple[str, str, JsonValue]] = [
            (name, queue_id, offset)
            for name, offsets in _section(table, "offsetTable").items()
            for queue_id, offset in _object(offsets).items()
        ]
        rows += [(name, "0", offset) for name, offset in _section(table, "lmqOffsetTable").items()]
        return [
            Committed(name.partition("@")[0], name.partition("@")[2], _integer(queue_id, 32), _integer(offset, 64))
            for name, queue_id, offset in rows
        ]
    except (TypeError, ValueError, OverflowError):
        return None


def delay_offsets(table: Mapping[str, JsonValue]) -> dict[int, int] | None:
    """Map each queue id of SCHEDULE_TOPIC_XXXX to the queue offset delivered next, from delayOffset.json.

    None if a value makes a broker reject the file.
    """
    try:
        levels = _section(table, "offsetTable").items()
        return {_integer(level, 32) - 1: _integer(offset, 64) for level, offset in levels}
    except (TypeError, ValueError, OverflowError):
        return None


def _section(table: Mapping[str, JsonValue], name: str) -> dict[str, JsonValue]:
    value = table.get(name)
    return {} if value is None else _object(value)


def _object(value: JsonValue) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        raise TypeError
    return value


def _integer(value: JsonValue, bits: int) -> int:
    """Convert like fastjson, which also accepts a quoted number, truncates a fraction and takes true as 1."""
    number = int(value)  # type: ignore[arg-type]  # TypeError for a list, an object and null
    if not -1 << bits - 1 <= number < 1 << bits - 1:
        raise OverflowError
    return number
