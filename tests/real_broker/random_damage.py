"""Random damage to a store, the same for a given seed: flipped bits, zeroed pages, truncated, swapped, removed files.

`damage_by_failures` simulates power failures, bad disks and partly restored backups: lost pages in several files,
misplaced pages, wrong header fields, queues of an earlier time, invalid times.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from rmqstore.formats import consumequeue, dledger, index, message
from rmqstore.formats.checkpoint import STORE_CHECKPOINT
from rmqstore.formats.layout import Layout
from rmqstore.formats.message import MAGIC_V1, MAGIC_V2
from tests import damage

KINDS = ("flip", "zero page", "cut", "swap", "remove")
PAGE = 4096
_LOGS = ("commitlog/*", "dledger-*/data/*")
_OTHERS = ("consumequeue/*/*/*", "batchconsumequeue/*/*/*", "index/*", "dledger-*/index/*", "checkpoint")


def damage_bytes(store: Path, seed: int | str, *, least: int = 1, most: int = 3) -> list[str]:
    """Do `least` to `most` kinds of damage, half of them in the log, and return descriptions."""
    dice = random.Random(f"{store.name} {seed}")
    done: list[str] = []
    while len(done) < least or (len(done) < most and dice.random() < 0.5):
        files = list(_files(store, _LOGS if dice.random() < 0.6 else _OTHERS))
        description = _one(store, files, dice) if files else None
        if description is not None:
            done.append(description)
    return done


def _files(store: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    for pattern in patterns:
        yield from (path for path in sorted(store.glob(pattern)) if path.is_file() and _used(path))


def _used(path: Path) -> int:
    """Return the length of a file without the zeros at its end."""
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
                return None  # not damage: the broker does this itself when the first file of a log has expired
            path.unlink()
            return f"remove {name}"


# --- power failures, disks and backups --------------------------------------------------------------------------------


def damage_by_failures(store: Path, seed: int | str) -> list[str]:
    """Do one or two other kinds of damage than `damage_bytes`, and return descriptions."""
    dice = random.Random(f"{store.name} more {seed}")
    kinds = (_power_cut, _page_over_page, _header, _queues_of_earlier, _checkpoint, _abort, _half, _longer)
    done: list[str] = []
    while len(done) < 1 or (len(done) < 2 and dice.random() < 0.5):
        done += dice.choice(kinds)(store, dice)
    return done


def _any(store: Path, dice: random.Random) -> Path:
    patterns = _LOGS if dice.random() < 0.6 else _OTHERS
    return dice.choice([path for path in _files(store, patterns) if path.stat().st_size])


def _zero_pages(store: Path, path: Path, first: int, count: int) -> list[str]:
    start, stop = first * PAGE, min((first + count) * PAGE, path.stat().st_size)
    with path.open("rb") as file:
        file.seek(start)
        if not any(file.read(stop - start)):
            return []
    damage.zero(path, start, stop - start)
    return [f"zero {path.relative_to(store).as_posix()} {start} to {stop}"]


def _power_cut(store: Path, dice: random.Random) -> list[str]:
    """Undo the last written pages of several files, as if they had not reached the disk."""
    done: list[str] = []
    for _ in range(dice.randint(2, 4)):
        path = _any(store, dice)
        pages = -(-_used(path) // PAGE)
        count = dice.randint(1, min(3, pages))
        first = pages - count if dice.random() < 0.6 else dice.randrange(pages - count + 1)
        done += _zero_pages(store, path, first, count)
    return done


def _page_over_page(store: Path, dice: random.Random) -> list[str]:
    """Write a page over another page of the same or another file, or swap both."""
    one = _any(store, dice)
    two = one if dice.random() < 0.6 else _any(store, dice)
    unit = PAGE if _used(one) > PAGE else 512
    i, k = (dice.randrange(-(-_used(path) // unit)) * unit for path in (one, two))
    pages = [path.read_bytes()[at : at + unit] for path, at in ((one, i), (two, k))]
    length = min(map(len, pages))
    if pages[0][:length] == pages[1][:length] or (one == two and i == k):
        return []
    damage.overwrite(two, k, pages[0][:length])
    swap = one == two and dice.random() < 0.5
    if swap:
        damage.overwrite(one, i, pages[1][:length])
    names = [path.relative_to(store).as_posix() for path in (one, two)]
    return [f"{unit} bytes of {names[0]} {i} {'and' if swap else 'over'} {names[1]} {k}"]


def _header(store: Path, dice: random.Random) -> list[str]:
    """Flip a bit in a header field of a record, an entry, a unit or an index file."""
    path = _any(store, dice)
    places = list(_headers(path))
    if not places:
        return []
    layout, at = dice.choice(places)
    field = dice.choice(list(layout))
    byte, bit = at + layout.at(field.name) + dice.randrange(field.size), dice.randrange(8)
    if byte >= path.stat().st_size:
        return []
    damage.flip(path, byte, bit)
    return [f"flip {path.relative_to(store).as_posix()} {field.name} {byte}.{bit}"]


def _headers(path: Path) -> Iterator[tuple[Layout, int]]:
    """Yield layout and position of all headers in a file, found by walking the sizes."""
    data, at = path.read_bytes() if path.stat().st_size < 1 << 22 else b"", 0
    match path.parts[-2], path.parts[-4]:
        case ("commitlog", _):
            while at + message.HEAD.size <= len(data):
                head = message.HEAD.parse(data, at)
                if head["magic"] not in (MAGIC_V1, MAGIC_V2) or head["size"] <= 0:
                    return
                yield message.HEAD, at
                at += head["size"]
        case ("data", _):
            while at + dledger.ENTRY.size + message.HEAD.size <= len(data):
                entry = dledger.ENTRY.parse(data, at)
                if entry["magic"] != dledger.MAGIC or entry["size"] <= 0:
                    return
                yield from ((dledger.ENTRY, at), (message.HEAD, at + dledger.ENTRY.size))
                at += entry["size"]
        case ("index", folder) if not folder.startswith("dledger-") and len(path.name) == 17:
            yield index.HEADER, 0
        case (_, "consumequeue" | "batchconsumequeue" as tree):
            layout = consumequeue.UNIT if tree == "consumequeue" else consumequeue.BATCH_UNIT
            yield from ((layout, unit) for unit in range(0, _used(path), layout.size))


def _queues_of_earlier(store: Path, dice: random.Random) -> list[str]:
    """Remove the last units of some queues, as if they came from a backup that is older than the log."""
    queues = [path for path in sorted(store.glob("consumequeue/*/*")) if path.is_dir()]
    done: list[str] = []
    for queue in dice.sample(queues, min(len(queues), dice.randint(1, 4))):
        files = [path for path in sorted(queue.iterdir()) if _used(path)]
        if not files:
            continue
        path = dice.choice(files)
        count = -(-_used(path) // consumequeue.UNIT.size)
        keep = dice.randrange(count) * consumequeue.UNIT.size
        damage.zero(path, keep, path.stat().st_size - keep)
        for later in files[files.index(path) + 1 :]:
            later.unlink()
        done.append(f"older {path.relative_to(store).as_posix()} from {keep}")
    return done


def _checkpoint(store: Path, dice: random.Random) -> list[str]:
    path = store / "checkpoint"
    if not path.is_file() or path.stat().st_size < STORE_CHECKPOINT.size:
        return []
    field = dice.choice(list(STORE_CHECKPOINT))
    old = STORE_CHECKPOINT.parse(path.read_bytes())[field.name]
    value = dice.choice((0, -1, 1, (1 << 63) - 1, -(1 << 63), old + 10**10, max(0, old - 3_600_000)))
    if value == old:
        return []
    damage.overwrite(path, STORE_CHECKPOINT.at(field.name), value.to_bytes(8, "big", signed=True))
    return [f"checkpoint {field.name} {value}"]


def _abort(store: Path, _dice: random.Random) -> list[str]:
    path = store / "abort"
    if path.exists():
        path.unlink()
        return ["no abort"]
    path.touch()
    return ["abort"]


def _half(store: Path, dice: random.Random) -> list[str]:
    path = _any(store, dice)
    size = path.stat().st_size
    damage.cut(path, size // 2)
    return [f"half {path.relative_to(store).as_posix()}"]


def _longer(store: Path, dice: random.Random) -> list[str]:
    """Append bytes to a file: garbage, zeros, or those of another file."""
    path = _any(store, dice)
    length = dice.choice((1, 20, 512, PAGE))
    more = dice.choice((dice.randbytes(length), bytes(length), _any(store, dice).read_bytes()[:length]))
    with path.open("ab") as file:
        file.write(more)
    return [f"{len(more)} bytes behind {path.relative_to(store).as_posix()}"]


# --- any file, in any way ------------------------------------------------------------------------------------------

# without the timer wheel: the oracle has no TimerMessageStore, so only whole brokers read it (test_whole_broker.py)
_ANY = ("config/*.json", "timerlog/*", "timercheck", "consumequeue_ext/*/*/*", "dledger-*/checkpoint")


def damage_any_file(store: Path, seed: int | str) -> list[str]:
    """Do one or two kinds of damage to any file of a store, and return descriptions."""
    dice = random.Random(f"{store.name} any {seed}")
    kinds = (
        *(_flip, _zero_page, _page_of_ones, _ones_over_head, _torn, _swap, _cut),
        *(_extend, _rename, _duplicate, _stale, _remove),
    )
    done: list[str] = []
    while len(done) < 1 or (len(done) < 2 and dice.random() < 0.4):
        part = dice.random()
        patterns = _LOGS if part < 0.55 else _OTHERS if part < 0.9 else _ANY
        files = [path for path in _files(store, patterns) if path.stat().st_size]
        if files:
            path = dice.choice(files)
            text = dice.choice(kinds)(path, dice)
            done += [f"{path.relative_to(store).as_posix()}: {text}"] if text else []
    return done


def _flip(path: Path, dice: random.Random) -> str:
    at, bit = dice.randrange(_used(path)), dice.randrange(8)
    damage.flip(path, at, bit)
    return f"flip {at}.{bit}"


def _page(path: Path, dice: random.Random) -> tuple[int, int]:
    start = dice.randrange(_used(path)) // PAGE * PAGE
    return start, min(PAGE, path.stat().st_size - start)


def _write(path: Path, at: int, content: bytes, said: str) -> str:
    """Overwrite bytes, and return the description, or "" if they are the same."""
    with path.open("rb") as file:
        file.seek(at)
        if file.read(len(content)) == content:
            return ""
    damage.overwrite(path, at, content)
    return said


def _zero_page(path: Path, dice: random.Random) -> str:
    at, length = _page(path, dice)
    return _write(path, at, bytes(length), f"zero page {at}")


def _page_of_ones(path: Path, dice: random.Random) -> str:
    at, length = _page(path, dice)
    return _write(path, at, b"\xff" * length, f"page of ones {at}")


def _ones_over_head(path: Path, dice: random.Random) -> str:
    """Write what looks like a BLANK over a head: ones, or the magic of the commitlog's BLANK with another size."""
    places = [at for _, at in _headers(path)]
    if not places:
        return ""
    at = dice.choice(places)
    content = dice.choice((b"\xff" * 8, b"\xff" * 4 + message.build_blank(8)[4:]))
    return _write(path, at, content, f"head {at} becomes {content.hex()}")


