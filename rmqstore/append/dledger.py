"""A writable DLedger log: a DLedgerMmapFileStore, its member, and its use as the log of a store.

Where DLedger calls `System.exit`, this raises Refused.
Source: DLedgerMmapFileStore, MmapFileList, MemberState, DLedgerCommitLog (DLedger 0.3.2, RocketMQ 5.4.0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rmqstore.append.disk import replace_file
from rmqstore.append.encoder import refuse_oversize
from rmqstore.append.mapped_files import Clock, WritableMappedFile, WritableMappedFileQueue, now_ms
from rmqstore.errors import MessageRefused, Refused
from rmqstore.files.files import LOCAL
from rmqstore.formats.dledger import (
    BLANK_MAGIC,
    BODY_OFFSET,
    ENTRY,
    HEADER_SIZE,
    INDEX_FILE_SIZE,
    INDEX_UNIT,
    MAGIC,
    MIN_BLANK_SIZE,
    CurrTerm,
    DLedgerCheckpoint,
    DLedgerEntry,
    build_blank,
    index_at,
    parse_currterm,
    parse_dledger_checkpoint,
)
from rmqstore.formats.message import PHYSICAL_OFFSET_AT
from rmqstore.texts import Text


class Role(StrEnum):
    """The role of a member in its group."""

    LEADER = "leader"
    FOLLOWER = "follower"


@dataclass(slots=True)
class MemberState:
    """The state of this member in its group; `currterm` stores `term` and `vote_leader`."""

    self_id: str = "n0"
    role: Role = Role.LEADER
    term: int = 0
    leader_id: str | None = "n0"
    vote_leader: str | None = "n0"

    def refuse_strange_leader(self, term: int, leader_id: str) -> None:
        """Refuse entries unless this member is a follower and they come from the leader of its term.

        Errors: Refused.
        """
        if self.role is not Role.FOLLOWER:
            raise Refused(
                Text("{self_id} is not a follower", self_id=self.self_id),
                Text("append as leader, or make it a follower"),
            )
        if term != self.term:
            raise Refused(
                Text("the leader's term is {term}, this member's term {own}", term=term, own=self.term),
                Text("wait for the election"),
            )
        if leader_id != self.leader_id:
            raise Refused(
                Text("{id} is not the leader; {leader} is", id=leader_id, leader=self.leader_id),
                Text("wait for the election"),
            )


MAX_ENTRY = 4 << 20  # bytes: the size of DLedger's thread-local encode buffer
LAST_FILES = 3
_PACK_ENTRY = ENTRY.packer
_PACK_INDEX = INDEX_UNIT.packer

AppendHook = Callable[[int, bytearray], None]


def physical_offset_hook(pos: int, body: bytearray) -> None:
    """Set PHYSICALOFFSET of the record to the entry position + 48, like RocketMQ's append hook.

    Source: DLedgerCommitLog#<init>
    """
    at = PHYSICAL_OFFSET_AT
    body[at : at + 8] = (pos + BODY_OFFSET).to_bytes(8, "big")


@dataclass(frozen=True, slots=True)
class EntryFiles:
    """The directories and sizes of a member's files.

    `data` are the data directories (default: data/ of the member), `read_only` those that get no new files. `start` is
    the offset of the first file. With `warm` new files are preallocated. Units: bytes.
    """

    file_size: int = 1 << 30
    index_file_size: int = INDEX_FILE_SIZE
    data: Sequence[Path] = ()
    read_only: Sequence[Path] = ()
    start: int = 0
    warm: bool = False


class DLedgerMmapFileStore:
    """The data and index files of one member.

    `begin_index` and `end_index` are -1 if it is empty; `committed_pos` is the position (bytes) after the last
    committed entry.
    """

    def __init__(
        self,
        directory: Path,
        files: EntryFiles | None = None,
        *,
        member: MemberState | None = None,
        hook: AppendHook | None = physical_offset_hook,
        clock: Clock = now_ms,
    ) -> None:
        files = files or EntryFiles()
        self.directory = directory
        self.member = member or MemberState()
        self.data = WritableMappedFileQueue(
            files.data or [directory / "data"], files.file_size, read_only=files.read_only, clock=clock, warm=files.warm
        )
        self.index = WritableMappedFileQueue([directory / "index"], files.index_file_size, clock=clock)
        self.begin_index = -1
        self.end_index = -1
        self.end_term = -1
        self.committed_index = -1
        self.committed_pos = -1
        self.disk_full = False
        self._start = files.start
        self._hook = hook

    # --- appending -----------------------------------------------------------------------------------------------

    def reserve(self, size: int) -> int:
        """Return the position of the next entry, of `size` bytes; closes the file with a BLANK if it does not fit.

        Errors: MessageRefused, NoSpace. Source: MmapFileList#preAppend
        """
        if size > MAX_ENTRY:
            raise MessageRefused(
                Text("the entry has {size} bytes; DLedger's limit is {max_entry}", size=size, max_entry=MAX_ENTRY)
            )
        file = self.data.last_file(self._start)
        if size + MIN_BLANK_SIZE > file.left:
            refuse_oversize(size, file.file_size)
            file.finish(build_blank(file.left))
            file = self.data.last_file(self._start)
        return file.start + file.wrote_position

    def append_as_leader(self, body: bytes, store_timestamp: int = 0) -> DLedgerEntry:
        """Append an entry in this member's term; the hook sets the record's PHYSICALOFFSET in the body.

        Errors: Refused if this member is not the leader or `disk_full` is set; MessageRefused, NoSpace.
        Source: DLedgerMmapFileStore#appendAsLeader
        """
        if self.member.role is not Role.LEADER:
            raise Refused(
                Text("{self_id} is not the leader", self_id=self.member.self_id),
                Text("append as follower, or make it the leader"),
            )
        self._refuse_full()
        pos = self.reserve(BODY_OFFSET + len(body))
        if self._hook is not None:
            mutable = bytearray(body)
            self._hook(pos, mutable)
            body = bytes(mutable)
        entry = DLedgerEntry(self.end_index + 1, self.member.term, pos, body)
        self._append(entry, store_timestamp)
        return entry

    def append_as_follower(self, entry: DLedgerEntry, leader_term: int, leader_id: str) -> DLedgerEntry:
        """Append an entry from the leader unchanged.

        Errors: Refused for another term or leader, and for an entry that does not continue this log by index and
        position.
        Source: DLedgerMmapFileStore#appendAsFollower
        """
        self._refuse_full()
        self.member.refuse_strange_leader(leader_term, leader_id)
        if entry.index != self.end_index + 1:
            raise Refused(
                Text("entry {index} does not follow {end_index}", index=entry.index, end_index=self.end_index),
                Text("truncate, or send those between"),
            )
        pos = self.reserve(entry.size)
        if pos != entry.pos:
            wrong = Text("entry {index} has position {at}, but the data ends at {end}")
            raise Refused(wrong.format(index=entry.index, at=entry.pos, end=pos), Text("truncate first"))
        self._append(entry, 0)
        return entry

    def truncate(self, entry: DLedgerEntry, leader_term: int, leader_id: str) -> int:
        """Truncate after an entry, or at its position if this member has another entry there, and then append it.

        The truncated bytes are zeroed. Errors: Refused, NoSpace. Source: DLedgerMmapFileStore#truncate
        """
        self.member.refuse_strange_leader(leader_term, leader_id)
        exists = self.get(entry.index) == entry
        stop = entry.pos + entry.size if exists else entry.pos
        self._cut(self.data, stop)
        if not exists:
            self.data.last_file(0).append(entry.build())
        self._cut(self.index, index_at(entry.index))
        self.index.last_file(0).append(entry.unit())
        self.end_index, self.end_term = entry.index, entry.term
        self.revise_begin_index()
        return entry.index

    def _append(self, entry: DLedgerEntry, store_timestamp: int) -> None:
        file = self.data.files[-1]
        file.append(entry.build())
        file.store_timestamp = store_timestamp or file.store_timestamp
        self.index.last_file(index_at(entry.index)).append(entry.unit())
        self.end_index, self.end_term = entry.index, entry.term
        if self.begin_index < 0:
            self.begin_index = entry.index

    def _refuse_full(self) -> None:
        if self.disk_full:
            raise Refused(Text("the disk is full"), Text("free space, then try again"))

    def _cut(self, queue: WritableMappedFileQueue, offset: int) -> None:
        queue.truncate_dirty_files(offset, blank=True)
        if queue.max_offset != offset:
            self.rebuild_with_pos(queue, offset)
        queue.set_where(offset)

    def rebuild_with_pos(self, queue: WritableMappedFileQueue, pos: int) -> None:
        """Delete all files and restart at a position (bytes); the new file has zeros before it.

        Errors: NoSpace. Source: MmapFileList#rebuildWithPos
        """
        queue.destroy()
        file = queue.last_file(pos)
        file.set_positions(pos % queue.file_size)
        file.start_position = pos % queue.file_size
        queue.set_where(pos)

    # --- reading -------------------------------------------------------------------------------------------------

    def get(self, index: int) -> DLedgerEntry | None:
        """Return the entry with an index; None if it does not exist, or if index and data disagree.

        Source: DLedgerMmapFileStore#get
        """
        if not self.begin_index <= index <= self.end_index or index < 0:
            return None
        raw = self.index.read(index_at(index), INDEX_UNIT.size)
        if len(raw) < INDEX_UNIT.size:
            return None
        magic, pos, size, _, _ = _PACK_INDEX.unpack(raw)
        entry = self.entry_at(pos)
        return entry if entry is not None and (entry.magic, entry.size, entry.index) == (magic, size, index) else None

    def entry_at(self, pos: int) -> DLedgerEntry | None:
        """Return the entry at a position of the data; None if there is none."""
        head = self.data.read(pos, ENTRY.size)
        if len(head) < ENTRY.size:
            return None
        magic, size, index, term, own, _, _, _, length = _PACK_ENTRY.unpack(head)
        if magic != MAGIC or size != BODY_OFFSET + length or own != pos or length < 0:
            return None
        body = self.data.read(pos + BODY_OFFSET, length)
        return DLedgerEntry(index, term, pos, body, magic) if len(body) == length else None

    # --- opening -------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Open data and index, find the end of the data, rewrite wrong index units, and restore the committed index.

        Errors: Refused where a real member fails to load or ends its process; NotReadable, NoSpace.
        Source: DLedgerMmapFileStore#load, #recover
        """
        self.data.load("5.0.0")  # like MmapFileList#doLoad, rejects directories and files of another length
        self.index.load("5.0.0")
        for queue, name in ((self.data, "data"), (self.index, "index")):
            if queue.check_self():
                raise Refused(
                    Text("{directory}: a file in the middle is missing", directory=self.directory / name),
                    Text("run `rmqstore verify`"),
                )
        self.member.term = max(self.member.term, self._stored_term().term)
        if not self.data.files:
            self.index.truncate_dirty_files(0, blank=True)
            self.index.set_where(0)
            return
        stop = self._walk()
        last = self.data.files[-1]
        if last.start - stop > last.file_size:
            raise Refused(
                Text("the data ends at {stop}, more than a file before {path}", stop=stop, path=last.path.name),
                Text("run `rmqstore recover` first"),
            )
        self.data.truncate_dirty_files(stop, blank=True)
        self.data.set_where(stop)
        self._cut(self.index, index_at(self.end_index + 1))
        self.revise_begin_index()
        point = parse_dledger_checkpoint(LOCAL.read_at(self.directory / "checkpoint", 4096, 0))
        if point.committed_index is not None:
            self.update_committed_index(self.member.term, point.committed_index)

    def cut(self, pos: int) -> None:
        """Truncate data and index at an entry's position (bytes), because the body of that entry is damaged.

        Errors: NoSpace.
        """
        entry = self.entry_at(pos)
        if entry is None or pos >= self.data.max_offset:
            return
        previous = self.get(entry.index - 1)
        self._cut(self.data, pos)
        self._cut(self.index, index_at(entry.index))
        self.end_index, self.end_term = entry.index - 1, previous.term if previous else -1
        if self.committed_index > self.end_index:
            self.committed_index, self.committed_pos = self.end_index, pos
        self.revise_begin_index()

    def _walk(self) -> int:
        """Walk the entries of the last files, rewrite wrong index units, and return the end of the last good entry."""
        files = self.data.files
        first = next((i for i in range(max(0, len(files) - LAST_FILES), -1, -1) if self._starts_well(files[i])), 0)
        pos = files[first].start
        rewriting = False
        for file in files[first:]:
            pos = file.start
            while True:
                magic = int.from_bytes(file.read(pos - file.start, 4), "big", signed=True)
                if magic == BLANK_MAGIC:
                    pos = file.stop
                    break
                entry = self.entry_at(pos)
                if entry is None or not self._follows(entry):
                    return pos
                if not rewriting and self.index.read(index_at(entry.index), INDEX_UNIT.size) != entry.unit():
                    self._cut(self.index, index_at(entry.index))
                    rewriting = True
                if rewriting:
                    self.index.last_file(index_at(entry.index)).append(entry.unit())
                self.end_index, self.end_term = entry.index, entry.term
                pos += entry.size
        return pos

    def _starts_well(self, file: WritableMappedFile) -> bool:
        """Return whether a file starts with an entry whose index unit is right."""
        entry = self.entry_at(file.start)
        return (
            entry is not None
            and entry.size > HEADER_SIZE
            and self.index.read(index_at(entry.index), INDEX_UNIT.size) == entry.unit()
        )

    def _follows(self, entry: DLedgerEntry) -> bool:
        return self.end_index < 0 or (entry.index == self.end_index + 1 and entry.term >= self.end_term)

    def revise_begin_index(self) -> None:
        """Set the begin index to that of the first entry in the first file.

        Source: DLedgerMmapFileStore#reviseLedgerBeginIndex
        """
        if not self.data.files or self.end_index < 0:
            self.begin_index = -1
            return
        first = self.data.files[0]
        entry = self.entry_at(first.start + first.start_position)
        self.begin_index = entry.index if entry is not None else self.end_index

    # --- commit and flush ----------------------------------------------------------------------------------------

    def update_committed_index(self, term: int, index: int) -> None:
        """Set the committed index, limited to the end index; ignores older terms and lower indexes.

        Source: DLedgerMmapFileStore#updateCommittedIndex
        """
        if index < 0 or self.end_index < 0 or term < self.member.term or index <= self.committed_index:
            return
        if index < self.begin_index:
            return
        index = min(index, self.end_index)
        entry = self.get(index)
        if entry is None:
            raise Refused(Text("entry {index} cannot be read", index=index), Text("run `rmqstore verify`"))
        self.committed_index, self.committed_pos = index, entry.pos + entry.size

    def commit(self) -> None:
        """Write buffered data and index units to the operating system. Errors: NoSpace and others."""
        for queue in (self.data, self.index):
            if queue.files:
                queue.files[-1].commit(0)

    def flush(self, least_pages: int = 0) -> None:
        """Flush the data and then the index to disk. Errors: NoSpace and others."""
        self.data.flush(least_pages)
        self.index.flush(least_pages)

    def persist_checkpoint(self) -> None:
        """Write `checkpoint` (committedIndex, endIndex).

        Errors: NoSpace. Source: DLedgerMmapFileStore#persistCheckPoint
        """
        point = DLedgerCheckpoint(self.committed_index, self.end_index)
        replace_file(self.directory / "checkpoint", point.build(), backup=True)

    def persist_term(self) -> None:
        """Write `currterm`.

        Errors: NoSpace. Source: MemberState#persistTerm
        """
        text = CurrTerm(self.member.term, self.member.vote_leader).build()
        replace_file(self.directory / "currterm", text, backup=True)

    def _stored_term(self) -> CurrTerm:
        return parse_currterm(LOCAL.read_at(self.directory / "currterm", 4096, 0))

    def close(self) -> None:
        """Flush everything, write the checkpoint, and close all files. Errors: NoSpace and others."""
        self.flush()
        self.persist_checkpoint()
        self.data.close()
        self.index.close()

    def abandon(self) -> None:
        """Close all files without writing, as if the process were killed."""
        self.data.abandon()
        self.index.abandon()


class DLedgerLog:
    """A `RecordLog` that appends every record as the body of one DLedger entry."""

    body_offset = BODY_OFFSET

    def __init__(self, store: DLedgerMmapFileStore) -> None:
        self.store = store
        self.queue = store.data

    def reserve(self, *sizes: int) -> int:
        """Return the physical offset of the first record; unlike in a commitlog, the others may go to the next file."""
        return self.store.reserve(BODY_OFFSET + sizes[0]) + BODY_OFFSET

    def write(self, record: bytes, store_timestamp: int) -> None:
        self.store.append_as_leader(record, store_timestamp)

    def commit(self) -> None:
        self.store.commit()

    def close(self) -> None:
        self.store.close()
