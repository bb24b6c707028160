"""Verify only a part of a log: a time range, or the rest of an interrupted run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rmqstore.files.mapped_file_queue import MAX_RECORD, MappedFile, MappedFileQueue
from rmqstore.formats.message import parse_message
from rmqstore.texts import Text


class VerifyRange(NamedTuple):
    """`since` and `until`: store time in ms (half-open); `start_at`: log name -> offset where a run resumes."""

    since: int | None = None
    until: int | None = None
    start_at: Mapping[str, int] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left out."""
        return self.since is None and self.until is None and not self.start_at

    def left_out(self, resume_at: Mapping[str, int] | None) -> str | None:
        """Say which part of the log is not read; None for nothing. `resume_at`: where a deadline ended the run."""
        if resume_at is not None:
            name, at = next(iter(resume_at.items()))
            return Text("{name} from offset {at} on: time limit reached; --resume continues there", name=name, at=at)
        if self.start_at:
            return Text("the part that an earlier run read: this run continued from there")
        if not self.is_whole:
            return Text("messages outside of the given time range")
        return None

    def of(self, queue: MappedFileQueue, body_offset: int) -> MappedFileQueue:
        """Return the files of a log that may have messages in the range, as a queue."""
        files = list(queue.files)
        if self.start_at is not None:
            files = [f for f in files if f.stop > self.start_at.get(queue.name, 0)]
        if self.since is not None or self.until is not None:
            times = [first_store_time(f, body_offset) for f in files]
            kept = []
            for i, file in enumerate(files):
                later = next((t for t in times[i + 1 :] if t is not None), None)
                begin = times[i]
                if self.until is not None and begin is not None and begin >= self.until:
                    break
                if self.since is not None and later is not None and later <= self.since:
                    continue
                kept.append(file)
            files = kept
        return MappedFileQueue(queue.name, queue.directories, queue.file_size, files, queue.odd, queue.size_from)


def first_store_time(file: MappedFile, body_offset: int) -> int | None:
    """Return the store time (ms) of the first record of a file; None without a record at its start."""
    head = file.read_at(4, body_offset)
    size = int.from_bytes(head, "big", signed=True) if len(head) == 4 else 0
    if not 0 < size <= MAX_RECORD:
        return None
    message, _ = parse_message(file.read_at(size, body_offset))
    return message.store_timestamp if message is not None else None