def _torn(path: Path, dice: random.Random) -> str:
    """Undo the last write except its first sectors."""
    at = dice.randrange(_used(path)) // 512 * 512
    with path.open("rb") as file:
        file.seek(at)
        rest = file.read(dice.choice((512, PAGE, 1 << 24)))
    return _write(path, at, dice.choice((bytes(len(rest)), dice.randbytes(512)[: len(rest)])), f"torn from {at}")


def _same_kind(path: Path) -> list[Path]:
    size = path.stat().st_size
    return [p for p in sorted(path.parent.iterdir()) if p.is_file() and p != path and p.stat().st_size == size]


def _swap(path: Path, dice: random.Random) -> str:
    if not (others := _same_kind(path)) or path.stat().st_size >= 1 << 22:
        return ""
    other = dice.choice(others)
    one, two = path.read_bytes(), other.read_bytes()
    path.write_bytes(two)
    other.write_bytes(one)
    return f"swap with {other.name}"


def _cut(path: Path, dice: random.Random) -> str:
    size = dice.choice((0, 19, dice.randrange(_used(path)), _used(path) // PAGE * PAGE))
    if path.stat().st_size <= size:
        return ""
    damage.cut(path, size)
    return f"cut to {size}"


def _extend(path: Path, dice: random.Random) -> str:
    length = dice.choice((1, 20, PAGE, path.stat().st_size, 1 << 40))
    if dice.random() < 0.3:
        with path.open("ab") as file:
            file.write(dice.randbytes(min(length, PAGE)))
    damage.grow(path, length)
    return f"{length} bytes longer"


def _other_name(path: Path, dice: random.Random) -> Path:
    name, step = path.name, path.stat().st_size
    number = int(name) if name.isdigit() else 0
    names = [name[:-1], f"{name}.bak", f"{number + step:020}", f"{number + 7 * step:020}", f"{number // 5:020}"]
    return path.with_name(dice.choice(names))


def _rename(path: Path, dice: random.Random) -> str:
    other = _other_name(path, dice)
    if other.exists():
        return ""
    path.rename(other)
    return f"renamed to {other.name}"


def _duplicate(path: Path, dice: random.Random) -> str:
    other = _other_name(path, dice)
    if other.exists() or path.stat().st_size >= 1 << 22:
        return ""
    other.write_bytes(path.read_bytes())
    return f"copied to {other.name}"


def _stale(path: Path, dice: random.Random) -> str:
    """Replace a file by its earlier state, or by an earlier file of the same queue."""
    if path.stat().st_size >= 1 << 22:
        return ""
    earlier = [p for p in _same_kind(path) if p.name < path.name]
    if earlier and dice.random() < 0.5:
        other = dice.choice(earlier)
        return _write(path, 0, other.read_bytes(), f"becomes {other.name}")
    at = dice.randrange(_used(path)) // 20 * 20
    return _write(path, at, bytes(path.stat().st_size - at), f"older, up to {at}")


def _remove(path: Path, _dice: random.Random) -> str:
    if path == min(path.parent.iterdir()) and path.parent.name in ("commitlog", "data"):
        return ""  # not damage: the broker does this itself when the first file of a log has expired
    path.unlink()
    return "removed"
