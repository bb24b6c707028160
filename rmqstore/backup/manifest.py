"""The manifest of a snapshot: what it contains, and which objects hold it.

A manifest is JSON from a place that others may write to: everything in it is checked before it is used, so that no key
leaves the repository and no path leaves the directory of a restored store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from rmqstore.append.rights import StoreRights, rights_of
from rmqstore.backup.storage import check_key, is_name
from rmqstore.brokers.writer import writer_of
from rmqstore.errors import CouldNotCheck, Refused, UsageError
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.broker_settings import STORE_SETTINGS
from rmqstore.files.index import index_sizes
from rmqstore.files.lock import LOCK_NAME
from rmqstore.files.store import Store, StoreKind
from rmqstore.files.store_queues import CONFIGURED_SIZES, SEPARATE, SEPARATE_KEY, SHARED
from rmqstore.files.users import JOURNAL_FOLDER
from rmqstore.files.walk import Leads
from rmqstore.texts import Text

REPOSITORY_FORMAT = 1
"""The format of a repository that this version writes; it reads all up to this one."""
FORMAT = 2
"""The newest format of a snapshot that this version writes; it reads all up to this one.

In format 1, no run of zeros is longer than CHUNK. A snapshot without a longer one still has format 1.
"""
COMMITLOG, DLEDGER = "commitlog", "dledger"
_LOG_KEY = re.compile(r"log/(commitlog|dledger)/\d{20}(\.[A-Za-z0-9-]+)*")
_HASH = re.compile(r"[0-9a-f]{64}")
_VERSION = re.compile(r"\d{1,4}(\.\d{1,4}){2}")
_SNAPSHOT = re.compile(r"\d{8}T\d{6}Z(-\d{1,6})?")
_MOST = 1 << 62
_MAX_INT = (1 << 31) - 1
"""The largest size that a setting of a broker can have, a Java int."""
CHUNK = 1 << 20
"""Bytes of a small file that are one object."""
MOST_OF_ONE = 1 << 50
"""The largest file beside the log that a snapshot has, with its holes, bytes."""
DERIVED = frozenset(
    {SHARED, SEPARATE, "consumequeue_ext", "batchconsumequeue", "index", "checkpoint", "abort", LOCK_NAME}
    | {JOURNAL_FOLDER, "lost+found"}
)
"""Entries of the root that are in no snapshot: rebuilt from the log, or of a running process."""
_SIZES = frozenset(
    {"mappedFileSizeCommitLog", "mappedFileSizeTimerLog", "maxHashSlotNum", "maxIndexNum"}
    | {kind.size_key for kind in CONFIGURED_SIZES}
)
TAIL = ".tail-"
"""In the name of an object: it continues a file of the log from an offset on."""


class Unsound(Exception):
    """A manifest that no version of this program wrote."""


@dataclass(frozen=True, slots=True)
class StoredPiece:
    """The first `length` bytes of an object of `size` bytes. `sha256` is the hash of the whole object."""

    object: str
    size: int
    sha256: str
    length: int


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of a log, up to the last byte that the snapshot contains.

    `start` is the global offset of the file. `good`: pieces of an earlier snapshot that this file contradicts; they
    are kept as long as the file is. Times are store times of its messages (ms), -1 without one. `problems`: code →
    number of findings in the file. `ctime_ns`: 0 if it is unknown. A repair changes it, and leaves `mtime_ns`.
    """

    start: int
    pieces: tuple[StoredPiece, ...]
    mtime_ns: int
    messages: int = 0
    bytes: int = 0
    first_time: int = -1
    last_time: int = -1
    problems: Mapping[str, int] = field(default_factory=dict)
    good: tuple[StoredPiece, ...] = ()
    ctime_ns: int = 0

    @property
    def length(self) -> int:
        """The number of bytes that the snapshot has of the file."""
        return sum(piece.length for piece in self.pieces)

    @property
    def earlier(self) -> list[LogFile]:
        """The file as earlier snapshots had it, with the bytes that this one contradicts; the newest first."""
        versions: list[list[StoredPiece]] = []
        for piece in self.good:
            if not versions or TAIL not in piece.object:
                versions.append([])
            versions[-1].append(piece)
        return [replace(self, pieces=tuple(pieces), good=()) for pieces in versions]

    def cut(self, length: int) -> LogFile:
        """Return the file with at most its first `length` bytes; its numbers stay."""
        kept, left = [], length
        for piece in self.pieces:
            if left <= 0:
                break
            kept.append(replace(piece, length=min(piece.length, left)))
            left -= piece.length
        return replace(self, pieces=tuple(kept))


