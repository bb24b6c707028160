"""Oracles that run during the whole session."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.real_broker.oracle import Oracle
from tests.real_broker.oracle_server import OracleServers
from tests.real_broker.reading import Sounds
from tests.stores import VERSIONS


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all quick tests of the servers in one process, with three JVMs and one cache of sound stores' readings.

    The slow tests are too many for one process.
    """
    for item in items:
        servers = {"oracle_servers", "sounds"} & set(getattr(item, "fixturenames", ()))
        if servers and not item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.xdist_group("oracle servers"))


@pytest.fixture(scope="session")
def oracle_servers(oracle: Callable[[str], Oracle]) -> Iterator[OracleServers]:
    """The oracle for many stores, in one JVM per version; skips the test like `oracle`."""
    for version in VERSIONS:
        oracle(version)
    with OracleServers() as servers:
        yield servers


@pytest.fixture(scope="session")
def sounds(oracle_servers: OracleServers) -> Sounds:
    """The cached results of the real stores for undamaged fixtures."""
    return Sounds(oracle_servers)
