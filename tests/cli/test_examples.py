"""`rmqstore examples`: each file is valid for the program that reads it, and its commands exist."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import kubernetes_validate
import promql_parser
import pytest
import yaml
from grafana_foundation_sdk.models.dashboard import Dashboard

from rmqstore import __version__
from rmqstore.cli.shared.metrics import _HELP
from tests.command import parsed, run, run_json


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files, as the command writes them."""
    target = tmp_path_factory.mktemp("examples") / "written"
    assert run("examples", str(target)).exit_code == 0
    return target


def yaml_of(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def test_every_file_is_written_and_readable_whatever_the_umask(tmp_path: Path) -> None:
    target = tmp_path / "examples"
    before = os.umask(0o077)
    try:
        answer = run_json("examples", str(target), exit_code=0)
    finally:
        os.umask(before)
    files = {str(path) for path in target.rglob("*") if path.is_file()}
    assert set(cast("list[str]", answer["files"])) == files and len(files) >= 13
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in (target, *target.rglob("*"))}
    assert modes == {(True, 0o755), (False, 0o644)}


def test_a_directory_that_exists_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    result = run("examples", str(tmp_path))
    assert result.exit_code == 5 and "already exists" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_readme_names_every_file(written: Path) -> None:
    page = (written / "README.md").read_text("utf-8").replace("`, `.timer`", "`, `systemd/rmqstore-verify.timer`")
    named = set(re.findall(r"`(\w[\w.-]*/[\w./-]+)`", page))
    assert named - {"results/"} == {
        str(path.relative_to(written)) for path in written.rglob("*") if path.is_file() and path.name != "README.md"
    }


def commands(path: Path) -> Iterator[list[str]]:
    """Yield the words after the program of each call of rmqstore in a file."""
    text = path.read_text("utf-8").replace("\\\n", " ")
    if path.parent.name == "kubernetes":
        yield from (re.findall(r'"([^"]*)"', line) for line in re.findall(r"args: (\[.*\])", text))
    elif path.parent.name == "ansible":
        (argv,) = re.findall(r"argv: \[nice, -n, \"19\", [^,]*, (.*?)\]", text, re.DOTALL)
        yield [word.strip().strip('"') for word in argv.split(",")]
    else:
        for call in re.findall(r"^(?!#).*?/rmqstore ((?:verify|backup|receive|recover) [^>'\n]*)", text, re.MULTILINE):
            yield shlex.split(call)


@pytest.mark.parametrize(
    "name",
    [
        *("systemd/rmqstore-verify.service", "systemd/rmqstore-backup.service", "systemd/rmqstore-receive.service"),
        *("systemd/rocketmq-broker.service.d/rmqstore.conf", "cron/rmqstore", "ssh/verify.sh", "ansible/verify.yml"),
        *("kubernetes/broker.yml", "kubernetes/verify.yml"),
    ],
)
def test_its_command_is_one_that_the_program_takes(name: str, written: Path) -> None:
    found = list(commands(written / name))
    assert found
    for words in found:
        parsed(words)


def expressions(written: Path) -> Iterator[str]:
    for group in yaml_of(written / "prometheus" / "rmqstore.rules.yml")["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    board = json.loads((written / "grafana" / "rmqstore.json").read_text("utf-8"))
    yield from (target["expr"] for panel in board["panels"] for target in panel["targets"])


def test_rules_and_dashboard_are_promql_over_metrics_that_exist(written: Path) -> None:
    found = list(expressions(written))
    assert len(found) > 20
    for expression in found:
        promql_parser.parse(expression)
        assert set(re.findall(r"rmqstore_\w+", expression)) <= set(_HELP)


def test_grafana_reads_the_dashboard(written: Path) -> None:
    board = json.loads((written / "grafana" / "rmqstore.json").read_text("utf-8"))
    read = Dashboard.from_json(board)
    assert read.panels is not None and len(read.panels) == len(board["panels"]) > 8
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    datasources = {panel["datasource"]["uid"] for panel in board["panels"]}
    assert datasources == {"${datasource}"}


@pytest.mark.parametrize("name", ["broker.yml", "verify.yml"])
def test_kubernetes_takes_the_manifest(name: str, written: Path) -> None:
    kubernetes_validate.validate(yaml_of(written / "kubernetes" / name), "1.30", strict=True)


def test_ansible_takes_the_play(written: Path) -> None:
    program = Path(sys.executable).with_name("ansible-playbook")
    play = written / "ansible" / "verify.yml"
    done = subprocess.run([program, "--syntax-check", play], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert yaml_of(play)[0]["vars"]["rmqstore_version"] == __version__


def test_bash_takes_the_script(written: Path) -> None:
    subprocess.run(["bash", "-n", written / "ssh" / "verify.sh"], check=True, timeout=60)
    assert f"rmqstore-{__version__}-linux" in (written / "ssh" / "verify.sh").read_text("utf-8")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_units(written: Path, tmp_path: Path) -> None:
    for unit in (written / "systemd").glob("rmqstore-*"):
        text = unit.read_text("utf-8").replace("/usr/local/bin/rmqstore", shutil.which("true") or "")
        (tmp_path / unit.name).write_text(text)
    units = sorted(map(str, tmp_path.iterdir()))
    done = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_promtool_takes_the_rules(written: Path) -> None:
    rules = written / "prometheus" / "rmqstore.rules.yml"
    subprocess.run(["promtool", "check", "rules", rules], check=True, timeout=60)
