"""Healing from a replica: the original bytes are restored, undo works, and the replica is unchanged."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqstore.checks.problems.report import problem_counts
from rmqstore.documents.plan import Plan
from rmqstore.errors import Refused
from rmqstore.files.store import open_store
from rmqstore.formats import dledger
from rmqstore.repair.journal import journal
from rmqstore.repair.replica.heal import find_offers
from rmqstore.repair.replica.replica import Replica, open_replica
from rmqstore.repair.replica.sources import HealOptions, find_places
from tests import damage
from tests.command import run, run_json
from tests.planning import look, report_of
from tests.repair.replica.pairs import PAIRS, Pair, damage_place, log_files, plan_healing, restored
from tests.repair.salvaging import Row, rows
from tests.repair.trees import CountingDisk, killed_at
from tests.seeds import seeds
from tests.stores import copy_store, unpack, write_broker_conf
from tests.untouched import snapshot


def body_of(row: Row) -> int:
    """Return the position of the body in its file."""
    tail = len(row.message.properties) + len(row.message.topic) + 3
    return row.stop - tail - len(row.message.body)


def one_bit(found: list[Row]) -> None:
    damage.flip(found[9].path, body_of(found[9]), 3)


def some_records(found: list[Row]) -> None:
    first, last = found[4], found[8]
    damage.garble(first.path, first.at - first.body_offset, last.stop - first.at + first.body_offset)


def first_record(found: list[Row]) -> None:
    damage.garble(found[0].path, 0, 30)


def a_page(found: list[Row]) -> None:
    damage.zero(found[30].path, 8192, 8192)


def end_of_file(found: list[Row]) -> None:
    last = [row for row in found if row.path == found[0].path][-1]
    damage.garble(last.path, last.at, last.size + 8)


def torn_file(found: list[Row]) -> None:
    damage.cut(found[0].path, 30_000)


def missing_file(found: list[Row]) -> None:
    sorted({row.path for row in found})[1].unlink()


def several(found: list[Row]) -> None:
    for harm in (missing_file, some_records, end_of_file):
        harm(found)
    path = sorted({row.path for row in found})[2]
    first = next(row for row in found if row.path == path)
    damage.garble(path, first.at, 900)


HARMS = (one_bit, some_records, first_record, a_page, end_of_file, torn_file, missing_file, several)


def _all() -> Iterator[object]:
    """Yield all kinds of damage for all pairs; quick: all kinds for some pairs, and the worst one for all pairs."""
    for name, pair in PAIRS.items():
        for harm in HARMS:
            often = harm is several or name in ("slave", "follower", "backup, mixed")
            marks = () if often else pytest.mark.slow
            yield pytest.param(pair, harm, id=f"{name}-{harm.__name__}", marks=marks)


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize(("pair", "harm"), [*_all()])
def test_the_original_bytes_come_back(pair: Pair, harm: Callable[[list[Row]], None], tmp_path: Path) -> None:
    store = copy_store(pair.store, tmp_path)
    whole, before = log_files(store), problem_counts(report_of(store))
    harm(rows(store))
    broken = snapshot(store, without=(".rmqstore",))
    replicas = [unpack(name) for name in pair.replicas]
    theirs = [snapshot(path) for path in replicas]
    plan = plan_healing(store, replicas)
    assert (plan.loss.messages, plan.decisions) == (0, ())
    applied = journal.apply(plan)
    assert log_files(store) == whole
    assert problem_counts(report_of(store)) == before
    assert [snapshot(path) for path in replicas] == theirs
    assert applied.journal is not None
    journal.undo(applied.journal)
    after = snapshot(store, without=(".rmqstore",))
    assert {name: entry.content for name, entry in after.items()} == {n: e.content for n, e in broken.items()}


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", PAIRS)
def test_the_plan_predicts_what_verify_finds_in_the_healed_store(name: str, tmp_path: Path) -> None:
    """Although most of the healed store is not read again."""
    pair = PAIRS[name]
    store = copy_store(pair.store, tmp_path)
    whole = log_files(store)
    several(rows(store))
    words = [word for path in pair.replicas for word in ("--replica", str(unpack(path)))]
    planned = run_json("recover", str(store), *words, "--role", "single", exit_code=1)
    done = run("recover", str(store), *words, "--role", "single", "--json", "--apply")
    answer = json.loads(done.stdout)
    assert answer["differs"] == [], done.stderr
    assert (answer["digest"], answer["remaining"]) == (planned["digest"], planned["remaining"])
    assert log_files(store) == whole


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.parametrize("name", ["slave", "follower", "backup", "backup, formats"])
def test_random_damage_is_healed(name: str, seed: int, tmp_path: Path) -> None:
    pair, rng = PAIRS[name], random.Random(seed)
    store = copy_store(pair.store, tmp_path)
    whole, before = log_files(store), problem_counts(report_of(store))
    done = ""
    for _ in range(rng.choice((1, 2, 4, 8))):
        done += damage_place(rng, rows(store))
    if not done:
        return
    plan = plan_healing(store, [unpack(replica) for replica in pair.replicas])
    assert plan.loss.messages == 0
    journal.apply(plan, force_digest=plan.digest if plan.decisions else None)
    healed = log_files(store)
    for file, content in whole.items():  # after a lost end, the replica may have more records
        assert healed[file].startswith(content.rstrip(b"\0")), (done, file)
    assert problem_counts(report_of(store)) == before


def test_a_record_that_is_damaged_in_store_and_replica_stays_damaged(tmp_path: Path) -> None:
    store, backup = (copy_store("4.9.7-clean", tmp_path, rename=name) for name in ("store", "backup"))
    found = rows(store)
    for row in (found[20], found[50]):
        damage.garble(row.path, row.at, row.size)
    there = rows(backup)[50]
    damage.garble(there.path, there.at, there.size)
    plan = plan_healing(store, [backup])
    assert plan.loss.messages == 1
    assert [place["offset"] for place in restored(plan)["places"]] == [found[20].offset]
    assert f"no replica has sound bytes for offset {found[50].offset:,}" in " ".join(plan.notes)


def test_a_missing_file_is_restored_except_records_damaged_in_the_replica(tmp_path: Path) -> None:
    store, backup = (copy_store("4.9.7-clean", tmp_path, rename=name) for name in ("store", "backup"))
    found = rows(store)
    middle = [row for row in found if row.path == sorted({r.path for r in found})[1]]
    other = next(row for row in rows(backup) if row.offset == middle[10].offset)
    damage.garble(other.path, body_of(other), min(9, len(other.message.body)))
    whole = {row.offset: row.message for row in found}
    middle[0].path.unlink()
    plan = plan_healing(store, [backup])
    assert plan.loss.messages == 1
    journal.apply(plan)
    after = {row.offset: row.message for row in rows(store)}
    assert [at for at in whole if after.get(at) != whole[at]] == [middle[10].offset]
    assert not problem_counts(report_of(store))


def test_each_of_two_replicas_gives_the_records_that_the_other_lacks(tmp_path: Path) -> None:
    names = ("store", "first", "second")
    store, first, second = (copy_store("4.9.7-clean", tmp_path, rename=name) for name in names)
    whole, found = log_files(store), rows(store)
    for path, numbers in ((store, (20, 21, 22)), (first, (20,)), (second, (22,))):
        for row in [rows(path)[n] for n in numbers]:
            damage.garble(row.path, row.at, row.size)
    plan = plan_healing(store, [first, second])
    assert plan.loss.messages == 0
    journal.apply(plan)
    assert log_files(store) == whole
    assert found[20].offset != found[22].offset


def test_nothing_is_restored_from_replicas_that_disagree(tmp_path: Path) -> None:
    names = ("store", "first", "second")
    store, first, second = (copy_store("4.9.7-clean", tmp_path, rename=name) for name in names)
    row, other = rows(store)[20], rows(second)[20]
    for number in (20, 60):
        damage.garble(rows(store)[number].path, rows(store)[number].at, 40) if number == 20 else None
    row = rows(second)[20]
    damage.flip(other.path, other.at + 48, 0)  # BORNHOST, which no CRC covers
    last = rows(store)[-9]
    damage.garble(last.path, last.at, last.size)
    plan = plan_healing(store, [first, second])
    assert f"the replicas disagree at offset {row.offset + 40 + 8:,}" in " ".join(plan.notes)
    assert [place["offset"] for place in restored(plan)["places"]] == [last.offset]


@pytest.mark.parametrize("name", ["slave", "killed follower"])
def test_a_lost_tail_comes_back_with_extend(name: str, tmp_path: Path) -> None:
    pair = PAIRS[name]
    store, other = copy_store(pair.store, tmp_path), unpack(pair.replicas[0])
    plan = plan_healing(store, [other], extend=True, role="slave")
    assert plan.loss.messages == 0
    journal.apply(plan)
    assert not problem_counts(report_of(store))
    ours, theirs = rows(store), rows(other)
    assert [(row.offset, row.message) for row in ours] == [(row.offset, row.message) for row in theirs][: len(ours)]
    limit = committed(other) if name == "killed follower" else theirs[-1].offset
    assert ours[-1].offset == max(row.offset for row in theirs if row.offset <= limit)


def test_entries_before_a_committed_one_that_the_replica_lost_are_committed_too(tmp_path: Path) -> None:
    store, other = (copy_store(name, tmp_path) for name in ("5.4.0-dledger3-n2", "5.4.0-dledger3-n0"))
    whole, found, theirs = log_files(store), rows(store), rows(other)
    end = next(n for n, row in enumerate(theirs) if row.offset == committed(other))
    for row in theirs[end - 4 :]:
        damage.zero(row.path, row.at - row.body_offset, row.body_offset + row.size)
    lost = [row for row in found if row.path == found[-1].path]
    damage.zero(lost[0].path, 0, lost[-1].stop)
    plan = plan_healing(store, [other])
    assert plan.loss.messages == 0
    journal.apply(plan)
    for name, content in whole.items():
        assert log_files(store)[name].startswith(content.rstrip(b"\0"))  # the replica had more records


def test_dledgers_index_proves_a_lost_end_after_a_file_that_the_replica_lost(tmp_path: Path) -> None:
    store, other = (copy_store(name, tmp_path) for name in ("5.4.0-dledger3-n0", "5.4.0-dledger3-n1"))
    whole, found = log_files(store), rows(store)
    *_, before, last = sorted({row.path for row in found})
    (other / "dledger-n1" / "data" / before.name).unlink()
    lost = [row for row in found if row.path == last]
    damage.zero(last, 0, lost[-1].stop)
    plan = plan_healing(store, [other])
    assert [place["messages"] for place in restored(plan)["places"]] == [len(lost)]
    assert plan.loss.messages == 0
    journal.apply(plan)
    assert log_files(store) == whole


def test_entries_not_known_to_be_committed_come_back_if_the_stores_own_index_has_them(tmp_path: Path) -> None:
    store, other = copy_store("5.4.0-dledger3-n0", tmp_path), unpack("5.4.0-dledger3-n2")
    whole, end = log_files(store), rows(other)[-1]
    lost = lose_the_uncommitted(store, other)
    back = sum(1 for row in lost if row.offset <= end.offset)
    plan = plan_healing(store, [other])
    assert restored(plan)["messages"] == back > 0
    assert plan.loss.messages == len(lost) - back
    journal.apply(plan)
    last = rows(store)[-1]
    assert last.offset == end.offset
    assert log_files(store)[last.path.name][: last.stop] == whole[last.path.name][: last.stop]


def test_entries_not_known_to_be_committed_are_not_taken_without_an_index(tmp_path: Path) -> None:
    store, other = copy_store("5.4.0-dledger3-n0", tmp_path), unpack("5.4.0-dledger3-n2")
    lose_the_uncommitted(store, other)
    [index] = (store / "dledger-n0" / "index").iterdir()
    damage.zero(index, len(rows(store)) * 32, 10_000)
    shutil.rmtree(store / "index")
    with pytest.raises(Refused, match="does not know its entries after offset 262,078 to be committed"):
        plan_healing(store, [other])


def lose_the_uncommitted(store: Path, other: Path) -> list[Row]:
    """Zero the end of a log that the other node also has, but does not know to be committed."""
    found = rows(store)
    lost = [row for row in found if row.offset > 262144]
    assert committed(other) < 262144 < rows(other)[-1].offset
    for row in lost:
        damage.zero(row.path, row.at - row.body_offset, row.body_offset + row.size)
    return lost


def committed(store: Path) -> int:
    """Return the offset of the last message that is committed according to a DLedger node's checkpoint."""
    [group] = store.glob("dledger-*")
    index = dledger.parse_dledger_checkpoint((group / "checkpoint").read_bytes()).committed_index
    assert index is not None
    return rows(store)[index].offset


