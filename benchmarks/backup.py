"""Compare backup and restore with cp, and snapshots in object storage with pyarrow's copy and the local store.

python -m benchmarks.backup --size 1G --repeat 3 --data /mnt/fast

All cases run in turn, round by round. CPU seconds are those of the process; on a busy machine they vary less than the
wall clock. The files that a case reads are out of the page cache when it starts, as with a first backup. With versitygw
(see tests/backup/s3_server.py), the cases of object storage run too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import sys
import tempfile
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


def cases(work: Path, python: str, bucket: str) -> Iterator[tuple[str, Command]]:
    """Yield name, command and preparation of each case; `bucket` is empty without object storage."""
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
        # each round is a first backup
        name = iter(range(1 << 30))
        words = [*ours, "backup", str(store), f"s3://{bucket}/repo", "--name", "a", "-q"]

        def next_repository() -> None:
            words[-4] = f"s3://{bucket}/repo{next(name)}"
            uncached(store)

        yield "backup to S3", (words, next_repository)
        yield "verify snapshot in S3", ([*ours, "verify", f"s3://{bucket}/repo0::a", "-q"], lambda: None)


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


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=parse_size, default=1 << 30, help="bytes of the log (default 1G)")
    parser.add_argument("--repeat", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--data", type=Path, help="folder for the data (default: a temporary one)")
    parser.add_argument("--upload", nargs=2, metavar=("STORE", "PLACE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
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
            for _ in range(args.repeat):
                for name, (command, prepare) in cases(work, sys.executable, bucket):
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
