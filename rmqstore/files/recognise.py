"""Recognize what a path is by names and first bytes: a whole store, a part of one, a single file, or none of these."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.files import Files
from rmqstore.files.mapped_file_queue import NAME_DIGITS, DirEntry, file_name_to_offset
from rmqstore.formats import consumequeue, dledger, index, message, timer
from rmqstore.texts import Text

_MARKS = ("commitlog", "consumequeue", "batchconsumequeue", "checkpoint", "abort", "lock", "index", "config")
_ENTRIES = 64  # that `not_messages` reads
_SURE = 3  # entries that are neither records nor events
_EVENTS = tuple(bytes([n]) for n in range(1, 7))
_COMPACTION = ("compactionLog", "compactionCq")
_MAX_FOLDERS = 100  # in which `store_below` searches


def is_root(files: Files, path: Path, config: BrokerConfig) -> bool:
    """Return whether a directory is a storePathRootDir."""
    top = {e.path.name: e for e in files.list(path)}
    if _is_dledger_group(top):
        return False
    has_log = (top["commitlog"].directory if "commitlog" in top else False) or any(
        n.startswith("dledger-") and e.directory for n, e in top.items()
    )
    marks = sum(1 for m in _MARKS if m in top)
    configured = bool(config.paths("storePathCommitLog")) and marks > 0
    queues = any(n in top and top[n].directory for n in ("consumequeue", "batchconsumequeue"))
    return has_log or configured or marks >= 2 or queues


def not_messages(files: Files, path: Path) -> str:
    """Return what a DLedger log contains if that is not messages; "" for a broker's log, and for all other paths.

    A broker's entry carries one record, whose TOTALSIZE is the length of the body. A controller writes an empty entry
    when it becomes the leader, and events: a number from 1 to 6 in 2 bytes, and JSON. Any other state machine can use
    DLedger too. Entries are judged only where their framing is whole, so damage does not turn a broker's log into
    another one's. Source: DLedgerController, EventSerializer, EventType (RocketMQ 5.0 to 5.5)
    """
    entries = events = 0
    for file in _entry_files(files, path):
        for length, body in _first_bodies(files, file):
            if _may_be_record(length, body):
                return ""
            entries += 1
            events += length == 0 or _is_event(body)
    if entries and entries == events:
        return Text("events of a controller")
    return Text("entries of another program") if entries >= _SURE else ""


def _entry_files(files: Files, path: Path) -> Iterator[Path]:
    """Yield the first data file of each DLedger group at, above or below a path; the path itself if it is a file."""
    if files.is_file(path):
        yield path
        return
    names = {e.path.name: e for e in files.list(path)}
    below = [e.path / "data" for n, e in sorted(names.items()) if n.startswith("dledger-") and e.directory]
    for directory in (path, path / "data", path.parent / "data" if path.name == "index" else path, *below):
        regular = [e.path.name for e in files.list(directory) if e.regular]
        names_ = [n for n in regular if len(n) == NAME_DIGITS and file_name_to_offset(n) is not None]
        if names_:
            yield directory / min(names_)


def _first_bodies(files: Files, file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield length and first bytes of the bodies of the first entries, as long as the entries follow each other."""
    at, index = 0, -1
    for _ in range(_ENTRIES):
        raw = files.read_at(file, dledger.ENTRY.size + 8, at)
        if len(raw) < dledger.ENTRY.size:
            return
        entry = dledger.ENTRY.parse(raw)
        size, length = entry["size"], entry["body_length"]
        framed = entry["magic"] in dledger.TYPES and length >= 0 and size == dledger.ENTRY.size + length
        if not framed or (index >= 0 and entry["index"] != index + 1):
            return
        if entry["magic"] == dledger.NORMAL:
            yield length, raw[dledger.ENTRY.size :][: min(8, length)]
        at, index = at + size, entry["index"]


def _may_be_record(length: int, body: bytes) -> bool:
    total, magic = int.from_bytes(body[:4], "big"), int.from_bytes(body[4:8], "big", signed=True)
    return length > 0 and (total == length or magic in (message.MAGIC_V1, message.MAGIC_V2) or not any(body))


def _is_event(body: bytes) -> bool:
    return body[:1] == b"\0" and body[1:2] in _EVENTS and body[2:3] == b"{"


def store_below(files: Files, path: Path, config: BrokerConfig) -> Path | None:
    """Find a store in a subdirectory of a directory, or in `store/` of a subdirectory, for a hint to the user."""
    try:
        folders = [e.path for e in files.list(path) if e.directory][:_MAX_FOLDERS]
        below = [e.path for folder in folders for e in files.list(folder) if e.directory and e.path.name == "store"]
        return next((folder for folder in [*folders, *below] if is_root(files, folder, config)), None)
    except OSError:  # only a hint
        return None


def store_above(files: Files, path: Path, config: BrokerConfig) -> Path | None:
    """Find the store that contains a part, in the same spelling as `path`, for a hint to the user."""
    lexical = bool(path.name) and ".." not in path.parts
    try:
        parents = (path if lexical else files.real_path(path)).parents
        return next((parent for parent in parents[:4] if is_root(files, parent, config)), None)
    except OSError:  # only a hint
        return None


def _is_dledger_group(names: dict[str, DirEntry]) -> bool:
    """Return whether a directory is a `dledger-<id>`: it has data/ and index/, and nothing of a store root."""
    is_directory = all(n in names and names[n].directory for n in ("data", "index"))
    return is_directory and not any(n in names for n in ("commitlog", "consumequeue", "config", "abort", "lock"))