@dataclass(frozen=True, slots=True)
class BranchStart:
    """Where a log no longer continues what the repository has.

    `offset`: the first different byte (global offset). `time`: store time of the last equal message (ms), None if
    nothing is equal. `since`: the snapshot that has the other bytes. `damage`: the store's bytes there are damaged.
    `missing_to`: the store's log begins only there, and the repository ends at `offset`; None if both have the bytes.
    """

    log: str
    offset: int
    time: int | None
    since: str
    damage: bool
    missing_to: int | None = None


@dataclass(frozen=True, slots=True)
class LeftLink:
    """A link that is not in a snapshot: `path` in the store, the `target` that it names, and where it `leads`."""

    path: str
    target: str
    leads: str

    @property
    def words(self) -> Text:
        """The link, and where it leads."""
        return Text("{path} -> {target}: {leads}", path=self.path, target=self.target, leads=Leads(self.leads).words)


@dataclass(frozen=True, slots=True)
class LogCopy:
    """One log of a snapshot.

    `begin`: global offset of the first byte that the store had; earlier files are kept after the broker expired them.
    `end`: the cut, the end of the last good message. `body_offset`: bytes before each message, 48 in DLedger data.
    """

    name: str
    file_size: int
    body_offset: int
    begin: int
    end: int
    files: tuple[LogFile, ...]

    @property
    def messages(self) -> int:
        """Number of good messages, without those of kept files."""
        return sum(file.messages for file in self.own)

    @property
    def size(self) -> int:
        """Bytes of the log, without kept files."""
        return sum(file.length for file in self.own)

    @property
    def own(self) -> tuple[LogFile, ...]:
        """The files that the store had."""
        return tuple(file for file in self.files if file.start + self.file_size > self.begin)

    @property
    def last_time(self) -> int:
        """Store time of the last message (ms); -1 without one."""
        return max((file.last_time for file in self.files), default=-1)


