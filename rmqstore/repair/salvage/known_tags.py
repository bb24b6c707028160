"""TAGS of the messages in a log, by their tags code: what a unit's code says of a message whose TAGS are lost."""

from __future__ import annotations

from collections import Counter

import numpy as np

from rmqstore.checks.log.logs import Logs
from rmqstore.files.mapped_file_queue import MAX_RECORD
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.rocksdb.queues import simple_queue
from rmqstore.files.store import Store
from rmqstore.formats import consumequeue, properties
from rmqstore.repair.repaired_log import can_exist
from rmqstore.scan.units import UnitArray, unit_chunks

_MOST_CODES = 10_000  # tags codes of a topic
_TRIED = 64  # records for one code


class KnownTags:
    """TAGS of messages in the log, by topic and tags code. The units of a topic are read once."""

    def __init__(self, store: Store, logs: Logs) -> None:
        self._store = store
        self._logs = logs
        self._known: dict[str, dict[int, str]] = {}

    def of(self, topic: str, code: int) -> str | None:
        """Return the TAGS of a message of the topic with this tags code; None if no message shows them."""
        if topic not in self._known:
            self._known[topic] = self._read(topic)
        return self._known[topic].get(code)

    def _read(self, topic: str) -> dict[int, str]:
        """Return TAGS by tags code, from good records to which the units of a topic point."""
        out: dict[int, str] = {}
        tried: Counter[int] = Counter()
        for name, part in self._logs.queues.items():
            if name[0] != topic or not part.messages or not can_exist(name):
                continue
            try:
                for chunk in unit_chunks(simple_queue(self._store, *name), consumequeue.UNIT):
                    self._add(topic, out, tried, chunk.units)
            except CannotRead:
                continue
        return out

    def _add(self, topic: str, out: dict[int, str], tried: Counter[int], units: UnitArray) -> None:
        offsets, tags = units["commitlog_offset"], units["tags_code"]
        real = np.flatnonzero(consumequeue.is_message_unit(offsets.astype(np.int64), units["size"].astype(np.int64)))
        for code in np.unique(tags[real]).tolist():
            for row in real[tags[real] == code][:_TRIED].tolist():
                if code in out or len(tried) >= _MOST_CODES or tried[code] >= _TRIED:
                    break
                tried[code] += 1
                if (text := self._tags_at(topic, int(offsets[row]))) and properties.tags_code(text) == code:
                    out[code] = text

    def _tags_at(self, topic: str, offset: int) -> str | None:
        """Return the TAGS of the record at a global offset; None if it is damaged, or of another topic."""
        message = None if self._logs.damaged(offset) else self._logs.record(offset, MAX_RECORD)
        if message is None or message.topic_text != topic or properties.property_faults(message.properties):
            return None
        return properties.parse_properties(message.properties).get(properties.TAGS)
