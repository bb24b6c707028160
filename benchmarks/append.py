"""Compare rmqstore's append with the real `DefaultMessageStore.putMessage`, on the same disk, in one run.

    python -m benchmarks.append                       # 256 B and 1 KiB, async and sync, 3 rounds
    python -m benchmarks.append --data /mnt/fast --version 5.1.4 --rounds 5

Both append the same messages (UNIQ_KEY, KEYS, TAGS, CLUSTER; one topic, four queues) one by one from one thread, with
consume queues and index, each time into a new store. The time of the appends alone is measured, without start and stop.
Both sides alternate within each round. The broker writes queues and index in other threads; rmqstore has one thread.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import baselines
from benchmarks.measure import run
from rmqstore.append.encoder import NewMessage
from rmqstore.append.flush import FlushPolicy
from rmqstore.append.message_store import MessageStore, StoreOptions

BODIES = (256, 1024)
COUNTS = {"async": 200_000, "sync": 2_000}
ORDER = b"UNIQ_KEY\x017F0000010A2B18B4AAC2%012X\x02CLUSTER\x01DefaultCluster\x02KEYS\x01order%012d\x02TAGS\x01TagA\x02"


def put(root: Path, body: int, count: int, policy: str, dledger: str | None) -> dict[str, float]:
    """Append `count` messages after a warm-up of a tenth as many, and return the figures of the former."""
    content = bytes(body)
    warm = count // 10
    with MessageStore.create(root, StoreOptions(flush=FlushPolicy(policy), dledger=dledger)) as store:
        began = cpu = 0.0
        for number in range(count + warm):
            if number == warm:
                began, cpu = time.perf_counter(), time.process_time()
            now = time.time_ns() // 1_000_000
            store.put(NewMessage("Order_0", content, ORDER % (number, number), number % 4, born_timestamp=now))
        seconds, used = time.perf_counter() - began, time.process_time() - cpu
        good = store.appended - warm
    return {
        "messages": count,
        "ok": good,
        "seconds": seconds,
        "messages_per_second": count / seconds,
        "cpu_seconds": used,
    }


def ask(command: list[str], work: Path) -> float | str:
    """Run a command, and return the messages per second from its last line of output, or an error message."""
    ran = run(command, work / "stdout", timeout=600)
    try:
        return float(json.loads(ran.last_line)["messages_per_second"])
    except (ValueError, KeyError, TypeError):
        return f"exit {ran.exit_code}: {ran.complaint or ran.last_line}"[:100]


def compare(work: Path, version: str, rounds: int, scale: float) -> list[dict[str, object]]:
    """Run all cases `rounds` times, and return one row per case and side with the median rate."""
    try:
        broker: baselines.Broker | None = baselines.broker(version, work)
        why = ""
    except baselines.Missing as missing:
        broker, why = None, str(missing)
    found: dict[tuple[int, str, str], list[float | str]] = {}
    for _ in range(rounds):
        for body in BODIES:
            for policy, whole in COUNTS.items():
                count = max(100, int(whole * scale))
                commands = {
                    "rmqstore": [sys.executable, "-m", "benchmarks.append", "--inside", str(body), str(count), policy],
                    "rmqstore dledger": [
                        *(sys.executable, "-m", "benchmarks.append", "--inside", str(body), str(count), policy),
                        "n0",
                    ],
                }
                if broker is not None:
                    words = ("put", "STORE", str(body), str(count), policy)
                    commands[f"RocketMQ {version}"] = broker.command("Bench", *words)
                for name, command in commands.items():
                    store = work / "store"
                    shutil.rmtree(store, ignore_errors=True)
                    if "--inside" in command:
                        command = [*command[:4], str(store), *command[4:]]
                    else:
                        command = [str(store) if word == "STORE" else word for word in command]
                    found.setdefault((body, policy, name), []).append(ask(command, work))
    rows: list[dict[str, object]] = []
    for (body, policy, name), values in found.items():
        good = [value for value in values if isinstance(value, float)]
        row: dict[str, object] = {"body": body, "flush": policy, "who": name, "rounds": values}
        row["messages_per_second"] = round(statistics.median(good)) if good else None
        real = [v for v in found.get((body, policy, f"RocketMQ {version}"), []) if isinstance(v, float)]
        row["of_the_broker"] = statistics.median(good) / statistics.median(real) if good and real else None
        rows.append(row)
    if why:
        rows.append({"who": f"RocketMQ {version}", "left_out": why})
    return rows


def main() -> None:
    """Run the command line: print a table and, as the last line, one JSON object."""
    if "--inside" in sys.argv:
        root, body, count, policy, *dledger = sys.argv[sys.argv.index("--inside") + 1 :]
        print(json.dumps(put(Path(root), int(body), int(count), policy, dledger[0] if dledger else None)))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", default="5.4.0", help="RocketMQ version: 4.9.7, 5.1.4 or 5.4.0 (default 5.4.0)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the number of messages by this factor")
    parser.add_argument("--data", type=Path, help="folder on the disk to measure (default: the temporary folder)")
    args = parser.parse_args()
    if args.data:
        args.data.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="rmqstore-append-", dir=args.data))
    try:
        rows = compare(work, args.version, args.rounds, args.scale)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{'body':>6} {'flush':>6}  {'messages/s':>12}  {'of broker':>9}  who")
    for row in rows:
        if "left_out" in row:
            print(f"{row['who']}: left out: {row['left_out']}")
        else:
            part = row["of_the_broker"]
            share = f"{part:.2f}" if isinstance(part, float) else ""
            cells = f"{row['messages_per_second'] or 0:>12,}  {share:>9}  {row['who']}"
            print(f"{row['body']:>6} {row['flush']:>6}  {cells}")
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    print(json.dumps({"commit": head.stdout.strip(), "rows": rows}))


if __name__ == "__main__":
    main()
