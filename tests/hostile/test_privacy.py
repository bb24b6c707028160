"""What commands write is private whatever the umask, except what others have to read."""

from __future__ import annotations

import base64
import gzip
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.cluster import Cluster
from tests.command import command_names, run
from tests.damage import flip
from tests.stores import copy_store

UMASKS = (0o000, 0o022, 0o077)
STORE = "5.4.0-clean"
WRITING: dict[str, list[list[str]]] = {
    "verify": [
        ["STORE", "--findings-out", "OUT/findings", "--since-last", "OUT/state"],
        ["STORE", "--html", "OUT/page.html"],
        ["STORE", "--json", "-o", "OUT/verify.json"],
    ],
    "dump": [["STORE", "-o", "OUT/dump.csv"], ["STORE", "--body", "text", "-o", "OUT/dump.ndjson"]],
    "get": [["STORE", "Order_11/0/3", "--save-body", "OUT/body"]],
    "find": [["STORE", "--grep", "TagA", "-o", "OUT/found.ndjson"]],
    "lost": [["STORE", "--next-start", "-o", "OUT/lost.csv", "--bodies", "OUT/bodies"]],
    "du": [["STORE", "-o", "OUT/du.json", "--json"]],
    "report": [
        ["STORE", "-o", "OUT/page.html"],
        ["STORE", "--incident", "JOURNAL", "-o", "OUT/incident.html", "--csv", "OUT/lost.csv"],
    ],
    "bundle": [["STORE", "-o", "OUT/bundle.tar.gz"]],
    "export": [["STORE", "-o", f"OUT/all.{form}"] for form in ("ndjson", "csv", "parquet", "arrow")],
    "send": [["STORE", "--journal", "OUT/sent", "CLUSTER"]],
    "sql": [["STORE", "select * from messages", "-o", f"OUT/rows.{form}"] for form in ("csv", "parquet")],
    "compare": [["STORE", "--fingerprint-out", "OUT/fingerprint"]],
    "recover": [["STORE", "--plan-out", "OUT/plan.json"], ["STORE", "--apply", "--journal", "OUT/journal"]],
    "rebuild": [["STORE", "cq", "--plan-out", "OUT/plan.json"]],
    "offsets": [["STORE", "-o", "OUT/offsets.csv"]],
    "fleet": [["RESULT", "--html", "OUT/page.html", "--json", "-o", "OUT/fleet.json"]],
    "doctor": [["STORE", "--json", "-o", "OUT/doctor.json"]],
    "pending": [["STORE", "--json", "-o", "OUT/pending.json"]],
    "carve": [["SOUND/commitlog", "OUT/carved"]],
    "expire": [["STORE", "--any-hour", "--reserved", "0", "--plan-out", "OUT/plan.json"]],
    "migrate-to-dledger": [["SOUND", "--self-id", "n0", "--plan-out", "OUT/plan.json"]],
    "import": [["EXPORT", "-o", "OUT/new"]],
    "backup": [["STORE", "OUT/repository"], ["STORE", "OUT/repository", "--full"]],
    "restore": [["REPO::store", "OUT/store"]],
    "seed": [["STORE", "OUT/replica", "--role", "slave"]],
    "snapshots": [["REPO", "--copy", "OUT/copy"], ["REPO", "--check", "--json", "-o", "OUT/snapshots.json"]],
    "info": [["STORE", "--json", "-o", "OUT/info.json"]],
    "journals": [["REPAIRED", "--json", "-o", "OUT/journals.json"]],
}
ELSEWHERE = {
    "examples": "tests/cli/test_examples.py",
    "migrate-to-commitlog": "test_a_converted_store_is_private",
    "undo": "test_a_journal_in_the_store_is_private",
    "resume": "test_a_journal_in_the_store_is_private",
    "pipeline": "tests/spark/test_privacy.py",
    "receive": "tests/receiving/test_receive.py",
}


