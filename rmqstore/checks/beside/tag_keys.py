"""Whether a store's broker indexes whole TAGS values, according to the store's index entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from rmqstore.checks.log.logs import Logs
from rmqstore.files.files import Files
from rmqstore.files.mapped_file_queue import MAX_RECORD
from rmqstore.files.store import Store
from rmqstore.formats import index
from rmqstore.formats.message import TRANSACTION_ROLLBACK, Message
from rmqstore.formats.properties import index_keys, parse_properties

_SAMPLE = 4096  # entries that are read of a file
_MESSAGES = 64  # messages with tags that are compared; a single one may be damaged, or older than the last upgrade


def indexes_tags(store: Store, logs: Logs, files: Iterable[Path], slots: int) -> bool:
    """Return whether the broker indexes whole TAGS values, as 5.4.0 and newer do.

    `files`: the index files, the most reliable first. The newest entries of a file decide. If no entry does, the
    directory rocksdbstore/ decides, which 5.4.0 creates at every start.
    """
    for path in files:
        compared = 0
        for message, hashes in _newest_messages(store.files, path, slots, logs):
            found = parse_properties(message.properties)
            topic = message.topic_text
            texts = set(index_keys(topic, found, tag_key=True)) - set(index_keys(topic, found, tag_key=False))
            if message.transaction_type == TRANSACTION_ROLLBACK or not texts:
                continue
            compared += 1
            if not hashes.isdisjoint(map(index.key_hash, texts)):
                return True
            if compared >= _MESSAGES:
                break
        if compared:
            return False
    return store.files.is_directory(store.root / "rocksdbstore")


def _newest_messages(files: Files, path: Path, slots: int, logs: Logs) -> Iterator[tuple[Message, set[int]]]:
    """Yield the messages of the newest entries, newest first, with the hashes of their entries."""
    head = files.read_at(path, index.HEADER.size, 0).ljust(index.HEADER.size, b"\0")
    count = int(index.HEADER.unpack(head)["index_count"])
    hashes: dict[int, set[int]] = {}
    for first in dict.fromkeys((max(1, count - _SAMPLE), 1)):  # if the header is damaged, read from the front
        for unit in index.UNIT.array(files.read_at(path, _SAMPLE * index.UNIT.size, index.unit_at(first, slots))):
            hashes.setdefault(int(unit["phy_offset"]), set()).add(int(unit["key_hash"]))
        if len(hashes) > 1:
            break
    for offset in sorted(hashes, reverse=True):
        message = logs.record(offset, MAX_RECORD) if offset >= 0 else None
        if message is not None:
            yield message, hashes[offset]
