"""Compare the results of `rmqstore.spark` with those of the local commands, on a generated store of any size.

    python -m benchmarks.equal --size 2G                        # about 15 minutes on 2 cores
    python -m benchmarks.equal --size 6M --file-size 2M --topics 2 --split-size 64K,1M --master spark://…

There are two stores: a sound one, and a copy with damage in its log (across split borders, in bodies, in size fields,
zeros) and in its consume queues. verify, crosscheck, du, export and rebuild run on both, and compare compares one with
the other. Locally, each job is a command in its own process. The exit code is 1 if a result differs.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.answers import JOBS, Stores, differences, linked, local_answers, spark_answers
from benchmarks.generate import generate, parse_size
from benchmarks.parts import Options
from rmqstore.formats.consumequeue import UNIT

QUEUE_FILE = 600_000
SPAN = 65_536  # bytes; the smallest split: damage crosses multiples of it


# --- the stores ------------------------------------------------------------------------------------------------------


def make_stores(work: Path, size: int, file_size: int, body: str, topics: int, seed: int) -> Stores:
    """Generate a sound store, and damage a copy of it; the damage depends only on the seed and the sizes."""
    sound, damaged, bare = work / "sound", work / "damaged", work / "bare"
    generate(Options(sound, size, body=body, topics=topics, file_size=file_size, cq_file_size=QUEUE_FILE, seed=seed))
    shutil.copytree(sound, damaged)
    _damage(damaged, random.Random(seed))
    linked(sound, bare, ())
    conf = work / "broker.conf"
    conf.write_text(f"mappedFileSizeConsumeQueue={QUEUE_FILE}\nmappedFileSizeCommitLog={file_size}\n")
    return Stores(sound, damaged, bare, conf)


def _damage(store: Path, chance: random.Random) -> None:
    for path in sorted((store / "commitlog").iterdir()):
        length = path.stat().st_size
        with path.open("r+b") as file:
            for _ in range(6):
                border = chance.randrange(1, max(2, length // SPAN)) * SPAN
                for at, most in ((border - chance.randrange(40), 1500), (chance.randrange(length), 4)):
                    _garble(file, at, chance.randrange(1, most), length, chance)
            _garble(file, chance.randrange(length), 100_000, length, chance)
            file.seek(chance.randrange(length - 9000))
            file.write(bytes(9000))
    queues = sorted((store / "consumequeue").glob("*/*/0*"))
    for path in chance.sample(queues, min(5, len(queues))):
        length = path.stat().st_size
        units = len(path.read_bytes().rstrip(b"\0")) // UNIT.size
        if units < 10:
            continue
        with path.open("r+b") as file:
            _garble(file, chance.randrange(units) * UNIT.size, 3 * UNIT.size, length, chance)  # units of no message
            _garble(file, (units + 5) * UNIT.size, UNIT.size, length, chance)  # after the end of the queue
            file.seek(chance.randrange(units) * UNIT.size)
            file.write(bytes(UNIT.size))  # a missing unit


def _garble(file: Any, at: int, count: int, length: int, chance: random.Random) -> None:
    at, count = max(0, at), min(count, length - max(0, at))
    file.seek(at)
    before = file.read(count)
    file.seek(at)
    file.write(bytes(byte ^ chance.randrange(1, 256) for byte in before))


# --- the command -----------------------------------------------------------------------------------------------------


def package_locations(spark: Any) -> list[str]:
    """Return the paths from which the executors import rmqstore."""

    def look(_: int) -> str:
        import rmqstore

        return str(rmqstore.__file__)

    return sorted(set(spark.sparkContext.parallelize(range(32), 32).map(look).collect()))


def tasks_of_executors(spark: Any) -> dict[str, int]:
    """Return the number of finished tasks by executor; the driver counts as one only without a cluster."""
    listed = spark.sparkContext._jsc.sc().statusStore().executorList(False)
    found = {listed.apply(i).id(): int(listed.apply(i).completedTasks()) for i in range(listed.size())}
    return {name: n for name, n in found.items() if name != "driver" or len(found) == 1}


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--size", type=parse_size, default=2 << 30, help="bytes of commitlog (default 2G)")
    add("--file-size", type=parse_size, default=1 << 30, help="size of a commitlog file (default 1G)")
    add("--body", default="1024", help="body size (default 1024)")
    add("--topics", type=int, default=8, help="number of topics (default 8)")
    add("--seed", type=int, default=1, help="seed of the store and of the damage (default 1)")
    add("--split-size", default="64M", help="one or more sizes, separated by commas (default 64M)")
    add("--master", default="local[2]", help="Spark master (default local[2])")
    add("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="a Spark setting")
    add("--data", type=Path, help="folder for the stores (default: the system's temporary folder)")
    add("--json", action="store_true", help="print one JSON object instead of text")
    return parser.parse_args()


def main() -> None:
    """Create the stores, run both sides, print the differences, and remove the stores."""
    from rmqstore.spark.session import open_session

    args = arguments()
    work = Path(tempfile.mkdtemp(prefix="rmqstore-equal-", dir=args.data))
    try:
        stores = make_stores(work, args.size, args.file_size, args.body, args.topics, args.seed)
        local = local_answers(stores, work)
        spark = open_session(args.master, dict(s.split("=", 1) for s in args.settings), "rmqstore equal")
        try:
            wrong, seconds = {}, {}
            for text in args.split_size.split(","):
                found = spark_answers(spark, stores, work, parse_size(text))
                wrong[text], seconds[text] = differences(local, found), found.seconds
            executors, places = tasks_of_executors(spark), package_locations(spark)
        finally:
            spark.stop()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    counts = [report["counts"] for report in local.results["verify"]]
    answer = {"size": args.size, "counts": counts, "messages": local.results["du"][0]["messages"], "wrong": wrong}
    answer |= {"local_seconds": local.seconds, "spark_seconds": seconds, "executors": executors, "rmqstore": places}
    if args.json:
        print(json.dumps(answer))
    else:
        _show(answer)
    sys.exit(1 if any(wrong.values()) else 0)


def _show(answer: dict[str, Any]) -> None:
    print(f"{answer['size'] >> 20} MiB, {answer['messages']:,} messages; damaged copy: {answer['counts'][1]}")
    for split, lines in answer["wrong"].items():
        for job in JOBS:
            text = next((line for line in lines if line.startswith(job)), f"{job}: equal")
            local, spark = answer["local_seconds"].get(job), answer["spark_seconds"][split][job]
            times = f" (local {local:.1f} s, Spark {spark:.1f} s)" if local else f" (Spark {spark:.1f} s)"
            print(f"  split {split}  {text}{times}")
    print(f"tasks: {answer['executors']}")


if __name__ == "__main__":
    main()
