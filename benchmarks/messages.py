"""Measure export, import and migrate-to-commitlog, and compare them with dump, pyarrow and putMessage, in one run.

The cases alternate, round by round. Each case is a whole process, except pyarrow, where only writing the table of the
Parquet export from memory is timed, and putMessage, which reports its own rate. The medians of wall-clock time and CPU
time are printed: on a machine with other work, CPU time is more reliable.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import baselines
from benchmarks.append import ask
from benchmarks.generate import generate, parse_size
from benchmarks.measure import run
from benchmarks.parts import Options

PYARROW = """
import sys, time, pyarrow.parquet as pq
from rmqstore.messages.arrow import parquet_options
table = pq.read_table(sys.argv[1])
began, used = time.perf_counter(), time.process_time()
pq.write_table(table, sys.argv[2], row_group_size=1 << 16, **parquet_options(table.schema))
print(time.perf_counter() - began, time.process_time() - used)
"""

SQL = "select topic, count(*), sum(size), min(store_timestamp), max(store_timestamp) from messages group by topic"


def spent(command: list[str], work: Path) -> tuple[float, float]:
    """Run a command, and return its wall-clock time and its CPU time in seconds."""
    ran = run(command, work / "stdout")
    if ran.exit_code:
        raise SystemExit(f"{' '.join(command)}: exit {ran.exit_code}: {ran.complaint}")
    return ran.seconds, ran.cpu


def first_screen(command: list[str]) -> tuple[float, float]:
    """Run a command until it has printed 25 lines, kill it, and return its wall-clock time and its CPU time."""
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert child.stdout is not None
    for _ in range(25):
        child.stdout.readline()
    seconds = time.perf_counter() - began
    child.kill()
    child.stdout.close()
    _, _, used = os.wait4(child.pid, 0)
    child.returncode = -9
    return seconds, used.ru_utime + used.ru_stime


def touch_memory(path: Path, size: int) -> None:
    """Write and delete a file, so that the next case uses memory pages which a virtual machine already has.

    Otherwise, the first case that writes more than the previous ones waits for pages from the host, which doubles its
    time.
    """
    block = bytes(1 << 22)
    with path.open("wb") as file:
        for _ in range(0, size, len(block)):
            file.write(block)
    path.unlink()


def main() -> None:
    """Run the command line: measure, and print a table and, as the last line, one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=parse_size, default=256 << 20, help="bytes of commitlog (default 256M)")
    parser.add_argument("--body", default="1024", help="body size (default 1024)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--broker", default="5.4.0", help="RocketMQ version of the broker (default 5.4.0)")
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="rmqstore-messages-"))
    ours = [sys.executable, "-m", "rmqstore"]
    try:
        made = generate(Options(work / "plain", args.size, body=args.body))
        generate(Options(work / "dledger", args.size, body=args.body, dledger=True))
        plain, out = str(work / "plain"), str(work / "out")
        cases = {
            "dump ndjson": [*ours, "dump", plain, "-q", "-o", f"{out}.ndjson"],
            "dump table": [*ours, "dump", plain, "-q", "-o", f"{out}.txt"],
            "du": [*ours, "du", plain, "-q"],
            "sql: topic, size, time": [*ours, "sql", plain, SQL, "-q"],
            "export ndjson": [*ours, "export", plain, "-q", "-o", f"{out}.ndjson"],
            "export csv": [*ours, "export", plain, "-q", "-o", f"{out}.csv"],
            "export parquet": [*ours, "export", plain, "-q", "-o", f"{out}.parquet"],
            "import store": [*ours, "import", plain, "-q", "-o", out],
            "import parquet": [*ours, "import", f"{work}/kept.parquet", "-q", "-o", out],
            "import ndjson": [*ours, "import", f"{work}/kept.ndjson", "-q", "-o", out],
            "migrate-to-commitlog": [
                *(*ours, "migrate-to-commitlog", str(work / "dledger"), "--peers", "1", "-q", "-o", out),
            ],
        }
        for suffix in ("parquet", "ndjson"):
            subprocess.run([*ours, "export", plain, "-q", "-o", f"{work}/kept.{suffix}"], check=True)
        found: dict[str, list[tuple[float, float]]] = {}
        rates: list[float] = []
        for _ in range(args.rounds):
            for name, command in cases.items():
                touch_memory(work / "touched", 2 * args.size)
                found.setdefault(name, []).append(spent(command, work))
                for path in work.glob("out*"):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            found.setdefault("dump, first screen", []).append(first_screen([*ours, "dump", plain]))
            text = subprocess.run(
                [sys.executable, "-c", PYARROW, f"{work}/kept.parquet", f"{out}.parquet"],
                check=True,
                capture_output=True,
                text=True,
            ).stdout.split()
            found.setdefault("pyarrow alone", []).append((float(text[0]), float(text[1])))
            try:
                broker = baselines.broker(args.broker, work)
                rate = ask(broker.command("Bench", "put", str(work / "put"), args.body, "100000", "async"), work)
                shutil.rmtree(work / "put", ignore_errors=True)
                rates += [rate] if isinstance(rate, float) else []
            except baselines.Missing as why:
                print(f"putMessage: {why}", file=sys.stderr)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    put = statistics.median(rates) if rates else None
    print(f"{made.messages} messages of {args.body} B; putMessage {put and round(put)} messages/s")
    for name, seconds in found.items():
        wall, cpu = (statistics.median(s[k] for s in seconds) for k in (0, 1))
        ratio = f"{made.messages / wall / put:6.1f} x putMessage" if put else ""
        print(f"{name:<22} {wall:8.2f} s {cpu:8.2f} s CPU  {made.messages / wall:10,.0f} messages/s  {ratio}")
    print(json.dumps({"messages": made.messages, "put": rates, "seconds": found}))


if __name__ == "__main__":
    main()
