"""`dump` as text by several processes: the same bytes for every kind of output, and a clean end after errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.generate import generate
from benchmarks.parts import Options
from rmqstore.cli.shared import options
from rmqstore.scan.split import Split
from rmqstore.views.dump import messages
from rmqstore.views.dump import workers as dump_workers
from tests.command import run
from tests.damage import flip, garble, zero

DUMP = (sys.executable, "-m", "rmqstore", "dump")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 40 MiB, enough for several workers; one body has 5 MB, which is more than a split or a chunk."""
    path = tmp_path_factory.mktemp("dump") / "store"
    options = Options(path, 40 << 20, body="20-900*4000,5000000*1", file_size=16 << 20, consumequeue=False)
    generate(options)
    return path / "commitlog"


@pytest.fixture(scope="module")
def damaged(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with every kind of damage, within splits and across their borders."""
    path = tmp_path_factory.mktemp("dump") / "damaged"
    path.mkdir()
    for file in sorted(store.iterdir()):
        copy = path / file.name
        copy.write_bytes(file.read_bytes())
        garble(copy, messages.SPLIT - 300, 900)
        flip(copy, 2 * messages.SPLIT + 1)
        zero(copy, 100_000, 5_000)
        for at in range(200_000, 300_000, 7_000):
            flip(copy, at)
    return path


def dumped(*words: str, code: int = 0) -> bytes:
    ran = subprocess.run([*DUMP, *words], capture_output=True, check=False)
    assert ran.returncode == code, ran.stderr.decode()
    return ran.stdout


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("form", ["ndjson", "csv"])
def test_jobs_and_kinds_of_output_change_no_byte(store: Path, tmp_path: Path, form: str) -> None:
    words = (str(store), "--format", form)
    alone = dumped(*words, "--jobs", "1")
    assert alone.count(b"\n") > 20_000
    assert dumped(*words, "--jobs", "2") == alone  # into a pipe
    target = tmp_path / "out"
    dumped(*words, "--jobs", "3", "-o", str(target))
    assert target.read_bytes() == alone
    with target.open("wb") as file:
        file.write(b"before\n")
        file.flush()
        subprocess.run([*DUMP, *words, "--jobs", "2"], stdout=file, check=True)
    assert target.read_bytes() == b"before\n" + alone


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("form", ["ndjson", "csv"])
def test_jobs_change_no_byte_and_no_word_about_damage(damaged: Path, form: str) -> None:
    words = [*DUMP, str(damaged), "--format", form, "-v"]
    alone, many = (subprocess.run([*words, "--jobs", n], capture_output=True, check=False) for n in "12")
    assert (many.returncode, many.stderr) == (alone.returncode, alone.stderr) == (1, alone.stderr)
    assert b"damaged places" in alone.stderr
    assert many.stdout == alone.stdout
    assert alone.stdout.count(b"\n") > 20_000


@pytest.mark.parametrize("words", [("--limit", "25000"), ("--reverse",), ("--reverse", "--limit", "7")])
def test_part_of_the_lines_is_a_part_of_all_lines(store: Path, words: tuple[str, ...]) -> None:
    lines = run("dump", str(store), "--format", "ndjson").stdout.splitlines()
    lines = lines[::-1] if "--reverse" in words else lines
    assert run("dump", str(store), "--format", "ndjson", *words).stdout.splitlines() == (
        lines[: int(words[-1])] if "--limit" in words else lines
    )


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("area", [1, 3_000, 1 << 20])
def test_text_that_does_not_fit_into_the_shared_memory_is_sent(
    store: Path, area: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("dump", str(store), "--format", "ndjson", "--queue", "1")
    whole = run(*words, "--jobs", "1").stdout
    monkeypatch.setattr(dump_workers, "AREA", area)
    assert run(*words, "--jobs", "2").stdout == whole


def test_workers_that_cannot_be_forked_give_the_same(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("dump", str(store), "--format", "ndjson", "--queue", "1")
    whole = run(*words, "--jobs", "1").stdout
    monkeypatch.delattr(os, "fork")
    assert run(*words, "--jobs", "2").stdout == whole


def test_small_logs_take_one_process(monkeypatch: pytest.MonkeyPatch, store: Path) -> None:
    def refuse(*_: object) -> Iterator[tuple[Split, messages.Rendered]]:
        raise AssertionError("workers were asked for")

    monkeypatch.setattr(messages, "map_into_shared", refuse)
    assert sum(file.stat().st_size for file in store.iterdir()) > options.ALONE
    monkeypatch.setattr(options, "ALONE", 1 << 40)
    assert run("dump", str(store), "--jobs", "2", "--limit", "3").exit_code == 0
    assert run("dump", str(store), "--jobs", "2", "--queue", "1").exit_code == 0


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def start(store: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start a dump, and wait until it is blocked by a full pipe that nobody reads."""
    child = subprocess.Popen(
        [*DUMP, str(store), "--format", "ndjson", "--jobs", "2", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdout is not None
    assert child.stdout.read(1) == b"{"
    return child


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_a_killed_worker_is_an_error_with_advice(store: Path) -> None:
    with start(store) as child:
        workers = children(child.pid)
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        out, text = child.communicate(timeout=300)
    assert text == b"error: a worker process was killed \xe2\x80\x94 is there enough memory? try --jobs 1\n"
    assert child.returncode == 4
    assert out.endswith(b"\n")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_a_closed_pipe_ends_the_workers_quietly(store: Path) -> None:
    with start(store) as child:
        workers = children(child.pid)
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 0
    assert workers
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def test_ctrl_c_in_a_terminal_reaches_the_workers_and_one_line_is_said(store: Path) -> None:
    with start(store) as child:
        os.killpg(child.pid, signal.SIGINT)
        _, text = child.communicate(timeout=300)
    assert text.decode().split("\n") == ["", "error: interrupted — no output was left half-written", ""]
    assert child.returncode == 130


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_full_disk_is_exit_5(store: Path, jobs: str) -> None:
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run([*DUMP, str(store), "--jobs", jobs], stdout=full, stderr=subprocess.PIPE, check=False)
    assert ran.returncode == 5
    assert ran.stderr.startswith("error: No space left on device — ".encode())
    assert b"Traceback" not in ran.stderr
