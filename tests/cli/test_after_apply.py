"""After an apply, no error hides that it happened: outputs are tested before it, and errors name the journal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rmqstore.errors import CouldNotCheck
from rmqstore.repair.journal import journal
from tests.command import run
from tests.damage import overwrite
from tests.stores import copy_store
from tests.untouched import content, content_only, snapshot


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store whose checkpoint is ahead of the log, which one step repairs."""
    made = copy_store("5.4.0-clean", tmp_path)
    overwrite(made / "checkpoint", 0, (1 << 45).to_bytes(8, "big"))
    return made


def journals(store: Path) -> list[str]:
    return [entry.name for entry in (store / ".rmqstore").iterdir()] if (store / ".rmqstore").exists() else []


def shell(store: Path, line: str) -> subprocess.CompletedProcess[str]:
    command = line.replace("RMQSTORE", f"{sys.executable} -m rmqstore").replace("STORE", str(store))
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)


COMMANDS = ["recover STORE --apply", "rebuild STORE checkpoint --apply", "undo JOURNAL"]


@pytest.mark.quick_rows
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("how", ["-o STORE/../missing/x", "--json -o STORE/../missing/x", ">&-", "--json >&-"])
def test_output_that_cannot_be_written_is_found_before_the_first_write(store: Path, command: str, how: str) -> None:
    if "JOURNAL" in command:
        assert run("recover", str(store), "--apply").exit_code == 0
        (name,) = journals(store)
        command = command.replace("JOURNAL", str(store / ".rmqstore" / name))
    before = snapshot(store)
    done = shell(store, f"RMQSTORE {command} {how}")
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr and "plan was applied" not in done.stderr
    assert snapshot(store) == before


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("how", ["--json -o /dev/full", "-o /dev/full", "--json > /dev/full"])
def test_report_that_cannot_be_written_after_an_apply_is_exit_4_and_names_the_journal(store: Path, how: str) -> None:
    before = content_only(snapshot(store))
    done = shell(store, f"RMQSTORE recover STORE --apply {how}")
    assert done.returncode == 4, done.stderr
    (name,) = journals(store)
    journal = store / ".rmqstore" / name
    first, last = done.stderr.splitlines()
    assert first == f"Applied. To undo: rmqstore undo {journal}"
    assert last.startswith("error: the plan was applied, but then: ")
    assert last.endswith(f"or `rmqstore undo {journal}`")
    assert run("undo", str(journal)).exit_code == 0
    assert content(store) == before


def test_text_that_cannot_be_written_before_an_apply_stops_it(store: Path) -> None:
    before = snapshot(store)
    done = shell(store, "RMQSTORE recover STORE --apply > /dev/full")
    assert done.returncode == 5 and "No space left" in done.stderr and "Traceback" not in done.stderr
    assert snapshot(store) == before


@pytest.mark.quick_rows
@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), CouldNotCheck("the disk gave an error")])
@pytest.mark.parametrize("as_json", [False, True])
def test_error_in_the_second_verification_says_that_the_plan_was_applied(
    store: Path, error: Exception, as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr("rmqstore.checks.examine.verify", fail)
    done = run("recover", str(store), "--apply", *(["--json"] if as_json else []))
    (name,) = journals(store)
    text = f"Applied. To undo: rmqstore undo {store / '.rmqstore' / name}"
    assert done.exit_code == 4
    assert text in (done.stderr if as_json else done.stdout).splitlines()
    assert "the plan was applied, but then: " in done.stderr
    if as_json:
        assert json.loads(done.stdout)["error"]["code"] == "applied"


def test_interrupt_in_the_second_verification_names_the_journal(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rmqstore.checks.examine.verify", interrupt)
    done = run("recover", str(store), "--apply")
    (name,) = journals(store)
    assert done.exit_code == 130
    assert f"the plan was applied; to undo it: rmqstore undo {store / '.rmqstore' / name}" in done.stderr


def test_output_file_of_an_apply_holds_the_plan_and_the_result(store: Path, tmp_path: Path) -> None:
    done = run("recover", str(store), "--apply", "-o", str(tmp_path / "out.txt"))
    assert done.exit_code == 0
    text = (tmp_path / "out.txt").read_text()
    assert "1 step in" in text and "Applied. To undo: rmqstore undo" in text and "Verified again" in text


def test_closed_descriptors_are_not_given_to_files_of_the_store(store: Path) -> None:
    done = shell(store, "RMQSTORE verify STORE --json -o /dev/null 0<&- 1>&- 2>&-")
    assert done.returncode == 1


def test_a_plan_says_what_remains_and_what_the_next_start_would_do(store: Path) -> None:
    plan = json.loads(run("recover", str(store), "--json").stdout)
    assert plan["remaining"] == {"counts": {}}
    assert plan["forecast"] == "RocketMQ 5.4.0 would start and lose nothing"
    assert plan["facts"]["stays"] == {}
    shown = run("recover", str(store)).stdout
    assert "After this repair: no problems. RocketMQ 5.4.0 would start and lose nothing." in shown
    done = json.loads(run("recover", str(store), "--apply", "--json").stdout)
    assert (done["differs"], done["remaining"], done["forecast"]) == ([], plan["remaining"], plan["forecast"])


def break_config(store: Path) -> None:
    (store / "config/topics.json.bak").write_bytes((store / "config/topics.json").read_bytes())
    (store / "config/topics.json").write_text("{")


def test_what_remains_is_counted_on_the_planned_store(store: Path) -> None:
    break_config(store)
    plan = json.loads(run("recover", str(store), "--only", "CK-AHEAD", "--json").stdout)
    assert plan["cures"] == ["CK-AHEAD"]
    assert plan["remaining"]["counts"].keys() == plan["facts"]["stays"].keys() == {"CFG-BROKEN"}
    assert plan["facts"]["stays"]["CFG-BROKEN"]["why"] == "--only selects other problems"
    assert "After this repair: 1 problem left." in run("recover", str(store), "--only", "CK-AHEAD").stdout


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_a_store_that_is_not_as_planned_is_exit_70_and_names_the_journal(
    store: Path, how: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = journal.apply

    def apply_otherwise(*args: object, **options: object) -> object:
        done = real(*args, **options)  # type: ignore[arg-type]
        break_config(store)
        return done

    monkeypatch.setattr(journal, "apply", apply_otherwise)
    done = run("recover", str(store), "--apply", *how)
    assert done.exit_code == 70
    (name,) = journals(store)
    assert "the store is not as this plan said that it would be: CFG-BROKEN: 0 planned, 1 found" in done.stderr
    assert f"to undo the repair, run `rmqstore undo {store / '.rmqstore' / name}`" in done.stderr
    if how:
        assert json.loads(done.stdout)["differs"][0] == "CFG-BROKEN: 0 planned, 1 found"
