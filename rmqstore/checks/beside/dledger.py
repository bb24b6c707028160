"""DL-*: entries compared with the DLedger index, and checkpoint and currterm compared with the entries.

`log/findings.py` judges damaged entries and tails, as in a commitlog; this module checks what only DLedger has.

The committed end of a log, according to its own files, is a lower bound, written every few seconds. Brokers dispatch
committed entries only. Later entries have no units yet, and a leader may still replace them.
Source: DLedgerMmapFileStore#updateCommittedIndex, DLedgerCommitLog#getMaxOffset (RocketMQ 4.5.1 to 5.4.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rmqstore.checks.log.log_contents import EntryTally
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings
from rmqstore.files.files import Files
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue, offset_to_file_name
from rmqstore.files.store import DLedgerFiles, Store
from rmqstore.formats import dledger
from rmqstore.scan.kernels import I64
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind, Tiling
from rmqstore.scan.units import last_nonzero, unit_chunks
from rmqstore.scan.window import ScanOptions
from rmqstore.texts import Text, joined

if TYPE_CHECKING:
    from rmqstore.checks.log.commitlog import LogResult

_UNIT = dledger.INDEX_UNIT
_TEXT_LIMIT = 64 << 10
CHECKPOINT, CURRTERM = "checkpoint", "currterm"
UNUSED = Text("unused, and more than a file after the last entry")


def check_dledger(
    store: Store,
    files: DLedgerFiles,
    tally: EntryTally,
    findings: Findings,
    *,
    tiling: Tiling | None = None,
    live: bool = False,
) -> int | None:
    """Check a DLedger group, apart from the runs of its data, and return the committed index in its checkpoint.

    `tally` covers all good entries; damage in `tiling` explains gaps between them.
    """
    killed = live or store.abort
    _overlap(store, files, findings)
    _missing_files(store, files, findings)
    _gaps(tally, tiling, files, findings)
    if tiling is not None:
        _unused(files, tiling, findings)
    if files.index.directories:
        _index(tally, files.index, findings, killed, live)
    if store.part not in (None, "dledger-group"):
        return None
    _currterm(files, tally, findings, live)
    if files.newer or tally.internal:  # DLedger 0.4 writes no checkpoint
        return None
    return _checkpoint(files, tally, findings, killed, live)


def check_dledger_texts(store: Store, findings: Findings) -> None:
    """Check `checkpoint` or `currterm` as a part of its own: whether it can be read."""
    raw = store.files.read_at(store.path, _TEXT_LIMIT, 0)
    if store.part == "dledger-checkpoint":
        _committed_fault(store.files, raw, store.path, findings)
    elif store.part == CURRTERM and (faults := dledger.parse_currterm(raw).faults):
        facts: dict[str, Fact] = {"reason": joined(faults, "; ")}
        findings.add(Finding(codes.DL_TERM, "dledger", store.path.name, 0, len(raw), facts))


_CHUNK = 1 << 16  # bytes of units


def _overlap(store: Store, files: DLedgerFiles, findings: Findings) -> None:
    legacy, at = store.commitlog, store.overlap if files is store.dledger else None
    if legacy is not None and at is not None:
        facts: dict[str, Fact] = {"dledger_begins": files.data.start, "commitlog_files_end": legacy.stop}
        findings.add(Finding(codes.DL_OVERLAP, "commitlog", offset_to_file_name(at), at, 0, facts))


def _missing_files(store: Store, files: DLedgerFiles, findings: Findings) -> None:
    for queue, name in ((files.data, "dledger"), (files.index, "dledger-index")):
        front = [(queue.begin, queue.start)] if queue is files.data and queue.begin < queue.start else []
        for start, stop in (*front, *queue.holes()):
            facts: dict[str, Fact] = {"files": (stop - start) // queue.file_size, "next": offset_to_file_name(stop)}
            file = offset_to_file_name(start)
            findings.add(Finding(codes.DL_MISSING_FILE, name, file, start, stop - start, facts))
    if files is store.dledger and (hole := store.hole_before_dledger) is not None:
        start, stop = hole
        facts = {"legacy_end": start, "next": files.data.files[0].name}
        findings.add(Finding(codes.DL_MISSING_FILE, "dledger", offset_to_file_name(start), start, stop - start, facts))


def unused_files(data: MappedFileQueue, tiling: Tiling) -> list[MappedFile]:
    """Return the last files of DLedger's data with which it does not start: more than a file after its entries.

    Source: DLedgerMmapFileStore#recover (RocketMQ 4.5.1 to 5.5.1): "processOffset is too small"
    """
    end = tiling.next_append()
    return [file for file in data.files if file.start - end > data.file_size]


def _unused(files: DLedgerFiles, tiling: Tiling, findings: Findings) -> None:
    for file in unused_files(files.data, tiling):
        facts: dict[str, Fact] = {"reason": UNUSED}
        findings.add(Finding(codes.DL_STRAY_FILE, "dledger", file.name, file.start, file.length, facts))


def _gaps(tally: EntryTally, tiling: Tiling | None, files: DLedgerFiles, findings: Findings) -> None:
    for gap in tally.gaps:
        if tiling is not None and _damaged(tiling, gap.before, gap.at) and gap.index > gap.expected_index:
            continue  # the damage between has its own finding
        facts: dict[str, Fact] = {
            "expected_index": gap.expected_index,
            "index": gap.index,
            "last_term": gap.last_term,
            "term": gap.term,
        }
        name = files.data.name_at(gap.at)
        findings.add(Finding(codes.DL_INDEX_ORDER, "dledger", name, gap.at, dledger.ENTRY.size, facts))


def _damaged(tiling: Tiling, start: int, stop: int) -> bool:
    at = start
    while at < stop:
        run = tiling.find(at)
        if run is None or run.kind not in (Kind.BLANK, Kind.RECORDS, Kind.INTERNAL):
            return True
        at = run.stop
    return False


def _index(tally: EntryTally, index: MappedFileQueue, findings: Findings, killed: bool, live: bool) -> None:
    # a broker writes an entry before its unit, so after a kill, or on a live store, the last entry may lack one
    under_way = killed and tally.wrong == tally.absent == 1 and tally.last_wrong == tally.last_index
    if tally.wrong and not under_way:
        at = dledger.index_at(tally.first_wrong)
        facts: dict[str, Fact] = {
            "index": tally.first_wrong,
            "last_index": tally.last_wrong,
            "count": tally.wrong,
            "absent": tally.absent,
        }
        findings.add(Finding(codes.DL_DATA_INDEX, "dledger-index", index.name_at(at), at, _UNIT.size, facts))
    after = last_nonzero(index, _UNIT.size)
    end = dledger.index_at(tally.last_index + 1)
    if after is not None and after >= end and not live:
        facts = {"last_index": tally.last_index, "units": (after - end) // _UNIT.size + 1}
        length = after + _UNIT.size - end
        findings.add(Finding(codes.DL_INDEX_GHOST, "dledger-index", index.name_at(end), end, length, facts))


def _spares(files: Files, path: Path) -> str:
    """Return the copies that DLedger never reads but that could restore the file, newest first."""
    return ", ".join(s for s in (".tmp", ".bak") if files.is_file(path.with_name(path.name + s)))


def _checkpoint(group: DLedgerFiles, tally: EntryTally, findings: Findings, killed: bool, live: bool) -> int | None:
    files, path = group.files, group.directory / CHECKPOINT
    raw = files.read_at(path, _TEXT_LIMIT, 0)
    if not raw and not files.exists(path):
        spares = _spares(files, path)
        if tally.entries and not live and not (killed and not spares):  # DLedger writes the first one after 3 seconds
            facts: dict[str, Fact] = {"reason": "missing", "spares": spares}
            findings.add(Finding(codes.DL_COMMITTED, "dledger", path.name, facts=facts))
        return None
    if live and not raw:
        return None
    committed = _committed_fault(files, raw, path, findings)
    if committed is not None and committed > tally.last_index and not live:
        facts = {"committed_index": committed, "last_index": tally.last_index}
        findings.add(Finding(codes.DL_COMMITTED, "dledger", path.name, 0, len(raw), facts))
    return committed


def _committed_fault(files: Files, raw: bytes, path: Path, findings: Findings) -> int | None:
    parsed = dledger.parse_dledger_checkpoint(raw)
    if parsed.committed_index is None:
        facts: dict[str, Fact] = {"reason": joined(parsed.faults, "; "), "spares": _spares(files, path)}
        findings.add(Finding(codes.DL_COMMITTED, "dledger", path.name, 0, len(raw), facts))
    return parsed.committed_index


def _currterm(group: DLedgerFiles, tally: EntryTally, findings: Findings, live: bool) -> None:
    files, path = group.files, group.directory / CURRTERM
    raw = files.read_at(path, _TEXT_LIMIT, 0)
    if not raw and not files.exists(path):
        if tally.entries and not live:
            facts: dict[str, Fact] = {"reason": "missing", "spares": _spares(files, path), "last_term": tally.last_term}
            findings.add(Finding(codes.DL_TERM, "dledger", path.name, facts=facts))
        return
    if live and not raw:
        return
    parsed = dledger.parse_currterm(raw)
    if parsed.faults:
        facts = {"reason": joined(parsed.faults, "; "), "spares": _spares(files, path), "last_term": tally.last_term}
        findings.add(Finding(codes.DL_TERM, "dledger", path.name, 0, len(raw), facts))
    elif parsed.term < tally.last_term:
        facts = {"curr_term": parsed.term, "last_term": tally.last_term}
        findings.add(Finding(codes.DL_TERM, "dledger", path.name, 0, len(raw), facts))


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
            columns = part.columns
            if columns is not None and len(hit := np.flatnonzero(columns.entry_index == index)):
                return int(columns.entry_pos[hit[0]] + columns.entry_size[hit[0]])
    return None


def _header(data: MappedFileQueue, at: int) -> dict[str, int] | None:
    raw = data.pread(dledger.ENTRY.size, at) if data.start <= at < data.stop else b""
    return dledger.ENTRY.parse(raw) if len(raw) == dledger.ENTRY.size else None


def entries_after(store: Store, log: LogResult) -> Iterator[tuple[int, dict[str, int]]]:
    """Yield (position, unit) of the consecutive entries that DLedger's index has after the end of the data."""
    files = store.dledger
    if files is None or not log.body_offset or not log.messages:
        return
    size, end, number = log.queue.file_size, log.wrote, log.entries.last_index + 1
    for chunk in unit_chunks(files.index, dledger.INDEX_UNIT, start=dledger.index_at(number), chunk=_CHUNK):
        for row in chunk.units:
            unit = {name: int(row[name]) for name in ("pos", "size", "index", "term")}
            pos, length = unit["pos"], unit["size"]
            fresh = pos % size == 0 and 0 <= pos - end < size
            if unit["index"] != number or not (pos == end or fresh) or not log.body_offset < length <= size:
                return
            yield pos, unit
            end, number = pos + length, number + 1


def entries_between(store: Store, log: LogResult) -> I64:
    """Return the positions of the entries that DLedger's index has in damage before the end of the data, in order."""
    out = [np.zeros(0, dtype=np.int64)]
    files, number, end = store.dledger, 0, log.min_offset
    for run in log.tiling if files is not None and log.body_offset else ():
        if run.kind is not Kind.RECORDS or run.start >= log.wrote:
            continue
        first = _header(log.queue, run.start)
        if files is None or first is None:
            continue
        low = max(number, first["index"] - (run.start - end) // log.body_offset)  # no more entries have room
        if low < first["index"]:
            start, stop = dledger.index_at(low), dledger.index_at(first["index"])
            for chunk in unit_chunks(files.index, dledger.INDEX_UNIT, start=start, stop=stop, chunk=_CHUNK):
                pos: I64 = chunk.units["pos"].astype(np.int64)
                good = (pos >= end) & (pos < run.start) & (chunk.units["size"] > log.body_offset)
                good &= chunk.units["index"] == chunk.number + np.arange(len(pos))
                out.append(pos[good])
        number, end = first["index"] + run.count, run.stop
    return np.concatenate(out)
