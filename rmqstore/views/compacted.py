"""Find a message that compaction keeps: by its place, or the last one with a key."""

from __future__ import annotations

from dataclasses import replace

from rmqstore.files.store import Store
from rmqstore.formats.message import check_message
from rmqstore.scan.compaction import KeptMessage, compacted_queues, message_at
from rmqstore.views.dump.compaction import CompactedRecords, selected_queues
from rmqstore.views.dump.messages import Job, Skipped, read_records
from rmqstore.views.dump.selection import Selection
from rmqstore.views.lookup import Found, Place


def kept_at(store: Store, place: Place) -> Found | None:
    """Return the message with a queue offset that compaction keeps."""
    own = (queue for queue in compacted_queues(store) if (queue.topic, queue.queue_id) == place[:2])
    kept = next((found for queue in own if (found := message_at(queue, place[2])) is not None), None)
    return None if kept is None else _found(store, kept)


def _found(store: Store, kept: KeptMessage) -> Found:
    return Found(kept.message, None, store.relative(kept.file.path), kept.at, check_message(kept.message, None))


def last_kept(store: Store, selection: Selection) -> list[Found]:
    """Return the last of the selected messages of each compacted queue. Errors: UsageError for a wrong expression."""
    out = []
    for queue in selected_queues(store, selection):
        own = replace(selection, topics=frozenset({queue.topic}), queue_ids=frozenset({queue.queue_id}))
        job = Job(own, instead=CompactedRecords(own, Skipped()))
        last = max(
            (one for records in read_records(store, "messages", job) for one in records),
            key=lambda one: one.message.queue_offset,
            default=None,
        )
        file = queue.log.find(last.offset) if last is not None and queue.log is not None else None
        if last is not None and file is not None:
            out.append(_found(store, KeptMessage(last.message, file, last.offset - file.start)))
    return out
