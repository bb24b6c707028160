"""Commands on a store while another process appends to it, and rolls and expires many files per second."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqstore.checks.problems.table import PROBLEMS, Severity
from rmqstore.errors import StoreIsLive
from rmqstore.files.store import Store, open_store, while_files_expire
from tests.command import run, run_json
from tests.live_writer import live_store
from tests.stores import copy_store

pytestmark = pytest.mark.other_processes


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with live_store(tmp_path_factory.mktemp("live") / "store") as store:
        yield store


@pytest.mark.parametrize(
    ("words", "codes"),
    [
        ("info STORE", (0,)),
        ("verify STORE", (0,)),
        ("recover STORE", (0,)),
        ("recover LINK", (0,)),
        ("rebuild STORE cq", (0,)),
        ("rebuild STORE index", (0,)),
        ("rebuild STORE checkpoint", (0,)),
        ("expire STORE", (0, 1)),  # 1: there are files to expire
        ("du STORE", (0,)),
        ("dump STORE --format ndjson -o OUT --overwrite", (0,)),
        ("export STORE -o OUT --format ndjson --overwrite", (0,)),
        ("compare STORE STORE", (0, 1)),  # 1: the log has grown between the two reads
    ],
)
def test_reading_commands_end_as_documented(words: str, codes: tuple[int, ...], live: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(live)
    for _ in range(2):
        done = run(*_placed(words, live, tmp_path))
        assert done.exit_code in codes, done.output
    if "recover" in words or "rebuild" in words:
        assert "a broker is running on this store: the plan is not final" in done.stderr


def test_a_part_of_a_store_shows_its_broker_too(live: Path, tmp_path: Path) -> None:
    """Zeros that the broker has not filled yet are no damage, although commitlog/ has no lock."""
    done = run("dump", str(live / "commitlog"), "--format", "ndjson", "-o", str(tmp_path / "log.ndjson"))
    assert done.exit_code == 0, done.stderr
    assert "a broker is running on this store" in done.stderr


def test_nothing_false_is_found(live: Path) -> None:
    for _ in range(3):
        counts = run_json("verify", str(live), exit_code=0)["counts"]
        assert isinstance(counts, dict)
        assert {code: n for code, n in counts.items() if PROBLEMS[code].severity > Severity.NOTE} == {}


@pytest.mark.parametrize(
    "words",
    [
        "recover STORE --apply",
        "recover LINK --apply",
        "recover STORE --apply --broker-is-stopped",
        "rebuild STORE cq --apply",
        "expire STORE --apply",
        "migrate-to-dledger STORE --self-id n0 --apply",
        "migrate-to-commitlog STORE --output OUT",
    ],
)
def test_changing_commands_are_refused_before_they_read(
    words: str, live: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*arguments: object, **named: object) -> None:
        raise AssertionError("it was read")

    monkeypatch.setattr("rmqstore.checks.examine.examine", read)
    (tmp_path / "link").symlink_to(live)
    done = run(*_placed(words, live, tmp_path))
    assert done.exit_code == 5 and done.stdout == ""
    assert "its lock is held by process" in done.stderr and "(python" in done.stderr
    assert not (live / ".rmqstore").exists()


def test_writer_without_its_lock_file_is_found_by_its_open_files(live: Path, tmp_path: Path) -> None:
    (live / "lock").rename(tmp_path / "lock")
    try:
        done = run("recover", str(live), "--apply")
    finally:
        (tmp_path / "lock").rename(live / "lock")
    assert done.exit_code == 5 and "open for writing" in done.stderr and "(python" in done.stderr


def test_what_lasts_is_planned_while_files_expire(live: Path) -> None:
    stray = live / "commitlog" / "notes.txt"
    stray.write_text("x")
    try:
        for _ in range(2):
            done = run("recover", str(live))
            assert done.exit_code == 1, done.output
            assert "1 step in" in done.stdout and "commitlog/notes.txt" in done.stdout
    finally:
        stray.unlink()


def test_work_is_done_again_without_the_files_that_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(copy_store("5.4.0-clean", tmp_path))
    assert store.commitlog is not None
    files = [file.name for file in store.commitlog.files]
    seen: list[list[str]] = []

    def work(look: Store) -> int:
        assert look.commitlog is not None
        seen.append([file.name for file in look.commitlog.files])
        if len(seen) < 3:
            raise _gone(look.commitlog.files[0].path)
        return 7

    monkeypatch.setattr(Store, "is_live", lambda self: True)
    assert while_files_expire(store, work) == 7
    assert seen == [files, files[1:], files[3:]]


def test_work_ends_when_it_never_gets_ahead_of_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(copy_store("5.4.0-clean", tmp_path))
    lasts: list[int] = []

    def work(look: Store) -> None:
        assert look.commitlog is not None
        lasts.append(len(look.commitlog.files))
        raise _gone(look.commitlog.files[0].path)

    monkeypatch.setattr(Store, "is_live", lambda self: True)
    with pytest.raises(StoreIsLive, match="files of its log expire faster than they are read"):
        while_files_expire(store, work)
    assert len(lasts) == 12 and lasts[-1] == 1  # the last file never expires


@pytest.mark.parametrize("live_now", [True, False])
def test_file_that_is_missing_for_another_reason_is_an_error(
    live_now: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(copy_store("5.4.0-clean", tmp_path))
    path = tmp_path / "elsewhere" if live_now else store.path / "commitlog" / "0"
    calls: list[Store] = []

    def work(look: Store) -> None:
        calls.append(look)
        raise _gone(path)

    monkeypatch.setattr(Store, "is_live", lambda self: live_now)
    with pytest.raises(FileNotFoundError):
        while_files_expire(store, work)
    assert len(calls) == 1


def _gone(path: Path) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def _placed(words: str, live: Path, tmp_path: Path) -> list[str]:
    places = {"STORE": str(live), "LINK": str(tmp_path / "link"), "OUT": str(tmp_path / "out")}
    return [places.get(word, word) for word in words.split()]
