"""Measure rmqstore, the real broker, mqadmin and a C loop on the same generated stores, in one run.

Each case is a whole process. The cases alternate, round by round, so that a slow minute of the machine affects all of
them. The table contains median, minimum, maximum and the ratios to the baselines. If a command or a baseline is not
available, the table gives the reason, and the other cases run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.cases import (
    Case,
    append_cases,
    baseline_cases,
    cut_cases,
    queue_cases,
    remove,
    start_cases,
    store_cases,
    unavailable,
)
from benchmarks.generate import generate, parse_size
from benchmarks.measure import last_line, run
from benchmarks.parts import Options

HERE = Path(__file__).resolve().parent


def outcome(case: Case, stdout: Path) -> None:
    """Read the number of messages and the seconds that a process measured from its output."""
    if case.mine and "ndjson" in case.command:
        with stdout.open("rb") as file:
            case.seen = sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
        return
    text = stdout.read_text("utf-8", "replace") if stdout.stat().st_size < 1 << 24 else last_line(stdout)
    for piece in (text, last_line(stdout)):
        try:
            answer = json.loads(piece)
        except ValueError:
            continue
        if not isinstance(answer, dict):
            continue
        if answer.get("loaded") is False:
            case.trouble = "load() returned false"
        log = answer.get("commitlog")
        found = log.get("messages") if isinstance(log, dict) else answer.get("records", answer.get("ok"))
        case.seen = found if isinstance(found, int) else case.seen
        if isinstance(answer.get("seconds"), int | float) and (not case.mine or case.store == "append"):
            case.series.inside.append(float(answer["seconds"]))
        return


def measure(cases: list[Case], work: Path, args: argparse.Namespace) -> None:
    """Run all rounds of all cases in alternation, and then each case once with the memory sampler."""
    stdout = work / "stdout"
    for number in range(max((c.rounds or args.repeat for c in cases), default=0) + 2):
        # round 0 warms the caches and finds cases that fail; the last round samples memory
        warming = number == 0
        for case in cases:
            rounds = case.rounds or args.repeat
            if case.trouble or number > rounds + 1:
                continue
            case.prepare()
            memory = number == rounds + 1
            ran = run(case.command, stdout, memory=memory)
            case.exit_code = ran.exit_code
            if case.failed(ran.exit_code):
                case.trouble = f"exit {ran.exit_code}: {ran.complaint or ran.last_line}"[:200]
            elif memory:
                case.anonymous = ran.anonymous
            elif not warming:
                case.series.seconds.append(ran.seconds)
                case.series.cpu.append(ran.cpu)
                outcome(case, stdout)
            case.prepare()
            remove(stdout)
            text = f"{ran.seconds:.3f} s" if not case.trouble else case.trouble
            kind = "warm" if warming else "memory" if memory else f"{number}/{rounds}"
            print(f"  {kind:>7}  {case.store:<8} {case.name:<44} {text}", file=sys.stderr, flush=True)


def rate(case: Case) -> float:
    """Return messages per second: of the whole process, or for append cases, of the appends alone."""
    seconds = case.series.inside if case.store == "append" and case.series.inside else case.series.seconds
    return case.messages / statistics.median(seconds)


def row(case: Case, cases: list[Case]) -> dict[str, Any]:
    """Return the figures of one case, with its ratios to the baseline and to the C loop."""
    others = {c.name: c for c in cases if c.store == case.store and c.series.seconds}
    figures: dict[str, Any] = {
        "store": case.store,
        "case": case.name,
        "command": case.words,
        "trouble": case.trouble,
        "exit_code": case.exit_code,
    }
    if not case.series.seconds or case.trouble:
        return figures
    median = case.series.median
    figures |= {
        "median": median,
        "min": min(case.series.seconds),
        "max": max(case.series.seconds),
        "seconds": case.series.seconds,
        "cpu": statistics.median(case.series.cpu),
        "seconds_inside": case.series.inside,
        "gigabytes_per_second": case.bytes / median / 1e9 if case.bytes else None,
        "million_messages_per_second": case.messages / median / 1e6 if case.messages else None,
        "peak_anonymous": case.anonymous,
        "messages_seen": case.seen,
        "messages_expected": case.messages or None,
    }
    if case.store == "append" and case.series.inside:  # without the start of the process
        figures["million_messages_per_second"] = rate(case) / 1e6
    if case.baseline in others:
        figures["baseline"] = case.baseline
        figures["times_faster_than_baseline"] = rate(case) / rate(others[case.baseline])
    limits = [c.series.median for n, c in others.items() if n.startswith("C ")]
    if limits and case.bytes and not case.name.startswith("C "):
        figures["times_of_limit"] = median / min(limits) * (max(c.bytes for c in others.values()) / case.bytes)
    return figures


HEADINGS = (
    "store",
    "case",
    "median s",
    "min",
    "max",
    "CPU s",
    "GB/s",
    "M msg/s",
    "× baseline",
    "÷ C",
    "anon MB",
    "remark",
)
LEFT = ("store", "case", "remark")


def table(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Format the rows as text cells, with the headings as the first row."""

    def number(value: Any, shape: str) -> str:
        return format(value, shape) if isinstance(value, int | float) else ""

    out = [list(HEADINGS)]
    for r in rows:
        seen, expected = r.get("messages_seen"), r.get("messages_expected")
        remark = r["trouble"] or (f"exit {r['exit_code']}" if r["exit_code"] else "")
        if seen is not None and expected is not None and seen != expected:
            remark += f"{', ' if remark else ''}saw {seen} of {expected} messages"
        anonymous, rates = r.get("peak_anonymous"), r.get("million_messages_per_second")
        out.append(
            [
                r["store"],
                r["case"],
                number(r.get("median"), ".3f"),
                number(r.get("min"), ".3f"),
                number(r.get("max"), ".3f"),
                number(r.get("cpu"), ".3f"),
                number(r.get("gigabytes_per_second"), ".2f"),
                number(rates, ".3f" if (rates or 0) >= 0.1 else ".5f"),
                number(r.get("times_faster_than_baseline"), ".2f"),
                number(r.get("times_of_limit"), ".1f"),
                number(anonymous / 1e6 if anonymous else None, ".0f"),
                remark,
            ]
        )
    return out


