"""Which snapshots stay, and how a repository is copied to another one."""

from __future__ import annotations

import itertools
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rmqstore.backup.backup import back_up
from rmqstore.backup.keeping import KeepRule, name_at
from rmqstore.backup.manifest import order_of
from rmqstore.backup.repository import Repository, storage_of
from rmqstore.files.store import open_store
from tests.backup.growing import GrowingStore
from tests.command import run, run_json

HOUR = 3_600_000
NOW = int(datetime(2026, 11, 29, 12, 30, tzinfo=UTC).timestamp() * 1000)
HOURLY = [name_at(NOW - back * HOUR) for back in range(24 * 100)][::-1]


def left(rule: KeepRule, names: list[str]) -> list[str]:
    gone = rule.outdated(names, NOW)
    assert gone == [name for name in names if name in gone], "oldest first"
    return [name for name in names if name not in gone]


def test_without_a_rule_and_with_only_a_size_all_stay() -> None:
    assert left(KeepRule(), HOURLY) == left(KeepRule(size=1), HOURLY) == HOURLY


def test_the_last_ones_stay_and_the_newest_always() -> None:
    assert left(KeepRule(last=3), HOURLY) == HOURLY[-3:]
    assert left(KeepRule(last=0), HOURLY) == left(KeepRule(age=0, hourly=0), HOURLY) == HOURLY[-1:]
    assert left(KeepRule(last=3), []) == []


def test_of_each_hour_day_week_and_month_the_newest_one_stays() -> None:
    assert left(KeepRule(hourly=5), HOURLY) == HOURLY[-5:]
    days = left(KeepRule(daily=4), HOURLY)
    assert days == ["20261126T233000Z", "20261127T233000Z", "20261128T233000Z", HOURLY[-1]]
    weeks = left(KeepRule(weekly=3), HOURLY)
    assert weeks == ["20261115T233000Z", "20261122T233000Z", HOURLY[-1]]  # Sundays
    assert left(KeepRule(monthly=2), HOURLY) == ["20261031T233000Z", HOURLY[-1]]


def test_a_snapshot_stays_if_one_of_the_rules_keeps_it() -> None:
    rules = KeepRule(last=2), KeepRule(daily=7), KeepRule(monthly=3), KeepRule(age=50 * HOUR)
    each = {name for rule in rules for name in left(rule, HOURLY)}
    assert left(KeepRule(age=50 * HOUR, last=2, daily=7, monthly=3), HOURLY) == [n for n in HOURLY if n in each]


def test_periods_without_a_snapshot_do_not_count() -> None:
    yearly = [f"{year}0301T000000Z" for year in range(2020, 2027)]
    assert left(KeepRule(daily=3), yearly) == yearly[-3:]


def test_weeks_are_those_of_iso_8601() -> None:
    names = ["20201231T000000Z", "20210101T000000Z", "20210103T000000Z", "20210104T000000Z"]  # 3 January: a Sunday
    assert left(KeepRule(weekly=9), names) == names[2:]


def test_a_name_after_the_clock_was_set_back_and_an_impossible_one() -> None:
    names = ["20260230T000000Z", "20260301T000000Z", "20260301T000000Z-1", "20260301T000000Z-2"]
    assert left(KeepRule(daily=1), names) == names[-1:]
    assert left(KeepRule(daily=2), names) == [names[0], names[-1]]


def test_deleted_log_files_stay_as_long_as_the_oldest_snapshot() -> None:
    assert KeepRule(size=1).oldest(HOURLY, NOW) is None
    assert KeepRule(age=HOUR).oldest(HOURLY, NOW) == NOW - HOUR
    assert KeepRule(last=3).oldest(HOURLY, NOW) == NOW - 2 * HOUR
    assert KeepRule(age=9 * HOUR, last=3).oldest(HOURLY, NOW) == NOW - 9 * HOUR
    assert KeepRule(last=3).oldest([], NOW) == NOW


@pytest.fixture
def grown(tmp_path: Path) -> GrowingStore:
    return GrowingStore(tmp_path / "store")


@pytest.fixture
def repository(grown: GrowingStore, tmp_path: Path) -> Path:
    for _ in range(3):
        grown.grow(5)
        folder = Repository.open_or_create(storage_of(str(tmp_path / "repo"))).of("broker-a")
        back_up(open_store(grown.root), folder)
    return tmp_path / "repo"


