"""Consume queues compared with the log, on copies of real stores: each kind of damage has its own code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import rmqstore
from rmqstore.formats.consumequeue import EXT_UNIT
from tests import damage
from tests.checks.looks import UNIT, Units, counts, facts, look, records, unit
from tests.repair.salvaging import rows
from tests.stores import copy_store

STORE = "498_many"  # 450 units of T/0 in files of 50
PRE_BLANK = unit(0, 0x7FFFFFFF)


WHICH_LOG = "hardly any consume queue unit points to a message: does this log belong to these queues?"


def queue_of(store: Path) -> Units:
    return Units(store / "consumequeue" / "T" / "0")


# --- one unit -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("byte", "bit", "expected"),
    [
        (7, 0, {"CQ-DANGLING-UNIT": 1}),
        (3, 0, {"CQ-DANGLING-UNIT": 1}),
        (0, 7, {"CQ-DANGLING-UNIT": 1}),
        (11, 0, {"CQ-WRONG-SIZE": 1}),
        (9, 4, {"CQ-WRONG-SIZE": 1}),
        (19, 0, {"CQ-WRONG-TAG": 1}),
        (12, 6, {"CQ-WRONG-TAG": 1}),
    ],
)
def test_a_flipped_bit_of_a_unit_has_exactly_one_code(
    store: Path, byte: int, bit: int, expected: dict[str, int]
) -> None:
    queue_of(store).flip(225, byte, bit)
    assert counts(store) == expected


@pytest.mark.parametrize("index", [0, 49, 50, 225, 449])
def test_a_zeroed_unit_is_a_missing_one_wherever_it_is(store: Path, index: int) -> None:
    queue_of(store).zero(index)
    report = look(store)
    assert report.findings.counts == {"CQ-MISSING-UNIT": 1}
    found = facts(report, "CQ-MISSING-UNIT")
    assert (found["messages"], found["queue_offset"]) == (1, index)


def test_a_zeroed_page_of_units_is_one_finding(store: Path) -> None:
    queue_of(store).zero(210, 30)
    report = look(store, parallel=True)
    assert report.findings.counts == {"CQ-MISSING-UNIT": 1}
    assert facts(report, "CQ-MISSING-UNIT")["messages"] == 30


def test_a_unit_of_garbage_is_dangling(store: Path) -> None:
    queue_of(store).write(225, unit(16389, 77, 5))
    assert counts(store) == {"CQ-DANGLING-UNIT": 1}


def test_a_copied_unit_points_to_a_message_that_has_its_own(store: Path) -> None:
    queue = queue_of(store)
    queue.write(225, unit(*queue.read(220)))
    found = counts(store)
    assert found == {"CQ-SHIFTED": 1}


# --- order ----------------------------------------------------------------------------------------------------------


def test_two_swapped_units_are_out_of_order(store: Path) -> None:
    queue = queue_of(store)
    one, other = queue.read(225), queue.read(226)
    queue.write(225, unit(*other))
    queue.write(226, unit(*one))
    assert counts(store) == {"CQ-OUT-OF-ORDER": 1}


def test_units_after_a_lost_one_are_shifted(store: Path) -> None:
    queue = queue_of(store)
    rest = [queue.read(i) for i in range(226, 450)]
    for i, one in enumerate(rest):
        queue.write(225 + i, unit(*one))
    queue.zero(449)
    report = look(store, parallel=True)
    assert report.findings.counts["CQ-SHIFTED"] == 1
    assert set(report.findings.counts) <= {"CQ-SHIFTED", "CQ-MISSING-UNIT"}
    found = facts(report, "CQ-SHIFTED")
    assert (found["queue_offset"], found["stands_at"], found["units"]) == (226, 225, 224)


def test_each_group_of_units_out_of_order_is_a_finding(store: Path) -> None:
    queue = queue_of(store)
    old = [queue.read(i) for i in range(450)]
    places = {100: 102, 101: 100, 102: 101, 200: 201, 201: 200, 202: 203, 203: 202}
    for place, number in places.items():
        queue.write(place, unit(*old[number]))
    found = look(store, parallel=True).findings.listed
    assert [(f.code, f.facts["queue_offset"], f.facts["units"]) for f in found] == [
        ("CQ-OUT-OF-ORDER", 100, 3),
        ("CQ-OUT-OF-ORDER", 200, 2),
        ("CQ-OUT-OF-ORDER", 202, 2),
    ]


def test_shifted_units_right_after_swapped_ones_are_a_finding_of_their_own(store: Path) -> None:
    queue = queue_of(store)
    old = [queue.read(i) for i in range(450)]
    for place, number in {225: 226, 226: 225, **{place: place + 1 for place in range(227, 449)}}.items():
        queue.write(place, unit(*old[number]))
    queue.zero(449)
    found = [f for f in look(store, parallel=True).findings.listed if f.code != "CQ-MISSING-UNIT"]
    assert [(f.code, f.facts["queue_offset"], f.facts["units"]) for f in found] == [
        ("CQ-OUT-OF-ORDER", 225, 2),
        ("CQ-SHIFTED", 228, 222),
    ]


# --- the end --------------------------------------------------------------------------------------------------------


def more(store: Path) -> Path:
    """Add an empty consume queue file after the last one, which is full."""
    file = store / "consumequeue" / "T" / "0" / f"{9000:020d}"
    file.write_bytes(bytes(1000))
    return file


def test_a_zero_file_after_the_last_unit_is_reported(store: Path) -> None:
    more(store)
    assert counts(store) == {"CQ-ZERO-LAST-FILE": 1}


def test_units_after_the_logs_end_are_beyond_it(store: Path) -> None:
    file = more(store)
    damage.overwrite(file, 0, unit(100_000_000, 176) + unit(100_000_176, 176))
    report = look(store)
    assert report.findings.counts == {"CQ-BEYOND-LOG": 1}
    assert facts(report, "CQ-BEYOND-LOG")["units"] == 2


def test_a_unit_after_the_end_that_points_into_the_log_is_not_a_message(store: Path) -> None:
    damage.overwrite(more(store), 0, unit(17, 176))
    assert counts(store) == {"CQ-DANGLING-UNIT": 1}


def test_units_after_a_zero_unit_are_ghosts(store: Path) -> None:
    damage.overwrite(more(store), 60, unit(100_000_000, 176) * 3)
    report = look(store)
    assert report.findings.counts == {"CQ-GHOST-UNITS": 1}
    assert facts(report, "CQ-GHOST-UNITS") == {"queue_offset": 453, "units": 3, "end": 450}


@pytest.mark.parametrize("offset", [1 << 62, (1 << 63) - 1, -(1 << 63), -1])
def test_absurd_offsets_are_reported_once(store: Path, offset: int) -> None:
    queue_of(store).write(225, unit(offset, 176))
    found = counts(store)
    assert found == {"CQ-DANGLING-UNIT": 1}


# --- pre-blanks -----------------------------------------------------------------------------------------------------


def test_a_pre_blank_after_real_units_is_wrong(store: Path) -> None:
    queue_of(store).write(225, PRE_BLANK)
    found = counts(store)
    assert found.pop("CQ-BAD-PRE-BLANK") == 1
    assert found == {}


def test_pre_blanks_before_the_first_unit_of_an_expired_log_are_normal(store: Path) -> None:
    gone = [r for r in records(store) if int(r.file.name) == 0]
    gone[0].file.unlink()
    damage.overwrite(queue_of(store).place(0)[0], 0, PRE_BLANK * min(50, len(gone)))
    assert counts(store) == {}


def test_pre_blanks_for_messages_of_the_log_are_a_partly_rebuilt_queue(store: Path) -> None:
    damage.overwrite(queue_of(store).place(0)[0], 0, PRE_BLANK * 20)
    report = look(store)
    assert report.findings.counts == {"CQ-PARTLY-REBUILT": 1}
    assert facts(report, "CQ-PARTLY-REBUILT")["messages"] == 20


@pytest.mark.parametrize(("first", "stop"), [(0, 14), (6, 20), (6, 26)])
def test_a_stretch_of_zeros_and_pre_blanks_is_counted_once(first: int, stop: int, store: Path) -> None:
    damage.overwrite(queue_of(store).place(0)[0], 0, bytes(26 * 20))
    damage.overwrite(queue_of(store).place(0)[0], first * 20, PRE_BLANK * (stop - first))
    report = look(store)
    assert facts(report, "CQ-PARTLY-REBUILT")["messages"] == stop - first
    missing = [f.facts for f in report.findings.listed if f.code == "CQ-MISSING-UNIT"]
    pieces = [(a, b - a) for a, b in ((0, first), (stop, 26)) if a < b]
    assert [(f["queue_offset"], f["messages"]) for f in missing] == pieces
    assert [f["queue_offset"] for f in missing if "first_offset" in f] == [0] * (first > 0)  # otherwise unknown


def test_a_queue_of_pre_blanks_only_is_reported(store: Path) -> None:
    queue = store / "consumequeue" / "T" / "0"
    shutil.rmtree(queue)
    queue.mkdir()
    (queue / f"{0:020d}").write_bytes(PRE_BLANK * 50)
    report = look(store)
    assert report.findings.counts == {"CQ-PRE-BLANK-ONLY": 1, "CQ-MISSING-UNIT": 1}


def test_units_are_read_where_the_first_files_of_their_queue_are_gone(store: Path) -> None:
    for name in (0, 1000):
        (store / "consumequeue" / "T" / "0" / f"{name:020d}").unlink()
    report = look(store)
    assert report.findings.counts == {"CQ-MISSING-UNIT": 1}
    found = facts(report, "CQ-MISSING-UNIT")
    assert (found["queue_offset"], found["messages"]) == (0, 100)


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_missing_middle_file_is_reported_once(store: Path) -> None:
    (store / "consumequeue" / "T" / "0" / f"{4000:020d}").unlink()
    assert counts(store) == {"CQ-MISSING-FILE": 1}


def test_a_queue_without_files_is_missing(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "T" / "0")
    report = look(store)
    assert report.findings.counts == {"CQ-MISSING-QUEUE": 1}
    assert facts(report, "CQ-MISSING-QUEUE")["messages"] == 450


def test_units_of_expired_messages_are_normal(store: Path) -> None:
    for name in (0, 16384):
        (store / "commitlog" / f"{name:020d}").unlink()
    report = look(store)
    assert report.findings.counts == {}
    first = records(store)[0].field("queue_offset")
    assert (report.queues["T/0"].min, report.queues["T/0"].max) == (first, 450)


def test_expired_queue_files_are_normal_when_their_messages_are(store: Path) -> None:
    for name in (0, 16384, 32768):
        (store / "commitlog" / f"{name:020d}").unlink()
    (store / "consumequeue" / "T" / "0" / f"{0:020d}").unlink()
    assert counts(store) == {}


# --- lag ------------------------------------------------------------------------------------------------------------


def lag(store: Path, units: int) -> None:
    queue = queue_of(store)
    for i in range(450 - units, 450):
        queue.zero(i)


def test_lag_after_a_kill_is_a_note(store: Path) -> None:
    lag(store, 7)
    (store / "abort").write_bytes(b"")
    report = look(store, parallel=True)
    assert report.findings.counts["CQ-BEHIND"] == 1
    assert facts(report, "CQ-BEHIND")["messages"] == 7
    assert set(report.findings.counts) == {"CQ-BEHIND"}


def test_lag_after_a_clean_exit_are_missing_units(store: Path) -> None:
    lag(store, 7)
    report = look(store, parallel=True)
    assert report.findings.counts == {"CQ-MISSING-UNIT": 1}
    assert facts(report, "CQ-MISSING-UNIT")["messages"] == 7


def test_a_gap_in_the_queue_of_a_killed_broker_is_not_lag(store: Path) -> None:
    (store / "abort").write_bytes(b"")
    queue_of(store).zero(225)
    assert counts(store) == {"CQ-MISSING-UNIT": 1}


# --- topics ---------------------------------------------------------------------------------------------------------


def test_a_deleted_topic_is_a_note_for_each_of_its_queues(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    file = store / "config" / "topics.json"
    topics = json.loads(file.read_text())
    del topics["topicConfigTable"]["Order_11"]
    file.write_text(json.dumps(topics))
    queues = len(list((store / "consumequeue" / "Order_11").iterdir()))
    shutil.rmtree(store / "consumequeue" / "Order_11")
    report = look(store)
    assert report.findings.counts["CQ-DELETED-TOPIC"] == queues == 4
    assert "CQ-MISSING-QUEUE" not in report.findings.counts


def test_a_topic_that_is_configured_and_has_no_queue_is_missing(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    shutil.rmtree(store / "consumequeue" / "Order_11")
    assert counts(store)["CQ-MISSING-QUEUE"] == 4


@pytest.mark.parametrize("byte", [11, 19])
def test_units_of_schedule_topic_and_light_queues_are_compared_too(tmp_path: Path, byte: int) -> None:
    store = copy_store("5.4.0-formats", tmp_path)
    code = {11: "CQ-WRONG-SIZE", 19: "CQ-WRONG-TAG"}[byte]
    topics = sorted(p for p in (store / "consumequeue").iterdir() if p.name.startswith(("SCHEDULE", "%LMQ%")))
    assert {p.name[:5] for p in topics} >= {"%LMQ%"}
    queues = [min(topic.iterdir()) for topic in topics][:3]
    for queue in queues:
        damage.flip(min(queue.iterdir()), byte)
    assert counts(store) == {code: len(queues)}


def test_a_unit_of_a_light_queue_never_proves_the_topic_of_a_record(tmp_path: Path) -> None:
    """The record's own queues are gone, and so are the properties with its light queues and its CRC."""
    store = copy_store("5.5.1-formats", tmp_path)
    row = next(row for row in rows(store) if b"INNER_MULTI_DISPATCH" in row.message.properties)
    start = row.path.read_bytes().index(b"INNER_MULTI_DISPATCH", row.at)
    damage.garble(row.path, start, row.stop - start)
    shutil.rmtree(store / "consumequeue" / row.message.topic_text)
    found = counts(store)
    assert found["CQ-WRONG-QUEUE"] == 2
    assert "CL-HEADER" not in found


