"""The positions of the parts of a fixture's store: log files, records, queues of one topic, DLedger files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.formats import consumequeue, dledger
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind

Damage = Callable[[Path], None]
"""What is done to a copy of a store."""
LOG_SIZE = 65536
UNIT = consumequeue.UNIT.size


def log_files(store: Path) -> list[Path]:
    return sorted(p for p in (store / "commitlog").iterdir() if p.name.isdigit())


def records(path: Path) -> list[int]:
    """Return the positions of the good records of a commitlog file."""
    runs = scan_file(MappedFile(path, int(path.name), LOG_SIZE, LOG_SIZE))
    return [
        at - int(path.name) for r in runs if r.kind is Kind.RECORDS and r.columns for at in r.columns.offset.tolist()
    ]


def entries(path: Path) -> list[int]:
    """Return the positions of the entries of a DLedger data file."""
    out, at, data = [], 0, path.read_bytes()
    while at + dledger.ENTRY.size <= len(data):
        entry = dledger.ENTRY.parse(data, at)
        if entry["magic"] != dledger.MAGIC:
            break
        out.append(at)
        at += entry["size"]
    return out


def topic(store: Path) -> Path:
    return next(p for p in sorted((store / "consumequeue").iterdir()) if p.name.startswith("Order"))


def queue_end(store: Path) -> tuple[Path, int]:
    """Return file and position of the first free unit of queue 0 of the topic."""
    for path in sorted((topic(store) / "0").iterdir()):
        units = consumequeue.UNIT.array(path.read_bytes())
        free = [i for i, size in enumerate(units["size"].tolist()) if size <= 0]
        if free:
            return path, free[0] * UNIT
    raise AssertionError("the queue has no free unit")


def group(store: Path) -> Path:
    return next(store.glob("dledger-*"))


def data_files(store: Path) -> list[Path]:
    return sorted((group(store) / "data").iterdir())
