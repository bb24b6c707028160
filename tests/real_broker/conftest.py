"""Oracles that stay for the whole run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.real_broker.oracle import Oracle
from tests.real_broker.oracle_server import OracleServers
from tests.real_broker.reading import Sounds
from tests.stores import VERSIONS


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One process runs the quick tests of the servers: three Javas, and what they read from each sound store.

    The slow tests are too many for one.
    """
    for item in items:
        servers = {"oracle_servers", "sounds"} & set(getattr(item, "fixturenames", ()))
        if servers and not item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.xdist_group("oracle servers"))


@pytest.fixture(scope="session")
def oracle_servers(oracle: Callable[[str], Oracle]) -> Iterator[OracleServers]:
    """The oracle for many stores, in one JVM per version; skips as `oracle` does."""
    for version in VERSIONS:
        oracle(version)
    with OracleServers() as servers:
        yield servers


@pytest.fixture(scope="session")
def sounds(oracle_servers: OracleServers) -> Sounds:
    """What the real stores read from undamaged fixtures, each asked once."""
    return Sounds(oracle_servers)