@pytest.fixture(params=UMASKS, ids=lambda mask: f"{mask:03o}")
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """The umask while a command runs."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def closed(store: Path) -> Path:
    """Return a store that only its owner can read."""
    for path in (store, *store.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return store


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A damaged, a sound and a repaired store, an export and a repository, which no test changes."""
    home = tmp_path_factory.mktemp("places")
    store, sound = closed(copy_store(STORE, home)), closed(copy_store(STORE, home / "sound"))
    (home / "result.json").write_text(run("verify", str(store), "--json").stdout)
    result = run("export", str(store), "-o", str(home / "export.ndjson"))
    assert result.exit_code == 0, result.stderr
    assert run("backup", str(store), str(home / "repository"), "--name", "store").exit_code == 0
    repaired = copy_store(STORE, home / "repaired")
    for one in (store, repaired):
        flip(min((one / "commitlog").iterdir()), 4)
    assert run("recover", str(repaired), "--apply", "--accept-fillers").exit_code == 0
    [journal] = [path for path in (repaired / ".rmqstore").iterdir() if path.is_dir()]
    return {
        "STORE": str(store),
        "SOUND": str(sound),
        "REPAIRED": str(repaired),
        "JOURNAL": str(journal),
        "EXPORT": str(home / "export.ndjson"),
        "RESULT": str(home / "result.json"),
        "ORDER": "Order_11/0/3",
        "REPO": str(home / "repository"),
    }


def open_to_others(folder: Path) -> list[str]:
    """Return the paths in a folder that group or others may use, with their modes."""
    found = ((path, stat.S_IMODE(path.lstat().st_mode)) for path in folder.rglob("*") if not path.is_symlink())
    return [f"{mode:04o} {path.relative_to(folder)}" for path, mode in found if mode & 0o077]


def holding(folder: Path, body: bytes, *, readable: bool) -> list[str]:
    """Return the paths of the files in a folder that hold a body; `readable`: only those that others can read."""
    forms = (body, base64.b64encode(body), body.hex().encode())
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and (not readable or path.stat().st_mode & 0o077):
            data = path.read_bytes()
            data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
            found += [str(path.relative_to(folder))] if any(form in data for form in forms) else []
    return sorted(found)


HOLDING = {
    "get": ["STORE", "ORDER", "--save-body", "OUT/body"],
    "dump": ["STORE", "--body", "base64", "-o", "OUT/dump.ndjson"],
    "export": ["STORE", "-o", "OUT/all.csv"],
    "backup": ["STORE", "OUT/repository"],
    "restore": ["REPO::store", "OUT/store"],
    "seed": ["STORE", "OUT/replica", "--role", "slave"],
    "import": ["EXPORT", "-o", "OUT/new"],
    "snapshots": ["REPO", "--copy", "OUT/copy"],
}


@pytest.mark.parametrize("command", HOLDING)
def test_nobody_else_finds_a_body_in_what_is_written(
    command: str, umask: int, places: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    order = places["ORDER"]
    saved = tmp_path / "saved"
    assert run("get", places["STORE"], order, "--save-body", str(saved)).exit_code == 0
    body = saved.read_bytes()
    saved.unlink()
    assert len(body) > 8
    out = tmp_path / "out"
    out.mkdir(mode=0o755)
    words = HOLDING[command]
    for place, path in (places | {"OUT": str(out)}).items():
        words = [word.replace(place, path, 1) if word.startswith(place) else word for word in words]
    assert run(command, *words).exit_code in (0, 1)
    assert holding(out, body, readable=False) != []  # the search finds bodies
    assert holding(tmp_path, body, readable=True) == []


def test_every_command_is_tested() -> None:
    assert WRITING.keys() | ELSEWHERE.keys() == command_names()
    assert not WRITING.keys() & ELSEWHERE.keys()


@pytest.mark.quick_rows(30)
@pytest.mark.parametrize("words", [(c, *o) for c, many in WRITING.items() for o in many], ids=" ".join)
def test_outputs_are_private(words: tuple[str, ...], umask: int, places: dict[str, str], tmp_path: Path) -> None:
    command, *options = words
    if command == "sql":
        pytest.importorskip("duckdb")
    if any(word.endswith((".parquet", ".arrow")) for word in options):
        pytest.importorskip("pyarrow")
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o755)
    if options[-1] == "CLUSTER":
        options = [*options[:-1], *Cluster(tmp_path / "rocketmq").words]
    if "--incident" in options:
        options[0] = "REPAIRED"
    if "--apply" in options:
        store = copy_store(STORE, tmp_path / "own")
        flip(min((store / "commitlog").iterdir()), 4)
        places = places | {"STORE": str(store)}
        options.append("--accept-fillers")
    for place, path in (places | {"OUT": str(out)}).items():
        options = [word.replace(place, path, 1) if word.startswith(place) else word for word in options]
    result = run(command, *options)
    assert result.exit_code in (0, 1), result.stderr
    assert list(out.iterdir())
    assert open_to_others(out) == []


