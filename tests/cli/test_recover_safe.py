"""`recover --safe`: what it repairs without anybody there, and what it leaves to a person, for every kind of damage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqstore.checks.problems.table import PROBLEMS, Severity
from rmqstore.files.lock import take_lock
from rmqstore.repair.unattended import Unattended, unattended
from tests.cases.case import case_names, make, options, read_case
from tests.command import run, run_json
from tests.damage import flip, zero
from tests.untouched import assert_untouched, snapshot

FIRST = [name for name in case_names() if "--" not in name]


@pytest.mark.quick_rows(8)
@pytest.mark.parametrize("name", FIRST)
def test_each_problem_is_treated_as_its_manual_page_says(name: str, tmp_path: Path) -> None:
    case = read_case(name)
    store = make(case, tmp_path)
    words, before = options(case, store), snapshot(store)
    found = run_json("verify", str(store), *words, exit_code=run("verify", str(store), *words).exit_code)["counts"]
    assert isinstance(found, dict)
    answers = {unattended(PROBLEMS[code]) for code in found if PROBLEMS[code].severity > Severity.NOTE}
    result = run("recover", str(store), *words, "--safe")
    if result.exit_code == 1:
        assert snapshot(store) == before
        assert answers & {Unattended.DECISION, Unattended.IF_NOTHING_IS_LOST}
        return
    assert result.exit_code == 0, result.output
    after = run_json("verify", str(store), *words, exit_code=run("verify", str(store), *words).exit_code)
    left, broker = after["counts"], after["broker"]
    assert isinstance(left, dict) and isinstance(broker, dict)
    assert not [code for code in left if PROBLEMS[code].severity is Severity.ERROR]
    assert broker["starts"] and not broker["messages_lost"]
    if answers <= {Unattended.GOES_ON}:
        assert snapshot(store) == before, "nothing that lets a broker start is changed"


def test_lost_messages_need_a_decision_and_nothing_is_changed(store: Path) -> None:
    zero(sorted((store / "commitlog").iterdir())[1], 4096, 4096)
    with assert_untouched(store):
        result = run("recover", str(store), "--safe")
    assert result.exit_code == 1
    assert "A decision is needed. Nothing was changed:" in result.stdout
    assert f"Next: rmqstore recover {store}" in result.stdout
    questions = run_json("recover", str(store), "--safe", exit_code=1)["questions"]
    assert isinstance(questions, list) and "lost" in questions[0]


def test_a_message_that_would_lose_its_properties_needs_a_decision(tmp_path: Path) -> None:
    case = read_case("CL-PROPERTIES--unproved")
    store = make(case, tmp_path)
    with assert_untouched(store):
        answer = run_json("recover", str(store), *options(case, store), "--safe", exit_code=1)
    assert answer["questions"] == ["1 message with lost properties"]


def test_one_repair_is_not_made_while_another_needs_a_decision(store: Path) -> None:
    (store / "commitlog" / "notes.txt").write_text("x")  # this alone is moved away
    zero(sorted((store / "commitlog").iterdir())[1], 4096, 4096)
    with assert_untouched(store):
        assert run("recover", str(store), "--safe").exit_code == 1
    assert (store / "commitlog" / "notes.txt").exists()


def test_a_safe_repair_is_applied_once_and_can_be_undone(store: Path) -> None:
    before = snapshot(store)
    flip(sorted((store / "commitlog").iterdir())[1], 4096 + 200)
    (store / "commitlog" / "notes.txt").write_text("x")
    damaged = snapshot(store)
    result = run("recover", str(store), "--safe")
    assert result.exit_code == 0, result.output
    assert "Applied. To undo:" in result.stdout
    assert run("verify", str(store)).exit_code == 0
    assert len(list((store / ".rmqstore").iterdir())) == 1
    assert "Nothing was changed" in run("recover", str(store), "--safe").stdout
    assert run("undo", str(store), "--last").exit_code == 0
    assert {name: entry.content for name, entry in snapshot(store, without=(".rmqstore",)).items()} == {
        name: entry.content for name, entry in damaged.items()
    }
    assert before.keys() < damaged.keys()


def test_an_unfinished_repair_needs_a_decision(tmp_path: Path) -> None:
    case = read_case("DIR-OPEN-JOURNAL")
    store = make(case, tmp_path)
    with assert_untouched(store):
        assert run("recover", str(store), "--safe").exit_code == 1


def test_a_running_broker_is_refused(store: Path) -> None:
    held = take_lock(store / "lock", lambda path: os.open(path, os.O_RDWR))
    try:
        with assert_untouched(store):
            assert run("recover", str(store), "--safe").exit_code == 5
    finally:
        held.release()


@pytest.mark.parametrize("entries", [(), ("lost+found",)])
def test_an_empty_volume_is_the_store_of_a_new_broker(entries: tuple[str, ...], tmp_path: Path) -> None:
    for name in entries:
        (tmp_path / name).mkdir()
    result = run("recover", str(tmp_path), "--safe")
    assert result.exit_code == 0
    assert "the broker will create its store" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == [*entries]


def test_a_path_that_does_not_exist_or_is_no_store_is_not_let_pass(tmp_path: Path) -> None:
    assert run("recover", str(tmp_path / "gone"), "--safe").exit_code == 3
    (tmp_path / "notes.txt").write_text("x")
    assert run("recover", str(tmp_path), "--safe").exit_code == 3


@pytest.mark.parametrize(
    "words", [["--force", "00"], ["--accept-fillers"], ["--strategy", "truncate"], ["--only", "CK-MISSING"]]
)
def test_options_that_decide_exclude_it(words: list[str], store: Path) -> None:
    result = run("recover", str(store), "--safe", *words)
    assert result.exit_code == 2
    assert f"--safe and {words[0]} exclude each other" in result.stderr


def test_what_could_not_be_checked_is_not_changed(store: Path) -> None:
    (store / "commitlog" / "notes.txt").write_text("x")
    unknown = store / "newparts" / f"{0:020d}"
    unknown.parent.mkdir()
    unknown.write_bytes(bytes(64))
    with assert_untouched(store):
        result = run("recover", str(store), "--safe")
    assert result.exit_code == 4
    assert "Nothing was changed: not everything could be checked." in result.stdout
