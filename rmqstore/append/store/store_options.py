"""The settings of a writable store."""

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
    """The broker settings that determine the bytes of a store, and how it is written; sizes in bytes.

    A size of 0 means not given: an existing store keeps its own, a new one gets RocketMQ's default.
    `dledger` is the self id (`n0`) of the only member of a DLedger group, None for a plain store, and `term` its first
    term. `directories` contain the log files (several for multi-path), by default one directory in the store. `start`
    is the offset of the first log file. `warm` preallocates new files. `open` follows the rules of RocketMQ `version`.
    With `write_through` a message is written to the operating system before it is acknowledged, and so survives the
    death of the process, as in a broker. Without it, writing is faster, but up to 64 KiB of the log may be lost.
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
        """Return these options with RocketMQ's defaults for everything that is not given."""
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
