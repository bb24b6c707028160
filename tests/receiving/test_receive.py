"""`rmqstore receive` against masters in this process: what arrives, what is reported, what is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from rmqstore.backup.repository import Repository
from rmqstore.backup.storage import LocalStorage
from rmqstore.formats.message import HEAD
from rmqstore.receiving import receive as loop
from rmqstore.receiving.spool import Spool
from rmqstore.remoting import requests
from rmqstore.remoting.connection import ConnectionLost
from rmqstore.remoting.ha import PASSIVE
from tests.command import run
from tests.receiving.fake_master import SIZE, FakeMaster, log_of

NAME = "a"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_STEP", 0.02)
    monkeypatch.setattr(loop, "_SILENCE", 0.5)
    monkeypatch.setattr(loop, "_ASK", 0.1)
    monkeypatch.setattr(loop.Follower, "_pause", staticmethod(lambda seconds: iter([None])))
    monkeypatch.setattr(requests, "_SECONDS", 0.5)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return tmp_path / "repo"


def receive(master: FakeMaster, repo: Path, *more: str, exit_code: int = 0) -> dict[str, Any]:
    result = run("receive", master.address, str(repo), "--name", NAME, "--until-caught-up", "--json", *more)
    assert result.exit_code == exit_code, f"{result.exit_code}: {result.output} {result.exception!r}"
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def received(repo: Path, folder: str = "receiving") -> bytes:
    """Return the bytes of all files of the log that has arrived."""
    return b"".join(path.read_bytes() for path in sorted((repo / NAME / folder / "commitlog").iterdir()))


def is_log(data: bytes, master: FakeMaster) -> bool:
    return data[: len(master.log)] == master.log and not any(data[len(master.log) :])


@pytest.mark.parametrize("begin", [0, 5 * SIZE])
def test_the_whole_log_arrives_and_becomes_a_snapshot(begin: int, repo: Path) -> None:
    with FakeMaster(log_of(100, begin=begin), begin=begin) as master:
        row = receive(master, repo)
        assert is_log(received(repo), master)
        assert row["log"] == {"from": begin, "to": master.end, "last_timestamp": 1_700_000_000_000}
        assert (row["messages"], row["lag_bytes"], row["damaged"], row["branches"]) == (100, 0, [], [])
        assert row["master"] == {"name": "fake", "cluster": "Cluster", "role": "ASYNC_MASTER", "version": "5.4.0"}
    shown = json.loads(run("snapshots", str(repo), "--json").stdout)["stores"][0]["snapshots"][-1]
    assert (shown["log"]["from"], shown["log"]["to"], shown["messages"]) == (begin, master.end, 100)
    assert run("snapshots", str(repo), "--check").exit_code == 0
    restored = repo.parent / "restored"
    assert run("restore", f"{repo}::{NAME}", str(restored)).exit_code == 0
    names = [path.name for path in sorted(restored.rglob("*")) if path.is_file() and "consumequeue" not in path.parts]
    assert "received.json" not in names
    data = b"".join(path.read_bytes() for path in sorted((restored / "commitlog").iterdir()))
    assert is_log(data, master)


def test_a_passive_client_reports_where_to_begin_and_then_nothing_that_counts(repo: Path) -> None:
    with FakeMaster(log_of(30)) as master:
        receive(master, repo)
        master.add(30)
        receive(master, repo)
    first, second = master.reports
    assert first[0] == 1  # 0 would mean the last file
    assert 0 < second[0] < master.end
    assert {*first[1:], *second[1:]} == {PASSIVE}


def test_ack_reports_only_what_is_on_disk(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: set[int] = set()
    flush = Spool.flush

    def flushing(spool: Spool) -> None:
        flush(spool)
        flushed.add(spool.flushed)

    monkeypatch.setattr(Spool, "flush", flushing)
    with FakeMaster(log_of(100)) as master:
        master.rate = 0.01
        result = run("receive", master.address, str(repo), "--name", NAME, "--until-caught-up", "--ack")
        assert result.exit_code == 0
        assert "producers get SEND_OK" in result.stderr
    (said,) = master.reports
    assert said[0] == 1
    assert said[1:] == sorted(said[1:])
    assert len(set(said)) > 2
    assert all(one in flushed or one % SIZE == 0 for one in said[1:])  # a full file is flushed at its end
    assert said[-1] <= master.end
    assert PASSIVE not in said


def test_a_lost_connection_is_made_again_and_the_log_goes_on(repo: Path) -> None:
    with FakeMaster(log_of(400)) as master:
        master.rate = 0.005
        stop = threading.Event()

        def cut() -> None:
            for _ in range(3):
                time.sleep(0.15)
                master.cut()
            master.rate = 0
            stop.set()

        threading.Thread(target=cut).start()
        row = receive(master, repo)
        stop.wait(30)
        assert is_log(received(repo), master)
        assert row["reconnects"] >= 1
        assert row["messages"] == 400


def test_a_question_that_finds_no_connection_is_asked_again(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    mark = loop.Follower.mark

    def failing(follower: loop.Follower) -> loop.OffsetsAt:
        asked.append(1)
        if len(asked) == 1:
            raise ConnectionLost("lost")
        return mark(follower)

    monkeypatch.setattr(loop.Follower, "mark", failing)
    with FakeMaster(log_of(50)) as master:
        assert receive(master, repo)["messages"] == 50
    assert len(asked) == 2


def waited_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.other_processes
def test_a_kill_at_any_time_loses_nothing_and_a_signal_ends_the_service(repo: Path) -> None:
    spool = repo / NAME / "receiving" / "commitlog"

    def here() -> int:
        return len(received(repo).rstrip(b"\0")) if spool.exists() else 0

    with FakeMaster(log_of(3000)) as master:
        master.rate = 0.004
        words = [sys.executable, "-m", "rmqstore", "receive", master.address, str(repo), "--name", NAME]
        for _ in range(3):
            before = here()
            with subprocess.Popen([*words, "--every", "1s"], stdout=subprocess.DEVNULL) as process:
                waited_for(lambda before=before: here() > before + SIZE)  # type: ignore[misc]
                process.kill()
        master.rate = 0
        with subprocess.Popen([*words, "--every", "1s", "--json"], stdout=subprocess.PIPE, text=True) as last:
            assert last.stdout is not None
            rows = [json.loads(last.stdout.readline())]
            master.add(200)
            while rows[-1]["log"]["to"] < master.end:
                rows.append(json.loads(last.stdout.readline()))
            last.send_signal(signal.SIGTERM)
            assert last.wait(60) == 143
        assert is_log(received(repo), master)
        assert len({row["snapshot"] for row in rows}) == len(rows) > 1
        assert all((row["damaged"], row["branches"]) == ([], []) for row in rows)
    restored = repo.parent / "restored"
    assert run("restore", f"{repo}::{NAME}", str(restored)).exit_code == 0
    assert is_log(b"".join(path.read_bytes() for path in sorted((restored / "commitlog").iterdir())), master)


def test_an_empty_master_is_no_error(repo: Path) -> None:
    with FakeMaster(bytearray()) as master:
        row = receive(master, repo)
        assert (row["log"], row["snapshot"], row["messages"]) == (None, None, 0)
        master.add(3)
        assert receive(master, repo)["messages"] == 3


def a_shorter_log(master: FakeMaster) -> None:
    del master.log[master.log.index(b"m50") - HEAD.size :]


def another_log(master: FakeMaster) -> None:
    master.log = log_of(120, mark="other")


def an_expired_log(master: FakeMaster) -> None:
    master.add(100)
    gone = (master.end // SIZE) * SIZE
    del master.log[: gone - master.begin]
    master.begin = gone


@pytest.mark.parametrize("change", [a_shorter_log, another_log, an_expired_log])
def test_another_history_is_refused_and_both_are_kept_if_that_is_asked_for(
    change: Callable[[FakeMaster], None], repo: Path
) -> None:
    with FakeMaster(log_of(100)) as master:
        receive(master, repo)
        before, old = received(repo), bytes(master.log)
        change(master)
        row = receive(master, repo, exit_code=5)
        assert row["error"]["code"] == "other-history"
        assert "--new-history" in row["error"]["advice"]
        assert received(repo) == before
        row = receive(master, repo, "--new-history", exit_code=1)
        assert is_log(received(repo), master)
        aside = Path(row["set_aside"])
        assert aside.parent == repo / NAME
        assert received(repo, aside.name)[: len(old)] == old
        assert row["branches"] != []
    assert run("snapshots", str(repo), "--check").exit_code == 0
    first = json.loads(run("snapshots", str(repo), "--json").stdout)["stores"][0]["snapshots"][0]["snapshot"]
    assert run("restore", f"{repo}::{NAME}@{first}", str(repo.parent / "old")).exit_code == 0
    data = b"".join(path.read_bytes() for path in sorted((repo.parent / "old" / "commitlog").iterdir()))
    assert data[: len(old)] == old


@pytest.mark.parametrize("number", [0, 50])
def test_a_damaged_record_is_kept_as_it_is_and_named_by_every_run(number: int, repo: Path) -> None:
    with FakeMaster(log_of(100)) as master:
        at = master.log.index(b"m%d" % number)
        master.log[at] ^= 1
        row = receive(master, repo, exit_code=1)
        assert is_log(received(repo), master)
        assert [one["start"] for one in row["damaged"]] == [at - HEAD.size]
        master.add(20)
        again = receive(master, repo, exit_code=1)
        assert (again["damaged"], again["messages"]) == (row["damaged"], 20)
        assert is_log(received(repo), master)


def test_bytes_that_are_no_record_do_not_end_the_copy(repo: Path) -> None:
    with FakeMaster(log_of(100)) as master:
        at = master.log.index(b"m9") - HEAD.size
        master.log[at : at + 90] = b"\xff" * 90
        row = receive(master, repo, exit_code=1)
        assert is_log(received(repo), master)
        assert row["damaged"] == [{"start": at, "stop": SIZE}]
        master.add(20)
        assert receive(master, repo, exit_code=1)["messages"] == 20
        assert is_log(received(repo), master)


def test_a_log_that_does_not_begin_with_a_record_is_not_taken(repo: Path) -> None:
    with FakeMaster(bytearray(b"\1" * 2000)) as master:
        row = receive(master, repo, exit_code=4)
        assert "does not begin with a record" in row["error"]["message"]


@pytest.mark.parametrize("torn", [1, 40, 700])
def test_what_a_crash_tore_is_received_again(torn: int, repo: Path) -> None:
    with FakeMaster(log_of(100)) as master:
        receive(master, repo)
        last = max((repo / NAME / "receiving" / "commitlog").iterdir())
        end = master.end - int(last.name)
        with last.open("r+b") as file:
            file.seek(max(0, end - torn))
            file.write(b"\xa5" * (torn + 100))
        row = receive(master, repo)
        assert is_log(received(repo), master)
        assert 0 < row["received_bytes"] <= torn + 200 or torn > end


def test_files_that_the_master_has_deleted_go_when_a_snapshot_has_them(repo: Path) -> None:
    with FakeMaster(log_of(200)) as master:
        receive(master, repo)
        del master.log[: 2 * SIZE]
        master.begin = 2 * SIZE
        master.add(10)
        receive(master, repo, "--keep", "999d")
        starts = [int(path.name) for path in sorted((repo / NAME / "receiving" / "commitlog").iterdir())]
        assert starts[0] == 2 * SIZE
        assert is_log(received(repo), master)
    assert run("snapshots", str(repo), "--check").exit_code == 0


# --- other brokers, and other programs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "settings", "words"),
    [
        ("V5_4_0", {"brokerRole": "SLAVE", "brokerId": "1"}, "is a slave"),
        ("V4_9_7", {"enableDLegerCommitLog": "true"}, "DLedger"),
        ("V5_5_1", {"enableControllerMode": "true"}, "controller mode"),
        ("V4_9_7", {"brokerRole": "SYNC_MASTER"}, "every send would wait"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    version: str, settings: dict[str, str], words: str, repo: Path
) -> None:
    with FakeMaster(log_of(5), version=version, settings=settings) as master:
        row = receive(master, repo, exit_code=5)
        assert words in row["error"]["message"]
        assert master.reports == []
        assert not any((repo / NAME / "receiving" / "commitlog").iterdir())


@pytest.mark.parametrize("more", ["--sync-master", "--ack"])
def test_a_sync_master_of_4_x_is_followed_if_that_is_asked_for(more: str, repo: Path) -> None:
    with FakeMaster(log_of(5), version="V4_9_7", settings={"brokerRole": "SYNC_MASTER"}) as master:
        assert receive(master, repo, more)["messages"] == 5


def test_the_log_of_another_broker_needs_another_name(repo: Path) -> None:
    with FakeMaster(log_of(5)) as master, FakeMaster(log_of(9), settings={"brokerName": "other"}) as other:
        receive(master, repo)
        before = received(repo)
        assert "is the log of Cluster/fake" in receive(other, repo, exit_code=5)["error"]["message"]
        assert received(repo) == before


def says(data: bytes) -> Callable[[socket.socket], None]:
    def serve(client: socket.socket) -> None:
        client.sendall(data)
        while client.recv(100):
            pass

    return serve


def closes(client: socket.socket) -> None:
    client.recv(8)


def says_nothing(client: socket.socket) -> None:
    while client.recv(100):
        pass


def drips(client: socket.socket) -> None:
    while True:
        client.sendall(b"\0")
        time.sleep(0.05)


HOSTILE = {
    "http": says(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "huge": says(struct.pack(">qi", 1, 0x7FFFFFFF) + b"x" * 5000),
    "negative": says(struct.pack(">qi", 1, -5)),
    "elsewhere": says(struct.pack(">qi", 999, 20) + b"x" * 20),
    "closes": closes,
    "silent": says_nothing,
    "zeros": says(bytes(1 << 16)),
    "drips": drips,
}


@pytest.fixture(params=HOSTILE)
def hostile(request: pytest.FixtureRequest) -> Iterator[Callable[[socket.socket], None]]:
    yield HOSTILE[request.param]


def one_line(result: Result) -> None:
    """Check that a command has ended with one error, after at most a warning for each try."""
    assert result.exit_code == 4, result.output
    lines = result.stderr.splitlines()
    assert [line for line in lines if not line.startswith("warning: ")] == [lines[-1]], lines
    assert lines[-1].startswith("error: ")


def test_another_program_at_the_ha_port(hostile: Callable[[socket.socket], None], repo: Path) -> None:
    with FakeMaster(log_of(50)) as master:
        master.hostile = hostile
        one_line(run("receive", master.address, str(repo), "--name", NAME, "--until-caught-up"))
        assert not any(received(repo))
        master.hostile = None
        receive(master, repo)
        assert is_log(received(repo), master)


def test_another_program_at_the_broker_s_port(hostile: Callable[[socket.socket], None], repo: Path) -> None:
    with FakeMaster(log_of(50)) as master:
        master.answer = hostile
        one_line(run("receive", master.address, str(repo), "--name", NAME))


def test_nobody_at_the_port(repo: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    one_line(run("receive", f"127.0.0.1:{port}", str(repo), "--name", NAME))


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:0", "host:65536", "a:b:1", "host:1²"])
def test_what_is_no_address(text: str, repo: Path) -> None:
    result = run("receive", text, str(repo), "--name", NAME)
    assert (result.exit_code, "is not HOST:PORT" in result.output) == (2, True)
    assert not repo.exists()


@pytest.mark.parametrize("place", ["s3://bucket/prefix", "REPO::a", "REPO::a@20261129T101500Z"])
def test_the_repository_is_a_directory(place: str, repo: Path) -> None:
    result = run("receive", "127.0.0.1:1", place.replace("REPO", str(repo)), "--name", NAME)
    assert (result.exit_code, "is not a directory" in result.output) == (2, True)


# --- the repository ---------------------------------------------------------------------------------------------------


def test_a_log_that_ends_within_a_record_does_not_hang(repo: Path) -> None:
    with FakeMaster(log_of(50)) as master:
        del master.log[-3:]
        row = receive(master, repo)
        assert (row["messages"], row["lag_bytes"]) == (49, master.end - row["log"]["to"])


def test_what_cleans_up_in_the_repository_does_not_touch_what_has_arrived(repo: Path) -> None:
    with FakeMaster(log_of(100)) as master:
        receive(master, repo)
    spool = repo / NAME / "receiving"
    before = {path: path.read_bytes() for path in spool.rglob("*") if path.is_file()}
    assert not any(path.name.endswith(".part") for path in before)
    folder = Repository(LocalStorage(repo)).of(NAME)
    with folder.locked():
        pass
    assert run("snapshots", str(repo), "--forget", "--keep-last", "1").exit_code == 0
    assert {path: path.read_bytes() for path in spool.rglob("*") if path.is_file()} == before


def test_what_has_arrived_is_a_store(repo: Path) -> None:
    with FakeMaster(log_of(100)) as master:
        receive(master, repo)
    assert json.loads(run("info", str(repo / NAME / "receiving"), "--json").stdout)["commitlog"]["wrote"] == master.end
    assert run("info", str(repo / NAME)).exit_code == 3


def test_only_one_run_at_a_time(repo: Path) -> None:
    with FakeMaster(log_of(5)) as master, Spool(repo / NAME):
        Repository.open_or_create(LocalStorage(repo.parent / "other"))
        shutil.copy(repo.parent / "other" / "rmqstore-repository.json", repo)
        row = receive(master, repo, exit_code=5)
        assert row["error"]["code"] == "store-live"


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema":"rmqstore.receiving/1"}', "\xff", "[" * 5000])
def test_a_damaged_state_is_an_error(text: str, repo: Path) -> None:
    with FakeMaster(log_of(5)) as master:
        receive(master, repo)
        (repo / NAME / "receiving" / ".rmqstore" / "received.json").write_text(text, "latin-1")
        assert "is damaged" in receive(master, repo, exit_code=4)["error"]["message"]


def test_metrics_and_signatures(repo: Path) -> None:
    metrics, keys = repo.parent / "a.prom", repo.parent / "tools.yml"
    keys.write_text("accessKey: user\nsecretKey: secret\n")
    with FakeMaster(log_of(100)) as master:
        receive(master, repo, "--metrics", str(metrics), "--acl", str(keys))
    assert all(master.signatures)
    values = dict(line.rsplit(" ", 1) for line in metrics.read_text().splitlines() if not line.startswith("#"))
    named = {name.partition("{")[0]: float(value) for name, value in values.items()}
    assert named["rmqstore_receive_lag_bytes"] == named["rmqstore_receive_lag_seconds"] == 0
    assert named["rmqstore_receive_offset"] == named["rmqstore_snapshot_end"] == master.end
    assert named["rmqstore_receive_connected"] == 1


# --- TLS --------------------------------------------------------------------------------------------------------------


def certificate(folder: Path, name: str) -> Path:
    """Make a certificate that signs itself, with its key, in one file."""
    pytest.importorskip("cryptography", reason="cryptography is not installed (the extra test)")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
    made = builder.add_extension(x509.BasicConstraints(True, None), True).sign(key, hashes.SHA256())
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / f"{name}.pem"
    path.write_bytes(key.private_bytes(*form) + made.public_bytes(serialization.Encoding.PEM))
    return path


def test_a_broker_is_asked_over_tls(repo: Path, tmp_path: Path) -> None:
    own, other = certificate(tmp_path, "broker"), certificate(tmp_path, "other")
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    with FakeMaster(log_of(50)) as master:
        one_line(run("receive", master.address, str(repo), "--name", NAME, "--tls"))
        master.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        master.tls.load_cert_chain(own)
        one_line(run("receive", master.address, str(repo), "--name", NAME))
        refused = run("receive", master.address, str(repo), "--name", NAME, "--tls-ca", str(other))
        one_line(refused)
        assert "CERTIFICATE_VERIFY_FAILED" in refused.stderr
        assert run("receive", master.address, str(repo), "--name", NAME, "--tls-ca", str(empty)).exit_code == 2
        assert receive(master, repo, "--tls")["messages"] == 50
        master.add(10)
        assert receive(master, repo, "--tls-ca", str(own))["messages"] == 10


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_arrives_is_private(umask: int, repo: Path) -> None:
    before = os.umask(umask)
    try:
        with FakeMaster(log_of(100)) as master:
            receive(master, repo)
    finally:
        os.umask(before)
    found = [path for path in repo.rglob("*") if path.lstat().st_mode & 0o077]
    assert [path.name for path in found] in ([], ["lock"])
