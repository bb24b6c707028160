"""Compare `carve --dry-run` with reading the same image: python -m benchmarks.carve --size 2G --data /mnt/fast

The image has a log of the given size and as much of something else, as on a real disk. Both commands run in turn, once
from the disk and once from the page cache. The goal is a ratio of 0.7 from the disk.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.backup import uncached
from benchmarks.generate import generate, parse_size
from benchmarks.measure import run
from benchmarks.parts import Options

_BLOCK = 16 << 20


def image_of(folder: Path, size: int, body: str) -> Path:
    """Make an image with a log of `size` bytes and as many random bytes."""
    generate(Options(folder / "store", size, body, consumequeue=False))
    image = folder / "disk.img"
    with image.open("wb") as out:
        for path in sorted((folder / "store" / "commitlog").iterdir()):
            with path.open("rb") as log:
                shutil.copyfileobj(log, out, _BLOCK)
        for _ in range(size // _BLOCK):
            out.write(os.urandom(_BLOCK))
    shutil.rmtree(folder / "store")
    return image


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=parse_size, default=parse_size("1G"))
    parser.add_argument("--body", default="1024")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()))
    given = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="carve-", dir=given.data))
    try:
        image = image_of(work, given.size, given.body)
        commands = {
            "cat": ["cat", str(image)],
            "carve": [sys.executable, "-m", "rmqstore", "carve", str(image), str(work / "out"), "--dry-run", "-q"],
        }
        for cold in (True, False):
            times: dict[str, list[float]] = {name: [] for name in commands}
            for _ in range(given.repeat):
                for name, command in commands.items():
                    if cold:
                        uncached(work)
                    times[name].append(run(command, work / "printed").seconds)
            cat, carve = (statistics.median(times[name]) for name in commands)
            where = "disk" if cold else "page cache"
            print(f"from the {where}: cat {cat:.2f} s, carve {carve:.2f} s, ratio {cat / carve:.2f}")
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
