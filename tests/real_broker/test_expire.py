"""`expire` plans to remove the same files that the real clean-up services of a broker delete."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore.brokers.clean_up import HOUR
from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import Area
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.errors import HalfApplied
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from rmqstore.repair.expire import ExpireOptions, Expiry, plan_expire
from rmqstore.repair.journal import journal
from tests.append.writing import DLEDGER, OPTIONS, SETTINGS, write
from tests.real_broker.oracle import Oracle, OracleResult
from tests.repair.trees import CountingDisk
from tests.stores import ROOT, copy_store, meta

COUNT = 900
SMALL_QUEUES = replace(OPTIONS, dispatch=replace(OPTIONS.dispatch, consume_queue_file_size=400))
EVERY_HOUR = ";".join(f"{hour:02d}" for hour in range(24))
QUICK: Mapping[str, str | int] = {
    "mappedFileSizeConsumeQueue": 400,
    "deleteCommitLogFilesInterval": 0,
    "deleteConsumeQueueFilesInterval": 0,
    "diskMaxUsedSpaceRatio": 95,  # the disk usage of this machine must not matter, except in the tests of it
    "cleanFileForciblyEnable": "false",
}
VERSIONS = (
    pytest.param("4.9.7", marks=pytest.mark.slow),
    pytest.param("5.1.4", marks=pytest.mark.slow),
    "5.4.0",
    pytest.param("5.5.1", marks=pytest.mark.slow),
)


def far_hour() -> str:
    """Return the hour of the day that is twelve hours away."""
    return f"{(time.localtime().tm_hour + 12) % 24:02d}"


def age(folder: Path, *hours: int) -> None:
    """Set the ages of the files of a log in offset order; files without a given age are an hour old."""
    now = time.time_ns()
    for number, path in enumerate(sorted(folder.iterdir())):
        then = now - (hours[number] if number < len(hours) else 1) * HOUR * 1_000_000
        os.utime(path, ns=(then, then))


def compare(
    oracle: Oracle, root: Path, settings: Mapping[str, str | int], *, manual: bool = False, rounds: int = 5
) -> tuple[Expiry, OracleResult]:
    """Plan, run the real services, and compare the deleted files."""
    config = BrokerConfig({key: str(value) for key, value in settings.items()})
    expiry = plan_expire(open_store(root, config), ExpireOptions(any_hour=manual, version=oracle.version))
    seen = oracle.load(root, settings, start=True, clean=rounds, manual=manual)
    assert (seen.load, seen.crash) == (True, None)
    assert len(seen.rounds) == rounds
    assert sorted(path for gone in seen.rounds for path in gone) == sorted(step.path for step in expiry.plan.steps)
    assert seen.rounds[-1] == ()  # another round would not delete more
    report = examine(open_store(root, config), VerifyOptions(jobs=1)).report
    account = report.account
    assert account is not None
    # an expiry is no loss, whatever queues and the index still list
    assert (account.lost_already, account.lost_at_next_start, account.at_least) == (0, 0, False)
    if codes.BR_START_LOSES not in report.findings.counts:  # 5.4 after a kill, beside legacy files
        assert account.undelivered == 0
    assert not {code for code in report.findings.counts if PROBLEMS[code].area in (Area.LOG, Area.QUEUE, Area.DLEDGER)}
    return expiry, seen


def logs(paths: tuple[str, ...]) -> int:
    return sum("/data/" in path or path.startswith("commitlog/") for path in paths)


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize(
    "version",
    ["4.9.7", pytest.param("5.1.4", marks=pytest.mark.slow), "5.4.0", pytest.param("5.5.1", marks=pytest.mark.slow)],
)
def test_expired_files_are_deleted_ten_per_round_with_their_queue_and_index_files(
    version: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    root = tmp_path / "store"
    write(root, SMALL_QUEUES, COUNT)
    age(root / "commitlog", *[100] * 26)
    settings = {**SETTINGS, **QUICK, "deleteWhen": EVERY_HOUR, "fileReservedTime": 72}
    expiry, seen = compare(oracle(version), root, settings)
    assert expiry.commitlog is not None
    assert [logs(gone) for gone in seen.rounds] == [10, 10, 6, 0, 0]
    assert (len(expiry.commitlog.delete), expiry.commitlog.rounds) == (26, 3)
    rest = [path.split("/")[0] for gone in seen.rounds for path in gone]
    assert rest.count("consumequeue") >= 9 and rest.count("index") >= 9
    assert expiry.plan.loss.messages == COUNT - seen.readable
    assert seen.readable == seen.offsets


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manual", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_outside_the_hour_files_are_deleted_only_on_request(
    version: str, manual: bool, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    root = tmp_path / "store"
    write(root, SMALL_QUEUES, 300)
    age(root / "commitlog", *[100] * 4)
    settings = {**SETTINGS, **QUICK, "deleteWhen": far_hour(), "fileReservedTime": 72}
    expiry, seen = compare(oracle(version), root, settings, manual=manual, rounds=2)
    assert expiry.commitlog is not None
    if not expiry.commitlog.space:  # on a disk with over 95 % usage, they would be deleted anyway
        assert logs(seen.rounds[0]) == (4 if manual else 0)
        assert expiry.plan.empty is not manual


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.7", "5.1.4", "5.4.0", pytest.param("5.5.1", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("reserved", "ages", "gone"), [(200, [100] * 9, 0), (48, [100, 50, 49, 10, 90, 90], 3), (0, [100] * 3, 12)]
)
def test_the_reserved_time_decides_and_the_first_young_file_stops_the_round(
    version: str, reserved: int, ages: list[int], gone: int, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    root = tmp_path / "store"
    write(root, SMALL_QUEUES, 250)
    age(root / "commitlog", *ages)
    settings = {**SETTINGS, **QUICK, "deleteWhen": EVERY_HOUR, "fileReservedTime": reserved}
    count = len(list((root / "commitlog").iterdir()))
    _, seen = compare(oracle(version), root, settings, rounds=3)
    assert sum(map(logs, seen.rounds)) == (gone if reserved else count - 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "most"), [("4.9.7", 10), ("5.1.4", 3), ("5.4.0", 3), pytest.param("5.5.1", 3, marks=pytest.mark.slow)]
)
def test_files_per_round_are_a_setting_since_5_0(
    version: str, most: int, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    root = tmp_path / "store"
    write(root, SMALL_QUEUES, 300)
    age(root / "commitlog", *[100] * 7)
    settings = {**SETTINGS, **QUICK, "deleteWhen": EVERY_HOUR, "fileReservedTime": 72, "deleteFileBatchMax": 3}
    expiry, seen = compare(oracle(version), root, settings)
    assert expiry.commitlog is not None
    assert [logs(gone) for gone in seen.rounds][: expiry.commitlog.rounds] == ([7] if most == 10 else [3, 3, 1])


@pytest.mark.parametrize("version", VERSIONS)
def test_queue_and_index_files_below_the_log_expire_without_log_files(
    version: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    root = tmp_path / "store"
    write(root, SMALL_QUEUES, 400)
    for path in sorted((root / "commitlog").iterdir())[:8]:
        path.unlink()
    settings = {**SETTINGS, **QUICK, "deleteWhen": far_hour(), "fileReservedTime": 720000}
    expiry, seen = compare(oracle(version), root, settings, rounds=2)
    assert logs(seen.rounds[0]) == 0
    assert len(expiry.plan.steps) > 9


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.7", "5.1.4", "5.4.0", pytest.param("5.5.1", marks=pytest.mark.slow)])
def test_a_bad_delete_when_stops_every_clean_up(version: str, tmp_path: Path, oracle: Callable[[str], Oracle]) -> None:
    root = tmp_path / "store"
    write(root, SMALL_QUEUES, 200)
    age(root / "commitlog", *[100] * 4)
    settings = {**SETTINGS, **QUICK, "deleteWhen": f"{far_hour()};x", "fileReservedTime": 72}
    expiry, _ = compare(oracle(version), root, settings, rounds=2)
    assert expiry.plan.empty


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("hour", ["now", pytest.param("later", marks=pytest.mark.slow)])
def test_files_of_a_dledger_member_expire_an_hour_later(
    version: str, hour: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    root = tmp_path / "store"
    write(root, replace(SMALL_QUEUES, dledger="n0"), COUNT)
    age(root / "dledger-n0" / "data", *[100] * 11, 74, 72)
    when = EVERY_HOUR if hour == "now" else far_hour()
    settings = {**DLEDGER, **QUICK, "deleteWhen": when, "fileReservedTime": 72}
    expiry, seen = compare(oracle(version), root, settings)
    assert expiry.dledger is not None
    assert sum(map(logs, seen.rounds)) == (12 if hour == "now" or expiry.dledger.space else 0)
    assert expiry.plan.loss.messages == COUNT - seen.readable


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.7", "5.1.4", "5.4.0", pytest.param("5.5.1", marks=pytest.mark.slow)])
@pytest.mark.parametrize("old", ["both", "legacy"])
def test_beside_legacy_files_a_dledger_log_stays_until_they_are_gone(
    version: str, old: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    root, made = copy_store("5.4.0-dledger-mixed", tmp_path), meta("5.4.0-dledger-mixed")
    count = len(list((root / "commitlog").iterdir()))
    data = root / "dledger-n0" / "data"
    age(root / "commitlog", *[100] * (count if old == "both" else count - 1))
    age(data, *[100] * len(list(data.iterdir())))
    settings = {**made.oracle_args, **QUICK, "deleteWhen": EVERY_HOUR, "fileReservedTime": 72}
    settings["mappedFileSizeConsumeQueue"] = made.settings["mappedFileSizeConsumeQueue"]
    expiry, _ = compare(oracle(version), root, settings)
    assert expiry.commitlog is not None and expiry.dledger is not None
    everything = old == "both" and version == "4.9.7"  # 5.x keeps the last legacy file, and so DLedger's files
    assert len(expiry.commitlog.delete) == count - (not everything)
    assert bool(expiry.dledger.delete) == everything


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("stopped_after", [None, 5, 30])
def test_a_broker_reads_all_that_a_deletion_leaves_and_ends_it_from_half_way(
    version: str, stopped_after: int | None, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    root = tmp_path / "store"
    write(root, SMALL_QUEUES, COUNT)
    age(root / "commitlog", *[100] * 26)
    settings = {**SETTINGS, **QUICK, "deleteWhen": EVERY_HOUR, "fileReservedTime": 72}
    config = BrokerConfig({key: str(value) for key, value in settings.items()})
    plan = plan_expire(open_store(root, config), ExpireOptions(version=version, delete=True)).plan
    assert logs(tuple(step.path for step in plan.steps)) == 26
    gone = 0

    def at(number: int, name: str) -> None:
        nonlocal gone
        gone = sum(not (root / step.path).exists() for step in plan.steps)
        if name == "unlink" and gone == stopped_after:
            raise OSError(errno.EIO, "injected")

    stopped = pytest.raises(HalfApplied) if stopped_after is not None else contextlib.nullcontext()
    with stopped:
        journal.apply(plan, force_digest=plan.digest, disk=CountingDisk(at))
    assert gone == (len(plan.steps) if stopped_after is None else stopped_after)
    left = sorted(step.path for step in plan.steps if (root / step.path).exists())
    seen = oracle(version).load(root, settings, start=True, clean=5)
    assert (seen.load, seen.crash) == (True, None)
    assert sorted(path for gone_now in seen.rounds for path in gone_now) == left  # the broker deletes the rest itself
    assert seen.readable == seen.offsets == COUNT - plan.loss.messages


def fill(folder: Path, percent: float) -> None:
    """Fill the file system of a folder up to a percentage."""
    status = os.statvfs(folder)
    wanted = int(status.f_blocks * status.f_frsize * percent / 100)
    used = (status.f_blocks - status.f_bfree) * status.f_frsize
    with (folder / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, wanted - used)


def on_a_disk_of_its_own(version: str, used: float, most: int, forcibly: str, old: int, disk: Path) -> int:
    """Return how many log files are deleted outside the hour from a disk this full; `disk` is a small file system."""
    root = disk / "store"
    write(root, SMALL_QUEUES, COUNT)
    age(root / "commitlog", *[100] * old)
    fill(disk, used)
    settings = {**SETTINGS, **QUICK, "deleteWhen": far_hour(), "fileReservedTime": 72}
    settings |= {"diskMaxUsedSpaceRatio": most, "cleanFileForciblyEnable": forcibly}
    expiry, seen = compare(Oracle(version), root, settings, rounds=6)
    assert expiry.commitlog is not None
    return sum(map(logs, seen.rounds))


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.7", "5.1.4", "5.4.0", pytest.param("5.5.1", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("used", "most", "forcibly", "old", "gone"),
    [
        (72, 75, "true", 4, "none"),
        (75.5, 75, "true", 4, "old"),  # 76 % with the broker's rounding
        (82, 75, "true", 4, "old"),
        (88.5, 75, "true", 4, "all"),
        (88.5, 75, "false", 4, "old"),
        (88.5, 92, "true", 4, "all but in 4.9"),  # above the force ratio, below the highest use
        (91.5, 95, "false", 0, "none"),
    ],
)
def test_a_full_disk_expires_files_outside_the_hour(
    version: str,
    used: float,
    most: int,
    forcibly: str,
    old: int,
    gone: str,
    tmp_path: Path,
    oracle: Callable[[str], Oracle],
) -> None:
    oracle(version)  # or skip the test
    code = f"print(on_a_disk_of_its_own({version!r}, {used}, {most}, {forcibly!r}, {old}, Path({str(tmp_path)!r})))"
    # at its start, 5.4.0 uses 4 MB for its RocksDB, which is two percent
    script = 'mount -t tmpfs -o size=192m,mode=700 none "$1" && exec "$2" -c "$3"'
    command = ["unshare", "-rm", "sh", "-c", script, "sh", str(tmp_path), sys.executable]
    if subprocess.run([*command[:4], "mount -t tmpfs none /mnt"], capture_output=True, check=False).returncode:
        pytest.skip("a process may not mount a file system of its own here (unshare -rm)")
    asked = f"from tests.real_broker.test_expire import *; from pathlib import Path; {code}"
    done = subprocess.run([*command, asked], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    count = int(done.stdout.splitlines()[-1])
    if gone == "all" or (gone == "all but in 4.9" and version != "4.9.7"):
        assert count > 20
    else:
        assert count == (old if gone == "old" else 0)
