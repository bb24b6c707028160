"""Finds the file that recovery begins with, for each version, after a clean exit or a crash.

Source: CommitLog#recoverNormally, #recoverAbnormally, #isMappedFileMatchedRecover; #isMappedFileMatchedRecover of
ConsumeQueueStore, CombineConsumeQueueStore, IndexService, IndexRocksDBStore, TransMessageRocksDBStore
(RocketMQ 4.3.0 to 5.5.1).
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqstore.brokers.log.walk import LogReader
from rmqstore.brokers.rules.forecast import StartFails
from rmqstore.brokers.rules.versions import AbnormalStart, BrokerRules, NormalStart
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store_queues import PREFERRED, chooses_rocksdb
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
from rmqstore.texts import Text

DEFAULT_CAP = 10
MAGIC_AT = HEAD.at("magic")


@dataclass(frozen=True, slots=True)
class Exit:
    """The state after the last exit, as far as recovery depends on it.

    `clean` is False after a crash. `max_cq` is the largest address in the consume queues (global offset).
    `by_address`: the queues are in RocksDB, so that `max_cq` counts after a crash too. `rocksdb_end`: the end of the
    rows in a RocksDB that is written besides queue files (CombineConsumeQueueStore); if it lacks rows, recovery begins
    a few files earlier. `message_rows`: the lastOffsetPy of the index and of half messages in rocksdbstore/, if the
    broker keeps them there; recovery begins with a file that starts at or below each.
    """

    clean: bool
    checkpoint: StoreCheckpoint
    max_cq: int
    by_address: bool = False
    rocksdb_end: int | None = None
    message_rows: tuple[int, ...] = ()


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
    test = _Test(rules, config, last_exit)
    for index in range(len(log.files) - 1, 0 if last_exit.clean else -1, -1):
        tries -= 1
        if test.passes(log, index) or tries <= 0:
            return index
    return 0


def by_checkpoint(rules: BrokerRules, checkpoint: StoreCheckpoint, offset: int, time: int) -> bool:
    """Return whether recovery after a crash can begin with a message, by the checkpoint of queues in files.

    Source: ConsumeQueueStore#isMappedFileMatchedRecover (RocketMQ 5.4.0 and 5.5.1)
    """
    if not rules.logics_offset:
        return time <= checkpoint.min_timestamp()
    if checkpoint.logics_physical_offset > 0:
        return offset <= checkpoint.logics_physical_offset
    return time <= checkpoint.logics_msg_timestamp


class _Test:
    """Decides whether recovery can begin with a file (#isMappedFileMatchedRecover)."""

    def __init__(self, rules: BrokerRules, config: BrokerConfig, last_exit: Exit) -> None:
        self.rules, self.last_exit, self.checkpoint = rules, last_exit, last_exit.checkpoint
        self.index_safe = config.bool("messageIndexEnable") and config.bool("messageIndexSafe")
        self.light_queues_in_rocksdb = rules.logics_offset and config.bool("combineCQUseRocksdbForLmq")
        self.reads_rocksdb = chooses_rocksdb(config, PREFERRED)
        self.more = config.int("combineCQMaxExtraSearchCommitLogFiles")

    def passes(self, log: LogReader, index: int) -> bool:
        if self.rules.abnormal_start is AbnormalStart.HEAD:
            return self._head(log.head(index, HEADS_BY_FLAG[0x30].size))
        first = log.first_record(index)
        if not first.success or first.store_timestamp == 0:
            return False
        time, offset = first.store_timestamp, first.physical_offset
        indexed = not self.index_safe or time <= self.checkpoint.index_msg_timestamp
        if not indexed and not self.rules.logics_offset:  # 5.5.0 and newer ask the queues first
            return False
        if not self._queues(offset, time) or not self._rocksdb_beside(offset):
            return False
        return indexed and all(offset <= last for last in self.last_exit.message_rows)

    def _head(self, raw: bytes) -> bool:
        time = head_store_time(raw, v2=self.rules.v2, ipv6=self.rules.ipv6)
        if self.last_exit.by_address and time is not None:
            offset = int.from_bytes(raw[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big", signed=True)
            return offset <= self.last_exit.max_cq
        if time is None or time == 0:
            return False
        checkpoint = self.checkpoint
        return time <= (checkpoint.min_timestamp_index() if self.index_safe else checkpoint.min_timestamp())

    def _queues(self, offset: int, time: int) -> bool:
        if self.last_exit.clean or self.last_exit.by_address:
            return offset <= self.last_exit.max_cq
        return by_checkpoint(self.rules, self.checkpoint, offset, time)

    def _rocksdb_beside(self, offset: int) -> bool:
        """Return whether the RocksDB of the same queues agrees, or recovery has searched enough files for it.

        Errors: StartFails if the broker is to read from that RocksDB, which stays incomplete.
        """
        end = self.last_exit.rocksdb_end
        if end is None or offset <= end or (self.rules.logics_offset and end <= 0):  # 5.5.0 and newer: it is new
            return True
        if self.light_queues_in_rocksdb:
            return False
        self.more -= 1
        if self.more >= 0:
            return False
        if self.reads_rocksdb:
            raise StartFails(
                Text("the RocksDB of the consume queues lacks messages of too many log files (combineCQPreferCQType)"),
                "not satisfied readable conditions, only can read from",
            )
        return True


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
