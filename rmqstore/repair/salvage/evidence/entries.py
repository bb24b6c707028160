"""What DLedger's own headers and its index say of the entries of a damaged span."""

from __future__ import annotations

from dataclasses import dataclass

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.files.store import Store
from rmqstore.formats import dledger


@dataclass(frozen=True, slots=True)
class Entry:
    """A DLedger entry as its header or its index unit says it; positions and sizes in bytes."""

    index: int
    term: int
    pos: int
    size: int


def header_at(log: LogResult, at: int) -> Entry | None:
    """What the header at a global offset says."""
    raw = log.queue.pread(dledger.ENTRY.size, at)
    if len(raw) < dledger.ENTRY.size:
        return None
    values = dledger.ENTRY.parse(raw)
    return Entry(values["index"], values["term"], values["pos"], values["size"])


def unit_of(store: Store, index: int) -> Entry | None:
    """The index unit of an entry, where its index has one."""
    files = store.dledger
    if files is None or index < 0:
        return None
    raw = files.index.pread(dledger.INDEX_UNIT.size, dledger.index_at(index))
    if len(raw) < dledger.INDEX_UNIT.size:
        return None
    values = dledger.INDEX_UNIT.parse(raw)
    if values["magic"] != dledger.MAGIC or values["index"] != index:
        return None
    return Entry(index, values["term"], values["pos"], values["size"])
