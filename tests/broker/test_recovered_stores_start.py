"""What recover repaired, the real store of the same version starts and reads to the last message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.oracle import Oracle
from tests.cases.case import case_names, make, options, read_case
from tests.command import run_json
from tests.stores import BROKER_STORES, meta

# `make test` asks the real store about these; `make test-all` about every case.
SAMPLE = ("CL-BODY-CRC", "CL-ZERO-HOLE", "CQ-MISSING-QUEUE", "DIR-STRAY-FILE", "DL-HEADER", "IX-CHAIN-LOOP")


def _repaired() -> list[object]:
    cases = [read_case(name) for name in case_names()]
    return [
        pytest.param(case.name, marks=() if case.name in SAMPLE else pytest.mark.slow)
        for case in cases
        if case.recover is not None and case.store in BROKER_STORES
    ]


@pytest.mark.parametrize("name", _repaired())
def test_recovered_store_starts_and_reads(name: str, tmp_path: Path, oracle: Callable[[str], Oracle]) -> None:
    case = read_case(name)
    assert case.recover is not None
    made = meta(case.store)
    real = oracle(made.version)
    store = make(case, tmp_path)
    recover = ("recover", str(store), *options(case, store), *case.recover.options, "--apply")
    run_json(*recover, exit_code=case.recover.exit_code)
    result = real.load(store, made.oracle_args, start=True, shutdown=True)
    assert (result.load, result.crash, result.shutdown) == (True, None, "clean")
    unreadable = {queue: reading.why for queue, reading in result.queues.items() if reading.bad}
    assert unreadable == {}
    assert result.readable >= made.oracle_start.readable - case.recover.lost
