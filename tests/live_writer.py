"""A process that appends to a store, and rolls and expires its files, like a busy broker with small files.

    with live_store(tmp_path / "store") as store:
        ...

The process writes with `rmqstore.append`, holds the lock, updates `config/consumerOffset.json` to the end of every
queue, flushes the checkpoint, and removes the first log file if there are more than `KEEP`.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rmqstore.append.commitlog import CommitLog
from rmqstore.append.dispatch import DispatchOptions
from rmqstore.append.encoder import NewMessage
from rmqstore.append.message_store import MessageStore, StoreOptions

TOPIC, QUEUES = "Order", 4
FILE_SIZE, KEEP = 16_384, 6
_QUEUE_FILE = 20 * 100
_SLOTS, _UNITS = 500, 2_000


@contextlib.contextmanager
def live_store(root: Path, *, pause: float = 0.002) -> Iterator[Path]:
    """Yield a store that another process writes until the block ends; the first files have already expired."""
    command = [sys.executable, "-m", "tests.live_writer", str(root), str(pause)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n", "the writer did not start"
            yield root
            assert process.poll() is None, "the writer ended early"
        finally:
            process.stdin.close()
            process.wait(30)


def write(root: Path, pause: float) -> None:
    """Write until stdin ends."""
    import select

    dispatch = DispatchOptions(consume_queue_file_size=_QUEUE_FILE)
    options = StoreOptions(commitlog_file_size=FILE_SIZE, index_slots=_SLOTS, index_units=_UNITS, dispatch=dispatch)
    topics = {"topicConfigTable": {TOPIC: {"topicName": TOPIC, "readQueueNums": QUEUES, "writeQueueNums": QUEUES}}}
    store = MessageStore.create(root, options)
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(json.dumps(topics))
    number, rolled, told = 0, 0, False
    while not select.select([sys.stdin], [], [], pause)[0]:
        done = [
            store.put(NewMessage(TOPIC, b"x" * 300, f"KEYS\x01k{number + i}".encode(), queue_id=i))
            for i in range(QUEUES)
        ]
        number += QUEUES
        store.flush()
        offsets = {str(queue_id): one.queue_offset + 1 for queue_id, one in enumerate(done)}
        _replace(root / "config" / "consumerOffset.json", {"offsetTable": {f"{TOPIC}@group": offsets}})
        files = sorted((root / "commitlog").iterdir())
        if len(files) > KEEP:
            rolled += 1
            _expire(store)
        if rolled > 2 and not told:
            told = True
            print("ready", flush=True)
    store.close()


def _expire(store: MessageStore) -> None:
    assert isinstance(store.log, CommitLog)
    store.log.queue.delete_expired_by_time(0, clean_immediately=True, batch=1)
    for queue in store.dispatcher.files():
        queue.queue.delete_expired_by_offset(store.log.queue.min_offset, 20)
    for name in sorted((store.root / "index").iterdir())[:-2]:
        name.unlink()


def _replace(path: Path, value: object) -> None:
    new = path.with_suffix(".tmp")
    new.write_text(json.dumps(value))
    new.rename(path)


if __name__ == "__main__":
    write(Path(sys.argv[1]), float(sys.argv[2]))
