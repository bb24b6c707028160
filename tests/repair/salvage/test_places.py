"""Damage at the borders of files, lost files and queues, DLedger entries: the places of fillers, and who sees them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqstore.documents.steps import Create, Extend
from rmqstore.files.mapped_file_queue import offset_to_file_name
from rmqstore.formats import dledger
from rmqstore.formats.configuration import build_config_json, parse_config_object
from rmqstore.formats.message import BLANK, BLANK_MAGIC, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rmqstore.repair.journal import journal
from rmqstore.repair.salvage.salvage import Filler
from tests import damage
from tests.command import run_json
from tests.planning import counts_of
from tests.repair.salvaging import Row, apply, log_faults, rows, salvage
from tests.repair.trees import look as snapshot
from tests.stores import copy_store


def of_file(store: Path, number: int) -> list[Row]:
    found = rows(store)
    path = sorted({row.path for row in found})[number]
    return [row for row in found if row.path == path]


def spans_and_indexes(store: Path, number: int) -> list[tuple[int, int, int]]:
    """Return offset, size and DLedger index of the entries of a file."""
    heads = [(row, dledger.ENTRY.parse(row.path.read_bytes(), row.at - 48)) for row in of_file(store, number)]
    return [(row.offset, row.size, head["index"]) for row, head in heads]


def slots(fillers: tuple[Filler, ...]) -> list[tuple[str, int, int]]:
    return [(f.topic, f.queue_id, f.queue_offset) for f in fillers]


def test_damaged_blank_is_written_again_and_nothing_is_lost(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    last = of_file(store, 2)[-1]
    damage.garble(last.path, last.stop, 8)
    result = salvage(store)
    apply(store, result)
    blank = BLANK.parse(last.path.read_bytes(), last.stop)
    assert blank == {"size": 65536 - last.stop, "magic": BLANK_MAGIC}
    assert (result.loss.messages, result.fillers, log_faults(store)) == (0, (), {})


def test_damage_across_a_file_end_loses_only_the_last_records(tmp_path: Path) -> None:
    store = copy_store("5.1.4-clean", tmp_path)
    found = of_file(store, 3)
    damage.zero(found[0].path, found[-3].at + 10, 65536 - found[-3].at - 10)
    result = salvage(store)
    apply(store, result)
    assert slots(result.fillers) == [row.slot for row in found[-3:]]
    assert [(f.offset, f.length) for f in result.fillers] == [(row.offset, row.size) for row in found[-3:]]
    assert (result.rebuild_queues, log_faults(store)) == (frozenset(), {})


def test_damage_at_a_file_start_gets_its_fillers_from_the_first_byte_on(store: Path) -> None:
    found = of_file(store, 4)
    damage.garble(found[0].path, 0, found[1].at + 60)
    result = salvage(store)
    apply(store, result)
    assert [(f.offset, f.length) for f in result.fillers] == [(row.offset, row.size) for row in found[:2]]
    assert log_faults(store) == {}


def test_short_file_in_the_middle_is_filled_up(store: Path) -> None:
    found = of_file(store, 2)
    damage.cut(found[0].path, found[-5].at + 7)
    before = snapshot(store)
    result = salvage(store)
    assert [type(step) for step in result.steps if isinstance(step, Extend)] == [Extend]
    done = apply(store, result)
    assert found[0].path.stat().st_size == 65536
    assert slots(result.fillers) == [row.slot for row in found[-5:]]
    assert log_faults(store) == {}
    journal.undo(done)
    assert snapshot(store) == before


def test_missing_file_becomes_a_file_of_fillers_after_confirmation(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    found = of_file(store, 2)
    before = rows(store)
    found[0].path.unlink()
    refused = salvage(store)
    assert (refused.steps, refused.fillers) == ((), ())
    assert "--accept-fillers" in refused.refusals[0]
    result = salvage(store, accept_fillers=True)
    (made,) = result.steps
    assert isinstance(made, Create)
    assert made.path == f"commitlog/{offset_to_file_name(131072)}"
    apply(store, result)
    assert sorted(slots(result.fillers)) == sorted(row.slot for row in found)
    assert log_faults(store) == {}
    after = {row.offset: row.message for row in rows(store)}
    rest = [row for row in before if row.path != found[0].path]
    assert [after[row.offset] for row in rest] == [row.message for row in rest]


def test_lost_queue_offsets_are_found_by_their_gap_when_the_queues_are_gone(tmp_path: Path) -> None:
    store = copy_store("5.1.4-clean", tmp_path)
    found = of_file(store, 3)
    shutil.rmtree(store / "consumequeue")
    damage.zero(found[0].path, found[10].at, found[20].at - found[10].at)
    result = salvage(store)
    apply(store, result)
    assert sorted(slots(result.fillers)) == sorted(row.slot for row in found[10:20])
    assert {(f.topic, f.queue_id) for f in result.fillers} == result.rebuild_queues
    assert set(log_faults(store)) == {"CQ-MISSING-QUEUE"}
    offsets: dict[tuple[str, int], list[int]] = {}
    for row in rows(store):
        topic, queue_id, offset = row.slot
        if row.message.transaction_type not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            offsets.setdefault((topic, queue_id), []).append(offset)
    assert all(at == list(range(at[0], at[0] + len(at))) for at in offsets.values())


def test_groups_that_have_not_passed_a_filler_are_named(store: Path) -> None:
    row = next(row for row in of_file(store, 3) if row.message.topic_text == "Order_11")
    path = store / "config" / "consumerOffset.json"
    table = parse_config_object(path.read_bytes())["offsetTable"]
    assert isinstance(table, dict)
    assert "Order_11@CG_part_11" in table
    damage.garble(row.path, row.at + 88, 4)
    assert salvage(store).groups_that_will_see_them == {}
    queue_id, offset = row.message.queue_id, row.message.queue_offset
    groups = {"Order_11@slow": {queue_id: offset}, "Order_11@fast": {queue_id: offset + 1}}
    path.write_bytes(build_config_json({"offsetTable": groups}))
    assert salvage(store).groups_that_will_see_them == {"slow": 1}


@pytest.mark.parametrize("name", ["4.9.7-dledger", "5.4.0-dledger"])
def test_entry_header_follows_from_its_neighbours(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    found = rows(store)
    for number, field in enumerate(("magic", "size", "index", "term", "pos", "body_length")):
        row = found[40 * number + 20]
        damage.flip(row.path, row.at - 48 + dledger.ENTRY.at(field) + 3, number)
    result = salvage(store)
    apply(store, result)
    assert (result.loss.messages, result.fillers, log_faults(store)) == (0, (), {})
    assert rows(store) == found


def test_lost_entries_keep_index_place_and_queue_offset(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger", tmp_path)
    found, entries = of_file(store, 2), spans_and_indexes(store, 2)
    damage.zero(found[0].path, found[7].at - 48, found[12].at - 48 - (found[7].at - 48))
    result = salvage(store)
    apply(store, result)
    assert spans_and_indexes(store, 2) == entries
    assert slots(result.fillers) == [row.slot for row in found[7:12]]
    assert log_faults(store) == {}


def test_lost_entries_are_counted_by_their_indexes_when_the_index_file_is_gone(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger", tmp_path)
    found, entries = of_file(store, 2), spans_and_indexes(store, 2)
    shutil.rmtree(store / "dledger-n0" / "index")
    shutil.rmtree(store / "consumequeue")
    damage.garble(found[0].path, found[7].at - 48, found[12].at - found[7].at)
    result = salvage(store)
    apply(store, result)
    assert [index for _, _, index in spans_and_indexes(store, 2)] == [index for _, _, index in entries]
    assert sorted(slots(result.fillers)) == sorted(row.slot for row in found[7:12])
    assert {code for code in log_faults(store) if code.startswith("DL-")} <= {"DL-DATA-INDEX"}


def test_a_lost_index_file_gets_the_units_of_the_fillers_at_their_places(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger", tmp_path)
    found = of_file(store, 2)
    shutil.rmtree(store / "dledger-n0" / "index")
    damage.garble(found[0].path, found[7].at - 48, found[12].at - found[7].at)
    recovered = run_json("recover", str(store), "--apply", exit_code=0)
    assert recovered["remaining"] == {"counts": {}}
    assert log_faults(store) == {}


def test_damage_after_the_last_good_record_is_not_salvaged(store: Path) -> None:
    last = rows(store)[-1]
    damage.garble(last.path, last.at, last.size)
    result = salvage(store)
    assert (result.steps, result.fillers) == ((), ())
    assert set(counts_of(store)) >= {"CL-DIRTY-TAIL"}
