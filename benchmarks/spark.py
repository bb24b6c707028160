"""Measures the Spark jobs beside local processes and the broker's own recovery, on the same files, in one run.

    python -m benchmarks --spark [--size 1G] [--cores 1,2] [--repeat 3]

Local work is whole processes (their start, 0.2 s, is in the figures); Spark jobs run in sessions that stay open, and
their start is told apart. All take turns, round by round, so that a noisy minute of the machine hits all of them.
Round 0 warms caches and the JVM, the last one samples memory: of a Spark job that is driver, JVM and Python workers.
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
from benchmarks.cases import remove, rival_cases
from benchmarks.generate import generate, parse_size
from benchmarks.measure import run
from benchmarks.parts import Made, Options

HERE = Path(__file__).resolve().parent
JOBS = ("scan", "cross-check", "du", "export")
Ask = Callable[[bool], "Said"]  # with the memory sampler or without


@dataclass(frozen=True, slots=True)
class Said:
    """One run: seconds, messages seen (None: it does not say), peak of anonymous memory in bytes (0: not sampled)."""

    seconds: float
    messages: int | None = None
    peak: int = 0
    trouble: str = ""


@dataclass(slots=True)
class Case:
    """One cell of the table: a job, who does it (`local`, `Spark`, `broker …`), on how many cores."""

    job: str
    who: str
    cores: int
    ask: Ask
    first: float = 0.0
    seconds: list[float] = field(default_factory=list)
    messages: int | None = None
    peak: int = 0
    trouble: str = ""

    def to_json(self) -> dict[str, Any]:
        """The figures."""
        names = ("job", "who", "cores", "first", "seconds", "messages", "peak", "trouble")
        out = {name: getattr(self, name) for name in names}
        return out | ({"median": median(self.seconds)} if self.seconds else {})


class Session:
    """A process that holds a Spark session, see spark_server.py."""

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

    def ask(self, job: str, memory: bool) -> Said:
        """One job."""
        assert self.process.stdin is not None
        try:
            print(json.dumps({"job": job, "memory": memory}), file=self.process.stdin, flush=True)
            said = self._answer()
        except (OSError, RuntimeError) as problem:
            return Said(0.0, trouble=str(problem))
        return Said(said["seconds"], said["messages"], said["peak"])

    def close(self) -> None:
        """Ends the session and its JVM."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()


def whole(command: list[str], work: Path, left: list[Path], prepare: Callable[[], object], memory: bool) -> Said:
    """A whole process."""
    prepare()
    stdout = work / "stdout"
    ran = run(command, stdout, memory=memory)
    if ran.exit_code:
        return Said(0.0, trouble=f"exit {ran.exit_code}: {ran.complaint or ran.last_line}"[:200])
    try:
        said = json.loads(stdout.read_text()) if stdout.stat().st_size < 1 << 24 else {}
    except ValueError:
        said = {}
    log = said.get("commitlog")
    messages = log.get("messages") if isinstance(log, dict) else said.get("messages")
    prepare()
    remove(stdout, *left)
    return Said(ran.seconds, messages, ran.anonymous)


def cases_of(store: Path, made: Made, work: Path, args: argparse.Namespace, notes: list[str]) -> list[Case]:
    """Local processes and the broker; sessions are added by the caller."""
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
            out.append(Case(job, "local", cores, partial(whole, command, work, [table], lambda: None)))
    for one in rival_cases("", store, made, work / "views", args, notes, work / "tools"):
        if " load" in one.name:
            job = "rebuild" if "rebuilt" in one.name else "cross-check"
            ask = partial(whole, one.command, work, [], one.prepare)
            cores = 1 if "one core" in one.name else os.cpu_count() or 1
            out.append(Case(job, f"broker {args.broker} load", cores, ask))
    return out


def measure(cases: list[Case], rounds: int) -> None:
    """All rounds of all cases, in turns."""
    for number in range(rounds + 2):
        for case in cases:
            if case.trouble:
                continue
            said = case.ask(number == rounds + 1)
            case.trouble = said.trouble
            if number == 0:
                case.first, case.messages = said.seconds, said.messages
            elif number <= rounds:
                case.seconds.append(said.seconds)
            else:
                case.peak = said.peak
            kind = "warm" if number == 0 else "memory" if number > rounds else f"{number}/{rounds}"
            text = said.trouble or f"{said.seconds:.2f} s"
            print(f"  {kind:>7}  {case.job:<12} {case.who}, {case.cores}: {text}", file=sys.stderr, flush=True)


def report(cases: list[Case], made: Made, starts: dict[int, float], args: argparse.Namespace) -> str:
    """The table in Markdown."""
    where = machine()
    lines = [
        "# Spark beside local processes",
        "",
        f"Made by `python -m benchmarks --spark` on {datetime.now(UTC):%Y-%m-%d}: {where['cpu']}, "
        f"{where['cores']} cores, {where['memory_gib']} GiB, Python {where['python']}. A store of "
        f"{args.size >> 20} MiB, {made.messages:,} messages, bodies of {args.body} bytes, in the page cache; "
        f"{args.repeat} rounds in turn, medians. Export: Parquet, all properties, no bodies. ÷ local: time as a "
        "multiple of the local processes on as many cores. Peak: anonymous memory of all its processes; of Spark that "
        "is driver, JVM and Python workers.",
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
        rivals_of = [c for c in cases if (c.job, c.who, c.cores) == (case.job, "local", case.cores) and c.seconds]
        other = case.who != "local" and rivals_of
        ratio = f"{median(case.seconds) / median(rivals_of[0].seconds):.2f}" if other else ""
        times = f"{median(case.seconds):.2f} | {min(case.seconds):.2f} | {max(case.seconds):.2f} | {case.first:.2f}"
        lines.append(f"{head} {times} | {ratio} | {case.peak / 1e6:.0f} | {remark} |")
    starts_text = ", ".join(f"{seconds:.1f} s (local[{n}])" for n, seconds in starts.items())
    return "\n".join([*lines, "", f"Start of a session, not in these figures: {starts_text}."]) + "\n"


def arguments(words: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks --spark", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    most = os.cpu_count() or 1
    add("--size", type=parse_size, default=1 << 30, help="commitlog bytes (default 1G)")
    add("--body", default="1024", help="body size (default 1024)")
    add("--file-size", type=parse_size, default=1 << 30)
    add("--cores", default=",".join(str(n) for n in (1, 2, 4, 8, 16, 32) if n <= most), help="default: 1, 2, 4 … all")
    add("--repeat", type=int, default=3, help="timed rounds (default 3)")
    add("--only", default=",".join(JOBS), help=f"jobs, default {','.join(JOBS)}")
    add("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark")
    add("--no-java", action="store_true", help="without the broker")
    add("--broker", default="5.4.0", help="RocketMQ version of the broker (default 5.4.0)")
    add("--data", type=Path, help="where to put the store (default: the system's temporary folder)")
    add("--results", type=Path, default=HERE / "results")
    add("--python", default=sys.executable, help="interpreter that has rmqstore and PySpark")
    args = parser.parse_args(words)
    args.cores = [int(n) for n in args.cores.split(",")]
    return args


def main(words: list[str]) -> None:
    """Generates, measures, prints, writes the results, removes the data."""
    args = arguments(words)
    if args.data:
        args.data.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="rmqstore-bench-", dir=args.data))
    notes: list[str] = []
    sessions: dict[int, Session] = {}
    try:
        store = work / "store"
        made = generate(Options(store, args.size, body=args.body, file_size=args.file_size))
        os.sync()  # or the first rounds would share the disk with the store being written back
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