def is_of_client(path: Path) -> bool:
    """Return whether a file is the progress of a broadcasting client, which looks like a file of config/.

    Source: LocalFileOffsetStore (RocketMQ 4.9.7 to 5.5.1)
    """
    return path.name in ("offsets.json", "offsets.json.bak")


def is_of_compaction(files: Files, path: Path) -> bool:
    """Return whether a path is compaction/ of a store, or is in it.

    Its logs look like a commitlog, and its queues like consume queues; but records keep the CRC of their old position
    in the commitlog, and units have 46 bytes. Source: CompactionLog, SparseConsumeQueue (RocketMQ 5.0 to 5.5)
    """
    lexical = bool(path.name) and ".." not in path.parts
    places = [path, *list(path.absolute().parents)[:4]] if lexical else [one := files.real_path(path), *one.parents[:4]]
    if any(place.name in _COMPACTION for place in places):
        return True
    names = {entry.path.name for entry in files.list(path if path.name == "compaction" else path.parent)}
    return path.name in ("compaction", "position-checkpoint") and not names.isdisjoint(_COMPACTION)


def kind_of_directory(files: Files, path: Path) -> str:
    """Return which part of a store a directory is, by its name and its files; empty for anything else."""
    names = {e.path.name: e for e in files.list(path)}
    if path.name.startswith("dledger-") or _is_dledger_group(names):
        return "dledger-group"
    numeric = [n for n in names if n.isdigit()]
    if path.name == "index" and numeric and all(len(n) == index.NAME_DIGITS for n in numeric):
        return "index"
    numeric_files = [e for n, e in names.items() if file_name_to_offset(n) is not None and not e.directory]
    for entry in sorted(numeric_files, key=lambda e: e.path.name):
        kind = kind_of_file(files, entry.path)
        if kind:
            return kind
    if numeric_files:
        return {"commitlog": "commitlog", "timerlog": "timerlog", "data": "dledger", "index": "dledger-index"}.get(
            path.name, "consumequeue"
        )
    if path.name == "consumequeue_rocksdb":
        return "consumequeue-tree"
    if path.name in ("consumequeue", "batchconsumequeue"):
        return path.name + "-tree"
    if _has_queues(files, path):
        return "topic"
    if any(e.directory and _has_queues(files, e.path) for e in names.values()):
        return "consumequeue-tree"
    if path.name == "config" and names:
        return "config"
    if path.name in ("commitlog", "timerlog", "index", "data"):
        return {"data": "dledger"}.get(path.name, path.name)
    return ""


def _has_queues(files: Files, topic: Path) -> bool:
    """Return whether a directory belongs to a topic: it has numeric directories with files named by offset."""
    return any(
        e.directory
        and e.path.name.isdigit()
        and any(len(f.path.name) >= NAME_DIGITS and f.path.name.isdigit() for f in files.list(e.path))
        for e in files.list(topic)
    )


def kind_of_file(files: Files, path: Path) -> str:
    """Return the kind of a single file by its name, length and first bytes; empty for anything else."""
    name = path.name
    if name == "checkpoint":
        return "dledger-checkpoint" if files.read_at(path, 10, 0)[:1].isalpha() else "checkpoint"
    if name in ("currterm", "timerwheel", "timercheck", "epochFileCheckpoint", "brokerIdentity"):
        return name
    if name.endswith((".json", ".json.bak")):
        return "config"
    raw = files.read_at(path, 64, 0)
    if kind := _kind_of_log(name, raw):
        return kind
    if name.isdigit() and len(name) == index.NAME_DIGITS:
        return "index"
    if file_name_to_offset(name) is not None and len(name) >= 20:
        return _kind_by_place(path, raw)
    return ""


def _kind_of_log(name: str, raw: bytes) -> str:
    """Return the kind of a file by its first record, entry or timer log unit; empty if it starts with none of them."""
    if len(raw) < 8:
        return ""
    first = int.from_bytes(raw[:4], "big", signed=True)
    second = int.from_bytes(raw[4:8], "big", signed=True)
    if second in (message.MAGIC_V1, message.MAGIC_V2, message.BLANK_MAGIC):
        return "commitlog"
    if first in dledger.TYPES and len(raw) >= dledger.ENTRY.size:
        entry = dledger.ENTRY.parse(raw)
        if entry["size"] == entry["body_length"] + dledger.ENTRY.size and entry["size"] > 0:
            return "dledger"
        unit = dledger.INDEX_UNIT.parse(raw)
        if unit["pos"] >= 0 and unit["size"] > 0 and unit["index"] >= 0:
            return "dledger-index"
    if first == -1 and second > 0 and name.isdigit():
        return "dledger"
    return "timerlog" if first == timer.LOG_UNIT.size <= len(raw) else ""


def _kind_by_place(path: Path, raw: bytes) -> str:
    """Return the kind of a file named by offset, from its parent directories or else from its first unit."""
    parents = [p.name for p in list(path.parents)[:4]]
    for mark in ("commitlog", "timerlog", "batchconsumequeue", "consumequeue", "consumequeue_ext"):
        if mark in parents:
            return mark
    if consumequeue.begins_with_batch_unit(raw):
        return "batchconsumequeue"
    if len(raw) >= consumequeue.UNIT_SIZE:
        unit = consumequeue.UNIT.parse(raw)
        if consumequeue.is_unit(unit["commitlog_offset"], unit["size"]):
            return "consumequeue"
    return "commitlog" if raw and not any(raw) else ""
