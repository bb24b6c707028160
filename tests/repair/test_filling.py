"""The forecast of a disk: when files go, when they go early, and when a broker refuses messages."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmqstore.append.encoder import NewMessage
from rmqstore.append.message_store import open_writable
from rmqstore.brokers.clean_up import (
    HORIZON,
    HOUR,
    Candidate,
    Decision,
    FileSystem,
    Filling,
    Growth,
    RetentionRules,
    decide_commitlog,
    forecast_filling,
)
from rmqstore.brokers.outlook import log_rate, outlook, rules_of
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from rmqstore.repair.expire import ExpireOptions, plan_expire
from tests.append.writing import OPTIONS
from tests.command import run, run_json
from tests.stores import copy_store, unpack

GIB = 1 << 30
NOW = 1_800_000_000_000 // HOUR * HOUR  # a full hour


def forecast(
    rules: RetentionRules, *, per_hour: float, used: int, total: int = 100 * GIB, files: int = 1, size: int = GIB
) -> tuple[Filling, list[int]]:
    """Forecast a disk; return also how many files each decision saw."""
    seen: list[int] = []

    def decide(found: Sequence[Candidate], at: int, disk: FileSystem) -> Decision:
        seen.append(len(found))
        return decide_commitlog(found, rules, now=at, hour=at // HOUR % 24, log_disk=disk)

    begin = [Candidate(str(n), n * size, size, NOW) for n in range(files)]
    disk = FileSystem(used, total)
    return forecast_filling(begin, Growth(per_hour), disk, decide, now=NOW, room=0), seen


def test_a_clean_up_that_keeps_up_is_enough() -> None:
    found, _ = forecast(RetentionRules(reserved=24, delete_when="04"), per_hour=GIB, used=5 * GIB)
    assert found.enough and found.until == NOW + HORIZON
    assert found.first_deleted is not None
    assert found.first_deleted // HOUR % 24 == 4 and NOW + 24 * HOUR <= found.first_deleted <= NOW + 49 * HOUR
    # at most the reserved time and a day until deleteWhen, beside what else is on the disk
    assert 0.25 < found.peak <= (5 + 24 + 24 + 2) / 100


def test_a_disk_that_fills_too_fast_deletes_early() -> None:
    found, _ = forecast(RetentionRules(reserved=72), per_hour=5 * GIB, used=20 * GIB)
    assert not found.enough and found.refuses is None and found.full is None
    assert found.early is not None and found.least_age is not None
    assert abs(found.early - (NOW + 13 * HOUR)) <= 2 * HOUR, "85 % are used after 13 hours"
    assert found.least_age < 24 * HOUR


def test_without_forcible_clean_up_the_broker_refuses() -> None:
    found, _ = forecast(RetentionRules(reserved=72, clean_forcibly=False), per_hour=2 * GIB, used=20 * GIB)
    assert found.early is None and found.refuses is not None
    assert abs(found.refuses - (NOW + 35 * HOUR)) <= HOUR, "90 % are used after 35 hours"


def test_a_log_that_does_not_grow_stays() -> None:
    found, _ = forecast(RetentionRules(), per_hour=0, used=50 * GIB, files=3)
    assert found.enough and found.peak == 0.5
    assert found.first_deleted is not None and found.first_deleted >= NOW + 72 * HOUR


@pytest.mark.parametrize(("per_hour", "size"), [(500 * GIB, 1 << 14), (GIB, 1 << 14), (1e15, GIB)])
def test_small_files_and_high_rates_take_no_more_steps(per_hour: float, size: int) -> None:
    _, seen = forecast(RetentionRules(), per_hour=per_hour, used=10 * GIB, files=5000, size=size)
    assert len(seen) <= 1501
    assert max(seen) <= (1000 if size < GIB else 6000)


# --- a store ---------------------------------------------------------------------------------------------------------

HOURS = 60


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 60 hours: Steady has one message per minute, Rising only in the last day, four times as many."""
    folder = tmp_path_factory.mktemp("growing")
    (folder / "broker.conf").write_text("mappedFileSizeCommitLog=16384\nfileReservedTime=48\n")
    with open_writable(folder / "store", OPTIONS, create=True) as store:
        for minute in range(HOURS * 60):
            at = NOW - HOURS * HOUR + minute * 60_000
            store.put(NewMessage("Steady", b"x" * 40, store_timestamp=at))
            for n in range(4 if minute >= (HOURS - 24) * 60 else 0):
                store.put(NewMessage("Rising", b"y" * 40, store_timestamp=at + 1 + n))
    return folder


