"""A signal ends a command without a traceback or an unfinished output; the next run removes what a kill left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import run
from tests.stores import copy_store

AT_IMPORT = """
import os, signal, sys
number, left = int(sys.argv.pop(1)), int(sys.argv.pop(1))

def hook(event, args):
    global left
    if event == "import":
        left -= 1
        if left == 0:
            os.kill(os.getpid(), number)

import rmqstore.__main__
sys.addaudithook(hook)
rmqstore.__main__.main()
"""
"""Runs the command line, and sends itself a signal when it imports its n-th module."""
AT_WRITE = """
import os, signal, sys
from pathlib import Path
number, what = int(sys.argv.pop(1)), sys.argv.pop(1)

def hook(event, args):
    global what
    if event == "os.rename" and what in os.fsdecode(args[0]):
        what = "only once\\n"
        print(*sorted(path.name for path in Path(args[0]).parent.iterdir()), file=sys.stderr, flush=True)
        os.kill(os.getpid(), number)

import rmqstore.__main__
sys.addaudithook(hook)
rmqstore.__main__.main()
"""
"""Runs the command line, and sends itself a signal just before an output gets its name."""
OUTPUTS = {
    "export": ("STORE", "-o", "OUT/all.ndjson"),
    "bundle": ("STORE", "-o", "OUT/store.tar.gz"),
    "report": ("STORE", "-o", "OUT/page.html"),
    "restore": ("REPO::store", "OUT/new"),
    "lost": ("STORE", "-o", "OUT/lost.csv", "--format", "csv", "--bodies", "OUT/bodies"),
}


def started(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)


@pytest.mark.quick_rows(8)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("at", [*range(1, 40, 3), *range(40, 400, 24)])
def test_no_traceback_however_early_a_signal_comes(at: int, number: int, store: Path) -> None:
    done = started(AT_IMPORT, str(int(number)), str(at), "info", str(store))
    assert done.returncode in (-number, 128 + number, 0)  # 0: it imports fewer modules
    assert "Traceback" not in done.stderr
    assert (done.returncode == 128 + number) == ("no output was left half-written" in done.stderr)


def test_a_signal_that_the_caller_ignores_stays_ignored(store: Path) -> None:
    ignoring = AT_IMPORT.replace("import rmq", "signal.signal(number, signal.SIG_IGN)\nimport rmq", 1)
    for number in (signal.SIGINT, signal.SIGHUP):
        done = started(ignoring, str(int(number)), "100", "info", str(store))
        assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of a real broker."""
    return copy_store("5.4.0-clean", tmp_path)


@pytest.fixture
def words(request: pytest.FixtureRequest, store: Path, tmp_path: Path) -> list[str]:
    """A command with an output in OUT, which exists and is empty."""
    command = request.param
    (tmp_path / "out").mkdir()
    if command == "restore":
        assert run("backup", str(store), str(tmp_path / "repository"), "--name", "store").exit_code == 0
    places = {"STORE": str(store), "OUT": str(tmp_path / "out"), "REPO": str(tmp_path / "repository")}
    found = list(OUTPUTS[command])
    for place, path in places.items():
        found = [word.replace(place, path, 1) if word.startswith(place) else word for word in found]
    return [command, *found]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
@pytest.mark.parametrize("words", OUTPUTS, indirect=True)
def test_a_signal_leaves_no_unfinished_output(words: list[str], number: signal.Signals, tmp_path: Path) -> None:
    done = started(AT_WRITE, str(int(number)), "out", *words)
    assert done.returncode == 128 + number, done.stderr
    name = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
    assert f"error: {name} — no output was left half-written" in done.stderr
    assert ".part" in done.stderr or ".building" in done.stderr
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("words", OUTPUTS, indirect=True)
def test_the_next_run_removes_what_a_kill_left_and_says_so(words: list[str], tmp_path: Path) -> None:
    killed = started(AT_WRITE, str(int(signal.SIGKILL)), "out", *words)
    assert killed.returncode == -signal.SIGKILL
    left = sorted(path for path in (tmp_path / "out").iterdir() if path.name.startswith("."))
    assert left, killed.stderr
    done = run(*words)
    assert done.exit_code in (0, 1), done.stderr
    for path in left:
        assert f"note: removed {path}, which an interrupted run left" in done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name.startswith(".")] == []


def test_what_another_run_writes_now_stays(store: Path, tmp_path: Path) -> None:
    from rmqstore.files.private import PrivateFile

    with PrivateFile(tmp_path / "all.ndjson") as writing:
        part = writing.part.rename(writing.part.with_name(".all.ndjson.1.part"))  # of another process
        done = run("export", str(store), "-o", str(tmp_path / "all.ndjson"))
        assert (done.exit_code, "removed" in done.stderr, part.exists()) == (0, False, True)
    done = run("export", str(store), "-o", str(tmp_path / "all.ndjson"), "--overwrite")
    assert (f"removed {part}" in done.stderr, part.exists()) == (True, False)


def test_only_own_parts_of_the_same_output_are_removed(store: Path, tmp_path: Path) -> None:
    names = (".all.ndjson.12.part2", ".all.ndjson..part", ".other.ndjson.12.part", "all.ndjson.12.part")
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / ".all.ndjson.13.part").symlink_to(tmp_path / names[0])
    (tmp_path / ".all.ndjson.14.part").mkdir()
    if os.geteuid() == 0:
        (tmp_path / ".all.ndjson.15.part").touch()
        os.chown(tmp_path / ".all.ndjson.15.part", 65534, 65534)
    before = sorted(tmp_path.iterdir())
    assert run("export", str(store), "-o", str(tmp_path / "all.ndjson")).exit_code == 0
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "all.ndjson"])


def test_workers_end_with_a_command_that_a_signal_ends(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    script = AT_IMPORT.replace('event == "import"', 'event == "os.fork"')
    done = started(script, str(int(signal.SIGTERM)), "2", "verify", str(store), "--jobs", "2")
    assert (done.returncode, "Traceback" in done.stderr) == (143, False)
