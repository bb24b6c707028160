"""migrate-to-dledger: its plan in each situation, its refusals with their reasons, and that undo restores all bytes."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqstore.documents.plan import plan_from_json
from rmqstore.repair.journal.journal import apply, find_unfinished
from tests.command import run, run_json
from tests.repair.migration_stores import FILE_SIZE, end_of, make, pad, zero_file_after_end
from tests.repair.trees import killed_at
from tests.stores import copy_store, unpack, write_broker_conf
from tests.untouched import assert_untouched, tree

DIVIDED = 524288  # the end of the eight files of 5.4.0-before-dledger
LAST = "commitlog/00000000000000458752"
FIRST = f"dledger-n0/data/{DIVIDED:020d}"


def _plan(store: Path, *more: str, exit_code: int = 1) -> Mapping[str, object]:
    words = ("migrate-to-dledger", str(store), "--jobs", "1", *more)
    return run_json(*words, *(() if "--self-id" in more else ("--self-id", "n0")), exit_code=exit_code)


def _refused(store: Path, *more: str) -> str:
    """Run a refused migration, check that it wrote nothing, and return its reasons and advice."""
    before = tree(store)
    document = _plan(store, *more, "--apply", exit_code=5)
    assert tree(store) == before
    assert (document["ready"], document["applied"], document["steps"]) == (False, False, [])
    refusals = document["refusals"]
    assert isinstance(refusals, list)
    return json.dumps(refusals)


def test_plan_names_pad_first_file_and_settings_and_writes_nothing(tmp_path: Path) -> None:
    store = make("5.4.0", "partly-filled", tmp_path)
    before = tree(store)
    _, at = end_of(store)
    document = _plan(store, "--dledger-group", "broker-11")
    assert tree(store) == before
    assert document["pad"] == {"file": LAST, "at": at, "size": FILE_SIZE - at}
    assert (document["ready"], document["applied"], document["journal"]) == (True, False, None)
    assert document["forecast"] == "RocketMQ 5.4.0 would start and lose nothing"
    assert (document["divided_commitlog_offset"], document["first_dledger_file"]) == (DIVIDED, FIRST)
    assert document["broker_conf"] == [
        "enableDLegerCommitLog=true",
        "dLegerGroup=broker-11",
        "dLegerPeers=n0-127.0.0.1:40911",
        "dLegerSelfId=n0",
        "mappedFileSizeCommitLog=65536",
    ]
    assert document["loss"] == {"messages": 0, "bytes": 0, "queues": {}}


@pytest.mark.parametrize(
    ("situation", "padded", "divided"),
    [
        ("zero-file-after-end", LAST, DIVIDED),
        ("ends-with-blank", None, DIVIDED),
        ("padded-with-another-size", None, DIVIDED),
        ("zero-file-after-blank", f"commitlog/{DIVIDED:020d}", DIVIDED + FILE_SIZE),
        ("single-zero-file", f"commitlog/{0:020d}", FILE_SIZE),
        ("no-log", None, -1),
        ("empty-log", None, -1),
    ],
)
def test_each_situation_is_padded_where_the_broker_pads(
    situation: str, padded: str | None, divided: int, tmp_path: Path
) -> None:
    document = _plan(make("5.4.0", situation, tmp_path))
    pad_row = document["pad"]
    assert document["divided_commitlog_offset"] == divided
    assert (pad_row["file"] if isinstance(pad_row, dict) else None) == padded


def test_undo_after_apply_restores_every_byte(tmp_path: Path) -> None:
    store = make("5.4.0", "zero-file-after-end", tmp_path)
    before = tree(store)
    document = _plan(store, "--apply", exit_code=0)
    after = tree(store)
    assert after[FIRST] == bytes(FILE_SIZE)
    assert f"commitlog/{DIVIDED:020d}" not in after
    assert document["remaining"] == {"counts": {}}
    assert document["differs"] == []
    assert run("undo", str(document["journal"])).exit_code == 0
    assert tree(store) == before


def test_migration_changes_eight_bytes_of_the_legacy_log(tmp_path: Path) -> None:
    store = make("5.4.0", "partly-filled", tmp_path)
    path, at = end_of(store)
    before = path.read_bytes()
    _plan(store, "--apply", exit_code=0)
    blank = (FILE_SIZE - at).to_bytes(4, "big") + bytes.fromhex("CBD43194")
    assert path.read_bytes() == before[:at] + blank + before[at + 8 :]


def test_saved_plan_is_applied_exactly_and_only_once(tmp_path: Path) -> None:
    store = make("5.4.0", "partly-filled", tmp_path)
    saved = tmp_path / "plan.json"
    planned = _plan(store, "--plan-out", str(saved))
    applied = _plan(store, "--plan", str(saved), "--apply", exit_code=0)
    shown: Any = planned["steps"]
    steps = [{**step, "why": ""} for step in shown]  # what a file says about its reasons is not shown
    assert (applied["steps"], applied["remaining"]) == (steps, {"counts": {}})
    assert (store / FIRST).stat().st_size == FILE_SIZE
    assert run("migrate-to-dledger", str(store), "--self-id", "n0", "--plan", str(saved), "--apply").exit_code == 5


def test_second_migration_is_refused(tmp_path: Path) -> None:
    store = make("5.4.0", "partly-filled", tmp_path)
    _plan(store, "--apply", exit_code=0)
    assert "was already migrated: DLedger begins at 524288" in _refused(store)


def test_migration_that_was_killed_half_way_is_refused_until_undone_or_ended(tmp_path: Path) -> None:
    """After a kill at any call of the disk, the migration is refused or completed; the store is always recognized."""
    saved = tmp_path / "plan.json"
    _plan(make("5.4.0", "zero-file-after-end", tmp_path, rename="store"), "--plan-out", str(saved))
    shutil.rmtree(tmp_path / "store")
    seen = set()
    for at in range(0, 200, 7):
        store = make("5.4.0", "zero-file-after-end", tmp_path, rename="store")
        before = tree(store)
        plan = plan_from_json(saved.read_bytes(), store=store)
        killed = killed_at(at, lambda disk, plan=plan: apply(plan, disk=disk))  # type: ignore[misc]
        left = find_unfinished(store)
        if left and left[0].state.value == "applying":
            text = _refused(store)
            assert f"rmqstore undo {left[0].path}" in text
            assert f"rmqstore resume {left[0].path}" in text
            assert run("undo", str(left[0].path)).exit_code == 0
            assert tree(store) == before
            seen.add("applying")
        shutil.rmtree(store)
        if not killed:
            break
    assert seen == {"applying"}
    assert not killed


def test_migration_continues_if_only_the_blank_was_written(tmp_path: Path) -> None:
    store = make("5.4.0", "partly-filled", tmp_path)
    pad(store)
    document = _plan(store, "--apply", exit_code=0)
    assert (document["pad"], document["divided_commitlog_offset"]) == (None, DIVIDED)


def _damage_tail(store: Path) -> None:
    path, at = end_of(store)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"torn record")


def _damage_body(store: Path) -> None:
    path = min((store / "commitlog").iterdir())
    with path.open("r+b") as file:
        file.seek(88)
        file.write(b"\xff")


def _remove_middle(store: Path) -> None:
    (store / "commitlog" / f"{2 * FILE_SIZE:020d}").unlink()


def _remove_last(store: Path) -> None:
    max((store / "commitlog").iterdir()).unlink()


def _remove_queue(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "Order_11" / "1")


def _clear_unit(store: Path) -> None:
    with next((store / "consumequeue" / "Order_11" / "1").iterdir()).open("r+b") as file:
        file.seek(3 * 20)
        file.write(bytes(20))


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (_damage_tail, "CL-DIRTY-TAIL"),
        (_damage_body, "CL-BODY-CRC"),
        (_remove_middle, "CL-MISSING-FILE"),
        (_remove_last, "CQ-BEYOND-LOG"),
        (_remove_queue, "CQ-MISSING-QUEUE"),
        (_clear_unit, "CQ-MISSING-UNIT"),
    ],
)
def test_an_unsound_store_is_sent_to_the_command_that_repairs_it(
    damage: Callable[[Path], None], code: str, tmp_path: Path
) -> None:
    store = make("5.4.0", "partly-filled", tmp_path)
    damage(store)
    text = _refused(store)
    assert code in text
    command = "rmqstore rebuild" if code.startswith("CQ-MISSING") else "rmqstore recover"
    assert command in text


def test_queues_behind_the_log_are_refused_since_nothing_would_dispatch_them(tmp_path: Path) -> None:
    store = copy_store("5.4.0-killed", tmp_path)
    text = _refused(store)
    assert "2 consume queues are shorter than the log requires" in text
    named = re.findall(r"`rmqstore ([^`]*)`", text)
    assert [run(*shlex.split(words)).exit_code for words in named] == [0]
    assert run_json("migrate-to-dledger", str(store), "--self-id", "n0", exit_code=1)["ready"] is True


def test_killed_but_sound_store_is_migrated_without_its_preallocated_file(tmp_path: Path) -> None:
    store = copy_store("5.1.4-killed", tmp_path)
    document = _plan(store, "--apply", exit_code=0)
    assert document["divided_commitlog_offset"] == 1703936
    assert (store / "abort").exists()
    assert (store / "dledger-n0/data/00000000000001703936").exists()


def test_record_that_leaves_no_room_for_the_pad_is_refused(tmp_path: Path) -> None:
    from rmqstore.formats.message import build_message

    store = tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    (store / "consumequeue").mkdir()
    filler = build_message(topic="T", body=b"x")
    record = build_message(topic="T", body=b"x" * (4096 - len(filler) + 1 - 4))
    (store / "commitlog" / f"{0:020d}").write_bytes(record.ljust(4096, b"\0"))
    digest = str(run_json("recover", str(store), exit_code=1)["digest"])
    run_json("recover", str(store), "--apply", "--force", digest, exit_code=0)
    assert "with fewer than 8 bytes left" in _refused(store)


@pytest.mark.parametrize("name", ["5.4.0-dledger", "5.4.0-dledger-mixed"])
def test_dledger_store_is_refused(name: str, tmp_path: Path) -> None:
    assert "already" in _refused(copy_store(name, tmp_path))


def test_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    text = _refused(copy_store("5.4.0-dledger-mixed", tmp_path), "--self-id", "n1")
    assert "dledger-n0 is the DLedger directory of another node" in text
    assert "--self-id n0" in text


def test_directory_with_leftovers_of_this_node_is_refused(tmp_path: Path) -> None:
    store = make("5.4.0", "partly-filled", tmp_path)
    (store / "dledger-n0").mkdir()
    (store / "dledger-n0" / "currterm").write_text("currTerm=3\nvoteLeader=n0\n")
    assert "half-way" in _refused(store)


def test_empty_directories_of_this_node_are_used(tmp_path: Path) -> None:
    store = make("5.4.0", "partly-filled", tmp_path)
    (store / "dledger-n0" / "data").mkdir(parents=True)
    document = _plan(store, "--apply", exit_code=0)
    assert [row["do"] for row in document["steps"]] == ["overwrite", "create"]  # type: ignore[attr-defined]


def test_mixed_store_without_its_last_legacy_file_is_refused(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger-mixed", tmp_path)
    (store / LAST).unlink()
    assert "files of the legacy commitlog are missing" in _refused(store)


def test_rocksdb_store_is_refused(tmp_path: Path) -> None:
    assert "RocksDB" in _refused(copy_store("5.4.0-rocksdb", tmp_path))


def test_old_brokers_are_refused_what_they_cannot_read(tmp_path: Path) -> None:
    store = copy_store("5.4.0-formats", tmp_path)
    assert "no DLedger mode" in _refused(store, "--broker", "4.4.0")
    assert "V2 records" in _refused(store, "--broker", "4.9.7")


def test_consume_queues_without_a_log_are_removed_only_with_force(tmp_path: Path) -> None:
    store = make("5.4.0", "no-log", tmp_path)
    before = tree(store)
    planned = _plan(store)
    loss = planned["loss"]
    assert isinstance(loss, dict)
    assert loss["messages"] == 553
    assert run("migrate-to-dledger", str(store), "--self-id", "n0", "--apply").exit_code == 5
    assert tree(store) == before
    document = _plan(store, "--apply", "--force", str(planned["digest"]), exit_code=0)
    assert not (store / "consumequeue" / "Order_11" / "0").exists()
    assert (store / "consumequeue" / "Order_11").is_dir()
    assert run("undo", str(document["journal"])).exit_code == 0
    assert tree(store) == before


PEERS = "n0-10.0.0.1:40911;n1-10.0.0.2:40911"


@pytest.mark.parametrize(("own", "other"), [("n0", "n1"), ("n1", "n0")])
def test_peer_that_was_not_compared_is_refused(own: str, other: str, tmp_path: Path) -> None:
    store = make("5.4.0", "partly-filled", tmp_path)
    assert f"({other}) 1 was not compared" in _refused(store, "--self-id", own, "--peers", PEERS)


def test_equal_replica_or_its_fingerprint_is_accepted(tmp_path: Path) -> None:
    store = make("5.4.0", "partly-filled", tmp_path, rename="n0")
    replica = make("5.4.0", "partly-filled", tmp_path, rename="n1")
    zero_file_after_end(replica)
    file = tmp_path / "n1.fingerprint"
    assert run("compare", str(replica), "--fingerprint-out", str(file)).exit_code == 0
    for proof in (replica, file):
        document = _plan(store, "--peers", PEERS, "--check-replica", str(proof))
        assert document["ready"] is True
        assert f"dLegerPeers={PEERS}" in document["broker_conf"]  # type: ignore[operator]


def test_shorter_replica_or_its_fingerprint_is_refused(tmp_path: Path) -> None:
    store = copy_store("5.4.0-master", tmp_path)
    slave = unpack("5.4.0-slave")
    file = tmp_path / "slave.fingerprint"
    with assert_untouched(slave):
        assert run("compare", str(slave), "--fingerprint-out", str(file)).exit_code == 0
        for proof in (slave, file):
            text = _refused(store, "--peers", PEERS, "--check-replica", str(proof))
            assert "other is prefix" in text


def test_replica_that_would_be_padded_elsewhere_is_refused(tmp_path: Path) -> None:
    store = make("5.4.0", "partly-filled", tmp_path, rename="n0")
    replica = make("5.4.0", "zero-file-after-blank", tmp_path, rename="n1")
    text = _refused(store, "--peers", PEERS, "--check-replica", str(replica))
    assert "DLedger would begin at 589,824 there, at 524,288 here" in text


def test_node_that_was_migrated_already_is_an_equal_replica(tmp_path: Path) -> None:
    store = make("5.4.0", "partly-filled", tmp_path, rename="n0")
    replica = make("5.4.0", "partly-filled", tmp_path, rename="n1")
    assert run("migrate-to-dledger", str(replica), "--self-id", "n1", "--apply").exit_code == 0
    document = _plan(store, "--peers", PEERS, "--check-replica", str(replica))
    assert (document["ready"], document["divided_commitlog_offset"]) == (True, DIVIDED)


def test_store_itself_is_no_replica(tmp_path: Path) -> None:
    store = make("5.4.0", "partly-filled", tmp_path)
    result = run("migrate-to-dledger", str(store), "--self-id", "n0", "--check-replica", str(store))
    assert result.exit_code == 2


@pytest.mark.parametrize("words", [("--self-id", "0"), ("--self-id", "n0", "--peers", "n1-h:1;n2-h:2")])
def test_unusable_ids_and_peers_are_wrong_usage(words: tuple[str, ...], tmp_path: Path) -> None:
    store = make("5.4.0", "partly-filled", tmp_path)
    assert run("migrate-to-dledger", str(store), *words).exit_code == 2


def test_self_id_that_differs_from_the_configuration_is_refused(tmp_path: Path) -> None:
    store = make("5.4.0", "partly-filled", tmp_path)
    config = tmp_path / "broker.conf"
    config.write_text("dLegerSelfId=n2\n")
    assert "--self-id n2" in _refused(store, "-c", str(config))


def test_data_path_outside_of_the_store_is_used(tmp_path: Path) -> None:
    store = make("5.4.0", "partly-filled", tmp_path)
    outside = tmp_path / "disk2" / "dledger"
    outside.parent.mkdir()
    config = write_broker_conf("5.4.0-clean", store, storePathDLedgerCommitLog=str(outside))
    document = _plan(store, "-c", str(config), "--apply", exit_code=0)
    assert document["first_dledger_file"] == f"{outside}/{DIVIDED:020d}"
    assert (outside / f"{DIVIDED:020d}").read_bytes() == bytes(FILE_SIZE)
    assert not (store / "dledger-n0").exists()


def test_without_log_files_the_plan_loses_what_the_queues_list(tmp_path: Path) -> None:
    """A queue that begins at 100 lists no more messages than it has units."""
    store = copy_store("5.4.0-clean", tmp_path)
    shutil.rmtree(store / "commitlog")
    first = store / "consumequeue" / "Order_11" / "0" / f"{0:020d}"
    first.rename(first.with_name(f"{2000:020d}"))
    document = _plan(store, "--dledger-group", "broker-11")
    loss, verified = document["loss"], run_json("verify", str(store), exit_code=1)
    assert isinstance(loss, dict)
    assert isinstance(verified["account"], dict)
    assert loss["messages"] == verified["account"]["lost_already"] == 553
    assert loss["queues"]["Order_11/0"] == 42