def test_missing_first_files_come_back_with_extend(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    whole = log_files(store)
    (store / "commitlog" / f"{0:020}").unlink()
    plan = plan_healing(store, [unpack("4.9.7-clean")], extend=True)
    journal.apply(plan)
    assert log_files(store) == whole
    assert not problem_counts(report_of(store))


def test_only_whole_files_of_the_store_are_restored_before_its_first_file(tmp_path: Path) -> None:
    store, replica = copy_store("4.9.7-clean", tmp_path / "a"), copy_store("4.9.7-clean", tmp_path / "b")
    size = (store / "commitlog" / f"{0:020}").stat().st_size
    for path in sorted((replica / "commitlog").iterdir()):  # the same log in files of half the size
        raw, start = path.read_bytes(), int(path.name)
        path.write_bytes(raw[: size // 2])
        path.with_name(f"{start + size // 2:020}").write_bytes(raw[size // 2 :])
    (store / "commitlog" / f"{0:020}").unlink()
    opened, verified = look(store)
    (log,) = verified.logs.results

    def before() -> list[tuple[int, int]]:
        halves = open_replica(replica, {"mappedFileSizeCommitLog": str(size // 2)})
        theirs = halves.log(0)
        assert theirs is not None
        places = find_places(opened, verified, log, [theirs], HealOptions(extend=True))
        return [(place.start, place.stop) for place in places if place.start <= log.queue.start]

    assert before() == [(0, size)]
    (replica / "commitlog" / f"{0:020}").unlink()
    assert before() == []


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", ["master", "leader", "backup", "backup, formats"])
def test_fillers_of_an_earlier_repair_are_replaced_by_the_messages(name: str, tmp_path: Path) -> None:
    pair = PAIRS[name]
    store = copy_store(pair.store, tmp_path)
    other, whole, found = unpack(pair.replicas[0]), log_files(store), rows(store)
    for row in (found[5], *found[20:23], found[100]):
        damage.garble(row.path, row.at - row.body_offset, 120)
    end_of_file(found)
    answer = run_json("recover", str(store), "--role", "single", "--apply", exit_code=0)
    assert answer["loss"]["messages"] == 6  # type: ignore[index]
    assert len(rows(store)) >= len(found) - 2
    refused = run("recover", str(store), "--replica", str(other))
    assert (refused.exit_code, "--heal-fillers" in refused.stderr) == (5, True)
    words = ("--replica", str(other), "--heal-fillers", "--role", "single", "--apply")
    healed = run_json("recover", str(store), *words, exit_code=0)
    assert healed["facts"]["restored"]["messages"] == 6  # type: ignore[index]
    assert log_files(store) == whole
    assert not problem_counts(report_of(store))


@pytest.mark.parametrize("name", ["4.9.7-clean", "4.9.7-dledger"])
def test_a_record_that_a_witness_contradicts_is_replaced_from_the_replica(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    whole, found = log_files(store), rows(store)
    row = next(r for r in found if b"KEYS\x01" in r.message.properties and len(r.message.body) > 9)
    at = row.stop - len(row.message.properties) + row.message.properties.index(b"KEYS\x01") + 5
    damage.garble(row.path, at, 3)  # more than a single bit, so that the index cannot prove the original value
    assert problem_counts(report_of(store))
    journal.apply(plan_healing(store, [unpack(name)]))
    assert log_files(store) == whole
    assert not problem_counts(report_of(store))


def test_an_offer_counts_the_damaged_places_and_their_bytes(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    found = rows(store)
    hit = found[20], found[200], found[201]
    for row in hit:
        damage.garble(row.path, row.at, row.size)
    offers = find_offers(*look(store), [Replica("backup", open_store(unpack("4.9.7-clean")))]).offers
    assert [(offer.places, offer.bytes) for offer in offers] == [(2, sum(row.size for row in hit))]


def test_a_slave_is_healed_from_its_master_with_nothing_cut(tmp_path: Path) -> None:
    store = copy_store("5.4.0-slave", tmp_path)
    whole = log_files(store)
    some_records(rows(store))
    plan = plan_healing(store, [unpack("5.4.0-master")], role="slave")
    assert plan.loss.messages == 0
    journal.apply(plan)
    assert log_files(store) == whole


def test_several_replicas_outvote_a_record_that_no_crc_covers(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    whole, found = log_files(store), rows(store)
    for number in (30, 31, 200):
        damage.flip(found[number].path, found[number].at + 48, 0)  # BORNHOST
    assert not problem_counts(report_of(store))
    backup = copy_store("4.9.7-clean", tmp_path, rename="backup")
    with pytest.raises(Refused, match="no damage that a replica can repair"):
        plan_healing(store, [backup])  # store and replica contradict each other
    plan = plan_healing(store, [backup, unpack("4.9.7-clean")])
    assert [place["was"] for place in restored(plan)["places"]] == ["outvoted", "outvoted"]
    journal.apply(plan)
    assert log_files(store) == whole


def diverged_behind_damage(tmp_path: Path) -> tuple[Path, list[Path], list[Row]]:
    """Create a store with a damaged record, after which no record is equal in two replicas."""
    store = copy_store("4.9.7-clean", tmp_path)
    found = rows(store)
    for row in found[300:]:
        damage.flip(row.path, row.at + 48, 0)
    damage.garble(found[299].path, found[299].at, 60)
    return store, [copy_store("4.9.7-clean", tmp_path, rename="backup"), unpack("4.9.7-clean")], found


def test_a_diverged_store_is_not_outvoted(tmp_path: Path) -> None:
    store, replicas, found = diverged_behind_damage(tmp_path)
    shutil.rmtree(store / "index")
    with pytest.raises(Refused, match=f"diverges from this store at offset {found[300].offset:,}"):
        plan_healing(store, replicas)


def test_the_index_proves_the_last_record_before_a_divergence(tmp_path: Path) -> None:
    store, replicas, found = diverged_behind_damage(tmp_path)
    plan = plan_healing(store, replicas)
    assert [place["offset"] for place in restored(plan)["places"]] == [found[299].offset]
    journal.apply(plan)
    assert rows(store)[299].message == found[299].message


HALVES = {"5.4.0-master": ("5.4.0-slave", "index"), "5.4.0-controller-master": ("5.4.0-controller-slave", "epochs")}


@pytest.mark.parametrize("name", HALVES)
def test_a_replica_that_ends_inside_the_damage_is_proved_by(name: str, tmp_path: Path) -> None:
    """In classic HA, the index proves it, and in controller mode, the common epoch."""
    other, witness = HALVES[name]
    store, theirs = copy_store(name, tmp_path), rows(unpack(other))
    found = rows(store)
    last = len(theirs) - 1
    assert found[last].message == theirs[last].message
    first, behind = found[last - 4], found[last + 5]
    assert first.path == behind.path
    whole = first.path.read_bytes()
    damage.garble(first.path, first.at, behind.stop - first.at)
    if witness == "epochs":
        shutil.rmtree(store / "index")
    plan = plan_healing(store, [unpack(other)])
    assert [(p["offset"], p["messages"]) for p in restored(plan)["places"]] == [(first.offset, 5)]
    assert plan.loss.messages == 5
    journal.apply(plan)
    assert first.path.read_bytes()[: found[last].stop] == whole[: found[last].stop]


def test_nothing_is_restored_after_the_end_of_an_earlier_epoch_of_the_replica(tmp_path: Path) -> None:
    store, other = copy_store("5.4.0-controller-master", tmp_path), unpack("5.4.0-controller-diverged")
    found, theirs = rows(store), rows(other)
    fork = next(n for n, row in enumerate(theirs) if row.message != found[n].message)
    whole = found[fork - 1].message
    for row in found[fork - 1 : fork + 30]:
        damage.garble(row.path, row.at, row.size)
    shutil.rmtree(store / "index")
    plan = plan_healing(store, [other])
    assert [(p["offset"], p["messages"]) for p in restored(plan)["places"]] == [(found[fork - 1].offset, 1)]
    assert plan.loss.messages == 30
    journal.apply(plan, force_digest=plan.digest if plan.decisions else None)
    assert rows(store)[fork - 1].message == whole


@pytest.mark.parametrize("term", [0, 1])
def test_a_follower_that_ends_inside_the_damage_is_proved_by_its_term(term: int, tmp_path: Path) -> None:
    store, other = copy_store("5.4.0-dledger3-n0", tmp_path), copy_store("5.4.0-dledger3-n2", tmp_path)
    found, theirs = rows(store), rows(other)
    last = len(theirs) - 1
    first, behind = found[last - 4], found[last + 5]
    assert first.path == behind.path
    damage.garble(first.path, first.at - 48, behind.stop - first.at + 48)
    for row in theirs[last - 4 :]:
        damage.flip(row.path, row.at - 48 + dledger.ENTRY.at("term") + 7, 3) if term else None
    if term:
        with pytest.raises(Refused, match="no record after offset"):
            plan_healing(store, [other])
        return
    plan = plan_healing(store, [other])
    assert [(p["offset"], p["messages"]) for p in restored(plan)["places"]] == [(first.offset - 48, 5)]
    journal.apply(plan)
    assert [row.message for row in rows(store)][: last + 1] == [row.message for row in theirs]


def test_a_lost_tail_that_the_queues_know_is_restored_without_extend(tmp_path: Path) -> None:
    store = copy_store("5.1.4-clean", tmp_path)
    whole, found = log_files(store), rows(store)
    first, last = found[-9], found[-1]
    damage.zero(first.path, first.at, last.stop - first.at)
    plan = plan_healing(store, [unpack("5.1.4-clean")])
    assert plan.loss.messages == 0
    journal.apply(plan)
    assert log_files(store) == whole
    assert not problem_counts(report_of(store))


def test_a_kill_at_any_step_is_ended_by_undo_and_resume_without_the_replica(tmp_path: Path) -> None:
    names = [f"{number:020}" for number in (0, 65536, 131072)]

    def broken(place: Path) -> tuple[Path, Plan]:
        store, backup = (copy_store("4.9.7-clean", place, rename=name) for name in ("store", "backup"))
        several(rows(store))
        return store, plan_healing(store, [backup])

    whole = log_files(unpack("4.9.7-clean"))
    disk = CountingDisk()
    journal.apply(broken(tmp_path / "counted")[1], disk=disk)
    states = set()
    for index in range(0, len(disk.calls), len(disk.calls) // 10):
        store, plan = broken(tmp_path / str(index))
        before = log_files(store)
        assert before.keys() == whole.keys() - {names[1]}
        assert killed_at(index, lambda disk, plan=plan: journal.apply(plan, disk=disk))  # type: ignore[misc]
        shutil.rmtree(tmp_path / str(index) / "backup")
        infos = journal.list_journals(store)
        states.add(infos[0].state.value if infos else "none")
        if infos and infos[0].state == "applying":
            journal.resume(infos[0].path)
            assert log_files(store) == whole
        if infos:
            journal.undo(infos[0].path)
        assert log_files(store) == before
        shutil.rmtree(tmp_path / str(index))
    assert {"preparing", "applying"} <= states


def test_the_end_of_a_legacy_log_is_healed_although_no_record_of_it_follows(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger-mixed", tmp_path)
    whole, found = log_files(store), rows(store)
    last = [row for row in found if not row.body_offset][-1]
    damage.cut(last.path, last.at + 60)
    plan = plan_healing(store, [unpack("5.4.0-dledger-mixed")])
    assert plan.loss.messages == 0
    journal.apply(plan)
    assert log_files(store) == whole


def test_files_of_several_commitlog_paths_are_healed_where_they_are(tmp_path: Path) -> None:
    store = copy_store("5.1.4-clean", tmp_path)
    whole, found = log_files(store), rows(store)
    second = tmp_path / "disk2"
    second.mkdir()
    names = sorted(whole)
    for name in names[1::2]:
        (store / "commitlog" / name).rename(second / name)
    conf = write_broker_conf("5.1.4-clean", store, storePathCommitLog=f"{store}/commitlog,{second}")
    damage.garble(second / names[1], 5000, 900)
    damage.garble(store / "commitlog" / names[2], found[0].at + 9000, 900)
    (store / "commitlog" / names[4]).unlink()
    words = ("-c", str(conf), "--replica", str(unpack("5.1.4-clean")))
    answer = run_json("recover", str(store), *words, "--apply", exit_code=0)
    assert answer["loss"]["messages"] == 0  # type: ignore[index]
    after = {path.name: path.read_bytes() for home in (store / "commitlog", second) for path in home.iterdir()}
    assert after == whole
    assert (second / names[1]).exists()
    journal.undo(Path(str(answer["journal"])), roots=[second])
    assert not (store / "commitlog" / names[4]).exists()


@pytest.mark.parametrize("gone", [(458752,), (524288,), (458752, 524288)], ids=str)
def test_files_between_a_legacy_log_and_dledger_come_back(gone: tuple[int, ...], tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger-mixed", tmp_path)
    whole, paths = log_files(store), {row.path.name: row.path for row in rows(store)}
    for start in gone:
        paths[f"{start:020}"].unlink()
    journal.apply(plan_healing(store, [unpack("5.4.0-dledger-mixed")]))
    assert log_files(store) == whole
    assert all(paths[f"{start:020}"].exists() for start in gone)


def test_a_log_is_extended_up_to_the_damage_of_the_replica(tmp_path: Path) -> None:
    store, other = copy_store("5.4.0-slave", tmp_path), copy_store("5.4.0-master", tmp_path)
    before, theirs = len(rows(store)), rows(other)
    hit = theirs[before + 20]
    damage.garble(hit.path, hit.at, hit.size)
    plan = plan_healing(store, [other], extend=True, role="slave")
    assert (plan.loss.messages, restored(plan)["messages"]) == (0, 20)
    journal.apply(plan)
    assert [row.offset for row in rows(store)] == [row.offset for row in theirs[: before + 20]]
    assert not problem_counts(report_of(store))


def test_a_lost_tail_comes_back_but_for_what_the_replica_has_damaged(tmp_path: Path) -> None:
    store, other = (copy_store("5.1.4-clean", tmp_path, rename=name) for name in ("store", "other"))
    whole, found = log_files(store), rows(store)
    first, hit, last = found[-9], rows(other)[-5], found[-1]
    damage.zero(first.path, first.at, last.stop - first.at)
    damage.garble(hit.path, hit.at, hit.size)
    plan = plan_healing(store, [other])
    assert (plan.loss.messages, restored(plan)["messages"]) == (1, 8)
    journal.apply(plan)
    assert log_files(store).keys() == whole.keys()
    assert [row.message for row in rows(store) if row.offset != hit.offset] == [*map(message, found[:-5] + found[-4:])]
    assert not problem_counts(report_of(store))


def test_a_lost_tail_is_proved_by_the_epoch_where_no_record_before_it_is_left_in_the_replica(tmp_path: Path) -> None:
    store = copy_store("5.4.0-controller-slave", tmp_path)
    other = copy_store("5.4.0-controller-master", tmp_path)
    found = rows(store)
    paths = sorted({row.path for row in found})
    damage.zero(paths[-1], 0, paths[-1].stat().st_size)
    (other / "commitlog" / paths[-2].name).unlink()
    shutil.rmtree(store / "index")
    plan = plan_healing(store, [other])
    assert plan.loss.messages == 0
    journal.apply(plan, force_digest=plan.digest if plan.decisions else None)
    assert [row.message for row in rows(store)][: len(found)] == [row.message for row in found]


def message(row: Row) -> object:
    return row.message


def test_a_store_time_that_the_index_contradicts_is_replaced_from_the_replica(tmp_path: Path) -> None:
    store = copy_store("5.4.0-slave", tmp_path)
    whole, row = log_files(store), rows(store)[260]
    damage.flip(row.path, row.at + 56 + 6, 7)  # STORETIMESTAMP: half a minute
    assert problem_counts(report_of(store)).keys() == {"IX-BAD-ENTRY"}
    journal.apply(plan_healing(store, [unpack("5.4.0-master")]))
    assert log_files(store) == whole
