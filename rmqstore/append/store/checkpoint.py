"""Write the store checkpoint.

Source: StoreCheckpoint (RocketMQ 5.4.0 and 5.5.1)
"""

from __future__ import annotations

import os
from pathlib import Path

from rmqstore.append.files.disk import create_file, explain, write_all
from rmqstore.formats.checkpoint import FILE_SIZE, StoreCheckpoint, parse_checkpoint


class CheckpointFile:
    """The file `checkpoint`; fields and units as in `formats.checkpoint`."""

    def __init__(self, path: Path, descriptor: int, values: StoreCheckpoint) -> None:
        self.path = path
        self.physic_msg_timestamp = values.physic_msg_timestamp
        self.logics_msg_timestamp = values.logics_msg_timestamp
        self.index_msg_timestamp = values.index_msg_timestamp
        self.master_flushed_offset = values.master_flushed_offset
        self.confirm_phy_offset = values.confirm_phy_offset
        self.logics_physical_offset = values.logics_physical_offset
        self._descriptor = descriptor
        self._written = b""

    @classmethod
    def open(cls, path: Path) -> CheckpointFile:
        """Open the file, or create one of zeros.

        Errors: NotReadable, NoSpace.
        """
        if not path.exists():
            return cls(path, create_file(path, FILE_SIZE), StoreCheckpoint())
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            raw = os.pread(descriptor, FILE_SIZE, 0)
            if len(raw) < FILE_SIZE:
                os.ftruncate(descriptor, FILE_SIZE)
        except OSError as error:
            raise explain(error, path) from error
        return cls(path, descriptor, parse_checkpoint(raw))

    def values(self) -> StoreCheckpoint:
        """Return the values that the next flush writes."""
        return StoreCheckpoint(
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_phy_offset,
            self.logics_physical_offset,
        )

    def limit(self, latest: int, end: int) -> None:
        """Limit all times to `latest` (ms), that of the last message, because later messages were truncated.

        A logicsPhysicalOffset at or after the end of the log (bytes) becomes 0: unknown. An earlier one stays true.
        """
        if self.logics_physical_offset >= end:
            self.logics_physical_offset = 0
        self.physic_msg_timestamp = min(self.physic_msg_timestamp, latest)
        self.logics_msg_timestamp = min(self.logics_msg_timestamp, latest)
        self.index_msg_timestamp = min(self.index_msg_timestamp, latest)

    def flush(self) -> None:
        """Write the file if it changed, and flush it to disk. Errors: NoSpace and others."""
        data = self.values().build()
        if data == self._written:
            return
        try:
            write_all(self._descriptor, data, 0)
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise explain(error, self.path) from error
        self._written = data

    def close(self) -> None:
        """Close the file without writing."""
        os.close(self._descriptor)
