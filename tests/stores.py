"""Real stores for tests: each is unpacked once into a read-only master copy, and copied for tests that change it.

    with copies:   store = copy_store("5.4.0-killed", tmp_path)
    to read only:  store = unpack("5.4.0-killed")

`fixtures/README.md` describes how the stores were created. `tests/damage.py` breaks copies.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "fixtures"
CACHE = Path(os.environ.get("RMQSTORE_TEST_CACHE", ROOT / ".cache" / "stores"))

VERSIONS = ("4.9.7", "5.1.4", "5.4.0", "5.5.1")
BROKER_STORES: tuple[str, ...] = tuple(
    sorted(path.name.removesuffix(".tar.gz") for path in (FIXTURES / "stores").glob("*.tar.gz"))
)
CLASS_STORES: tuple[str, ...] = tuple(
    sorted(path.name.removesuffix(".tar.gz") for path in (FIXTURES / "classes").glob("*.tar.gz"))
)
STORES = BROKER_STORES + CLASS_STORES
FINDINGS: Mapping[str, Mapping[str, int]] = {
    **{f"{version}-timer-rocksdb-pending": {"RDB-NO-TIMELINE": 1} for version in ("5.4.0", "5.5.1")},
    "5.5.1-config-v2": {"CFG-UNSTORED-TOPICS": 1},
    "5.5.1-flushed-killed": {"CFG-BROKEN": 1},
}
"""What `verify` finds in stores as real brokers left them: what the next start does wrong, and one unfinished write."""

_WRITE = 0o222
_LISTING = "listing.json"
_used: set[Path] = set()
_BLOCK = 1 << 16
_ZEROS = bytes(_BLOCK)


@dataclass(frozen=True, slots=True)
class Queue:
    """What the real store read of one consume queue. Units: queue offsets."""

    min: int
    max: int
    readable: int
    first_bad: int | None


@dataclass(frozen=True, slots=True)
class Reading:
    """What the real store of its version read from a copy of a fixture when the fixture was made."""

    load: bool
    min_phy: int | None
    max_phy: int | None
    queues: Mapping[str, Queue]
    offsets: int
    readable: int


@dataclass(frozen=True, slots=True)
class Meta:
    """How a store was created (`NAME.json` beside the archive)."""

    name: str
    version: str
    scenario: str
    stopped: str
    abort_present: bool
    settings: Mapping[str, str]
    broker_conf: Mapping[str, str]
    oracle_args: Mapping[str, str]
    oracle_load: Reading
    oracle_start: Reading


@dataclass(frozen=True, slots=True)
class Sent:
    """One send that the broker acknowledged; `body_crc32` is of the body before compression."""

    kind: str
    topic: str
    queue_id: int
    queue_offset: int
    status: str
    msg_id: str
    offset_msg_id: str
    tags: str | None
    keys: str | None
    body_length: int
    body_crc32: int
    compress: str


def archive(name: str) -> Path:
    """Return the path of a store's archive."""
    for folder in ("stores", "classes", "formats"):
        path = FIXTURES / folder / f"{name}.tar.gz"
        if path.exists():
            return path
    raise KeyError(f"no fixture is named {name!r}")


@functools.cache
def unpack(name: str) -> Path:
    """Return the read-only master copy of a store. Never change it: use copy_store() instead.

    The name of the folder contains the archive's digest, so a new archive never uses an old copy. The folder is created
    by a rename, so that several test processes can unpack it at the same time.
    """
    source = archive(name)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    home = CACHE / f"{name}-{digest}"
    if not home.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=CACHE))
        _extract(source, building)
        (building / _LISTING).write_text(json.dumps(_listing(building)), "utf-8")
        try:
            building.rename(home)
        except OSError:  # another process was first
            _remove(building)
    _used.add(home)
    return next(path for path in home.iterdir() if path.is_dir())


def changed_masters() -> list[str]:
    """Return the changed files of master copies that this process has used (root can write read-only files)."""
    changed = []
    for home in _used:
        was = json.loads((home / _LISTING).read_text("utf-8"))
        now = _listing(home)
        changed += [f"{home.name}/{name}" for name in was.keys() | now.keys() if was.get(name) != now.get(name)]
    return sorted(changed)


def copy_store(name: str, target: Path, *, rename: str | None = None) -> Path:
    """Create a writable copy of a store below `target`, without hard links, with the holes, modes and times kept."""
    copy = target / (rename or name)
    clone(unpack(name), copy)
    return copy


def clone(source: Path, copy: Path) -> None:
    """Copy a directory tree with holes, mtimes and modes, but make the read-only files of a master copy writable."""
    copy.mkdir(parents=True)
    top = os.fspath(source)
    folders = [(top, os.fspath(copy))]
    for here, _, files in os.walk(top):
        there = f"{copy}{here[len(top) :]}"
        if here != top:
            Path(there).mkdir()
            folders.append((here, there))
        for file in files:
            _clone_file(f"{here}/{file}", f"{there}/{file}")
    for here, there in reversed(folders):  # last, because every new entry changes its folder's mtime
        status = Path(here).stat()
        Path(there).chmod(_writable(status))
        os.utime(there, ns=(status.st_atime_ns, status.st_mtime_ns))


