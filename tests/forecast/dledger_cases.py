"""Damaged DLedger groups for which DLedger 0.4 on its own is asked what its recovery makes of them.

The real answers are recorded in `dledger_answers.json` (by `python -m tests.broker.test_dledger_library`), so that they
can be checked without Java.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from pathlib import Path

from rmqstore.formats import dledger
from tests.damage import overwrite, zero
from tests.forecast.dledger_damages import DLEDGER_DAMAGES
from tests.forecast.places import LOG_SIZE, Damage, data_files, entries, group

STORE = "5.4.0-dledger"
ANSWERS = Path(__file__).parent / "dledger_answers.json"
ENTRY, UNIT = dledger.ENTRY.size, dledger.INDEX_UNIT.size


@dataclass(frozen=True, slots=True)
class LibraryAnswer:
    """What the recovery came to: `code` 0, 4 (an exception) or 255 (DLedger ended the process), and the log's ends."""

    code: int
    begin_index: int | None = None
    end_index: int | None = None
    end_term: int | None = None
    data_end: int | None = None
    index_end: int | None = None
    gone: tuple[str, ...] = ()


def load_library_answers() -> dict[str, LibraryAnswer]:
    """The recorded answers by case name."""
    rows = json.loads(ANSWERS.read_text("utf-8"))
    return {name: LibraryAnswer(**{**row, "gone": tuple(row["gone"])}) for name, row in rows.items()}


def save_library_answers(answers: dict[str, LibraryAnswer]) -> None:
    rows = [f"{json.dumps(name)}: {json.dumps(asdict(answer))}" for name, answer in sorted(answers.items())]
    ANSWERS.write_text("{\n " + ",\n ".join(rows) + "\n}\n", "utf-8")


def _index(store: Path) -> Path:
    return group(store) / "index" / f"{0:020d}"


def _end(store: Path) -> tuple[Path, int, dict[str, int]]:
    """The last data file, where its entries end, and its last entry."""
    path = data_files(store)[-1]
    last = entries(path)[-1]
    entry = dledger.ENTRY.parse(path.read_bytes(), last)
    return path, last + entry["size"], entry


def internal(magic: int, unit_magic: int = dledger.NORMAL, body: bytes = b"") -> Damage:
    """An entry without a message behind the last one; the leader writes NORMAL into its index unit all the same."""

    def damage(store: Path) -> None:
        path, at, last = _end(store)
        size = ENTRY + len(body)
        fields = {"index": last["index"] + 1, "term": last["term"], "pos": int(path.name) + at, "size": size}
        overwrite(path, at, dledger.ENTRY.build(**fields, magic=magic, body_length=len(body)) + body)
        unit = dledger.INDEX_UNIT.build(**fields, magic=unit_magic)
        overwrite(_index(store), fields["index"] * UNIT, unit)

    return damage


def retyped(file: int, number: int, magic: int, *, unit: bool = True) -> Damage:
    """Another type for an entry that is there, and in its index unit."""

    def damage(store: Path) -> None:
        path = data_files(store)[file]
        at = entries(path)[number]
        index = dledger.ENTRY.parse(path.read_bytes(), at)["index"]
        overwrite(path, at, struct.pack(">i", magic))
        if unit:
            overwrite(_index(store), index * UNIT, struct.pack(">i", magic))

    return damage


def reset(number: int, *, file: int = 0, with_index: bool = True) -> Damage:
    """A file's first entries behind a BLANK, as MmapFileList#resetOffset leaves them after a snapshot."""

    def damage(store: Path) -> None:
        for path in data_files(store)[:file]:
            path.unlink()
        path = data_files(store)[0]
        at = entries(path)[number]
        index = dledger.ENTRY.parse(path.read_bytes(), at)["index"]
        overwrite(path, 0, struct.pack(">ii", dledger.BLANK_MAGIC, at).ljust(at, b"\0"))
        if with_index:
            head = struct.pack(">ii", dledger.BLANK_MAGIC, index * UNIT)
            overwrite(_index(store), 0, head.ljust(index * UNIT, b"\0"))

    return damage


def blanks(file: int, *sizes: int) -> Damage:
    """BLANKs of these sizes, one behind the other, from the start of a file on; -1: as much as is left."""

    def damage(store: Path) -> None:
        path, at = data_files(store)[file], 0
        for size in sizes:
            size = LOG_SIZE - at if size == -1 else size
            overwrite(path, at, struct.pack(">ii", dledger.BLANK_MAGIC, size))
            if 8 < size <= LOG_SIZE - at:
                zero(path, at + 8, size - 8)
            at += size

    return damage


def blank_over(file: int, number: int, size: int) -> Damage:
    """A BLANK of any size over an entry's head."""

    def damage(store: Path) -> None:
        path = data_files(store)[file]
        overwrite(path, entries(path)[number], struct.pack(">ii", dledger.BLANK_MAGIC, size))

    return damage


def blank_for(file: int, number: int, count: int) -> Damage:
    """A BLANK exactly over some entries in the middle of a file."""

    def damage(store: Path) -> None:
        path = data_files(store)[file]
        found = entries(path)
        size = found[number + count] - found[number]
        overwrite(path, found[number], struct.pack(">ii", dledger.BLANK_MAGIC, size).ljust(size, b"\0"))

    return damage


def moved(store: Path) -> None:
    """Every entry says another position: whoever moved them did not mind."""
    for path in data_files(store):
        for at in entries(path):
            overwrite(path, at + dledger.ENTRY.at("pos"), struct.pack(">q", 7))


def both(*damages: Damage) -> Damage:
    def damage(store: Path) -> None:
        for one in damages:
            one(store)

    return damage


LIBRARY_CASES: dict[str, Damage | None] = {
    **DLEDGER_DAMAGES,
    "NOOP at the end": internal(dledger.NOOP),
    "NOOP at the end, unit too": internal(dledger.NOOP, dledger.NOOP),
    "CONFIG_CHANGE at the end": internal(dledger.CONFIG_CHANGE, dledger.CONFIG_CHANGE, b"{}" * 40),
    "type 4 at the end": internal(4, 4),
    "NOOP in the last file": retyped(-1, 5, dledger.NOOP),
    "NOOP in the last file, unit NORMAL": retyped(-1, 5, dledger.NOOP, unit=False),
    "NOOP first in the third file": retyped(-3, 0, dledger.NOOP),
    "type 4 in the file before the last": retyped(-2, 5, 4),
    "reset in the first file": reset(10),
    "reset in the first file, index as it was": reset(10, with_index=False),
    "reset in the third file": reset(3, file=2),
    "reset in the last file": reset(3, file=7),
    "first file nothing but a BLANK": blanks(0, -1),
    "first file nothing but BLANKs": blanks(0, 1000, -1),
    "first two files nothing but BLANKs": both(blanks(0, -1), blanks(1, -1)),
    "middle file nothing but a BLANK": blanks(3, -1),
    "last file nothing but a BLANK": blanks(-1, -1),
    "BLANK too large in the last file": blank_over(-1, 3, LOG_SIZE),
    "BLANK too large in the file before": blank_over(-2, 3, LOG_SIZE),
    "BLANK huge in the last file": blank_over(-1, 3, 0x7FFFFFF0),
    "BLANK negative in the last file": blank_over(-1, 3, -100),
    "BLANK in the first file that ends nowhere": blank_over(0, 0, 100_000),
    "BLANK over entries of the last file": blank_for(-1, 3, 4),
    "BLANK over entries of the first file": blank_for(0, 3, 4),
    "entries moved": moved,
}
