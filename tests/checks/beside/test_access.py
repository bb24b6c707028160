"""config/users/ and config/acls/: users and permissions, which only a broker with their providers opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqstore.brokers.simulate import simulate_start
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from tests.command import run_json
from tests.rocksdb_rows import need_rocksdict
from tests.stores import copy_store

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
