"""Corrects records with valid framing and body CRC if a witness contradicts a field that the CRC does not cover.

Topic, queue id and queue offset follow from the only unit that points to the record, from its neighbours in the queue,
or from the order of the units; TAGS and the fields of a batch from the unit; compression bits from the body. Damaged
properties are corrected if there is a proof; otherwise they are made readable, and the message stays.

If queue offsets of units and headers differ, either may be right. A broker assigns queue offsets in the order of the
log, and writes the units in the same order. So the headers are damaged in two cases: the units point to rising offsets
while the queue offsets in the headers do not rise; or the units on both sides agree with their messages, and there are
exactly as many records between them as queue offsets. The unit before them may also be of a lost message.

On a replica, in a rebuild of one part and with `--only`, the log stays unchanged; then queues and index are rebuilt as
if from the original records (`FramedRecords.view`), so that they do not fit the damage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from rmqstore.checks.log.commitlog import LogResult, framed_records
from rmqstore.checks.log.queue_parts import QueueGap, QueuePart, Shifted
from rmqstore.checks.log.record_findings import PREPARED, ROLLED_BACK
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding
from rmqstore.files.mapped_file_queue import message_at
from rmqstore.formats import consumequeue, properties, services
from rmqstore.formats.bodies import compression_words, proved_sys_flag
from rmqstore.formats.consumequeue import QueueName, split_queue_label
from rmqstore.formats.message import Message, parse_message, set_record_crc
from rmqstore.formats.services import is_sound_topic
from rmqstore.repair.plan.plan_builder import PlanBuilder, first_few
from rmqstore.repair.repaired_log import RepairedLog
from rmqstore.repair.salvage.candidates import (
    dispatched_flag,
    proved_batches,
    proved_tags,
    set_fields,
    sound_ports,
    with_tags,
)
from rmqstore.repair.salvage.evidence import Evidence, QueueSlot, fits_queue, key_of
from rmqstore.repair.salvage.whole_bodies import UNPROVED, mend_text
from rmqstore.scan.tiling import Kind
from rmqstore.texts import Text, joined, many

UnitAt = Callable[[int], tuple[int, int] | None]
"""(commitlog offset, tags code) of the unit at a queue offset; None without a unit."""

_MOST = 10_000  # units of one group


def proved_by_units(
    part: QueuePart, unit_at: UnitAt, damaged: Callable[[int], bool], misfiled: Container[int] = ()
) -> Iterator[tuple[int, int]]:
    """Yield half-open ranges of units that prove the queue offsets of the records to which they point.

    `damaged` tells whether a commitlog offset is in damage; `misfiled` are offsets of records of other queues.
    """

    def fits(index: int) -> bool:
        unit = unit_at(index)
        return _agrees(part, index) or (unit is not None and damaged(unit[0]))  # the unit of a lost message

    for group in _adjoining(part.shifted):
        start, stop = group[0].start, group[-1].stop
        if stop - start > _MOST:
            continue
        if not (fits(start - 1) if start else part.first_at in misfiled):
            continue
        at_end = unit_at(stop) is None
        if not at_end and not fits(stop):
            continue
        if (at_end or not _agrees(part, stop)) and _rise(group, start - 1):
            continue  # the headers are as good as the units: the queue may lack units before them
        places = [unit_at(index) for index in range(max(0, start - 1), stop if at_end else stop + 1)]
        offsets = [place[0] for place in places if place is not None]
        if len(offsets) == len(places) and all(a < b for a, b in pairwise(offsets)):
            yield start, stop


def _adjoining(shifted: Sequence[Shifted]) -> Iterator[list[Shifted]]:
    """Yield the shifted ranges of units, with adjacent ones as a group."""
    group: list[Shifted] = []
    for one in sorted(shifted, key=lambda s: s.start):
        if group and one.start != group[-1].stop:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _agrees(part: QueuePart, index: int) -> bool:
    """Return whether the unit at a queue offset points to a message with this queue offset."""
    return part.has_unit(index) and not any(s.start <= index < s.stop for s in part.shifted)


def _rise(group: list[Shifted], before: int) -> bool:
    """Return whether the queue offsets in the headers rise in the order of the units."""
    for one in group:
        if one.start - one.by <= before:
            return False
        before = one.stop - 1 - one.by
    return True


_GAP = codes.CL_QUEUE_OFFSET_GAP
_OFFSET = codes.CL_QUEUE_OFFSET
_FLAG = codes.CL_SYSFLAG
_HOST = codes.CL_HOST
_PLACE = {codes.CL_HEADER, codes.CL_QUEUE_OFFSET, codes.CL_TOPIC}
_TEXT = {codes.CL_PROPERTIES, *_PLACE}
_SUSPICIOUS = {*_TEXT, _GAP, _FLAG, _HOST, codes.DL_BODY}
_MOST_OF_A_GAP = 10_000
_MOST_TAGS = 1000  # more are not flipped bits: the queue may have been built from other messages
_LISTED = 8


class ProofKind(NamedTuple):
    """How a plan reports messages with one kind of proof, which matters for queues and index of an unchanged log.

    `fact` is the name of the plan's fact with their global offsets, `codes` are the problems that verify still finds.
    """

    fact: str
    codes: tuple[str, ...]
    damaged: str
    witness: str


BATCH_PROOF = ProofKind(
    "proved_batches",
    (codes.BCQ_WRONG_UNIT, codes.BCQ_DANGLING_UNIT, codes.BCQ_MISSING_UNIT),
    Text("headers or properties"),
    Text("the unit of the batch"),
)
QUEUE_PROOF = ProofKind(
    "proved_queues",
    (codes.CL_HEADER, codes.CL_TOPIC, _GAP, codes.CL_QUEUE_OFFSET_REPEAT),
    Text("topics or QUEUEIDs"),
    Text("the only unit that points to them"),
)
FLAG_PROOF = ProofKind(
    "proved_flags",
    (codes.CQ_DANGLING_UNIT, _GAP, _FLAG),
    "SYSFLAGs",
    Text("the unit that points to them, or by their queue offset"),
)
OFFSET_PROOF = ProofKind(
    "proved_offsets",
    (codes.CQ_SHIFTED, codes.CQ_DANGLING_UNIT, codes.CL_QUEUE_OFFSET_REPEAT, _OFFSET),
    "QUEUEOFFSETs",
    Text("the order of the queue"),
)
TAGS_PROOF = ProofKind(
    "proved_tags",
    (codes.CQ_WRONG_TAG, codes.CL_CONTRADICTED),
    "TAGS",
    Text("the tagsCode of the unit"),
)
_KINDS = (BATCH_PROOF, QUEUE_PROOF, FLAG_PROOF, OFFSET_PROOF, TAGS_PROOF)
"""The strongest proof first: of a record with several ones, a plan reports only this."""


@dataclass(slots=True)
class Fix:
    """The correction of one record at global offset `start`; `new` is None for a filler that keeps `slot`.

    `reasons` explain the correction; `queues` must be rebuilt; `unproved` describes the bytes of the record that remain
    unknown.
    """

    log: LogResult
    start: int
    old: bytes
    new: bytes | None
    reasons: list[str] = field(default_factory=list)
    queues: set[QueueName] = field(default_factory=set)
    unproved: str = ""
    slot: QueueSlot | None = None
    proofs: set[ProofKind] = field(default_factory=set)

    @property
    def why(self) -> str:
        """Return the reason of the step in the plan."""
        return (
            joined(self.reasons)
            if self.slot is not None
            else Text("mended in place: {reasons}", reasons=joined(self.reasons))
        )


@dataclass(slots=True)
class _Suspect:
    """A record, with all findings about it."""

    log: LogResult
    start: int
    findings: list[Finding] = field(default_factory=list)

    @property
    def codes(self) -> set[str]:
        return {f.code for f in self.findings}

    def fact(self, code: str, name: str) -> Fact | None:
        return next((f.facts.get(name) for f in self.findings if f.code == code), None)


@dataclass
class FramedRecords:
    """The corrections of framed records, and what could not be corrected.

    `fixes` by global offset. `gaps` describe queue offsets without a record; `torn` are queues that end at such a
    gap for consumers; `left` are (offset of a finding, problem) that remain.
    """

    evidence: Evidence
    fixes: dict[int, Fix] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    torn: set[QueueName] = field(default_factory=set)
    left: set[tuple[int, str]] = field(default_factory=set)
    _in_order: set[int] = field(default_factory=set)  # records before which their queue does not restart
    _placed: set[int] = field(default_factory=set)  # records whose place in a queue is proved
    _taken: set[int] = field(default_factory=set)  # records that a sister queue gets
    _filled: set[tuple[str, int, int]] = field(default_factory=set)  # slots that no record had before

    def solve(self) -> FramedRecords:
        """Find the corrections of all suspect records."""
        found = self.evidence.verified.report.findings
        self._by_order()
        self._strangers()
        misfiled = self._units_of_misfiled()
        suspects = self._suspects(found.listed)
        for suspect in suspects:
            if _FLAG in suspect.codes:
                self._fix_flag(suspect)
        for suspect in reversed(suspects):  # a record that belongs to a sister queue is before the gap there
            if _GAP in suspect.codes and suspect.start not in self._taken:
                self._fill_gap(suspect)
        self.gaps.reverse()
        for suspect in suspects:
            if suspect.codes - {_GAP, _FLAG, _HOST}:
                self._fix_place_and_text(suspect, misfiled.get(suspect.start))
            if _HOST in suspect.codes:
                self._fix_host(suspect)
        for finding in [f for f in found.listed if f.code == codes.CQ_DANGLING_UNIT]:
            self._dispatch_again(finding)
        for finding in [f for f in found.listed if f.code == codes.CQ_WRONG_TAG][:_MOST_TAGS]:
            self._fix_tags(finding)
        for start, mended, queues in proved_batches(self.evidence):
            if start not in self.fixes:
                reason = Text("its unit proves its {fields}", fields=mended.fields[0])
                fix = self._change(self.evidence.logs.at(start), start, mended.record, reason, queues)
                fix.proofs.add(BATCH_PROOF)
        handled = _TEXT | {_FLAG, _HOST}
        unlisted = sum(found.counts.get(code, 0) for code in handled) - sum(f.code in handled for f in found.listed)
        if unlisted > 0:
            self.refusals.append(
                Text(
                    "{unlisted} with a damaged header, topic or properties: run recover again after this",
                    unlisted=many(unlisted, "more record"),
                )
            )
        return self

    def place(self, slots: Iterable[QueueSlot]) -> list[QueueSlot]:
        """Find records of sister queues for slots that no damage has room for; return the slots that are left."""
        return [slot for slot in slots if not self._take_repeat(slot)]

    # --- records and their fixes ----------------------------------------------------------------------------------

    def _now(self, log: LogResult | None, start: int) -> tuple[bytes, Message] | None:
        """Return a record with all earlier fixes; None if it becomes a filler, or is not a record."""
        fix = self.fixes.get(start)
        if fix is not None:
            message = parse_message(fix.new)[0] if fix.new is not None else None
            return (fix.new, message) if fix.new is not None and message is not None else None
        message = message_at(log.queue, start) if log is not None else None
        return (log.queue.pread(message.size, start), message) if log is not None and message is not None else None

    def _change(
        self, log: LogResult | None, start: int, new: bytes, reason: str, queues: Iterable[QueueName] = ()
    ) -> Fix:
        """Change a record, in addition to its earlier fixes."""
        if start not in self.fixes:
            assert log is not None
            self.fixes[start] = Fix(log, start, log.queue.pread(len(new), start), new)
        fix = self.fixes[start]
        fix.new = new
        fix.reasons.append(reason)
        fix.queues.update(queues)
        return fix

    def _suspects(self, listed: Iterable[Finding]) -> list[_Suspect]:
        out: dict[int, _Suspect] = {}
        logs = self.evidence.logs
        by_name = {log.name: log for log in logs.results}
        for finding in listed:
            log = by_name.get(finding.queue)
            if log is not None and finding.code in _SUSPICIOUS and not logs.damaged(finding.offset):
                start = finding.offset + log.body_offset
                out.setdefault(start, _Suspect(log, start)).findings.append(finding)
        return [out[start] for start in sorted(out)]

    # --- the place in a queue -------------------------------------------------------------------------------------

    def _by_order(self) -> None:
        """Correct groups of records with wrong queue offsets, between units that agree with their messages."""
        for (topic, queue_id), part in sorted(self.evidence.logs.queues.items()):
            if not (part.repeats or part.outliers or part.restarts):
                continue

            def unit_at(number: int, topic: str = topic, queue_id: int = queue_id) -> tuple[int, int] | None:
                unit = self.evidence.unit(topic, queue_id, number)
                return (unit["commitlog_offset"], unit["tags_code"]) if unit else None

            misfiled = self.evidence.logs.misfiled.offsets
            for start, stop in proved_by_units(part, unit_at, self.evidence.logs.damaged, misfiled):
                for number in range(start, stop):
                    unit = unit_at(number)
                    log = self.evidence.logs.at(unit[0]) if unit else None
                    if unit is None or log is None:
                        continue
                    if self._renumber(log, QueueSlot(topic, queue_id, number, unit[1]), unit[0]):
                        self._in_order.add(unit[0])
                        if unit[0] in self.fixes:
                            self.fixes[unit[0]].proofs.add(OFFSET_PROOF)

    def _strangers(self) -> None:
        """Put records with a damaged TOPIC or QUEUEID where only one queue lacks them."""
        for at, slot in self.evidence.strangers.items():
            log = self.evidence.logs.at(at)
            now = self._now(log, at)
            new = set_fields(now[0], slot) if now is not None and slot is not None else None
            if now is None or slot is None or new is None or now[1].physical_offset != at:
                continue
            self._placed.add(at)
            self._filled.add(slot.key)
            self._change(log, at, new, _belongs_to(slot), [(now[1].topic_text, now[1].queue_id), slot.name])

    def _fill_gap(self, suspect: _Suspect) -> None:
        """Correct records of a queue whose units have the queue offsets that no record has."""
        topic, queue_id, expected, got = (suspect.fact(_GAP, n) for n in ("topic", "queue_id", "expected", "got"))
        if not (isinstance(topic, str) and isinstance(queue_id, int)):
            return
        if not (isinstance(expected, int) and isinstance(got, int)):
            return
        left: list[int] = []
        for number in range(expected, min(got, expected + _MOST_OF_A_GAP)):
            if (topic, queue_id, number) in self._filled:
                continue
            unit = self.evidence.unit(topic, queue_id, number)
            slot = QueueSlot(topic, queue_id, number, unit["tags_code"] if unit else None)
            if unit is None or not self._renumber(suspect.log, slot, unit["commitlog_offset"]):
                if self._take_repeat(QueueSlot(topic, queue_id, number)):
                    continue
                left.append(number)
                if self.evidence.ends_at(topic, queue_id, number):
                    self.torn.add((topic, queue_id))
                if len(left) > _LISTED:
                    break
        if left:
            self.gaps.append(
                Text(
                    "{topic}/{queue_id} has no message at queue offset {offsets}, and no damaged span can contain "
                    "it: a queue rebuilt from the log alone would be shifted",
                    topic=topic,
                    queue_id=queue_id,
                    offsets=joined(map(str, left[:_LISTED])),
                )
            )

    def _take_repeat(self, slot: QueueSlot) -> bool:
        """Put a record of a sister queue at a missing queue offset; return whether one is proved to belong there.

        The sister queue has no room for it, or two records with this queue offset, of which only one is where the other
        queue lacks it; and nothing but its QUEUEID contradicts that. All are in one file, or no other queue has a gap
        there: another file may be of another log.
        """
        rivals = self._crowded.get((slot.topic, slot.queue_offset), ())
        part = self.evidence.logs.queues.get(slot.name)
        gaps = part.gaps if part is not None else ()
        gap = next((one for one in gaps if one.expected <= slot.queue_offset < one.got), None)
        log = self.evidence.logs.at(gap.at) if gap is not None else None
        if not rivals or gap is None or log is None:
            return False
        low = gap.before - log.body_offset
        here = [
            (at + log.body_offset, message)
            for run in log.tiling
            if run.kind is Kind.RECORDS and run.start < gap.at and low < run.stop
            for at, message in framed_records(log, max(run.start, low), min(run.stop, gap.at - log.body_offset))
            if (message.topic_text, message.queue_offset) == (slot.topic, slot.queue_offset)
            and message.queue_id in rivals
        ]
        if len(here) != 1 or here[0][0] in self._placed or here[0][0] in self.fixes:
            return False
        at, message = here[0]
        own = {slot.name, (slot.topic, message.queue_id)}
        if gap.at // log.queue.file_size != gap.before // log.queue.file_size and not self._is_alone(gap, own):
            return False
        new = set_fields(log.queue.pread(message.size, at), slot)
        if new is None:
            return False
        self._placed.add(at)
        self._taken.add(at)
        self._change(log, at, new, _belongs_to(slot), [(slot.topic, message.queue_id), slot.name])
        return True

    def _is_alone(self, gap: QueueGap, queues: Collection[QueueName]) -> bool:
        """Return whether no queue but `queues` has a gap that overlaps `gap`, and that no damage explains."""
        logs = self.evidence.logs
        gaps = (other for name, part in logs.queues.items() if name not in queues for other in part.gaps)
        overlapping = (other for other in gaps if other.before < gap.at and gap.before < other.at)
        return all(logs.loses_between(other.before, other.at) for other in overlapping)

    @cached_property
    def _crowded(self) -> dict[tuple[str, int], dict[int, tuple[int, int]]]:
        """Return the queues with a record that may be of a sister queue, by topic and queue offset.

        They have two records with it, no room for it, or end with it after a gap that no damage explains.

        The values are queue ids, with the first and last global offset where the record that is too many can be.
        """
        out: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
        for (topic, queue_id), part in self.evidence.logs.queues.items():
            repeats = ((number, (part.first_at, at)) for at, number in part.repeats)
            strangers = ((one.got, (one.at, one.at)) for one in part.outliers if one.expected is None)
            last = (
                (gap.got, (gap.at, gap.at))
                for gap in part.gaps[-1:]
                if gap.at == part.last_at and not self.evidence.logs.loses_between(gap.before, gap.at)
            )
            for number, places in (*repeats, *strangers, *last):
                out.setdefault((topic, number), {})[queue_id] = places
        return out

    def _renumber(self, log: LogResult, slot: QueueSlot, offset: int) -> bool:
        """Give a record the queue offset of its unit; return whether the queue offset is then accounted for."""
        if self.evidence.logs.damaged(offset):
            return True  # a filler will replace the damage there
        now = self._now(log, offset)
        if now is None:
            return offset in self.fixes  # it becomes a filler
        raw, message = now
        if message.physical_offset != offset or (message.topic_text, message.queue_id) != slot.name:
            return False
        new = set_fields(raw, slot, sys_flag=dispatched_flag(message))
        new = with_tags(new, slot.tags_code) if new is not None else None
        if new is None or new == raw or offset in self._placed:
            return new is not None
        self._placed.add(offset)
        self._change(log, offset, new, _belongs_to(slot), [slot.name])
        return True

    def _dispatch_again(self, finding: Finding) -> None:
        """Correct SYSFLAG of a record that no broker dispatches, though a unit at its queue offset points to it."""
        facts = finding.facts
        number, own, start, code = (
            facts.get(name) for name in ("queue_offset", "message_queue_offset", "commitlog_offset", "tags_code")
        )
        topic, queue_id = facts.get("topic"), facts.get("queue_id")
        if not (isinstance(number, int) and number == own and isinstance(start, int)):
            return
        log = self.evidence.logs.at(start)
        if log is None or not (isinstance(topic, str) and isinstance(queue_id, int) and isinstance(code, int)):
            return
        if self._renumber(log, QueueSlot(topic, queue_id, number, code), start) and start in self.fixes:
            self.fixes[start].proofs.add(FLAG_PROOF)

    def _units_of_misfiled(self) -> dict[int, QueueSlot]:
        out: dict[int, QueueSlot] = {}
        for topic, queue_id, number in sorted(self.evidence.logs.misfiled.units):
            unit = self.evidence.any_unit(topic, queue_id, number)
            if unit is not None:
                out[unit["commitlog_offset"]] = QueueSlot(topic, queue_id, number, unit["tags_code"])
        return out

    def _slot(self, suspect: _Suspect, message: Message) -> QueueSlot | None:
        """Return the slot that a record truly has; None if its header is right, or if nothing proves another one."""
        expected = suspect.fact(_OFFSET, "expected")
        if isinstance(expected, int):
            slot = self._open_slot((message.topic_text, message.queue_id), expected, suspect.start)
            if slot is not None:
                return slot
        if expected is None and _OFFSET in suspect.codes:
            return self._end_of_sister(suspect, message)
        if not is_sound_topic(message.topic):
            return self._near_topic(suspect, message)
        return None

    def _end_of_sister(self, suspect: _Suspect, message: Message) -> QueueSlot | None:
        """Return the slot after the last record of the only sister queue that a record continues, in the same file."""
        size, number, at = suspect.log.queue.file_size, message.queue_offset, suspect.start
        found = [
            (topic, queue_id)
            for (topic, queue_id), part in self.evidence.logs.queues.items()
            if topic == message.topic_text and part.next == number
            if part.last_at < at and part.last_at // size == at // size
        ]
        return self._open_slot(found[0], number, at) if len(found) == 1 else None

    def _open_slot(self, queue: QueueName, number: int, at: int) -> QueueSlot | None:
        """Return a slot of a queue with the tags code of its unit; None if that points to another record than `at`."""
        unit = self.evidence.unit(*queue, number)
        if unit is not None and unit["commitlog_offset"] != at:
            return None
        return QueueSlot(*queue, number, unit["tags_code"] if unit is not None else None)

    def _near_topic(self, suspect: _Suspect, message: Message) -> QueueSlot | None:
        """Return the slot in the only topic that differs in one character and lacks the record's queue offset."""
        found = []
        for (topic, queue_id), part in self.evidence.logs.queues.items():
            name = topic.encode()
            if queue_id != message.queue_id or len(name) != len(message.topic):
                continue
            changed = sum(a != b for a, b in zip(name, message.topic, strict=True))
            if changed == 1 and fits_queue(part, message.queue_offset, suspect.start):
                found.append(QueueSlot(topic, queue_id, message.queue_offset))
        return found[0] if len(found) == 1 else None

    def _fix_place_and_text(self, suspect: _Suspect, misfiled: QueueSlot | None) -> None:
        """Correct the place that a record names in its queue, and its property text."""
        now = self._now(suspect.log, suspect.start)
        if now is None:
            return
        (raw, message), start = now, suspect.start
        reasons, unproved, queues, proofs = list[str](), "", set[QueueName](), set[ProofKind]()
        placed = start in self._placed
        slot = None if placed else misfiled or self._slot(suspect, message)
        if slot is None and not placed and (suspect.codes & _PLACE or not is_sound_topic(message.topic)):
            self._leave(suspect, message)
            return
        new = raw if slot is None else self._moved(raw, message, slot, start)
        if new is None:
            return
        if slot is not None and new != raw:
            reasons.append(_belongs_to(slot))
            queues |= {(message.topic_text, message.queue_id), slot.name}
        after, _ = parse_message(new)
        assert after is not None
        if not properties.property_faults(after.properties) and usable(after, new):
            new = with_tags(new, slot.tags_code) if slot is not None else new
        else:
            code = self._tags_code(after, start)
            mended = mend_text(new, QueueSlot(*key_of(after), code), self.evidence.tags)
            if mended is None or not usable(after, mended.record):
                fix = self._change(suspect.log, start, raw, Text("unrecoverable properties"))
                fix.new, fix.reasons = None, [Text("unrecoverable properties")]
                fix.slot = slot or QueueSlot(after.topic_text, after.queue_id, after.queue_offset, code)
                return
            new, unproved = mended.record, mended.unproved
            restored = Text("its property text restored")
            replaced = Text("damaged characters of its property text replaced")
            reasons.append(unproved if unproved == UNPROVED else replaced if unproved else restored)
            queues.add((after.topic_text, after.queue_id))
            proofs |= {TAGS_PROOF} if code is not None and not unproved else set()
        if new != raw:
            fix = self._change(suspect.log, start, new, joined(reasons), queues)
            fix.unproved = unproved
            if misfiled is not None and slot is misfiled:
                proofs.add(QUEUE_PROOF)
            fix.proofs |= {OFFSET_PROOF} if suspect.codes == {_OFFSET} else proofs

    def _moved(self, raw: bytes, message: Message, slot: QueueSlot, start: int) -> bytes | None:
        """Return a record with the place that it truly has; None, and a refusal, if a flipped bit cannot explain it."""
        self._placed.add(start)
        new = set_fields(raw, slot)
        if new is None:
            words = Text(
                "the record at {start:,} has topic {topic_text!r}, its unit {topic!r}: one flipped bit "
                "cannot explain this"
            )
            self.refusals.append(words.format(start=start, topic_text=message.topic_text, topic=slot.topic))
        return new

    def _tags_code(self, message: Message, at: int) -> int | None:
        """Return the tags code of the record's own unit; None if there is none."""
        if message.topic_text == properties.SCHEDULE_TOPIC:
            return None
        unit = self.evidence.unit(message.topic_text, message.queue_id, message.queue_offset)
        if unit is None or unit["commitlog_offset"] != at or consumequeue.is_ext_address(unit["tags_code"]):
            return None
        return unit["tags_code"]

    def _leave(self, suspect: _Suspect, message: Message) -> None:
        """Report a record whose queue and queue offset nothing proves."""
        left = suspect.codes - {_FLAG, _HOST}
        self.left.update((suspect.start - suspect.log.body_offset, code) for code in left)
        self.refusals.append(
            Text(
                "{codes} at {start:,}: nothing proves which queue and offset the message has "
                "({topic_text!r}/{queue_id} {queue_offset}); it is left unchanged",
                codes="/".join(sorted(left)),
                start=suspect.start,
                topic_text=message.topic_text,
                queue_id=message.queue_id,
                queue_offset=message.queue_offset,
            )
        )

    # --- other fields ---------------------------------------------------------------------------------------------

    def _fix_flag(self, suspect: _Suspect) -> None:
        """Correct the compression bits of SYSFLAG if the body proves them, and no record CRC confirms the old ones.

        A queue offset proves that the message is of a queue, whatever its transaction bits say.
        """
        now = self._now(suspect.log, suspect.start)
        if now is None:
            return
        raw, message = now
        says = {f.facts.get("says") for f in suspect.findings if f.code == _FLAG}
        if says & {PREPARED, ROLLED_BACK}:
            new = set_fields(raw, sys_flag=dispatched_flag(message))
            if new is not None:
                name = message.topic_text, message.queue_id
                self._filled.add((*name, message.queue_offset))
                reason = Text("transaction bits of SYSFLAG corrected: the message has a place in its queue")
                self._change(suspect.log, suspect.start, new, reason, [name]).proofs.add(FLAG_PROOF)
                raw, message = new, replace(message, sys_flag=dispatched_flag(message))
            if says <= {PREPARED, ROLLED_BACK}:
                return
        proved = None if message.carries_crc else proved_sys_flag(message.sys_flag, message.body)
        if proved is None:
            self.left.add((suspect.start - suspect.log.body_offset, _FLAG))
            self.refusals.append(
                Text(
                    "SYSFLAG 0x{sys_flag:X} at {start:,} ({topic_text}/{queue_id} {queue_offset}) means "
                    "{compression}, which its body is not; nothing proves another value, so it is left unchanged",
                    sys_flag=message.sys_flag,
                    start=suspect.start,
                    topic_text=message.topic_text,
                    queue_id=message.queue_id,
                    queue_offset=message.queue_offset,
                    compression=compression_words(message.sys_flag),
                )
            )
            return
        new = set_fields(raw, sys_flag=proved)
        if new is not None:
            reason = Text(
                "SYSFLAG corrected to match its body, which is {compression}", compression=compression_words(proved)
            )
            self._change(suspect.log, suspect.start, new, reason)

    def _fix_host(self, suspect: _Suspect) -> None:
        """Clear the bits of invalid ports that are 0 in every valid one, and update the record CRC."""
        now = self._now(suspect.log, suspect.start)
        if now is not None:
            new = sound_ports(now[0])
            new = set_record_crc(new) if now[1].carries_crc else new
            self._change(suspect.log, suspect.start, new, Text("upper bytes of its hosts' ports cleared"))

    def _fix_tags(self, finding: Finding) -> None:
        """Correct TAGS whose tags code differs from the unit's if one flipped bit in the TAGS explains it.

        If one flipped bit in the unit explains the difference as well, the unit is assumed to be wrong.
        """
        queue = split_queue_label(finding.queue)
        start, code, expected = (finding.facts.get(name) for name in ("commitlog_offset", "tags_code", "expected"))
        if not (isinstance(start, int) and isinstance(code, int) and isinstance(expected, int)):
            return
        if queue[0] == properties.SCHEDULE_TOPIC or consumequeue.one_bit_apart(code, expected):
            return
        log = self.evidence.logs.at(start)
        now = self._now(log, start) if not self.evidence.logs.damaged(start) else None
        new = proved_tags(*now, code) if now is not None else None
        if new is not None:
            fix = self._change(log, start, new, Text("its unit's tags code proves its TAGS"), [queue])
            fix.proofs.add(TAGS_PROOF)

    # --- the original records, if the log stays as it is --------------------------------------------------------------

    def view(self, log: LogResult, end: int, draft: PlanBuilder) -> RepairedLog:
        """Return the view of a log after the steps of a draft, with the original records."""
        proved = ((at, fix.new) for at, fix in self.fixes.items() if fix.log is log and fix.proofs)
        originals = {at: new for at, new in proved if new is not None}
        return RepairedLog.of(log, end, draft, originals, frozenset(self._in_order))

    def note(self, draft: PlanBuilder, views: Sequence[RepairedLog]) -> None:
        """Note which messages of the views stay damaged."""
        places = sorted(at for view in views for at in view.originals)
        strongest = {at: next(kind for kind in _KINDS if kind in self.fixes[at].proofs) for at in places}
        for kind in _KINDS:
            found = [at for at in places if strongest[at] is kind]
            if found:
                draft.facts[kind.fact] = found
                places_text = first_few([f"{at:,}" for at in found])
                draft.notes.append(
                    Text(
                        "the messages at {places_text} have damaged {damaged} (proved by {witness}): unit and log "
                        "are left unchanged",
                        places_text=places_text,
                        damaged=kind.damaged,
                        witness=kind.witness,
                    )
                )


def usable(message: Message, record: bytes) -> bool:
    """Return whether a record still has the properties that the services of its system topic require."""
    found, _ = parse_message(record)
    return found is not None and not services.missing_in_text(message.topic_text, found.properties)


def open_codes(draft: PlanBuilder) -> frozenset[str]:
    """Return the problems that verify still finds because such messages stay damaged."""
    return frozenset(code for kind in _KINDS if kind.fact in draft.facts for code in kind.codes)


def _belongs_to(slot: QueueSlot) -> Text:
    return Text(
        "it belongs to {topic}/{queue_id} at {queue_offset}",
        topic=slot.topic,
        queue_id=slot.queue_id,
        queue_offset=slot.queue_offset,
    )
