"""A snapshot is a store: reading commands read its log, and what follows from it; `recover --replica` takes bytes."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import shutil
from pathlib import Path

import pytest

from rmqstore.backup.derived import DerivedFiles
from rmqstore.checks.examine import verify
from rmqstore.checks.options import VerifyOptions
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.sources import open_named
from rmqstore.files.store import open_store
from rmqstore.formats.message import BLANK_MAGIC_U32, BLANK_SIZE
from rmqstore.views.stores import store_refs
from tests.backup.growing import GrowingStore
from tests.backup.test_backup import backed_up
from tests.command import run, run_json
from tests.damage import garble, overwrite
from tests.stores import copy_store, unpack
from tests.untouched import assert_untouched


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("snapshots") / "repo"
    for name in ("5.4.0-killed", "5.4.0-dledger", "5.4.0-dledger-mixed", "5.4.0-rocksdb", "5.4.0-clean"):
        assert run("backup", str(unpack(name)), str(path), "--name", name).exit_code == 0
    return path


@pytest.mark.parametrize("name", ["5.4.0-killed", "5.4.0-dledger"])
def test_the_log_of_a_snapshot_has_the_messages_of_the_store(name: str, repository: Path) -> None:
    words = ("--what", "messages", "--format", "ndjson")
    of_store = run("dump", str(unpack(name)), *words)
    of_snapshot = run("dump", f"{repository}::{name}", *words)
    assert (of_snapshot.exit_code, of_snapshot.stdout) == (of_store.exit_code, of_store.stdout)


@pytest.mark.quick_rows(6)
@pytest.mark.parametrize("name", ["5.4.0-clean", "5.4.0-dledger", "5.4.0-dledger-mixed", "5.4.0-rocksdb"])
@pytest.mark.parametrize(
    "words",
    [
        ("dump", "--what", "consumequeue", "--format", "ndjson"),
        ("get", "Order_11/0/2", "--json"),
        ("find", "--topic", "Order_11", "--queue", "1", "--limit", "3", "--json"),
        ("offsets", "--format", "ndjson"),
        ("lost", "--format", "ndjson"),
        (
            "sql",
            "select store, topic, queue_id, count(*), max(queue_offset) from consumequeue group by all order by all",
        ),
        ("sql", "select phy_offset, key_hash from indexfile order by all"),
        ("sql", 'select * from consumer_offsets order by "group", topic, queue_id'),
    ],
    ids=lambda words: " ".join(words[:3]),
)
def test_queues_and_index_of_a_snapshot_equal_those_of_its_store(
    words: tuple[str, ...], name: str, repository: Path
) -> None:
    """Queues and index are derived from the log; nothing is written into the repository."""
    command, *more = words
    snapshot, store = f"{repository}::{name}", unpack(name)
    with assert_untouched(repository):
        derived = run(command, snapshot, *more)
    own = run(command, str(store), *more)
    assert (derived.exit_code, derived.stdout.replace(snapshot, "S")) == (
        own.exit_code,
        own.stdout.replace(str(store), "S"),
    ), derived.output


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize(
    "name", ["5.4.0-clean", "5.4.0-killed", "5.4.0-dledger", "5.4.0-dledger-mixed", "5.4.0-rocksdb"]
)
def test_verify_of_a_snapshot_equals_verify_of_the_restored_store(name: str, repository: Path, tmp_path: Path) -> None:
    run_json("restore", f"{repository}::{name}", str(tmp_path / "new"), exit_code=0)
    restored = run_json("verify", str(tmp_path / "new"), exit_code=0)
    found = run_json("verify", f"{repository}::{name}", exit_code=0)
    for key in ("counts", "unchecked", "commitlog", "dledger", "queues", "verdict"):
        assert found.get(key) == restored.get(key), key


def test_verify_reads_the_log_of_a_snapshot_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rmqstore.backup.storage import LocalStorage

    store = GrowingStore(tmp_path / "store", 3000)
    backed_up(store.root, tmp_path / "repo")
    read: list[int] = []
    plain = LocalStorage.read_into

    def counted(self: LocalStorage, key: str, buffer: memoryview, at: int) -> int:
        count = plain(self, key, buffer, at)
        read.append(count if "/log/" in key else 0)
        return count

    monkeypatch.setattr(LocalStorage, "read_into", counted)
    found = run_json("verify", f"{tmp_path / 'repo'}::a", "--jobs", "1", exit_code=0)
    assert (found["counts"], len(found["queues"])) == ({}, len(store.written.queues))  # type: ignore[arg-type]
    assert 1 <= sum(read) / store.end < 1.5


def test_the_queues_of_several_versions_of_a_store(tmp_path: Path) -> None:
    """`@SNAPSHOT` and a time choose the snapshot; the Python interface reads it too."""
    import rmqstore

    store = GrowingStore(tmp_path / "store", 30)
    first = backed_up(store.root, tmp_path / "repo").manifest
    old = store.offsets_before(first.end)
    label = min(old)
    topic, _, queue_id = label.rpartition("/")
    store.grow(200)
    backed_up(store.root, tmp_path / "repo")
    at = f"@{first.time + 1}"
    for wanted, count in (
        ("", len(store.written.queues[label])),
        (f"@{first.snapshot}", len(old[label])),
        (at, len(old[label])),
    ):
        address = f"{tmp_path / 'repo'}::a{wanted}"
        rows = run("dump", address, "--what", "consumequeue", "--topic", topic, "--queue", queue_id).stdout.splitlines()
        assert len(rows) == count, address
        queue = rmqstore.open(address).queue(topic, int(queue_id))
        assert [message.queue_offset for message in queue] == list(range(count))
    for command in ("compare", "export", "report"):
        words = (
            (str(store.root),)
            if command == "compare"
            else ("-o", str(tmp_path / f"{command}.{'html' if command == 'report' else 'ndjson'}"))
        )
        assert run(command, f"{tmp_path / 'repo'}::a{at}", *words).exit_code == (1 if command == "compare" else 0)


def test_offsets_come_from_a_snapshot(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "store", 60)
    backed_up(store.root, tmp_path / "repo")
    before = run("offsets", str(store.root)).stdout
    store.config("consumerOffset.json", {"offsetTable": {}})
    run_json("offsets", str(store.root), "--from", f"{tmp_path / 'repo'}::a", "--apply", exit_code=0)
    assert run("offsets", str(store.root)).stdout == before


@pytest.mark.parametrize(
    "words",
    [("verify",), ("info",), ("dump", "--format", "ndjson"), ("du",), ("find", "ord11_42"), ("get", "0")],
    ids=" ".join,
)
def test_reading_commands_find_nothing_wrong(words: tuple[str, ...], repository: Path) -> None:
    command, *more = words
    with assert_untouched(repository):
        result = run(command, f"{repository}::5.4.0-killed", *more)
    assert result.exit_code == 0, result.output


def test_verify_names_the_damage_of_a_snapshot(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "store")
    first = backed_up(store.root, tmp_path / "repo").manifest
    garble(store.log_files[1], 3000, 60)
    backed_up(store.root, tmp_path / "repo")
    assert run_json("verify", f"{tmp_path / 'repo'}::a@{first.snapshot}", exit_code=0)["counts"] == {}
    found = run_json("verify", f"{tmp_path / 'repo'}::a", exit_code=1)["counts"]
    of_log = run_json("verify", str(store.root / "commitlog"), exit_code=1)["counts"]
    assert isinstance(found, dict)
    assert {code: count for code, count in found.items() if code.startswith("CL-")} == of_log


def test_a_damaged_store_is_healed_from_its_backup(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "store")
    backed_up(store.root, tmp_path / "repo")
    good = [path.read_bytes() for path in store.log_files]
    garble(store.log_files[0], 2000, 900)
    garble(store.log_files[1], 4, 3)
    result = run("backup", str(store.root), str(tmp_path / "repo"), "--name", "a")
    command = f"rmqstore recover {store.root} --replica {tmp_path / 'repo'}::a"
    assert (result.exit_code, command in result.stdout) == (1, True), result.output
    healed = run_json(*command.split()[1:], "--apply", exit_code=0)
    assert healed["loss"]["messages"] == 0  # type: ignore[index]
    assert [path.read_bytes() for path in store.log_files] == good


def test_both_logs_of_a_mixed_store_heal_it(tmp_path: Path, repository: Path) -> None:
    from tests.stores import copy_store

    store = copy_store("5.4.0-dledger-mixed", tmp_path)
    victims = [min((store / log).iterdir()) for log in ("commitlog", "dledger-n0/data")]
    good = [path.read_bytes() for path in victims]
    for path in victims:
        garble(path, 700, 200)
    run_json("recover", str(store), "--replica", f"{repository}::5.4.0-dledger-mixed", "--apply", exit_code=0)
    assert [path.read_bytes() for path in victims] == good


@pytest.mark.parametrize(
    "words",
    [
        ("verify", "REPO/NAME"),
        ("verify", "REPO/NAME/log/commitlog"),
        ("info", "REPO/NAME/log/commitlog/00000000000000000000"),
        ("recover", "STORE", "--replica", "REPO/NAME"),
        ("recover", "REPO::NAME", "--apply"),
        ("recover", "REPO/NAME/log", "--apply"),
        ("rebuild", "REPO::NAME", "cq"),
        ("backup", "REPO::NAME", "OTHER"),
        ("seed", "REPO::NAME", "OTHER", "--role", "slave"),
        ("restore", "REPO/NAME", "OTHER"),
    ],
)
def test_a_directory_of_a_repository_is_refused_as_a_store(
    words: tuple[str, ...], repository: Path, tmp_path: Path
) -> None:
    name, store = "5.4.0-clean", copy_store("5.4.0-clean", tmp_path)
    places = {"REPO": str(repository), "NAME": name, "STORE": str(store), "OTHER": str(tmp_path / "other")}
    pattern = "|".join(places)
    refused = run(*(re.sub(pattern, lambda found: places[found[0]], word) for word in words))
    assert (refused.exit_code, refused.stdout) == (3, ""), refused.output
    (line,) = refused.stderr.strip().splitlines()
    assert f"{repository}::{name}" in line
    assert not (tmp_path / "other").exists()


def test_no_store_is_built_in_a_repository(repository: Path) -> None:
    refused = run("restore", f"{repository}::5.4.0-clean", str(repository / "restored"))
    assert (refused.exit_code, len(refused.stderr.strip().splitlines())) == (2, 1), refused.output


def test_a_repair_of_a_snapshot_begins_with_restore(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "store")
    garble(store.log_files[0], 300, 50)
    assert run("backup", str(store.root), str(tmp_path / "repo"), "--name", "a").exit_code == 1
    found = run("verify", f"{tmp_path / 'repo'}::a")
    assert "Next: rmqstore recover STORE\n" in found.stdout
    assert f"`rmqstore restore {tmp_path / 'repo'}::a DIR`" in " ".join(found.stdout.split())


def test_worker_processes_read_a_snapshot(repository: Path) -> None:
    """The files of a snapshot can be sent to other processes."""
    store = open_named(Path(f"{repository}::5.4.0-killed"), BrokerConfig())
    queues = [queue.label for queue in store.consume_queues()]
    copy = pickle.loads(pickle.dumps(store.files))
    assert isinstance(copy, DerivedFiles)
    again = open_store(store.path, store.config, copy)
    assert [file.path for file in again.logs[0][0].files] == [file.path for file in store.logs[0][0].files]
    assert queues
    assert [queue.label for queue in again.consume_queues()] == queues
    report = verify(store, VerifyOptions(jobs=2, split_size=1 << 16))
    assert report.exit_code == 0
    assert report.commitlog is not None
    assert report.commitlog["messages"] == copy.snapshot.manifest.messages


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("seed", range(100))
def test_random_damage_is_healed(seed: int, grown: tuple[GrowingStore, Path, list[bytes]], tmp_path: Path) -> None:
    """Whatever happens to the log of a store, its backup gives every byte of records and BLANKs back.

    Nothing reads the bytes after a BLANK's header. No checksum covers some fields of a record: where a few bytes of
    them change, `compare` names the difference.
    """
    store, repository, good = grown
    chance = random.Random(seed)
    copy = tmp_path / "store"
    shutil.copytree(store.root, copy)
    files = sorted((copy / "commitlog").iterdir())[:-1]
    small = True
    for path in chance.sample(files, chance.randrange(1, 4)):
        size = path.stat().st_size
        at = chance.randrange(len(good[files.index(path)]) - 1)
        length = min(chance.choice((1, 4, 60, 1000, 9000)), size - at - 1)
        how = chance.choice(("garble", "zeros", "truncate", "delete", "swap"))
        small &= how == "garble" and length <= 4
        if how == "garble":
            garble(path, at, length)
        elif how == "zeros":
            overwrite(path, at, b"\xff" + bytes(length))
        elif how == "truncate":
            os.truncate(path, at)
        elif how == "delete" and path != files[0]:  # a missing first file has expired
            path.unlink()
        else:
            other = chance.choice([one for one in files if one != path and one.exists()])
            overwrite(path, 100, other.read_bytes()[: size // 2])
    words = ("recover", str(copy), "--replica", f"{repository}::a")
    planned = run(*words, "--json")
    assert planned.exit_code in (0, 1), planned.output
    plan = json.loads(planned.stdout)
    force = ("--force", str(plan["digest"])) if plan["brakes"] else ()
    healed = run_json(*words, "--apply", *force, exit_code=0)
    assert healed["loss"]["messages"] == 0  # type: ignore[index]
    same = [content(path) for path in sorted((copy / "commitlog").iterdir())] == good
    assert same or small
    assert run("compare", str(copy), f"{repository}::a").exit_code == (0 if same else 1)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[GrowingStore, Path, list[bytes]]:
    """A store, its repository, and the content of its log files."""
    home = tmp_path_factory.mktemp("grown")
    store = GrowingStore(home / "store", 260)
    backed_up(store.root, home / "repo")
    return store, home / "repo", [content(path) for path in store.log_files]


def content(path: Path) -> bytes:
    """Return the records of a log file, and the header of the BLANK after them."""
    data, at = path.read_bytes(), 0
    while (size := int.from_bytes(data[at : at + 4])) and data[at + 4 : at + 8] != BLANK_MAGIC_U32.to_bytes(4):
        at += size
    return data[: at + BLANK_SIZE]


def test_a_pattern_names_several_stores_of_a_repository(repository: Path, tmp_path: Path) -> None:
    query = "select store, count(*) messages from messages group by store order by store"
    names = sorted(path.name for path in repository.iterdir() if (path / "snapshots").is_dir())
    each = [f"{repository}::{name}" for name in names if name.endswith(("-dledger", "-clean"))]
    assert len(each) == 2
    expected = run("sql", *each, query, "--json").stdout
    assert run("sql", f"{repository}::5.4.0-[cd][le]*[rn]", query, "--json").stdout == expected
    everything = [ref.label for ref in store_refs([f"{repository}::*"])]
    assert everything == [f"{repository}::{name}" for name in names]
    late = [ref.label for ref in store_refs([f"{repository}::5.4.0-cl*@2100-01-01"])]
    assert late == [f"{repository}::5.4.0-clean@2100-01-01"]


@pytest.mark.parametrize(("pattern", "code"), [("REPO::nobody-*", 3), ("TMP/none::*", 3), ("TMP/none/*", 3)])
def test_a_pattern_without_a_match_is_named(pattern: str, code: int, repository: Path, tmp_path: Path) -> None:
    pattern = pattern.replace("REPO", str(repository)).replace("TMP", str(tmp_path))
    result = run("sql", pattern, "select 1")
    assert result.exit_code == code
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
