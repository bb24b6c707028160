"""Several faults at once, as disks and people make them, the same for a given seed.

Every store gets damage in its log and lost queues; most also get a garbage configuration, or a copy of a file from
another time.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

from rmqstore.formats.message import HEAD
from tests import damage
from tests.real_broker.random_damage import damage_bytes
from tests.repair.salvaging import Row, rows

LOGS = ("commitlog", "dledger-*/data")
CONFIGS = ("consumerOffset.json", "topics.json", "delayOffset.json", "subscriptionGroup.json")


def break_at_once(store: Path, seed: int) -> list[str]:
    """Damage log, queues, configuration and copies, and return descriptions."""
    dice = random.Random(f"{store.name} at once {seed}")
    done = _damage_log(store, dice)
    done += _lose_queues(store, dice)
    if dice.random() < 0.6:
        done += _spoil_config(store, dice)
    if dice.random() < 0.6:
        done += _bring_back(store, dice)
    return done


# --- the log ----------------------------------------------------------------------------------------------------------


def _damage_log(store: Path, dice: random.Random) -> list[str]:
    found = rows(store)
    done: list[str] = []
    count = dice.randint(1, 3)
    while len(done) < count:
        row = dice.choice(found)
        kind = dice.choice((_garble, _garble, _field, _field, _head, _page, _several))
        before = row.path.read_bytes()
        what = kind(row, dice)
        if row.path.read_bytes() != before:  # an earlier one may have written the same bytes
            done.append(f"{row.path.relative_to(store)}: {what}")
    return done


def _garble(row: Row, dice: random.Random) -> str:
    at = row.at + dice.randrange(row.size)
    length = min(dice.choice((1, 8, 100)), row.stop - at)
    damage.garble(row.path, at, length, dice.randrange(1000))
    return f"{length} bytes of the record at {row.offset} from {at - row.at}"


def _field(row: Row, dice: random.Random) -> str:
    """Write another plausible value into a field that no checksum covers."""
    name, width = dice.choice((("queue_id", 4), ("queue_offset", 8), ("queue_offset", 8), ("sys_flag", 4)))
    old = int(getattr(row.message, name))
    steps = (4, 8, 12) if name == "sys_flag" else (-old or 1, 1, -1, 3, 1 << 20)
    new = old ^ dice.choice(steps) if name == "sys_flag" else max(0, old + dice.choice(steps))
    with row.path.open("r+b") as file:
        file.seek(row.at + HEAD.at(name))
        file.write(new.to_bytes(width, "big"))
    return f"{name} of the record at {row.offset}: {old} becomes {new}"


def _head(row: Row, dice: random.Random) -> str:
    byte = row.at - row.body_offset + dice.randrange(row.body_offset + HEAD.size)
    damage.garble(row.path, byte, 1, dice.randrange(1000))
    return f"byte {byte - row.at} of the header at {row.offset}"


def _page(row: Row, dice: random.Random) -> str:
    start = row.at // 4096 * 4096
    length = min(4096, row.path.stat().st_size - start)
    content = dice.choice((bytes(length), b"\xff" * length))
    with row.path.open("r+b") as file:
        file.seek(start)
        file.write(content)
    return f"page {start} of {content[:1].hex()}"


def _several(row: Row, dice: random.Random) -> str:
    """Damage neighbouring records, of which some have no room for a filler of their own."""
    stop = min(row.at + dice.choice((600, 3000)), row.path.stat().st_size)
    damage.garble(row.path, row.at, stop - row.at, dice.randrange(1000))
    return f"{stop - row.at} bytes from the record at {row.offset} on"


# --- queues -----------------------------------------------------------------------------------------------------------


def _lose_queues(store: Path, dice: random.Random) -> list[str]:
    home = store / "consumequeue"
    if (home / "CURRENT").exists():
        return _lose_rows(home, dice)
    topics = sorted(path for path in home.glob("*") if path.is_dir())
    match dice.choice(("all", "topic", "queue", "queues", "file", "end")) if topics else "":
        case "all":
            shutil.rmtree(home)
            return ["all queues removed"]
        case "topic":
            gone: Sequence[Path] = [dice.choice(topics)]
        case "queue":
            gone = [dice.choice(sorted(home.glob("*/*")))]
        case "queues":
            queues = sorted(home.glob("*/*"))
            gone = dice.sample(queues, len(queues) // 2)
        case "file":
            gone = [dice.choice(sorted(home.glob("*/*/*")))]
        case "end":
            path = dice.choice([path for path in sorted(home.glob("*/*/*")) if any(path.read_bytes())])
            used = len(path.read_bytes().rstrip(b"\0"))
            at = dice.randrange(used) // 20 * 20
            damage.zero(path, at, used - at)
            return [f"{path.relative_to(store)} zeroed from {at}"]
        case _:
            return []
    for path in gone:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return [f"{path.relative_to(store)} removed" for path in gone]


def _lose_rows(home: Path, dice: random.Random) -> list[str]:
    if dice.random() < 0.5:
        shutil.rmtree(home)
        return ["the RocksDB of the queues removed"]
    path = dice.choice(sorted(p for p in home.iterdir() if p.suffix in (".sst", ".log") or "MANIFEST" in p.name))
    path.unlink()
    return [f"{path.name} removed from the RocksDB"]


# --- configuration and copies -----------------------------------------------------------------------------------------


def _spoil_config(store: Path, dice: random.Random) -> list[str]:
    paths = [path for name in CONFIGS if (path := store / "config" / name).is_file() and path.stat().st_size > 40]
    if not paths:
        return []
    path = dice.choice(paths)
    size = path.stat().st_size
    match dice.choice(("garbage", "zeros", "cut", "removed")):
        case "garbage":
            damage.garble(path, 0, size, dice.randrange(1000))
        case "zeros":
            damage.zero(path, 0, size)
        case "cut":
            damage.cut(path, dice.randrange(1, size))
        case _:
            path.unlink()
    return [f"config/{path.name}: {path.stat().st_size if path.exists() else 'no'} bytes"]


def _bring_back(store: Path, dice: random.Random) -> list[str]:
    """Put a copy of a file from another time, or of another file, in its place or beside it."""
    files = [path for folder in LOGS for path in sorted(store.glob(f"{folder}/*")) if path.is_file()]
    match dice.choice(("copy beside", "older queue", "older checkpoint", "other")):
        case "copy beside":
            path = dice.choice(files)
            shutil.copy2(path, path.with_name(f"{path.name}.bak"))
            return [f"a copy of {path.name} as .bak"]
        case "older queue":
            queues = [p for p in sorted(store.glob("consumequeue/*/*/*")) if p.is_file() and any(p.read_bytes())]
            if not queues:
                return []
            path = dice.choice(queues)
            used = len(path.read_bytes().rstrip(b"\0"))
            at = max(20, used // 40 * 20)
            if at >= used:
                return []
            damage.zero(path, at, used - at)
            return [f"{path.relative_to(store)} as it was when it had {at // 20} units"]
        case "older checkpoint" if (store / "checkpoint").is_file():
            damage.overwrite(store / "checkpoint", 0, (1).to_bytes(8, "big") * 3)
            return ["a checkpoint of an earlier time"]
        case _:
            return damage_bytes(store, dice.randrange(1 << 30), most=1)
