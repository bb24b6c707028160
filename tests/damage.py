"""Functions that damage files in a copy of a store.

Each function asserts that it has changed the file. Otherwise, for example, writing a constant over equal bytes would do
no damage, and the test would prove nothing.
"""

from __future__ import annotations

import os
import random
from pathlib import Path


def flip(path: Path, at: int, bit: int = 0) -> None:
    """Flip one bit of the byte at `at` (position in the file, bytes)."""
    (byte,) = _read(path, at, 1)
    _write(path, at, bytes([byte ^ (1 << bit)]))


def garble(path: Path, at: int, length: int, seed: int = 1) -> None:
    """Change every byte of a span to another value, which depends on the seed."""
    noise = random.Random(seed)
    _write(path, at, bytes(byte ^ noise.randrange(1, 256) for byte in _read(path, at, length)))


def zero(path: Path, at: int, length: int) -> None:
    """Overwrite a span with zeros, like a page that was not written before a power failure."""
    before = _read(path, at, length)
    if not any(before):
        raise ValueError(f"{path.name}: {length} bytes at {at} are zeros already")
    _write(path, at, bytes(length))


def cut(path: Path, size: int) -> None:
    """Truncate a file to `size` bytes."""
    if path.stat().st_size <= size:
        raise ValueError(f"{path.name} has no more than {size} bytes")
    with path.open("r+b") as file:
        file.truncate(size)


def grow(path: Path, length: int) -> None:
    """Append `length` zeros to a file."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + length)


def insert(path: Path, at: int, content: bytes) -> None:
    """Insert bytes, and move all bytes after them."""
    if not content:
        raise ValueError("nothing to insert")
    before = path.read_bytes()
    path.write_bytes(before[:at] + content + before[at:])


def remove_span(path: Path, at: int, length: int) -> None:
    """Remove bytes, and move all bytes after them."""
    before = path.read_bytes()
    if at + length > len(before) or length <= 0:
        raise ValueError(f"{path.name} has no {length} bytes at {at}")
    path.write_bytes(before[:at] + before[at + length :])


def overwrite(path: Path, at: int, content: bytes) -> None:
    """Overwrite a span of a file with other bytes."""
    if _read(path, at, len(content)) == content:
        raise ValueError(f"{path.name}: the bytes at {at} are these already")
    _write(path, at, content)


def copy_span(path: Path, source_at: int, at: int, length: int) -> None:
    """Copy one span of a file over another, like a misdirected write."""
    overwrite(path, at, _read(path, source_at, length))


def _read(path: Path, at: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(at)
        content = file.read(length)
    if len(content) != length or length <= 0:
        raise ValueError(f"{path.name} has no {length} bytes at {at}")
    return content


def _write(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def close_to_owner(store: Path, path: Path) -> None:
    """Make a file or directory of a store read-only for the broker's user.

    As root, change the owners, because a mode does not stop root; otherwise change the mode.
    """
    if os.geteuid() == 0:
        for each in (store, *store.rglob("*")):
            os.chown(each, 12345, 12345, follow_symlinks=False)
        os.chown(path, 0, 0)
        path.chmod(0o755 if path.is_dir() else 0o644)
    else:
        path.chmod(0o555 if path.is_dir() else 0o444)
