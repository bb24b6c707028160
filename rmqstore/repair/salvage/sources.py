"""Further sources of the bytes of damaged places, such as a replica: the interface between them and the solver.

The solver asks every source, in order, before it looks at its own candidates: first for a whole damaged span of one
file (or a whole missing file), then for every single record that it could not mend. What a source gives must be proven
by the source; the solver checks it against the store's own witnesses all the same: it must consist of sound records
(with their DLedger headers) from the first byte to the last, a BLANK at the end of a file included, and no consume
queue unit may contradict a record in it. A contradicted answer counts as no answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rmqstore.repair.plan.content import Content


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
