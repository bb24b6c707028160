"""A repository in object storage, with a real S3 server."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rmqstore.backup import s3
from rmqstore.backup.log_copy import LogCopier
from rmqstore.backup.s3 import S3Storage
from rmqstore.errors import CouldNotCheck, NotReadable, OutputExists, Refused
from tests.backup.growing import GrowingStore, messages_in
from tests.backup.s3_server import BUCKET, KEY, SECRET, s3_server
from tests.command import run, run_json
from tests.damage import garble

pytest.importorskip("pyarrow.fs")
pytestmark = pytest.mark.xdist_group("s3")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    with s3_server(tmp_path_factory.mktemp("server")) as given:
        yield given


@pytest.fixture
def repository(server: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{request.node.name.strip(']').replace('[', '-')}"


def test_back_up_check_restore(repository: str, tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "store")
    first = run_json("backup", str(store.root), repository, "--name", "a", exit_code=0)
    again = run_json("backup", str(store.root), repository, "--name", "a", exit_code=0)
    assert again["new_bytes"] == 0
    store.grow(70)
    store.expire(1)
    made = run_json("backup", str(store.root), repository, "--name", "a", exit_code=0)
    assert isinstance(made["log"], dict)
    assert made["log"]["to"] == store.end
    assert run("snapshots", repository, "--check").exit_code == 0
    assert run_json("restore", f"{repository}::a", str(tmp_path / "copy"), exit_code=0)["counts"] == {}
    assert messages_in(tmp_path / "copy") == store.offsets_before(store.end, made["log"]["from"])
    result = run("restore", f"{repository}::a@{first['snapshot']}", str(tmp_path / "first"))
    assert result.exit_code == 0, result.output
    forgotten = run_json("snapshots", repository, "--forget", "--keep-bytes", "1", exit_code=0)["stores"]
    assert isinstance(forgotten, list)
    assert len(forgotten[0]["forgotten"]) == 2
    assert run("snapshots", repository, "--check").exit_code == 0


def test_a_snapshot_in_object_storage_is_a_store(repository: str, tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "store")
    good = store.log_files[0].read_bytes()
    assert run("backup", str(store.root), repository, "--name", "a").exit_code == 0
    assert run("verify", f"{repository}::a").exit_code == 0
    assert run("verify", f"{repository}::a", "--jobs", "2").exit_code == 0
    rows = run("dump", f"{repository}::a", "--format", "ndjson").stdout.splitlines()
    assert len(rows) == store.count
    for command in ("verify", "info", "du"):
        assert run_json(command, f"{repository}::a", exit_code=0)["store"] == f"{repository}::a"
    assert run("report", f"{repository}::a", "-o", str(tmp_path / "report.html")).exit_code == 0
    assert f"{repository}::a" in (tmp_path / "report.html").read_text()
    garble(store.log_files[0], 900, 2000)
    assert run("recover", str(store.root), "--replica", f"{repository}::a", "--apply").exit_code == 0
    assert store.log_files[0].read_bytes() == good
    for path in tmp_path.rglob("*"):  # also the plan and the journal
        assert not path.is_file() or not {SECRET.encode(), KEY.encode()} & set(
            re.findall(rb"[\w-]+", path.read_bytes())
        )


def test_a_lost_object_is_found(repository: str, tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "store")
    assert run("backup", str(store.root), repository, "--name", "a").exit_code == 0
    storage = S3Storage(repository)
    storage.delete("a/log/commitlog/00000000000000000000")
    assert run("snapshots", repository, "--check").exit_code == 1
    assert run("restore", f"{repository}::a", str(tmp_path / "copy")).exit_code == 3
    assert not (tmp_path / "copy").exists()


def test_a_killed_upload_leaves_no_object(repository: str, server: Mapping[str, str]) -> None:
    program = (
        "import os, sys\n"
        "from rmqstore.backup.s3 import S3Storage\n"
        "writer = S3Storage(sys.argv[1]).writer('a/log/commitlog/00000000000000000000')\n"
        "for _ in range(4): writer.write(os.urandom(6 << 20))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, repository], check=False, timeout=120)
    assert done.returncode == -9
    assert list(S3Storage(repository).objects("a")) == []


def test_one_writer_at_a_time(repository: str) -> None:
    storage, other = S3Storage(repository), S3Storage(repository)
    with storage.locked("a/lock"), pytest.raises(Refused, match="another process"), other.locked("a/lock"):
        pass
    with other.locked("a/lock"):
        pass


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_wrong_clock_breaks_no_lock(hours: int, repository: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = time.time
    with S3Storage(repository).locked("a/lock"):
        monkeypatch.setattr(time, "time", lambda: right() + hours * 3600)
        with pytest.raises(Refused, match="another process"), S3Storage(repository).locked("a/lock"):
            pass


def test_a_backup_that_has_lost_its_lock_makes_no_snapshot(
    repository: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a computer that slept for an hour, while another process made a snapshot."""
    store = GrowingStore(tmp_path / "store")
    copy = LogCopier.copy

    def slept(self: LogCopier) -> object:
        done = copy(self)
        monkeypatch.setattr(LogCopier, "copy", copy)
        monkeypatch.setattr(s3, "_STALE", 0)
        assert run("backup", str(store.root), repository, "--name", "a").exit_code == 0
        return done

    monkeypatch.setattr(LogCopier, "copy", slept)
    late = run("backup", str(store.root), repository, "--name", "a")
    assert (late.exit_code, len(late.stderr.strip().splitlines())) == (5, 1), late.output
    assert [len(one["snapshots"]) for one in run_json("snapshots", repository, "--check", exit_code=0)["stores"]] == [1]  # type: ignore[attr-defined]


