"""Random damage of a store, the same for a seed: flips, zeroed pages, cut files, swapped files, removed files."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from tests import damage

KINDS = ("flip", "zero page", "cut", "swap", "remove")
PAGE = 4096
_LOGS = ("commitlog/*", "dledger-*/data/*")
_OTHERS = ("consumequeue/*/*/*", "batchconsumequeue/*/*/*", "index/*", "dledger-*/index/*", "checkpoint")


def wound(store: Path, seed: int | str, *, most: int = 3) -> list[str]:
    """One to `most` wounds, half of them in the log; what was done, in words."""
    dice = random.Random(f"{store.name} {seed}")
    done: list[str] = []
    while len(done) < 1 or (len(done) < most and dice.random() < 0.5):
        files = list(_files(store, _LOGS if dice.random() < 0.6 else _OTHERS))
        said = _one(store, files, dice) if files else None
        if said is not None:
            done.append(said)
    return done


def _files(store: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    for pattern in patterns:
        yield from (path for path in sorted(store.glob(pattern)) if path.is_file() and _used(path))


def _used(path: Path) -> int:
    """Bytes up to the last that is not zero."""
    return len(path.read_bytes().rstrip(b"\0")) if path.stat().st_size < 1 << 22 else 1 << 14


def _one(store: Path, files: list[Path], dice: random.Random) -> str | None:
    path, kind = dice.choice(files), dice.choice(KINDS)
    at = dice.randrange(_used(path))
    name = path.relative_to(store).as_posix()
    match kind:
        case "flip":
            bit = dice.randrange(8)
            damage.flip(path, at, bit)
            return f"flip {name} {at}.{bit}"
        case "zero page":
            start = at - at % PAGE
            length = min(PAGE, path.stat().st_size - start)
            with path.open("rb") as file:
                file.seek(start)
                if not any(file.read(length)):
                    return None
            damage.zero(path, start, length)
            return f"zero page {name} {start}"
        case "cut":
            damage.cut(path, at)
            return f"cut {name} {at}"
        case "swap":
            same = [
                p for p in files if p.parent == path.parent and p != path and p.stat().st_size == path.stat().st_size
            ]
            if not same:
                return None
            other = dice.choice(same)
            one, two = path.read_bytes(), other.read_bytes()
            path.write_bytes(two)
            other.write_bytes(one)
            return f"swap {name} {other.name}"
        case _:
            if path == files[0] and path.parent.name in ("commitlog", "data"):
                return None  # as the broker itself does when the first file of a log has expired
            path.unlink()
            return f"remove {name}"
