"""Compare backup and restore with cp, and snapshots in object storage with pyarrow's copy and the local store.

python -m benchmarks.backup --size 1G --repeat 3 --data /mnt/fast
python -m benchmarks.backup --broker 5.5.1 --repeat 8

All cases run in turn, round by round. CPU seconds are those of the process; on a busy machine they vary less than the
wall clock. The files that a case reads are out of the page cache when it starts, as with a first backup. With versitygw
(see tests/backup/s3_server.py), the cases of object storage run too. --broker compares how many messages a client sends
to a real broker alone, and beside a backup, in turns of a few seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.generate import generate, parse_size
from benchmarks.measure import run
from benchmarks.parts import Options

Command = tuple[list[str], Callable[[], None]]


def uncached(folder: Path) -> None:
    """Drop the files of a folder from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def cases(work: Path, python: str, bucket: str, number: int) -> Iterator[tuple[str, Command]]:
    """Yield name, command and preparation of each case in a round; `bucket` is empty without object storage."""
    ours = [python, "-m", "rmqstore"]
    store, repo = work / "store", work / "repo"

    def fresh(*gone: Path, cold: Path = store) -> Callable[[], None]:
        def prepare() -> None:
            for path in gone:
                shutil.rmtree(path, ignore_errors=True)
            uncached(cold)

        return prepare

    copy = f"cp -r {store}/commitlog {work}/copy && sync {work}/copy/*"
    yield "cp", (["sh", "-c", copy], fresh(work / "copy"))
    yield "backup", ([*ours, "backup", str(store), str(repo), "--name", "a", "-q"], fresh(repo))
    yield "backup again", ([*ours, "backup", str(store), str(repo), "--name", "a", "-q"], lambda: None)
    plan = [*ours, "rebuild", str(work / "bare"), "cq", "-c", str(work / "broker.conf"), "-q"]
    yield "plan of a queue rebuild", (plan, fresh(cold=work / "bare"))
    yield (
        "restore",
        (
            [*ours, "restore", f"{repo}::a", str(work / "restored"), "-q"],
            fresh(work / "restored", cold=repo),
        ),
    )
    yield "verify store", ([*ours, "verify", str(store), "-q"], fresh())
    yield "verify snapshot", ([*ours, "verify", f"{repo}::a", "-q"], fresh(cold=repo))
    if bucket:
        yield "pyarrow to S3", ([python, "-m", "benchmarks.backup", "--upload", str(store), f"{bucket}/raw"], fresh())
        place = f"s3://{bucket}/repo{number}"  # each round is a first backup
        yield "backup to S3", ([*ours, "backup", str(store), place, "--name", "a", "-q"], fresh())
        yield "verify snapshot in S3", ([*ours, "verify", f"{place}::a", "-q"], lambda: None)


def upload(store: Path, place: str) -> None:
    """Copy the log with pyarrow alone, 4 MiB at a time."""
    from rmqstore.backup.s3 import _connected

    system = _connected()
    for path in sorted((store / "commitlog").iterdir()):
        with path.open("rb") as source, system.open_output_stream(f"{place}/{path.name}") as target:
            while data := source.read(4 << 20):
                target.write(data)


@contextlib.contextmanager
def object_storage(work: Path) -> Iterator[str]:
    """Yield the bucket of a server on this machine; "" without one."""
    import pytest

    from tests.backup.s3_server import BUCKET, s3_server

    try:
        with s3_server(work) as given:
            os.environ.update(given)
            yield BUCKET
    except pytest.skip.Exception as reason:
        print(f"without object storage: {reason}", file=sys.stderr)
        yield ""


_TURN, _SETTLE = 12, 3  # seconds of a turn, and those at its beginning that do not count


