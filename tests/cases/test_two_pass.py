"""Damage → verify says exactly this → recover → verify is clean → undo → every byte as before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.case import case_names, make, options, read_case
from tests.command import run_json
from tests.untouched import assert_untouched, content_only, snapshot

JOURNAL = ".rmqstore"


def test_every_problem_has_a_case() -> None:
    problems = pytest.importorskip("rmqstore.checks.problems.table", reason="the table of problems is not there yet")
    table = problems.PROBLEMS
    codes = {problem.code for problem in (table.values() if isinstance(table, dict) else table)}
    shown = {read_case(name).code for name in case_names()}
    assert sorted(codes - shown) == [], "problems without a case folder"
    assert sorted(shown - codes) == [], "case folders without a problem"


@pytest.mark.parametrize("name", case_names())
def test_case_shows_its_own_problem(name: str) -> None:
    case = read_case(name)
    assert case.verify.counts.get(case.code, 0) > 0


@pytest.mark.parametrize("name", case_names())
def test_damage_is_found_cured_and_taken_back(name: str, tmp_path: Path) -> None:
    case = read_case(name)
    store = make(case, tmp_path)
    verify = ("verify", str(store), *options(case, store), *case.verify.options)
    with assert_untouched(store):
        first = run_json(*verify, exit_code=case.verify.exit_code)
    assert first["counts"] == dict(case.verify.counts)
    if case.recover is None:
        return
    recover = ("recover", str(store), *options(case, store), *case.recover.options)
    before = content_only(snapshot(store, without=(JOURNAL,)))
    with assert_untouched(store):
        run_json(*recover, exit_code=1)
    repaired = run_json(*recover, "--apply", exit_code=case.recover.exit_code)
    assert repaired["applied"] is True
    loss, journal = repaired["loss"], repaired["journal"]
    assert isinstance(loss, dict)
    assert isinstance(journal, str)
    assert loss["messages"] == case.recover.lost
    second = run_json(*verify, exit_code=1 if case.recover.remaining else 0)
    assert _problems(second) == dict(case.recover.remaining)
    run_json("undo", journal, exit_code=0)
    assert content_only(snapshot(store, without=(JOURNAL,))) == before


def _problems(report: object) -> dict[str, int]:
    """Counts without notes: a note is no problem, and the second pass may have some."""
    assert isinstance(report, dict)
    notes = {finding["code"] for finding in report["findings"] if finding["severity"] == "note"}
    return {code: count for code, count in report["counts"].items() if code not in notes}
