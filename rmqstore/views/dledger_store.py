"""Read a DLedger store with RocketMQ's terms: entries by index or position, messages by offset.

    log = DLedgerCommitLog(open_store("/data/rocketmq/store"))
    entry = log.ledger.get(42)
    message = log.get_message(offset, size)

Nothing is cached: every method reads from the disk.
Source: DLedgerMmapFileStore (DLedger 0.3.2), DLedgerCommitLog (RocketMQ 5.4.0)
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqstore.checks.beside.dledger import committed_index
from rmqstore.errors import NotAStore
from rmqstore.files.log_ends import find_end
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.store import DLedgerFiles, Store
from rmqstore.formats.dledger import BLANK_MAGIC, ENTRY, INDEX_UNIT, MAGIC, DLedgerEntry
from rmqstore.formats.message import (
    MAGIC_V1,
    MAGIC_V2,
    MIN_SIZE,
    Fault,
    Message,
    check_message,
    parse_message,
)
from rmqstore.scan.units import last_nonzero
from rmqstore.texts import Text

_INDEX_STEP_BACK = 4096  # index units that may point past the end of the data: DLedger truncates them at its next start


class NoSuchEntry(LookupError):
    """No sound entry has this index or position: it is outside of the store, or damaged."""


class DLedgerReader:
    """The entries of one node. `begin_index` and `end_index` are -1 if there are none.

    Errors: NoSuchEntry for entries that cannot be read.
    """

    def __init__(self, files: DLedgerFiles) -> None:
        self.files = files
        self.data: MappedFileQueue = files.data
        self.index: MappedFileQueue = files.index
        self.begin_index, self.end_index, self.end_term = -1, -1, -1
        self._find_ends()

    def _find_ends(self) -> None:
        """Find the first entry, and the last one: from the last index unit with an entry on, as the index may lag."""
        for file in self.data.files:
            first = self._entry_at(file.start)
            if first is not None:
                self.begin_index = first.index
                break
        last = self._last_indexed() or (self._entry_at(self.data.start) if self.data.files else None)
        while last is not None:
            self.end_index, self.end_term = last.index, last.term
            last = self._next(last)

    def _last_indexed(self) -> DLedgerEntry | None:
        at = last_nonzero(self.index, INDEX_UNIT.size)
        number = -1 if at is None else at // INDEX_UNIT.size
        for index in range(number, max(-1, number - _INDEX_STEP_BACK), -1):
            entry = self._by_unit(index)
            if entry is not None:
                return entry
        return None

    @property
    def committed_index(self) -> int:
        """committedIndex of the checkpoint, at most the last entry; -1 if it is not set.

        A lower bound of what the group has committed: DLedger writes it every 3 seconds and at a clean shutdown.
        Source: DLedgerMmapFileStore#recover, #updateCommittedIndex
        """
        found = committed_index(self.files)
        return -1 if found is None or found < self.begin_index else min(found, self.end_index)

    @property
    def committed_pos(self) -> int:
        """The end of the committed entries, bytes; -1 if nothing is committed."""
        try:
            entry = self.get(self.committed_index)
        except NoSuchEntry:
            return -1
        return entry.pos + entry.size

    def get(self, index: int) -> DLedgerEntry:
        """Return the entry with an index: by its index unit, or by reading its data file.

        Errors: NoSuchEntry. Source: DLedgerMmapFileStore#get
        """
        entry = self._by_unit(index) if self.begin_index >= 0 and index >= self.begin_index else None
        if entry is None and self.begin_index <= index <= self.end_index and index >= 0:
            entry = self._search(index)
        if entry is None:
            folder, first, last = self.files.directory.name, self.begin_index, self.end_index
            lacks = Text("{folder} has no entry {index}, only {first} to {last}")
            raise NoSuchEntry(lacks.format(folder=folder, index=index, first=first, last=last))
        return entry

    def get_by_position(self, pos: int) -> DLedgerEntry:
        """Return the entry that starts at a position (bytes).

        Errors: NoSuchEntry
        """
        entry = self._entry_at(pos)
        if entry is None:
            raise NoSuchEntry(
                Text("no entry of {directory} starts at {pos}", directory=self.files.directory.name, pos=pos)
            )
        return entry

    def entries(self, first: int | None = None, last: int | None = None) -> Iterator[DLedgerEntry]:
        """Yield the entries `first` to `last` (inclusive; default: all), in order.

        Errors: NoSuchEntry for bounds outside of the store, and for a damaged entry.
        """
        if self.begin_index < 0 and first is None:
            return
        low = self.begin_index if first is None else first
        high = self.end_index if last is None else last
        if low > high:
            return
        entry: DLedgerEntry | None = self.get(low)
        while entry is not None:
            yield entry
            if entry.index >= high:
                return
            following = self._next(entry)
            if following is None or following.index != entry.index + 1:
                following = self.get(entry.index + 1)
            entry = following

    def _by_unit(self, index: int) -> DLedgerEntry | None:
        """Return the entry that an index unit points to, if both agree."""
        unit = self.index.unit(INDEX_UNIT, index)
        if unit is None or unit["magic"] != MAGIC or unit["index"] != index:
            return None
        entry = self._entry_at(unit["pos"])
        if entry is None or (entry.index, entry.term, entry.size) != (index, unit["term"], unit["size"]):
            return None
        return entry

    def _entry_at(self, pos: int) -> DLedgerEntry | None:
        """Return the entry at a position if its header is sound, by the same checks as DLedger's recovery."""
        file = self.data.find(pos) if pos >= 0 else None
        raw = self.data.pread(ENTRY.size, pos) if file is not None and pos + ENTRY.size <= file.stop else b""
        if file is None or len(raw) < ENTRY.size:
            return None
        head = ENTRY.parse(raw)
        size, length = head["size"], head["body_length"]
        if head["magic"] != MAGIC or head["pos"] != pos or length < 0 or size != length + ENTRY.size:
            return None
        if pos + size > file.stop:
            return None
        body = self.data.pread(length, pos + ENTRY.size)
        return DLedgerEntry(head["index"], head["term"], pos, body) if len(body) == length else None

    def _next(self, entry: DLedgerEntry) -> DLedgerEntry | None:
        """Return the entry after another one, possibly in the next file."""
        at = entry.pos + entry.size
        file = self.data.find(entry.pos)
        if file is None:
            return None
        if int.from_bytes(self.data.pread(4, at), "big", signed=True) == BLANK_MAGIC or at >= file.stop:
            at = file.stop
        following = self._entry_at(at)
        if following is None or following.index != entry.index + 1 or following.term < entry.term:
            return None
        return following

    def _search(self, index: int) -> DLedgerEntry | None:
        """Find an entry without the index, by reading the last file that starts at or before it."""
        start = None
        for file in self.data.files:
            first = self._entry_at(file.start)
            if first is not None and first.index <= index:
                start = first
        while start is not None and start.index < index:
            start = self._next(start)
        return start


