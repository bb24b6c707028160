"""Defaults of options from the environment and from the settings file."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from rmqstore.cli.shared.settings import OPTIONS
from tests.command import run
from tests.stores import unpack, write_broker_conf


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "rmqstore.toml"
    monkeypatch.setenv("RMQSTORE_SETTINGS", str(path))
    return path


def test_typed_options_go_before_the_environment_and_that_before_the_settings_file(
    settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = str(unpack("5.4.0-clean"))

    def version(*words: str) -> str:
        return str(json.loads(run("verify", store, "--json", *words).stdout)["broker"]["version"])

    settings.write_text('broker = "4.9.7"\n')
    assert version() == "4.9.7"
    monkeypatch.setenv("RMQSTORE_BROKER", "5.1.4")
    assert version() == "5.1.4"
    assert version("--broker", "5.4.0") == "5.4.0"


def test_a_switch_is_on_or_off(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = str(unpack("5.4.0-clean"))
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        settings.write_text("utc = true\n")
        assert "07:10:22 UTC" in run("info", store).stdout
        monkeypatch.setenv("RMQSTORE_UTC", "no")
        assert "2026-11-21 15:10:22" in run("info", store).stdout
        assert "07:10:22 UTC" in run("info", store, "--utc").stdout
        monkeypatch.setenv("RMQSTORE_UTC", "perhaps")
        assert run("info", store).exit_code == 2
    finally:
        monkeypatch.undo()
        time.tzset()


def test_the_broker_conf_of_a_store_is_used_and_named(settings: Path, store: Path, tmp_path: Path) -> None:
    conf = write_broker_conf("5.4.0-clean", store)
    moved = conf.rename(tmp_path / "own.conf")
    moved.write_text(moved.read_text() + "\nmapedFileSizeCommitLog=1\n")
    settings.write_text(f'[stores."{store}"]\nconfig = "own.conf"\n')
    result = run("info", str(store))
    assert f"note: using -c {moved} from the settings file" in result.stderr
    assert "mapedFileSizeCommitLog is read only before 4.5.2" in result.stderr
    assert "settings file" not in run("info", str(unpack("5.4.0-clean"))).stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("job = 2\n", "job is not a setting"),
        ("apply = true\n", "apply is not a setting"),
        ('[stores."/x"]\nconf = "y"\n', "stores./x.conf is not a setting"),
        ("stores = 3\n", "`stores` must be a table"),
        ("jobs = \n", "Invalid value"),
        ("jobs = 0\n", "0 is not in the range"),
        ('jobs = "many"\n', "not a valid integer"),
    ],
)
def test_a_wrong_setting_is_wrong_usage(settings: Path, text: str, said: str) -> None:
    settings.write_text(text)
    result = run("verify", str(unpack("5.4.0-clean")))
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_settings_file_that_is_named_and_missing_is_wrong_usage(settings: Path) -> None:
    assert not settings.exists()
    result = run("info", str(unpack("5.4.0-clean")))
    assert result.exit_code == 2
    assert "which is not a file" in result.stderr


def test_no_setting_can_make_a_command_write() -> None:
    assert {"apply", "force", "accept-fillers", "output", "overwrite"}.isdisjoint(OPTIONS)


@pytest.mark.parametrize("there", [True, False])
def test_a_broker_conf_of_another_store_is_warned_of(there: bool, tmp_path: Path) -> None:
    other, conf = tmp_path / "other", tmp_path / "broker.conf"
    if there:
        other.mkdir()
    conf.write_text(f"storePathRootDir={other}\nmappedFileSizeCommitLog=65536\n")
    result = run("info", str(unpack("5.4.0-clean")), "-c", str(conf))
    assert result.exit_code == 0
    assert f"broker.conf is the configuration of {other}, not of " in result.stderr
