"""`doctor`: each line is what another command says about the same store."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.command import run, run_json
from tests.damage import garble
from tests.repair.journal.test_liveness import HOLD, other_process
from tests.stores import copy_store, unpack


def damaged(folder: Path) -> Path:
    store = copy_store("5.4.0-clean", folder)
    garble(min((store / "commitlog").iterdir()), 3000, 500)
    return store


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize(
    "name", ["5.4.0-clean", "5.4.0-killed", "5.1.4-dledger-mixed", "5.5.1-trans-rocksdb", "4.9.7-clean"]
)
def test_it_agrees_with_verify_and_pending(name: str) -> None:
    path = str(unpack(name))
    code = run("verify", path).exit_code
    found = run_json("doctor", path, exit_code=code)
    checked = run_json("verify", path, exit_code=code)
    for field in ("kind", "live", "clean", "account"):
        assert found[field] == checked[field]
    assert found["waiting"] == run_json("pending", path, exit_code=run("pending", path).exit_code)["totals"]


def test_a_damaged_store_is_repaired_by_the_first_command(tmp_path: Path) -> None:
    store = damaged(tmp_path)
    found = run_json("doctor", str(store), exit_code=1)
    problems, commands = found["problems"], found["next"]
    assert isinstance(problems, dict)
    assert isinstance(commands, list)
    assert problems
    assert not found["clean"]
    assert 1 < len(commands) <= 3
    assert commands[0].startswith("rmqstore recover ")
    assert run(*shlex.split(commands[0])[1:], "--apply").exit_code in (0, 1)
    after = run_json("doctor", str(store), exit_code=0)
    repair = after["repaired"]
    assert isinstance(repair, dict)
    assert Path(str(repair["journal"])).is_dir()
    assert run("undo", str(store), "--last").exit_code == 0
    assert run_json("doctor", str(store), exit_code=1)["repaired"] is None


def test_the_newest_backup_is_that_of_the_repository(tmp_path: Path) -> None:
    store, repository = copy_store("5.4.0-clean", tmp_path), tmp_path / "repository"
    assert "not known: name the repository with --repo" in run("doctor", str(store)).output
    assert run("backup", str(store), str(repository)).exit_code == 0
    found = run_json("doctor", str(store), "--repo", str(repository), exit_code=0)
    backup, commands = found["backup"], found["next"]
    assert isinstance(backup, dict)
    assert isinstance(commands, list)
    assert f"@{backup['snapshot']}" in run("doctor", str(store), "--repo", str(repository)).output
    assert not [line for line in commands if line.startswith("rmqstore backup")]


def test_quiet_prints_one_line_of_a_damaged_store_and_none_of_a_sound_one(tmp_path: Path) -> None:
    assert run("doctor", str(unpack("5.4.0-clean")), "-q").output == ""
    line = run("doctor", str(damaged(tmp_path)), "-q").output
    assert len(line.splitlines()) == 1


def test_what_only_this_command_cannot_read_is_exit_code_4(tmp_path: Path) -> None:
    store = copy_store("5.4.0-killed", tmp_path)
    (store / "config" / "delayOffset.json").unlink()
    (store / "config" / "delayOffset.json.bak").unlink(missing_ok=True)
    found = run_json("doctor", str(store), exit_code=run("doctor", str(store)).exit_code)
    waiting = run_json("pending", str(store), exit_code=4)
    unread, unchecked = waiting["unread"], found["unchecked"]
    assert isinstance(unread, list)
    assert isinstance(unchecked, list)
    assert unread
    assert set(unread) <= set(unchecked)
    assert run("doctor", str(store)).exit_code != 0
    assert run("doctor", str(store), "-q").output


def test_what_is_no_whole_store_is_one_line(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for path in (empty, unpack("5.4.0-clean") / "commitlog", tmp_path / "missing"):
        result = run("doctor", str(path))
        assert result.exit_code == 3
        assert "Traceback" not in result.output


def test_what_waits_is_not_nothing_if_it_cannot_be_read(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    (store / "config" / "consumerOffset.json").write_text("{")
    (store / "config" / "consumerOffset.json.bak").unlink(missing_ok=True)
    lines = run("doctor", str(store)).output.splitlines()
    assert [line for line in lines if line.startswith("Not read") and line.endswith("nothing that could be read")]


def test_sizes_that_do_not_fit_come_before_a_repair(tmp_path: Path) -> None:
    store, conf = damaged(tmp_path), tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={store}\n")
    commands = run_json("doctor", str(store), "-c", str(conf), exit_code=1)["next"]
    assert isinstance(commands, list)
    assert commands[0].startswith("rmqstore verify ")


def test_a_repair_needs_a_stopped_broker(tmp_path: Path) -> None:
    store = damaged(tmp_path)
    with other_process(HOLD, store / "lock"):
        found = run("doctor", str(store)).output
    assert "Next: stop the broker and keep its service stopped. Then:" in found.splitlines()
    assert "stop the broker" not in run("doctor", str(store)).output
