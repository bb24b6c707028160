"""The whole log, on copies of real stores: each kind of damage has exactly one code, however the log is split."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import damage
from tests.checks.looks import Record, counts, facts, look, records
from tests.stores import copy_store

STORE = "498_many"  # 450 messages of T/0 in 5 files of 16 KiB, consume queue files of 50 units


def middle(store: Path) -> Record:
    return records(store)[225]


# --- one bit --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "byte", "bit", "expected"),
    [
        ("size", 0, 3, {"CL-SIZE": 1}),
        ("size", 0, 7, {"CL-SIZE": 1}),
        ("size", 3, 0, {"CL-HALF-MESSAGE": 1}),
        ("size", 3, 7, {"CL-SIZE": 1}),
        ("magic", 0, 0, {"CL-MAGIC": 1}),
        ("magic", 3, 2, {"CL-MAGIC": 1}),
        ("body_crc", 0, 0, {"CL-BODY-CRC": 1}),
        ("body_crc", 3, 7, {"CL-BODY-CRC": 1}),
        ("queue_id", 3, 0, {"CL-HEADER": 1}),
        ("queue_id", 0, 7, {"CL-HEADER": 1}),
        ("queue_offset", 7, 0, {"CL-QUEUE-OFFSET": 1}),
        ("queue_offset", 4, 5, {"CL-QUEUE-OFFSET": 1}),
        ("queue_offset", 0, 7, {"CL-QUEUE-OFFSET": 1}),
        ("physical_offset", 7, 0, {"CL-PHYSICAL-OFFSET": 1}),
        ("physical_offset", 0, 7, {"CL-PHYSICAL-OFFSET": 1}),
        ("sys_flag", 3, 4, {"CL-HALF-MESSAGE": 1}),
        ("sys_flag", 3, 5, {"CL-HALF-MESSAGE": 1}),
        ("body_length", 0, 7, {"CL-HALF-MESSAGE": 1}),
        ("body_length", 3, 0, {"CL-HALF-MESSAGE": 1}),
        ("body", 0, 6, {"CL-BODY-CRC": 1}),
        ("topic_length", 0, 0, {"CL-HALF-MESSAGE": 1}),
        ("topic_length", 0, 7, {"CL-HALF-MESSAGE": 1}),
        ("properties_length", 0, 7, {"CL-HALF-MESSAGE": 1}),
        ("properties_length", 1, 0, {"CL-HALF-MESSAGE": 1}),
    ],
)
def test_a_flipped_bit_has_exactly_one_code(
    store: Path, field: str, byte: int, bit: int, expected: dict[str, int]
) -> None:
    middle(store).flip(field, byte, bit)
    assert counts(store) == expected


@pytest.mark.parametrize(
    ("field", "code", "was", "now"),
    [
        ("body_crc", "CL-BODY-CRC", "computed", "stored"),
        ("physical_offset", "CL-PHYSICAL-OFFSET", "expected", "physical_offset"),
    ],
)
def test_the_finding_has_the_value_and_the_right_one(store: Path, field: str, code: str, was: str, now: str) -> None:
    record = middle(store)
    right = record.field(field)
    record.flip(field, 1)
    found = {name: value for name, value in facts(look(store), code).items() if name in (was, now)}
    assert found == {was: right, now: record.field(field)} != {was: right, now: right}


@pytest.mark.parametrize("field", ["flag", "born_timestamp", "born_host", "store_host", "reconsume_times"])
def test_a_bit_that_nothing_else_knows_is_not_guessed_at(store: Path, field: str) -> None:
    middle(store).flip(field)
    assert counts(store) == {}


@pytest.mark.parametrize("bit", [6, 7])
def test_a_topic_that_is_not_text_is_reported_once(store: Path, bit: int) -> None:
    shutil.rmtree(store / "index")  # its keys contain the topic
    middle(store).flip("topic", 0, bit)
    report = look(store)
    assert report.findings.counts == {"CL-TOPIC": 1}
    assert facts(report, "CL-TOPIC")["queue_offset"] == 225


def test_a_topic_that_its_unit_contradicts_is_named_with_the_unit(store: Path) -> None:
    shutil.rmtree(store / "index")
    middle(store).flip("topic", 0, 0)
    report = look(store)
    assert report.findings.counts == {"CL-HEADER": 1}
    assert facts(report, "CL-HEADER") == {
        "topic": "U",
        "queue_id": 0,
        "queue_offset": 225,
        "unit_topic": "T",
        "unit_queue_id": 0,
        "unit_queue_offset": 225,
    }


def test_a_queue_id_that_its_unit_contradicts_is_named_with_the_unit(store: Path) -> None:
    middle(store).flip("queue_id")
    found = facts(look(store), "CL-HEADER")
    assert (found["queue_id"], found["unit_queue_id"], found["unit_queue_offset"]) == (1, 0, 225)


@pytest.mark.parametrize("number", [0, 1, 112, 224, 225, 449])
def test_a_wrong_queue_offset_is_reported_with_the_right_one_wherever_it_is(store: Path, number: int) -> None:
    records(store)[number].put("queue_offset", number ^ 1 << 40)
    report = look(store)
    assert report.findings.counts == {"CL-QUEUE-OFFSET": 1}
    found = facts(report, "CL-QUEUE-OFFSET")
    assert (found["expected"], found["got"]) == (number, number ^ 1 << 40)


def test_a_lost_separator_of_properties_is_damage(store: Path) -> None:
    record = middle(store)
    at = record.properties.index(b"\x02")
    damage.flip(record.file, record.at + record.parts["properties"][0] + at, 7)
    # the key before it has changed, too; the finding explains why the index contradicts it
    assert counts(store) == {"CL-PROPERTIES": 1}


def test_a_changed_tag_is_detected_by_its_unit(store: Path) -> None:
    record = middle(store)
    at = record.properties.index(b"TagA")
    damage.flip(record.file, record.at + record.parts["properties"][0] + at + 3, 1)
    assert counts(store) == {"CQ-WRONG-TAG": 1}


def test_every_flipped_bit_of_a_record_with_a_record_crc_is_found(tmp_path: Path) -> None:
    store = copy_store("head_formats_propcrc", tmp_path)
    record = records(store)[0]
    for field in ("flag", "born_timestamp", "store_host", "reconsume_times", "queue_id", "topic", "prepared_offset"):
        record.flip(field)
        assert counts(store) == {"CL-RECORD-CRC": 1, "CFG-NO-TOPICS": 1}, field
        record.flip(field)
    assert counts(store) == {"CFG-NO-TOPICS": 1}  # the store classes alone write no topics.json


# --- spans ----------------------------------------------------------------------------------------------------------


def test_a_zeroed_page_is_one_torn_record_up_to_the_next_good_one(store: Path) -> None:
    file = store / "commitlog" / f"{32768:020d}"
    damage.zero(file, 4096, 4096)
    report = look(store)
    assert report.findings.counts == {"CL-HALF-MESSAGE": 1}
    (finding,) = report.findings.listed
    bounds = {r.offset for r in records(copy_store(STORE, store.parent / "whole"))}
    assert finding.offset in bounds
    assert finding.offset + finding.length in bounds
    assert finding.offset < 32768 + 4096 < 32768 + 8192 <= finding.offset + finding.length


def test_whole_records_of_zeros_are_a_hole_in_the_log(store: Path) -> None:
    first, last = records(store)[200], records(store)[219]
    damage.zero(first.file, first.at, last.at + last.size - first.at)
    report = look(store)
    assert report.findings.counts == {"CL-ZERO-HOLE": 1}
    (finding,) = report.findings.listed
    assert (finding.offset, finding.length) == (first.offset, last.offset + last.size - first.offset)


@pytest.mark.parametrize("name", [0, 32768])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_garbage_at_a_files_start_is_one_finding(store: Path, name: int, seed: int) -> None:
    damage.garble(store / "commitlog" / f"{name:020d}", 0, 700, seed)
    report = look(store)
    assert report.findings.counts == {"CL-MAGIC": 1}
    assert report.findings.listed[0].offset == name


def test_a_whole_file_of_garbage_is_one_finding(store: Path) -> None:
    damage.garble(store / "commitlog" / f"{32768:020d}", 0, 16384)
    report = look(store)
    assert report.findings.counts == {"CL-MAGIC": 1}
    assert (report.findings.listed[0].offset, report.findings.listed[0].length) == (32768, 16384)


def test_a_whole_file_of_zeros_between_others_has_no_records_and_no_blank(store: Path) -> None:
    damage.zero(store / "commitlog" / f"{32768:020d}", 0, 16384)
    assert counts(store) == {"CL-NO-BLANK": 1}


def test_two_damaged_neighbours_are_two_findings(store: Path) -> None:
    for number in (225, 226):
        records(store)[number].flip("body")
    assert counts(store) == {"CL-BODY-CRC": 2}


@pytest.mark.parametrize("field", ["body", "physical_offset"])
def test_the_last_record_is_judged_like_any_other(store: Path, field: str) -> None:
    records(store)[-1].flip(field)
    assert counts(store) == {{"body": "CL-BODY-CRC", "physical_offset": "CL-PHYSICAL-OFFSET"}[field]: 1}


def test_a_torn_last_record_is_a_dirty_tail(store: Path) -> None:
    last = records(store)[-1]
    damage.zero(last.file, last.at + 60, last.size - 60)
    found = counts(store)
    assert found.pop("CL-DIRTY-TAIL") == 1
    assert found == {"CQ-BEYOND-LOG": 1, "IX-DANGLING-ENTRY": 1}  # the unit and the index unit of the torn record


@pytest.mark.parametrize("content", [b"\x01", b"\xda\xa3\x20\xa7" * 40, b"\0\0\0\x5b\xaa\xbb\xcc\xdd"])
def test_bytes_after_the_end_are_a_dirty_tail(store: Path, content: bytes) -> None:
    last = records(store)[-1]
    damage.overwrite(last.file, last.at + last.size, content)
    assert counts(store) == {"CL-DIRTY-TAIL": 1}


# --- BLANK ----------------------------------------------------------------------------------------------------------


def blank_of(store: Path, name: int) -> tuple[Path, int]:
    last = [r for r in records(store) if int(r.file.name) == name][-1]
    return last.file, last.at + last.size


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param(lambda file, at: damage.flip(file, at + 3, 1), "CL-BLANK-SIZE", id="another size"),
        pytest.param(lambda file, at: damage.flip(file, at + 5, 1), "CL-NO-BLANK", id="another magic"),
        pytest.param(lambda file, at: damage.zero(file, at, 8), "CL-NO-BLANK", id="zeros"),
    ],
)
def test_a_wrong_blank_has_one_code(change: Callable[[Path, int], None], code: str, store: Path) -> None:
    change(*blank_of(store, 32768))
    assert counts(store) == {code: 1}


def test_bytes_after_a_blank_are_ignored(store: Path) -> None:
    file, at = max((blank_of(store, name) for name in (0, 16384, 32768, 49152)), key=lambda place: -place[1])
    damage.garble(file, at + 8, file.stat().st_size - at - 8)
    assert counts(store) == {}


# --- files ----------------------------------------------------------------------------------------------------------


def test_expired_first_files_leave_a_clean_store(store: Path) -> None:
    for name in (0, 16384):
        (store / "commitlog" / f"{name:020d}").unlink()
    report = look(store, parallel=True)
    assert report.findings.counts == {}
    assert report.commitlog is not None
    assert report.commitlog["min_offset"] == 32768


def test_a_missing_middle_file_is_reported_once(store: Path) -> None:
    (store / "commitlog" / f"{32768:020d}").unlink()
    report = look(store, parallel=True)
    assert report.findings.counts == {"CL-MISSING-FILE": 1}
    assert facts(report, "CL-MISSING-FILE") == {"from": 32768, "to": 49152, "messages": 93, "topics": "T 93"}
    assert report.verdict.endswith("lose nothing, but the log lacks 93 messages of T/0")


def test_a_missing_last_file_leaves_everything_else_ahead(store: Path) -> None:
    gone = store / "commitlog" / f"{65536:020d}"
    lost = len([r for r in records(store) if r.file == gone])
    gone.unlink()
    report = look(store)
    beyond = sum(f.length // 20 for f in report.findings.listed if f.code == "CQ-BEYOND-LOG")
    assert beyond == lost
    assert set(report.findings.counts) == {"CQ-BEYOND-LOG", "IX-DANGLING-ENTRY", "CK-AHEAD"}


def test_a_file_of_zeros_after_the_end_is_normal(store: Path) -> None:
    (store / "commitlog" / f"{81920:020d}").write_bytes(bytes(16384))
    assert counts(store) == {}
