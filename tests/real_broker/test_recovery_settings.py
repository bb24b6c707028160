"""Settings of a recovery: the forecast is what the real classes do with them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore.brokers.forecast import StartOptions
from rmqstore.brokers.simulate import simulate_start
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from tests.forecast.answers import HEAP, of_forecast
from tests.forecast.cases import CASES, Case
from tests.real_broker.oracle import Oracle
from tests.real_broker.test_simulation import ask
from tests.stores import VERSIONS, copy_store, meta

SAMPLE = [case for case in CASES if case.sample and case.version != "4.9.7"]  # which has no recoverConcurrently
DAMAGES = ("undamaged", "zero page", "last log file missing")


def compare(case: Case, store: Path, more: Mapping[str, str], oracle: Oracle) -> None:
    """Compare forecast and real classes on a damaged copy, with settings in addition to those of the case."""
    changed = replace(case, settings={**case.settings, **more})
    config = BrokerConfig({**meta(case.store).oracle_args, **changed.settings})
    options = StartOptions(dispatch=case.start, heap=HEAP)
    forecast = of_forecast(simulate_start(open_store(store, config), version=case.version, options=options), store)
    assert ask(oracle, changed, store) == forecast


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in SAMPLE])
def test_queues_are_recovered_concurrently(case: Case, tmp_path: Path, oracle: Callable[[str], Oracle]) -> None:
    store = copy_store(case.store, tmp_path)
    case.damage(store)
    compare(case, store, {"recoverConcurrently": "true"}, oracle(case.version))


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("listed", [False, True], ids=["only read-only", "in both settings"])
def test_log_files_in_a_read_only_path(
    listed: bool, version: str, damage: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    """The first three files are in a path of readOnlyCommitLogStorePaths, the others in one of two writable paths."""
    case = next(c for c in CASES if c.store == f"{version}-clean" and c.name == f"{version} {damage}, clean")
    store, read_only, second = copy_store(case.store, tmp_path), tmp_path / "read-only", tmp_path / "second"
    case.damage(store)
    read_only.mkdir()
    second.mkdir()
    for path in sorted((store / "commitlog").iterdir())[:3]:
        shutil.move(path, read_only / path.name)
    paths = [store / "commitlog", second, *([read_only] if listed else [])]
    settings = {"storePathCommitLog": ",".join(map(str, paths)), "readOnlyCommitLogStorePaths": str(read_only)}
    opened = open_store(store, BrokerConfig({**meta(case.store).oracle_args, **case.settings, **settings}))
    assert opened.commitlog is not None
    assert opened.commitlog.files[0].path.parent == read_only
    compare(case, store, settings, oracle(version))
