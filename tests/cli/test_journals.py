"""`rmqstore journals` and `rmqstore undo --last`: past repairs, the one to undo next, and removing old journals."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqstore.repair.journal.disk import Disk
from tests.command import run, run_json
from tests.damage import flip
from tests.stores import unpack
from tests.untouched import Entry, content

STORE = "5.4.0-clean"


def repaired(store: Path, *files: str) -> list[str]:
    """Damage and repair a byte of a body in each file; return the journals, oldest first."""
    for name in files:
        flip(store / "commitlog" / name, 4000)
        assert run("recover", str(store), "--apply").exit_code == 0
    return sorted(path.name for path in (store / ".rmqstore").iterdir())


FIRST, SECOND = f"{65536 * 3:020}", f"{65536 * 5:020}"


def rows(store: Path, *words: str, exit_code: int = 0) -> list[Mapping[str, Any]]:
    answer = run_json("journals", str(store), *words, exit_code=exit_code)
    assert answer["schema"] == "rmqstore.journals/1"
    listed = answer["journals"]
    assert isinstance(listed, list)
    return listed


def test_journals_say_what_each_repair_did(store: Path) -> None:
    names = repaired(store, FIRST, SECOND)
    listed = rows(store)
    assert [Path(row["journal"]).name for row in listed] == names
    assert [(row["state"], row["command"], row["prune"]) for row in listed] == [("done", "recover", False)] * 2
    assert all("CL-BODY-CRC" in row["cures"] and row["bytes"] > 0 and row["steps"] > 0 for row in listed)
    text = run("journals", str(store), "--utc").stdout
    assert f"{names[0]}   applied" in text and "recover, " in text and f"rmqstore undo {store}/.rmqstore/" in text
    assert run("journals", str(unpack(STORE))).stdout == "No journals: there is no repair to undo.\n"


def all_but_second(store: Path) -> dict[str, Entry]:
    return {name: entry for name, entry in content(store).items() if SECOND not in name}


def test_undo_last_goes_back_step_by_step(store: Path) -> None:
    flip(store / "commitlog" / FIRST, 4000)
    before = all_but_second(store)
    assert run("recover", str(store), "--apply").exit_code == 0
    first = all_but_second(store)
    names = repaired(store, SECOND)
    assert run("undo", str(store / ".rmqstore" / names[0])).exit_code == 5
    result = run("undo", str(store), "--last")
    assert result.exit_code == 0 and names[1] in result.stderr
    assert all_but_second(store) == first
    assert run("undo", str(store), "--last").exit_code == 0
    assert all_but_second(store) == before
    result = run("undo", str(store), "--last")
    assert result.exit_code == 3 and "has no repair to undo" in result.stderr
    assert run("undo", str(store / ".rmqstore" / names[0]), "--last").exit_code == 2


def test_prune_prints_first_and_removes_undone_journals(store: Path) -> None:
    names = repaired(store, FIRST, SECOND)
    assert run("undo", str(store), "--last").exit_code == 0
    result = run("journals", str(store), "--prune")
    assert result.exit_code == 1 and "To remove: 1 journal" in result.stdout
    assert sorted(path.name for path in (store / ".rmqstore").iterdir()) == names
    assert [row["prune"] for row in rows(store, "--prune", exit_code=1)] == [False, True]
    result = run("journals", str(store), "--prune", "--apply")
    assert result.exit_code == 0 and "Removed: 1 journal" in result.stdout
    assert [path.name for path in (store / ".rmqstore").iterdir()] == names[:1]
    assert run("undo", str(store), "--last").exit_code == 0


def test_repairs_are_pruned_from_the_oldest_on_when_asked_for(store: Path) -> None:
    names = repaired(store, FIRST, SECOND)
    data = content(store)
    times = store.stat().st_mtime_ns
    assert [row["prune"] for row in rows(store, "--prune")] == [False, False]
    assert [row["prune"] for row in rows(store, "--prune", "--older-than", "1d")] == [False, False]
    assert [row["prune"] for row in rows(store, "--prune", "--keep-last", "1", exit_code=1)] == [True, False]
    result = run("journals", str(store), "--prune", "--keep-last", "1")
    assert f"{names[0]} (applied): it can no longer be undone after that" in result.stdout
    rows(store, "--prune", "--keep-last", "1", "--apply")
    assert [path.name for path in (store / ".rmqstore").iterdir()] == names[1:]
    assert content(store) == data
    rows(store, "--prune", "--older-than", "0s", "--apply")
    assert not (store / ".rmqstore").exists() or not any((store / ".rmqstore").iterdir())
    assert store.stat().st_mtime_ns == times


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_a_prune_that_was_killed_is_marked_and_ends_later(
    allowed: int, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (name,) = repaired(store, FIRST)
    left = allowed
    unlink = Disk.unlink

    def failing(self: Disk, path: Path) -> None:
        nonlocal left
        if name in str(path) and not path.name.startswith("state.new"):
            if not left:
                raise KeyboardInterrupt
            left -= 1
        unlink(self, path)

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "unlink", failing)
        assert run("journals", str(store), "--prune", "--keep-last", "0", "--apply").exit_code == 130
    assert [row["state"] for row in rows(store)] == ["pruning"]
    result = run("undo", str(store / ".rmqstore" / name))
    assert result.exit_code == 5 and "was being removed" in result.stderr
    assert run("verify", str(store)).exit_code == 0
    rows(store, "--prune", "--apply")
    assert rows(store) == []


def test_a_journal_outside_of_the_store_is_pruned_whole(store: Path, tmp_path: Path) -> None:
    flip(store / "commitlog" / FIRST, 4000)
    assert run("recover", str(store), "--apply", "--journal", str(tmp_path / "journals")).exit_code == 0
    assert rows(store)[0]["journal"].startswith(str(tmp_path / "journals"))
    rows(store, "--prune", "--keep-last", "0", "--apply")
    assert not any((tmp_path / "journals").glob("*"))
    assert rows(store) == []


def test_a_journal_that_is_gone_is_named_and_can_be_forgotten(store: Path, tmp_path: Path) -> None:
    flip(store / "commitlog" / FIRST, 4000)
    assert run("recover", str(store), "--apply", "--journal", str(tmp_path / "journals")).exit_code == 0
    (journal,) = (tmp_path / "journals").iterdir()
    elsewhere = journal.rename(tmp_path / "elsewhere")
    (pointer,) = (store / ".rmqstore").iterdir()
    forget = f"rmqstore journals {store} --prune --missing --apply"
    found = run("verify", str(store))
    assert found.exit_code == 1 and forget in " ".join(found.stdout.split()) and str(journal) in found.stdout
    assert forget in str(run_json("verify", str(store), exit_code=1)["findings"])
    assert str(journal) in run("recover", str(store), "--apply").output
    gone = run("undo", str(journal))
    assert gone.exit_code == 3 and f"{journal} does not exist" in gone.stderr and "journals STORE" in gone.stderr
    for words in (
        *(["undo", str(pointer)], ["undo", str(store)], ["undo", str(store), "--last"]),
        *(["resume", str(pointer)], ["resume", str(store)]),
    ):
        refused = run(*words)
        assert refused.exit_code == 5, refused.output
        assert str(journal) in refused.stderr and "neither undone nor resumed" in refused.stderr
        assert forget in refused.stderr
    listed = run("journals", str(store))
    assert listed.exit_code == 0 and forget in listed.stdout and str(journal) in listed.stdout
    assert rows(store)[0]["state"] == "missing"
    assert run("journals", str(store), "--prune", "--apply").exit_code == 0  # perhaps its disk is only not mounted
    assert pointer.exists()
    before = content(store)
    assert rows(store, "--prune", "--missing", exit_code=1)[0]["prune"]
    assert pointer.exists()
    assert run("journals", str(store), "--prune", "--missing", "--apply").exit_code == 0
    assert not pointer.exists() and content(store) == before and (elsewhere / "state").exists()
    assert rows(store) == []
    assert run("verify", str(store)).exit_code == 0


def test_files_that_a_repair_without_its_journal_moved_away_are_named(store: Path, tmp_path: Path) -> None:
    flip(store / "commitlog" / FIRST, 4000)
    assert run("recover", str(store), "--apply", "--journal", str(tmp_path / "journals")).exit_code == 0
    shutil.rmtree(tmp_path / "journals")
    (pointer,) = (store / ".rmqstore").iterdir()
    (pointer / "quarantine").mkdir()  # as with a journal on another file system
    (pointer / "quarantine" / "000001-abort").touch()
    assert f"moved to {pointer / 'quarantine'}" in run("undo", str(store)).stderr
    assert f"moved away: {pointer / 'quarantine'}" in run("journals", str(store)).stdout


def test_a_pointer_to_something_else_removes_nothing_there(store: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("mine")
    folder = store / ".rmqstore" / "20260101T000000.000000Z"
    folder.mkdir(parents=True)
    (folder / "journal").write_text(str(tmp_path / "home"))
    assert run("journals", str(store), "--prune", "--missing", "--apply").exit_code == 0
    assert (tmp_path / "home" / "letter").read_text() == "mine"
    assert rows(store) == []


def test_limits_need_prune() -> None:
    result = run("journals", str(unpack(STORE)), "--keep-last", "1")
    assert result.exit_code == 2 and "need --prune" in result.stderr
