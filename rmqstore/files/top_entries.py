"""Names at the top of a store: what brokers create, what operators leave there, and what nobody knows.

A new version of RocketMQ, or a plugin, may keep positions in the log in a directory of its own, as 5.5 does in
consumequeue_rocksdb/. A store with such a directory is not fully understood: it is never clean, and nothing that its
positions depend on may be changed.
Source: StorePathConfigHelper, DefaultMessageStore, RocksDBConsumeQueueStore, TieredMessageStore, ReplicasManager
(RocketMQ 4.3 to 5.5.1)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rmqstore.files.files import Files
from rmqstore.files.mapped_file_queue import DirEntry
from rmqstore.files.store import Store
from rmqstore.files.store_queues import is_database_file
from rmqstore.texts import Text

BROKER_NAMES = frozenset(
    {
        *("commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "consumequeue_rocksdb", "index"),
        *("config", "checkpoint", "abort", "lock", "compaction", "rocksdbstore", "kvStore", "tiered_index_file"),
        *("timerlog", "timerwheel", "timercheck", "epochFileCheckpoint", "brokerIdentity", "brokerIdentity-temp"),
    }
)
_BROKER_NAME = re.compile(r"dledger-.+|timerwheel\.\d+|(epochFileCheckpoint|brokerIdentity)(-temp)?\.(bak|tmp)")
_OPERATOR_NAME = re.compile(
    r"lost\+found|\.DS_Store|\._.*|\.nfs.*|\.snapshot|\.Trash.*|\.directory|Thumbs\.db|desktop\.ini|\.keep|\.gitkeep"
    r"|logs?|rocketmqlogs|.*\.(log|txt|md|conf|properties|yml|yaml|xml|sh|pid|out|swp|swo|hprof|html|json|ndjson|csv)"
    r"|.*\.(tar|gz|tgz|zip|bz2|xz|zst|lz4)|.*~|#.*#|\.#.*|hs_err.*|nohup\.out|core(\.\d+)?",
    re.IGNORECASE,
)
_COPY = re.compile(
    r"(?P<of>.+?)[ ._~-]+\(?(bak|back.*|old|orig.*|sav.*|copy|tmp|broken|corrupt.*|bad|damaged|\d+).*", re.I
)
_DEPTH, _MOST = 3, 2000
_OFFSET_NAME = re.compile(r"\d{17}|\d{20}")


class UnknownEntry(NamedTuple):
    """An entry that no broker creates. `holds`: why it may hold positions in the log; "" if it cannot."""

    entry: DirEntry
    holds: str

    @property
    def name(self) -> str:
        return self.entry.path.name

    @property
    def words(self) -> str:
        """What the reports say about it."""
        if self.holds:
            return Text("{name}: unknown, {holds}: it may hold positions in the log", name=self.name, holds=self.holds)
        return Text("{name} is not a broker file", name=self.name)


def unknown_entries(store: Store) -> list[UnknownEntry]:
    """Return the entries at the top of a whole store that neither brokers nor operators are known to create."""
    own = {path.absolute() for path in _configured(store)}
    found = []
    for name, entry in store.top.items():
        known = name == store.journal_directory.name or _is_known(name)
        if not known and not any(path.is_relative_to(entry.path.absolute()) for path in own):
            found.append(UnknownEntry(entry, _holds(store.files, entry)))
    return found


def _configured(store: Store) -> Iterator[Path]:
    yield from store.commitlog_directories
    if store.dledger is not None:
        yield from store.dledger.data.directories


def _is_known(name: str) -> bool:
    if name in BROKER_NAMES or _BROKER_NAME.fullmatch(name) or _OPERATOR_NAME.fullmatch(name):
        return True
    copy = _COPY.fullmatch(name)
    return copy is not None and (copy["of"] in BROKER_NAMES or _BROKER_NAME.fullmatch(copy["of"]) is not None)


def _holds(files: Files, entry: DirEntry) -> str:
    if not entry.directory:
        return Text("its name is an offset") if _OFFSET_NAME.fullmatch(entry.path.name) else ""
    left = _MOST
    folders = [(entry.path, _DEPTH)]
    while folders:
        folder, depth = folders.pop()
        try:
            entries = files.list(folder)
        except OSError:
            return Text("it cannot be read")
        names = [e.path.name for e in entries]
        if "CURRENT" in names or any(name.startswith("MANIFEST-") and is_database_file(name) for name in names):
            return Text("it contains a RocksDB")
        if any(_OFFSET_NAME.fullmatch(e.path.name) and not e.directory for e in entries):
            return Text("it contains files named by offset")
        left -= len(entries)
        below = [e.path for e in entries if e.directory and e.link is None]
        if left < 0 or (below and depth == 0):
            return Text("it is too large to be looked through")
        folders += [(path, depth - 1) for path in below]
    return ""