def test_growth_by_topic_is_that_of_the_last_day(growing: Path) -> None:
    store, conf = str(growing / "store"), str(growing / "broker.conf")
    answer: Any = run_json("du", store, "-c", conf, "--growth", exit_code=0)["growth"]
    span = answer["until"] - answer["since"]
    assert abs(span - 24 * HOUR) < 2 * HOUR
    topics = {row["topic"]: row for row in answer["topics"]}
    assert topics["Steady"]["messages_per_hour"] == pytest.approx(60, rel=0.03)
    assert topics["Rising"]["messages_per_hour"] == pytest.approx(240, rel=0.1)
    assert topics["Steady"]["trend"] == pytest.approx(1, rel=0.05)
    assert topics["Rising"]["trend"] is None or topics["Rising"]["trend"] > 10
    assert answer["trend"] == pytest.approx(5, rel=0.15)
    assert answer["log_bytes_per_hour"] == pytest.approx(sum(r["bytes_per_hour"] for r in topics.values()), rel=0.05)
    assert [row["topic"] for row in answer["topics"]] == ["Rising", "Steady"]
    text = run("du", store, "-c", conf, "--growth").stdout
    assert text.startswith("At the rate of the last 24 hours of messages the clean-up is enough")
    assert "per hour in the last 24 hours" in text


