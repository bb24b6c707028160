"""The queues of a store: whether they are in files or in RocksDB, their directories, kinds and file sizes.

Only directories are listed.

With storeType=defaultRocksDB a broker reads only the RocksDB, and files are left over from an earlier setting. With
storeType=default and rocksdbCQDoubleWriteEnable=true it writes both, and uses the files for reads and queue offsets
unless combineCQPreferCQType or combineAssignOffsetCQType choose the RocksDB. A broker keeps its configuration in JSON
files with storeType=default, and in RocksDB directories with defaultRocksDB.

The RocksDB is in consumequeue/, or since 5.5.0 in consumequeue_rocksdb/ with useSeparateStorePathForRocksdbCQ=true. A
broker that uses one of them does not start if the other directory has a file CURRENT.

Source: StorePathConfigHelper, DefaultMessageStore#load; DefaultMessageStore and RocksDBMessageStore
#createConsumeQueueStore, CombineConsumeQueueStore, RocksDBConsumeQueueStore#<init>, BrokerController
#initializeMetadata (RocketMQ 5.4.0, 5.5.1)
"""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from rmqstore.files.broker_config import BATCH_FILE_SIZE, CONSUME_QUEUE_FILE_SIZE, EXT_FILE_SIZE, BrokerConfig
from rmqstore.files.files import LOCAL, Files
from rmqstore.files.mapped_file_queue import DirEntry, MappedFileQueue, Place, file_name_to_offset, infer_file_size
from rmqstore.formats.consumequeue import (
    BATCH_UNIT_SIZE,
    UNIT_SIZE,
    QueueName,
    begins_with_batch_unit,
    round_file_size,
)
from rmqstore.formats.properties import LMQ_PREFIX, is_lmq

ROCKSDB = "defaultRocksDB"
SHARED, SEPARATE = "consumequeue", "consumequeue_rocksdb"
"""The directories that can have the RocksDB of the consume queues."""
DOUBLE_WRITE = "rocksdbCQDoubleWriteEnable"
LIGHT_IN_ROCKSDB = "combineCQUseRocksdbForLmq"
SELECTIVE = "rocksdbCQSelectiveDoubleWriteEnable"
PREFERRED, ASSIGNING = "combineCQPreferCQType", "combineAssignOffsetCQType"
SEPARATE_KEY = "useSeparateStorePathForRocksdbCQ"
_DATABASE_FILE = re.compile(r"CURRENT|LOCK|IDENTITY|LOG(\.old\.\d+)?|(MANIFEST|OPTIONS)-\d+(\.dbtmp)?|\d+\.[a-z]+")
_TABLES = ("topics", "subscriptionGroups", "consumerOffsets", "metadata")


class QueueHome(StrEnum):
    """Where a broker reads its consume queues from."""

    FILES = "files"
    ROCKSDB = "rocksdb"
    UNKNOWN = "unknown"


def has_database(files: Files, directory: Path) -> bool:
    """Return whether a directory contains a RocksDB, even an incomplete one."""
    if all(files.is_file(directory / name) for name in ("CURRENT", "IDENTITY")):
        return True
    try:
        return any(entry.path.name.startswith("MANIFEST-") for entry in files.list(directory))
    except OSError:
        return False


def place_is_configured(config: BrokerConfig) -> bool:
    """Return whether broker.conf says in which directory the RocksDB of the consume queues is."""
    return any(key in config.given for key in (SEPARATE_KEY, "storeType", DOUBLE_WRITE))


def is_current(files: Files, directory: Path) -> bool:
    """Return whether a directory has the file CURRENT, by which a broker recognizes a RocksDB."""
    return files.is_file(directory / "CURRENT")


def rocksdb_place(files: Files, root: Path, config: BrokerConfig) -> str:
    """Return the name of the directory with the RocksDB of the consume queues, or where a broker will create it.

    Files come before settings: what is found decides, and only if it does not, broker.conf.
    """
    found = places_found(files, root)
    if len(found) == 1:
        return found[0]
    if place_is_configured(config):
        return SEPARATE if config.bool(SEPARATE_KEY) else SHARED
    return SHARED


def places_found(files: Files, root: Path) -> list[str]:
    """Return the directories that have a RocksDB of the consume queues, or else the remains of one."""
    for evidence in (is_current, has_database, _has_remains):
        found = [name for name in (SHARED, SEPARATE) if evidence(files, root / name)]
        if found:
            return found
    return [SEPARATE] if files.is_directory(root / SEPARATE) else []


