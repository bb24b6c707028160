"""A plain store built from the messages of another one: records re-laid, queues, index and checkpoint built from them.

Everything is built in a directory beside its place and renamed at the end, so that there is a whole store or none.
Source: CommitLog.DefaultAppendMessageCallback#doAppend (where a record does not fit), RocketMQ 5.4.0; what a way back
from DLedger must do is told by DLedgerCommitLog, for which no such tool exists.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmqstore.append.files.disk import create_file, explain, make_directories, replace_file, sync_directory, write_all
from rmqstore.append.readdress.dispatch import Known, ReaddressDispatch
from rmqstore.append.readdress.files import IdMap, Progress, copy_file
from rmqstore.append.store.dispatch import DispatchOptions
from rmqstore.files.mapped_file_queue import MappedFile, offset_to_file_name
from rmqstore.formats.checkpoint import StoreCheckpoint
from rmqstore.formats.message import (
    BLANK_SIZE,
    CRC32_PROPERTY,
    CRC32_RESERVED_LEN,
    HEAD,
    HEADS_BY_FLAG,
    PHYSICAL_OFFSET_AT,
    STORE_HOST_V6,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    build_blank,
    set_record_crc,
)
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, U8, u64

_CRC32_NAME = int.from_bytes(CRC32_PROPERTY[:8], "big")
_EIGHT = np.arange(8)
HALF_TOPICS = (b"RMQ_SYS_TRANS_HALF_TOPIC", b"RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC")
WHEEL_TOPIC = b"rmq_sys_wheel_timer"


@dataclass(frozen=True, slots=True)
class ReaddressOptions:
    """Sizes in bytes. `start`: global offset of the first re-laid record; `known`: whether a queue is to have units."""

    file_size: int
    start: int
    dispatch: DispatchOptions
    index_slots: int
    index_units: int
    known: Known = lambda topic, queue_id: True


class Readdressing:
    """The new store while it is built: take the legacy records as they are, then re-lay the others, in order.

    `position` is where the next record goes (global, bytes); `messages` counts the re-laid ones.
    """

    def __init__(self, root: Path, options: ReaddressOptions, ids: IdMap | None = None) -> None:
        self.root = root
        self.options = options
        self.position = options.start
        self.messages = 0
        self.unmapped = 0
        self.last_time = 0
        self.last_offset = 0
        self._ids = ids
        self._descriptor = -1
        self.queues = ReaddressDispatch(root, options.dispatch, options.index_slots, options.index_units, options.known)
        self._old = array("q")  # of half and timer messages, which other places refer to by their address
        self._new = array("q")
        make_directories(root / "commitlog")
        make_directories(root / "consumequeue")

    # --- records ---------------------------------------------------------------------------------------------------

    def copy_legacy(self, file: MappedFile, progress: Progress | None = None) -> None:
        """A file of the legacy part, as it is."""
        copy_file(file.path, self.root / "commitlog" / file.name, progress)

    def keep(self, columns: Columns) -> None:
        """Records in a copied file: only their units and index entries are made."""
        self._dispatch(columns, columns.offset)

    def add(self, columns: Columns) -> None:
        """Re-lay records: new PHYSICALOFFSET, PREPAREDTXOFFSET and record CRC; body, body CRC and all else stay.

        Errors: NoSpace and others.
        """
        places = self._place(columns.size)
        self._remember(columns, places)
        low = 0
        for high in [*(np.flatnonzero(np.diff(places // self.options.file_size)) + 1).tolist(), len(columns)]:
            self._write(columns.slice(low, high), places[low:high])
            low = high
        self._dispatch(columns, places)
        self.messages += len(columns)

    def _place(self, sizes: I64) -> I64:
        """Addresses of the next records: where one and a BLANK behind it do not fit, the next file begins."""
        out = []
        size, position = self.options.file_size, self.position
        stop = position - position % size + size
        for length in sizes.tolist():
            if position + length + BLANK_SIZE > stop:
                position, stop = stop, stop + size
            out.append(position)
            position += length
        return np.array(out, dtype=np.int64)

    def _write(self, columns: Columns, places: I64) -> None:
        first = int(places[0])
        if first != self.position:
            self._close_file(blank=True)
            self.position = first
        if self._descriptor < 0:
            name = offset_to_file_name(first - first % self.options.file_size)
            self._descriptor = create_file(self.root / "commitlog" / name, self.options.file_size)
        raw, starts = columns.raw, columns.at.tolist()
        stops = (columns.at + columns.size).tolist()
        data = bytearray().join([raw[a:b] for a, b in zip(starts, stops, strict=True)])
        laid: U8 = np.frombuffer(data, dtype=np.uint8)
        at = places - first
        laid[(at + PHYSICAL_OFFSET_AT)[:, None] + _EIGHT] = places.astype(">i8").view(np.uint8).reshape(-1, 8)
        self._patch(columns, data, at)
        try:
            write_all(self._descriptor, data, first % self.options.file_size)
        except OSError as error:
            raise explain(error, self.root / "commitlog") from error
        self.position = first + len(data)

    def _patch(self, columns: Columns, data: bytearray, at: I64) -> None:
        """PREPAREDTXOFFSET, and the record CRC over all of it."""
        prepared = columns.prepared_transaction_offset
        ends = columns.at + columns.size
        signed = u64(columns.buf)[ends - CRC32_RESERVED_LEN] == _CRC32_NAME
        signed &= columns.properties_length >= CRC32_RESERVED_LEN
        for i in np.flatnonzero((prepared != 0) | signed).tolist():
            start, size = int(at[i]), int(columns.size[i])
            if prepared[i]:
                layout = HEADS_BY_FLAG[int(columns.sys_flag[i]) & 0x30]
                place = start + layout.at("prepared_transaction_offset")
                data[place : place + 8] = self.new_address(int(prepared[i])).to_bytes(8, "big", signed=True)
            if signed[i]:
                data[start : start + size] = set_record_crc(bytes(data[start : start + size]))

    def _remember(self, columns: Columns, places: I64) -> None:
        offsets, new = columns.offset.tolist(), places.tolist()
        if self._ids is not None:
            for host, old, now in zip(_store_hosts(columns), offsets, new, strict=True):
                self._ids.add(host, old, now)
        table = self.queues.table
        numbers = table.of(columns)
        referred = [n for n, topic in enumerate(table.topics) if topic in HALF_TOPICS or topic == WHEEL_TOPIC]
        wanted = np.isin(numbers, referred) | ((columns.sys_flag & TRANSACTION_MASK) == TRANSACTION_PREPARED)
        for i in np.flatnonzero(wanted).tolist():
            self._old.append(offsets[i])
            self._new.append(new[i])

    def new_address(self, old: int) -> int:
        """New offset of a half or timer message; an address that was not re-laid stays (bytes)."""
        found = self.find_address(old)
        if found is None:
            if old >= self.options.start:
                self.unmapped += 1
            return old
        return found

    def find_address(self, old: int) -> int | None:
        """The same, None for an address that was not re-laid."""
        at = np.searchsorted(np.frombuffer(self._old, dtype=np.int64), old) if self._old else 0
        if at < len(self._old) and self._old[int(at)] == old:
            return self._new[int(at)]
        return None

    def _dispatch(self, columns: Columns, places: I64) -> None:
        self.queues.dispatch(columns, places)
        self.last_time = max(self.last_time, int(columns.store_timestamp.max()))
        self.last_offset = int(places[-1])

    # --- the end ---------------------------------------------------------------------------------------------------

    def _close_file(self, *, blank: bool) -> None:
        if self._descriptor < 0:
            return
        size = self.options.file_size
        try:
            if blank:
                at = self.position % size
                write_all(self._descriptor, build_blank(size - at), at)
            os.fsync(self._descriptor)
        except OSError as error:
            raise explain(error, self.root / "commitlog") from error
        finally:
            os.close(self._descriptor)
            self._descriptor = -1

    def finish(self) -> None:
        """Bring everything to the disk, the checkpoint last.

        Errors: NoSpace and others.
        """
        self._close_file(blank=False)
        index_time = self.queues.finish()
        values = StoreCheckpoint(self.last_time, self.last_time, index_time, 0, self.last_offset)
        replace_file(self.root / "checkpoint", values.build())
        for folder, _, _ in os.walk(self.root):
            sync_directory(Path(folder))

    def abandon(self) -> None:
        """Let go of all files."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self.queues.abandon()


def _store_hosts(columns: Columns) -> Iterator[bytes]:
    """Address and port of the store host of each record, as stored."""
    at = columns.at + columns.born_growth + HEAD.at("store_host")
    width = np.where(columns.sys_flag & STORE_HOST_V6, 20, 8)
    raw = columns.raw
    for low, high in zip(at.tolist(), (at + width).tolist(), strict=True):
        yield bytes(raw[low:high])
