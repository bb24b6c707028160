"""Read a single message at a physical offset."""

from __future__ import annotations

from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.formats.message import MIN_SIZE, Message, parse_message

MAX_RECORD = 64 << 20
"""Size in bytes of the largest record that is read into memory; brokers limit messages to maxMessageSize (4 MiB)."""


def message_at(log: MappedFileQueue, offset: int, most: int = MAX_RECORD) -> Message | None:
    """Read the record at a global offset, which in DLedger data is the offset after the entry header.

    Only its framing is checked; `check_message` checks PHYSICALOFFSET and the CRC. None if there is no valid record, if
    it is longer than `most` bytes, or if the files do not contain all of it.
    """
    file = log.find(offset)
    if file is None:
        return None
    head = log.pread(4, offset)
    size = int.from_bytes(head, "big", signed=True)
    if len(head) < 4 or not MIN_SIZE <= size <= min(most, MAX_RECORD, file.stop - offset):
        return None
    return parse_message(log.pread(size, offset))[0]