def meta(name: str) -> Meta:
    """Return how a broker store was created, and what the real store read from it."""
    document = json.loads((FIXTURES / "stores" / f"{name}.json").read_text("utf-8"))
    return Meta(
        name=name,
        version=document["rocketmq"],
        scenario=document["scenario"],
        stopped=document["stopped"],
        abort_present=document["abort_present"],
        settings={key: str(value) for key, value in document["settings"].items()},
        broker_conf={key: str(value) for key, value in document["broker_conf"].items()},
        oracle_args=dict(argument.split("=", 1) for argument in document["oracle_args"]),
        oracle_load=_reading(document["oracle_load"]),
        oracle_start=_reading(document["oracle_start"]),
    )


def sent(name: str) -> list[Sent]:
    """Return all acknowledged sends of a broker store, in the order of the acknowledgements."""
    with gzip.open(FIXTURES / "stores" / f"{name}.sent.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        Sent(
            kind=row["kind"],
            topic=row["topic"],
            queue_id=row["queueId"],
            queue_offset=row["queueOffset"],
            status=row["status"],
            msg_id=row["msgId"],
            offset_msg_id=row["offsetMsgId"],
            tags=row["tags"],
            keys=row["keys"],
            body_length=row["body_len"],
            body_crc32=row["body_crc32"],
            compress=row["compress"],
        )
        for row in rows
    ]


def write_broker_conf(name: str, store: Path, **more: str) -> Path:
    """Write a `broker.conf` beside a copied store, with the settings of its broker and its new paths."""
    conf = dict(meta(name).broker_conf)
    conf |= {"storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog")} | more
    path = store.parent / f"{store.name}.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in conf.items()), "utf-8")
    return path


def _listing(home: Path) -> dict[str, list[int]]:
    files = {path: path.stat() for path in home.rglob("*") if path.is_file() and path.name != _LISTING}
    return {str(path.relative_to(home)): [status.st_size, status.st_mtime_ns] for path, status in files.items()}


def _reading(document: Mapping[str, object]) -> Reading:
    load, low, high = document["load"], document["min_phy"], document["max_phy"]
    queues, offsets, readable = document["queues"], document["offsets"], document["readable"]
    assert isinstance(load, bool)
    assert isinstance(low, int)
    assert isinstance(high, int)
    assert isinstance(queues, dict)
    assert isinstance(offsets, int)
    assert isinstance(readable, int)
    return Reading(
        load=load,
        min_phy=low,
        max_phy=high,
        queues={
            key: Queue(queue["min"], queue["max"], queue["readable"], queue["first_bad"])
            for key, queue in queues.items()
        },
        offsets=offsets,
        readable=readable,
    )


def _extract(source: Path, target: Path) -> None:
    """Unpack as sparse files (a timer wheel is 38 MB of zeros), and make all files read-only."""
    folders: list[tuple[Path, tarfile.TarInfo]] = []
    with tarfile.open(source, "r:gz") as tar:
        for member in tar:
            path = target / member.name
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
                folders.append((path, member))
                continue
            if not member.isfile():
                raise ValueError(f"{source.name}: {member.name} is neither a file nor a directory")
            data = tar.extractfile(member)
            assert data is not None
            with path.open("wb") as out:
                while block := data.read(_BLOCK):
                    _write_or_skip(out, block)
                out.truncate(member.size)
            path.chmod(member.mode & ~_WRITE)
            os.utime(path, (member.mtime, member.mtime))
    for path, member in reversed(folders):
        os.utime(path, (member.mtime, member.mtime))
        path.chmod(member.mode & ~_WRITE)


def _clone_file(source: str, copy: str) -> None:
    data = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    out = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
    try:
        status = os.fstat(data)
        at, size = 0, status.st_size
        while at < size:
            try:
                at = os.lseek(data, at, os.SEEK_DATA)
            except OSError:  # there is only a hole up to the end
                break
            stop = os.lseek(data, at, os.SEEK_HOLE)
            while at < stop and (block := os.pread(data, min(_BLOCK, stop - at), at)):
                if block != (_ZEROS if len(block) == _BLOCK else bytes(len(block))):
                    os.pwrite(out, block, at)
                at += len(block)
        os.ftruncate(out, size)
        os.fchmod(out, _writable(status))
        os.utime(out, ns=(status.st_atime_ns, status.st_mtime_ns))
    finally:
        os.close(data)
        os.close(out)


def _write_or_skip(out: BinaryIO, block: bytes) -> None:
    """Write a block, or leave a hole if it contains only zeros."""
    if block == _ZEROS[: len(block)]:
        out.seek(len(block), os.SEEK_CUR)
    else:
        out.write(block)


def _writable(status: os.stat_result) -> int:
    return status.st_mode & 0o7777 | 0o200


def _remove(folder: Path) -> None:
    for path, _, _ in os.walk(folder):
        Path(path).chmod(0o755)
    shutil.rmtree(folder)
