"""Measure the Spark jobs, local processes and the broker's own recovery on the same files, in one run.

    python -m benchmarks --spark [--size 1G] [--cores 1,2] [--repeat 3]

Local cases are whole processes, including their start of 0.2 s. Spark jobs run in sessions that stay open; the start of
a session is reported separately. All cases alternate, round by round, so that a slow minute of the machine affects all
of them. Round 0 warms the caches and the JVM; the last round samples memory, which for a Spark job is that of the
driver, the JVM and the Python workers.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bench import machine
from benchmarks.cases import baseline_cases, remove
from benchmarks.generate import generate, parse_size
from benchmarks.measure import run
from benchmarks.parts import Made, Options

HERE = Path(__file__).resolve().parent
JOBS = ("scan", "cross-check", "du", "export")
Job = Callable[[bool], "Outcome"]  # the argument: whether to sample memory


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: seconds, messages seen (None: unknown), peak of anonymous memory in bytes (0: not sampled)."""

    seconds: float
    messages: int | None = None
    peak: int = 0
    trouble: str = ""


@dataclass(slots=True)
class Case:
    """One row of the table: a job, who runs it (`local`, `Spark`, `broker …`), and on how many cores."""

    job: str
    who: str
    cores: int
    run: Job
    first: float = 0.0
    seconds: list[float] = field(default_factory=list)
    messages: int | None = None
    peak: int = 0
    trouble: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the figures."""
        names = ("job", "who", "cores", "first", "seconds", "messages", "peak", "trouble")
        out = {name: getattr(self, name) for name in names}
        return out | ({"median": median(self.seconds)} if self.seconds else {})


class Session:
    """A process with a Spark session; see spark_server.py."""

    def __init__(self, python: str, master: str, store: Path, target: Path, settings: list[str]) -> None:
        command = [python, "-m", "benchmarks.spark_server", master, str(store), str(target), *settings]
        self.process = subprocess.Popen(
            command,
            cwd=HERE.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            stderr=subprocess.DEVNULL,
        )
        self.start = float(self._answer()["seconds"])

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the session ended with exit code {self.process.wait()}")
        return dict(json.loads(line))

    def ask(self, job: str, memory: bool) -> Outcome:
        """Run one job."""
        assert self.process.stdin is not None
        try:
            print(json.dumps({"job": job, "memory": memory}), file=self.process.stdin, flush=True)
            answer = self._answer()
        except (OSError, RuntimeError) as problem:
            return Outcome(0.0, trouble=str(problem))
        return Outcome(answer["seconds"], answer["messages"], answer["peak"])

    def close(self) -> None:
        """End the session and its JVM."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()


def process(command: list[str], work: Path, left: list[Path], prepare: Callable[[], object], memory: bool) -> Outcome:
    """Run a command as a whole process, and remove its output and the files in `left`."""
    prepare()
    stdout = work / "stdout"
    ran = run(command, stdout, memory=memory)
    if ran.exit_code:
        return Outcome(0.0, trouble=f"exit {ran.exit_code}: {ran.complaint or ran.last_line}"[:200])
    try:
        answer = json.loads(stdout.read_text()) if stdout.stat().st_size < 1 << 24 else {}
    except ValueError:
        answer = {}
    log = answer.get("commitlog")
    messages = log.get("messages") if isinstance(log, dict) else answer.get("messages")
    prepare()
    remove(stdout, *left)
    return Outcome(ran.seconds, messages, ran.anonymous)


def cases_of(store: Path, made: Made, work: Path, args: argparse.Namespace, notes: list[str]) -> list[Case]:
    """Return the cases of local processes and of the broker; the caller adds those of Spark."""
    ours, table = [args.python, "-m", "rmqstore"], work / "local.parquet"
    local = {
        "scan": ["verify", str(store / "commitlog"), "--json"],
        "cross-check": ["verify", str(store), "--json"],
        "du": ["du", str(store), "--json"],
        "export": ["export", str(store), "--no-body", "--positions", "-q", "-o", str(table)],
    }
    out = []
    for job in JOBS:
        for cores in args.cores:
            command = [*ours, *local[job], "--jobs", str(cores)]
            out.append(Case(job, "local", cores, partial(process, command, work, [table], lambda: None)))
    for one in baseline_cases("", store, made, work / "views", args, notes, work / "tools"):
        if " load" in one.name:
            job = "rebuild" if "rebuilt" in one.name else "cross-check"
            load = partial(process, one.command, work, [], one.prepare)
            cores = 1 if "one core" in one.name else os.cpu_count() or 1
            out.append(Case(job, f"broker {args.broker} load", cores, load))
    return out


def measure(cases: list[Case], rounds: int) -> None:
    """Run all rounds of all cases in alternation."""
    for number in range(rounds + 2):
        for case in cases:
            if case.trouble:
                continue
            outcome = case.run(number == rounds + 1)
            case.trouble = outcome.trouble
            if number == 0:
                case.first, case.messages = outcome.seconds, outcome.messages
            elif number <= rounds:
                case.seconds.append(outcome.seconds)
            else:
                case.peak = outcome.peak
            kind = "warm" if number == 0 else "memory" if number > rounds else f"{number}/{rounds}"
            text = outcome.trouble or f"{outcome.seconds:.2f} s"
            print(f"  {kind:>7}  {case.job:<12} {case.who}, {case.cores}: {text}", file=sys.stderr, flush=True)


