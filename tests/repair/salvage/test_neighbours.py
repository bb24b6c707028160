"""Damage too short for a filler is covered only with --merge-neighbours, which counts one good message as lost."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from rmqstore.formats.configuration import build_config_json
from rmqstore.formats.message import BLANK, BLANK_MAGIC, HEAD
from rmqstore.formats.properties import is_system_topic
from rmqstore.repair.journal import journal
from tests import damage
from tests.command import run, run_json
from tests.repair.salvaging import Row, apply, log_faults, rows, salvage, shrink
from tests.repair.trees import look as snapshot
from tests.stores import VERSIONS, copy_store


def in_the_middle(store: Path, number: int) -> tuple[list[Row], int]:
    """Return the records of the second file, and the index of one with a body that can be shortened."""
    found = rows(store)
    path = sorted({row.path for row in found})[1]
    of_file = [row for row in found if row.path == path]
    fits = [
        i
        for i, row in enumerate(of_file[2:-2], 2)
        if len(row.message.body) > 100 and not is_system_topic(row.message.topic_text)
    ]
    return of_file, fits[number]


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", [*(f"{version}-clean" for version in VERSIONS), "5.4.0-dledger", "5.4.0-ipv6"])
def test_short_damage_is_refused_until_a_message_is_given_up_for_it(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    of_file, i = in_the_middle(store, 3)
    shrink(of_file[i], 61)
    broken, undamaged = rows(store), snapshot(store)
    refused = salvage(store)
    assert (refused.steps, refused.fillers, refused.given_up) == ((), (), 0)
    (why,) = refused.refusals
    assert "61 bytes" in why
    assert "--merge-neighbours" in why
    result = salvage(store, merge=True)
    (filler,) = result.fillers
    gone = next(row for row in broken if row.slot == (filler.topic, filler.queue_id, filler.queue_offset))
    assert gone.offset in (of_file[i].offset, of_file[i + 1].offset)
    assert filler.length == gone.size + 61
    assert (result.given_up, result.loss.messages, result.loss.queues) == (1, 1, {f"{gone.slot[0]}/{gone.slot[1]}": 1})
    assert (result.refusals, result.decisions) == ((), ())
    assert "a good message is sacrificed" in result.notes[0]
    done = apply(store, result)
    (kept,) = (done / "lost+found").iterdir()
    assert gone.message.body in kept.read_bytes()
    after = {row.offset: row.message for row in rows(store)}
    others = [row for row in broken if row.offset != gone.offset]
    assert [after[row.offset] for row in others] == [row.message for row in others]
    assert {code for code in log_faults(store) if code.startswith(("CL-", "DL-H"))} == set()
    journal.undo(done)
    assert snapshot(store) == undamaged


def test_plan_and_json_list_the_merged_messages(tmp_path: Path) -> None:
    store = copy_store("5.1.4-clean", tmp_path)
    of_file, i = in_the_middle(store, 1)
    shrink(of_file[i], 40)
    left = run_json("recover", str(store), "--apply", exit_code=1)
    notes = left["notes"]
    assert isinstance(notes, list)
    assert any("--merge-neighbours" in note for note in notes)
    text = run("recover", str(store), "--merge-neighbours").output
    assert "Lost: 1 message of 1 topic" in text
    assert "a good message is sacrificed" in text
    assert "1 visible filler in place of lost messages; consumer groups that have not read there yet:" in text
    assert "(marked by property)" in text
    done = run_json("recover", str(store), "--merge-neighbours", "--apply", exit_code=0)
    loss = done["loss"]
    assert isinstance(loss, dict)
    assert (loss["messages"], loss["good_messages_given_up"]) == (1, 1)
    facts = done["facts"]
    assert isinstance(facts, dict)
    (listed,) = facts["fillers"]
    assert [f"{listed['topic']}/{listed['queue_id']}"] == list(loss["queues"])
    assert listed["marked"] == "property"
    assert log_faults(store) == {}


def test_a_consumed_message_is_given_up_first(tmp_path: Path) -> None:
    for waiting in (0, 1):
        store = copy_store("5.4.0-clean", tmp_path / str(waiting))
        of_file, _ = in_the_middle(store, 0)
        i = next(
            i
            for i, (row, behind) in enumerate(pairwise(of_file))
            if i > 1
            and len(row.message.body) > 100
            and row.slot[:2] != behind.slot[:2]
            and not is_system_topic(row.message.topic_text)
            and not is_system_topic(behind.message.topic_text)
        )
        beside = of_file[i : i + 2]
        topic, queue_id, offset = beside[waiting].slot
        own = beside[1 - waiting].slot
        table = {f"{topic}@slow": {queue_id: offset}, f"{own[0]}@fast": {own[1]: own[2] + 1}}
        if topic == own[0]:  # in other queues of the same topic
            table = {f"{topic}@slow": {queue_id: offset, own[1]: own[2] + 1}}
        (store / "config" / "consumerOffset.json").write_bytes(build_config_json({"offsetTable": table}))
        shrink(beside[0], 33)
        (filler,) = salvage(store, merge=True).fillers
        assert (filler.topic, filler.queue_id, filler.queue_offset) == own
        assert filler.groups == ()


def test_a_brokers_own_message_is_given_up_last(store: Path) -> None:
    found = rows(store)
    before, behind = next(
        (a, b)
        for a, b in pairwise(found)
        if a.path == b.path
        and a.at
        and is_system_topic(a.message.topic_text)
        and len(a.message.body) > 60
        and not is_system_topic(b.message.topic_text)
    )
    shrink(before, 50)
    done = run_json("recover", str(store), "--merge-neighbours", "--apply", exit_code=0)
    loss = done["loss"]
    assert isinstance(loss, dict)
    assert loss["queues"] == {f"{behind.slot[0]}/{behind.slot[1]}": 1}
    assert log_faults(store) == {}
    after = {row.slot: row for row in rows(store)}
    assert after[behind.slot].offset == behind.offset - 50  # the filler begins where the damage began


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.4.0-dledger"])
def test_short_damage_before_a_blank_loses_nothing(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    found = rows(store)
    last = next(a for a, b in pairwise(found) if a.path != b.path and len(a.message.body) > 60)
    shrink(last, 30)
    broken = rows(store)
    result = salvage(store)
    assert (result.refusals, result.fillers, result.loss.messages, len(result.spans)) == ((), (), 0, 1)
    apply(store, result)
    if not last.body_offset:
        blank = BLANK.parse(last.path.read_bytes(), last.stop - 30)
        assert blank == {"size": 65536 - last.stop + 30, "magic": BLANK_MAGIC}
    assert rows(store) == broken
    assert not [code for code in log_faults(store) if code.startswith(("CL-", "DL-H", "DL-N"))]


def test_two_short_spans_around_one_message_become_one(store: Path) -> None:
    of_file, _ = in_the_middle(store, 0)
    i = next(
        i
        for i in range(2, len(of_file) - 2)
        if all(len(row.message.body) > 100 for row in of_file[i : i + 2])
        and not is_system_topic(of_file[i].message.topic_text)
    )
    table = {f"{of_file[k].slot[0]}@slow": {of_file[k].slot[1]: 0} for k in (i, i + 2)}
    (store / "config" / "consumerOffset.json").write_bytes(build_config_json({"offsetTable": table}))
    shrink(of_file[i], 70)
    shrink(of_file[i + 1], 70)
    result = salvage(store, merge=True)
    assert result.loss.messages == result.given_up <= 2
    assert result.refusals == ()
    apply(store, result)
    assert [code for code in log_faults(store) if code.startswith("CL-")] == []


def test_a_message_that_could_be_mended_is_given_up_before_an_undamaged_one(store: Path) -> None:
    of_file, i = in_the_middle(store, 5)
    mended = of_file[i + 1]
    shrink(of_file[i], 61)
    damage.flip(mended.path, mended.at + HEAD.at("physical_offset") + 6, 4)
    refused = salvage(store)
    assert refused.steps == ()
    assert "--merge-neighbours" in refused.refusals[0]
    result = salvage(store, merge=True)
    assert (result.given_up, result.loss.queues) == (1, {f"{mended.slot[0]}/{mended.slot[1]}": 1})
    apply(store, result)
    assert [code for code in log_faults(store) if code.startswith("CL-")] == []


def test_entry_numbers_stay_when_the_index_file_is_gone_too(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger", tmp_path)
    of_file, i = in_the_middle(store, 4)
    shrink(of_file[i], 60)
    shutil.rmtree(store / "dledger-n0" / "index")
    done = run_json("recover", str(store), "--merge-neighbours", "--apply", exit_code=0)
    loss = done["loss"]
    assert isinstance(loss, dict)
    assert (loss["messages"], loss["good_messages_given_up"]) == (1, 1)
    assert log_faults(store) == {}
