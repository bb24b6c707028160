"""A Spark session that runs jobs on request: one JSON object per line on stdin, one per line on stdout.

A job is measured without the start of its session, so the session stays open while other processes are measured.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import Sampler


def run(spark: Any, job: str, store: Path, target: Path) -> int:
    """Run one job, and return the number of messages it saw."""
    from rmqstore.spark import jobs
    from rmqstore.spark.export import export

    if job == "scan":
        result = jobs.verify(spark, [store / "commitlog"])
    elif job == "cross-check":
        result = jobs.crosscheck(spark, [store])
    elif job == "du":
        result = jobs.du(spark, [store])
    else:
        result = export(spark, [store], target)
    if result.exit_code:
        raise SystemExit(f"{job}: exit code {result.exit_code}: {json.dumps(result.to_json())[:500]}")
    return int(result.stores[0]["messages"])


def main() -> None:
    """Serve requests until stdin ends. Arguments: MASTER STORE TARGET [KEY=VALUE …]."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the JVM also writes to stdout
    from rmqstore.spark.session import open_session

    began = time.perf_counter()
    master, store, target, *settings = sys.argv[1:]
    spark = open_session(master, dict(s.split("=", 1) for s in settings), "rmqstore benchmark")
    print(json.dumps({"seconds": time.perf_counter() - began}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        shutil.rmtree(target, ignore_errors=True)
        sampler = Sampler(os.getpid()) if request["memory"] else None
        began = time.perf_counter()
        messages = run(spark, request["job"], Path(store), Path(target))
        seconds = time.perf_counter() - began
        peak = sampler.stop() if sampler else 0
        shutil.rmtree(target, ignore_errors=True)
        print(json.dumps({"seconds": seconds, "messages": messages, "peak": peak}), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
