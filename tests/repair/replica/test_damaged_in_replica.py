"""Records whose properties, which no CRC covers, are damaged in the replica: its index and queues show it."""

from __future__ import annotations

import shutil
from pathlib import Path

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import problem_counts
from rmqstore.documents.plan import Plan
from rmqstore.formats import consumequeue
from rmqstore.repair.journal import journal
from tests import damage
from tests.planning import look, report_of
from tests.repair.replica.pairs import log_files, plan_healing, restored
from tests.repair.salvaging import Row, rows
from tests.stores import copy_store, unpack


def value_of(row: Row, name: str) -> int:
    """Return the position of a property's value in its file."""
    return row.stop - len(row.message.properties) + row.message.properties.index(f"{name}\1".encode()) + len(name) + 1


def has(row: Row, name: str) -> bool:
    return f"{name}\1".encode() in row.message.properties


def other_letters(row: Row, name: str) -> None:
    """Change two letters, so that the value is still text, and no single flipped bit explains the change."""
    old = row.path.read_bytes()[value_of(row, name) :][:2]
    damage.overwrite(row.path, value_of(row, name), bytes(ord("q") if c != ord("q") else ord("z") for c in old))


def damaged(plan: Plan) -> list[object]:
    """Return the offsets of the messages that a plan lists as damaged."""
    listed = plan.facts.get("damaged", [])
    assert isinstance(listed, list)
    return [row["offset"] for row in listed if isinstance(row, dict)]


def pair(tmp_path: Path, name: str) -> tuple[Path, Path, int]:
    """Damage a record's body in a store, and its property in the backup; return both stores and the record's number."""
    store, backup = (copy_store("4.9.7-clean", tmp_path, rename=word) for word in ("store", "backup"))
    found = rows(store)
    number = next(n for n, row in enumerate(found) if n > 20 and has(row, name) and len(row.message.body) > 40)
    row = found[number]
    body = row.stop - len(row.message.properties) - len(row.message.topic) - 3 - len(row.message.body)
    damage.garble(row.path, body, 30)
    other_letters(rows(backup)[number], name)
    return store, backup, number


def test_a_record_with_damaged_keys_is_taken_and_listed(tmp_path: Path) -> None:
    store, backup, number = pair(tmp_path, "KEYS")
    theirs = rows(backup)[number]
    plan = plan_healing(store, [backup])
    assert [place["offset"] for place in restored(plan)["places"]] == [theirs.offset]
    assert damaged(plan) == [theirs.offset]
    assert any(note.startswith("properties damaged in the replica") for note in plan.notes)
    journal.apply(plan)
    assert rows(store)[number].message == theirs.message
    assert problem_counts(report_of(store)) == {codes.CL_CONTRADICTED: 1}  # the index still shows the damage


def test_a_sound_replica_is_preferred_to_one_with_damaged_keys(tmp_path: Path) -> None:
    store, backup, _ = pair(tmp_path, "KEYS")
    for replicas in ([backup, unpack("4.9.7-clean")], [unpack("4.9.7-clean"), backup]):
        plan = plan_healing(store, replicas)
        assert (damaged(plan), plan.loss.messages) == ([], 0)
        assert [place["from"] for place in restored(plan)["places"]] == [str(unpack("4.9.7-clean"))]
    whole = log_files(unpack("4.9.7-clean"))
    journal.apply(plan)
    assert log_files(store) == whole
    assert not problem_counts(report_of(store))


def test_damaged_keys_are_not_replaced_by_others_that_are_damaged_too(tmp_path: Path) -> None:
    store, backup, number = pair(tmp_path, "KEYS")
    sound = log_files(unpack("4.9.7-clean"))
    row = rows(unpack("4.9.7-clean"))[number]
    damage.overwrite(store / "commitlog" / row.path.name, 0, sound[row.path.name])
    damage.garble(store / "commitlog" / row.path.name, value_of(row, "KEYS"), 2, 7)
    last = rows(store)[-9]
    damage.garble(last.path, last.at, last.size)
    plan = plan_healing(store, [backup])
    assert [place["offset"] for place in restored(plan)["places"]] == [last.offset]


def behind_the_end(tmp_path: Path, name: str) -> tuple[Path, Path, Row]:
    """Return a slave that lagged, its master, and a record with a damaged property that the slave does not have."""
    store, master = (copy_store(one, tmp_path) for one in ("5.4.0-slave", "5.4.0-master"))
    (store / "abort").unlink()
    index = look(store)[1].index
    assert index is not None
    end = max(rows(store)[-1].offset, *(file.end_phy_offset for file in index.files))
    row = next(r for r in rows(master) if r.offset > end and has(r, name) and not r.message.topic.startswith(b"RMQ_"))
    other_letters(row, name)
    return store, master, row


def test_only_the_index_of_the_replica_knows_the_keys_after_the_end(tmp_path: Path) -> None:
    store, master, row = behind_the_end(tmp_path, "KEYS")
    plan = plan_healing(store, [master], extend=True)
    assert damaged(plan) == [row.offset]
    journal.apply(plan)
    verified = look(store)[1]
    assert problem_counts(verified.report) == {codes.CL_CONTRADICTED: 1}
    assert key_hashes(store, row) == key_hashes(unpack("5.4.0-master"), row)  # the index still shows the damage


def test_only_the_queue_of_the_replica_knows_the_tags_after_the_end(tmp_path: Path) -> None:
    store, master, row = behind_the_end(tmp_path, "TAGS")
    shutil.rmtree(master / "index")  # 5.4.0 indexes TAGS too
    plan = plan_healing(store, [master], extend=True)
    assert damaged(plan) == [row.offset]
    journal.apply(plan)
    assert problem_counts(report_of(store)) == {codes.CQ_WRONG_TAG: 1}
    assert unit_of(store, row) == unit_of(unpack("5.4.0-master"), row)


def key_hashes(store: Path, row: Row) -> list[int]:
    """Return the key hashes of all index units of a record."""
    index = look(store)[1].index
    assert index is not None
    return sorted(index.hashes(row.offset, row.offset + 1)[1].tolist())


def unit_of(store: Path, row: Row) -> dict[str, int]:
    """Return the consume queue unit of a record."""
    topic, queue_id, queue_offset = row.slot
    raw = (store / "consumequeue" / topic / str(queue_id) / f"{0:020}").read_bytes()
    found = consumequeue.UNIT.parse(raw, queue_offset * consumequeue.UNIT.size)
    assert found["commitlog_offset"] == row.offset
    return found


def test_a_damaged_blank_of_the_replica_does_not_replace_a_good_one(tmp_path: Path) -> None:
    """A lost end begins after the last record, before the BLANK; here, only the next file is lost."""
    store, backup = (copy_store("4.9.7-clean", tmp_path, rename=word) for word in ("store", "backup"))
    last = rows(store)[-1].path
    closed = max((row for row in rows(backup) if row.path.name != last.name), key=lambda row: row.offset)
    damage.zero(last, 0, last.stat().st_size)
    damage.garble(closed.path, closed.stop, 8)
    plan = plan_healing(store, [backup])
    assert plan.loss.messages == 0
    assert not any(step.path.endswith(f"commitlog/{closed.path.name}") for step in plan.steps)
    journal.apply(plan)
    assert log_files(store) == log_files(unpack("4.9.7-clean"))
