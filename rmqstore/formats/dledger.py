"""DLedger's formats: entry, BLANK, index unit, and the text files checkpoint and currterm.

Source: DLedgerEntryCoder, MmapFileList#preAppend, DLedgerMmapFileStore, MemberState (DLedger 0.1 to 0.3.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from construct import Int32sb, Int64sb

from rmqstore.formats.javatext import parse_java_properties, parse_long
from rmqstore.formats.layout import Field, Layout
from rmqstore.texts import Text

MAGIC = 1
NORMAL, NOOP, CONFIG_CHANGE = MAGIC, 2, 3
"""Entry types, which DLedger 0.4 stores as the magic (DLedgerEntryType); only a NORMAL entry carries a message."""
TYPES = (NORMAL, NOOP, CONFIG_CHANGE)
BLANK_MAGIC = -1

ENTRY = Layout(
    "dledger entry",
    "DLedgerEntryCoder#encode, DLedger 0.3.2",
    Field("magic", Int32sb, "1 (since DLedger 0.4 a type: 2 NOOP, 3 CONFIG_CHANGE); a BLANK has -1.", const=MAGIC),
    Field("size", Int32sb, "Whole entry: 48 + body length.", "bytes"),
    Field("index", Int64sb, "Number of the entry: 0, 1, 2 without gaps.", "entries"),
    Field("term", Int64sb, "Term of the leader that appended it; never falls."),
    Field("pos", Int64sb, "The entry's own position.", "bytes"),
    Field("channel", Int32sb, "Always 0."),
    Field("chain_crc", Int32sb, "Always 0: never computed, never checked."),
    Field("body_crc", Int32sb, "Always 0: never computed, never checked."),
    Field("body_length", Int32sb, "Length of the body that follows.", "bytes"),
    about="The body is exactly one commitlog record; its PHYSICALOFFSET is pos + 48.",
)
BLANK = Layout(
    "dledger blank",
    "MmapFileList#preAppend, DLedger 0.3.2",
    Field("magic", Int32sb, "Always -1.", const=BLANK_MAGIC),
    Field("size", Int32sb, "Bytes left in the file, counted from here.", "bytes"),
    about="Marks the end of a data file; the bytes after it are zero. Magic and size are in the opposite order to a "
    "commitlog BLANK. DLedger 0.4 also writes one over entries that a snapshot covers, from the start of the file to "
    "the first entry that it keeps.",
)
INDEX_UNIT = Layout(
    "dledger index unit",
    "DLedgerEntryCoder#encodeIndex, DLedger 0.3.2",
    Field("magic", Int32sb, "Magic of the entry.", const=MAGIC),
    Field("pos", Int64sb, "Where the entry starts.", "bytes"),
    Field("size", Int32sb, "Whole entry.", "bytes"),
    Field("index", Int64sb, "Number of the entry.", "entries"),
    Field("term", Int64sb, "Term of the entry."),
    about="Position of the unit of an entry = index × 32.",
)

BODY_OFFSET = ENTRY.size
HEADER_SIZE = ENTRY.at("body_length")  # DLedgerEntry.HEADER_SIZE does not count the body length
INDEX_FILE_SIZE = INDEX_UNIT.size * 5 * 1024 * 1024
MIN_BLANK_SIZE = BLANK.size
SNAPSHOTS = "snapshot"
"""Name of the state machine's snapshot directory in the group's directory (DLedger 0.4)."""
COMMITTED_INDEX, END_INDEX = "committedIndex", "endIndex"
CURR_TERM, VOTE_LEADER = "currTerm", "voteLeader"


def build_blank(size: int) -> bytes:
    """Return the 8 bytes of a BLANK; `size` is the number of bytes left in the file."""
    return BLANK.build(size=size)


def index_at(index: int) -> int:
    """Return the offset (bytes) of an entry's unit in the index, counted over all index files."""
    return index * INDEX_UNIT.size


