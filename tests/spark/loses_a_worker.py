"""A driver whose job loses an executor, or a whole worker, while it runs one of the tasks.

Arguments: MASTER STORE MARK executor|worker [KEY=VALUE …]. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rmqstore.checks.examine import verify
from rmqstore.checks.options import VerifyOptions
from rmqstore.files.store import open_store
from rmqstore.scan.split import Split
from rmqstore.spark.jobs import spark_mapper
from rmqstore.spark.session import open_session


def main(master: str, store: str, mark: str, who: str, *settings: str) -> None:
    """Run verify and read the store; the task of the split in the middle kills its executor or worker once."""
    spark = open_session(master, dict(s.split("=", 1) for s in settings))
    mapper = spark_mapper(spark, task_bytes=1 << 17)

    def lossy(function: Callable[[Split], Any], splits: Sequence[Split]) -> Iterator[tuple[Split, Any]]:
        victim = splits[len(splits) // 2]

        def parent(process: int) -> int:
            return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])

        def work(split: Split) -> Any:
            if (split.file.start, split.start) == (victim.file.start, victim.start):
                try:
                    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))  # only once, although the task runs again
                except FileExistsError:
                    return function(split)
                executor = parent(os.getppid())  # the parent of this process is Python's daemon, a child of it
                for process in [parent(executor), executor] if who == "worker" else [executor]:
                    os.kill(process, signal.SIGKILL)
            return function(split)

        return mapper(work, splits)

    report = verify(open_store(Path(store)), VerifyOptions(split_size=65536), lossy)
    rows = spark.read.format("rmqstore.commitlog").option("splitSize", "64k").load(store).count()
    print(json.dumps({"counts": report.findings.counts, "rows": rows}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
