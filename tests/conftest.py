"""What tests ask for by name: the oracle of a version, a whole broker, a copy of a store."""

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

# Machines are shared and slow at times, so the time of one example says nothing. Without RMQSTORE_SEED the examples are
# the same in every run, so that a red run is red because of the change. A test's own @settings(suppress_health_check=…)
# would replace this list and bring the timed check back. Runs with a seed, as those of the slow tests, take Hypothesis'
# own number of examples.
settings.register_profile(
    "rmqstore",
    deadline=None,
    max_examples=examples(100),
    derandomize=not SEED,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("rmqstore")

BYTECODE = ROOT / ".cache" / "bytecode"
BROKER_TESTS = Path(__file__).parent / "real_broker"
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
    os.environ["RMQSTORE_SETTINGS"] = ""  # the developer's own defaults are not those that are tested
    os.environ["RMQSTORE_LANG"] = "en"  # whatever the developer's locale says
    gc.disable()  # until all tests are collected: none of them goes before the end
    if not hasattr(config, "workerinput"):
        _work_in_memory(config)
        _keep_bytecode(config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than cores: much of the time one of them waits for a real broker."""
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
    """Sources are compiled once, not by every process and every run.

    Images for containers set PYTHONDONTWRITEBYTECODE: there, each worker would compile for 8 s, and compiling would be
    more than half of a command's time.
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


@pytest.hookimpl(wrapper=True)  # before all others: xdist reads the groups, pytest obeys `-m 'not slow'`
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Tests in tests/real_broker get the marker `broker`; rows are chosen, and `--slow-part` makes its choice."""
    mark_slow(items)
    for item in items:
        if item.path.is_relative_to(BROKER_TESTS):
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
    """Whether a test is slow, or has more examples than a quick run tries."""
    return item.get_closest_marker("slow") is not None or hasattr(getattr(item, "obj", None), "hypothesis")


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


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
    """A command inside a test uses one process unless `--jobs` says more: pytest-xdist keeps the cores busy already.

    Commands that run in a process of their own use all cores, as for users.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
        yield


@pytest.fixture(autouse=True)
def no_search_for_other_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """No process uses a test's own copy. Reading the maps of all processes costs more than most tests.

    `pytest.mark.other_processes` is for tests in which another process does use the store.
    """
    if request.node.get_closest_marker("other_processes"):
        yield
        return
    from rmqstore.files.in_use import users
    from rmqstore.repair.journal import liveness

    with pytest.MonkeyPatch.context() as patch:  # not `monkeypatch`: a test's own patches must end before `tmp_path`
        for module in (liveness, users):
            patch.setattr(module, "find_users", lambda places, files: users.Users())
        yield


@pytest.fixture(scope="session", autouse=True)
def keys_are_hashed_once() -> Iterator[None]:
    """The keys of the stores, many of them not in ASCII, would be hashed in Python by every verification."""
    from rmqstore.formats import index

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "key_hash", functools.lru_cache(1 << 16)(index.key_hash))
        yield


@pytest.fixture(scope="session", autouse=True)
def masters_stay_as_they_are() -> Iterator[None]:
    """A test that changed a master copy would spoil every later test that reads it."""
    yield
    assert changed_masters() == [], "a test wrote into a master copy; use copy_store(), and make clean now"


@pytest.fixture(scope="session", autouse=True)
def interrupts_reach_child_processes() -> None:
    """A background job ignores Ctrl-C, or under nohup a hang-up, and so would every process that a test starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


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
        made.append(WholeBroker(version, store, conf, own=own, name_server=own.get("namesrvAddr")))
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
