"""A store that grows, rolls, expires and is damaged between backups, and what must be in it."""

from __future__ import annotations

import json
import random
from pathlib import Path

from rmqstore.append.commitlog import CommitLog
from rmqstore.append.message_store import MessageStore
from tests.append.writing import OPTIONS, Written, put_random


class GrowingStore:
    """A plain store with log files of 16 KiB, in which message n is stored n seconds after the first."""

    def __init__(self, root: Path, count: int = 60) -> None:
        self.root = root
        self.written = Written()
        self.chance = random.Random(1)
        self.count = 0
        with MessageStore.create(root, OPTIONS):
            pass
        self.grow(count)

    def grow(self, count: int) -> None:
        """Append messages, and note the ends of the queues as offsets of a group."""
        with MessageStore.open(self.root, OPTIONS) as store:
            put_random(store, range(self.count, self.count + count), self.written, self.chance)
        self.count += count
        offsets: dict[str, dict[str, int]] = {}
        for label, rows in self.written.queues.items():
            topic, _, queue_id = label.rpartition("/")
            offsets.setdefault(f"{topic}@reader", {})[queue_id] = len(rows)
        self.config("consumerOffset.json", {"offsetTable": offsets})
        topics = {topic.rpartition("/")[0] for topic in self.written.queues}
        table = {t: {"topicName": t, "readQueueNums": 3, "writeQueueNums": 3, "perm": 6} for t in topics}
        self.config("topics.json", {"topicConfigTable": table})

    def config(self, name: str, content: object) -> None:
        """Write a file in config/."""
        (self.root / "config").mkdir(exist_ok=True)
        (self.root / "config" / name).write_text(json.dumps(content))

    def expire(self, files: int) -> None:
        """Delete the oldest log files, with the units that point into them."""
        with MessageStore.open(self.root, OPTIONS) as store:
            assert isinstance(store.log, CommitLog)
            for _ in range(files):
                store.log.queue.delete_expired_by_time(0, clean_immediately=True, batch=1)
            for queue in store.dispatcher.files():
                queue.queue.delete_expired_by_offset(store.log.queue.min_offset, 20)

    @property
    def log_files(self) -> list[Path]:
        """The files of the log, oldest first."""
        return sorted((self.root / "commitlog").iterdir())

    @property
    def end(self) -> int:
        """The end of the log."""
        return max(at + size for rows in self.written.queues.values() for _, at, size in rows)

    def a_message(self, after: int) -> int:
        """Return the offset of the first message from an offset on."""
        return min(at for rows in self.written.queues.values() for _, at, _ in rows if at >= after)

    def offsets_before(self, cut: int, begin: int = 0) -> dict[str, list[int]]:
        """Return the queue offsets of the messages in [begin, cut) of the log, by queue."""
        found = {
            label: [number for number, at, size in rows if begin <= at and at + size <= cut]
            for label, rows in self.written.queues.items()
        }
        return {label: numbers for label, numbers in found.items() if numbers}


def messages_in(store: Path) -> dict[str, list[int]]:
    """Return the queue offsets of all messages in a store that its queues deliver, by queue."""
    import rmqstore

    found: dict[str, list[int]] = {}
    for message in rmqstore.open(store).messages():
        found.setdefault(f"{message.topic}/{message.queue_id}", []).append(message.queue_offset)
    return found
