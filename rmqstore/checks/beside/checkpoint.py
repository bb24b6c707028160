"""CK-*: the store checkpoint, compared with the log."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from rmqstore.checks.log.logs import Logs
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings
from rmqstore.files.mapped_file_queue import MAX_RECORD
from rmqstore.files.store import Store
from rmqstore.formats.checkpoint import FILE_SIZE, STORE_CHECKPOINT, StoreCheckpoint, parse_checkpoint
from rmqstore.texts import Text

TIMES = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")
_OFFSETS = ("master_flushed_offset", "confirm_phy_offset", "logics_physical_offset")
_ANY_OFFSET = ("master_flushed_offset", "logics_physical_offset")
"""Offsets that may be after the end of the log: the master's log may be longer, and nothing lowers the other one."""
LAST_TIME = int(datetime(9999, 1, 1, tzinfo=UTC).timestamp() * 1000)
LAST_OFFSET = 1 << 62
_FLUSH_INTERVAL = 60_000  # ms; a flush between two messages may take the time of one and the offset of the other
_CLOCKS = 86_400_000  # ms; greatest plausible difference between the clocks of two machines


@dataclass(frozen=True, slots=True)
class VerifiedEnd:
    """The end of the log: the greatest store time (ms, 0: no message) and the wrote position."""

    last_store_timestamp: int
    wrote: int


def read_checkpoint(store: Store) -> bytes | None:
    """Return the present content of a whole store's checkpoint; None without a file.

    A broker writes a message first and updates the checkpoint later. So a checkpoint that is read before the log is
    never ahead of it, however long it takes to read the log.
    """
    entry = store.checkpoint if store.part is None else None
    if entry is None or entry.directory or entry.special:
        return None
    return store.files.read_at(entry.path, FILE_SIZE, 0)


def stale_position(store: Store, logs: Logs) -> tuple[int, bool] | None:
    """Return the checkpoint's logicsPhysicalOffset if it is not that of the message whose time the checkpoint has.

    It was right before an older broker wrote to the store. The second value says whether a record starts there. Brokers
    since 5.5.0 write the offset and the time of one message; older ones write only the time.
    Source: ConsumeQueueStore.FlushConsumeQueueService#doFlush (RocketMQ 5.5.1), StoreCheckpoint#flush (5.4.0)
    """
    checkpoint = parse_checkpoint(read_checkpoint(store) or b"")
    offset = checkpoint.logics_physical_offset
    if offset <= 0 or logs.at(offset) is None or offset >= logs.wrote or logs.damaged(offset):
        return None
    message = logs.record(offset, MAX_RECORD)
    if message is not None and checkpoint.logics_msg_timestamp <= message.store_timestamp + _FLUSH_INTERVAL:
        return None
    return offset, message is not None


def check_checkpoint(
    store: Store, log: VerifiedEnd | None, findings: Findings, *, raw: bytes | None = None
) -> StoreCheckpoint | None:
    """Check the checkpoint, and return it as the broker would read it; None without a usable one.

    `raw`: from `read_checkpoint`. `log` None: do not compare. Times of 0 are normal after an early kill, on slaves, and
    before the first full index file. Brokers since 5.5.0 set the time of the queues only once a minute.
    """
    if store.part not in (None, "checkpoint"):
        return None
    path = store.path if store.part == "checkpoint" else store.root / "checkpoint"
    entry = store.checkpoint if store.part is None else None
    if store.part is None and entry is None:
        if store.commitlog is not None or store.dledger is not None:
            findings.add(Finding(codes.CK_MISSING, "checkpoint", facts={"reason": "missing"}))
        return None
    if entry is not None and (entry.directory or entry.special):
        findings.add(Finding(codes.CK_LENGTH, "checkpoint", path.name, facts={"reason": Text("not a file")}))
        return None
    entry = entry or store.files.stat(path)
    length = entry.length if entry is not None else 0
    raw = store.files.read_at(path, FILE_SIZE, 0) if raw is None else raw
    if length and not raw:
        facts: dict[str, Fact] = {"path": store.relative(path)}
        findings.add(Finding(codes.DIR_UNREADABLE, "checkpoint", path.name, facts=facts))
        return None
    if length != FILE_SIZE:
        findings.add(Finding(codes.CK_LENGTH, "checkpoint", path.name, 0, length, {"length": length}))
    checkpoint = parse_checkpoint(raw)
    if raw and not any(raw[: STORE_CHECKPOINT.size]):
        findings.add(Finding(codes.CK_MISSING, "checkpoint", path.name, 0, length, {"reason": "zero"}))
        return checkpoint
    for name in (*TIMES, *_OFFSETS):
        _field(name, getattr(checkpoint, name), log, findings, path.name)
    return checkpoint


def _field(name: str, value: int, log: VerifiedEnd | None, findings: Findings, file: str) -> None:
    at, size = STORE_CHECKPOINT.at(name), 8
    if value < 0 or value > (LAST_TIME if name in TIMES else LAST_OFFSET):
        findings.add(Finding(codes.CK_GARBAGE, "checkpoint", file, at, size, {"field": name, "value": value}))
        return
    if log is None or not log.last_store_timestamp or name in _ANY_OFFSET:
        return
    limit = log.last_store_timestamp if name in TIMES else log.wrote
    if value > limit:
        facts: dict[str, Fact] = {"field": name, "value": value}
        facts |= {"last_store_timestamp": limit} if name in TIMES else {"wrote": limit}
        if name in TIMES and value > time.time() * 1000 + _CLOCKS:
            facts["in_future"] = True
        findings.add(Finding(codes.CK_AHEAD, "checkpoint", file, at, size, facts))