@dataclass(frozen=True, slots=True)
class OtherFile:
    """A file beside the log. `path` is relative to the root of the store; a chunk is (hash or "" for zeros, length).

    Only a chunk of zeros may be longer than CHUNK.
    """

    path: str
    mtime_ns: int
    chunks: tuple[tuple[str, int], ...]

    @property
    def size(self) -> int:
        return sum(length for _, length in self.chunks)

    @property
    def data(self) -> int:
        """The number of bytes that are not in runs of zeros."""
        return sum(length for digest, length in self.chunks if digest)


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """What of a store cannot be told from its log: `settings` in the form of broker.conf, and what existed.

    `queues`: "files", "rocksdb" or "both"; `rocksdb`: the directory of the database. `has_index`, `epochs`: the store
    had index files, and epochs of a controller group. `written_by`: the oldest and the newest version that can have
    written the store; None if nothing tells. `rights`: owner and modes; None in snapshots of 1.0.0rc1.
    """

    kind: str
    self_id: str = ""
    queues: str = "files"
    rocksdb: str = ""
    has_index: bool = True
    epochs: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    written_by: tuple[str, str] | None = None
    rights: StoreRights | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """A snapshot. `time`: when it was made (ms); `new_bytes`: bytes that it added to the repository.
    `unread`: bytes of the log that the disk could not read, for which it has zeros.

    `counts`: code → number of findings in the part of the log that the snapshot contains. `branches`: where the log
    no longer continued the snapshot before. `left_out`: links of the store that are not in it.
    """

    name: str
    snapshot: str
    time: int
    layout: StoreLayout
    logs: tuple[LogCopy, ...]
    others: tuple[OtherFile, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    branches: tuple[BranchStart, ...] = ()
    new_bytes: int = 0
    unread: int = 0
    left_out: tuple[LeftLink, ...] = ()

    @property
    def lacks(self) -> bool:
        """Whether the store had files behind links out of it, which the snapshot lacks."""
        return any(left.leads == Leads.OUTSIDE for left in self.left_out)

    @property
    def begin(self) -> int:
        """Global offset where the log begins."""
        return min((log.begin for log in self.logs), default=0)

    @property
    def end(self) -> int:
        """The cut: global offset of the log's end."""
        return max((log.end for log in self.logs), default=0)

    @property
    def messages(self) -> int:
        return sum(log.messages for log in self.logs)

    @property
    def size(self) -> int:
        """Bytes of the log and of the other files."""
        return sum(log.size for log in self.logs) + sum(other.data for other in self.others)

    @property
    def last_time(self) -> int:
        """Store time of the last message (ms); -1 without one."""
        return max((log.last_time for log in self.logs), default=-1)

    @property
    def damaged(self) -> bool:
        return bool(self.counts)

    def earlier(self) -> list[Manifest]:
        """Return the snapshot with files of earlier ones in the place of those that contradict them, newest first."""
        depth = max((len(file.earlier) for log in self.logs for file in log.files), default=0)

        def at(number: int, file: LogFile) -> LogFile:
            return file.earlier[number] if number < len(file.earlier) else file

        return [
            replace(self, logs=tuple(replace(log, files=tuple(at(n, file) for file in log.files)) for log in self.logs))
            for n in range(depth)
        ]

    def log(self, name: str) -> LogCopy | None:
        """Return one log; None if the snapshot has none of this name."""
        return next((log for log in self.logs if log.name == name), None)

    def objects(self) -> Iterator[tuple[str, int, str]]:
        """Yield key (without the store's name), size and hash of every object that the snapshot needs."""
        for log in self.logs:
            for file in log.files:
                for piece in (*file.pieces, *file.good):
                    yield piece.object, piece.size, piece.sha256
        for other in self.others:
            for digest, length in other.chunks:
                if digest:
                    yield config_key(digest), length, digest

    @property
    def format(self) -> int:
        """The oldest format that it can have."""
        return FORMAT if any(length > CHUNK for other in self.others for _, length in other.chunks) else 1

    def to_json(self) -> bytes:
        """Return the bytes of the manifest."""
        document = {"format": self.format, **asdict(self)}
        return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def config_key(digest: str) -> str:
    """Return the key of a chunk of a small file; "" for one of zeros, which is no object."""
    return f"config/{digest}" if digest else ""


def order_of(snapshot: str) -> tuple[str, int]:
    """Return the sort key of a snapshot's name."""
    stem, _, number = snapshot.partition("-")
    return stem, int(number or 0)


def is_snapshot(text: str) -> bool:
    """Return whether a text has the form of a snapshot's name."""
    return _SNAPSHOT.fullmatch(text) is not None


def parse_manifest(data: bytes, name: str, snapshot: str) -> Manifest:
    """Read the manifest of a snapshot.

    Errors: Refused for a newer format; CouldNotCheck for anything that is not a manifest.
    """
    try:
        document = read_json(data)
        if not isinstance(document, dict):
            raise Unsound
        refuse_newer(document.get("format"), Text("snapshot {name}@{snapshot}", name=name, snapshot=snapshot), FORMAT)
        found = _FieldReader().manifest(document, name, snapshot)
        if found.format > document["format"]:
            raise Unsound
        return found
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, UsageError, Unsound) as error:
        raise CouldNotCheck(
            Text("the manifest of {name}@{snapshot} is damaged", name=name, snapshot=snapshot),
            Text("use another snapshot; `rmqstore snapshots --check` lists all"),
        ) from error


def read_json(data: bytes) -> Any:
    """Parse JSON from a repository. Errors: ValueError, also if it is nested too deeply."""
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("too deeply nested") from error


