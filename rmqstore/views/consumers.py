"""Who consumes a store: the progress of consumer groups, as the broker's configuration says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from rmqstore.files.disk.reading import read_at
from rmqstore.files.rocksdb.database import CannotRead, config_rows
from rmqstore.files.store import Store
from rmqstore.formats.configjson import ConfigJsonError, JsonValue, parse_config_object
from rmqstore.formats.text.javatext import java_text

_LARGEST = 256 << 20
_OFFSETS = (("consumerOffset.json", "offsetTable"), ("lmqConsumerOffset.json", "lmqOffsetTable"))
_ROCKSDB = "consumerOffsets"


def config_table(store: Store, name: str, key: str) -> Mapping[str, JsonValue]:
    """One table of a JSON file of the configuration, or of its `.bak` where the file is broken; empty without both."""
    for path in (store.root / "config" / name, store.root / "config" / f"{name}.bak"):
        table = _table(path, key)
        if table is not None:
            return table
    return {}


def _table(path: Path, key: str) -> Mapping[str, JsonValue] | None:
    try:
        table = parse_config_object(read_at(path, _LARGEST, 0)).get(key)
    except ConfigJsonError:
        return None
    return table if isinstance(table, dict) else None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a group is in a queue: `offset` is the queue offset that it consumes next."""

    group: str
    offset: int

    def has_consumed(self, queue_offset: int) -> bool:
        """Whether the group is past a message. A group that skipped it counts as well: offsets do not tell."""
        return self.offset > queue_offset


@dataclass(slots=True)
class ConsumerOffsets:
    """Progress of all groups: topic -> queue id -> groups. `unreadable` says why it is not known, empty otherwise."""

    queues: dict[str, dict[int, list[Progress]]] = field(default_factory=dict)
    unreadable: str = ""

    @classmethod
    def read(cls, store: Store) -> ConsumerOffsets:
        """From consumerOffset.json (else its `.bak`), lmqConsumerOffset.json and configuration v1 in a RocksDB."""
        out = cls()
        if store.part is not None:
            out.unreadable = "a part of a store has no configuration"
            return out
        for name, key in _OFFSETS:
            for section in {key, "offsetTable"}:
                out._take(config_table(store, name, section))
        if _ROCKSDB in store.rocksdb_config:
            out._take_rocksdb(store)
        return out

    def of(self, topic: str, queue_id: int) -> list[Progress]:
        """The groups of a queue, by name. Groups of the topic that have no offset in this queue count as at 0."""
        queues = self.queues.get(topic, {})
        known = {p.group: p for p in queues.get(queue_id, ())}
        for other in queues.values():
            for progress in other:
                known.setdefault(progress.group, Progress(progress.group, 0))
        return [known[group] for group in sorted(known)]

    def _take(self, table: Mapping[str, JsonValue]) -> None:
        for name, value in table.items():
            topic, _, group = name.partition("@")
            rows = value.items() if isinstance(value, dict) else [("0", value)]
            for queue_id, offset in rows:
                if str(queue_id).isdigit() and isinstance(offset, int):
                    self._add(topic, int(queue_id), Progress(group, offset))

    def _take_rocksdb(self, store: Store) -> None:
        try:
            for keys, values in config_rows(store.root / "config" / _ROCKSDB):
                for key, value in zip(keys, values, strict=True):
                    found = orjson.loads(value)
                    table = found.get("offsetTable") if isinstance(found, dict) else None
                    if isinstance(table, dict):
                        self._take({java_text(key): table})
        except (CannotRead, orjson.JSONDecodeError, OSError) as error:
            self.unreadable = f"config/{_ROCKSDB} cannot be read: {error}"

    def _add(self, topic: str, queue_id: int, progress: Progress) -> None:
        groups = self.queues.setdefault(topic, {}).setdefault(queue_id, [])
        if all(known.group != progress.group for known in groups):
            groups.append(progress)