def report(cases: list[Case], made: Made, starts: dict[int, float], args: argparse.Namespace) -> str:
    """Format the table in Markdown."""
    where = machine()
    lines = [
        "# Spark and local processes",
        "",
        f"Made by `python -m benchmarks --spark` on {datetime.now(UTC):%Y-%m-%d}: {where['cpu']}, "
        f"{where['cores']} cores, {where['memory_gib']} GiB, Python {where['python']}. A store of "
        f"{args.size >> 20} MiB, {made.messages:,} messages, bodies of {args.body} bytes, in the page cache; "
        f"medians of {args.repeat} alternating rounds. Export: Parquet, all properties, no bodies. ÷ local: time as a "
        "multiple of the local processes' on as many cores. Peak: anonymous memory of all processes of a case; for "
        "Spark, these are the driver, the JVM and the Python workers.",
        "",
        "| work | by | cores | median s | min | max | first s | ÷ local | peak MB | remark |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for case in sorted(cases, key=lambda c: ((*JOBS, "rebuild").index(c.job), c.who != "local", c.who, c.cores)):
        remark = case.trouble
        if case.messages is not None and case.messages != made.messages:
            remark = f"saw {case.messages:,} messages"
        head = f"| {case.job} | {case.who} | {case.cores} |"
        if not case.seconds:
            lines.append(f"{head} | | | | | | {remark} |")
            continue
        same_job = [c for c in cases if (c.job, c.who, c.cores) == (case.job, "local", case.cores) and c.seconds]
        other = case.who != "local" and same_job
        ratio = f"{median(case.seconds) / median(same_job[0].seconds):.2f}" if other else ""
        times = f"{median(case.seconds):.2f} | {min(case.seconds):.2f} | {max(case.seconds):.2f} | {case.first:.2f}"
        lines.append(f"{head} {times} | {ratio} | {case.peak / 1e6:.0f} | {remark} |")
    starts_text = ", ".join(f"{seconds:.1f} s (local[{n}])" for n, seconds in starts.items())
    return "\n".join([*lines, "", f"Start of a session, not included in these figures: {starts_text}."]) + "\n"


def arguments(words: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks --spark", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    most = os.cpu_count() or 1
    add("--size", type=parse_size, default=1 << 30, help="commitlog bytes (default 1G)")
    add("--body", default="1024", help="body size (default 1024)")
    add("--file-size", type=parse_size, default=1 << 30, help="size of a commitlog file (default 1G)")
    add("--cores", default=",".join(str(n) for n in (1, 2, 4, 8, 16, 32) if n <= most), help="default: 1, 2, 4 … all")
    add("--repeat", type=int, default=3, help="timed rounds (default 3)")
    add("--only", default=",".join(JOBS), help=f"jobs to measure (default {','.join(JOBS)})")
    add("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="a Spark setting")
    add("--no-java", action="store_true", help="leave out the broker")
    add("--broker", default="5.4.0", help="RocketMQ version of the broker (default 5.4.0)")
    add("--data", type=Path, help="folder for the store (default: the system's temporary folder)")
    add("--results", type=Path, default=HERE / "results", help="folder for the results (default: benchmarks/results)")
    add("--python", default=sys.executable, help="interpreter with rmqstore and PySpark (default: this one)")
    args = parser.parse_args(words)
    args.cores = [int(n) for n in args.cores.split(",")]
    return args


def main(words: list[str]) -> None:
    """Generate the store, measure, print and write the results, and remove the store."""
    args = arguments(words)
    if args.data:
        args.data.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="rmqstore-bench-", dir=args.data))
    notes: list[str] = []
    sessions: dict[int, Session] = {}
    try:
        store = work / "store"
        made = generate(Options(store, args.size, body=args.body, file_size=args.file_size))
        os.sync()  # otherwise the write-back of the store would slow the first rounds down
        cases = cases_of(store, made, work, args, notes)
        for cores in args.cores:
            target = work / f"lake-{cores}"
            sessions[cores] = Session(args.python, f"local[{cores}]", store, target, args.settings)
            cases += [Case(job, "Spark", cores, partial(sessions[cores].ask, job)) for job in JOBS]
        cases = [c for c in cases if c.job in (*args.only.split(","), "rebuild")]
        cases.sort(key=lambda c: ((*JOBS, "rebuild").index(c.job), c.cores, c.who))
        measure(cases, args.repeat)
    finally:
        for session in sessions.values():
            session.close()
        shutil.rmtree(work, ignore_errors=True)
    starts = {cores: session.start for cores, session in sessions.items()}
    text = "\n".join([report(cases, made, starts, args), *(f"* {note}" for note in notes if note.startswith("broker"))])
    print(text)
    kept = {k: v for k, v in vars(args).items() if k not in ("data", "python", "results")}
    result: dict[str, Any] = {
        "schema": "rmqstore.bench.spark/1",
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    result |= {"machine": machine(), "arguments": kept, "notes": notes, "starts": starts, "messages": made.messages}
    result["rows"] = [case.to_json() for case in cases]
    args.results.mkdir(parents=True, exist_ok=True)
    (args.results / "spark.json").write_text(json.dumps(result, indent=1) + "\n")
    (args.results / "spark.md").write_text(text.rstrip() + "\n")
