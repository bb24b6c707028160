"""A store with small files, messages for it, and functions that read it."""

from __future__ import annotations

from pathlib import Path

from rmqstore.append.dispatch import DispatchOptions
from rmqstore.append.encoder import NewMessage
from rmqstore.append.flush import FlushIntervals
from rmqstore.append.message_store import StoreOptions
from rmqstore.formats.consumequeue import UNIT
from tests.append.rewriting import queue_bytes
from tests.planning import counts_of

NEVER = FlushIntervals(commitlog=1 << 30, consume_queue=1 << 30)  # ms: no thread flushes during a test
SMALL = StoreOptions(
    commitlog_file_size=1 << 14, index_slots=20, index_units=60, dispatch=DispatchOptions(consume_queue_file_size=1000)
)


def message(number: int = 0, *, size: int = 20, topic: str = "TopicTest", queue_id: int = 0) -> NewMessage:
    return NewMessage(
        topic, b"%06d" % number + b"b" * (size - 6), b"TAGS\x01TagA\x02KEYS\x01k%d\x02" % number, queue_id
    )


def units(root: Path, topic: str = "TopicTest", queue_id: int = 0) -> list[tuple[int, int, int]]:
    data = b"".join(v for k, v in queue_bytes(root).items() if k.startswith(f"consumequeue/{topic}/{queue_id}/"))
    found = [UNIT.parse(data, at) for at in range(0, len(data), UNIT.size)]
    return [(u["commitlog_offset"], u["size"], u["tags_code"]) for u in found if u["size"]]


def clean(root: Path) -> dict[str, int]:
    return {code: count for code, count in counts_of(root).items() if count}
