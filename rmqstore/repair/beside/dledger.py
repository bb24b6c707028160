"""A DLedger group's index, checkpoint and currterm brought to its entries.

Source: DLedgerMmapFileStore#recover, MemberState#loadTerm, DLedgerLeaderElector#handleVote (DLedger 0.3.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rmqstore.checks.problems import codes
from rmqstore.checks.verify import Verified
from rmqstore.files.disk.reading import read_at
from rmqstore.files.mapped_file_queue import MappedFile, offset_to_file_name
from rmqstore.files.store import DLedgerFiles
from rmqstore.formats import dledger
from rmqstore.repair.journal.disk import Scratch
from rmqstore.repair.journal.scratch_content import ScratchContent
from rmqstore.repair.log.repaired_log import RepairedLog
from rmqstore.repair.plan.content import Literal
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.scan.kernels import consecutive
from rmqstore.scan.units import last_nonzero_in

_UNIT = dledger.INDEX_UNIT
_SPARES = (".tmp", ".bak")
_TEXT_LIMIT = 64 << 10
Units = np.ndarray[tuple[int], np.dtype[np.void]]


def plan_dledger(
    draft: PlanBuilder,
    verified: Verified,
    view: RepairedLog,
    options: RecoverOptions,
    *,
    changed: bool,
    force: bool = False,
) -> None:
    """Steps for the group of a view. `changed`: steps change its entries; `force`: compare the index anyway."""
    files = draft.store.dledger
    if files is None:
        return
    counts = verified.report.findings.counts
    stray = any(path.startswith(draft.path(files.directory / "index")) for path in draft.gone)
    wanted = [code for code in (codes.DL_DATA_INDEX, codes.DL_INDEX_GHOST) if code in counts and options.wants(code)]
    if wanted or changed or stray or force:
        last = IndexPlan(draft, files, view).run()
        draft.cures.update(wanted)
    else:
        entries = view.result.entries
        last = (entries.last_index, entries.last_term) if entries.entries else None
    if changed or (codes.DL_COMMITTED in counts and options.wants(codes.DL_COMMITTED)):
        end = last[0] if last is not None else -1
        draft.cures |= {codes.DL_COMMITTED} & counts.keys()
        _checkpoint(draft, files, end, single=last is not None and draft.store.config.role in ("single", "unknown"))
    if last is None:
        return
    if codes.DL_TERM in counts and options.wants(codes.DL_TERM):
        _currterm(draft, files, last[1])


class IndexPlan:
    """The index units that differ from the entries of a view, file by file."""

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
        self.runs: list[tuple[int, ScratchContent]] = []  # (global position, content)
        self.first = -1
        self.last: tuple[int, int] | None = None

    def run(self) -> tuple[int, int] | None:
        """Add the steps; index and term of the last entry."""
        for units in self._units():
            for a, b in consecutive(units["index"].astype(np.int64)):  # apart where entries are missing, or wrong
                if int(units["index"][a]) >= 0:
                    self._compare(units[a:b])
        why = "units rebuilt from the entries"
        for at, content in self.runs:
            file = self.existing[at // self.queue.file_size * self.queue.file_size]
            self.draft.overwrite(file.path, at - file.start, content, why)
        like = self.queue.files[0].path if self.queue.files else None
        for start, content in sorted(self.made.items()):
            path = self.files.directory / "index" / offset_to_file_name(start)
            if (damaged := self.queue.find(start)) is not None:
                self.draft.discard(damaged.path, "wrong length")
            self.draft.create(path, self.queue.file_size, content, why, like)
        self._behind()
        return self.last

    def _units(self) -> Iterator[Units]:
        """Index units of the entries, chunk by chunk, in the order of their numbers as far as the log is sound."""
        for columns in self.view.chunks():
            units: Any = np.empty(len(columns), dtype=_UNIT.dtype)
            units["magic"], units["pos"], units["size"] = columns.entry_magic, columns.entry_pos, columns.entry_size
            units["index"], units["term"] = columns.entry_index, columns.entry_term
            yield units
        for offset, _ in self.view.patched():
            head = dledger.ENTRY.parse(self.view.bytes_at(dledger.ENTRY.size, offset - dledger.ENTRY.size))
            yield _UNIT.array(_UNIT.build(**{n: head[n] for n in ("magic", "pos", "size", "index", "term")}))

    def _compare(self, units: Units) -> None:
        index = units["index"].astype(np.int64)
        if self.last is None or int(index[-1]) > self.last[0]:
            self.last = (int(index[-1]), int(units["term"][-1]))
        self.first = int(index[0]) if self.first < 0 else min(self.first, int(index[0]))
        start = int(index[0])
        size = self.queue.file_size
        while start < int(index[0]) + len(units):
            at = dledger.index_at(start)
            begin = at // size * size
            stop = min(int(index[0]) + len(units), (begin + size) // _UNIT.size)
            part = units[start - int(index[0]) : stop - int(index[0])]
            self._part(begin, at, part)
            start = stop

    def _part(self, begin: int, at: int, units: Units) -> None:
        file = self.existing.get(begin)
        if file is None:
            content = self.made.setdefault(begin, ScratchContent(0, self.scratch))
            content.add(at - begin, units.tobytes())
            return
        raw = read_at(file.path, len(units) * _UNIT.size, at - begin).ljust(len(units) * _UNIT.size, b"\0")
        new = np.frombuffer(units.tobytes(), dtype=np.uint8).reshape(-1, _UNIT.size)
        same = (np.frombuffer(raw, dtype=np.uint8).reshape(-1, _UNIT.size) == new).all(axis=1)
        edges = np.flatnonzero(np.diff(np.concatenate(([1], same.astype(np.int8), [1])))).tolist()
        for a, b in zip(edges[0::2], edges[1::2], strict=True):
            place = at + a * _UNIT.size
            last = self.runs[-1] if self.runs else None
            if last is not None and last[0] + last[1].size == place and place != begin:
                last[1].add(last[1].size, new[a:b].tobytes())
            else:
                content = ScratchContent(0, self.scratch)
                content.add(0, new[a:b].tobytes())
                self.runs.append((place, content))

    def _behind(self) -> None:
        """Only zeros follow the last entry's unit, and no file begins there."""
        end = dledger.index_at(self.last[0] + 1) if self.last is not None else 0
        why = "units behind the last entry"
        for file in self.existing.values():
            if file.start >= end and (file.start or self.last is None):
                self.draft.discard(file.path, why)
                continue
            last = last_nonzero_in(file, _UNIT.size)
            if last is not None and file.start + last >= end:
                self.draft.zero(file.path, end - file.start, last + _UNIT.size - (end - file.start), why)


