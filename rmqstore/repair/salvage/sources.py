"""Further sources of the bytes of damaged places, such as a replica: the interface between them and the solver.

The solver asks every source, in order, before it looks at its own candidates: first for a whole damaged span of one
file (or a whole missing file), then for every single record that it could not mend. What a source gives must be proven
by the source; the solver checks it against the store's own witnesses all the same: it must consist of sound records
(with their DLedger headers) from the first byte to the last, a BLANK at the end of a file included, and no consume
queue unit may contradict a record in it. A contradicted answer counts as no answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rmqstore.files.records import MAX_RECORD
from rmqstore.formats import dledger
from rmqstore.formats import message as records
from rmqstore.formats.message import Fault, check_message, parse_message, record_crc
from rmqstore.repair.plan.content import Content, ContentReader
from rmqstore.repair.salvage.evidence.entries import Entry


@dataclass(frozen=True, slots=True)
class Proven:
    """The bytes of a place: `content` has exactly its length, `witness` says for a person what proves them.

    A content may be made while it is written (`plan.content.Reencoded`), so that a missing file of 1 GiB needs no
    memory. It is read several times and must be the same each time.
    """

    content: Content
    witness: str


class ByteSource(Protocol):
    """A further source of bytes.

    `proven` is asked for [start, stop), global offsets in the log that is a `commitlog` (`lead` 0) or DLedger data
    (`lead` 48: the place starts with an entry's header). A place lies within one file. None: not known, or not proven.
    """

    def proven(self, start: int, stop: int, lead: int) -> Proven | None: ...


class Found(NamedTuple):
    """A record that a source gave: global offset (of its entry in DLedger), place in a queue, size, DLedger entry.

    `slot` None: a record that no queue gets.
    """

    start: int
    slot: tuple[str, int, int] | None
    size: int
    entry: Entry | None


def records_of(content: Content, start: int, stop: int, lead: int) -> list[Found] | None:
    """The records of a place, if its content is nothing but sound records of this place, with a BLANK at most behind.

    Only one record is in memory at a time.
    """
    out: list[Found] = []
    reader, at = ContentReader(content), start
    if content.size != stop - start:
        return None
    while at < stop:
        head = reader.take(lead + records.BLANK_SIZE)
        if len(head) < lead + records.BLANK_SIZE:
            return None
        blank = dledger.BLANK.parse(head) if lead else records.BLANK.parse(head)
        if blank["magic"] == (dledger.BLANK_MAGIC if lead else records.BLANK_MAGIC):
            return out if blank["size"] == stop - at else None
        values = dledger.ENTRY.parse(head) if lead else {}
        size = int.from_bytes(head[lead : lead + 4], "big", signed=True)
        if not records.MIN_SIZE <= size <= min(MAX_RECORD, stop - at - lead):
            return None
        entry = Entry(values["index"], values["term"], values["pos"], values["size"]) if lead else None
        if entry is not None and (values["magic"], entry.pos, entry.size) != (dledger.MAGIC, at, size + lead):
            return None
        raw = head[lead:] + reader.take(size - records.BLANK_SIZE)
        message, _ = parse_message(raw)
        stored, computed = record_crc(raw, 0, len(raw)) if message is not None else (None, 0)
        if message is None or check_message(message, at + lead) is not Fault.NONE or stored not in (None, computed):
            return None
        slot = (message.topic_text, message.queue_id, message.queue_offset) if message.is_dispatched else None
        out.append(Found(at, slot, lead + size, entry))
        at += lead + size
    return out
