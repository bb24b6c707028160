"""Batch consume queues compared with the log, on copies of a real store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests import damage
from tests.checks.looks import counts, facts, look

UNIT = 46
TOPIC = "batchconsumequeue/BatchCq_11"


STORE = "5.4.0-formats"


def file_of(store: Path) -> Path:
    return store / TOPIC / "0" / f"{0:020d}"


@pytest.mark.parametrize(
    ("byte", "bit", "expected"),
    [
        (7, 1, {"BCQ-DANGLING-UNIT": 1, "BCQ-MISSING-UNIT": 1}),
        (0, 7, {"BCQ-DANGLING-UNIT": 1, "BCQ-GHOST-UNITS": 6, "BCQ-MISSING-UNIT": 1}),
        (11, 0, {"BCQ-WRONG-UNIT": 1}),
        (19, 0, {"BCQ-WRONG-UNIT": 1}),
        (27, 0, {"BCQ-WRONG-UNIT": 1}),
        (35, 1, {"BCQ-WRONG-UNIT": 1}),
        (37, 2, {"BCQ-WRONG-UNIT": 1}),
    ],
)
def test_a_flipped_bit_of_a_unit_has_its_code(store: Path, byte: int, bit: int, expected: dict[str, int]) -> None:
    damage.flip(file_of(store), UNIT + byte, bit)
    assert counts(store) == expected


def test_bits_that_no_broker_reads_are_not_judged(store: Path) -> None:
    damage.flip(file_of(store), UNIT + 38)  # compacted offset
    assert counts(store) == {}


def test_a_zeroed_unit_in_the_middle_makes_ghosts_of_those_after_it(store: Path) -> None:
    damage.zero(file_of(store), UNIT, UNIT)
    found = counts(store)
    assert found["BCQ-MISSING-UNIT"] == 1
    assert found["BCQ-GHOST-UNITS"] >= 1


def test_a_queue_without_files_lacks_all_its_units(store: Path) -> None:
    shutil.rmtree(store / TOPIC / "0")
    report = look(store, parallel=True)
    assert report.findings.counts == {"BCQ-MISSING-UNIT": 1}
    assert facts(report, "BCQ-MISSING-UNIT")["messages"] == 8


def test_units_of_a_killed_broker_may_lag(store: Path) -> None:
    damage.zero(file_of(store), 7 * UNIT, UNIT)
    (store / "abort").write_bytes(b"")
    assert counts(store) == {}
