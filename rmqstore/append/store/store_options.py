"""The settings of a store that is written."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from rmqstore.append.files.flush import FlushIntervals, FlushPolicy
from rmqstore.append.messages.encoder import Limits
from rmqstore.append.store.dispatch import DispatchOptions
from rmqstore.files.broker_config import BATCH_FILE_SIZE, COMMITLOG_FILE_SIZE, CONSUME_QUEUE_FILE_SIZE
from rmqstore.formats import index
from rmqstore.formats.properties import DEFAULT_DELAY_LEVELS


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The settings of a broker that decide its bytes; sizes in bytes.

    A size of 0 is not given: an existing store has it already, a new one gets RocketMQ's default.
    `dledger` is the self id of a DLedger member (`n0`) that is the only one of its group, None for a plain store,
    `term` its first term; `directories` are where log files go (several: multi-path), by default one in the store;
    `start` is the offset of the first log file; `warm` reserves the blocks of a file when it is made; `version` is
    whose rules `open` follows.
    With `write_through` every message is with the operating system when it is acknowledged, and survives the death of
    the process, as in a broker. Without it up to 64 KiB of a log file may still be in this process: faster, and lost
    when it dies before the next flush.
    """

    commitlog_file_size: int = 0
    index_slots: int = 0
    index_units: int = 0
    limits: Limits = field(default_factory=Limits)
    dispatch: DispatchOptions = field(default_factory=DispatchOptions)
    flush: FlushPolicy = FlushPolicy.ASYNC
    intervals: FlushIntervals = field(default_factory=FlushIntervals)
    dledger: str | None = None
    term: int = 0
    directories: tuple[Path, ...] = ()
    start: int = 0
    warm: bool = False
    version: str | None = None
    write_through: bool = True

    def with_defaults(self) -> StoreOptions:
        """The same with RocketMQ's default for everything that is not given."""
        dispatch = self.dispatch
        return replace(
            self,
            commitlog_file_size=self.commitlog_file_size or COMMITLOG_FILE_SIZE,
            index_slots=self.index_slots or index.DEFAULT_SLOTS,
            index_units=self.index_units or index.DEFAULT_UNITS,
            dispatch=replace(
                dispatch,
                consume_queue_file_size=dispatch.consume_queue_file_size or CONSUME_QUEUE_FILE_SIZE,
                batch_file_size=dispatch.batch_file_size or BATCH_FILE_SIZE,
                delay_levels=dispatch.delay_levels or DEFAULT_DELAY_LEVELS,
            ),
        )
