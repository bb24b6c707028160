"""The index files of a starting broker: which it loads and deletes, and settings with which it cannot write an entry.

An entry that cannot be written ends the dispatch of its message, after the message has got its unit of a consume
queue: recovery ends with an exception, or goes on for ever. Messages that the index already has are skipped before.

Source: IndexService#load, #buildIndex, #putKey, #getAndCreateLastIndexFile, IndexFile#<init>, #putKey (RocketMQ 4.3.0
to 5.5.1). The real classes of 4.9.7, 5.1.4, 5.4.0 and 5.5.1 were started with each of these settings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rmqstore.brokers.forecast import LOAD_FALSE, StartFails
from rmqstore.brokers.mapped_files import Obstacle
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.index import sizes_on_disk
from rmqstore.files.store import Store
from rmqstore.formats import index
from rmqstore.formats.javatext import as_int, parse_long
from rmqstore.texts import Placed, Text

SLOTS, UNITS = "maxHashSlotNum", "maxIndexNum"


@dataclass(slots=True)
class IndexLoad:
    """The index files that the load deletes, and the file that it cannot open.

    `end`, `count`: where the last message of the last file starts in the log (bytes), and its index_count.
    """

    deleted: list[Path] = field(default_factory=list)
    obstacle: Obstacle | None = None
    end: int = 0
    count: int = 1


def load_index(store: Store, clean: bool, index_time: int, config: BrokerConfig) -> IndexLoad:
    """Load every index file in the order of names; `index_time` is the checkpoint's indexMsgTimestamp, in ms.

    Errors: StartFails if files of the configured size cannot be opened.
    """
    out = IndexLoad()
    for entry in store.index_entries:
        if parse_long(entry.path.name) is None:
            continue  # the broker catches the NumberFormatException and skips the file
        if entry.directory or entry.special or entry.unreadable:
            text = f"load file {entry.path} error"
            out.obstacle = Obstacle(entry.path, Text("index file {path} cannot be opened", path=entry.path), text)
            return out
        if (fault := _size_fault(config)) is not None:
            raise fault
        raw = store.files.read_at(entry.path, index.HEADER.size, 0).ljust(index.HEADER.size, b"\0")
        head = index.HEADER.array(raw)[0]
        if not clean and int(head["end_timestamp"]) > index_time:
            out.deleted.append(entry.path)
            continue
        out.end, out.count = int(head["end_phy_offset"]), int(head["index_count"])
    return out


def writes_index_files(config: BrokerConfig) -> bool:
    """Return whether the broker adds messages to index files."""
    return config.bool("messageIndexEnable") and config.bool("indexFileWriteEnable")


def wanted_index_sizes(store: Store, config: BrokerConfig) -> dict[str, str]:
    """Return the settings of the sizes of index files as the files show them, else their defaults."""
    sizes = sizes_on_disk(store)
    shown = sizes or (int(config.default(SLOTS)), int(config.default(UNITS)))
    return dict(zip((SLOTS, UNITS), map(str, shown), strict=True))


def entry_fault(config: BrokerConfig, count: int = 1) -> StartFails | None:
    """Return why no entry can be added to a file with this index_count, else None."""
    if (fault := _size_fault(config)) is not None:
        return fault
    slots, units, size = config.int(SLOTS), config.int(UNITS), _file_size(config)
    if slots == 0:
        return _fault(Text("no index file can have 0 slots"), config, "java.lang.ArithmeticException: / by zero")
    if units < 2:
        words = Text("every index file is full at once, and the broker makes new ones until it may open no more")
        return _fault(words, config, "getLastIndexFile exception")
    at = index.HEADER.size + slots * index.SLOT.size + count * index.UNIT.size
    if count >= units:  # a new file follows
        return entry_fault(config)
    if 0 <= at <= size - index.UNIT.size and index.HEADER.size + abs(slots) * index.SLOT.size <= size:
        return None
    words = Text("places of the index file are outside of it, and the broker tries to write there without end")
    return _fault(words, config, "putKey exception", None)


def _file_size(config: BrokerConfig) -> int:
    """Return the size of an index file (bytes) as Java computes it, with ints."""
    size = index.HEADER.size + config.int(SLOTS) * index.SLOT.size + config.int(UNITS) * index.UNIT.size
    return as_int(size)


def _size_fault(config: BrokerConfig) -> StartFails | None:
    size = _file_size(config)
    if size >= index.HEADER.size:
        return None
    line = "java.lang.IllegalArgumentException: Negative size" if size < 0 else "java.lang.IndexOutOfBoundsException"
    return _fault(Text("an index file would have {size:,} bytes", size=size), config, line)


def _fault(words: str, config: BrokerConfig, line: str, exit_code: int | None = LOAD_FALSE) -> StartFails:
    settings = f"{SLOTS}={config.int(SLOTS)}, {UNITS}={config.int(UNITS)}"
    return StartFails(Placed("{words} ({settings})", words=words, settings=settings), line, exit_code)
