"""A store that is not proved to be a replica is refused with a reason, and nothing is changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.errors import Refused, StoreIsLive
from rmqstore.repair.journal import journal
from rmqstore.repair.replica.replica import Replica, ReplicaLog
from tests import damage
from tests.command import run, run_json
from tests.repair.replica.pairs import log_files, plan_healing, restored
from tests.repair.salvaging import Row, rows
from tests.stores import clone, copy_store, unpack, write_broker_conf
from tests.untouched import snapshot

_BORN_HOST = 48
"""Position of BORNHOST in a record, which no CRC of these brokers covers."""


def broken(tmp_path: Path, name: str = "4.9.7-clean", numbers: tuple[int, ...] = (20, 60)) -> Path:
    store = copy_store(name, tmp_path, rename="store")
    found = rows(store)
    for number in numbers:
        damage.garble(found[number].path, found[number].at - found[number].body_offset, 90)
    return store


def diverge(store: Path, number: int) -> list[Row]:
    """Change the records from the N-th one on, so that they differ from those of the replicas."""
    found = rows(store)
    for row in found[number:]:
        damage.flip(row.path, row.at + _BORN_HOST, 0)
    assert len(rows(store)) == len(found)
    return found


def test_no_bytes_after_a_divergence_are_used(tmp_path: Path) -> None:
    store = broken(tmp_path)
    other = copy_store("4.9.7-clean", tmp_path, rename="other")
    found = diverge(other, 40)
    plan = plan_healing(store, [other])
    found_there = restored(plan)
    assert [place["offset"] for place in found_there["places"]] == [found[20].offset]
    assert found_there["replicas"][0]["diverges_at"] == found[40].offset
    assert f"diverges from this store at offset {found[40].offset:,}" in " ".join(plan.notes)
    assert plan.loss.messages == 1


def test_a_diverged_replica_does_not_extend_a_log(tmp_path: Path) -> None:
    store = copy_store("5.4.0-slave", tmp_path)
    other = copy_store("5.4.0-master", tmp_path)
    found = diverge(other, 300)
    before = snapshot(store)
    with pytest.raises(Refused, match=f"diverges from this store at offset {found[300].offset:,}"):
        plan_healing(store, [other], extend=True)
    assert snapshot(store) == before


def test_a_fork_of_one_record_far_before_the_end_is_not_extended(tmp_path: Path) -> None:
    """The records around it, the last ones, and the first ones of each file are equal in both logs."""
    store = copy_store("5.4.0-slave", tmp_path, rename="store")
    master = unpack("5.4.0-master")
    row = rows(store)[200]
    damage.flip(row.path, row.at + _BORN_HOST, 0)
    before = snapshot(store)
    with pytest.raises(Refused) as refused:
        plan_healing(store, [master], extend=True)
    assert snapshot(store) == before
    message = row.message
    place = f"{message.topic.decode()}/{message.queue_id} offset {message.queue_offset:,}"
    assert str(refused.value).count(place) == 2
    assert f"diverges from this store at offset {row.offset:,} of the commitlog" in str(refused.value)
    seeds = [f"`rmqstore seed {path} DIR --role slave`" for path in (master, store)]
    assert refused.value.advice is not None
    assert [seed in refused.value.advice for seed in seeds] == [True, True]


def test_a_filler_of_the_replica_is_no_fork(tmp_path: Path) -> None:
    store, master = copy_store("5.4.0-slave", tmp_path), copy_store("5.4.0-master", tmp_path)
    row = rows(master)[200]
    damage.garble(row.path, row.at, row.size)
    run_json("recover", str(master), "--apply", exit_code=0)
    assert restored(plan_healing(store, [master], extend=True, role="slave"))["messages"] == 151


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ("5.1.4-clean", "another record at offset"),  # another broker with the same topics
        ("4.9.7-killed", "another record at offset"),
        ("5.4.0-formats", "another record at offset"),
        ("498_clean", "has files of 16,384 bytes"),
        ("5.4.0-dledger3-n0", "is not a replica"),  # another kind of log
    ],
)
def test_a_foreign_store_is_refused(other: str, reason: str, tmp_path: Path) -> None:
    store = broken(tmp_path)
    before = snapshot(store)
    answer = run("recover", str(store), "--replica", str(unpack(other)), "--apply")
    assert (answer.exit_code, reason in answer.stderr) == (5, True), answer.stderr
    assert snapshot(store) == before


def test_an_entry_of_another_term_is_a_divergence(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger3-n0", tmp_path)
    other = copy_store("5.4.0-dledger3-n1", tmp_path)
    found = rows(other)
    for row in found[100:]:
        damage.flip(row.path, row.at - 48 + 23, 1)  # the entry's term
    assert len(rows(other)) == len(found)
    for number in (50, 200):
        damage.garble(rows(store)[number].path, rows(store)[number].at + 90, 5)
    plan = plan_healing(store, [other])
    found_there = restored(plan)
    assert found_there["replicas"][0]["diverges_at"] == found[100].offset - 48
    assert [place["messages"] for place in found_there["places"]] == [1]


def test_arguments_in_the_wrong_order_are_reported(tmp_path: Path) -> None:
    store = broken(tmp_path)
    good = copy_store("4.9.7-clean", tmp_path)
    answer = run("recover", str(good), "--replica", str(store))
    assert answer.exit_code == 5
    assert "are the two in the wrong order?" in answer.stderr


def itself(store: Path) -> Path:
    return store


def link_to_it(store: Path) -> Path:
    (store.parent / "link").symlink_to(store)
    return store.parent / "link"


def its_log(store: Path) -> Path:
    return store / "commitlog"


@pytest.mark.parametrize("path", [itself, link_to_it, its_log], ids=lambda p: p.__name__)
def test_a_store_is_no_replica_of_itself(path: Callable[[Path], Path], tmp_path: Path) -> None:
    store = broken(tmp_path)
    with pytest.raises(Refused, match="share their log files"):
        plan_healing(store, [path(store)])


def test_one_wrong_replica_among_good_ones_is_refused(tmp_path: Path) -> None:
    store = broken(tmp_path)
    with pytest.raises(Refused, match="is not a replica"):
        plan_healing(store, [unpack("4.9.7-clean"), unpack("5.1.4-clean")])


def test_damage_in_all_copies_is_not_hidden_behind_fillers(tmp_path: Path) -> None:
    store = broken(tmp_path)
    other = tmp_path / "other"
    clone(store, other)
    with pytest.raises(Refused, match="no replica has sound bytes for offset"):
        plan_healing(store, [other])


@pytest.mark.parametrize("option", ["--extend", "--heal-fillers"])
def test_options_about_replicas_need_one(option: str) -> None:
    answer = run("recover", str(unpack("4.9.7-clean")), option)
    assert (answer.exit_code, f"{option} needs --replica" in answer.stderr) == (2, True)


def test_a_replica_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    assert run("recover", str(broken(tmp_path)), "--replica", str(tmp_path / "no")).exit_code == 3


def test_a_replica_can_be_given_by_its_broker_conf(tmp_path: Path) -> None:
    store = broken(tmp_path)
    whole = log_files(unpack("4.9.7-clean"))
    other = copy_store("4.9.7-clean", tmp_path, rename="other")
    conf = write_broker_conf("4.9.7-clean", other)
    answer = run_json("recover", str(store), "--replica", str(conf), "--apply", exit_code=0)
    assert answer["facts"]["restored"]["messages"] == 2  # type: ignore[index]
    assert log_files(store) == whole
    empty = tmp_path / "broker.conf"
    empty.write_text("brokerName=b\n")
    assert run("recover", str(store), "--replica", str(empty)).exit_code == 2


def test_a_part_of_a_store_can_be_a_replica(tmp_path: Path) -> None:
    store = broken(tmp_path)
    shutil.copytree(unpack("4.9.7-clean") / "commitlog", tmp_path / "backup" / "commitlog")
    assert plan_healing(store, [tmp_path / "backup" / "commitlog"]).loss.messages == 0


def test_a_replica_with_larger_files_has_the_same_addresses(tmp_path: Path) -> None:
    store, other = broken(tmp_path), tmp_path / "other" / "commitlog"
    whole = log_files(unpack("4.9.7-clean"))
    other.mkdir(parents=True)
    names = sorted(whole)
    for first, second in zip(names[::2], [*names[1::2], ""], strict=False):
        (other / first).write_bytes(whole[first] + whole.get(second, bytes(len(whole[first]))))
    plan = plan_healing(store, [other])
    assert plan.loss.messages == 0
    journal.apply(plan)
    assert log_files(store) == whole


def test_a_live_store_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = broken(tmp_path)
    monkeypatch.setattr("rmqstore.files.store.Store.is_live", lambda _: True)
    with pytest.raises(StoreIsLive):
        plan_healing(store, [unpack("4.9.7-clean")])


def test_a_saved_plan_needs_the_replica_no_longer(tmp_path: Path) -> None:
    store, other = broken(tmp_path), copy_store("4.9.7-clean", tmp_path, rename="other")
    whole, saved = log_files(other), tmp_path / "plan.json"
    run("recover", str(store), "--replica", str(other), "--plan-out", str(saved))
    shutil.rmtree(other)
    assert run("recover", str(store), "--plan", str(saved), "--apply").exit_code == 0
    assert log_files(store) == whole


def test_the_text_lists_the_restored_places_by_replica(tmp_path: Path) -> None:
    store, other = broken(tmp_path), unpack("4.9.7-clean")
    text = run("recover", str(store), "--replica", str(other)).stdout
    assert "No data will be lost." in text
    assert "Restored from a copy: 2 messages, 2 places." in text
    assert f"  {other}: 2 messages" in text
    found = rows(other)
    assert f"  offset {found[20].offset:,}, {found[20].size:,} bytes (damaged; 1 message)" in text


def test_compare_and_verify_name_the_command(tmp_path: Path) -> None:
    store, other = broken(tmp_path), unpack("4.9.7-clean")
    command = f"rmqstore recover {store} --replica {other}"
    assert f"Next: {command}\n" in run("compare", str(store), str(other)).stdout
    assert f"Next: {command}\n" in run("compare", str(other), str(store)).stdout
    assert run_json("compare", str(store), str(other), exit_code=1)["heal"] == [command]
    assert "--replica DIR" in run("verify", str(store)).stdout
    assert "--replica" not in run("verify", str(other)).stdout
    slave, master = unpack("5.4.0-slave"), unpack("5.4.0-master")
    longer = f"rmqstore recover {slave} --replica {master} --extend"
    assert run_json("compare", str(slave), str(master), exit_code=1)["heal"] == [longer]


def test_compare_names_no_command_for_another_broker(tmp_path: Path) -> None:
    store = broken(tmp_path)
    answer = run_json("compare", str(store), str(unpack("4.9.7-ipv6")), exit_code=1)
    assert answer["damaged_in_store"]["messages"] > 0  # type: ignore[index]
    assert answer["heal"] == []


def test_a_store_without_a_log_is_not_healed(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    for path in (store / "commitlog").iterdir():
        path.unlink()
    with pytest.raises(Refused, match="has no log file left"):
        plan_healing(store, [unpack("4.9.7-clean")])


def test_files_that_a_running_replica_deletes_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = broken(tmp_path, numbers=(20, 300)), copy_store("4.9.7-clean", tmp_path, rename="other")
    found, first = rows(store), other / "commitlog" / f"{0:020}"
    listed = Replica.log

    def log(replica: Replica, body_offset: int) -> ReplicaLog | None:
        log = listed(replica, body_offset)
        first.unlink(missing_ok=True)
        return log

    monkeypatch.setattr(Replica, "log", log)
    plan = plan_healing(store, [other])
    assert len(restored(plan)["places"]) == 1
    assert restored(plan)["places"][0]["offset"] > found[100].offset