def test_the_outlook_obeys_the_rules_of_broker_conf(growing: Path) -> None:
    opened = open_store(growing / "store", BrokerConfig.read(growing / "broker.conf"))
    now = int(max(f.mtime_ns for f in opened.commitlog.files) // 1_000_000) if opened.commitlog else 0
    small = FileSystem(30 << 20, 32 << 20)
    tight = outlook(opened, rules_of(opened.config), now, lambda path: small)
    assert tight is not None and not tight.filling.enough
    assert tight.filling.refuses == now, "94 % are used"
    wide = outlook(opened, rules_of(opened.config), now, lambda path: FileSystem(GIB, 100 * GIB))
    assert wide is not None and wide.filling.enough and wide.filling.first_deleted is not None
    assert now + 48 * HOUR <= wide.filling.first_deleted <= now + 73 * HOUR
    queue = opened.commitlog
    assert queue is not None and (rate := log_rate(queue, 0)) is not None
    assert wide.rate == rate


@pytest.mark.parametrize(("name", "deletes"), [("5.4.0-dledger", True), ("5.4.0-dledger-mixed", False)])
def test_dledger_deletes_nothing_beside_legacy_files(name: str, deletes: bool) -> None:
    empty = FileSystem(GIB, 1 << 60)
    found = outlook(open_store(unpack(name)), RetentionRules(reserved=1), NOW, lambda path: empty)
    assert found is not None and (found.filling.first_deleted is not None) is deletes


def test_on_one_disk_a_full_disk_deletes_only_until_there_is_room(growing: Path) -> None:
    opened = open_store(growing / "store", BrokerConfig.read(growing / "broker.conf"))
    assert opened.commitlog is not None
    files = len(opened.commitlog.files)
    size = opened.commitlog.file_size
    assert files > 30
    now = max(f.mtime_ns for f in opened.commitlog.files) // 1_000_000
    disk = FileSystem(880 * size, 1000 * size)  # 88 % of a disk that the root shares
    found = plan_expire(opened, ExpireOptions(now=now, disk_of=lambda path: disk))
    assert found.commitlog is not None and found.commitlog.forced
    assert len(found.commitlog.delete) == 30, "rounds of ten files, until at most 85 % are used"
    wide = outlook(opened, rules_of(opened.config), now, lambda path: FileSystem(840 * size, 1000 * size))
    assert wide is not None and wide.filling.early is not None and wide.filling.least_age is not None
    assert wide.filling.least_age > HOUR


def test_expire_says_when_files_go_and_whether_it_is_enough(growing: Path) -> None:
    result = run("expire", str(growing / "store"), "-c", str(growing / "broker.conf"))
    first = " ".join(result.stdout.split())
    assert first.startswith("The clean-up would remove no file of the log now. It removes the next files at ")
    enough = "At the rate of the last 24 hours of messages the clean-up is enough: the disk has"
    assert enough in first or "clean-up deletes files before" in first


def test_a_young_first_file_stops_the_clean_up(tmp_path: Path) -> None:
    """deleteExpiredFileByTime ends at the first file that is not expired, whatever follows it."""
    store = copy_store("5.4.0-clean", tmp_path)
    first, *others = sorted((store / "commitlog").iterdir())
    for file in others:
        os.utime(file, (NOW // 1000 - 100 * 3600,) * 2)
    rules, wide = RetentionRules(reserved=72, delete_when=";".join(map(str, range(24)))), FileSystem(GIB, 1 << 50)
    for age, hours in ((100, 0), (71, 1), (10, 62), (-24 * 365, None)):
        os.utime(first, (NOW // 1000 - age * 3600,) * 2)
        found = outlook(open_store(store), rules, NOW, lambda path: wide)
        assert found is not None
        expected = None if hours is None else NOW + hours * HOUR
        assert found.filling.first_deleted == expected, age
        young = age < 72
        decision = plan_expire(open_store(store), ExpireOptions(now=NOW, any_hour=True, disk_of=lambda path: wide))
        assert decision.commitlog is not None and len(decision.commitlog.delete) == (0 if young else len(others))


def test_a_few_seconds_of_messages_are_no_rate() -> None:
    store = str(unpack("5.4.0-clean"))
    growth: Any = run_json("du", store, "--growth", exit_code=0)["growth"]
    assert (growth["until"] - growth["since"], growth["forecast"]) == (15_228, None)
    told = run("du", store, "--growth").stdout
    assert told.startswith(
        "The messages span only 15 seconds: too short a time to say if the clean-up is enough.\n\n"
        "  log          468.7 KiB in the last 15 seconds of messages\n"
    )
    assert "per hour" not in told and "/h" not in told


def test_growth_of_stores_without_a_rate(tmp_path: Path) -> None:
    with open_writable(tmp_path / "one", OPTIONS, create=True) as store:
        store.put(NewMessage("T", b"x"))
    assert run_json("du", str(tmp_path / "one"), "--growth", exit_code=0)["growth"] is None
    assert "growth is unknown" in run("du", str(tmp_path / "one"), "--growth").stdout
    assert run("expire", str(tmp_path / "one")).exit_code == 0
    mixed = str(unpack("5.4.0-dledger-mixed"))
    assert run_json("du", mixed, "--growth", exit_code=0)["growth"] is not None
    for words in (("--by", "topic"), ("--plot",), ("--topic", "T"), ("--files",)):
        assert run("du", mixed, "--growth", *words).exit_code == 2
    assert run("du", f"{mixed}/commitlog", "--growth").exit_code == 2


def test_plot_goes_down_to_minutes(growing: Path) -> None:
    store = str(growing / "store")
    since = time.strftime("%Y-%m-%dT%H:%M:00Z", time.gmtime((NOW - 30 * 60_000) // 1000))
    assert "bytes per minute" in run("du", store, "--plot", "--since", since).stdout
    assert "bytes per 2 hours" in run("du", store, "--plot").stdout
    by: Any = run_json("du", store, "--by", "minute", "--since", since, exit_code=0)["by"]
    assert [row["messages"] for row in by["minute"]] == [5] * 30
