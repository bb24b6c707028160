"""Messages after the last good record of a log are kept if they are proved, in plain logs and in DLedger."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from rmqstore.formats.message import HEAD
from tests import damage
from tests.command import run_json
from tests.repair.salvaging import Row, log_faults, rows
from tests.stores import copy_store, write_broker_conf

DLEDGER = ("4.9.7-dledger", "5.1.4-dledger-killed", "5.4.0-dledger-mixed")


def recover(name: str, store: Path, *words: str) -> Mapping[str, object]:
    """Run `recover --apply`, check that nothing remains to be repaired, and return its output."""
    conf = write_broker_conf(name, store)
    role = () if "--role" in words else ("--role", "single")
    done = run_json("recover", str(store), "-c", str(conf), *role, *words, "--apply", exit_code=0)
    assert done["remaining"] == {"counts": {}}
    return done


def lost(done: Mapping[str, object]) -> object:
    loss = done["loss"]
    assert isinstance(loss, dict)
    return loss["messages"]


def hit_header(row: Row, length: int) -> None:
    """Overwrite the first bytes of an entry or a record with zeros."""
    damage.zero(row.path, row.at - row.body_offset, length)


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("length", [16, 48])
@pytest.mark.parametrize("name", DLEDGER)
def test_the_last_message_of_dledger_stays_when_only_its_header_is_hit(name: str, length: int, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    found = rows(store)
    hit_header(found[-1], length)
    done = recover(name, store)
    assert (lost(done), rows(store)) == (0, found)
    assert log_faults(store).keys() <= {"CQ-BEHIND"}  # a killed broker's last message


@pytest.mark.quick_rows
@pytest.mark.parametrize("field", ["magic", "size"])
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.4.0-clean"])
def test_a_plain_message_proves_itself_without_units_and_index(name: str, field: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    found = rows(store)
    last = found[-1]
    damage.flip(last.path, last.at + HEAD.at(field) + 1, 6)
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    assert (lost(recover(name, store)), rows(store)) == (0, found)


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", ["4.9.7-dledger", "5.1.4-dledger", "5.4.0-dledger-mixed"])
def test_messages_between_the_good_ones_and_a_proved_one_become_fillers(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    found = rows(store)
    hit = found[-4:-1]
    hit_header(hit[0], sum(row.size + row.body_offset for row in hit) + 40)
    done = recover(name, store)
    facts, after = done["facts"], rows(store)
    assert isinstance(facts, dict)
    assert (lost(done), len(facts["fillers"]), facts["wrote"]["dledger"]) == (3, 3, hit[0].offset - 48)
    assert (after[:-4], after[-1]) == (found[:-4], found[-1])
    assert [(row.offset, row.slot) for row in after] == [(row.offset, row.slot) for row in found]


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("field", ["size", "magic", "queue_offset", "physical_offset"])
def test_the_last_record_of_a_plain_log_is_mended_from_its_unit(field: str, store: Path) -> None:
    found = rows(store)
    last = found[-1]
    damage.garble(last.path, last.at + HEAD.at(field), 4)
    assert (lost(recover("5.4.0-clean", store)), rows(store)) == (0, found)


@pytest.mark.parametrize("name", ["5.4.0-clean", "5.4.0-dledger"])
def test_a_replica_cuts_its_log_where_a_broker_does(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    found = rows(store)
    hit_header(found[-1], 8)
    assert (lost(recover(name, store, "--role", "slave")), rows(store)) == (1, found[:-1])


@pytest.mark.parametrize("number", [-1, -3])
def test_one_repair_mends_a_damaged_header_and_damaged_properties(number: int, tmp_path: Path) -> None:
    store = copy_store("5.1.4-dledger", tmp_path)
    row = rows(store)[number]
    text = row.message.properties
    hit_header(row, 12)
    damage.overwrite(row.path, row.stop - len(text) + text.index(b"KEYS\x01") + 5, b"\xff\xfe\xe9")
    done = recover("5.1.4-dledger", store)
    facts = done["facts"]
    assert isinstance(facts, dict)
    assert (lost(done), log_faults(store)) == (0, {})
    assert [message["offset"] for message in facts["damaged"]] == [row.offset]


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("missing", [40, 129, 4, 164])
@pytest.mark.parametrize("name", ["4.9.7-ipv6", "5.4.0-dledger"])
def test_a_message_whose_end_is_cut_off_with_its_file_is_lost(name: str, missing: int, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    *found, last = rows(store)
    assert len(last.message.properties) > missing
    damage.cut(last.path, last.stop - missing)
    done = recover(name, store)
    assert (lost(done), rows(store)) == (1, found)