def machine() -> dict[str, Any]:
    """Describe the machine on which the figures were measured."""
    model = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return {
        "cpu": model[1] if model else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)),
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def report(result: dict[str, Any]) -> str:
    """Format the content of results.md."""
    rows, where = table(result["rows"]), result["machine"]
    lines = [
        "# Results",
        "",
        f"Made by `make bench` on {result['when'][:10]}: {where['cpu']}, {where['cores']} cores, "
        f"{where['memory_gib']} GiB, Python {where['python']}. Whole processes, files in the page cache, "
        f"medians of {result['arguments']['repeat']} alternating rounds. × baseline: messages per second divided by "
        "the baseline's (broker load for verify, dumpCompactionLog for dump, the broker's rebuild for rebuild); ÷ C: "
        "time as a multiple of the C loop's. Absolute figures depend on the machine: use the ratios.",
        "",
        "| " + " | ".join(rows[0]) + " |",
        "|" + "---|" * len(rows[0]),
        *("| " + " | ".join(cell.replace("|", "\\|") for cell in r) + " |" for r in rows[1:]),
        "",
        *(f"* {note}" for note in result["notes"]),
    ]
    return "\n".join(lines).rstrip() + "\n"


def show(rows: list[list[str]]) -> None:
    """Print the table with aligned columns."""
    width = [max(len(r[i]) for r in rows) for i in range(len(HEADINGS))]
    for r in rows:
        cells = [
            c.ljust(w) if HEADINGS[i] in LEFT else c.rjust(w) for i, (c, w) in enumerate(zip(r, width, strict=True))
        ]
        print("  ".join(cells).rstrip())


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--size", type=parse_size, default=1 << 30, help="commitlog bytes of each store (default 1G)")
    add("--body", default="256,1024", help="body sizes, one store each (default 256,1024)")
    add("--file-size", type=parse_size, default=1 << 30, help="size of a commitlog file (default 1G)")
    add("--repeat", type=int, default=5, help="timed rounds (default 5)")
    add("--quick", action="store_true", help="stores of 128 MiB, 3 rounds")
    add("--big", type=parse_size, default=0, help="also measure a store of this size, to compare memory (try 4G)")
    add("--only", default="", help="run only cases whose name matches this regular expression")
    add("--append", action="store_true", help="also compare append with the broker's putMessage")
    add("--no-java", action="store_true", help="leave out the broker and mqadmin")
    add("--broker", default="5.4.0", help="RocketMQ version of the broker (default 5.4.0)")
    add("--sparse-files", type=int, default=1024, help="size in GiB of the sparse store for info (default 1024)")
    add("--data", type=Path, help="folder for the stores (default: the system's temporary folder)")
    add("--results", type=Path, default=HERE / "results", help="folder for the results (default: benchmarks/results)")
    add("--python", default=sys.executable, help="interpreter with rmqstore installed (default: this one)")
    add("--keep", action="store_true", help="keep the stores")
    args = parser.parse_args()
    if args.quick:
        args.size, args.repeat, args.sparse_files = min(args.size, 128 << 20), min(args.repeat, 3), 64
    return args


