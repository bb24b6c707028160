"""Faults that people and their tools make, the same for a given seed: partial restores, wrong copies, moved queues.

`combined_faults` damages bytes as disks do; here, whole files are missing, old, cut, shifted or in the wrong place.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from tests import damage
from tests.real_broker.combined_faults import CONFIGS, LOGS
from tests.repair.salvaging import rows
from tests.stores import BROKER_STORES, unpack

UNIT = 20


def break_by_hand(store: Path, seed: int) -> list[str]:
    """Make one to three faults, and return descriptions."""
    return _break(store, random.Random(f"{store.name} by hand {seed}"), _KINDS)


def break_with_foreign(store: Path, seed: int) -> list[str]:
    """Do the same, also with files of another broker, and records at wrong places."""
    return _break(store, random.Random(f"{store.name} with foreign {seed}"), _WITH_FOREIGN)


def _break(store: Path, dice: random.Random, kinds: Sequence[Callable[[Path, random.Random], str]]) -> list[str]:
    done: list[str] = []
    count = dice.randint(1, 3)
    while len(done) < count:
        what = dice.choice(kinds)(store, dice)
        done += [what] if what else []
    return done


def _log_files(store: Path) -> list[Path]:
    return [path for folder in LOGS for path in sorted(store.glob(f"{folder}/*")) if path.is_file()]


def _queues(store: Path) -> list[Path]:
    return [path for path in sorted(store.glob("consumequeue/*/*")) if path.is_dir()]


def _used(path: Path) -> int:
    return len(path.read_bytes().rstrip(b"\0"))


def _log_file_gone(store: Path, dice: random.Random) -> str:
    """Restore all log files but one, or not the last ones."""
    files = _log_files(store)
    if len(files) < 3:
        return ""
    path = dice.choice(files[1:])
    after = [one for one in files if one.parent == path.parent and one >= path] if dice.random() < 0.4 else [path]
    for one in after:
        one.unlink()
    return f"{path.parent.name}/{path.name} removed" + (f" and {len(after) - 1} after it" if len(after) > 1 else "")


def _log_file_cut(store: Path, dice: random.Random) -> str:
    """Copy a log file without the zeros at its end, or not completely."""
    path = dice.choice(_log_files(store))
    used = _used(path)
    size = dice.choice((used, dice.randrange(used + 1), used // 4096 * 4096, 0))
    if size >= path.stat().st_size:
        return ""
    damage.cut(path, size)
    return f"{path.parent.name}/{path.name} cut to {size} of {used}"


def _log_file_stale(store: Path, dice: random.Random) -> str:
    """Restore the content of an earlier file under the name of a later one."""
    files = _log_files(store)
    path = dice.choice(files)
    earlier = [one for one in files if one.parent == path.parent and one < path]
    if not earlier:
        return ""
    other = dice.choice(earlier)
    shutil.copyfile(other, path)
    return f"{path.parent.name}/{path.name} becomes {other.name}"


def _log_file_shifted(store: Path, dice: random.Random) -> str:
    """Lose or gain bytes in a file, as by a copy that resumed at a wrong place; the file keeps its length."""
    path = dice.choice(_log_files(store))
    size, used = path.stat().st_size, _used(path)
    if used < 2:
        return ""
    at, length = dice.randrange(used), dice.choice((1, 3, 512, 4096))
    content = path.read_bytes()
    lost = dice.random() < 0.5
    new = content[:at] + content[at + length :] if lost else content[:at] + bytes(length) + content[at:]
    new = new[:size].ljust(size, b"\0")
    if new == content:
        return ""
    path.write_bytes(new)
    return f"{path.parent.name}/{path.name}: {length} bytes {'lost' if lost else 'inserted'} at {at}"


def _log_file_as_text(store: Path, dice: random.Random) -> str:
    """Transfer a log file as text."""
    path = dice.choice(_log_files(store))
    content = path.read_bytes()
    new = content.replace(b"\n", b"\r\n")[: len(content)]
    if new == content:
        return ""
    path.write_bytes(new)
    return f"{path.parent.name}/{path.name} transferred as text"


def _empty_next_file(store: Path, dice: random.Random) -> str:
    """Leave an empty file after the last one, as a full disk does."""
    path = _log_files(store)[-1]
    other = path.with_name(f"{int(path.name) + path.stat().st_size:020}") if path.name.isdigit() else path
    if other.exists() or not path.stat().st_size:
        return ""
    other.touch()
    if dice.random() < 0.5:
        damage.grow(other, dice.choice((4096, path.stat().st_size)))
    return f"{other.parent.name}/{other.name} with {other.stat().st_size} zeros"


def _queues_of_earlier(store: Path, dice: random.Random) -> str:
    """Restore all consume queues as they were earlier, at one place of the log."""
    files = [path for path in sorted(store.glob("consumequeue/*/*/*")) if path.is_file()]
    offsets = [
        int.from_bytes(content[at : at + 8], "big")
        for path in files
        if path.stat().st_size < 1 << 22
        for content in [path.read_bytes()]
        for at in range(0, len(content) // UNIT * UNIT, UNIT)
    ]
    end = dice.choice(offsets) if offsets else 0
    if not end:
        return ""
    for path in files:
        if path.stat().st_size < 1 << 22:
            content = path.read_bytes()
            for at in range(0, len(content) // UNIT * UNIT, UNIT):
                if int.from_bytes(content[at : at + 8], "big") >= end:
                    path.write_bytes(content[:at].ljust(len(content), b"\0"))
                    break
    return f"queues of the time before {end}"


def _queues_moved(store: Path, dice: random.Random) -> str:
    """Swap two queues, rename one, or copy one to another place."""
    queues = _queues(store)
    if len(queues) < 2:
        return ""
    one, two = dice.sample(queues, 2)
    match dice.choice(("swap", "sibling", "copy", "topic")):
        case "swap":
            aside = one.with_name("aside")
            one.rename(aside)
            two.rename(one)
            aside.rename(two)
            what = "and"
        case "sibling":
            two = one.with_name(str(int(one.name) + dice.choice((1, 4, 9))))
            if two.exists():
                return ""
            one.rename(two)
            what = "renamed to"
        case "copy":
            shutil.rmtree(two)
            shutil.copytree(one, two)
            what = "copied to"
        case _:
            one, two = one.parent, one.parent.with_name(f"{one.parent.name}2")
            if two.exists():
                return ""
            one.rename(two)
            what = "renamed to"
    names = [path.relative_to(store / "consumequeue").as_posix() for path in (one, two)]
    return f"queue {names[0]} {what} {names[1]}"


def _queues_cut(store: Path, dice: random.Random) -> str:
    """Copy all consume queues without the zeros at their ends, or leave some files empty."""
    files = [path for path in sorted(store.glob("consumequeue/*/*/*")) if path.is_file()]
    if not files:
        return ""
    empty = dice.random() < 0.3
    chosen = dice.sample(files, max(1, len(files) // 4)) if empty else files
    cut = 0
    for path in chosen:
        used = 0 if empty else -(-_used(path) // UNIT) * UNIT
        if path.stat().st_size > used:
            damage.cut(path, used)
            cut += 1
    return f"{cut} queue files cut to {'nothing' if empty else 'their units'}" if cut else ""


def _of_another_broker(store: Path, dice: random.Random) -> str:
    """Restore a topic's queues, or a log file, from the backup of another broker of the same version.

    It is not the first file: these stores begin with the same messages, as those of no two brokers do.
    """
    version = store.name.partition("-")[0]
    other = unpack(dice.choice([name for name in BROKER_STORES if name.startswith(version) and name != store.name]))
    if dice.random() < 0.5:
        topics = [
            path for path in sorted(store.glob("consumequeue/*")) if (other / "consumequeue" / path.name).is_dir()
        ]
        topics = [path for path in topics if path.is_dir()]
        if not topics:
            return ""
        path = dice.choice(topics)
        shutil.rmtree(path)
        shutil.copytree(other / "consumequeue" / path.name, path)
    else:
        files = [path for path in sorted(store.glob("commitlog/*")) if (other / "commitlog" / path.name).is_file()]
        files = [path for path in files if path.name.strip("0")]
        if not files:
            return ""
        path = dice.choice(files)
        content = (other / "commitlog" / path.name).read_bytes()
        own = path.read_bytes()
        if len(content) != len(own) or content == own or not any(own):
            return ""
        path.write_bytes(content)
    return f"{path.relative_to(store)} of {other.name}"


def _record_over_record(store: Path, dice: random.Random) -> str:
    """Write a record to a wrong place, as a misdirected write does."""
    found = rows(store)
    if len(found) < 2:
        return ""
    one, two = dice.sample(found, 2)
    content = one.path.read_bytes()[one.at : one.stop][: two.path.stat().st_size - two.at]
    if two.path.read_bytes()[two.at : two.at + len(content)] == content:
        return ""
    damage.overwrite(two.path, two.at, content)
    return f"the record at {one.offset} over the one at {two.offset}"


def _beside(store: Path, dice: random.Random) -> str:
    """Remove a file or directory beside log and queues."""
    names = ("index", "checkpoint", "config", *(f"config/{name}" for name in CONFIGS), "timerlog", "timerwheel")
    names += tuple(p.relative_to(store).as_posix() for p in sorted(store.glob("dledger-*/*")) if p.name != "data")
    names += tuple(p.relative_to(store).as_posix() for p in sorted(store.glob("index/*")))
    path = store / dice.choice(names)
    if not path.exists():
        return ""
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    return f"{path.relative_to(store)} removed"


_KINDS = (
    _log_file_gone,
    _log_file_cut,
    _log_file_stale,
    _log_file_shifted,
    _log_file_shifted,
    _log_file_as_text,
    _empty_next_file,
    _queues_of_earlier,
    _queues_moved,
    _queues_moved,
    _queues_cut,
    _beside,
)
_WITH_FOREIGN = (*_KINDS, _of_another_broker, _of_another_broker, _record_over_record)
