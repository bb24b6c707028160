"""Repairs a DLedger group's index, checkpoint and currterm so that they match its entries.

Source: DLedgerMmapFileStore#recover, MemberState#loadTerm, DLedgerLeaderElector#handleVote (DLedger 0.3.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rmqstore.append.scratch import Scratch, ScratchContent
from rmqstore.checks.problems import codes
from rmqstore.files.files import Files
from rmqstore.files.mapped_file_queue import MappedFile, offset_to_file_name
from rmqstore.files.store import DLedgerFiles
from rmqstore.formats import dledger
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.recovery import LogAfter, Recovery
from rmqstore.repair.repaired_log import RepairedLog
from rmqstore.scan.kernels import consecutive, false_runs
from rmqstore.scan.units import UnitArray
from rmqstore.texts import Text

_UNIT = dledger.INDEX_UNIT
_SPARES = (".tmp", ".bak")
_TEXT_LIMIT = 64 << 10


def plan_dledger(case: Recovery, draft: PlanBuilder, log: LogAfter) -> None:
    """Add the steps for index, checkpoint and currterm, from the entries."""
    files = draft.store.dledger
    if files is None or case.verified.dledger is None:
        return
    view = log.as_written()[-1]
    changed = view.changed or log.ends_earlier
    stray = any(path.startswith(draft.path(files.directory / "index")) for path in draft.gone)
    # a killed broker may not have written the last unit: without `abort`, nothing explains that it is missing
    stray |= bool(view.result.entries.wrong) and draft.path(draft.store.root / "abort") in draft.gone
    if changed or stray or case.wanted & {codes.DL_DATA_INDEX, codes.DL_INDEX_GHOST}:
        last = IndexPlan(draft, files, view).run()
    else:
        entries = view.result.entries
        last = (entries.last_index, entries.last_term) if entries.entries else None
    if changed or codes.DL_COMMITTED in case.wanted:
        end = last[0] if last is not None else -1
        _checkpoint(draft, files, end, single=last is not None and draft.store.config.role in ("single", "unknown"))
    if last is None:
        return
    if codes.DL_TERM in case.wanted:
        _currterm(draft, files, last[1])


class IndexPlan:
    """Rebuilds the index units that differ from the entries of a view.

    `existing` are the files to keep, by their start; `made` the contents of new ones; `runs` the differences in the
    existing files: (global position, content). `last`: index and term of the last entry.
    """

    def __init__(self, draft: PlanBuilder, files: DLedgerFiles, view: RepairedLog) -> None:
        self.draft = draft
        self.files = files
        self.view = view
        self.queue = files.index
        self.scratch = Scratch()
        self.existing: dict[int, MappedFile] = {
            f.start: f
            for f in self.queue.files
            if f.length == self.queue.file_size and draft.path(f.path) not in draft.gone
        }
        self.made: dict[int, ScratchContent] = {}
        self.runs: list[tuple[int, ScratchContent]] = []
        self.last: tuple[int, int] | None = None

    def run(self) -> tuple[int, int] | None:
        """Add the steps; return index and term of the last entry."""
        for units in self._units():
            for a, b in consecutive(units["index"].astype(np.int64)):  # entries may be missing, or have a wrong index
                if int(units["index"][a]) >= 0:
                    self._compare(units[a:b])
        why = Text("units rebuilt from the entries")
        for at, content in self.runs:
            file = self.existing[at // self.queue.file_size * self.queue.file_size]
            self.draft.overwrite(file.path, at - file.start, content, why)
        like = self.queue.files[0].path if self.queue.files else None
        for start, content in sorted(self.made.items()):
            path = self.files.directory / "index" / offset_to_file_name(start)
            if (damaged := self.queue.find(start)) is not None:
                self.draft.discard(damaged.path, Text("wrong length"))
            self.draft.create(path, self.queue.file_size, content, why, like)
        self._clear_end()
        return self.last

    def _units(self) -> Iterator[UnitArray]:
        """Yield the index units of all entries in chunks, in log order."""
        for columns in self.view.chunks():
            units: Any = np.empty(len(columns), dtype=_UNIT.dtype)
            units["magic"], units["pos"], units["size"] = columns.entry_magic, columns.entry_pos, columns.entry_size
            units["index"], units["term"] = columns.entry_index, columns.entry_term
            yield units

    def _compare(self, units: UnitArray) -> None:
        """Compare units with consecutive indexes with those on disk."""
        index, size = int(units["index"][-1]), self.queue.file_size
        if self.last is None or index > self.last[0]:
            self.last = (index, int(units["term"][-1]))
        while len(units):
            at = dledger.index_at(int(units["index"][0]))
            begin = at // size * size
            count = (begin + size - at) // _UNIT.size
            self._compare_in_file(begin, at, units[:count])
            units = units[count:]

    def _compare_in_file(self, begin: int, at: int, units: UnitArray) -> None:
        file = self.existing.get(begin)
        if file is None:
            content = self.made.setdefault(begin, ScratchContent(self.scratch))
            content.add(at - begin, units.tobytes())
            return
        raw = file.read_at(len(units) * _UNIT.size, at - begin).ljust(len(units) * _UNIT.size, b"\0")
        new = np.frombuffer(units.tobytes(), dtype=np.uint8).reshape(-1, _UNIT.size)
        same = (np.frombuffer(raw, dtype=np.uint8).reshape(-1, _UNIT.size) == new).all(axis=1)
        for a, b in false_runs(same):
            place = at + a * _UNIT.size
            last = self.runs[-1] if self.runs else None
            if last is not None and last[0] + last[1].size == place and place != begin:
                last[1].add(last[1].size, new[a:b].tobytes())
            else:
                content = ScratchContent(self.scratch)
                content.add(0, new[a:b].tobytes())
                self.runs.append((place, content))

    def _clear_end(self) -> None:
        """Zero everything after the unit of the last entry, and discard files there."""
        end = dledger.index_at(self.last[0] + 1) if self.last is not None else 0
        self.draft.cut(self.existing.values(), end, Text("units after the last entry"), _UNIT.size)


def _checkpoint(draft: PlanBuilder, files: DLedgerFiles, last: int, *, single: bool) -> None:
    """Write a committedIndex, which is a lower bound: that of the file or a spare, and at most the last entry.

    Without one, a single node has committed all its entries, and a member of a group learns it from its leader.
    """
    path = files.directory / "checkpoint"
    parsed = dledger.parse_dledger_checkpoint(files.files.read_at(path, _TEXT_LIMIT, 0))
    committed = parsed.committed_index
    if committed is not None and committed <= last:
        return
    if committed is None:
        for raw in _spares(files.files, path):
            committed = dledger.parse_dledger_checkpoint(raw).committed_index
            if committed is not None:
                break
    value = min(committed, last) if committed is not None else last if single else None
    content = dledger.DLedgerCheckpoint(value, last).build()
    _replace(draft, path, content, Text("committedIndex within the log"))


def _currterm(draft: PlanBuilder, files: DLedgerFiles, last_term: int) -> None:
    """Write a term that is not below the last entry's.

    If its vote in that term is unknown, the node counts as having voted for itself, so that it cannot vote twice: it
    rejects other candidates of that term, and votes again in the next one.
    """
    path = files.directory / "currterm"
    own = dledger.parse_currterm(files.files.read_at(path, _TEXT_LIMIT, 0))
    if not own.faults and own.term >= last_term:
        return
    found = [own] if not own.faults else []
    found += [spare for raw in _spares(files.files, path) if not (spare := dledger.parse_currterm(raw)).faults]
    best = next((one for one in found if one.term >= last_term), None)
    value = best or dledger.CurrTerm(max([last_term, *(one.term for one in found)]), files.self_id)
    _replace(draft, path, value.build(), Text("the newest known term"))


def _spares(files: Files, path: Path) -> Iterator[bytes]:
    """Yield the copies that a crash between delete and rename has left; DLedger itself never reads them."""
    for suffix in _SPARES:
        raw = files.read_at(path.with_name(path.name + suffix), _TEXT_LIMIT, 0)
        if raw:
            yield raw


def _replace(draft: PlanBuilder, path: Path, content: bytes, why: str) -> None:
    backups = (entry.path for entry in draft.store.files.list(path.parent) if entry.path.suffix == ".bak")
    draft.replace(path, content, why, old=why, like=next(backups, None))