class DLedgerCommitLog:
    """The messages of a store in DLedger mode; those below `divided_commitlog_offset` are in the legacy commitlog.

    Also reads a store without DLedger.
    Errors: NotAStore for a store without a log.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.legacy = store.commitlog if store.commitlog is not None and store.commitlog.files else None
        has_data = store.dledger is not None and bool(store.dledger.data.files)
        self.ledger = DLedgerReader(store.dledger) if store.dledger is not None and has_data else None
        if self.legacy is None and self.ledger is None:
            raise NotAStore(Text("{path} has no file of a log", path=store.path))

    @property
    def divided_commitlog_offset(self) -> int:
        """The offset where DLedger starts, bytes; -1 without DLedger data.

        Source: DLedgerCommitLog#setRecoverPosition (RocketMQ 5.4.0; up to 5.1.4 in #recover)
        """
        return -1 if self.ledger is None else self.ledger.data.start

    @property
    def min_offset(self) -> int:
        """The first offset, bytes."""
        if self.legacy is not None:
            return self.legacy.start
        return self.ledger.data.start if self.ledger is not None else 0

    @property
    def max_offset(self) -> int:
        """The end of the last whole message, committed or not, bytes."""
        if self.ledger is not None and self.ledger.end_index >= 0:
            entry = self.ledger.get(self.ledger.end_index)
            return entry.pos + entry.size
        if self.ledger is not None:
            return self.ledger.data.start
        assert self.legacy is not None
        return find_end(self.legacy, 0, -1).wrote

    def get_data(self, offset: int, size: int) -> bytes:
        """Return the bytes of a message, with `offset` and `size` of its consume queue unit; empty if not in a file.

        Source: DLedgerCommitLog#getMessage
        """
        queue = self._queue(offset)
        file = queue.find(offset) if queue is not None else None
        if queue is None or file is None or size <= 0 or offset + size > file.stop:
            return b""
        data = queue.pread(size, offset)
        return data if len(data) == size else b""

    def get_message(self, offset: int, size: int) -> Message | None:
        """Return the message of a consume queue unit; None if it is missing or damaged."""
        message, fault = parse_message(self.get_data(offset, size))
        if message is None or fault is not Fault.NONE or message.size != size:
            return None
        return message if check_message(message, offset) is Fault.NONE else None

    def look_message_by_offset(self, offset: int) -> Message | None:
        """Return the message at an offset, of unknown size; None if it is missing or damaged.

        Source: DefaultMessageStore#lookMessageByOffset
        """
        head = self.get_data(offset, 8)
        size = int.from_bytes(head[:4], "big", signed=True)
        magic = int.from_bytes(head[4:8], "big", signed=True)
        if size < MIN_SIZE or magic not in (MAGIC_V1, MAGIC_V2):
            return None
        return self.get_message(offset, size)

    def _queue(self, offset: int) -> MappedFileQueue | None:
        if self.ledger is not None and offset >= self.ledger.data.start:
            return self.ledger.data
        return self.legacy
