"""The records of a store in address order, as rows of numbers by which two stores are compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rmqstore.checks.log.commitlog import LogResult, PassWork, read_log
from rmqstore.checks.log.log_pass import PassOptions
from rmqstore.checks.problems.report import Findings
from rmqstore.errors import NotAStore
from rmqstore.files.store import Store, StoreKind
from rmqstore.formats.message import CRC32_PROPERTY, CRC32_RESERVED_LEN, HEAD, HEADS_BY_FLAG, crc32
from rmqstore.scan import kernels
from rmqstore.scan.columns import Columns
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.kernels import I64, Bool, u64
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import Mapper, jobs_or_default
from rmqstore.texts import Text

_CRC32_NAME = int.from_bytes(CRC32_PROPERTY[:8], "big")
_BEHIND_ADDRESS = HEAD.at("sys_flag")


@dataclass(frozen=True, slots=True)
class RecordRows:
    """Some consecutive records.

    `start`, `size`: offset and length of the record or DLedger entry, bytes; `whole`: CRC of these bytes.
    `content`: CRC of what does not change if a record gets another offset: everything after PHYSICALOFFSET except
    PREPAREDTXOFFSET and the record CRC. `index` and `term` are -1 in a commitlog.
    Shape: (n,)
    """

    start: I64
    size: I64
    whole: I64
    queue: I64
    queue_offset: I64
    content: I64
    time: I64
    index: I64
    term: I64

    def __len__(self) -> int:
        return len(self.start)

    def slice(self, low: int, high: int) -> RecordRows:
        """Return the rows [low, high)."""
        return RecordRows(*(getattr(self, name)[low:high] for name in RecordRows.__slots__))

    def where(self, which: Bool) -> RecordRows:
        """Return the rows where a mask is true."""
        return RecordRows(*(getattr(self, name)[which] for name in RecordRows.__slots__))


class LogRows:
    """The rows of a store's logs, the legacy commitlog first. First of all, a pass over the logs finds their ends."""

    def __init__(
        self,
        store: Store,
        table: QueueTable,
        *,
        jobs: int | None = None,
        max_rate: int = 0,
        mapper: Mapper | None = None,
    ) -> None:
        if store.kind is StoreKind.PART and store.commitlog is None and store.dledger is None:
            raise NotAStore(
                Text("{path} has no log to compare", path=store.path),
                Text("give a store, commitlog/ or dledger-*/ directory"),
            )
        self.store = store
        self.table = table
        live = store.lock_state().held
        self.options = ScanOptions(drop_cache=live, max_rate=max_rate)
        passing = PassOptions(
            store.path, tuple(sorted(store.config.given.items())), self.options, crosscheck=False, files=store.files
        )
        self.findings = Findings(keep=0)
        self.results: list[LogResult] = []
        for queue, body_offset in store.logs:
            work = PassWork(jobs_or_default(jobs, queue.bytes_on_disk), mapper=mapper)
            self.results.append(read_log(queue, passing, self.findings, body_offset=body_offset, work=work))
        if not self.results:
            raise NotAStore(Text("{path} has no file of a log", path=store.path))

    @property
    def min_offset(self) -> int:
        """The start of the first file of the first log."""
        return self.results[0].queue.start

    @property
    def wrote(self) -> int:
        """The end of the last sound record."""
        return max((r.wrote for r in self.results if r.messages), default=self.results[0].queue.start)

    @property
    def messages(self) -> int:
        return sum(r.messages for r in self.results)

    @property
    def damaged(self) -> int:
        """The number of damaged ranges and missing files before the end."""
        bad = (Kind.DIRTY, Kind.HOLE)
        return sum(1 for r in self.results for run in r.tiling if run.kind in bad and run.start < r.wrote)

    @property
    def end(self) -> int:
        """The end of the log's content: includes damage after the last sound record, but not stale records."""
        return max((_end(r) for r in self.results if r.messages), default=self.results[0].queue.start)

    def damage(self) -> list[tuple[int, int]]:
        """Return the damaged bytes and zeros before the end as sorted spans [start, stop), without missing files."""
        bad = (Kind.DIRTY, Kind.ZERO)
        return [
            (run.start, run.stop) for r in self.results for run in r.tiling if run.kind in bad and run.start < _end(r)
        ]

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the log that contains an offset; fewer at the end of a file."""
        for result in self.results:
            if result.queue.start <= offset < result.queue.stop:
                return result.queue.pread(length, offset)
        return b""

    def log_of(self, offset: int) -> str:
        """Return the log that contains an offset: `commitlog` or `dledger`."""
        last = self.results[-1]
        return "dledger" if last.body_offset and offset >= last.queue.start else "commitlog"

    def rows(self, since: int = 0) -> Iterator[RecordRows]:
        """Yield the rows of all sound records that start at `since` or later, in address order."""
        for result in self.results:
            for file in result.queue.files:
                if file.stop <= since or file.start >= result.wrote:
                    continue
                for run in scan_file(file, body_offset=result.body_offset, options=self.options):
                    if run.kind is Kind.RECORDS and run.columns is not None and run.start < result.wrote:
                        rows = rows_of(run.columns, self.table)
                        low = int(np.searchsorted(rows.start, since))
                        high = int(np.searchsorted(rows.start, result.wrote))
                        if high > low:
                            yield rows.slice(low, high)


def _end(result: LogResult) -> int:
    if result.stale_from is not None:
        return result.reaches
    content = (Kind.RECORDS, Kind.INTERNAL, Kind.DIRTY)
    return max([result.wrote, *(run.stop for run in result.tiling.tail() if run.kind in content)])


def rows_of(columns: Columns, table: QueueTable) -> RecordRows:
    """Return the rows of a chunk, with the table's queue numbers."""
    raw = columns.raw
    stops = columns.at + columns.size
    starts = columns.at - columns.body_offset
    entry = bool(columns.body_offset)
    none = np.full(len(columns), -1, dtype=np.int64)
    return RecordRows(
        columns.offset - columns.body_offset,
        columns.size + columns.body_offset,
        kernels.body_crcs(raw, starts, stops),
        table.of(columns),
        columns.queue_offset.copy(),
        _content(columns, raw, stops),
        columns.store_timestamp.copy(),
        columns.entry_index.copy() if entry else none,
        columns.entry_term.copy() if entry else none,
    )


def _content(columns: Columns, raw: bytearray, stops: I64) -> I64:
    """Return the CRC of what does not change if a record gets another offset (see `RecordRows`)."""
    out = kernels.body_crcs(raw, columns.at + _BEHIND_ADDRESS, stops)
    signed = u64(columns.buf)[stops - CRC32_RESERVED_LEN] == _CRC32_NAME
    moved = (columns.prepared_transaction_offset != 0) | signed
    for i in np.flatnonzero(moved).tolist():
        at, stop = int(columns.at[i]), int(stops[i])
        layout = HEADS_BY_FLAG[int(columns.sys_flag[i]) & 0x30]
        prepared = at + layout.at("prepared_transaction_offset")
        body = at + layout.at("body_length")
        end = stop - CRC32_RESERVED_LEN if signed[i] else stop
        crc = crc32(raw[at + _BEHIND_ADDRESS : prepared])
        out[i] = crc32(raw[body:end], crc) & 0x7FFFFFFF
    return out
