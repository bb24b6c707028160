"""The file size of a queue, inferred from names, lengths and first records."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.files.mapped_file_queue import PAGE, DirEntry, infer_file_size, offset_to_file_name
from rmqstore.files.store import open_store
from tests.command import run_json
from tests.stores import copy_store

DEFAULT = 1 << 30
SIZE = 131_072


def entry(name: int | str, length: int = SIZE) -> DirEntry:
    text = name if isinstance(name, str) else offset_to_file_name(name)
    return DirEntry(Path("log") / text, length, 0, False)


@pytest.mark.parametrize("wrong", ["0000000000000026214", "0000000000000013107", "00000000000000000007", "77777777777"])
@pytest.mark.parametrize("files", [3, 4, 20])
def test_one_wrong_name_does_not_change_the_size(wrong: str, files: int) -> None:
    entries = [entry(n * SIZE) for n in range(files) if n != 1]
    assert infer_file_size([*entries, entry(wrong)], DEFAULT) == (SIZE, "files")


@pytest.mark.parametrize("length", [19, PAGE, 100_000, SIZE + PAGE, 1 << 40])
@pytest.mark.parametrize("files", [2, 3, 20])
def test_one_wrong_length_does_not_change_the_size(length: int, files: int) -> None:
    for wrong in range(files):
        entries = [entry(n * SIZE, length if n == wrong else SIZE) for n in range(files)]
        assert infer_file_size(entries, DEFAULT) == (SIZE, "files")


def test_equal_lengths_count_only_where_the_names_fit() -> None:
    assert infer_file_size([entry(0, 4_096), entry(6_000_000, 4_096)], DEFAULT) == (6_000_000, "names")


def test_files_missing_between_two_others_leave_the_length_of_the_longest_one() -> None:
    assert infer_file_size([entry(0, SIZE - PAGE), entry(2 * SIZE)], DEFAULT) == (SIZE, "files")
    assert infer_file_size([entry(0, 0), entry(16 * SIZE)], DEFAULT) == (SIZE, "files")
    assert infer_file_size([entry(0, 0), entry(17 * SIZE)], DEFAULT) == (17 * SIZE, "names")
    assert infer_file_size([entry(0, 0), entry(2 * SIZE, SIZE - PAGE)], DEFAULT) == (2 * SIZE, "names")


def test_names_that_overlap_state_no_size() -> None:
    assert infer_file_size([entry(0, 70_000), entry(26_214, 60_000)], DEFAULT) == (DEFAULT, "default")


def test_records_say_where_files_begin_when_names_do_not() -> None:
    entries = [entry(0, 4_096), entry(1_000_003)]
    assert infer_file_size(entries, DEFAULT) == (1_000_003, "names")
    place = {"00000000000000000000": 0, "00000000000001000003": SIZE}
    assert infer_file_size(entries, DEFAULT, place=lambda path: place[path.name]) == (SIZE, "files")


def test_a_single_log_file_that_was_cut_states_no_size() -> None:
    def nowhere(_: Path) -> None:
        return None

    assert infer_file_size([entry(0, 77_777)], DEFAULT, place=nowhere) == (DEFAULT, "default")
    assert infer_file_size([entry(0, 77_824)], DEFAULT, place=nowhere) == (77_824, "files")
    assert infer_file_size([entry(0, 19)], 6_000_000, 20) == (6_000_000, "default")


@pytest.mark.parametrize(
    ("name", "tree"),
    [("5.4.0-killed", "commitlog"), ("5.1.4-dledger", "dledger-n0/data"), ("5.4.0-clean", "commitlog")],
)
def test_a_renamed_log_file_leaves_the_store_s_size_alone(name: str, tree: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    path = sorted((store / tree).iterdir())[1]
    path.rename(path.with_name("0000000000000026214"))
    opened = open_store(store)
    log = opened.dledger.data if opened.dledger is not None else opened.commitlog
    assert log is not None
    assert (log.file_size, log.size_from) == (65_536, "files")


def test_a_forecast_says_when_the_size_of_the_files_is_only_assumed(store: Path) -> None:
    first, *others = sorted((store / "commitlog").iterdir())
    for path in others:
        path.unlink()
    assert "mappedFileSizeCommitLog" not in str(run_json("verify", str(store), exit_code=1)["verdict"])
    with first.open("r+b") as file:
        file.truncate(60_001)
    verdict = str(run_json("verify", str(store), exit_code=1)["verdict"])
    assert "(if mappedFileSizeCommitLog is 1,073,741,824, which the files do not tell" in verdict


def test_queues_that_were_copied_without_their_zeros_state_no_size() -> None:
    name = offset_to_file_name(0)
    cut = [DirEntry(Path(str(queue)) / name, length, 0, False) for queue, length in enumerate((260, 300, 260, 280))]
    assert infer_file_size(cut, 6_000_000, 20) == (6_000_000, "default")
    second = DirEntry(Path("0") / offset_to_file_name(1_000), 20, 0, False)
    assert infer_file_size([*cut, second], 6_000_000, 20) == (1_000, "names")
    whole = [DirEntry(Path(str(queue)) / name, 1_000, 0, False) for queue in range(4, 10)]
    assert infer_file_size([*cut, *whole], 6_000_000, 20) == (1_000, "files")
