"""Images of disks for tests, and what of a store is still in them; knows nothing of rmqstore.

`records` and `surviving` read a log in the plainest way: they are the judge of what carving finds.
"""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

MAGICS = (0xDAA320A7, 0xDAA320AB)
BLOCK = 4096


@dataclass(frozen=True)
class Found:
    """A record of a log file, or an entry with its message. `at`: position in the file."""

    file: str
    at: int
    size: int


def logs_of(store: Path) -> dict[str, bytes]:
    """Return the files of all logs of a store, by their paths in it."""
    folders = [store / "commitlog", *store.glob("dledger-*/data")]
    files = (path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir()))
    return {str(path.relative_to(store)): path.read_bytes() for path in files}


def records(name: str, data: bytes) -> Iterator[Found]:
    """Yield the records of a log file, or its entries."""
    lead = 48 if "dledger" in name else 0
    at = 0
    while at + lead + 8 <= len(data):
        size, magic = struct.unpack_from(">II", data, at + lead)
        if magic not in MAGICS:
            return
        yield Found(name, at, lead + size)
        at += lead + size


def surviving(logs: Mapping[str, bytes], kept: Iterable[tuple[str, int]], block: int = BLOCK) -> list[Found]:
    """Return the records all of whose blocks are kept; a block is named by its file and its number in it."""
    there = set(kept)
    return [
        found
        for name, data in logs.items()
        for found in records(name, data)
        if all((name, number) in there for number in range(found.at // block, (found.at + found.size - 1) // block + 1))
    ]


def all_blocks(logs: Mapping[str, bytes], block: int = BLOCK) -> list[tuple[str, int]]:
    """Return the blocks of all files."""
    return [(name, number) for name, data in logs.items() for number in range(-(-len(data) // block))]


def scattered(
    logs: Mapping[str, bytes], order: Iterable[tuple[str, int] | None], block: int = BLOCK, seed: int = 0
) -> bytes:
    """Return an image with the blocks in this order; None is a block of something else."""
    noise = random.Random(seed)
    blank = bytes(block)
    return b"".join(
        noise.randbytes(block) if one is None else (logs[one[0]][one[1] * block :][:block] + blank)[:block]
        for one in order
    )


def ext4(store: Path, image: Path, size: str = "64M", block: int = BLOCK) -> Path:
    """Make an ext4 file system with the files of a store, without mounting it."""
    if shutil.which("mkfs.ext4") is None or shutil.which("debugfs") is None:
        pytest.skip("needs e2fsprogs")
    subprocess.run(["mkfs.ext4", "-q", "-b", str(block), "-d", store, image, size], check=True, capture_output=True)
    return image


def delete_all(store: Path, image: Path) -> None:
    """Delete every file of the store in its file system, as `rm -rf` does: blocks stay, inodes forget them."""
    lines = [f'rm "/{path.relative_to(store)}"' for path in sorted(store.rglob("*")) if path.is_file()]
    folders = sorted((path for path in store.rglob("*") if path.is_dir()), reverse=True)
    lines += [f'rmdir "/{path.relative_to(store)}"' for path in folders]
    done = subprocess.run(
        ["debugfs", "-w", "-f", "-", image], input="\n".join(lines), text=True, capture_output=True, check=True
    )
    listed = subprocess.run(["debugfs", "-R", "ls -l /", image], text=True, capture_output=True, check=True).stdout
    assert "commitlog" not in listed, done.stderr
