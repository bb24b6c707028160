"""Consume queues with different ends: the forecast of every queue is what the real start does.

    random cuts of the queues' ends (and queues that are gone) → verify's forecast → the real classes start and read

The ends of every queue must be as forecast, and the number of messages that a consumer can no longer read at their
queue offset must be the number in the verdict.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmqstore.formats.consumequeue import UNIT
from tests.command import run
from tests.damage import zero
from tests.real_broker.oracle_server import Cell, OracleServers
from tests.seeds import seeds
from tests.stores import VERSIONS, copy_store, meta, write_broker_conf

KINDS = ("clean", "killed", "dledger", "dledger-killed", "dledger-mixed")
SEEDS = seeds(12)
QUICK = {"4.9.7": (3,), "5.1.4": (3,), "5.4.0": (7, 9), "5.5.1": (7, 9)}
"""All DLedger: what is not committed yet, and what 5.4.0 cuts too early."""

_NUMBERS = re.compile(r"(?:drop|leave|deliver|put) (\d+) messages?")


@dataclass(frozen=True, slots=True)
class Asked:
    """One store with uneven queues: its damage, its forecast, and the call to the real classes."""

    said: tuple[str, ...]
    forecast: dict[str, tuple[int, int]]
    verdict: str
    version: str
    question: int


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_forecast_of_uneven_queues(version: str, tmp_path: Path, oracle_servers: OracleServers) -> None:
    for kind in KINDS:
        name = f"{version}-{kind}"
        asked = [_ask(name, seed, tmp_path, oracle_servers) for seed in SEEDS]
        for one in asked:
            _compare(name, one, oracle_servers)


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("version", VERSIONS)
def test_forecast_of_a_few_uneven_queues(version: str, tmp_path: Path, oracle_servers: OracleServers) -> None:
    for seed in QUICK[version]:
        name = f"{version}-{KINDS[seed % len(KINDS)]}"
        _compare(name, _ask(name, seed, tmp_path, oracle_servers), oracle_servers)


def _ask(name: str, seed: int, folder: Path, servers: OracleServers) -> Asked:
    store = copy_store(name, folder / f"{name} {seed}")
    damage = shorten(store, seed)
    version, abort = _cell(name, seed)
    (store / "abort").unlink(missing_ok=True)
    if abort:
        (store / "abort").touch()
    conf = write_broker_conf(name, store)
    done = run("verify", str(store), "-c", str(conf), "--broker", version, "--json")
    assert done.exit_code == 1, (damage, done.output)
    report = json.loads(done.stdout)
    ends = {queue: (end["min"], end["max"]) for queue, end in report["broker"]["queues"].items()}
    question = servers.of(version).ask(store, meta(name).oracle_args, abort=abort)
    return Asked((*damage, version, f"abort {abort}"), ends, report["verdict"], version, question)


def _cell(name: str, seed: int) -> Cell:
    """Return version and `abort`: usually the store's own version, every third time a newer one."""
    own = VERSIONS.index(meta(name).version)
    version = VERSIONS[min(own + seed // 2 % 3, len(VERSIONS) - 1)] if seed % 3 == 2 else VERSIONS[own]
    return version, bool(seed % 2)


def _compare(name: str, one: Asked, servers: OracleServers) -> None:
    now = servers.of(one.version).answer(one.question)
    assert (now.load, now.crash) == (True, None), one
    real = {queue: (q.min, q.max) for queue, q in now.queues.items() if q.max or q.min > 0}
    assert {queue: end for queue, end in one.forecast.items() if end[1] or end[0] > 0} == real, one
    stated = sum(int(number) for number in _NUMBERS.findall(one.verdict))
    assert meta(name).oracle_start.readable - now.readable == stated, one


def shorten(store: Path, seed: int) -> tuple[str, ...]:
    """Remove different numbers of units from the ends of most queues, and some queues completely."""
    dice = random.Random(f"{store.name} {seed}")
    changes: list[str] = []
    for queue in sorted(store.glob("consumequeue/*/*")):
        files = sorted(queue.iterdir())
        units = sum(_units(path) for path in files)
        if not units or dice.random() < 0.3:
            continue
        if dice.random() < 0.15:
            shutil.rmtree(queue)
            changes.append(f"{queue.parent.name}/{queue.name}: gone")
            continue
        cut = dice.randint(1, min(units, dice.choice((1, 3, 10, units))))
        changes.append(f"{queue.parent.name}/{queue.name}: {cut} of {units} units")
        for path in reversed(files):
            here = _units(path)
            take = min(cut, here)
            if not take:
                continue
            zero(path, (here - take) * UNIT.size, take * UNIT.size)
            if take == here and path != files[0]:
                path.unlink()
            cut -= take
    return tuple(changes)


def _units(path: Path) -> int:
    return int((UNIT.array(path.read_bytes())["size"] > 0).sum())
