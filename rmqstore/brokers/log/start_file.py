"""Finds the file that recovery begins with, for each version, after a clean exit or a crash.

Source: CommitLog#recoverNormally, #recoverAbnormally, #isMappedFileMatchedRecover; ConsumeQueueStore
#isMappedFileMatchedRecover (RocketMQ 4.3.0 to 5.4.0).
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqstore.brokers.log.walk import LogReader
from rmqstore.brokers.rules.versions import AbnormalStart, BrokerRules, NormalStart
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.formats.checkpoint import StoreCheckpoint
from rmqstore.formats.message import (
    BORN_HOST_V6,
    HEAD,
    HEADS_BY_FLAG,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    SYS_FLAG_AT,
)

DEFAULT_CAP = 10
MAGIC_AT = HEAD.at("magic")


@dataclass(frozen=True, slots=True)
class Exit:
    """The state after the last exit, as far as recovery depends on it.

    `clean` is False after a crash. `max_cq` is the largest address in the consume queues (global offset).
    `by_address`: the queues are in RocksDB, so that `max_cq` counts after a crash too. `rocksdb_end`: the end of the
    rows in a RocksDB that is written besides queue files (CombineConsumeQueueStore); if it lacks rows, recovery begins
    a few files earlier.
    """

    clean: bool
    checkpoint: StoreCheckpoint
    max_cq: int
    by_address: bool = False
    rocksdb_end: int | None = None


def start_file(log: LogReader, rules: BrokerRules, config: BrokerConfig, last_exit: Exit) -> int:
    """Return the index of the file that recovery begins with; `log` has at least one file."""
    if last_exit.clean and rules.normal_start is NormalStart.LAST_THREE:
        return max(0, len(log.files) - 3)
    if last_exit.clean and rules.normal_start is NormalStart.BY_FILE_START:
        index = len(log.files) - 1
        while index > 0 and log.files[index].start > last_exit.max_cq:
            index -= 1
        return index
    tries = len(log.files) + 1
    if rules.recover_cap:
        asked = config.int("commitLogRecoverMaxNum")
        tries = asked if asked > 0 else DEFAULT_CAP
    index_safe = config.bool("messageIndexEnable") and config.bool("messageIndexSafe")
    rocksdb_end = last_exit.rocksdb_end
    more = config.int("combineCQMaxExtraSearchCommitLogFiles") if rocksdb_end is not None else 0
    for index in range(len(log.files) - 1, 0 if last_exit.clean else -1, -1):
        tries -= 1
        found = _matches(log, index, rules, last_exit, index_safe)
        if found and rocksdb_end is not None and log.first_record(index).physical_offset > rocksdb_end:
            found = more <= 0
            more -= 1
        if found or tries <= 0:
            return index
    return 0


def _matches(log: LogReader, index: int, rules: BrokerRules, last_exit: Exit, index_safe: bool) -> bool:
    """Return whether recovery can begin with a file (#isMappedFileMatchedRecover)."""
    checkpoint = last_exit.checkpoint
    if rules.abnormal_start is AbnormalStart.HEAD:
        raw = log.head(index, HEADS_BY_FLAG[0x30].size)
        time = head_store_time(raw, v2=rules.v2, ipv6=rules.ipv6)
        if last_exit.by_address and time is not None:
            offset = int.from_bytes(raw[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big", signed=True)
            return offset <= last_exit.max_cq
        if time is None or time == 0:
            return False
        return time <= (checkpoint.min_timestamp_index() if index_safe else checkpoint.min_timestamp())
    first = log.first_record(index)
    if not first.success or first.store_timestamp == 0:
        return False
    if index_safe and first.store_timestamp > checkpoint.index_msg_timestamp:
        return False
    if last_exit.clean or last_exit.by_address:
        return first.physical_offset <= last_exit.max_cq
    return first.store_timestamp <= checkpoint.min_timestamp()


def head_store_time(raw: bytes, *, v2: bool, ipv6: bool) -> int | None:
    """Return the store time (ms) of the first record if its magic is valid, else None; nothing else is checked."""
    if len(raw) < HEAD.size:
        return None
    magic = int.from_bytes(raw[MAGIC_AT : MAGIC_AT + 4], "big", signed=True)
    if magic != MAGIC_V1 and not (v2 and magic == MAGIC_V2):
        return None
    flags = int.from_bytes(raw[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big") & BORN_HOST_V6 if ipv6 else 0
    at = HEADS_BY_FLAG[flags].at("store_timestamp")
    return int.from_bytes(raw[at : at + 8], "big", signed=True)
