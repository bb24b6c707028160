"""A DLedger entry with a damaged header: the account says how many messages the real broker does not serve any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from tests import damage
from tests.planning import opened
from tests.real_broker.oracle_server import OracleServers
from tests.real_broker.reading import messages
from tests.repair.salvaging import rows
from tests.stores import VERSIONS, copy_store, meta

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("part", [0.5, 0.7, 0.95])
@pytest.mark.parametrize("abort", [False, True])
def test_one_number(version: str, part: float, abort: bool, tmp_path: Path, oracle_servers: OracleServers) -> None:
    name = f"{version}-dledger"
    sound, store = copy_store(name, tmp_path / "sound"), copy_store(name, tmp_path / "damaged")
    found = rows(store)
    row = found[int(len(found) * part)]
    damage.overwrite(row.path, row.at - row.body_offset, b"\xff" * 8)
    if abort:
        (store / "abort").touch()
    settings = meta(name).broker_conf
    account = examine(opened(store, settings), VerifyOptions(jobs=1, broker=version)).report.account
    assert account is not None
    before, after = (oracle_servers.load(version, each, settings) for each in (sound, store))
    was, now = messages(before), messages(after)
    fewer = sum(place not in now for place in was)
    assert fewer == account.lost_already + account.lost_at_next_start + account.undelivered
