"""Individually sound records that contradict each other: queue offsets with gaps, old records, clock changes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests import damage
from tests.checks.looks import Units, counts, look, records, unit
from tests.stores import copy_store

STORE = "498_many"  # 450 messages of T/0 in 5 files of 16 KiB, consume queue files of 50 units


# --- queue offsets --------------------------------------------------------------------------------------------------


def restart(store: Path, number: int) -> None:
    """Simulate that T was deleted and created again before record `number`: queue offsets and units restart at 0."""
    later = records(store)[number:]
    queue = store / "consumequeue" / "T" / "0"
    old = Units(queue)
    units = b"".join(unit(*old.read(number + i)) for i in range(len(later)))
    for i, record in enumerate(later):
        record.put("queue_offset", i)
    for file in queue.iterdir():
        content = units[int(file.name) : int(file.name) + 1000]
        if content:
            file.write_bytes(content.ljust(1000, b"\0"))
        else:
            file.unlink()


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("number", [60, 112, 225])
def test_a_recreated_topic_is_a_note(store: Path, number: int) -> None:
    restart(store, number)
    report = look(store, parallel=True)
    assert report.findings.counts == {"CL-QUEUE-RESTARTED": 1}
    assert report.findings.listed[0].offset == records(store)[number].offset
    assert report.clean


def test_a_log_without_queue_offsets_is_one_note_for_each_queue(store: Path) -> None:
    log = records(store)
    for record in log[1:]:
        record.put("queue_offset", 0)
    shutil.rmtree(store / "consumequeue")
    report = look(store, parallel=True)
    [finding] = [f for f in report.findings.listed if f.code == "CL-QUEUE-RESTARTED"]
    assert finding.facts["times"] == len(log) - 1
    assert finding.offset == log[-1].offset


def test_queue_offsets_that_skip_some_are_a_gap(store: Path) -> None:
    later = records(store)[225:]
    queue = Units(store / "consumequeue" / "T" / "0")
    units = [queue.read(225 + i) for i in range(len(later))]
    for record in later:
        record.put("queue_offset", record.field("queue_offset") + 50)
    file = store / "consumequeue" / "T" / "0" / f"{9000:020d}"
    file.write_bytes(bytes(1000))
    for i in range(50):
        queue.zero(225 + i)
    for i, one in enumerate(units):
        path, at = queue.place(275 + i)
        with path.open("r+b") as out:
            out.seek(at)
            out.write(unit(*one))
    report = look(store)
    found = [f for f in report.findings.listed if f.code == "CL-QUEUE-OFFSET-GAP"]
    assert [(f.facts["expected"], f.facts["got"]) for f in found] == [(225, 275)]


def test_a_gap_explained_by_damage_is_not_reported_again(store: Path) -> None:
    first, last = records(store)[200], records(store)[219]
    damage.garble(first.file, first.at, last.at + last.size - first.at)
    assert counts(store) == {"CL-MAGIC": 1}


# --- old records and clocks -----------------------------------------------------------------------------------------


def set_forward(store: Path, begin: int, stop: int) -> None:
    """Move the times of the records [begin, stop) two hours after all others."""
    for record in records(store)[begin:stop]:
        record.put("store_timestamp", record.field("store_timestamp") + 7_200_000)


def test_a_clock_that_was_set_back_is_a_note(store: Path) -> None:
    shutil.rmtree(store / "index")  # it contains the times, too
    set_forward(store, 0, 225)
    report = look(store, parallel=True)
    assert report.findings.counts == {"CL-TIME-BACK": 1}
    assert report.findings.listed[0].offset == records(store)[225].offset
    assert report.clean


def truncated(store: Path, number: int) -> None:
    """Simulate that the log was truncated before `number`, and that two shorter records overwrote the next two."""
    shutil.rmtree(store / "index")
    set_forward(store, 0, number + 2)
    queue = Units(store / "consumequeue" / "T" / "0")
    for i in range(number + 2, 450):
        queue.zero(i)


def test_a_torn_rest_with_old_records_after_it_is_a_stale_tail(store: Path) -> None:
    truncated(store, 440)
    torn = records(store)[442]
    damage.garble(torn.file, torn.at, 60)
    end = torn.offset
    report = look(store, parallel=True)
    assert report.findings.counts == {"CL-STALE-TAIL": 1}
    (finding,) = report.findings.listed
    assert (finding.offset, finding.facts["records_from"]) == (end, end + torn.size)
    assert report.commitlog is not None
    assert (report.commitlog["wrote"], report.commitlog["messages"]) == (end, 442)
    assert report.queues["T/0"].expected_max == 442


def test_old_records_that_meet_the_end_exactly_are_known_by_their_queue_offsets(store: Path) -> None:
    truncated(store, 440)
    for record in records(store)[442:]:
        record.put("queue_offset", record.field("queue_offset") - 2)
    end = records(store)[442].offset
    report = look(store, parallel=True)
    assert report.findings.counts == {"CL-STALE-TAIL": 1}
    assert report.commitlog is not None
    assert (report.commitlog["wrote"], report.commitlog["messages"]) == (end, 442)


def test_old_records_in_earlier_files_are_not_a_tail(store: Path) -> None:
    """A truncation deletes later files, so damage and a clock change must not turn half of a log into a stale tail."""
    shutil.rmtree(store / "index")
    set_forward(store, 0, 225)
    torn = records(store)[225]
    damage.garble(torn.file, torn.at, 60)
    report = look(store)
    assert report.findings.counts == {"CL-TIME-BACK": 1, "CL-MAGIC": 1}


def test_a_damaged_record_where_the_clock_went_back_is_not_a_stale_tail(store: Path) -> None:
    shutil.rmtree(store / "index")
    set_forward(store, 0, 440)
    records(store)[440].flip("body")
    assert counts(store) == {"CL-TIME-BACK": 1, "CL-BODY-CRC": 1}


# --- the first record of a queue in a split -------------------------------------------------------------------------


def test_a_wrong_queue_offset_is_reported_where_a_split_begins(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    for number in range(301, 330, 5):
        record = records(store)[number]
        before = record.field("queue_offset")
        record.flip("queue_offset", 6, 0)
        found = counts(store)
        assert found.pop("CL-QUEUE-OFFSET") == 1, number
        assert found == {}, number
        record.put("queue_offset", before)


def test_two_wrong_neighbours_are_both_reported(store: Path) -> None:
    for number, byte in ((224, 4), (225, 5)):
        records(store)[number].flip("queue_offset", byte)
    report = look(store)
    assert report.findings.counts == {"CL-QUEUE-OFFSET": 2}
    assert [f.facts["expected"] for f in report.findings.listed] == [224, 225]


def test_repeated_queue_offsets_are_counted_one_by_one_whatever_the_split(store: Path) -> None:
    for record in records(store)[225:]:
        record.put("queue_offset", record.field("queue_offset") - 100)
    report = look(store, parallel=True)
    assert report.findings.counts["CL-QUEUE-OFFSET-REPEAT"] == 100
