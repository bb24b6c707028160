"""DLedger: entry, BLANK, index unit and the two text files.

Source: DLedgerEntryCoder, MmapFileList#preAppend, DLedgerMmapFileStore, MemberState (DLedger 0.1 to 0.3.2).
"""

from __future__ import annotations

from typing import NamedTuple

from construct import Int32sb, Int64sb

from rmqstore.formats.layout import Field, Layout
from rmqstore.formats.text.javatext import parse_java_properties, parse_long

MAGIC = 1
NORMAL, NOOP, CONFIG_CHANGE = MAGIC, 2, 3
"""Types of an entry since DLedger 0.4, in its magic (DLedgerEntryType); only a NORMAL one has a message."""
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
    about="The body is exactly one commitlog record, whose PHYSICALOFFSET is pos + 48.",
)
BLANK = Layout(
    "dledger blank",
    "MmapFileList#preAppend, DLedger 0.3.2",
    Field("magic", Int32sb, "Always -1.", const=BLANK_MAGIC),
    Field("size", Int32sb, "Bytes left in the file, counted from here.", "bytes"),
    about="End of a data file; the rest is zero. Magic first: the other way round than in a commitlog. "
    "DLedger 0.4 also puts one over what a snapshot made superfluous, from the file's start to the first entry kept.",
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
HEADER_SIZE = ENTRY.at("body_length")  # DLedgerEntry.HEADER_SIZE leaves the body length out
INDEX_FILE_SIZE = INDEX_UNIT.size * 5 * 1024 * 1024
MIN_BLANK_SIZE = BLANK.size
SNAPSHOTS = "snapshot"
"""Directory that DLedger 0.4 keeps for its state machine, in the group's."""
COMMITTED_INDEX, END_INDEX = "committedIndex", "endIndex"
CURR_TERM, VOTE_LEADER = "currTerm", "voteLeader"


def build_blank(size: int) -> bytes:
    """The 8 bytes of a BLANK that says `size` bytes are left."""
    return BLANK.build(size=size)


def index_at(index: int) -> int:
    """Position of the index unit of an entry over all index files, in bytes."""
    return index * INDEX_UNIT.size


class DLedgerCheckpoint(NamedTuple):
    """The text file `checkpoint`; None: not set.

    `refused` is a committedIndex that is not a number: DLedger throws, and load() returns false.
    """

    committed_index: int | None
    end_index: int | None
    faults: tuple[str, ...] = ()
    refused: str | None = None

    def build(self) -> bytes:
        """The file as DLedger writes it; -1 for what is not set."""
        committed = -1 if self.committed_index is None else self.committed_index
        end = -1 if self.end_index is None else self.end_index
        return f"{COMMITTED_INDEX}={committed}\n{END_INDEX}={end}\n".encode()


class CurrTerm(NamedTuple):
    """The text file `currterm`; term 0 and no vote where nothing can be read, as DLedger starts then."""

    term: int
    vote_leader: str | None
    faults: tuple[str, ...] = ()

    def build(self) -> bytes:
        """The file as DLedger writes it."""
        return f"{VOTE_LEADER}={self.vote_leader or ''}\n{CURR_TERM}={self.term}\n".encode()


def _values(data: bytes) -> tuple[dict[str, str], list[str]]:
    values, faults = parse_java_properties(bytes(data).decode("latin-1"))
    if faults:
        values = {}  # Properties#load throws at a broken escape, and DLedger takes nothing from the file
    if not data.strip(b" \t\r\n\f"):
        faults.append("empty")
    elif not data.strip(b"\0"):
        faults.append("filled with NUL bytes")
    return values, faults


def _number(values: dict[str, str], name: str, faults: list[str]) -> int | None:
    text = values.get(name)
    if not text:
        faults.append(f"{name} is missing")
        return None
    number = parse_long(text)
    if number is None:
        faults.append(f"{name} is not a number")
    return number


def _trimmed(text: str) -> str:
    """String#trim: everything up to U+0020 goes."""
    return text.strip("".join(map(chr, range(0x21))))


def parse_dledger_checkpoint(data: bytes) -> DLedgerCheckpoint:
    """`dledger-SELFID/checkpoint`, whatever it holds.

    Source: DLedgerMmapFileStore#loadCheckPoint, #recover (0.1 to 0.3.2; 0.4.0 has no such file)
    """
    values, faults = _values(data)
    values = {name: _trimmed(text) for name, text in values.items()}
    committed = _number(values, COMMITTED_INDEX, faults)
    refused = values.get(COMMITTED_INDEX) or None if committed is None else None
    return DLedgerCheckpoint(committed, _number(values, END_INDEX, faults), tuple(faults), refused)


def parse_currterm(data: bytes) -> CurrTerm:
    """`dledger-SELFID/currterm`, whatever it holds.

    Source: MemberState#loadTerm
    """
    values, faults = _values(data)
    term = _number(values, CURR_TERM, faults)
    return CurrTerm(term or 0, values.get(VOTE_LEADER) or None, tuple(faults))