def test_a_unit_that_is_half_written_is_dangling(store: Path) -> None:
    file, at = queue_of(store).place(225)
    damage.zero(file, at + 8, UNIT - 8)
    assert counts(store) == {"CQ-DANGLING-UNIT": 1}


def test_queues_of_another_broker_prove_nothing_about_the_log(tmp_path: Path) -> None:
    """Some records, above all at the start of files, begin where units of the other log point to; it proves nothing."""
    store = copy_store("5.4.0-clean", tmp_path)
    shutil.rmtree(store / "commitlog")
    (copy_store("5.1.4-clean", tmp_path / "other") / "commitlog").rename(store / "commitlog")
    verified = rmqstore.examine(rmqstore.open(store))
    found = verified.report.findings.counts
    assert (found["CQ-FOREIGN"], found["CQ-DANGLING-UNIT"]) == (1, 0)
    assert not [code for code in found if code.startswith("CL-")]
    plan = rmqstore.plan_recovery(rmqstore.open(store), verified)
    assert list(plan.decisions) == [WHICH_LOG]
    assert not [step.path for step in plan.steps if step.path.startswith("commitlog")]


def test_a_missing_unit_is_found_before_a_missing_file(store: Path) -> None:
    queue_of(store).zero(10)
    queue_of(store).place(120)[0].unlink()
    report = look(store)
    assert report.findings.counts == {"CQ-MISSING-FILE": 1, "CQ-MISSING-UNIT": 1}
    assert facts(report, "CQ-MISSING-UNIT")["queue_offset"] == 10


def test_damage_of_an_extension_and_addresses_without_a_unit_are_located(store: Path) -> None:
    extension = store / "consumequeue_ext" / "T" / "0" / f"{0:020}"
    extension.parent.mkdir(parents=True)
    sound, odd = (EXT_UNIT.build(size=28, bitmap_size=size) + bytes(8) for size in (8, 0))
    extension.write_bytes((sound + odd).ljust(1000, b"\0"))
    for number, address in ((3, 0), (4, 7)):
        offset, size, _ = queue_of(store).read(number)
        queue_of(store).write(number, unit(offset, size, address - (1 << 63)))
    found = [(f.code, f.file, f.offset) for f in look(store).findings.listed]
    assert found == [("CQ-EXT", extension.name, 28), ("CQ-EXT", extension.name, 4 * UNIT)]
