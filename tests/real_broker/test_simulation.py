"""The forecast predicts exactly what the real classes do: a fixed sample of cases, and all cases in `make test-all`.

python -m tests.real_broker.test_simulation [WORDS]   records the results of all cases (with WORDS in their name)
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.brokers.forecast import StartOptions
from rmqstore.brokers.simulate import simulate_start
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from tests.forecast.answers import (
    HEAP,
    Answer,
    as_far_as_simulated,
    files_of,
    load_answers,
    of_forecast,
    of_oracle,
    save_answers,
)
from tests.forecast.cases import CASES, Case
from tests.real_broker.oracle import Oracle
from tests.stores import copy_store, meta


def ask(oracle: Oracle, case: Case, store: Path) -> Answer:
    """Return what the real classes do with a damaged copy."""
    before = files_of(store)
    result = oracle.load(store, {**meta(case.store).oracle_args, **case.settings}, start=case.start)
    return of_oracle(result, before - files_of(store))


def _in_turn() -> set[str]:
    """Return the quick cases: each kind of damage once, with alternating versions; a start takes 1.5 s of CPU time."""
    damages: dict[str, list[str]] = {}
    for case in CASES:
        if case.sample:
            damages.setdefault(case.name.removeprefix(case.version), []).append(case.name)
    return {names[number % len(names)] for number, names in enumerate(damages.values())}


OFTEN = _in_turn()


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case.name in OFTEN else pytest.mark.slow, id=case.name) for case in CASES]
)
def test_forecast_is_what_the_broker_does(case: Case, tmp_path: Path, oracle: Callable[[str], Oracle]) -> None:
    store = copy_store(case.store, tmp_path)
    case.damage(store)
    opened = open_store(store, BrokerConfig({**meta(case.store).oracle_args, **case.settings}))
    forecast = simulate_start(opened, version=case.version, options=StartOptions(dispatch=case.start, heap=HEAP))
    expected = of_forecast(forecast, store)
    assert as_far_as_simulated(ask(oracle(case.version), case, store), forecast, opened) == expected


def test_recorded_results_are_those_of_the_broker(tmp_path: Path, oracle: Callable[[str], Oracle]) -> None:
    case = next(case for case in CASES if case.sample)
    store = copy_store(case.store, tmp_path)
    case.damage(store)
    assert ask(oracle(case.version), case, store) == load_answers()[case.name]


def _record(words: list[str]) -> None:
    try:
        answers = {name: answer for name, answer in load_answers().items() if name in {case.name for case in CASES}}
    except FileNotFoundError:
        answers = {}
    wanted = [
        case for case in CASES if all(word in case.name for word in words) and (words or case.name not in answers)
    ]
    for i, case in enumerate(wanted):
        with tempfile.TemporaryDirectory() as folder:
            store = copy_store(case.store, Path(folder))
            case.damage(store)
            answers[case.name] = ask(Oracle(case.version), case, store)
        if i % 20 == 19:
            save_answers(answers)
    save_answers(answers)


if __name__ == "__main__":
    _record(sys.argv[1:])