def test_a_converted_store_is_private(umask: int, tmp_path: Path) -> None:
    store = closed(copy_store("5.1.4-dledger-mixed", tmp_path))
    out = tmp_path / "out"
    out.mkdir()
    result = run("migrate-to-commitlog", str(store), "-o", str(out / "plain"), "--peers", "1")
    assert result.exit_code == 0, result.stderr
    assert sorted(path.name for path in out.iterdir()) == ["plain", "plain.message-ids.csv"]
    assert open_to_others(out) == []


def test_a_journal_in_the_store_is_private(umask: int, tmp_path: Path) -> None:
    store = copy_store(STORE, tmp_path)
    flip(min((store / "commitlog").iterdir()), 4)
    assert run("recover", str(store), "--apply", "--accept-fillers").exit_code == 0
    assert open_to_others(store / ".rmqstore") == []
    assert stat.S_IMODE((store / ".rmqstore").stat().st_mode) == 0o700
    assert run("undo", str(store), "--last").exit_code == 0
    assert open_to_others(store / ".rmqstore") == []


def test_metrics_are_for_other_programs(umask: int, places: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "store.prom"
    assert run("verify", places["STORE"], "--metrics", str(path)).exit_code == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_file_that_the_user_opened_to_others_stays_open(places: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "all.ndjson"
    path.touch()
    path.chmod(0o640)
    assert run("export", places["STORE"], "-o", str(path), "--overwrite").exit_code == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_the_mode_of_a_file_of_another_user_does_not_count(places: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "all.ndjson"
    path.touch()
    path.chmod(0o666)
    os.chown(path, 65534, 65534)
    assert run("export", places["STORE"], "-o", str(path), "--overwrite").exit_code == 1
    assert (stat.S_IMODE(path.stat().st_mode), path.stat().st_uid) == (0o600, os.geteuid())


def rights(store: Path) -> dict[str, tuple[int, int, int]]:
    """Return owner, group and mode of the parts that a broker opens."""
    log = min((store / "commitlog").iterdir())
    found = (store, log.parent, log, store / "config", store / "config" / "topics.json", store / "consumequeue")
    return {
        str(path.relative_to(store)): (path.stat().st_uid, path.stat().st_gid, stat.S_IMODE(path.stat().st_mode))
        for path in found
    }


@pytest.mark.parametrize("command", ["restore", "seed"])
def test_a_copy_of_a_store_has_its_owner_and_modes(command: str, umask: int, tmp_path: Path) -> None:
    store = copy_store(STORE, tmp_path)
    for path in (store, *store.rglob("*")):
        path.chmod(0o750 if path.is_dir() else 0o640)
        if os.geteuid() == 0:
            os.chown(path, 12345, 23456)
    (store / "config" / "topics.json").chmod(0o600)
    store.chmod(0o700)
    before = rights(store)
    if command == "restore":
        assert run("backup", str(store), str(tmp_path / "repository"), "--name", "a").exit_code == 0
        done = run("restore", f"{tmp_path / 'repository'}::a", str(tmp_path / "new"))
    else:
        done = run("seed", str(store), str(tmp_path / "new"), "--role", "slave")
    assert done.exit_code == 0, done.stderr
    assert rights(tmp_path / "new") == before


@pytest.fixture
def secret(store: Path) -> Path:
    """A store with users in RocksDB, and the file of the older ACL."""
    (store / "config" / "users").mkdir()
    (store / "config" / "users" / "CURRENT").write_text("MANIFEST-000001\n")
    (store / "config" / "users" / "MANIFEST-000001").write_bytes(b"hunter2")
    (store / "config" / "users" / "000002.sst").write_bytes(b"hunter2")
    (store / "config" / "plain_acl.yml").write_text("accounts:\n- secretKey: hunter2\n")
    return store


def test_backup_says_that_it_contains_passwords(secret: Path, tmp_path: Path) -> None:
    said = "  it contains passwords in plain text, those of config/plain_acl.yml, config/users: keep it private"
    assert said in run("backup", str(secret), str(tmp_path / "repository")).stdout.splitlines()
    assert b"hunter2" in b"".join(path.read_bytes() for path in tmp_path.rglob("config/*") if path.is_file())


def test_backup_says_nothing_of_passwords_without_any(store: Path, tmp_path: Path) -> None:
    assert "passwords" not in run("backup", str(store), str(tmp_path / "repository")).stdout


def test_a_bundle_has_no_passwords(secret: Path, tmp_path: Path) -> None:
    assert run("bundle", str(secret), "-o", str(tmp_path / "store.tar.gz")).exit_code == 0
    assert b"hunter2" not in gzip.decompress((tmp_path / "store.tar.gz").read_bytes())
