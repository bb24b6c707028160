"""The real broker serves exactly the messages that the account of a damaged store calls served.

3 to 12 faults → account with the next start of a version → the real store of that version starts and reads
"""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import pytest

from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from tests.checks.test_random_account import many_faults
from tests.planning import opened
from tests.real_broker.oracle import OracleResult
from tests.real_broker.oracle_server import OracleServers
from tests.real_broker.reading import Place, messages, versions_reading
from tests.seeds import seeds
from tests.stores import VERSIONS, copy_store, meta

STORES = tuple(
    f"{version}-{kind}"
    for version in VERSIONS
    for kind in ("clean", "killed", "dledger", "dledger-killed", "ipv6")
    if (version, kind) != ("5.1.4", "ipv6")
)
ROUNDS = seeds(1)
DISAGREED = (
    ("5.1.4-killed", 1001),
    ("5.4.0-clean", 1001),
    ("4.9.7-clean", 1003),
    ("5.4.0-dledger-killed", 1002),
    ("4.9.7-clean", 51001),
    ("5.4.0-dledger-killed", 52004),
)
"""Units that a start puts at wrong queue offsets; a wrong topic in a record; log files with wrong names; a unit whose
size reaches over the end of its file; and a whole message in a damaged entry of a file with a wrong name."""
MANY = 1 << 20
_HEADER = re.compile(r"(\d+):(?:topic .*|queueId .*|queueOffset (\d+))", re.DOTALL)


def with_wrong_headers(real: OracleResult) -> set[Place]:
    """Return the places where consumers get a message that names another one, and that other one.

    The header of a record is damaged, or a start has added the unit at a wrong queue offset.
    """
    out: set[Place] = set()
    for queue, reading in real.queues.items():
        for found in filter(None, map(_HEADER.fullmatch, reading.why)):
            out |= {(queue, int(number)) for number in found.groups() if number is not None}
    return out


def difference(name: str, seed: int, folder: Path, servers: OracleServers) -> str:
    """Damage a store; return where the account and the real store disagree, "" if they agree."""
    store = copy_store(name, folder)
    said = many_faults(store, seed)
    dice = random.Random(f"{name} {seed}")
    version, abort = dice.choice(versions_reading(name)), dice.random() < 0.5
    (store / "abort").unlink(missing_ok=True)
    if abort:
        (store / "abort").touch()
    settings = meta(name).oracle_args
    verified = examine(
        opened(store, {key: str(value) for key, value in settings.items()}), VerifyOptions(jobs=1, broker=version)
    )
    account = verified.report.account
    assert account is not None
    server = servers.of(version)
    real = server.answer(server.ask(store, {**settings, "badlist": MANY}, abort=abort))
    shutil.rmtree(store)
    starts = not verified.report.verdict.startswith(f"RocketMQ {version} would not start")
    if starts != (real.load and real.crash is None):  # a start that never ends is a crash here
        return f"{name} {seed}: {version} abort={abort} load {real.load}: {verified.report.headline} {said}"
    if not starts:
        return ""
    served: set[Place] = {(f"{t}/{q}", number) for (t, q), one in account.queues.items() for number in one.served}
    read = set(messages(real))
    more, less = sorted(read - served), sorted(served - read - with_wrong_headers(real))
    if not (more or less):
        return ""
    return (
        f"{name} {seed}: {version} abort={abort}: reads {more[:4]} ({len(more)}), not {less[:4]} ({len(less)}) {said}"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_the_real_broker_serves_what_the_account_says(name: str, tmp_path: Path, oracle_servers: OracleServers) -> None:
    assert [found for seed in ROUNDS if (found := difference(name, seed, tmp_path, oracle_servers))] == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), DISAGREED)
def test_the_real_broker_serves_what_the_account_once_did_not_say(
    name: str, seed: int, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    assert difference(name, seed, tmp_path, oracle_servers) == ""
