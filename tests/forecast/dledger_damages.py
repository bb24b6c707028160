"""Kinds of damage to the files of a DLedger group."""

from __future__ import annotations

from pathlib import Path

from rmqstore.formats import dledger
from rmqstore.formats.message import HEAD
from tests.damage import flip, zero
from tests.forecast.damages import no_queues, no_topic, queue_last_unit, queue_units
from tests.forecast.places import LOG_SIZE, Damage, data_files, entries, group


def entry(file: int, number: int, name: str, byte: int = -1, bit: int = 0) -> Damage:
    """Flip a bit in the header of a DLedger entry."""

    def damage(store: Path) -> None:
        path = data_files(store)[file]
        size = next(f.size for f in dledger.ENTRY if f.name == name)
        flip(path, entries(path)[number] + dledger.ENTRY.at(name) + byte % size, bit)

    return damage


def entry_body(file: int, number: int, at: int = 100) -> Damage:
    def damage(store: Path) -> None:
        path = data_files(store)[file]
        flip(path, entries(path)[number] + dledger.ENTRY.size + at)

    return damage


def entry_zeros(file: int, number: int, length: int) -> Damage:
    def damage(store: Path) -> None:
        path = data_files(store)[file]
        zero(path, entries(path)[number], length)

    return damage


def no_data_file(file: int) -> Damage:
    return lambda store: data_files(store)[file].unlink()


def swap_data_files(one: int, other: int) -> Damage:
    def damage(store: Path) -> None:
        first, second = data_files(store)[one], data_files(store)[other]
        content = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(content)

    return damage


def both(*damages: Damage) -> Damage:
    def damage(store: Path) -> None:
        for one in damages:
            one(store)

    return damage


def only_last_data_file(store: Path) -> None:
    for path in data_files(store)[:-1]:
        path.unlink()


def more_data(store: Path) -> None:
    last = data_files(store)[-1]
    last.with_name(f"{int(last.name) + LOG_SIZE:020d}").write_bytes(bytes(LOG_SIZE))


def index_unit(number: int, name: str) -> Damage:
    def damage(store: Path) -> None:
        path = next((group(store) / "index").iterdir())
        flip(path, number * dledger.INDEX_UNIT.size + dledger.INDEX_UNIT.at(name) + 3)

    return damage


def no_dledger_index(store: Path) -> None:
    for path in (group(store) / "index").iterdir():
        path.unlink()


def dledger_checkpoint(text: str | None) -> Damage:
    def damage(store: Path) -> None:
        path = group(store) / "checkpoint"
        if text is None:
            path.unlink()
        else:
            path.write_text(text)

    return damage


def in_group(path: str, content: bytes = b"") -> Damage:
    def damage(store: Path) -> None:
        (group(store) / path).write_bytes(content)

    return damage


DLEDGER_DAMAGES: dict[str, Damage | None] = {
    "undamaged": None,
    **{f"pos in file {n}": entry(n, 5, "pos") for n in (-1, -2, -3, -4)},
    **{f"{f} of an entry": entry(-1, 5, f) for f in ("magic", "size", "index", "term", "channel", "body_length")},
    **{f"{f} in the file before": entry(-2, 5, f) for f in ("magic", "size", "index", "term", "body_length")},
    "term rises": entry(-1, 5, "term", 4, 4),
    "first entry of the last file": entry(-1, 0, "pos"),
    "first entry of the third file": entry(-3, 0, "pos"),
    "message body": entry_body(-1, 5),
    "message magic": entry_body(-2, 5, HEAD.at("magic") + 3),
    "zero page in the data": entry_zeros(-2, 10, 4096),
    "zero entry header": entry_zeros(-1, 3, 48),
    "no DLedger checkpoint": dledger_checkpoint(None),
    "empty DLedger checkpoint": dledger_checkpoint(""),
    "committed index too large": dledger_checkpoint("committedIndex=99999\n"),
    "committed index small": dledger_checkpoint("endIndex=5\ncommittedIndex=5\n"),
    "committed index -1": dledger_checkpoint("committedIndex=-1\n"),
    "committed index not a number": dledger_checkpoint("endIndex=5\ncommittedIndex=5x\n"),
    "committed index too large for a long": dledger_checkpoint("committedIndex=9223372036854775808\n"),
    "committed index between blanks": dledger_checkpoint("committedIndex= 5 \\t\n"),
    "broken escape in the DLedger checkpoint": dledger_checkpoint("x=\\u00\ncommittedIndex=5\n"),
    "term not a number": in_group("currterm", b"voteLeader=\ncurrTerm=x\n"),
    "index unit": index_unit(100, "magic"),
    "late index unit": index_unit(500, "size"),
    "no DLedger index": no_dledger_index,
    "first data file missing": no_data_file(0),
    "middle data file missing": no_data_file(3),
    "data file before the last missing": no_data_file(-2),
    "last data file missing": no_data_file(-1),
    "first and last data file swapped": swap_data_files(0, -1),
    "first and last data file swapped, committed index small": both(
        swap_data_files(0, -1), dledger_checkpoint("endIndex=5\ncommittedIndex=5\n")
    ),
    "index of the first entry huge": entry(0, 0, "index", 0, 4),
    "index of the first entry large": entry(0, 0, "index", -2, 2),
    **{
        f"index of the only file's first entry, bit {bit}": both(only_last_data_file, entry(0, 0, "index", 0, bit))
        for bit in (2, 4, 7)  # the unit's position overflows: below 0, to the right one; the index is below 0
    },
    "stray file in data": in_group("data/x.txt", b"1"),
    "stray file in the DLedger index": in_group("index/zz"),
    "right length, wrong name in data": in_group("data/a.bak", bytes(LOG_SIZE)),
    "zero data file behind": more_data,
    "all queues missing": no_queues,
    "topic's queues missing": no_topic,
    "last unit missing": queue_last_unit,
    "bogus units beyond the log": queue_units(10_000_000),
}
