"""Each case: damage, verify finds exactly this, recover, verify is clean, undo restores every byte."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqstore.checks.problems.table import PROBLEMS
from tests.cases.case import Recover, case_names, make, options, read_case, recover_words, repair
from tests.command import run_json
from tests.rocksdb_rows import need_rocksdict
from tests.seeds import SEED
from tests.stores import unpack
from tests.untouched import assert_untouched, content, file_bytes


def test_every_problem_has_a_case() -> None:
    codes, cases = set(PROBLEMS), [read_case(name) for name in case_names()]
    shown = {case.code for case in cases}
    assert sorted(codes - shown) == [], "problems without a case folder"
    assert sorted(shown - codes) == [], "case folders without a problem"
    assert [case.name for case in cases if case.code not in case.verify.counts] == [], "cases of another problem"


def _cases() -> Iterator[object]:
    """Yield all cases; those after the first one of a code are slow tests unless they are marked as quick."""
    seen: set[str] = set()
    for name in case_names():
        code = name.partition("--")[0]
        quick = code not in seen or read_case(name).quick
        yield pytest.param(name, marks=() if quick else pytest.mark.slow)
        seen.add(code)


@pytest.mark.parametrize("name", [*_cases()])
def test_damage_is_found_repaired_and_undone(name: str, tmp_path: Path) -> None:
    case = read_case(name)
    if "rocksdb" in case.store:
        need_rocksdict()
    store = make(case, tmp_path)
    verify = ("verify", str(store), *options(case, store), *case.verify.options)
    with assert_untouched(store):
        first = run_json(*verify, exit_code=case.verify.exit_code)
    assert first["counts"] == dict(case.verify.counts)
    promises = _promises(first)
    commands = {command for _, command in promises}
    expected = case.recover
    recover = () if expected is None else recover_words(case, store)
    if expected is not None and (SEED or expected.nothing):
        commands.add(recover)
    else:
        commands.discard(recover)  # the output of --apply contains the same plan
    with assert_untouched(store):
        plans = {command: run_json(*command, exit_code=1) for command in sorted(commands)}
    if expected is None:
        assert _unkept(promises, plans) == []
        return
    if expected.nothing:
        _check_plan(expected, plans[recover])
        return
    before = content(store)
    repaired = repair(case, store)
    assert repaired["applied"] is True
    assert repaired["differs"] == []  # what the plan said of the store after it is what verify found
    assert _unkept(promises, {recover: repaired, **plans}) == []
    _check_plan(expected, repaired)
    assert repaired["remaining"] == {"counts": dict(expected.remaining)}  # recover verifies again
    if expected.restored:
        assert file_bytes(store, *expected.restored) == file_bytes(unpack(case.store), *expected.restored)
    assert [path for path in expected.gone if (store / path).exists()] == []
    if SEED or case.verify.options:
        second = run_json(*verify, exit_code=1 if expected.remaining else 0)
        assert _problems(second) == dict(expected.remaining)
    run_json("undo", str(repaired["journal"]), exit_code=0)
    assert content(store) == before


def _check_plan(expected: Recover, plan: Mapping[str, Any]) -> None:
    """Compare a plan, applied or not, with what a case expects of it."""
    loss, stays = plan["loss"], plan["facts"].get("stays", {})
    assert loss["messages"] == expected.lost
    assert loss.get("at_least", False) == expected.at_least
    if expected.queues is not None:
        assert loss["queues"] == dict(expected.queues)
    if expected.strategy:
        assert plan["facts"]["strategy"] == expected.strategy
    if expected.steps is not None:
        assert [f"{step['do']} {step['path']}" for step in plan["steps"]] == [*expected.steps]
    for part, texts in (("brakes", expected.decisions), ("notes", expected.notes)):
        assert [text for text in texts if not any(text in line for line in plan[part])] == [], plan[part]
    assert bool(plan["brakes"]) == bool(expected.decisions), plan["brakes"]
    for code, text in expected.stays.items():
        assert text in f"{stays[code]['why']} -> {stays[code]['do']}"


def _promises(report: Mapping[str, object]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the codes of the findings, each with the recover commands that they recommend."""
    findings = report["findings"]
    assert isinstance(findings, list)
    commands = {(f["code"], tuple(shlex.split(f["next"]))) for f in findings if f["next"] is not None}
    return sorted((code, words[1:]) for code, words in commands if words[:2] == ("rmqstore", "recover"))


def _unkept(
    promises: list[tuple[str, tuple[str, ...]]], plans: Mapping[tuple[str, ...], Mapping[str, object]]
) -> list[str]:
    """Return the recommended recover commands that neither plan to repair the finding nor ask for a decision."""
    unkept = []
    for code, command in promises:
        cures, decisions = plans[command]["cures"], plans[command]["brakes"]
        assert isinstance(cures, list)
        if code not in cures and not decisions and f"add --only {code}" not in json.dumps(plans[command].get("facts")):
            unkept.append(f"{code}: {shlex.join(command)}")
    return unkept


def _problems(report: object) -> dict[str, int]:
    """Return the counts without notes, which are not problems and may remain after a repair."""
    assert isinstance(report, dict)
    notes = {finding["code"] for finding in report["findings"] if finding["severity"] == "note"}
    return {code: count for code, count in report["counts"].items() if code not in notes}
