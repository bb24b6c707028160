"""expire: the deletions of a broker's clean-up as a plan that can be applied and undone."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from rmqstore.brokers.clean_up import HOUR, FileSystem, Why
from rmqstore.checks.examine import verify
from rmqstore.documents.steps import Discard
from rmqstore.errors import Refused, UsageError
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from rmqstore.formats.consumequeue import UNIT
from rmqstore.repair.expire import ExpireOptions, plan_expire
from rmqstore.repair.journal.journal import apply, undo
from tests.append.rewriting import messages_of
from tests.append.writing import OPTIONS, write
from tests.command import run, run_json
from tests.planning import log_of
from tests.real_broker.random_damage import damage_any_file
from tests.rocksdb_rows import need_rocksdict
from tests.seeds import seeds
from tests.stores import copy_store
from tests.untouched import content, snapshot

NOW = 1_800_000_000_000


def options(**more: object) -> ExpireOptions:
    return ExpireOptions(now=NOW, any_hour=True, disk_of=lambda path: FileSystem(10, 100), **more)  # type: ignore[arg-type]


def make_old(folder: Path, count: int) -> list[Path]:
    """Set the age of the first files of a log to 100 h, and that of the others to 1 h."""
    files = sorted(folder.iterdir())
    for number, path in enumerate(files):
        age = 100 if number < count else 1
        os.utime(path, ns=(0, (NOW - age * HOUR) * 1_000_000))
    return files


def test_expired_files_and_files_that_point_only_to_them_are_removed(tmp_path: Path) -> None:
    root = copy_store("5.4.0-killed", tmp_path)
    files = make_old(root / "commitlog", 12)
    expiry = plan_expire(open_store(root), options())
    paths = [step.path for step in expiry.plan.steps]
    assert all(isinstance(step, Discard) for step in expiry.plan.steps)
    assert [p for p in paths if p.startswith("commitlog/")] == [f"commitlog/{f.name}" for f in files[:12]]
    assert any(p.startswith("index/") for p in paths)
    log = log_of(root)
    gone = [m for m in messages_of(log) if m.physical_offset < log.files[12].start]
    assert expiry.plan.loss.messages == len(gone) == sum(expiry.plan.loss.queues.values())
    assert expiry.plan.loss.bytes == sum(m.size for m in gone)


def test_applied_the_store_is_sound_and_undone_it_is_as_before(tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    make_old(root / "commitlog", 4)
    before = snapshot(root)
    expiry = plan_expire(open_store(root), options())
    done = apply(expiry.plan)
    assert done.journal is not None
    left = log_of(root)
    assert left.start == 4 * 65536
    assert verify(open_store(root)).clean
    undo(done.journal)
    after = snapshot(root, without=(".rmqstore",))
    assert {n: (e.size, e.content, e.mtime_ns) for n, e in after.items() if e.kind == "file"} == {
        n: (e.size, e.content, e.mtime_ns) for n, e in before.items() if e.kind == "file"
    }


def test_nothing_expires_outside_the_hour_and_the_reason_is_printed(tmp_path: Path) -> None:
    root = copy_store("4.9.7-clean", tmp_path)
    make_old(root / "commitlog", 2)
    config = BrokerConfig({"deleteWhen": "99"})
    quiet = ExpireOptions(now=NOW, disk_of=lambda path: FileSystem(10, 100))
    expiry = plan_expire(open_store(root, config), quiet)
    assert expiry.plan.empty
    assert "commitlog: 2 files kept: waits for deleteWhen" in expiry.plan.notes
    full = plan_expire(open_store(root, config), ExpireOptions(now=NOW, disk_of=lambda path: FileSystem(80, 100)))
    assert [Path(step.path).name for step in full.plan.steps if step.path.startswith("commitlog")] == [
        "00000000000000000000",
        "00000000000000065536",
    ]


def test_dledger_files_expire_only_without_legacy_files(tmp_path: Path) -> None:
    mixed = copy_store("5.4.0-dledger-mixed", tmp_path)
    make_old(mixed / "commitlog", 99)
    make_old(mixed / "dledger-n0" / "data", 99)
    expiry = plan_expire(open_store(mixed), options())
    assert expiry.dledger is not None and expiry.commitlog is not None
    assert expiry.dledger.delete == ()
    assert len(expiry.commitlog.delete) == len(list((mixed / "commitlog").iterdir())) - 1
    assert {why for _, why in expiry.dledger.keep} <= {Why.BESIDE_LEGACY, Why.BEHIND_YOUNG, Why.LAST}
    older = plan_expire(open_store(mixed), options(version="4.9.7"))  # 4.9 deletes the last one, too, and continues
    assert older.dledger is not None and older.commitlog is not None
    assert (older.commitlog.keep, len(older.dledger.keep)) == ((), 1)
    alone = copy_store("5.4.0-dledger", tmp_path)
    files = make_old(alone / "dledger-n0" / "data", 3)
    expiry = plan_expire(open_store(alone), options())
    gone = [step.path for step in expiry.plan.steps if "/data/" in step.path]
    assert gone == [f"dledger-n0/data/{f.name}" for f in files[:3]]
    apply(expiry.plan)
    assert verify(open_store(alone)).clean


def test_a_part_of_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a part of a store"):
        plan_expire(open_store(copy_store("5.4.0-clean", tmp_path) / "commitlog"), options())


def test_a_store_with_snapshots_is_refused(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger", tmp_path)
    (group,) = store.glob("dledger-*")
    (group / "snapshot" / "snapshot_17").mkdir(parents=True)
    with pytest.raises(Refused, match=r"DLedger 0\.4 wrote .*snapshots, not by age"):
        plan_expire(open_store(store))


def test_queue_files_expire_when_all_their_units_point_to_deleted_files(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write(root, OPTIONS, 900)
    log = log_of(root)
    make_old(root / "commitlog", 25)
    minimum = log.files[25].start
    plan = plan_expire(open_store(root), options()).plan
    gone = {step.path for step in plan.steps if step.path.startswith("consumequeue/")}
    expected = set()
    for queue in open_store(root).consume_queues():
        for file in queue.queue.files[:-1]:
            if UNIT.parse(file.path.read_bytes(), file.file_size - UNIT.size)["commitlog_offset"] < minimum:
                expected.add(file.path.relative_to(root).as_posix())
    assert gone == expected
    assert gone
    before = verify(open_store(root))
    apply(plan)
    after = verify(open_store(root))
    assert (after.findings.counts, after.unchecked) == (before.findings.counts, before.unchecked)


def test_the_command_prints_its_plan_applies_it_and_can_be_undone(tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    files = sorted((root / "commitlog").iterdir())
    for number, path in enumerate(files):  # otherwise they would be as old as the fixture
        os.utime(path, (0, 1_000_000_000 if number < 3 else time.time()))
    (tmp_path / "any-disk.conf").write_text("cleanFileForciblyEnable=false\n")
    words = ("expire", str(root), "-c", str(tmp_path / "any-disk.conf"), "--any-hour")
    planned = run_json(*words, exit_code=1)
    assert planned["schema"] == "rmqstore.expire/1"
    assert sorted(path.name for path in (root / "commitlog").iterdir()) == [path.name for path in files]
    saved = root.parent / "plan.json"
    assert run_json(*words, "--plan-out", str(saved), exit_code=1)["digest"] == planned["digest"]
    assert run("rebuild", str(root), "cq", "--plan", str(saved), "--apply").exit_code == 2
    done = run_json("expire", str(root), "--plan", str(saved), "--apply", exit_code=0)
    assert done["steps"] == planned["steps"]
    assert sorted(path.name for path in (root / "commitlog").iterdir()) == [path.name for path in files[3:]]
    run_json(*words, exit_code=0)
    nothing = run(*words)
    assert "\nNothing to do.\n" in nothing.output
    assert "not checked" not in nothing.output
    run_json("undo", str(done["journal"]), exit_code=0)
    assert sorted(path.name for path in (root / "commitlog").iterdir()) == [path.name for path in files]


@pytest.mark.parametrize("seed", [None, *seeds(2)])
@pytest.mark.parametrize(
    "name", ["5.4.0-clean", "5.4.0-killed", "4.9.7-dledger", "5.1.4-dledger-mixed", "5.4.0-rocksdb", "5.5.1-formats"]
)
@pytest.mark.quick_rows(3)
def test_the_plan_predicts_findings_and_forecast_of_the_result(name: str, seed: int | None, tmp_path: Path) -> None:
    if "rocksdb" in name:
        need_rocksdict()
    root = copy_store(name, tmp_path)
    said = damage_any_file(root, seed) if seed is not None else []
    for log in (root / "commitlog", *root.glob("dledger-*/data")):
        for number, path in enumerate(sorted(log.glob("0*"))):
            os.utime(path, (0, 1_000_000_000 if number < 2 else time.time()))
    before = content(root)
    planned = run("expire", str(root), "--any-hour", "--json")
    if planned.exit_code == 5:  # log files under each other's names
        return
    done = run("expire", str(root), "--any-hour", "--json", "--apply")
    answer = json.loads(done.stdout)
    assert answer["differs"] == [], (said, done.stderr)
    if answer["steps"]:
        assert answer["remaining"] == json.loads(planned.stdout)["remaining"]
        assert answer["forecast"] == json.loads(planned.stdout)["forecast"]
        run_json("undo", str(answer["journal"]), exit_code=0)
    assert content(root) == before
