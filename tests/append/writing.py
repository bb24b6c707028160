"""Write stores of random messages with this library, and keep what must be found in them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rmqstore.append.dispatch import DispatchOptions
from rmqstore.append.encoder import NewMessage
from rmqstore.append.message_store import MessageStore, StoreOptions

OPTIONS = StoreOptions(
    commitlog_file_size=1 << 14, index_slots=20, index_units=60, dispatch=DispatchOptions(consume_queue_file_size=1000)
)
SETTINGS: Mapping[str, int | str] = {
    "mappedFileSizeCommitLog": 1 << 14,
    "mappedFileSizeConsumeQueue": 1000,
    "maxHashSlotNum": 20,
    "maxIndexNum": 60,
}
DLEDGER = {**SETTINGS, "enableDLegerCommitLog": "true", "dLegerGroup": "g", "dLegerSelfId": "n0"}
TOPICS = ("Order", "Pay", "%RETRY%group")
FIRST_TIME = 1_700_000_000_000
"""Store time of the first message (ms); message n is stored n seconds later, so that the index, which counts in
seconds, has the time of every message."""


@dataclass
class Written:
    """The messages put into a store.

    `queues`: (queue offset, commitlog offset, size) by queue. `keys` and `tags`: commitlog offsets in order by (topic,
    key) and (topic, tag). `times`: store time by commitlog offset.
    """

    queues: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    keys: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    tags: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)


def put_random(
    store: MessageStore, numbers: range, written: Written, chance: random.Random, first_time: int | None = FIRST_TIME
) -> None:
    """Put messages of random sizes into random queues; number n has a unique key, the key `kn`, and a shared key `zm`.

    Without `first_time`, the current time is their store time.
    """
    for number in numbers:
        topic, queue_id = chance.choice(TOPICS), chance.randrange(3)
        tag = chance.choice(("TagA", "TagB", "中文"))
        unique, keys = f"{number:032X}", (f"k{number}", f"z{number % 7}")
        text = f"UNIQ_KEY\x01{unique}\x02TAGS\x01{tag}\x02KEYS\x01{' '.join(keys)}\x02".encode()
        body = chance.randbytes(chance.randrange(900))
        stored = first_time + number * 1000 if first_time is not None else 0
        one = store.put(NewMessage(topic, body, text, queue_id, store_timestamp=stored))
        written.queues.setdefault(f"{topic}/{queue_id}", []).append((one.queue_offset, one.offset, one.size))
        for key in (unique, *keys):
            written.keys.setdefault((topic, key), []).append(one.offset)
        written.tags.setdefault((topic, tag), []).append(one.offset)
        written.times[one.offset] = one.store_timestamp


def write(root: Path, options: StoreOptions, count: int, seed: int = 1) -> Written:
    """Create a store of random messages."""
    written = Written()
    with MessageStore.create(root, options) as store:
        put_random(store, range(count), written, random.Random(seed))
    return written
