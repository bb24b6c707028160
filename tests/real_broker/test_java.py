"""The download of the jars: once for all test processes, complete or not at all, and not repeated after a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stores import ROOT

ASK = """
from tests.real_broker.java import BrokerUnavailable, java_classes
for _ in range(2):
    try:
        print(len(java_classes("5.4.0").libraries), java_classes("5.4.0").jar.name[:7])
    except BrokerUnavailable as missing:
        print(missing)
"""
JAVA = 'echo "openjdk version \\"{version}\\"" >&2\n'
JAVAC = """while [ $# -gt 0 ]; do [ "$1" = -d ] && mkdir -p "$2" && touch "$2/Oracle.class"; shift; done\n"""
# if it fails, it leaves a partial file, like an interrupted download
MVN = """echo "$@" >>"$MVN_LOG"
for word; do case $word in -DoutputDirectory=*) target=${word#*=};; esac; done
touch "$target/a.jar"
[ "$(wc -l <"$MVN_LOG")" -gt "$MVN_FAILS" ] || { echo "connection reset"; exit 1; }
touch "$target/b.jar"
"""


class Machine:
    """Fake programs java, javac and mvn, and an empty cache."""

    def __init__(self, folder: Path, *, fails: int = 0, version: str = "17.0.1") -> None:
        self.cache, self.log = folder / "cache", folder / "mvn.log"
        tools = folder / "bin"
        tools.mkdir()
        for name, script in (("java", JAVA.format(version=version)), ("javac", JAVAC), ("mvn", MVN)):
            (tools / name).write_text(f"#!/bin/sh\n{script}")
            (tools / name).chmod(0o755)
        own = {"PATH": f"{tools}:/usr/bin:/bin", "XDG_CACHE_HOME": str(self.cache), "PYTHONPATH": str(ROOT)}
        self.environment = {**os.environ, **own, "MVN_LOG": str(self.log), "MVN_FAILS": str(fails)}
        self.environment.pop("RMQ_LIBS", None)
        self.environment["PYTEST_XDIST_TESTRUNUID"] = "one-run"

    def ask(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", ASK], env=self.environment, cwd=ROOT, stdout=subprocess.PIPE, text=True
        )

    def fetched(self) -> int:
        return len(self.log.read_text().splitlines())


def said(process: subprocess.Popen[str]) -> list[str]:
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    return out.splitlines()


def test_of_many_processes_that_begin_at_once_one_fetches(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    answers = [said(process) for process in [machine.ask() for _ in range(4)]]
    assert answers == [["2 oracle-"] * 2] * 4
    assert machine.fetched() == 1


def test_a_download_that_breaks_off_is_tried_once_more(tmp_path: Path) -> None:
    machine = Machine(tmp_path, fails=1)
    assert said(machine.ask()) == ["2 oracle-"] * 2
    assert [line.endswith(" -U") for line in machine.log.read_text().splitlines()] == [False, True]


def test_what_failed_leaves_nothing_and_is_not_tried_again_in_the_same_run(tmp_path: Path) -> None:
    machine = Machine(tmp_path, fails=2)
    for _ in range(2):
        assert said(machine.ask()) == ["Maven could not fetch RocketMQ 5.4.0: connection reset"] * 2
    assert machine.fetched() == 2
    assert [p.name for p in (machine.cache / "rmqstore/oracle/5.4.0").iterdir() if not p.name.startswith(".")] == []
    machine.environment["PYTEST_XDIST_TESTRUNUID"] = "another-run"
    assert said(machine.ask()) == ["2 oracle-"] * 2


@pytest.mark.parametrize("version", ["1.8.0_392", "10.0.2"])
def test_an_old_java_is_reported(version: str, tmp_path: Path) -> None:
    words = said(Machine(tmp_path, version=version).ask())[0]
    assert words.startswith("java on PATH is not 11 or newer") and version in words


def test_a_cache_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.cache.write_text("a file where the directory should be")
    assert said(machine.ask())[0].startswith("the jars of RocketMQ 5.4.0 cannot be kept: ")
