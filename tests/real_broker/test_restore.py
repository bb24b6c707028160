"""Real classes and whole brokers read restored stores: exactly the messages up to the cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import run_json
from tests.real_broker.oracle_server import OracleServers
from tests.real_broker.reading import messages, unreadable
from tests.stores import meta, unpack


@pytest.mark.parametrize(
    "name",
    [
        "5.4.0-clean",
        "4.9.7-killed",
        pytest.param("5.4.0-dledger", marks=pytest.mark.slow),
        pytest.param("5.1.4-dledger-mixed", marks=pytest.mark.slow),
        pytest.param("5.5.1-killed", marks=pytest.mark.slow),
    ],
)
def test_the_real_store_reads_exactly_the_messages_up_to_the_cut(
    name: str, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    made, store, copy = meta(name), unpack(name), tmp_path / "copy"
    end = run_json("backup", str(store), str(tmp_path / "repo"), "--name", "a", exit_code=0)["log"]
    assert isinstance(end, dict)
    at = end["to"] * 2 // 3
    row = run_json("restore", f"{tmp_path / 'repo'}::a", str(copy), "--at", str(at), exit_code=0)
    assert isinstance(row["log"], dict)
    seen = oracle_servers.load(made.version, copy, made.oracle_args)
    assert (seen.load, seen.crash) == (True, None)
    assert unreadable(seen) == {}
    original = oracle_servers.load(made.version, store, made.oracle_args)
    found, there = messages(seen), messages(original)
    assert found
    assert found.items() <= there.items()
    assert len(found) == row["messages"]
    assert seen.readable < original.readable
    assert (seen.max_phy or 0) <= at
