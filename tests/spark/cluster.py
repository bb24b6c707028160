"""A standalone cluster on this machine, and a Python without rmqstore for its executors."""

from __future__ import annotations

import os
import re
import signal
import site
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.stores import ROOT

DEADLINE = 300.0  # seconds; a busy machine may need a minute to start a JVM
MODULES = tuple(sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("spark_plugins/pyspark_*.py")))


def spark_environment() -> dict[str, str]:
    """Return the variables that Spark's scripts need, without those through which Python would find this checkout."""
    import pyspark

    from rmqstore.spark.session import JAVA_SHIM, find_java

    left = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
    home = str(Path(pyspark.__file__).parent)
    java = {"JAVA_HOME": str(JAVA_SHIM), "RMQSTORE_JAVA": str(find_java(os.environ))}
    return {**left, **java, "SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1"}


def python_without_rmqstore(target: Path) -> Path:
    """Create a virtual environment with links to all libraries of this one, except rmqstore and .pth files."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(target)], check=True, timeout=DEADLINE)
    python = target / "bin" / "python"
    inside = f"python{sys.version_info.major}.{sys.version_info.minor}"
    libraries = target / "lib" / inside / "site-packages"
    for folder in map(Path, site.getsitepackages()):
        for entry in folder.iterdir() if folder.is_dir() else ():
            ours = "rmqstore" in entry.name or entry.suffix == ".pth"  # an editable installation uses a .pth file
            if not ours and not (libraries / entry.name).exists():
                (libraries / entry.name).symlink_to(entry)
    probe = "import importlib.util as u, numpy, zlib_ng, pyarrow, pyspark; print(u.find_spec('rmqstore'))"
    output = subprocess.run(
        [python, "-c", probe], capture_output=True, text=True, cwd=target, env=spark_environment(), check=False
    )
    assert output.stdout.strip() == "None", output.stdout + output.stderr
    return python


def package_zip(target: Path) -> Path:
    """Create the file for `--py-files` as in docs/pipeline.md: `python -m zipfile -c rmqstore.zip rmqstore …`."""
    command = [sys.executable, "-m", "zipfile", "-c", str(target), "rmqstore", *MODULES]
    subprocess.run(command, cwd=ROOT, check=True, timeout=DEADLINE)
    names = zipfile.ZipFile(target).namelist()
    assert "rmqstore/spark/sources.py" in names
    assert {Path(module).name for module in MODULES} <= set(names)
    return target


@dataclass
class Cluster:
    """A master and its workers, each a JVM in its own process group."""

    folder: Path
    master: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, workers: int, memory: str = "1g") -> None:
        """Start the master, then workers with one core each, all on free ports."""
        log = self._launch("master", "Master", "--port", "0")
        found = self._wait(log, r"Starting Spark master at (spark://\S+)")
        self.master = found
        for number in range(workers):
            place = self.folder / f"work-{number}"
            more = ("--port", "0", "--cores", "1", "--memory", memory, "--work-dir", str(place), self.master)
            self._wait(self._launch(f"worker-{number}", "Worker", *more), "(Successfully registered with master)")

    def _launch(self, name: str, part: str, *more: str) -> Path:
        import pyspark

        script = Path(pyspark.__file__).parent / "bin" / "spark-class"
        command = [str(script), f"org.apache.spark.deploy.{part.lower()}.{part}", "--host", "127.0.0.1"]
        log = self.folder / f"{name}.log"
        small = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
        small["SPARK_LOCAL_DIRS"] = str(self.folder)  # what killed executors leave is removed with it
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*command, "--webui-port", "0", *more],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**spark_environment(), **small},
                cwd=self.folder,
                start_new_session=True,
            )
        self.processes.append(process)
        return log

    def _wait(self, log: Path, pattern: str) -> str:
        process = self.processes[-1]

        def look() -> str:
            found = re.search(pattern, log.read_text("utf-8", "replace"))
            assert found or process.poll() is None, f"it ended: {log.read_text('utf-8', 'replace')[-2000:]}"
            return found[1] if found else ""

        return until(look, f"no {pattern!r} in {log}")

    def stop(self) -> None:
        """End all JVMs: terminate them first, so that workers end their executors, and kill the remaining ones."""
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def until(look: Callable[[], str], complaint: str) -> str:
    """Call `look` until its result is not empty, and return it. Errors: AssertionError after DEADLINE seconds."""
    end = time.monotonic() + DEADLINE
    while not (found := look()):
        assert time.monotonic() < end, complaint
        time.sleep(0.2)
    return found


@contextmanager
def running(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """Start a cluster, and stop it at the end of the block in any case."""
    cluster = Cluster(folder)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.stop()


def job(command: Sequence[object], folder: Path, python: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a driver outside the checkout, and kill its process group afterwards; `python` is for the executors."""
    given = {"PYSPARK_PYTHON": str(python)} if python else {}
    environment = {**spark_environment(), **given, "TMPDIR": str(folder), "SPARK_LOCAL_DIRS": str(folder)}
    process = subprocess.Popen(
        list(map(str, command)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=3 * DEADLINE)
    except subprocess.TimeoutExpired:
        pytest.fail(f"{' '.join(map(str, command))[:200]} is not done after {3 * DEADLINE:.0f} s")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return subprocess.CompletedProcess(list(map(str, command)), process.returncode, out, err)
