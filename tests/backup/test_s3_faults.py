"""Faults between the tool and object storage: requests are repeated, or there is an error of one line.

In both cases earlier snapshots stay whole, no half object counts, and the next run continues.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rmqstore.backup import s3
from rmqstore.errors import NoSpace
from tests.backup.faulty_proxy import Fault, FaultyProxy, Rule
from tests.backup.growing import GrowingStore, messages_in
from tests.backup.s3_server import BUCKET, SECRET, s3_server
from tests.command import run, run_json

fs = pytest.importorskip("pyarrow.fs")
pytestmark = pytest.mark.xdist_group("s3")


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyProxy]:
    """A server behind a proxy, to which the environment leads."""
    with s3_server(tmp_path_factory.mktemp("server")) as given, pytest.MonkeyPatch.context() as patch:
        proxy = FaultyProxy(urlsplit(given["AWS_ENDPOINT_URL"]).port or 0)
        with proxy.listening() as port:
            for name, value in {**given, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}.items():
                patch.setenv(name, value)
            yield proxy


@pytest.fixture
def repository(proxy: FaultyProxy, request: pytest.FixtureRequest) -> Iterator[str]:
    proxy.done.clear()
    yield f"s3://{BUCKET}/{request.node.name.translate(str.maketrans('[]', '--'))}"
    proxy.rule = lambda number, line: None


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up soon."""
    for name, value in (("_TRIES", 2), ("_REPEATS", 2), ("_CUTS", 2), ("_PAUSE", 0.01)):
        monkeypatch.setattr(s3, name, value)


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the client wait 25 ms before it repeats a request, not up to a second."""
    monkeypatch.setattr(fs, "AwsStandardS3RetryStrategy", fs.AwsDefaultS3RetryStrategy)
    monkeypatch.setattr(s3, "_PAUSE", 0.01)


def every(step: int, *faults: Fault, seed: int = 1) -> Rule:
    """One in `step` requests has one of the faults, but never two in a row."""
    chance = random.Random(seed)
    last = [-2]

    def rule(number: int, line: str) -> Fault | None:
        if number - last[0] < 2 or chance.randrange(step):
            return None
        found = chance.choice(faults)
        if found is Fault.CUT_ANSWER and line.startswith("PUT"):
            return None  # an upload is not repeated when only the answer to a part is cut: see below
        last[0] = number
        return found

    return rule


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("fault", [Fault.SLOW, Fault.CUT_ANSWER, Fault.BUSY, Fault.CUT, Fault.LOST])
def test_requests_are_repeated(fault: Fault, repository: str, proxy: FaultyProxy, tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "store")
    proxy.rule = every(6, fault)
    made = run_json("backup", str(store.root), repository, "--name", "a", exit_code=0)
    store.grow(60)
    made = run_json("backup", str(store.root), repository, "--name", "a", exit_code=0)
    assert made["messages"] == store.count
    assert run("verify", f"{repository}::a", "--jobs", "1").exit_code == 0
    run_json("restore", f"{repository}::a", str(tmp_path / "copy"), exit_code=0)
    assert messages_in(tmp_path / "copy") == store.offsets_before(store.end)
    assert run("snapshots", repository, "--check").exit_code == 0
    assert sum(found is fault for _, found in proxy.done) > 2


@pytest.mark.quick_rows(4)
@pytest.mark.parametrize("at", range(64))
@pytest.mark.parametrize("fault", [Fault.BUSY, Fault.CUT])
def test_a_server_that_is_gone(
    fault: Fault, at: int, repository: str, proxy: FaultyProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From some request on, nothing works any more; later, everything does."""
    impatient(monkeypatch)
    store = GrowingStore(tmp_path / "store")
    assert run("backup", str(store.root), repository, "--name", "a").exit_code == 0
    store.grow(60)
    begin = len(proxy.done)
    proxy.rule = lambda number, line: fault if number >= begin + at else None
    failed = run("backup", str(store.root), repository, "--name", "a")
    if failed.exit_code == 0:
        assert all(found is None for _, found in proxy.done[begin:]) or "DELETE" in proxy.done[-1][0]
    else:
        assert failed.exit_code in (3, 4), failed.output
        assert len(failed.stderr.strip().splitlines()) == 1, failed.stderr
        assert failed.stderr.startswith("error: ")
        assert SECRET not in failed.stderr
    proxy.rule = lambda number, line: None
    monkeypatch.setattr(s3, "_STALE", 0)  # the lock of the run that failed has expired
    assert run("snapshots", repository, "--check").exit_code == 0
    made = run_json("backup", str(store.root), repository, "--name", "a", exit_code=0)
    assert made["messages"] == store.count
    run_json("restore", f"{repository}::a", str(tmp_path / "copy"), exit_code=0)
    assert messages_in(tmp_path / "copy") == store.offsets_before(store.end)


def test_an_upload_that_the_client_takes_for_complete(repository: str, proxy: FaultyProxy, tmp_path: Path) -> None:
    """The client takes a cut answer to a part for a good one; moto completes the object, stricter servers refuse."""
    store = GrowingStore(tmp_path / "store")
    proxy.rule = lambda number, line: Fault.CUT_ANSWER if line.startswith("PUT") and "/log/" in line else None
    first = run("backup", str(store.root), repository, "--name", "a")
    proxy.rule = lambda number, line: None
    if first.exit_code:
        assert (first.exit_code, len(first.stderr.strip().splitlines())) == (4, 1), first.output
        assert run("snapshots", f"{repository}::a").exit_code == 3
        assert run("backup", str(store.root), repository, "--name", "a").exit_code == 0
    assert run("snapshots", repository, "--check").exit_code == 0
    run_json("restore", f"{repository}::a", str(tmp_path / "copy"), exit_code=0)
    assert messages_in(tmp_path / "copy") == store.offsets_before(store.end)


@pytest.mark.parametrize("fault", [Fault.FULL, Fault.OVER_QUOTA])
def test_a_bucket_without_space(fault: Fault, repository: str, proxy: FaultyProxy, tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "store")
    assert run("backup", str(store.root), repository, "--name", "a").exit_code == 0
    store.grow(60)
    proxy.rule = lambda number, line: fault if line.startswith(("PUT", "POST")) and "/log/" in line else None
    failed = run("backup", str(store.root), repository, "--name", "a")
    assert (failed.exit_code, len(failed.stderr.strip().splitlines())) == (NoSpace.exit_code, 1), failed.output
    assert "free space" in failed.stderr
    proxy.rule = lambda number, line: None
    assert run("snapshots", repository, "--check").exit_code == 0
    assert run_json("backup", str(store.root), repository, "--name", "a", exit_code=0)["messages"] == store.count


def test_a_reading_command_ends_with_one_line(
    repository: str, proxy: FaultyProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch)
    store = GrowingStore(tmp_path / "store")
    assert run("backup", str(store.root), repository, "--name", "a").exit_code == 0
    proxy.rule = lambda number, line: Fault.CUT if "/log/" in line else None
    for words in (
        ("verify", f"{repository}::a"),
        ("dump", f"{repository}::a"),
        ("sql", f"{repository}::a", "select count(*) from messages"),
        ("restore", f"{repository}::a", str(tmp_path / "copy")),
        ("snapshots", repository, "--check"),
    ):
        failed = run(*words)
        assert failed.exit_code == 4, (words, failed.output)
        assert len(failed.stderr.strip().splitlines()) == 1, failed.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
