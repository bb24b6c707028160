"""The language for damage in case.toml: positions, lengths, strictness."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.case import Case, Step, Verify, make, position
from tests.stores import unpack


def damaged(target: Path, store: str, *steps: Step) -> Path:
    case = Case("X", "", store, steps, Verify(counts={}), None, None, "only a test")
    return make(case, target)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("start", 0),
        ("record 1", 168),
        ("record 2", 405),
        ("record 2 + 4", 409),
        ("record 0 stop", 168),
        ("record -1", 1919),
        ("end", 2029),
        ("size", 65536),
        (-4, 65532),
        ("unit 3", 60),
        (17, 17),
    ],
)
def test_positions_are_found_in_a_commitlog_file(at: str | int, expected: int) -> None:
    file = unpack("head_formats") / "commitlog" / "00000000000000000000"
    assert position(file, at) == expected


def test_body_position_is_the_first_byte_of_the_body() -> None:
    store = unpack("5.4.0-clean")
    file = store / "commitlog" / "00000000000000000000"
    at = position(file, "record 0 body")
    assert file.read_bytes()[at : at + 8] == b"ready 11"


def test_dledger_body_position_skips_the_entry_header() -> None:
    file = unpack("5.4.0-dledger") / "dledger-n0" / "data" / "00000000000000000000"
    at = position(file, "entry 0 body")
    assert file.read_bytes()[at : at + 8] == b"ready 11"


def test_record_of_a_queue_is_found_across_files(tmp_path: Path) -> None:
    store = damaged(tmp_path, "head_many", {"do": "flip", "path": "commitlog", "at": "record 400 + 8"})
    before, after = unpack("head_many") / "commitlog", store / "commitlog"
    names = sorted(path.name for path in before.iterdir())
    changed = [name for name in names if (before / name).read_bytes() != (after / name).read_bytes()]
    assert len(changed) == 1
    assert changed != ["00000000000000000000"]


def test_add_changes_a_field_by_a_difference(tmp_path: Path) -> None:
    step: Step = {"do": "add", "path": "commitlog/00000000000000000000", "at": 20, "width": 8, "value": 5}
    store = damaged(tmp_path, "head_formats", step)
    assert (store / "commitlog/00000000000000000000").read_bytes()[20:28] == (5).to_bytes(8, "big")


@pytest.mark.parametrize(
    "step",
    [
        {"do": "melt", "path": "checkpoint"},
        {"do": "flip", "path": "checkpoint", "at": 0, "bits": 3},
        {"do": "flip", "path": "checkpoint", "at": "somewhere"},
        {"do": "zero", "path": "checkpoint", "at": 2000, "length": 10},
        {"do": "cut", "path": "checkpoint", "at": 4096},
        {"do": "write", "path": "checkpoint", "text": "x"},
    ],
)
def test_damage_without_effect_is_refused(step: Step, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        damaged(tmp_path, "5.4.0-clean", step)


def test_star_is_the_first_matching_name(tmp_path: Path) -> None:
    store = damaged(tmp_path, "5.4.0-clean", {"do": "delete", "path": "commitlog/*"})
    assert min(path.name for path in (store / "commitlog").iterdir()) == f"{65536:020}"


def test_star_without_a_matching_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing fits"):
        damaged(tmp_path, "5.4.0-clean", {"do": "delete", "path": "nowhere/*"})
