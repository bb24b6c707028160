"""The message at an offset of a log: one way to read a single record, for everybody who has an address."""

from __future__ import annotations

from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.formats.message import MIN_SIZE, Message, parse_message

MAX_RECORD = 64 << 20
"""Bytes of the largest record that is read into memory; brokers refuse messages far smaller (maxMessageSize, 4 MiB)."""


def message_at(log: MappedFileQueue, offset: int, most: int = MAX_RECORD) -> Message | None:
    """The framed record that starts at a global offset (in DLedger data: behind the entry's header).

    It may contradict its own place and its CRCs: `check_message` tells. None where no record frames, where it is
    longer than `most` bytes, and where no file holds all of it.
    """
    file = log.find(offset)
    if file is None:
        return None
    head = log.pread(4, offset)
    size = int.from_bytes(head, "big", signed=True)
    if len(head) < 4 or not MIN_SIZE <= size <= min(most, MAX_RECORD, file.stop - offset):
        return None
    return parse_message(log.pread(size, offset))[0]
