"""A commitlog that goes on beside DLedger's entries: two different logs with the same addresses.

A broker that is started without enableDLegerCommitLog after it ran with it appends to its old commitlog again, whose
next file has the name of DLedger's first one. DLedger's entries stay where they are, and no setting reads both.
Source: DLedgerCommitLog#recover (dividedCommitlogOffset), CommitLog#asyncPutMessage (RocketMQ 4.9.7 to 5.4.0)
"""

from __future__ import annotations

from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.records import message_at
from rmqstore.formats.dledger import ENTRY, MAGIC


def overlap_at(commitlog: MappedFileQueue, entries: MappedFileQueue) -> int | None:
    """Return the first global offset that both logs have; None if one continues after the other.

    Both prove it: the commitlog has a file that begins with a message of this address, and DLedger an entry. A file
    under the name of another one proves nothing.
    """
    if not entries.files or not commitlog.files or commitlog.files[-1].start < entries.start:
        return None
    for file in commitlog.files:
        theirs = entries.find(file.start) if file.start >= entries.start else None
        if theirs is None:
            continue
        head = entries.pread(ENTRY.size, theirs.start)
        message = message_at(commitlog, file.start)
        if message is None or message.physical_offset != file.start or len(head) < ENTRY.size:
            continue
        entry = ENTRY.parse(head)
        if entry["magic"] == MAGIC and entry["pos"] == theirs.start:
            return file.start
    return None
