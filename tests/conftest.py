"""What tests ask for by name: the oracle of a version, a whole broker, a copy of a store."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.real_broker.java import BrokerUnavailable, java_classes
from tests.real_broker.oracle import Oracle
from tests.real_broker.whole_broker import WholeBroker
from tests.stores import changed_masters, copy_store

# Machines are shared and slow at times: how long an example, or making one, takes says nothing. Under CI the examples
# are the same in every run, so that a change is red for what it did; elsewhere they are new ones each time. A test's
# own @settings(suppress_health_check=…) would replace this list and bring the timed check back.
settings.register_profile(
    "rmqstore",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("rmqstore")

BROKER_TESTS = Path(__file__).parent / "broker"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever lies in tests/real_broker runs real RocketMQ: it carries the marker without having to say so."""
    for item in items:
        if item.path.is_relative_to(BROKER_TESTS):
            item.add_marker(pytest.mark.broker)


@pytest.fixture(scope="session", autouse=True)
def masters_stay_as_they_are() -> Iterator[None]:
    """A test that changed a master copy would spoil every later test that reads it."""
    yield
    assert changed_masters() == [], "a test wrote into a master copy; use copy_store(), and make clean now"


@pytest.fixture(scope="session", autouse=True)
def interrupts_reach_child_processes() -> None:
    """A background job of a shell ignores Ctrl-C, and so would every process that a test starts and interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def oracle() -> Callable[[str], Oracle]:
    """`oracle("5.4.0")` gives the store classes of that version, or skips the test and says why."""

    def of_version(version: str) -> Oracle:
        need_classes(version)
        return Oracle(version)

    return of_version


@pytest.fixture
def whole_broker() -> Iterator[Callable[..., WholeBroker]]:
    """`whole_broker("5.4.0", store, conf)` makes a WholeBroker; whatever still runs after the test is killed."""
    made: list[WholeBroker] = []

    def of_version(version: str, store: Path, conf: Mapping[str, str] | None = None, **own: str) -> WholeBroker:
        need_classes(version)
        made.append(WholeBroker(version, store, conf, own=own))
        return made[-1]

    yield of_version
    for broker in made:
        broker.kill()


@pytest.fixture
def store_copy(tmp_path: Path) -> Callable[[str], Path]:
    """`store_copy("5.4.0-killed")` gives a writable copy of that store."""
    return lambda name: copy_store(name, tmp_path)


def need_classes(version: str) -> None:
    """Skips what needs real RocketMQ where it cannot run; where CI promises Java and Maven, it fails instead."""
    try:
        java_classes(version)
    except BrokerUnavailable as missing:
        if os.environ.get("RMQSTORE_REQUIRE_BROKER") == "1":
            pytest.fail(f"RMQSTORE_REQUIRE_BROKER=1, but {missing}")
        pytest.skip(f"real RocketMQ: {missing}")
