"""The real classes read every message of stores that `import` created or appended to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pytest import MonkeyPatch

from rmqstore.append import exported_files
from rmqstore.append.message_store import MessageStore
from rmqstore.errors import NoSpace
from tests import command
from tests.real_broker.oracle_server import OracleServers
from tests.real_broker.reading import messages, unreadable
from tests.stores import copy_store, meta, unpack


def run(*words: str | Path) -> None:
    result = command.run(*map(str, words), "-q")
    assert result.exit_code == 0, result.output


def _third_time_full(put_table: Callable[..., None]) -> Callable[..., None]:
    calls: list[int] = []

    def put(store: MessageStore, *args: object, **kwargs: object) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise NoSpace("the disk is full")
        put_table(store, *args, **kwargs)

    return put


@pytest.fixture
def conf(tmp_path: Path) -> Callable[[str], Path]:
    """A function that writes the broker.conf of a fixture, with the file sizes and switches of its broker."""

    def write(name: str) -> Path:
        path = tmp_path / "broker.conf"
        peers = {"dLegerPeers": "n0-127.0.0.1:40911"} if "dledger" in name else {}
        path.write_text("".join(f"{key}={value}\n" for key, value in {**meta(name).settings, **peers}.items()))
        return path

    return write


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("5.4.0-clean", "parquet"),
        pytest.param("4.9.7-ipv6", "arrow", marks=pytest.mark.slow),
        pytest.param("5.1.4-clean", "csv", marks=pytest.mark.slow),
        pytest.param("5.4.0-dledger", "ndjson", marks=pytest.mark.slow),
        pytest.param("5.5.1-clean", "parquet", marks=pytest.mark.slow),
        pytest.param("5.5.1-dledger", "ndjson", marks=pytest.mark.slow),
    ],
)
def test_the_real_store_reads_an_imported_store_as_the_original(
    name: str, kind: str, tmp_path: Path, oracle_servers: OracleServers, conf: Callable[[str], Path]
) -> None:
    made, file, new = meta(name), tmp_path / f"all.{kind}", tmp_path / "new"
    run("export", unpack(name), "-o", file)
    run("import", file, "-o", new, "-c", conf(name))
    seen = oracle_servers.load(made.version, new, made.oracle_args)
    original = oracle_servers.load(made.version, unpack(name), made.oracle_args)
    assert (seen.load, seen.crash) == (True, None)
    assert messages(seen) == messages(original)
    assert unreadable(seen) == {}
    assert (seen.readable, seen.max_phy) == (made.oracle_start.readable, made.oracle_start.max_phy)


@pytest.mark.parametrize(
    "name", ["5.4.0-clean", *(pytest.param(n, marks=pytest.mark.slow) for n in ("5.4.0-dledger", "5.5.1-clean"))]
)
def test_the_real_store_reads_what_was_imported_into_a_store(
    name: str, tmp_path: Path, oracle_servers: OracleServers, conf: Callable[[str], Path], monkeypatch: MonkeyPatch
) -> None:
    """The store's messages are appended again: every queue becomes twice as long, with the same bodies again.

    The disk is full in between, and the same command continues.
    """
    made, file, store = meta(name), tmp_path / "all.ndjson", copy_store(name, tmp_path)
    run("export", store, "-o", file)
    options = ["--dledger", "n0"] if "dledger" in name else []
    words: tuple[str | Path, ...] = ("import", file, "--into", store, "--renumber", "-c", conf(name), *options)
    with monkeypatch.context() as patch:
        patch.setattr(exported_files, "ROWS", 100)
        patch.setattr(MessageStore, "put_table", _third_time_full(MessageStore.put_table))
        stopped = command.run(*map(str, words))
    assert stopped.exit_code == 6 and "run the same command again to continue" in stopped.stderr
    run(*words)
    seen = oracle_servers.load(made.version, store, made.oracle_args)
    assert (seen.load, seen.crash) == (True, None)
    assert unreadable(seen) == {}
    assert seen.readable == 2 * made.oracle_start.readable
    for queue in seen.queues.values():
        half = len(queue.messages) // 2
        first, second = queue.messages[:half], queue.messages[half:]
        assert [(m.size, m.body_crc) for m in second] == [(m.size, m.body_crc) for m in first]
        assert [m.queue_offset for m in second] == [m.queue_offset + half for m in first]
