"""A BLANK is accepted only if nothing after it contradicts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.formats import dledger, message
from rmqstore.scan.records import scan_file
from rmqstore.scan.resync import ENTRY_SIZE
from rmqstore.scan.tiling import Kind, Tiling
from tests.damage import overwrite
from tests.stores import copy_store

FILE = 65_536


def runs(folder: Path, number: int, body_offset: int = 0) -> list[tuple[str, int, int]]:
    """Return kind, start in the file and number of records of each run of one file."""
    queue = MappedFileQueue.open("log", [folder], file_size=FILE, default=FILE)
    file = queue.files[number]
    tiling = Tiling(file.start)
    tiling.extend(scan_file(file, body_offset=body_offset))
    return [(run.kind.name, run.start - file.start, run.count) for run in tiling]


def starts(path: Path, body_offset: int = 0) -> list[int]:
    """Return the positions of the records or entries of a sound file."""
    data, out, at = path.read_bytes(), [], 0
    magic = (dledger.MAGIC,) if body_offset else (message.MAGIC_V1, message.MAGIC_V2)
    while int.from_bytes(data[at + (0 if body_offset else 4) :][:4], "big", signed=True) in magic:
        out.append(at)
        at += int.from_bytes(data[at + (4 if body_offset else 0) :][:4], "big")
    return out


def second_file(tmp_path: Path) -> tuple[Path, Path, list[int]]:
    """Return the commitlog of a copied store, its second file, and the positions of the records in it."""
    folder = copy_store("5.4.0-clean", tmp_path) / "commitlog"
    path = sorted(folder.iterdir())[1]
    return folder, path, starts(path)


@pytest.mark.parametrize("size", [-1, 0, 8, FILE])
def test_a_blank_of_the_wrong_size_hides_no_record(size: int, tmp_path: Path) -> None:
    folder, path, at = second_file(tmp_path)
    overwrite(path, at[9], message.BLANK.build(size=size))
    assert runs(folder, 1) == [
        ("RECORDS", 0, 9),
        ("DIRTY", at[9], 0),
        ("RECORDS", at[10], len(at) - 10),
        ("BLANK", runs(folder, 1)[-1][1], 0),
    ]


@pytest.mark.parametrize("ones", [8, 512])
def test_ones_hide_no_entry(ones: int, tmp_path: Path) -> None:
    folder = copy_store("5.1.4-dledger", tmp_path) / "dledger-n0" / "data"
    path = sorted(folder.iterdir())[1]
    at = starts(path, ENTRY_SIZE)
    overwrite(path, at[9], b"\xff" * ones)
    good = next(i for i, start in enumerate(at) if start >= at[9] + ones)
    found = runs(folder, 1, ENTRY_SIZE)
    assert found[:2] == [("RECORDS", 0, 9), ("DIRTY", at[9], 0)]
    assert (found[2], found[-1][0]) == (("RECORDS", at[good], len(at) - good), "BLANK")


def test_ones_over_the_last_entry_are_damage(tmp_path: Path) -> None:
    folder = copy_store("5.1.4-dledger", tmp_path) / "dledger-n0" / "data"
    path = max(folder.iterdir())
    at = starts(path, ENTRY_SIZE)
    overwrite(path, at[-1], b"\xff" * 8)
    assert [run[0] for run in runs(folder, -1, ENTRY_SIZE)] == ["RECORDS", "DIRTY", "ZERO"]


def test_a_blank_of_the_right_size_is_false_where_the_next_record_would_have_fit(tmp_path: Path) -> None:
    folder, path, at = second_file(tmp_path)
    overwrite(path, at[9], message.build_blank(FILE - at[9]))
    assert [run[::2] for run in runs(folder, 1)][:3] == [("RECORDS", 9), ("DIRTY", 0), ("RECORDS", len(at) - 10)]


def test_a_blank_of_the_right_size_stays_in_front_of_older_records(tmp_path: Path) -> None:
    """After a truncation, old records remain after the new end of the log, and a BLANK may be written over them."""
    folder, path, at = second_file(tmp_path)
    later = message.HEAD.at("store_timestamp")
    time = int.from_bytes(path.read_bytes()[at[-1] + later :][:8], "big")
    overwrite(path, at[8] + later, (time + 1).to_bytes(8, "big"))
    overwrite(path, at[9], message.build_blank(FILE - at[9]))
    assert runs(folder, 1) == [("RECORDS", 0, 9), ("BLANK", at[9], 0)]


def test_a_scan_that_starts_at_a_blank_judges_it_like_a_scan_of_the_file(tmp_path: Path) -> None:
    folder, path, at = second_file(tmp_path)
    later = message.HEAD.at("store_timestamp")
    time = int.from_bytes(path.read_bytes()[at[-1] + later :][:8], "big")
    overwrite(path, at[9], message.build_blank(FILE - at[9]))
    for stamp, kind in ((time - 86_400_000, Kind.DIRTY), (time + 1, Kind.BLANK)):
        overwrite(path, at[8] + later, stamp.to_bytes(8, "big"))
        file = MappedFileQueue.open("log", [folder], file_size=FILE, default=FILE).files[1]
        for start in (at[9], at[8], 0):
            run = next(run for run in scan_file(file, start=start, exact=True) if run.kind is not Kind.RECORDS)
            assert (run.kind, run.start - file.start) == (kind, at[9])


def test_a_blank_of_the_right_size_stays_where_no_file_follows(tmp_path: Path) -> None:
    folder = copy_store("5.4.0-clean", tmp_path) / "commitlog"
    path = max(folder.iterdir())
    at = starts(path)
    overwrite(path, at[9], message.build_blank(FILE - at[9]))
    assert runs(folder, -1) == [("RECORDS", 0, 9), ("BLANK", at[9], 0)]