def _has_remains(files: Files, directory: Path) -> bool:
    return any(not entry.directory and is_database_file(entry.path.name) for entry in files.list(directory))


def is_database_file(name: str) -> bool:
    """Return whether RocksDB uses a file name."""
    return _DATABASE_FILE.fullmatch(name) is not None


def chooses_rocksdb(config: BrokerConfig, key: str) -> bool:
    """Return whether a setting chooses the RocksDB: storeType, `PREFERRED` (is read), or `ASSIGNING` (gives offsets).

    Source: MessageStoreConfig#isEnableRocksDBStore, StoreType#fromString,
    CombineConsumeQueueStore#getInnerStoreByString (RocketMQ 5.4.0, 5.5.1)
    """
    return config.text(key).lower() == ROCKSDB.lower()


def configured_home(config: BrokerConfig) -> QueueHome:
    """Return the home that broker.conf configures; UNKNOWN if it configures none, or needs both files and RocksDB."""
    given = config.given.get("storeType", "").strip()
    if given.lower() == ROCKSDB.lower():
        return QueueHome.ROCKSDB
    if not given and "rocksdbCQDoubleWriteEnable" not in config.given:
        return QueueHome.UNKNOWN
    if config.bool(DOUBLE_WRITE) and (chooses_rocksdb(config, PREFERRED) or chooses_rocksdb(config, ASSIGNING)):
        return QueueHome.UNKNOWN
    return QueueHome.FILES


def queue_home(files: Files, root: Path, config: BrokerConfig) -> QueueHome:
    """Return the home of a store with both, by broker.conf or else by the format of the broker's configuration."""
    configured = configured_home(config)
    if configured is not QueueHome.UNKNOWN or "storeType" in config.given:
        return configured
    config_in_rocksdb = any(files.is_file(root / "config" / name / "CURRENT") for name in _TABLES)
    names = ("topics.json",) if config_in_rocksdb else ("topics.json", "topics.json.bak")  # a .bak may be an old one
    config_in_json = any(files.is_file(root / "config" / name) for name in names)
    if config_in_rocksdb == config_in_json:
        return QueueHome.UNKNOWN
    return QueueHome.FILES if config_in_json else QueueHome.ROCKSDB


class QueueKind(StrEnum):
    """The kind of a queue: its directory below the root, its unit and the default of its file size (bytes).

    `size_key` is the setting with the file size; "" without one.
    """

    tree: str
    unit: int
    default_size: int
    size_key: str

    SIMPLE = "simple", "consumequeue", UNIT_SIZE, CONSUME_QUEUE_FILE_SIZE, "mappedFileSizeConsumeQueue"
    BATCH = "batch", "batchconsumequeue", BATCH_UNIT_SIZE, BATCH_FILE_SIZE, "mapperFileSizeBatchConsumeQueue"
    EXT = "ext", "consumequeue_ext", 1, EXT_FILE_SIZE, "mappedFileSizeConsumeQueueExt"
    COMPACTION_CQ = "compaction-cq", "compaction/compactionCq", BATCH_UNIT_SIZE, 10_485_746
    COMPACTION_LOG = "compaction-log", "compaction/compactionLog", 1, 104_857_600

    def __new__(cls, value: str, tree: str, unit: int, default_size: int, size_key: str = "") -> QueueKind:
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.tree, kind.unit, kind.default_size, kind.size_key = tree, unit, default_size, size_key
        return kind


CONFIGURED_SIZES = tuple(kind for kind in QueueKind if kind.size_key)
"""The kinds with a setting for their file size."""


def _as_created(kind: QueueKind, size: int) -> int:
    """Return the size of the files that a broker creates with a setting."""
    return round_file_size(size) if kind is QueueKind.SIMPLE else size


class ConsumeQueueFiles(NamedTuple):
    """One queue of a topic, with its kind and its files."""

    topic: str
    queue_id: int
    kind: QueueKind
    queue: MappedFileQueue

    @property
    def label(self) -> str:
        """The name of the queue in reports: `TOPIC/ID`, or `TOPIC` if its directory is not named after an id."""
        return f"{self.topic}/{self.queue_id}" if self.queue_id >= 0 else self.topic


_MAX_QUEUE_ID = 0x7FFFFFFF
_FEW_CUT = 4  # one file in this many, or fewer, may have been cut to the same length
_MAX_SAMPLED = 512  # queue directories that are listed to infer the file size


