"""config/users/ and config/acls/: users and permissions, which only a broker with their providers opens."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqstore.brokers.simulate import simulate_start
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from tests.command import run, run_json
from tests.rocksdb_rows import need_rocksdict, opened_rows, without_extra
from tests.stores import copy_store, unpack

_AUTH = "org.apache.rocketmq.auth"
USERS = {"authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider"}
ACLS = {"authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider"}


def with_users(tmp_path: Path, name: str = "users") -> Path:
    """Return a store with a database of users or permissions."""
    store = copy_store("5.4.0-clean", tmp_path)
    rocksdict = need_rocksdict()
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    database = rocksdict.Rdict(str(store / "config" / name), options)
    database[b"alice"] = b'{"username":"alice","password":"x","userType":1}'
    database.close()
    (store / "config" / name / "rocksdict-config.json").unlink(missing_ok=True)
    return store


def damage(store: Path, name: str = "users") -> None:
    manifest = next((store / "config" / name).glob("MANIFEST-*"))
    raw = bytearray(manifest.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    manifest.write_bytes(raw)


def test_sound_users_are_no_finding(tmp_path: Path) -> None:
    report: Any = run_json("verify", str(with_users(tmp_path)), exit_code=0)
    assert report["unchecked"] == []


def test_users_that_cannot_be_read_are_unchecked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = with_users(tmp_path)
    monkeypatch.setattr("rmqstore.checks.queues.rocksdb.is_readable", lambda: False)
    report: Any = run_json("verify", str(store), exit_code=4)
    assert "config/users/: configuration in RocksDB is not checked" in report["unchecked"]


@pytest.mark.parametrize(
    ("version", "settings", "exit_code"),
    [
        ("5.5.1", USERS, 255),
        ("5.4.0", USERS, 255),
        ("5.4.0", {"authenticationEnabled": "true"}, None),
        ("5.4.0", {}, None),
        ("5.4.0", ACLS, None),
        ("5.1.4", USERS, None),
    ],
)
def test_damaged_users_end_the_start_of_a_broker_that_opens_them(
    version: str, settings: dict[str, str], exit_code: int | None, tmp_path: Path
) -> None:
    store = with_users(tmp_path)
    damage(store)
    forecast = simulate_start(open_store(store, BrokerConfig(settings)), version=version)
    assert (forecast.starts, forecast.exit_code) == (exit_code is None, exit_code)
    report: Any = run_json("verify", str(store), exit_code=1)
    assert report["counts"] == {"RDB-ACCESS": 1}


def test_damaged_permissions_end_the_start_of_a_broker_that_opens_them(tmp_path: Path) -> None:
    store = with_users(tmp_path, "acls")
    damage(store, "acls")
    for settings, starts in ((USERS, True), (ACLS, False), (USERS | ACLS, False)):
        assert simulate_start(open_store(store, BrokerConfig(settings)), version="5.5.1").starts is starts


# --- rows ------------------------------------------------------------------------------------------------------------

ACCESS = "5.5.1-access"


def put(store: Path, name: str, key: bytes, value: bytes | None) -> None:
    with opened_rows(store / "config" / name) as database:
        rows = database.get_column_family("default")
        if value is None:
            del rows[key]
        else:
            rows[key] = value
        rows.close()


def found(store: Path) -> list[tuple[str, Any, Any]]:
    report: Any = run_json("verify", str(store), exit_code=1)
    assert report["counts"].keys() == {"RDB-ACCESS-ROW"}
    return [(one["queue"], one["facts"]["reason"], one["facts"]["key"]) for one in report["findings"]]


def test_the_rows_of_a_real_broker_are_sound() -> None:
    need_rocksdict()
    report: Any = run_json("verify", str(unpack(ACCESS)), exit_code=0)
    assert report["unchecked"] == []


@pytest.mark.parametrize(
    ("name", "key", "value", "reason"),
    [
        ("users", b"alice", b"{", "value"),
        ("users", b"alice", b'{"username":"bob"}', "value"),
        ("users", b"alice", b'{"username":"alice","userType":"Boss"}', "value"),
        ("users", b"\xff", b"{}", "value"),
        ("acls", b"User:alice", b'{"subject":{"username":"alice"},"policies":[7]}', "value"),
        ("acls", b"User:bob", b'{"subject":{"subjectType":1,"username":"bob"},"policies":[]}', "no-user"),
    ],
)
def test_rows_that_no_broker_can_use_are_named(
    name: str, key: bytes, value: bytes, reason: str, tmp_path: Path
) -> None:
    store = copy_store(ACCESS, tmp_path)
    put(store, name, key, value)
    assert found(store) == [(f"config/{name}", reason, key.decode("utf-8", "backslashreplace"))]


def test_policies_without_any_users_are_not_compared(tmp_path: Path) -> None:
    store = copy_store(ACCESS, tmp_path)
    shutil.rmtree(store / "config" / "users")
    run_json("verify", str(store), exit_code=0)


def test_dump_lists_users_without_passwords_and_policies() -> None:
    need_rocksdict()
    lines = run("dump", str(unpack(ACCESS)), "--what", "config").stdout
    rows = {row["file"]: row["value"] for row in map(json.loads, lines.splitlines())}
    assert rows["users/"] == {
        "users": [
            {"username": "alice", "type": "Normal", "status": "enable"},
            {"username": "root", "type": "Super", "status": "enable"},
        ]
    }
    (acl,) = rows["acls/"]["acls"]
    assert acl["subject"] == "User:alice"
    assert acl["entries"] == [
        {
            "policy": "Custom",
            "resource": "Topic:Plain",
            "actions": ["Pub", "Sub"],
            "source_ips": ["127.0.0.1"],
            "decision": "Allow",
        }
    ]
    assert "secret1" not in lines


def test_dump_makes_the_commands_that_create_them_again(tmp_path: Path) -> None:
    store = copy_store(ACCESS, tmp_path)
    put(store, "users", b"o'neil", b'{"username":"o\'neil","password":"p w","userType":"NORMAL","userStatus":2}')
    result = run("dump", str(store), "--what", "mqadmin")
    assert [shlex.split(line) for line in result.stdout.splitlines()] == [
        ["mqadmin", "createUser", "-b", "$BROKER", *words]
        for words in (
            ["-u", "alice", "-p", "PASSWORD_OF_alice", "-t", "Normal"],
            ["-u", "o'neil", "-p", "PASSWORD_OF_o'neil", "-t", "Normal"],
        )
    ] + [
        ["mqadmin", "updateUser", "-b", "$BROKER", "-u", "o'neil", "-s", "disable"],
        ["mqadmin", "createUser", "-b", "$BROKER", "-u", "root", "-p", "PASSWORD_OF_root", "-t", "Super"],
        [
            "mqadmin",
            "createAcl",
            "-b",
            "$BROKER",
            "-s",
            "User:alice",
            "-r",
            "Topic:Plain",
            "-a",
            "Pub,Sub",
            "-i",
            "127.0.0.1",
            "-d",
            "Allow",
        ],
    ]
    assert "p w" not in result.stdout


@pytest.mark.parametrize("what", ["config", "mqadmin"])
def test_without_the_extra_users_are_not_read(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_extra(monkeypatch)
    result = run("dump", str(unpack(ACCESS)), "--what", what)
    assert result.exit_code == 4
    assert "secret1" not in result.output


def test_a_backup_keeps_users_and_permissions(tmp_path: Path) -> None:
    need_rocksdict()
    repository = tmp_path / "repository"
    assert run("backup", str(unpack(ACCESS)), str(repository), "--name", "own").exit_code == 0
    assert run("restore", f"{repository}::own", str(tmp_path / "back")).exit_code == 0
    restored, own = (
        run("dump", str(store), "--what", "mqadmin").stdout for store in (tmp_path / "back", unpack(ACCESS))
    )
    assert restored == own != ""
