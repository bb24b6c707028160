"""Which versions can have written a store, told by its files only.

Positive signs (a file or field that only newer versions write) are stronger than missing ones: an operator may have
removed a directory, or copied only a part. The RocksDB library names its version in rocksdbstore/OPTIONS-*, which every
start since 5.4.0 writes again: it tells which broker opened the store last.

Source: DefaultMessageStore's constructor, StoreCheckpoint, RocksDBConsumeQueueStore's constructor (RocketMQ 4.9.7,
5.1.4, 5.4.0, 5.5.0 and 5.5.1; the library's versions as written by their real classes).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rmqstore.files.store import Store
from rmqstore.files.store_queues import SEPARATE, is_current
from rmqstore.files.versions import NEWEST, VERSIONS, version_number
from rmqstore.formats.checkpoint import FILE_SIZE, parse_checkpoint
from rmqstore.texts import Placed, Text, joined

_LIBRARIES = {"8.4.0": ("5.4.0", "5.4.0"), "8.4.4": ("5.5.0", NEWEST)}
_OPTIONS = re.compile(r"OPTIONS-(\d+)")
_LIBRARY = re.compile(rb"^\s*rocksdb_version=([0-9.]+)\s*$", re.MULTILINE)
_MAX_OPTIONS = 1 << 20
_FIRST_FORECAST = "5.4.0"  # stores of older brokers are forecast for this version, to which their operators upgrade


@dataclass(frozen=True, slots=True)
class WriterSign:
    """One sign: it says that the store was last written by `oldest` or newer, and by `newest` or older."""

    sign: str
    oldest: str = VERSIONS[0]
    newest: str = NEWEST
    certain: bool = True
    """Whether the sign is something present; what is missing may have been removed."""


@dataclass(frozen=True, slots=True)
class Writer:
    """The range of versions that can have written a store, and the signs for it."""

    oldest: str
    newest: str
    evidence: tuple[WriterSign, ...]

    @property
    def known(self) -> bool:
        """Whether anything limits the range."""
        return (self.oldest, self.newest) != (VERSIONS[0], NEWEST)

    def includes(self, version: str) -> bool:
        """Return whether a version can have written the store."""
        return version_number(self.oldest) <= version_number(version) <= version_number(self.newest)

    @property
    def forecast_version(self) -> str:
        """The version whose start is forecast if the user names none: the newest that can have written the store."""
        return max(self.newest, _FIRST_FORECAST, key=version_number)

    def words(self) -> str:
        """Return range and signs in words."""
        if self.oldest == self.newest:
            text = Text("RocketMQ {oldest}", oldest=self.oldest)
        elif self.newest == NEWEST:
            text = Text("RocketMQ {oldest} or newer", oldest=self.oldest)
        elif self.oldest == VERSIONS[0]:
            text = Text("RocketMQ {newest} or older", newest=self.newest)
        else:
            text = Text("RocketMQ {oldest} to {newest}", oldest=self.oldest, newest=self.newest)
        return Placed("{text} ({evidence})", text=text, evidence=joined((sign.sign for sign in self.evidence), "; "))

    def to_json(self) -> dict[str, object]:
        """Return the range and its signs as JSON values."""
        return {"oldest": self.oldest, "newest": self.newest, "evidence": [sign.sign for sign in self.evidence]}


def writer_of(store: Store) -> Writer:
    """Return which versions can have written a store last. Errors: none; what cannot be read proves nothing."""
    if store.part is not None:
        return Writer(VERSIONS[0], NEWEST, ())
    if store.written_by is not None:  # a copy lacks some of the signs, and has new ones
        low, high = store.written_by
        return Writer(low, high, (WriterSign(Text("the files of the store that was copied"), low, high),))
    signs = [sign for sign in (_library(store), *_present(store), *_missing(store)) if sign is not None]
    oldest, newest = VERSIONS[0], NEWEST
    used: list[WriterSign] = []
    for certain in (True, False):
        for sign in (s for s in signs if s.certain is certain):
            low, high = max(oldest, sign.oldest, key=version_number), min(newest, sign.newest, key=version_number)
            if (low, high) != (oldest, newest) and version_number(low) <= version_number(high):
                oldest, newest = low, high
                used.append(sign)
    return Writer(oldest, newest, tuple(used))


def _library(store: Store) -> WriterSign | None:
    """Return what the newest OPTIONS file of rocksdbstore/ says about the broker that opened the store last."""
    try:
        entries = store.files.list(store.root / "rocksdbstore")
        numbers = {int(m[1]): e for e in entries if (m := _OPTIONS.fullmatch(e.path.name))}
        last = numbers[max(numbers)] if numbers else None
        raw = store.files.read_at(last.path, _MAX_OPTIONS, 0) if last is not None and last.regular else b""
    except OSError:
        return None
    found = _LIBRARY.search(raw)
    library = found[1].decode() if found is not None else ""
    if library not in _LIBRARIES:
        return None
    oldest, newest = _LIBRARIES[library]
    return WriterSign(Text("rocksdbstore/ was opened by RocksDB {library}", library=library), oldest, newest)


def _present(store: Store) -> list[WriterSign]:
    """Return the signs that only newer versions leave."""
    signs = []
    if is_current(store.files, store.root / SEPARATE):
        signs.append(WriterSign(Text("{separate}/ exists", separate=SEPARATE), "5.5.0"))
    entry = store.checkpoint
    if entry is not None and not entry.directory and not entry.special:
        checkpoint = parse_checkpoint(store.files.read_at(entry.path, FILE_SIZE, 0))
        if checkpoint.logics_physical_offset > 0:
            signs.append(WriterSign(Text("the checkpoint has a logicsPhysicalOffset"), "5.5.0"))
        elif checkpoint.logics_msg_timestamp > 0 and not store.rocksdb_consume_queue:
            words = Text("the checkpoint has a time of the queues, but no logicsPhysicalOffset")
            signs.append(WriterSign(words, newest="5.4.0", certain=False))
    if "rocksdbstore" in store.top:
        signs.append(WriterSign(Text("rocksdbstore/ exists"), "5.4.0"))
    elif any(name in store.top for name in ("timerwheel", "timerlog", "batchconsumequeue")):
        signs.append(WriterSign(Text("a timer wheel or batch queues exist"), "5.0.0"))
    return signs


def _missing(store: Store) -> list[WriterSign]:
    """Return the signs that a newer broker would have left."""
    if "lock" not in store.top:  # no broker has started on these files, or only a part of them was copied
        return []
    signs = []
    if "rocksdbstore" not in store.top:
        signs.append(WriterSign(Text("there is no rocksdbstore/"), newest="5.3.4", certain=False))
    if "timerwheel" not in store.top and not store.files.exists(store.root / "config" / "consumerOrderInfo.json"):
        signs.append(WriterSign(Text("there is no timer wheel"), newest="4.9.8", certain=False))
    return signs
