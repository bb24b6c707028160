"""What a starting broker does with compaction/: the names of the files of both halves of a queue must be equal.

Anything but an I/O error ends the load: file names of the log and of its queue that differ, a directory that is not
named after a queue id, a file that is not named after an offset. A file of another length than the setting's is an I/O
error: the broker starts without this queue.

Source: CompactionStore#load, #loadAndGetClog, CompactionLog#getCompactionLogSize, TopicPartitionLog#init, #recover,
#sanityCheck, SparseConsumeQueue#getMaxPhyOffsetInLog (RocketMQ 5.1.0 to 5.5.1)
"""

from __future__ import annotations

from pathlib import Path

from rmqstore.brokers.mapped_files import Loaded, Obstacle, SimulatedFile, load_directories
from rmqstore.brokers.rules import BrokerRules
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.files.store import QueueKind, Store
from rmqstore.formats.javatext import parse_int
from rmqstore.scan.compaction import UNIT, written_units
from rmqstore.texts import Text

_CQ_KEY, _LOG_KEY = "compactionCqMappedFileSize", "compactionMappedFileSize"
_LEAST = 5  # files of a queue, in length, that a file of the log is at least as long as


def load(
    store: Store, rules: BrokerRules, config: BrokerConfig, notes: list[str]
) -> tuple[Obstacle | None, list[Path]]:
    """Return what in compaction/ ends the load, None for nothing, and the empty files that it deletes before that.

    Adds to `notes` the queues that the broker starts without.
    """
    sizes = _sizes(store, config)
    deleted: list[Path] = []
    for topic in store.files.list(store.root / QueueKind.COMPACTION_LOG.tree):
        for queue in store.files.list(topic.path) if topic.directory else ():
            if not queue.directory:
                continue
            if parse_int(queue.path.name) is None:
                line = f'java.lang.NumberFormatException: For input string: "{queue.path.name}"'
                return Obstacle(queue.path, Text("{path} is not named after a queue", path=queue.path), line), deleted
            units = store.root / QueueKind.COMPACTION_CQ.tree / topic.path.name / queue.path.name
            if not store.files.is_directory(units):
                continue
            loaded = [
                load_directories([folder], size, rules, store.files)
                for folder, size in zip((queue.path, units), sizes, strict=True)
            ]
            deleted += [path for one in loaded for path in one.deleted]
            obstacle = _refused(loaded) or _mismatch(loaded[0].files, loaded[1].files)
            if obstacle is None:
                continue
            if any(one.obstacle for one in loaded) and not _is_fatal(obstacle):
                reason = obstacle.reason_text(store.root)
                words = Text("{reason}: the compaction of {topic}/{queue} does not work")
                notes.append(words.format(reason=reason, topic=topic.path.name, queue=queue.path.name))
                continue
            return obstacle, deleted
    return None, deleted


def _sizes(store: Store, config: BrokerConfig) -> tuple[int, int]:
    """Return the lengths (bytes) of files of the log and of its queue: configured, otherwise as the files show them."""
    units = max(UNIT.size, config.int(_CQ_KEY) // UNIT.size * UNIT.size)
    count, rest = divmod(config.int(_LOG_KEY), units)
    log = units * (_LEAST if count < _LEAST else count if 0 < rest < units >> 1 else count + 1)
    if _CQ_KEY in config.given or _LOG_KEY in config.given:
        return log, units
    return _longest(store, QueueKind.COMPACTION_LOG) or log, _longest(store, QueueKind.COMPACTION_CQ) or units


def _longest(store: Store, kind: QueueKind) -> int:
    """Return the length (bytes) of the longest file of a kind; 0 without one."""
    folders = (path for *_, path in store.queue_directories(kind))
    return max((entry.length for path in folders for entry in store.files.list(path)), default=0)


def _refused(loaded: list[Loaded]) -> Obstacle | None:
    return next((one.obstacle for one in loaded if one.obstacle is not None), None)


def _is_fatal(obstacle: Obstacle) -> bool:
    return "NumberFormatException" in obstacle.log_line


def _mismatch(log: list[SimulatedFile], units: list[SimulatedFile]) -> Obstacle | None:
    """Return the first file without its other half, after the recovery has cut the log at the end of the last unit."""
    end = _end_of(units[-1]) if units else 0
    left = [file for file in log if not 0 < end <= file.start]
    names, own = ({file.path.name for file in files} for files in (units, left))
    for file in left:
        if file.path.name not in names:
            line = f"log file mismatch with consumeQueue file {file.path}"
            return Obstacle(file.path, Text("{path} has no file in compactionCq/", path=file.path), line)
    for file in units:
        if file.path.name not in own:
            line = f"consumeQueue file mismatch with log file {file.path}"
            return Obstacle(file.path, Text("{path} has no file in compactionLog/", path=file.path), line)
    return None


def _end_of(file: SimulatedFile) -> int:
    """Return the end of the message of the last unit, in the compaction log; 0 without one."""
    end = 0
    for chunk in written_units(MappedFile(file.path, file.start, file.wrote, file.wrote, files=file.files)):
        if len(chunk.units):
            end = int(chunk.units["log_offset"][-1]) + int(chunk.units["size"][-1])
    return end
