"""How far consumers have read each queue: who will see a filler, and which messages must have existed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from rmqstore.files.store import Store
from rmqstore.formats.configjson import ConfigJsonError, JsonValue, parse_config_object
from rmqstore.formats.properties import SCHEDULE_TOPIC
from rmqstore.formats.text.javatext import java_text
from rmqstore.repair.salvage.evidence.values import QueueSlot

_OWN_GROUPS = frozenset({"CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_REVIVE_GROUP"})
_LARGEST = 256 << 20


class ConsumerProgress:
    """How far consumers have read, as the store's configuration says.

    `known` is False where it could not be read (damage, or a RocksDB without the extra `rocksdb`).
    """

    def __init__(self, store: Store) -> None:
        self._progress: dict[str, dict[str, dict[int, int]]] = {}
        config = store.root / "config"
        self.known = False
        self._delays = _delays(config / "delayOffset.json")
        for name, key in (("consumerOffset.json", "offsetTable"), ("lmqConsumerOffset.json", "lmqOffsetTable")):
            table = _table(config / name)
            if table is None:
                continue
            self.known = True
            for section in (key, "offsetTable"):
                self._take(table.get(section))
        if "consumerOffsets" in store.rocksdb_config:
            self._take_rows(config / "consumerOffsets")

    def _take_rows(self, directory: Path) -> None:
        """Source: RocksDBConsumerOffsetManager (config v1): a row per `topic@group`, its value in JSON."""
        from rmqstore.files.rocksdb.database import CannotRead, config_rows

        try:
            for keys, values in config_rows(directory):
                for key, value in zip(keys, values, strict=True):
                    self._take({java_text(key): parse_config_object(value).get("offsetTable")})
        except (CannotRead, ConfigJsonError):
            self.known = False
            return
        self.known = True

    def names(self) -> Iterator[tuple[str, int]]:
        """Topic and queue id of every queue that a group has consumed from."""
        for topic, groups in self._progress.items():
            yield from ((topic, queue_id) for queue_id in {q for queues in groups.values() for q in queues})
        yield from ((SCHEDULE_TOPIC, queue_id) for queue_id in self._delays)

    def groups(self, slot: QueueSlot) -> tuple[str, ...]:
        """Groups that have yet to read a slot, in its queue or in a light message queue that it is fanned out to."""
        out: set[str] = set()
        for topic, queue_id, offset in (
            (slot.topic, slot.queue_id, slot.queue_offset),
            *((queue, 0, at) for queue, at in slot.fan_out),
        ):
            for group, queues in self._progress.get(topic, {}).items():
                if group not in _OWN_GROUPS and queues.get(queue_id, 0) < offset + max(1, slot.count):
                    out.add(group)
        return tuple(sorted(out))

    def furthest(self, topic: str, queue_id: int) -> int:
        """The largest queue offset that a group, or a delay level, has consumed up to; 0 where no group is known."""
        groups = self._progress.get(topic, {}).values()
        delayed = self._delays.get(queue_id, 0) if topic == SCHEDULE_TOPIC else 0
        return max((queues.get(queue_id, 0) for queues in groups), default=0) or delayed

    def _take(self, table: JsonValue) -> None:
        if not isinstance(table, Mapping):
            return
        for name, value in table.items():
            topic, _, group = name.partition("@")
            queues = self._progress.setdefault(topic, {}).setdefault(group, {})
            rows = value.items() if isinstance(value, Mapping) else [("0", value)]
            for queue_id, offset in rows:
                if str(queue_id).lstrip("-").isdigit() and isinstance(offset, int):
                    queues[int(queue_id)] = offset


def _delays(path: Path) -> dict[int, int]:
    """Queue id in SCHEDULE_TOPIC_XXXX → queue offset that was delivered up to."""
    table = (_table(path) or {}).get("offsetTable")
    rows = table.items() if isinstance(table, Mapping) else ()
    return {int(level) - 1: at for level, at in rows if str(level).isdigit() and isinstance(at, int)}


def _table(path: Path) -> Mapping[str, JsonValue] | None:
    for place in (path, path.with_name(path.name + ".bak")):
        try:
            if place.stat().st_size > _LARGEST:
                continue
            return parse_config_object(place.read_bytes())
        except (OSError, ConfigJsonError):
            continue
    return None