def _checkpoint(draft: PlanBuilder, files: DLedgerFiles, last: int, *, single: bool) -> None:
    """`committedIndex` is a lower bound: the file's own, a spare's, and at most the last entry.

    Without any a single node has committed all it has; a member of a group waits for its leader (-1).
    """
    path = files.directory / "checkpoint"
    parsed = dledger.parse_dledger_checkpoint(read_at(path, _TEXT_LIMIT, 0))
    committed = parsed.committed_index
    if committed is not None and committed <= last:
        return
    if committed is None:
        for raw in _spares(path):
            committed = dledger.parse_dledger_checkpoint(raw).committed_index
            if committed is not None:
                break
    value = min(committed, last) if committed is not None else last if single else None
    content = dledger.DLedgerCheckpoint(value, last).build()
    _replace(draft, path, content, "committedIndex within the log")


def _currterm(draft: PlanBuilder, files: DLedgerFiles, last_term: int) -> None:
    """The term is never below the last entry's; in a term whose vote is not known the node has voted for itself.

    So it cannot vote twice: it turns down other candidates of that term, and takes part in the next one.
    """
    path = files.directory / "currterm"
    own = dledger.parse_currterm(read_at(path, _TEXT_LIMIT, 0))
    if not own.faults and own.term >= last_term:
        return
    found = [own] if not own.faults else []
    found += [spare for raw in _spares(path) if not (spare := dledger.parse_currterm(raw)).faults]
    best = next((one for one in found if one.term >= last_term), None)
    value = best or dledger.CurrTerm(max([last_term, *(one.term for one in found)]), files.self_id)
    _replace(draft, path, value.build(), "the newest known term")
    draft.cures.add(codes.DL_TERM)


def _spares(path: Path) -> Iterator[bytes]:
    """What a crash between delete and rename has left; DLedger itself never reads it."""
    for suffix in _SPARES:
        raw = read_at(path.with_name(path.name + suffix), _TEXT_LIMIT, 0)
        if raw:
            yield raw


def _replace(draft: PlanBuilder, path: Path, content: bytes, why: str) -> None:
    if path.exists():
        draft.discard(path, why)
    beside: Callable[[], Path | None] = lambda: next(iter(sorted(path.parent.glob("*.bak"))), None)  # noqa: E731
    draft.create(path, len(content), Literal(content), why, beside())
