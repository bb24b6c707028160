"""The store checkpoint: store times up to which commitlog, consume queues and index are on disk.

Source: StoreCheckpoint (RocketMQ 4.3 to 5.5.1).
"""

from __future__ import annotations

from dataclasses import dataclass

from construct import Int64sb

from rmqstore.formats.layout import Field, Layout

STORE_CHECKPOINT = Layout(
    "checkpoint",
    "StoreCheckpoint, RocketMQ 5.5.1",
    Field("physic_msg_timestamp", Int64sb, "Store time of the last flushed commitlog message.", "ms"),
    Field("logics_msg_timestamp", Int64sb, "Store time of the last dispatched message.", "ms"),
    Field("index_msg_timestamp", Int64sb, "End time of the last full index file.", "ms"),
    Field("master_flushed_offset", Int64sb, "How far the master had flushed (5.0.0 and newer).", "bytes"),
    Field("confirm_phy_offset", Int64sb, "Start of the last confirmed message (5.1.1 and newer).", "bytes"),
    Field(
        "logics_physical_offset",
        Int64sb,
        "Start of the last message whose consume queue unit is flushed (5.5.0 and newer); 0: unknown.",
        "bytes",
    ),
    about="A file of 4096 bytes; the rest is zero. There is neither magic nor CRC.",
)
FILE_SIZE = 4096
SAFETY = 3000  # ms that getMinTimestamp subtracts


def _i64(value: int) -> int:
    return ((value + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """A parsed checkpoint; `STORE_CHECKPOINT` defines fields and units."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    logics_physical_offset: int = 0

    def min_timestamp(self) -> int:
        """Return the store time (ms) up to which abnormal recovery takes log and queues to be on disk.

        Source: StoreCheckpoint#getMinTimestamp
        """
        # Java's subtraction wraps: a huge negative garbage value becomes a huge positive one
        return max(0, _i64(min(self.physic_msg_timestamp, self.logics_msg_timestamp) - SAFETY))

    def min_timestamp_index(self) -> int:
        """Return `min_timestamp` bounded by the index checkpoint, for `messageIndexSafe`; in ms.

        Source: StoreCheckpoint#getMinTimestampIndex
        """
        return min(self.min_timestamp(), self.index_msg_timestamp)

    def build(self) -> bytes:
        """Return the bytes of the whole checkpoint file."""
        return STORE_CHECKPOINT.build(
            physic_msg_timestamp=self.physic_msg_timestamp,
            logics_msg_timestamp=self.logics_msg_timestamp,
            index_msg_timestamp=self.index_msg_timestamp,
            master_flushed_offset=self.master_flushed_offset,
            confirm_phy_offset=self.confirm_phy_offset,
            logics_physical_offset=self.logics_physical_offset,
        ).ljust(FILE_SIZE, b"\0")


def parse_checkpoint(data: bytes) -> StoreCheckpoint:
    """Parse a checkpoint file as the broker does: bytes missing from a short or absent file count as zero."""
    return StoreCheckpoint(**STORE_CHECKPOINT.parse(bytes(data).ljust(STORE_CHECKPOINT.size, b"\0")))
