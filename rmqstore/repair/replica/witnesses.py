"""What a replica's own consume queues and index say about its records.

No CRC covers the properties of most records. In the replica too, only the tags code of a queue's unit and the key
hashes of the index show that they are damaged. These are the checks of `verify`, made with the replica's own files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rmqstore.checks.index.catalog import IndexCatalog
from rmqstore.checks.index.tally import Contradicted
from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.problems.report import Finding, tags_in_doubt
from rmqstore.files.mapped_file_queue import message_at
from rmqstore.repair.log.spans import Span, joined


@dataclass(slots=True)
class Witnesses:
    """What the pass over some log files of a replica found, by global offset of the record (in DLedger of the message).

    `entries`: records that their index entries contradict. `units`: records that the tags code of their unit
    contradicts. `text`: records with properties or a topic that no writer produces.
    """

    result: LogResult
    catalog: IndexCatalog | None
    entries: dict[int, Contradicted] = field(default_factory=dict)
    units: dict[int, Finding] = field(default_factory=dict)
    text: set[int] = field(default_factory=set)
    _spans: list[Span] | None = None

    @classmethod
    def of(cls, result: LogResult, catalog: IndexCatalog | None, findings: Sequence[Finding]) -> Witnesses:
        """Return what a pass says about the records of its log."""
        out = cls(result, catalog, dict(result.index.contradicted))
        for finding in findings:
            at = finding.facts.get("commitlog_offset")
            if tags_in_doubt(finding) and isinstance(at, int):
                out.units[at] = finding
            elif finding.problem.alters_keys and finding.queue == result.name:
                out.text.add(finding.offset + result.body_offset)
        return out

    @property
    def spans(self) -> list[Span]:
        """The ranges of all records with damaged properties."""
        if self._spans is None:
            body_offset, found = self.result.body_offset, []
            for at in (*self.entries, *self.units, *self.text):
                message = message_at(self.result.queue, at)
                if message is not None:
                    found.append((at - body_offset, at + message.size))
            self._spans = joined(found)
        return self._spans

    def confirm_keys(self, at: int) -> bool:
        """Return whether the index has entries for a record, and they fit its keys."""
        if self.catalog is None or at in self.entries:
            return False
        return len(self.catalog.hashes(at, at + 1)[0]) > 0

    def confirm_tags(self, at: int, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Return whether a queue has the unit of a record, with the tags code of its TAGS."""
        return at not in self.units and has_unit(self.result, topic, queue_id, queue_offset)


def has_unit(result: LogResult, topic: str, queue_id: int, queue_offset: int) -> bool:
    """Return whether a queue has a unit that points to the message with a queue offset."""
    part = result.queues.get((topic, queue_id))
    return part is not None and any(a <= queue_offset < b for a, b in part.accounted)