def test_objects_are_created_once(repository: str) -> None:
    storage = S3Storage(repository)
    storage.create("a/x", b"1")
    with pytest.raises(OutputExists):
        storage.create("a/x", b"2")
    assert storage.read("a/x") == b"1"
    storage.replace("a/x", b"22")
    assert (storage.read("a/x"), storage.size("a/x"), storage.size("a/y")) == (b"22", 2, None)


def test_errors_name_no_credentials(repository: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = GrowingStore(tmp_path / "store", 5)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret")
    result = run("backup", str(store.root), repository)
    assert result.exit_code in (0, 3, 4)  # moto accepts any credentials
    assert KEY not in result.output
    assert "wrong-secret" not in result.output
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    assert run("backup", str(store.root), "s3://no-such-bucket/x").exit_code == 3
    assert run("backup", str(store.root), "s3://key:secret@bucket/x").exit_code == 2
    with pytest.raises(NotReadable):
        S3Storage("s3://no-such-bucket").exists()
    assert run("backup", str(store.root), repository, "--name", "a").exit_code == 0
    storage = S3Storage(repository)
    for entry in storage.objects("a"):
        data = storage.read(entry.key) or b""
        assert SECRET.encode() not in data
        assert not entry.key.endswith(".json") or json.loads(data)


def test_the_memory_of_an_upload_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "_IN_FLIGHT", 1000)

    class SlowStream:
        in_flight = most = 0

        def write(self, data: bytes) -> None:
            self.in_flight += len(data)
            self.most = max(self.most, self.in_flight)

        def flush(self) -> None:
            self.in_flight = 0

    stream = SlowStream()
    writer = s3.S3Writer(S3Storage("s3://bucket/x"), "key", stream)
    for size in random.Random(3).choices(range(300), k=200):
        writer.write(bytes(size))
    assert 1000 < stream.most < 1300


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "_BLOCK", 100)
    monkeypatch.setattr(s3, "_LONG", 20)


@pytest.mark.usefixtures("small_blocks")
def test_reading_ahead_returns_the_same_bytes() -> None:
    """Scans in steps of any size, jumps, look-ups in between, and another object."""
    chance = random.Random(5)
    objects = {name: chance.randbytes(2345) for name in "ab"}
    reader = s3._ReadAhead(lambda key, size, at: objects[key][at : at + size])

    def read(key: str, size: int, at: int) -> int:
        found = bytes(reader.read(key, size, at))
        assert objects[key].startswith(found, min(at, 2345)) and len(found) <= size
        assert found or at >= 2345
        return len(found)

    key, at = "a", 0
    for _ in range(3000):
        if chance.random() < 0.05:
            key, at = chance.choice("ab"), chance.randrange(2500)
        read(chance.choice("ab"), chance.randrange(1, 20), chance.randrange(2500))
        at += read(key, chance.randrange(1, 150), at)


@pytest.mark.usefixtures("small_blocks")
def test_a_scan_has_requested_the_next_blocks() -> None:
    requested: list[int] = []
    failing: set[int] = set()

    def fetch(key: str, size: int, at: int) -> bytes:
        requested.append(at)
        if at in failing:
            raise CouldNotCheck("cut")
        return bytes(size)

    reader = s3._ReadAhead(fetch)
    reader.read("a", 50, 0)
    assert requested == [0]
    reader.read("a", 50, 50)
    reader._blocks[-1][1].result()
    assert sorted(requested) == [0, 50, 150, 250, 350]
    failing.add(450)
    assert [len(reader.read("a", 100, at)) for at in (100, 150, 250)] == [50, 100, 100]
    assert [len(reader.read("a", 100, at)) for at in (350,)] == [100]
    with pytest.raises(CouldNotCheck):
        reader.read("a", 100, 450)
    failing.clear()
    assert len(reader.read("a", 100, 450)) == 100
