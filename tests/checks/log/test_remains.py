"""What the buffer of `writeWithoutMmap` leaves after the last record is no damage; all other bytes there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.checks.problems.problem import Severity
from tests import damage
from tests.checks.looks import Record, counts, look, records
from tests.stores import copy_store, meta

LEFT = 672  # bytes that are not zero after the last record of the store


STORE = "5.5.1-nommap"


def last_of(store: Path) -> Record:
    """Return the last record that names its own place: the bytes after it look like another one."""
    return [r for r in records(store) if r.field("physical_offset") == r.offset][-1]


def end_of(store: Path) -> tuple[Record, int]:
    last = last_of(store)
    return last, last.at + last.size


def test_ends_of_earlier_messages_are_no_damage(store: Path) -> None:
    last, end = end_of(store)
    assert any(last.file.read_bytes()[end : end + LEFT])
    report = look(store)
    assert not report.findings.counts
    assert report.commitlog is not None
    assert report.commitlog["messages"] == meta("5.5.1-nommap").oracle_start.readable


@pytest.mark.parametrize("at", [0, 300, LEFT - 1])
def test_another_byte_among_them_is_a_dirty_tail(store: Path, at: int) -> None:
    last, end = end_of(store)
    damage.overwrite(last.file, end + at, b"\x01\x02\x03\x04\x05\x06\x07\x08")
    report = look(store)
    assert report.findings.counts == {"CL-DIRTY-TAIL": 1}
    assert report.findings.worst is Severity.WARNING  # a start cuts nothing, and nothing lists a message there
    assert report.account is not None
    assert (report.account.lost_already, report.account.at_least) == (0, False)


def test_bytes_after_the_page_are_a_dirty_tail(store: Path) -> None:
    last, end = end_of(store)
    damage.overwrite(last.file, -(-end // 65536) * 65536 - 8, b"\x01")
    assert counts(store) == {"CL-DIRTY-TAIL": 1}


@pytest.mark.quick_rows(4)
@pytest.mark.parametrize("name", ["5.5.1-nommap", "5.5.1-clean", "5.4.0-clean"])
@pytest.mark.parametrize("field", ["size", "magic", "body_length", "body"])
def test_a_damaged_last_record_is_never_taken_for_remains(tmp_path: Path, name: str, field: str) -> None:
    store = copy_store(name, tmp_path)
    last_of(store).flip(field)
    assert any(code.startswith("CL-") for code in counts(store))
