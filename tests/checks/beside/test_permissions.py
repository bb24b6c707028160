"""Files without write permission for the broker's user."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rmqstore.checks.beside.permissions import check_rights, rights_words
from rmqstore.checks.problems.report import Finding, Findings
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from tests.command import run
from tests.damage import close_to_owner
from tests.stores import copy_store

LAST = "commitlog/00000000000000458752"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")


def found(store: Path, **conf: str) -> list[Finding]:
    findings = Findings()
    check_rights(open_store(store, BrokerConfig(conf)), findings)
    return findings.listed


def give(uid: int, *paths: Path) -> None:
    for path in paths:
        os.chown(path, uid, uid)


def everything(store: Path) -> list[Path]:
    return [store, *store.rglob("*")]


@pytest.mark.parametrize("path", [LAST, "checkpoint", "config/topics.json", "consumequeue/Order_11", ""])
def test_what_the_owner_may_not_write_is_named_and_the_command_cures_it(store: Path, path: str) -> None:
    close_to_owner(store, store / path)
    (finding,) = found(store)
    directory = (store / path).is_dir()
    assert (finding.facts["files"], finding.facts["directories"]) == (int(not directory), int(directory))
    assert finding.facts["path"] == (path or ".")
    subprocess.run(str(finding.facts["run"]), shell=True, check=True)
    assert found(store) == []


def test_a_store_of_one_user_is_his_to_write(tmp_path: Path) -> None:
    assert found(copy_store("5.4.0-clean", tmp_path)) == []


@as_root
def test_files_of_another_count_only_where_their_mode_closes_them(store: Path) -> None:
    give(12345, *everything(store))
    give(0, store / LAST)
    (store / LAST).chmod(0o666)
    assert found(store) == []
    os.chown(store / LAST, 0, 12345)
    (store / LAST).chmod(0o664)
    assert found(store) == []
    (store / LAST).chmod(0o640)
    (finding,) = found(store)
    assert finding.facts == {
        "files": 1,
        "directories": 0,
        "broker_user": "12345",
        "path": LAST,
        "owner": "root",
        "mode": "0640",
        "run": f"chown -R 12345:12345 {store}",
    }


@as_root
def test_a_closed_mode_of_another_is_opened_too(store: Path) -> None:
    give(12345, *everything(store))
    give(0, store / LAST)
    (store / LAST).chmod(0o400)
    (finding,) = found(store)
    assert finding.facts["run"] == f"chown -R 12345:12345 {store} && chmod -R u+rwX {store}"


@as_root
def test_a_store_restored_by_root_is_closed_to_the_user_who_owns_the_rest(store: Path) -> None:
    give(12345, store / "lock", store / "checkpoint")
    (finding,) = found(store)
    assert finding.facts["broker_user"] == "12345"
    assert int(finding.facts["files"] or 0) > 30
    assert rights_words(_kept(finding)).startswith(", but user 12345 may not write ")


@as_root
def test_who_wrote_the_configuration_is_not_taken_for_the_broker(store: Path) -> None:
    give(12345, store / "config", *(store / "config").iterdir())
    assert found(store) == []


@as_root
def test_a_log_elsewhere_is_part_of_the_command(store: Path, tmp_path: Path) -> None:
    give(12345, *everything(store))
    elsewhere = tmp_path / "other disk"
    (store / "commitlog").rename(elsewhere)
    give(0, elsewhere)
    command = f"chown -R 12345:12345 {store} '{elsewhere}'"
    (finding,) = found(store, storePathCommitLog=str(elsewhere))
    assert finding.facts["run"] == command
    (store / "commitlog").symlink_to(elsewhere)
    os.chown(store / "commitlog", 12345, 12345, follow_symlinks=False)
    (finding,) = found(store, storePathCommitLog=str(store / "commitlog"))
    assert (finding.facts["run"], finding.facts["directories"]) == (command, 1)
    assert found(store) == []  # nobody but the link names the directory


def _kept(finding: Finding) -> Findings:
    findings = Findings()
    findings.add(finding)
    return findings


@pytest.mark.parametrize("path", [LAST, "consumequeue/Order_11/0/00000000000000000000", "index/20261121071022487"])
def test_a_file_that_may_not_be_read_is_neither_zeros_nor_left_out(
    store: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """verify ends with an error, because a skipped index or a queue file taken as zeros would give a wrong verdict."""
    access = os.access
    monkeypatch.setattr(os, "access", lambda at, *a, **k: at != store / path and access(at, *a, **k))
    done = run("verify", str(store))
    assert (done.exit_code, str(store / path) in done.stderr) == (3, True)
    assert "Permission denied" in done.stderr
