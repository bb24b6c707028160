"""Run processes, and measure their time or their memory."""

from __future__ import annotations

import os
import statistics
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SAMPLING = 0.004  # seconds between two memory samples


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a process.

    `cpu` is the user and system time of the process and of the children that it waited for, in seconds. `anonymous` is
    the peak of anonymous memory of the whole process tree in bytes, 0 if it was not sampled.
    """

    seconds: float
    cpu: float
    exit_code: int
    last_line: str
    complaint: str
    anonymous: int = 0


@dataclass(slots=True)
class Series:
    """All timed runs of one case."""

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)  # seconds measured by the process itself, without its start

    @property
    def median(self) -> float:
        """The median time of the whole process, in seconds."""
        return statistics.median(self.seconds)


def anonymous_bytes(root: int) -> int:
    """Return the sum of RssAnon of a process and all its descendants, in bytes; processes that have ended count 0.

    Between vfork and exec, a child of a JVM shows the JVM's own memory, so a child with the command line of its parent
    is not counted.

    Source: proc(5), status and task/*/children
    """
    total, waiting = 0, [(root, b"")]
    while waiting:
        pid, parent = waiting.pop()
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if command == parent and command.split(b"\0")[0].endswith(b"java"):
                continue
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    total += int(line.split()[1]) << 10
            for task in Path(f"/proc/{pid}/task").iterdir():
                waiting += [(int(child), command) for child in (task / "children").read_text().split()]
        except (OSError, ValueError):
            continue
    return total


class Sampler:
    """Samples the memory of a process tree in a thread until it is stopped."""

    def __init__(self, pid: int) -> None:
        self.pid, self.peak = pid, 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        while not self.ended.wait(SAMPLING):
            self.peak = max(self.peak, anonymous_bytes(self.pid))

    def stop(self) -> int:
        """Stop the thread, and return the peak in bytes."""
        self.ended.set()
        self.thread.join()
        return self.peak


def run(
    command: Sequence[str | os.PathLike[str]],
    stdout: Path,
    *,
    memory: bool = False,
    environment: Mapping[str, str] | None = None,
    timeout: float = 1800,
) -> Ran:
    """Run a command with its output in the file `stdout`, and measure the whole process.

    Errors: none; the exit code is 127 for a command that cannot start, and 124 after a timeout.
    """
    errors = stdout.with_name(stdout.name + ".stderr")
    peak = 0
    # With this variable, every start would compile the sources again; an installed package has its bytecode.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with stdout.open("wb") as out, errors.open("wb") as err:
        began = time.perf_counter()
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env={**inherited, **(environment or {})}
            )
        except OSError as problem:
            return Ran(0.0, 0.0, 127, "", str(problem))
        # Popen.wait with a timeout polls only every 50 ms, so a timer kills the process. wait4 returns its CPU time.
        watchdog = threading.Timer(timeout, child.kill)
        watchdog.start()
        sampler = Sampler(child.pid) if memory else None
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        watchdog.cancel()
        if sampler:
            peak = sampler.stop()
    code = 124 if seconds >= timeout else child.returncode
    return Ran(seconds, used.ru_utime + used.ru_stime, code, last_line(stdout), last_line(errors), peak)


def last_line(path: Path) -> str:
    """Return the last non-empty line of a file, which has at most 64 KiB."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - (1 << 16)))
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""