def refuse_newer(number: object, what: str, known: int) -> None:
    """Errors: Refused for a format that a newer version made; Unsound for what is not a format version."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise Unsound
    if number > known:
        newer = Text("{what} has format {number}, this version knows up to {known}")
        raise Refused(newer.format(what=what, number=number, known=known), Text("use a newer rmqstore"))


class _FieldReader:
    """Turns parsed JSON into a manifest. Errors: Unsound, and those of wrong types and missing keys."""

    def manifest(self, data: Mapping[str, Any], name: str, snapshot: str) -> Manifest:
        if data["name"] != name or data["snapshot"] != snapshot or not is_snapshot(snapshot):
            raise Unsound
        logs = tuple(self.log(one) for one in data["logs"])
        if len({log.name for log in logs}) != len(logs):
            raise Unsound
        left = data.get("left_out", ())  # not in snapshots of 1.0.0rc1
        layout = self.layout(data["layout"])
        others = tuple(self.other(one) for one in data["others"])
        _refuse_clashes(others, layout)
        return Manifest(
            name,
            snapshot,
            _number(data["time"]),
            layout,
            logs,
            others,
            _counts(data["counts"]),
            tuple(self.branch(one) for one in data["branches"]),
            _number(data["new_bytes"]),
            _number(data["unread"]),
            tuple(LeftLink(*map(_text, (one["path"], one["target"], Leads(one["leads"])))) for one in left),
        )

    def log(self, data: Mapping[str, Any]) -> LogCopy:
        if data["name"] not in (COMMITLOG, DLEDGER):
            raise Unsound
        size = _number(data["file_size"])
        files = tuple(self.file(one, data["name"], size) for one in data["files"])
        starts = [file.start for file in files]
        if not 1 <= size <= _MAX_INT or any(start % size for start in starts) or starts != sorted(set(starts)):
            raise Unsound
        body_offset = _number(data["body_offset"])
        if body_offset not in (0, 48):
            raise Unsound
        return LogCopy(data["name"], size, body_offset, _number(data["begin"]), _number(data["end"]), files)

    def file(self, data: Mapping[str, Any], log: str, size: int) -> LogFile:
        file = LogFile(
            _number(data["start"]),
            tuple(self.piece(one, log) for one in data["pieces"]),
            _number(data["mtime_ns"], -_MOST),
            _number(data["messages"]),
            _number(data["bytes"]),
            _number(data["first_time"], -_MOST),
            _number(data["last_time"], -_MOST),
            _counts(data["problems"]),
            tuple(self.piece(one, log) for one in data["good"]),
            _number(data.get("ctime_ns", 0), -_MOST),
        )
        if file.length > size:
            raise Unsound
        return file

    def piece(self, data: Mapping[str, Any], log: str) -> StoredPiece:
        key = data["object"]
        if not _LOG_KEY.fullmatch(key) or key.split("/")[1] != log or not _HASH.fullmatch(data["sha256"]):
            raise Unsound
        piece = StoredPiece(check_key(key), _number(data["size"]), data["sha256"], _number(data["length"]))
        if piece.length > piece.size:
            raise Unsound
        return piece

    def other(self, data: Mapping[str, Any]) -> OtherFile:
        chunks = tuple((digest, _number(length)) for digest, length in data["chunks"])
        if not all(digest == "" or (_HASH.fullmatch(digest) and length <= CHUNK) for digest, length in chunks):
            raise Unsound
        if sum(length for _, length in chunks) > MOST_OF_ONE:
            raise Unsound
        return OtherFile(safe_path(data["path"]), _number(data["mtime_ns"], -_MOST), chunks)

    def layout(self, data: Mapping[str, Any]) -> StoreLayout:
        settings = {key: str(value) for key, value in data["settings"].items() if key in STORE_SETTINGS}
        if not all(_is_size(value) for key, value in settings.items() if key in _SIZES):
            raise Unsound
        self_id = data["self_id"]
        if self_id and (not isinstance(self_id, str) or not is_name(self_id)):
            raise Unsound
        if data["queues"] not in ("files", "rocksdb", "both") or (data["rocksdb"] and not is_name(data["rocksdb"])):
            raise Unsound
        flags = bool(data["has_index"]), bool(data["epochs"])
        names = str(data["kind"]), self_id, data["queues"], data["rocksdb"]
        return StoreLayout(
            *names, *flags, settings, self.writer(data.get("written_by")), self.rights(data.get("rights"))
        )

    def writer(self, data: Sequence[Any] | None) -> tuple[str, str] | None:
        if data is None:  # of a release that did not note it
            return None
        oldest, newest = map(str, data)
        if not (_VERSION.fullmatch(oldest) and _VERSION.fullmatch(newest)):
            raise Unsound
        return oldest, newest

    def rights(self, data: Mapping[str, Any] | None) -> StoreRights | None:
        if data is None:
            return None
        uid, gid = _number(data["uid"]), _number(data["gid"])
        own = {safe_path(path) if path != "." else ".": _number(mode) & 0o777 for path, mode in data["own"].items()}
        modes = _number(data["directory"]) & 0o777, _number(data["file"]) & 0o777
        if max(uid, gid) >= 1 << 32:
            raise Unsound
        return StoreRights(uid, gid, str(data["user"]), str(data["group"]), *modes, own)

    def branch(self, data: Mapping[str, Any]) -> BranchStart:
        time = data["time"]
        since = str(data["since"])
        if not is_snapshot(since):
            raise Unsound
        moment = None if time is None else _number(time, -_MOST)
        missing = None if data["missing_to"] is None else _number(data["missing_to"])
        return BranchStart(str(data["log"]), _number(data["offset"]), moment, since, bool(data["damage"]), missing)


def _number(value: object, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise Unsound
    return value


def _is_size(text: str) -> bool:
    return len(text) <= len(str(_MAX_INT)) and text.isascii() and text.isdigit() and 0 < int(text) <= _MAX_INT


def _refuse_clashes(others: Sequence[OtherFile], layout: StoreLayout) -> None:
    """Errors: Unsound for a file in the place of another, of a log, or of what no snapshot contains."""
    files = {other.path for other in others}
    folders = {str(parent) for other in others for parent in PurePosixPath(other.path).parents}
    member = f"dledger-{layout.self_id}"
    logs = ("commitlog", f"{member}/data", f"{member}/index") if layout.self_id else ("commitlog",)
    for path in files:
        parts = PurePosixPath(path).parts
        if parts[0] in DERIVED or path in logs or any(path.startswith(f"{log}/") for log in logs):
            raise Unsound
    if len(files) < len(others) or files & folders:
        raise Unsound


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise Unsound
    return str(value)


def _counts(data: Mapping[str, Any]) -> dict[str, int]:
    return {str(code): _number(count) for code, count in data.items()}


def safe_path(text: object) -> str:
    """Return a relative path that stays below its directory. Errors: Unsound."""
    if not isinstance(text, str) or not text or "\0" in text or text.startswith("/"):
        raise Unsound
    path = PurePosixPath(text)
    if (
        ".." in path.parts
        or str(path) != text
        or any(len(part.encode("utf-8", "surrogateescape")) > 255 for part in path.parts)
    ):
        raise Unsound
    return text


_EPOCHS = "epochFileCheckpoint"


def layout_of(store: Store) -> StoreLayout:
    """Return the form of a store: the sizes of its files, where its queues are, and the settings that matter for them.

    Only settings about files and dispatch are taken, so that no address, path or credential gets into a repository.
    """
    settings = {key: value for key, value in store.config.given.items() if key in STORE_SETTINGS}
    for kind in CONFIGURED_SIZES:
        if (size := store.known_queue_file_size(kind)) is not None:
            settings[kind.size_key] = str(size)
    if store.logs:
        settings["mappedFileSizeCommitLog"] = str(store.logs[-1][0].file_size)
    if (sizes := index_sizes(store)) is not None:
        settings["maxHashSlotNum"], settings["maxIndexNum"] = map(str, sizes)
    if store.timer_log is not None and store.timer_log.files:
        settings["mappedFileSizeTimerLog"] = str(store.timer_log.file_size)
    rocksdb = store.kind is StoreKind.ROCKSDB
    beside = not rocksdb and store.rocksdb_beside
    if rocksdb:  # without its database, nothing else may say so
        settings["storeType"] = "defaultRocksDB"
    if (rocksdb or beside) and store.rocksdb_directory.name == SEPARATE:
        settings[SEPARATE_KEY] = "true"
    writer = writer_of(store)
    return StoreLayout(
        store.kind.value,
        store.dledger.self_id if store.dledger is not None else "",
        "rocksdb" if rocksdb else "both" if beside else "files",
        store.rocksdb_directory.name if rocksdb or beside else "",
        bool(store.index_files),
        _EPOCHS in store.top,
        dict(sorted(settings.items())),
        (writer.oldest, writer.newest) if writer.known else None,
        rights_of(store),
    )


def config_of(layout: StoreLayout) -> BrokerConfig:
    """Return the settings with which a restored store is read."""
    return BrokerConfig(layout.settings, Text("the snapshot"))