def beside_broker(version: str, rounds: int, work: Path) -> None:
    """Print how many messages per second a client sends: alone, beside a snapshot every 10 s, and a first backup."""
    from tests.real_broker.whole_broker import WholeBroker

    store = work / "store"
    generate(Options(out=store, size=2 << 30, body="1024", file_size=256 << 20))
    backup = [sys.executable, "-m", "rmqstore", "backup", str(store)]
    whole = [*backup, "--name", "a", "--max-rate", "100M", "-q"]
    turns = {"alone": [], "every 10 s": [*backup, str(work / "repo"), "--every", "10s", "-q"], "first backup": whole}
    conf = {"mappedFileSizeCommitLog": str(256 << 20), "fileReservedTime": "720", "diskMaxUsedSpaceRatio": "95"}
    sent: list[tuple[float, int]] = []
    begun: list[tuple[str, float]] = []
    with WholeBroker(version, store, conf) as broker:
        seconds = 30 + rounds * len(turns) * (_TURN + 1)
        client = threading.Thread(target=lambda: sent.extend(broker.flood("Flood", seconds)))
        client.start()
        time.sleep(20)  # the client finds the broker, and both are compiled
        for number in range(rounds):
            for name, words in turns.items():
                repository = [str(work / f"repo{number}")] if words is whole else []
                process = subprocess.Popen([*words, *repository], stdout=subprocess.DEVNULL) if words else None
                begun.append((name, time.time()))
                time.sleep(_TURN)
                if process is not None:
                    process.kill()
                    process.wait()
        client.join()
    print(f"{'beside RocketMQ ' + version:<28}{'messages/s':>12}{'of alone':>10}   in pairs")
    rates = {name: [_rate(sent, start) for other, start in begun if other == name] for name in turns}
    for name, found in rates.items():
        pairs = sorted(rate / alone for rate, alone in zip(found, rates["alone"], strict=True))
        share = statistics.median(pairs)
        print(f"{name:<28}{statistics.median(found):>12,.0f}{share:>10.1%}   {pairs[0]:.1%} to {pairs[-1]:.1%}")


def _rate(sent: list[tuple[float, int]], start: float) -> float:
    """Return the messages per second of a turn."""
    return statistics.mean(count for end, count in sent if start + _SETTLE < end <= start + _TURN)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=parse_size, default=1 << 30, help="bytes of the log (default 1G)")
    parser.add_argument("--repeat", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--data", type=Path, help="folder for the data (default: a temporary one)")
    parser.add_argument("--upload", nargs=2, metavar=("STORE", "PLACE"), help=argparse.SUPPRESS)
    parser.add_argument("--broker", metavar="VERSION", help="measure a client that sends to this RocketMQ")
    args = parser.parse_args()
    if args.broker:
        with tempfile.TemporaryDirectory(dir=args.data, prefix="rmqstore-backup-") as folder:
            beside_broker(args.broker, args.repeat, Path(folder))
        return
    if args.upload:
        upload(Path(args.upload[0]), args.upload[1])
        return
    with tempfile.TemporaryDirectory(dir=args.data, prefix="rmqstore-backup-") as folder:
        work = Path(folder)
        generate(Options(out=work / "store", size=args.size, body="1024", file_size=min(args.size, 256 << 20)))
        (work / "bare").mkdir()
        (work / "bare" / "commitlog").symlink_to(work / "store" / "commitlog")
        (work / "broker.conf").write_text("mappedFileSizeConsumeQueue=6000000\n")
        with object_storage(work) as bucket:
            measured: dict[str, list[tuple[float, float, int]]] = {}
            for number in range(args.repeat):
                for name, (command, prepare) in cases(work, sys.executable, bucket, number):
                    prepare()
                    done = run(command, work / "out", memory=True)
                    if done.exit_code not in (0, 1):
                        print(f"{name}: exit code {done.exit_code}: {done.complaint}", file=sys.stderr)
                    measured.setdefault(name, []).append((done.seconds, done.cpu, done.anonymous))
    print(f"{'case':<28}{'wall s':>9}{'CPU s':>9}{'peak MB':>9}")
    for name, rows in measured.items():
        wall, cpu, peak = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"{name:<28}{wall:>9.2f}{cpu:>9.2f}{peak / 1e6:>9.0f}")


if __name__ == "__main__":
    main()
