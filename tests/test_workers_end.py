"""Worker processes end when their parent ends, by whatever signal."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks into /proc")

SCRIPT = """
import sys, time
from pathlib import Path
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.scan.split import Split
from rmqstore.scan.workers import map_ordered

def work(split):
    print(flush=True)
    time.sleep(0.05 if split.start < 2 else 600)
    return split

if __name__ == "__main__":
    splits = [Split(MappedFile(Path("x"), 0, 9, 9), i, i + 1) for i in range(int(sys.argv[1]))]
    for _ in map_ordered(work, splits, jobs=2):
        pass
"""


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.quick_rows
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize("splits", [4, 2], ids=["at work", "idle"])
def test_signal_to_the_parent_alone_ends_its_workers(number: signal.Signals, splits: int, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(SCRIPT if splits == 4 else SCRIPT.replace("        pass", "        time.sleep(600)"))
    with subprocess.Popen([sys.executable, str(script), str(splits)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        for _ in range(splits):
            parent.stdout.readline()
        workers = children(parent.pid)
        try:
            assert len(workers) == 2 and all(map(running, workers))
            parent.send_signal(number)
            assert parent.wait(10) == -number
            end = time.monotonic() + 10
            while any(map(running, workers)) and time.monotonic() < end:
                time.sleep(0.02)
            assert [pid for pid in workers if running(pid)] == []
        finally:
            for pid in (parent.pid, *workers):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