def prepared(work: Path, args: argparse.Namespace, notes: list[str]) -> list[Case]:
    """Generate the stores, and return all cases; a case that cannot run has the reason in `trouble`."""
    wanted = [(f"{b} B", b, args.size) for b in args.body.split(",")]
    if args.big:
        wanted.append((f"{args.big >> 20} MiB", args.body.split(",")[0], args.big))
    cases: list[Case] = []
    for name, body, size in wanted:
        store = work / f"store {name}".replace(" ", "-")
        made = generate(Options(store, size, body=body, file_size=args.file_size))
        rate = made.wrote / 1e6 / made.seconds
        print(f"generated {store.name}: {made.messages} messages, {rate:.0f} MB/s", file=sys.stderr)
        inside = work / f"views {name}".replace(" ", "-")
        cases += store_cases(name, store, made, inside, args)
        if size == args.size:  # the big store is only for measuring memory
            cases += baseline_cases(name, store, made, inside, args, notes, work / "tools")
        if not any(c.store == "start" for c in cases):
            cases += start_cases(store, work, args)
            cases += queue_cases(work, args)
            cases += cut_cases(work, args)
    if args.append:
        cases += append_cases(work, args, notes, work / "tools")
    cases = [c for c in cases if re.search(args.only, c.name)]
    missing: dict[str, str] = {}
    for case in cases:
        if case.mine:
            words = [w for w in case.words[:1] if not w.startswith("-")]
            key = " ".join(words)  # empty: the program itself
            if key not in missing:
                missing[key] = unavailable(args.python, words, work)
            case.trouble = missing[key]
    os.sync()  # otherwise the write-back of the stores would slow the first rounds down
    return cases


def main() -> None:
    """Generate the stores, measure, print and write the results, and remove the stores."""
    args = arguments()
    if args.data:
        args.data.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="rmqstore-bench-", dir=args.data))
    notes: list[str] = []
    try:
        cases = prepared(work, args, notes)
        measure(cases, work, args)
    finally:
        if not args.keep:
            shutil.rmtree(work, ignore_errors=True)
    when = datetime.now(UTC)
    rows = [row(case, cases) for case in cases]
    kept = {
        k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items() if k not in ("data", "python", "results")
    }
    result = {
        "schema": "rmqstore.bench/1",
        "when": when.isoformat(timespec="seconds"),
        "machine": machine(),
        "arguments": kept,
        "notes": list(dict.fromkeys(notes)),
        "rows": rows,
    }
    show(table(rows))
    for note in result["notes"]:
        print(note)
    args.results.mkdir(parents=True, exist_ok=True)
    (args.results / f"{when:%Y%m%dT%H%M%SZ}.json").write_text(json.dumps(result, indent=1) + "\n")
    (args.results / "results.md").write_text(report(result))


if __name__ == "__main__":
    main()
