"""Fixtures for all tests (the oracle of a version, a whole broker, a copy of a store), and options of pytest."""

from __future__ import annotations

import functools
import gc
import os
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import memory_disk
from tests.quick_rows import mark_slow
from tests.real_broker.java import BrokerUnavailable, java_classes
from tests.real_broker.oracle import Oracle
from tests.real_broker.whole_broker import WholeBroker
from tests.seeds import NAME as SEED_NAME
from tests.seeds import SEED, examples
from tests.slow_parts import belongs, parse_part
from tests.stores import ROOT, changed_masters, copy_store

# No deadline: on a shared machine, the time of one example varies. Without RMQSTORE_SEED, the examples are the same in
# every run, so that only a change can make a test fail. A test must not set suppress_health_check in its own @settings,
# because that would replace this list and enable the check of time again. Runs with a seed, such as those of the slow
# tests, use Hypothesis' default number of examples.
settings.register_profile(
    "rmqstore",
    deadline=None,
    max_examples=examples(100),
    derandomize=not SEED,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("rmqstore")

BYTECODE = ROOT / ".cache" / "bytecode"
BROKER_TESTS = "tests/real_broker/"
DISK = pytest.StashKey[memory_disk.MemoryDisk]()
FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slow-part",
        metavar="K/N",
        help="run the K-th of N parts of the tests that are slow or made by Hypothesis, and no other test",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if SEED and getattr(config.option, "hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(SEED)
    config.addinivalue_line("markers", "xdist_group(name): tests that one process runs")  # also without xdist
    os.environ["RMQSTORE_SETTINGS"] = ""  # ignore the developer's own defaults
    os.environ["RMQSTORE_LANG"] = "en"  # ignore the developer's locale
    gc.disable()  # while tests are collected: all of them live until the end, so the collector would find nothing
    if not hasattr(config, "workerinput"):
        _work_in_memory(config)
        _keep_bytecode(config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return one process more than cores, because most of the time one process waits for a real broker."""
    return (os.cpu_count() or 1) + 1


def _work_in_memory(config: pytest.Config) -> None:
    if config.option.basetemp is not None or "TMPDIR" in os.environ:
        return
    disk = memory_disk.claim()
    if disk is None:
        return
    (disk.home / "tmp").mkdir()
    config.option.basetemp = str(disk.home / "pytest")
    os.environ["TMPDIR"] = tempfile.tempdir = str(disk.home / "tmp")  # workers and their Javas inherit it

    config.stash[DISK] = disk
    config.stash[FAILED] = False

    def leave() -> None:
        del os.environ["TMPDIR"]
        tempfile.tempdir = None
        disk.leave(keep=config.stash[FAILED])

    config.add_cleanup(leave)


def _keep_bytecode(config: pytest.Config) -> None:
    """Keep the compiled sources for all processes and later runs.

    Container images often set PYTHONDONTWRITEBYTECODE. With it, each worker would compile for 8 s, and compiling would
    take more than half of a command's time.
    """
    names = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
    before = {name: os.environ.pop(name, None) for name in names}
    os.environ["PYTHONPYCACHEPREFIX"] = str(BYTECODE)  # workers and the processes that tests start inherit it

    def leave() -> None:
        del os.environ["PYTHONPYCACHEPREFIX"]
        os.environ.update({name: value for name, value in before.items() if value is not None})

    config.add_cleanup(leave)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if DISK in session.config.stash:
        session.config.stash[FAILED] = exitstatus == pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True)  # before other plugins: xdist reads the groups, and pytest applies `-m 'not slow'`
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Mark the tests in tests/real_broker as `broker`, choose the quick rows, and apply `--slow-part`."""
    mark_slow(items)
    for item in items:
        if item.nodeid.startswith(BROKER_TESTS):
            item.add_marker(pytest.mark.broker)
    if config.option.slow_part:
        try:
            part = parse_part(config.option.slow_part)
        except ValueError as error:
            raise pytest.UsageError(f"--slow-part: {error}") from error
        chosen = [item for item in items if _has_more(item) and belongs(item.nodeid, part)]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen
    return (yield)


def _has_more(item: pytest.Item) -> bool:
    """Return whether a test is slow, or has more examples than a quick run uses."""
    return item.get_closest_marker("slow") is not None or hasattr(getattr(item, "obj", None), "hypothesis")


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
    gc.set_threshold(100_000)  # with Python's threshold, 5% of the time would be spent on objects that are still in use


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.stash.get(FAILED, False):
        home = config.stash[DISK].home
        terminalreporter.write_line(f"the next run removes what failed tests left in memory, in {home}")
    if SEED:
        terminalreporter.write_line(f"random seed {SEED}; the same choices again: {SEED_NAME}={SEED}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if SEED and report.failed:
        report.sections.append(("Random seed", f"{SEED_NAME}={SEED} .venv/bin/pytest '{item.nodeid}'"))
    return report


@pytest.fixture(scope="session", autouse=True)
def one_process_per_command() -> Iterator[None]:
    """Let commands inside the test process use one process by default, because pytest-xdist already uses all cores.

    Commands that run in their own process use all cores, as they do for users.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
        yield


@pytest.fixture(autouse=True)
def no_search_for_other_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Skip the search for processes that use a store: it takes longer than most tests, and usually finds none.

    Tests in which another process uses the store have the marker `pytest.mark.other_processes`.
    """
    if request.node.get_closest_marker("other_processes"):
        yield
        return
    from rmqstore.files import users
    from rmqstore.repair.journal import lock

    with pytest.MonkeyPatch.context() as patch:  # not `monkeypatch`: a test's own patches must end before `tmp_path`
        for module in (lock, users):
            patch.setattr(module, "find_users", lambda places, files: users.Users())
        yield


@pytest.fixture(scope="session", autouse=True)
def cached_key_hashes() -> Iterator[None]:
    """Cache the key hashes: many keys are not ASCII, and each verification would hash them again in Python."""
    from rmqstore.formats import index

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "key_hash", functools.lru_cache(1 << 16)(index.key_hash))
        yield


@pytest.fixture(scope="session", autouse=True)
def unchanged_masters() -> Iterator[None]:
    """Check that no test has changed a master copy of a store, which other tests read."""
    yield
    assert changed_masters() == [], "a test wrote into a master copy; use copy_store(), and make clean now"


@pytest.fixture(scope="session", autouse=True)
def interrupts_reach_child_processes() -> None:
    """Restore the default signal handlers: a background job ignores SIGINT or SIGHUP, and its children inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def oracle() -> Callable[[str], Oracle]:
    """Return a function: `oracle("5.4.0")` starts the store classes of that version, or skips the test."""

    def of_version(version: str) -> Oracle:
        need_classes(version)
        return Oracle(version)

    return of_version


@pytest.fixture
def whole_broker() -> Iterator[Callable[..., WholeBroker]]:
    """Yield a function: `whole_broker("5.4.0", store, conf)` creates a WholeBroker, which is killed after the test."""
    made: list[WholeBroker] = []

    def of_version(version: str, store: Path, conf: Mapping[str, str] | None = None, **own: str) -> WholeBroker:
        need_classes(version)
        made.append(WholeBroker(version, store, conf, own=own, name_server=own.get("namesrvAddr")))
        return made[-1]

    yield of_version
    for broker in made:
        broker.kill()


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A writable copy of the store that the constant STORE of a test module names; without one, of 5.4.0-clean."""
    return copy_store(getattr(request.module, "STORE", "5.4.0-clean"), tmp_path)


def need_classes(version: str) -> None:
    """Skip the test if the classes of a RocketMQ version are not available; fail instead if CI requires them."""
    try:
        java_classes(version)
    except BrokerUnavailable as missing:
        if os.environ.get("RMQSTORE_REQUIRE_BROKER") == "1":
            pytest.fail(f"RMQSTORE_REQUIRE_BROKER=1, but {missing}")
        pytest.skip(f"real RocketMQ: {missing}")
