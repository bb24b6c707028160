"""The committed end of a DLedger log according to its own files: a lower bound, written every few seconds.

Brokers dispatch committed entries only. Later entries have no units yet, and a leader may still replace them.
Source: DLedgerMmapFileStore#updateCommittedIndex, DLedgerCommitLog#getMaxOffset (RocketMQ 4.5.1 to 5.4.0).
"""

from __future__ import annotations

from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.store import DLedgerFiles
from rmqstore.formats import dledger
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind, Tiling
from rmqstore.scan.window import ScanOptions

_TEXT_LIMIT = 64 << 10


def committed_index(group: DLedgerFiles) -> int | None:
    """Return the index of the last committed entry according to the checkpoint; None if unknown."""
    raw = group.files.read_at(group.directory / "checkpoint", _TEXT_LIMIT, 0)
    index = dledger.parse_dledger_checkpoint(raw).committed_index
    return None if index is None or index < 0 else index


def committed_end(files: DLedgerFiles, tiling: Tiling | None = None) -> int | None:
    """Return the end (global offset) of the last committed entry according to the checkpoint; None if unknown.

    If the index does not have the entry, `tiling` is used to find it in the data.
    """
    index = committed_index(files)
    if index is None:
        return None
    unit = files.index.unit(dledger.INDEX_UNIT, index)
    if unit is not None:
        found = _header(files.data, unit["pos"])
        if unit["index"] == index and found is not None and found["index"] == index and found["size"] == unit["size"]:
            return int(unit["pos"]) + int(unit["size"])
    return _in_data(files.data, tiling, index) if tiling is not None else None


def _in_data(data: MappedFileQueue, tiling: Tiling, index: int) -> int | None:
    for run in tiling:
        if run.kind is not Kind.RECORDS:
            continue
        first, file = _header(data, run.start), data.find(run.start)
        if first is None or file is None or not first["index"] <= index < first["index"] + run.count:
            continue
        start, stop = run.start - file.start, run.stop - file.start
        options = ScanOptions(crc=False)
        for part in scan_file(
            file, start=start, stop=stop, body_offset=dledger.ENTRY.size, exact=True, options=options
        ):
            if part.columns is None:
                continue
            for number, pos, size in zip(
                part.columns.entry_index.tolist(),
                part.columns.entry_pos.tolist(),
                part.columns.entry_size.tolist(),
                strict=True,
            ):
                if number == index:
                    return int(pos) + int(size)
    return None


def _header(data: MappedFileQueue, at: int) -> dict[str, int] | None:
    raw = data.pread(dledger.ENTRY.size, at) if data.start <= at < data.stop else b""
    return dledger.ENTRY.parse(raw) if len(raw) == dledger.ENTRY.size else None