class DLedgerCheckpoint(NamedTuple):
    """The contents of the text file `checkpoint`; None for an index that is not set.

    `refused` is a committedIndex that is not a number, which makes DLedger throw and the store's load() return false.
    """

    committed_index: int | None
    end_index: int | None
    faults: tuple[str, ...] = ()
    refused: str | None = None

    def build(self) -> bytes:
        """Return the bytes of the file as DLedger writes it, with -1 for an index that is not set."""
        committed = -1 if self.committed_index is None else self.committed_index
        end = -1 if self.end_index is None else self.end_index
        return f"{COMMITTED_INDEX}={committed}\n{END_INDEX}={end}\n".encode()


class CurrTerm(NamedTuple):
    """The contents of the text file `currterm`; term 0 and no vote if unreadable, which is how DLedger then starts."""

    term: int
    vote_leader: str | None
    faults: tuple[str, ...] = ()

    def build(self) -> bytes:
        """Return the bytes of the file as DLedger writes it."""
        return f"{VOTE_LEADER}={self.vote_leader or ''}\n{CURR_TERM}={self.term}\n".encode()


def _values(data: bytes) -> tuple[dict[str, str], list[str]]:
    values, faults = parse_java_properties(bytes(data).decode("latin-1"))
    if faults:
        values = {}  # Properties#load throws on a broken escape, and DLedger then ignores the whole file
    if not data.strip(b" \t\r\n\f"):
        faults.append("empty")
    elif not data.strip(b"\0"):
        faults.append(Text("filled with NUL bytes"))
    return values, faults


def _number(values: dict[str, str], name: str, faults: list[str]) -> int | None:
    text = values.get(name)
    if not text:
        faults.append(Text("{name} is missing", name=name))
        return None
    number = parse_long(text)
    if number is None:
        faults.append(Text("{name} is not a number", name=name))
    return number


def _trimmed(text: str) -> str:
    """Strip characters up to U+0020 from both ends, as String#trim does."""
    return text.strip("".join(map(chr, range(0x21))))


def parse_dledger_checkpoint(data: bytes) -> DLedgerCheckpoint:
    """Parse `dledger-SELFID/checkpoint`; damage is reported in `faults`, never raised.

    Source: DLedgerMmapFileStore#loadCheckPoint, #recover (0.1 to 0.3.2; 0.4.0 has no such file)
    """
    values, faults = _values(data)
    values = {name: _trimmed(text) for name, text in values.items()}
    committed = _number(values, COMMITTED_INDEX, faults)
    refused = values.get(COMMITTED_INDEX) or None if committed is None else None
    return DLedgerCheckpoint(committed, _number(values, END_INDEX, faults), tuple(faults), refused)


def parse_currterm(data: bytes) -> CurrTerm:
    """Parse `dledger-SELFID/currterm`; damage is reported in `faults`, never raised.

    Source: MemberState#loadTerm
    """
    values, faults = _values(data)
    term = _number(values, CURR_TERM, faults)
    return CurrTerm(term or 0, values.get(VOTE_LEADER) or None, tuple(faults))


@dataclass(frozen=True, slots=True)
class DLedgerEntry:
    """One entry; names and units as in `ENTRY`."""

    index: int
    term: int
    pos: int
    body: bytes
    magic: int = MAGIC

    @property
    def size(self) -> int:
        """The size of the whole entry, in bytes."""
        return BODY_OFFSET + len(self.body)

    def build(self) -> bytes:
        """Return the bytes of the entry in the data file; DLedger always writes 0 for chain and body CRC."""
        body = self.body
        return ENTRY.packer.pack(self.magic, self.size, self.index, self.term, self.pos, 0, 0, 0, len(body)) + body

    def unit(self) -> bytes:
        """Return the bytes of its index unit."""
        return INDEX_UNIT.packer.pack(self.magic, self.pos, self.size, self.index, self.term)
