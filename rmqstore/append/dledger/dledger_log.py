"""Use a DLedger member as the log of a store.

Source: DLedgerCommitLog (RocketMQ 5.4.0)
"""

from __future__ import annotations

from rmqstore.append.dledger.dledger import DLedgerMmapFileStore
from rmqstore.formats.dledger import BODY_OFFSET


class DLedgerLog:
    """A `RecordLog` that appends every record as the body of one DLedger entry."""

    body_offset = BODY_OFFSET

    def __init__(self, store: DLedgerMmapFileStore) -> None:
        self.store = store
        self.queue = store.data

    def reserve(self, *sizes: int) -> int:
        """Return the physical offset of the first record; unlike in a commitlog, the others may go to the next file."""
        return self.store.reserve(BODY_OFFSET + sizes[0]) + BODY_OFFSET

    def write(self, record: bytes, store_timestamp: int) -> None:
        self.store.append_as_leader(record, store_timestamp)

    def commit(self) -> None:
        self.store.commit()

    def flush(self, least_pages: int = 0) -> None:
        self.store.flush(least_pages)

    def close(self) -> None:
        self.store.close()
