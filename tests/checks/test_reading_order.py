"""What refers to the log is read before its end is looked for: what a broker writes in between is not a finding."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rmqstore.checks import examine as running
from rmqstore.checks import verify as examination
from rmqstore.checks.examine import verify
from rmqstore.checks.log.commitlog import read_log
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems.table import PROBLEMS, Severity
from rmqstore.files.store import Store, open_store
from tests.clock import replace_clock
from tests.damage import overwrite
from tests.stores import copy_store

YEAR = 365 * 86_400_000


def bad(store: Store) -> dict[str, int]:
    counts = verify(store, VerifyOptions(jobs=1)).findings.counts
    return {code: n for code, n in counts.items() if PROBLEMS[code].severity > Severity.NOTE}


@pytest.mark.parametrize("live", [False, True])
def test_checkpoint_and_offsets_that_move_while_the_log_is_read_are_not_a_finding(
    live: bool, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bad(open_store(store)) == {}
    monkeypatch.setattr(Store, "is_live", lambda self: live)
    replace_clock(monkeypatch, running, sleep=lambda seconds: None)
    path = store / "config" / "consumerOffset.json"
    checkpoint, offsets = (store / "checkpoint").read_bytes(), path.read_bytes()

    def go_on(*arguments: Any, **named: Any) -> Any:
        overwrite(store / "checkpoint", 0, (int.from_bytes(checkpoint[:8], "big") + YEAR).to_bytes(8, "big"))
        path.write_bytes(re.sub(rb"(\d+):\d+", rb"\1:99999999", offsets))
        return read_log(*arguments, **named)

    monkeypatch.setattr(examination, "read_log", go_on)
    assert bad(open_store(store)) == {}
    monkeypatch.undo()
    assert set(bad(open_store(store))) == {"CK-AHEAD", "CFG-OFFSET-BEYOND"}


def test_log_of_a_live_store_is_listed_after_what_refers_to_it(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that the broker begins after the store was opened belongs to what is read."""
    *_, last = sorted((store / "commitlog").iterdir())
    content = last.read_bytes()
    last.unlink()
    opened = open_store(store)
    assert opened.commitlog is not None and last not in [file.path for file in opened.commitlog.files]
    last.write_bytes(content)
    monkeypatch.setattr(Store, "is_live", lambda self: True)
    replace_clock(monkeypatch, running, sleep=lambda seconds: None)
    assert bad(opened) == {}


def test_a_look_whose_files_have_all_expired_is_made_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "is_live", lambda self: True)
    replace_clock(monkeypatch, running, sleep=lambda seconds: None)
    looks: list[int] = []

    def expire(*arguments: Any, **named: Any) -> Any:
        result = read_log(*arguments, **named)
        looks.append(result.reaches)
        if len(looks) == 1:
            result.expired_to = result.reaches + 1
        return result

    monkeypatch.setattr(examination, "read_log", expire)
    report = verify(open_store(store), VerifyOptions(jobs=1))
    assert len(looks) == 2
    assert report.commitlog is not None
    assert report.commitlog["min_offset"] < report.commitlog["wrote"] == looks[0]


def test_files_that_a_broker_created_ahead_are_not_all_that_is_read_while_files_expire(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "is_live", lambda self: True)
    replace_clock(monkeypatch, running, sleep=lambda seconds: None)
    *_, last = sorted((store / "commitlog").iterdir())
    size = last.stat().st_size
    for ahead in (1, 2):
        (last.parent / f"{int(last.name) + ahead * size:020}").write_bytes(bytes(size))
    opened = open_store(store)
    opened.expiring = 100
    report = verify(opened, VerifyOptions(jobs=1))
    assert report.commitlog is not None
    assert report.commitlog["messages"] > 0 and report.commitlog["min_offset"] == int(last.name)
    assert not report.has_problems


@pytest.mark.parametrize(("expiring", "processes"), [(0, 2), (1, 1)])
def test_a_log_whose_files_expire_is_read_again_without_more_processes(
    expiring: int, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes start too slowly beside a broker that deletes a small file every second."""
    asked: list[int] = []

    def read(*arguments: Any, work: Any, **named: Any) -> Any:
        asked.append(work.jobs)
        return read_log(*arguments, work=work, **named)

    monkeypatch.setattr(examination, "read_log", read)
    opened = open_store(copy_store("5.4.0-clean", tmp_path))
    opened.expiring = expiring
    verify(opened, VerifyOptions(jobs=2))
    assert asked == [processes]