def test_a_copy_has_the_same_bytes_and_takes_only_what_it_lacks(repository: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    stores = run_json("snapshots", str(repository), "--copy", str(copy), exit_code=0)["stores"]
    assert isinstance(stores, list)
    assert len(stores[0]["copied"]) == 3 and stores[0]["copied_bytes"] > 0
    again = run_json("snapshots", str(repository), "--copy", str(copy), exit_code=0)["stores"]
    assert isinstance(again, list) and (again[0]["copied"], again[0]["copied_bytes"]) == ([], 0)
    assert _content(copy) == _content(repository)
    assert run("snapshots", str(copy), "--check").exit_code == 0
    assert copy.stat().st_mode & 0o777 == 0o700


def _content(repository: Path) -> dict[str, bytes]:
    files = (path for path in sorted(repository.rglob("*")) if path.is_file() and path.name != "lock")
    return {str(path.relative_to(repository)): path.read_bytes() for path in files}


def test_an_interrupted_copy_is_continued(repository: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    assert run("snapshots", str(repository), "--copy", str(copy)).exit_code == 0
    whole = _content(copy)
    manifests = sorted((copy / "broker-a" / "snapshots").iterdir(), key=lambda path: order_of(path.stem))
    manifests[-1].unlink()
    torn = max((copy / "broker-a" / "log").rglob("*tail*"), key=lambda path: path.name)
    torn.write_bytes(torn.read_bytes()[:-1])
    assert run("snapshots", str(repository), "--copy", str(copy)).exit_code == 0
    assert _content(copy) == whole


def test_an_object_that_changed_ends_the_copy_and_its_snapshot_does_not_appear(
    repository: Path, tmp_path: Path
) -> None:
    last = max((repository / "broker-a" / "log").rglob("*tail*"), key=lambda path: path.name)
    data = bytearray(last.read_bytes())
    data[5] ^= 1
    last.write_bytes(data)
    copy = tmp_path / "copy"
    result = run("snapshots", str(repository), "--copy", str(copy))
    assert result.exit_code == 4
    assert "is not as it was written" in result.stderr
    assert len(list((copy / "broker-a" / "snapshots").iterdir())) == 2
    assert run("snapshots", str(copy), "--check").exit_code == 0


def test_another_history_is_refused_before_anything_is_written(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(repository, other)
    manifest = max((other / "broker-a" / "snapshots").iterdir())
    manifest.write_bytes(manifest.read_bytes().replace(b'"messages":', b'"messages": '))
    assert run("snapshots", str(repository), "--copy", str(other)).exit_code == 0, "the same, written otherwise"
    text = manifest.read_text()
    made = next(part for part in text.split('"') if part.isalnum() and len(part) == 64)
    manifest.write_text(text.replace(made, "0" * 64))
    before = _content(other)
    result = run("snapshots", str(repository), "--copy", str(other))
    assert (result.exit_code, _content(other)) == (5, before)
    assert "has another history" in result.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--copy", "REPO"], "is the repository itself"),
        (["--copy", "REPO::broker-a"], "names a store"),
        (["--copy", "REPO2", "--forget", "--keep-last", "1"], "exclude each other"),
        (["--forget"], "--forget needs a --keep option"),
        (["--keep-daily", "1"], "these need --forget"),
        (["--forget", "--keep-daily", "-1"], "-1"),
    ],
)
def test_words_that_do_not_fit(words: list[str], told: str, repository: Path) -> None:
    result = run("snapshots", str(repository), *(word.replace("REPO", str(repository)) for word in words))
    assert result.exit_code == 2
    assert told in result.stderr


def test_forgetting_by_number_frees_what_no_snapshot_needs(repository: Path) -> None:
    stores = run_json("snapshots", str(repository), "--forget", "--keep-last", "1", exit_code=0)["stores"]
    assert isinstance(stores, list)
    assert len(stores[0]["forgotten"]) == 2 and len(stores[0]["snapshots"]) == 1
    assert run("snapshots", str(repository), "--check").exit_code == 0


def test_earlier_days_have_one_line_each(repository: Path) -> None:
    folder = repository / "broker-a" / "snapshots"
    sound = max(folder.iterdir())
    today = datetime.strptime(sound.stem, "%Y%m%dT%H%M%SZ")
    for days, hours in itertools.product(range(1, 4), range(12)):
        name = f"{today - timedelta(days=days, hours=-hours % 3):%Y%m%dT}{hours:02}0000Z"
        (folder / f"{name}.json").write_text(sound.read_text().replace(sound.stem, name))
    lines = run("snapshots", str(repository)).stdout.splitlines()
    assert len(lines) < 10
    assert any("12 snapshots, the log to" in line and " to " in line for line in lines)
    assert len(run("snapshots", str(repository), "--all").stdout.splitlines()) > 36