class StoreQueues:
    """The queues of a store or of a part of one.

    `path` is the path given by the user, and `root` the same path in its role as storePathRootDir. `files` is what
    all of its files are read through. `part` is the kind of part; None for a whole store.
    """

    def __init__(self, path: Path, config: BrokerConfig, files: Files = LOCAL) -> None:
        self.files = files
        self.path = path
        self.root = path
        self.config = config
        self.part: str | None = None
        self._queue_sizes: dict[QueueKind, int | None] = {}
        self._other_sizes: dict[QueueKind, Mapping[int, int]] = {}

    @cached_property
    def queue_home(self) -> QueueHome:
        """Where a broker reads its consume queues from; UNKNOWN if there are both files and a RocksDB and no hint.

        If broker.conf requires a RocksDB, a broker creates a missing one without rows and still ignores the files.
        """
        if self.part is not None:
            return QueueHome.FILES
        no_files = not any(self.files.list(path) for _, _, path in self.queue_directories(QueueKind.SIMPLE))
        if not has_database(self.files, self.rocksdb_directory):
            home = queue_home(self.files, self.root, self.config) if no_files else configured_home(self.config)
            return QueueHome.ROCKSDB if home is QueueHome.ROCKSDB else QueueHome.FILES
        if no_files and configured_home(self.config) is not QueueHome.FILES:
            return QueueHome.ROCKSDB
        return queue_home(self.files, self.root, self.config)

    @property
    def rocksdb_consume_queue(self) -> bool:
        """Whether a broker reads, or may read, all queues from a RocksDB (storeType=defaultRocksDB)."""
        return self.queue_home is not QueueHome.FILES

    @cached_property
    def rocksdb_beside(self) -> bool:
        """Whether the store also has a RocksDB of queues although a broker reads the queue files (double write)."""
        if self.part is not None or self.rocksdb_consume_queue:
            return False
        return has_database(self.files, self.rocksdb_directory) or self.light_in_rocksdb

    @cached_property
    def rocksdb_directory(self) -> Path:
        """The directory with the RocksDB of the consume queues, or where a broker would create it."""
        return self.root / (rocksdb_place(self.files, self.root, self.config) if self.part is None else SHARED)

    @cached_property
    def other_rocksdb(self) -> Path | None:
        """The second directory with a RocksDB of queues, which keeps a broker with RocksDB queues from starting."""
        other = self.root / (SHARED if self.rocksdb_directory.name == SEPARATE else SEPARATE)
        both = all(is_current(self.files, directory) for directory in (other, self.rocksdb_directory))
        return other if self.part is None and both else None

    @property
    def uses_rocksdb(self) -> bool:
        """Whether a broker opens a RocksDB of queues, as far as broker.conf does not say otherwise."""
        given = "storeType" in self.config.given or DOUBLE_WRITE in self.config.given
        double = self.config.bool(DOUBLE_WRITE) if given else self.rocksdb_beside
        return self.rocksdb_consume_queue or double

    @cached_property
    def light_in_rocksdb(self) -> bool:
        """Whether light queues (`%LMQ%…`) are only in the RocksDB, though all other queues are read from files.

        A 5.5 broker with double write does not start without combineCQUseRocksdbForLmq. Without broker.conf, the
        directory consumequeue_rocksdb/ shows such a broker, and so does a RocksDB beside files without light queues.
        Source: RocksDBLiteLifecycleManager#init, MultiDispatchUtils#checkMultiDispatchQueue (RocketMQ 5.5.1)
        """
        if self.part is not None or self.rocksdb_consume_queue:
            return False
        if "storeType" in self.config.given or DOUBLE_WRITE in self.config.given:
            return self.config.bool(DOUBLE_WRITE) and self.config.bool(LIGHT_IN_ROCKSDB)
        if self.rocksdb_directory.name == SEPARATE:
            return self.files.is_directory(self.rocksdb_directory)
        light = any(entry.path.name.startswith(LMQ_PREFIX) for entry in self.files.list(self.root / SHARED))
        return has_database(self.files, self.rocksdb_directory) and not light

    def reads_rows(self, topic: str) -> bool:
        """Return whether a broker reads the queues of a topic from the RocksDB."""
        return self.rocksdb_consume_queue or (self.light_in_rocksdb and is_lmq(topic))

    def queue_directories(self, kind: QueueKind) -> Iterator[tuple[str, int, Path]]:
        """Yield (topic, queue id, directory) of every queue directory of a kind, sorted; skip other names."""
        if self.part is not None:
            yield from self._part_queue_directories(kind)
            return
        for topic in self.files.list(self.root / kind.tree):
            if not topic.directory:
                continue
            ids = []
            for entry in self.files.list(topic.path):
                queue_id = file_name_to_offset(entry.path.name)
                if entry.directory and queue_id is not None and queue_id <= _MAX_QUEUE_ID:
                    ids.append((queue_id, entry.path))
            for queue_id, path in sorted(ids):
                yield topic.path.name, queue_id, path

    def names_in_files(self, *kinds: QueueKind) -> set[QueueName]:
        """Return topic and id of every queue directory of the given kinds (default: simple and batch)."""
        kinds = kinds or (QueueKind.SIMPLE, QueueKind.BATCH)
        return {(topic, queue_id) for kind in kinds for topic, queue_id, _ in self.queue_directories(kind)}

    def _part_queue_directories(self, kind: QueueKind) -> Iterator[tuple[str, int, Path]]:
        path = Path(os.path.abspath(self.path))  # noqa: PTH100 - keeps links: their names are topic and queue id
        if kind not in (QueueKind.SIMPLE, QueueKind.BATCH):
            return
        if self._is_batch_part(path) != (kind is QueueKind.BATCH):
            return
        if self.part in ("consumequeue-tree", "batchconsumequeue-tree"):
            topics = [e.path for e in self.files.list(path) if e.directory]
        elif self.part == "topic":
            topics = [path]
        elif self.part in ("consumequeue", "batchconsumequeue"):
            directory = path if self.files.is_directory(path) else path.parent
            queue_id = file_name_to_offset(directory.name)
            named = queue_id is not None and queue_id <= _MAX_QUEUE_ID
            yield (directory.parent.name, queue_id or 0, directory) if named else (directory.name, -1, directory)
            return
        else:
            return
        for topic in topics:
            for entry in self.files.list(topic):
                queue_id = file_name_to_offset(entry.path.name)
                if entry.directory and queue_id is not None:
                    yield topic.name, queue_id, entry.path

    def _is_batch_part(self, path: Path) -> bool:
        """Return whether a part has batch queues, by its name, or else by its first unit."""
        names = (path.name, *(p.name for p in path.parents))
        if (self.part or "").startswith("batchconsumequeue") or "batchconsumequeue" in names:
            return True
        if self.part not in ("topic", "consumequeue-tree") or "consumequeue" in names:
            return False
        topics = [path] if self.part == "topic" else [e.path for e in self.files.list(path) if e.directory]
        queues = (queue.path for topic in topics for queue in self.files.list(topic) if queue.directory)
        first = next((file.path for queue in queues for file in self.files.list(queue) if file.regular), None)
        return first is not None and begins_with_batch_unit(self.files.read_at(first, BATCH_UNIT_SIZE, 0))

    def _part_queue(
        self, name: str, default: int, unit: int = 1, key: str = "", place: Place | None = None
    ) -> MappedFileQueue:
        """Open a part that is a directory of queue files, or a single one."""
        given = self.config.given_int(key)
        opened = partial(MappedFileQueue.open, name, [self.path])
        if not self.files.is_directory(self.path):
            opened = partial(MappedFileQueue.of_file, name, self.path)
        return opened(file_size=given, default=default, unit=unit, place=place, files=self.files)

    def consume_queues(self, *kinds: QueueKind) -> Iterator[ConsumeQueueFiles]:
        """Yield every queue of the given kinds (default: simple and batch), listing one at a time."""
        single = self.part in ("consumequeue", "batchconsumequeue") and self.files.is_file(self.path)
        for kind in kinds or (QueueKind.SIMPLE, QueueKind.BATCH):
            for topic, queue_id, path in self.queue_directories(kind):
                if single:
                    name = f"{kind.tree}/{topic}/{queue_id}"
                    queue = self._part_queue(name, kind.default_size, kind.unit)
                    yield ConsumeQueueFiles(topic, queue_id, kind, queue)
                else:
                    yield self._queue_in(path, topic, queue_id, kind)

    def consume_queue(self, topic: str, queue_id: int, kind: QueueKind = QueueKind.SIMPLE) -> ConsumeQueueFiles:
        """Return one queue, which may have no files."""
        return self._queue_in(self.root / kind.tree / topic / str(queue_id), topic, queue_id, kind)

    def _queue_in(self, path: Path, topic: str, queue_id: int, kind: QueueKind) -> ConsumeQueueFiles:
        queue = MappedFileQueue.open(
            f"{kind.tree}/{topic}/{queue_id}",
            [path],
            file_size=self.queue_file_size(kind),
            default=kind.default_size,
            unit=kind.unit,
            files=self.files,
        )
        return ConsumeQueueFiles(topic, queue_id, kind, queue)

    def queue_file_size(self, kind: QueueKind) -> int:
        """Return the file size (bytes) of all queues of a kind: configured, inferred from all queues, or the default.

        A broker uses one size for all queues of a kind, so a single damaged queue does not affect the result.
        """
        return self.known_queue_file_size(kind) or kind.default_size

    def known_queue_file_size(self, kind: QueueKind) -> int | None:
        """Return the file size of a kind; None if neither broker.conf nor the files show it."""
        if kind not in self._queue_sizes:
            self._queue_sizes[kind] = self._find_queue_file_size(kind)
        return self._queue_sizes[kind]

    def _find_queue_file_size(self, kind: QueueKind) -> int | None:
        given = self.config.given_int(kind.size_key)
        if given:
            return _as_created(kind, given)
        seen = self._sampled_files(kind)
        if not seen:
            return None
        size, source = infer_file_size(seen, kind.default_size, kind.unit)
        found = self._padded_size(seen, kind.unit) if source == "default" else size
        self._other_sizes[kind] = others = self._rivals(seen, kind.unit, found) if found is not None else {}
        if others and self.config.file is not None:  # the files do not decide, but the broker gets this very file
            return _as_created(kind, self.config.filled().given_int(kind.size_key) or kind.default_size)
        return found

    def _sampled_files(self, kind: QueueKind) -> list[DirEntry]:
        seen: list[DirEntry] = []
        for _, _, path in islice(self.queue_directories(kind), _MAX_SAMPLED):
            seen.extend(self.files.list(path))
        return [e for e in seen if not e.directory and file_name_to_offset(e.path.name) is not None]

    def sizes_found(self, kind: QueueKind) -> Mapping[int, int]:
        """Return the file sizes that a broker can have given to files of a kind, each with its number of files.

        {} if the files, or broker.conf, tell which one is right.
        """
        self.known_queue_file_size(kind)
        return self._other_sizes.get(kind, {}) if self.config.file is None else {}

    def _rivals(self, entries: Sequence[DirEntry], unit: int, found: int) -> dict[int, int]:
        """Return `found` and the other sizes that files may have, with their numbers; {} without another one.

        Names that follow each other prove a size. Few files of another length were cut; so were those that do not end
        with zeros, as only a broker writes them.
        """
        starts = sorted({file_name_to_offset(e.path.name) or 0 for e in entries})
        if any(b - a == found for a, b in itertools.pairwise(starts)):
            return {}
        lengths = Counter(e.length for e in entries if e.length and e.length % unit == 0)
        few = max(2, lengths.total() // _FEW_CUT)
        others = {
            size: count
            for size, count in lengths.items()
            if size != found and count >= few and self._padded(entries, unit, size) >= few
        }
        return {found: lengths[found], **others} if others else {}

    def _padded_size(self, entries: Sequence[DirEntry], unit: int) -> int | None:
        """Return the longest length of several files that end with zeros; None if names contradict it.

        Only a broker pads files: one that was cut, or copied without the zeros at its end, does not end with zeros.
        """
        starts = [file_name_to_offset(e.path.name) or 0 for e in entries]
        lengths = Counter(e.length for e in entries if e.length and e.length % unit == 0)
        for size in sorted((length for length, times in lengths.items() if times > 1), reverse=True):
            if self._padded(entries, unit, size) > 1 and not any(start % size for start in starts):
                return size
        return None

    def _padded(self, entries: Sequence[DirEntry], unit: int, size: int) -> int:
        """Return how many files of a size end with zeros."""
        alike = (e.path for e in entries if e.length == size)
        return sum(not any(self.files.read_at(path, unit, size - unit)) for path in alike)

    @cached_property
    def strays(self) -> list[DirEntry]:
        """Entries beside topic and queue directories that no broker creates."""
        strays: list[DirEntry] = []
        for kind in (QueueKind.SIMPLE, QueueKind.BATCH):
            parent = self.root / kind.tree
            if self.part is not None or (kind is QueueKind.SIMPLE and self.rocksdb_consume_queue):
                continue
            for topic in self.files.list(parent):
                if not topic.directory:
                    beside = self.rocksdb_beside and self.rocksdb_directory == parent
                    if not (beside and kind is QueueKind.SIMPLE and is_database_file(topic.path.name)):
                        strays.append(topic)
                    continue
                for entry in self.files.list(topic.path):
                    number = file_name_to_offset(entry.path.name)
                    if not entry.directory or number is None:
                        strays.append(entry)
        return strays
