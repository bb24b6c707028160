"""DLedger entries according to their headers and to the DLedger index."""

from __future__ import annotations

from dataclasses import dataclass

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.files.store import Store
from rmqstore.formats import dledger


@dataclass(frozen=True, slots=True)
class EvidenceEntry:
    """A DLedger entry according to its header or its index unit; `pos` and `size` in bytes."""

    index: int
    term: int
    pos: int
    size: int


def header_at(log: LogResult, at: int) -> EvidenceEntry | None:
    """Return the entry according to the header at a global offset; None if bytes are missing."""
    raw = log.queue.pread(dledger.ENTRY.size, at)
    if len(raw) < dledger.ENTRY.size:
        return None
    values = dledger.ENTRY.parse(raw)
    return EvidenceEntry(values["index"], values["term"], values["pos"], values["size"])


def unit_of(store: Store, index: int) -> EvidenceEntry | None:
    """Return an entry according to its index unit; None if there is no valid one."""
    files = store.dledger
    values = files.index.unit(dledger.INDEX_UNIT, index) if files is not None else None
    if values is None or (values["magic"], values["index"]) != (dledger.MAGIC, index):
        return None
    return EvidenceEntry(index, values["term"], values["pos"], values["size"])
