"""Records that frame and fit their body CRC while a field that the CRC does not cover is wrong.

Queue, queue id and queue offset follow from the one unit that points to the record, or from its neighbours in the
queue. Damaged properties are put right where that can be proved; else they are made readable and the message stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.log.log_pass import is_sound_topic
from rmqstore.checks.log.queue_parts import UNIT
from rmqstore.checks.problems import codes as problem_codes
from rmqstore.checks.problems.report import Fact, Finding
from rmqstore.checks.verify import Verified
from rmqstore.files.records import message_at
from rmqstore.files.store import Store
from rmqstore.formats import consumequeue, properties
from rmqstore.formats.bodies import compression_words, proved_sys_flag
from rmqstore.formats.message import (
    Message,
    parse_message,
    set_record_crc,
)
from rmqstore.repair.salvage.candidates.batch_records import proved_batches
from rmqstore.repair.salvage.candidates.fields import set_fields, sound_ports
from rmqstore.repair.salvage.candidates.sysflag import dispatched_flag
from rmqstore.repair.salvage.candidates.tags import ProvedTags, mended_text, proved_records, proved_tags, with_tags
from rmqstore.repair.salvage.evidence.filler_records import QueueSlot
from rmqstore.repair.salvage.evidence.lost_messages import fits_queue
from rmqstore.repair.salvage.evidence.order import proved_by_units
from rmqstore.repair.salvage.evidence.spans import Neighbours, carries_crc

_NEEDED: Mapping[str, tuple[str, ...]] = {
    properties.SCHEDULE_TOPIC: (properties.REAL_TOPIC, properties.REAL_QUEUE_ID, properties.DELAY),
    properties.TIMER_TOPIC: (properties.REAL_TOPIC, properties.REAL_QUEUE_ID, properties.TIMER_OUT_MS),
    properties.HALF_TOPIC: (properties.REAL_TOPIC, properties.REAL_QUEUE_ID),
    properties.OP_HALF_TOPIC: (properties.TAGS,),
}
_TEXT = {problem_codes.CL_PROPERTIES, problem_codes.CL_TOPIC, problem_codes.CL_HEADER, problem_codes.CL_QUEUE_OFFSET}
_GAP = problem_codes.CL_QUEUE_OFFSET_GAP
_OFFSET = problem_codes.CL_QUEUE_OFFSET
_FLAG = problem_codes.CL_SYSFLAG
_HOST = problem_codes.CL_HOST
_PLACE = {problem_codes.CL_HEADER, problem_codes.CL_QUEUE_OFFSET, problem_codes.CL_TOPIC}
_MENDED = "mended in place: "
_MOST_OF_A_GAP = 10_000
_LISTED = 8


@dataclass(frozen=True, slots=True)
class HeaderFix:
    """One record: `old` bytes at global offset `start`, `new` ones, None for a filler that keeps `seat`.

    `queues` must be brought to the change; `unproved` says what of the record cannot be told.
    """

    log: LogResult
    start: int
    old: bytes
    new: bytes | None
    seat: QueueSlot | None
    why: str
    queues: frozenset[tuple[str, int]] = frozenset()
    unproved: str = ""


@dataclass(slots=True)
class _Record:
    log: LogResult
    start: int
    findings: list[Finding] = field(default_factory=list)

    @property
    def codes(self) -> set[str]:
        return {f.code for f in self.findings}

    def fact(self, code: str, name: str) -> Fact | None:
        return next((f.facts.get(name) for f in self.findings if f.code == code), None)


class HeaderFixes:
    """All of them, and what could not be done."""

    def __init__(self, store: Store, verified: Verified, neighbours: Neighbours) -> None:
        self.store = store
        self.logs = verified.logs
        self.neighbours = neighbours
        self._fixes: dict[int, HeaderFix] = {}
        self.refusals: list[str] = []
        self.gaps: list[str] = []  # queue offsets that nothing holds
        self.torn: set[tuple[str, int]] = set()  # queues with zeros there: for a broker they end at the gap
        self.left: set[tuple[int, str]] = set()  # (place of a finding, problem) that stays
        self._placed: set[int] = set()  # records whose place in a queue is proved
        self._misfiled = self._units_of_misfiled()
        self._by_units()
        self.of_offsets = self.fixes  # records of which only the queue offset is wrong
        for record in self._records(verified.report.findings.listed):
            if _GAP in record.codes:
                self._fix_gap(record)
            if _FLAG in record.codes:
                self._fix_flag(record)
            if record.codes - {_GAP, _FLAG, _HOST}:
                self._fix(record)
                if record.codes == {_OFFSET} and record.start in self._fixes:
                    self.of_offsets.append(self._fixes[record.start])
            if _HOST in record.codes:
                self._fix_host(record)
        for proved in proved_records(verified):
            self._fix_tags(proved)
        for batch in proved_batches(store, verified):
            if batch.start not in self._fixes:
                why = f"{_MENDED}its unit proves its {batch.what}"
                self._add(HeaderFix(batch.log, batch.start, batch.old, batch.new, None, why, batch.queues))
        found, codes = verified.report.findings, _TEXT | {_FLAG, _HOST}
        unlisted = sum(found.counts.get(c, 0) for c in codes) - sum(f.code in codes for f in found.listed)
        if unlisted > 0:
            self.refusals.append(
                f"{unlisted:,} more records with a damaged header or text: run recover again after this"
            )

    @property
    def fixes(self) -> list[HeaderFix]:
        """One for each record, whatever is mended in it."""
        return list(self._fixes.values())

    def _now(self, log: LogResult, start: int) -> tuple[bytes, Message] | None:
        """A record with all earlier repairs; None where it becomes a filler, or is not a record."""
        fix = self._fixes.get(start)
        if fix is not None:
            message = parse_message(fix.new)[0] if fix.new is not None else None
            return (fix.new, message) if fix.new is not None and message is not None else None
        message = message_at(log.queue, start)
        return (log.queue.pread(message.size, start), message) if message is not None else None

    def _add(self, fix: HeaderFix) -> None:
        """Take a fix; `old` of a second one for its record is what the first one made."""
        first = self._fixes.get(fix.start)
        if first is not None:
            fix = replace(
                fix,
                old=first.old,
                why=f"{first.why}, {fix.why.removeprefix(_MENDED)}" if fix.new is not None else fix.why,
                queues=first.queues | fix.queues,
                unproved=", ".join(filter(None, (first.unproved, fix.unproved))),
            )
        self._fixes[fix.start] = fix

    def _records(self, listed: Iterable[Finding]) -> list[_Record]:
        out: dict[int, _Record] = {}
        by_name = {("dledger" if log.lead else "commitlog"): log for log in self.logs.results}
        for finding in listed:
            body = (
                finding.code == problem_codes.DL_BODY and "fault" not in finding.facts and "cause" not in finding.facts
            )
            log = by_name.get(finding.queue)
            if log is None or not (finding.code in _TEXT or finding.code in (_GAP, _FLAG, _HOST) or body):
                continue
            if self.logs.damaged(finding.offset):
                continue
            start = finding.offset + log.lead
            out.setdefault(start, _Record(log, start)).findings.append(finding)
        return [out[start] for start in sorted(out)]

    def _units_of_misfiled(self) -> dict[int, QueueSlot]:
        out: dict[int, QueueSlot] = {}
        for topic, queue_id, index in sorted(self.logs.misfiled.units):
            raw = self.store.consume_queue(topic, queue_id).queue.pread(UNIT, index * UNIT)
            if len(raw) == UNIT:
                unit = consumequeue.UNIT.parse(raw)
                seat = QueueSlot(topic, queue_id, index, int(unit["tags_code"]))
                out[int(unit["commitlog_offset"])] = seat
        return out

    def _fix(self, record: _Record) -> None:
        now = self._now(record.log, record.start)
        if now is None:
            return
        raw, message = now
        new, why, unproved = raw, [], ""
        queues: set[tuple[str, int]] = set()
        placed = record.start in self._placed
        seat = None if placed else self._seat(record, message)
        if seat is not None:
            self._placed.add(record.start)
            changed = set_fields(raw, seat)
            if changed is None:
                self.refusals.append(
                    f"the record at {record.start:,} says {message.topic_text!r}, its unit {seat.topic!r}: "
                    "too different to be one bit"
                )
                return
            new = changed
            if new != raw:
                why.append(f"it belongs to {seat.topic}/{seat.queue_id} at {seat.queue_offset}")
                queues |= {(message.topic_text, message.queue_id), (seat.topic, seat.queue_id)}
        elif not placed and (record.codes & _PLACE or not is_sound_topic(message.topic)):
            self._unknown(record, message)
            return
        after, _ = parse_message(new)
        assert after is not None
        if properties.property_faults(after.properties):
            code = self._tags_code(after, record.start)
            mended = mended_text(new, code)
            place = seat or QueueSlot(after.topic_text, after.queue_id, after.queue_offset, code)
            if mended is None or not self._usable(after, mended.record):
                why_not = "unrecoverable properties"
                self._add(HeaderFix(record.log, record.start, raw, None, place, why_not))
                return
            new, unproved = mended.record, mended.unproved
            why.append("its property text is sound again")
            queues.add((after.topic_text, after.queue_id))
        elif seat is not None:
            new = with_tags(new, seat.tags_code)
        if new != raw:
            text = _MENDED + ", ".join(why)
            self._add(HeaderFix(record.log, record.start, raw, new, None, text, frozenset(queues), unproved))

    def _by_units(self) -> None:
        """Neighbouring records with wrong queue offsets, between units whose messages bear them out."""
        for (topic, queue_id), part in sorted(self.logs.queues.items()):
            if not (part.repeats or part.outliers or part.restarts):
                continue
            mended: set[int] = set()
            for start, stop in proved_by_units(part, partial(self._unit, topic, queue_id)):
                for index in range(start, stop):
                    unit = self._unit(topic, queue_id, index)
                    log = next((r for r in self.logs.results if unit and r.queue.find(unit[0])), None)
                    seat = QueueSlot(topic, queue_id, index, unit[1] if unit else None)
                    if unit is not None and log is not None and self._renumber(log, seat, unit[0]):
                        mended.add(unit[0])
            if mended & set(part.restarts):  # the queue did not begin again there: it is rebuilt as one
                part.restarts[:] = [at for at in part.restarts if at not in mended]

    def _fix_flag(self, record: _Record) -> None:
        """SYSFLAG's compression bits, where the body proves them and no checksum says that a broker wrote them so."""
        now = self._now(record.log, record.start)
        if now is None:
            return
        raw, message = now
        proved = None if carries_crc(message) else proved_sys_flag(message.sys_flag, message.body)
        if proved is None:
            self.left.add((record.start - record.log.lead, _FLAG))
            self.refusals.append(
                f"SYSFLAG 0x{message.sys_flag:X} at {record.start:,} ({message.topic_text}/{message.queue_id} "
                f"{message.queue_offset}) says {compression_words(message.sys_flag)}, which its body is not; nothing "
                "proves another, it stays as it is"
            )
            return
        new = set_fields(raw, sys_flag=proved)
        if new is not None:
            why = f"{_MENDED}its body is {compression_words(proved)}, as SYSFLAG says now"
            self._add(HeaderFix(record.log, record.start, raw, new, None, why))

    def _fix_host(self, record: _Record) -> None:
        """Invalid ports: bits that are 0 in every valid port are cleared."""
        now = self._now(record.log, record.start)
        if now is not None:
            raw, message = now
            why = f"{_MENDED}the upper bytes of its hosts' ports are cleared"
            self._add(HeaderFix(record.log, record.start, raw, _with_sound_ports(raw, message), None, why))

    def _fix_tags(self, proved: ProvedTags) -> None:
        """A unit with another tags code than its message: where one bit of that explains it, the unit is right."""
        now = self._now(proved.log, proved.start)
        if now is None or self.logs.damaged(proved.start):
            return
        new = proved_tags(*now, proved.code)
        if new is not None:
            why = f"{_MENDED}its unit's tags code proves its TAGS"
            self._add(HeaderFix(proved.log, proved.start, now[0], new, None, why, frozenset({proved.queue})))

    def _fix_gap(self, record: _Record) -> None:
        """Queue offsets that no record says, while their units point to records of this queue that say another."""
        topic, queue_id, expected, got = (record.fact(_GAP, n) for n in ("topic", "queue_id", "expected", "got"))
        if not (isinstance(topic, str) and isinstance(queue_id, int)):
            return
        if not (isinstance(expected, int) and isinstance(got, int)):
            return
        left: list[int] = []
        for index in range(expected, min(got, expected + _MOST_OF_A_GAP)):
            unit = self._unit(topic, queue_id, index)
            if unit is None or not self._renumber(record.log, QueueSlot(topic, queue_id, index, unit[1]), unit[0]):
                left.append(index)
                if unit is None and self._is_zero(topic, queue_id, index):
                    self.torn.add((topic, queue_id))
                if len(left) > _LISTED:
                    break
        if left:
            self.gaps.append(
                f"{topic}/{queue_id} has no message at queue offset {', '.join(map(str, left[:_LISTED]))}, and no "
                "damaged span can hold it: rebuilt from the log alone, the queue would be shifted"
            )

    def _renumber(self, log: LogResult, seat: QueueSlot, offset: int) -> bool:
        """Give a record the queue offset that its unit has; a dispatched one is neither prepared nor rollback."""
        if self.logs.damaged(offset):
            return True  # the damage there is covered by a filler
        now = self._now(log, offset)
        if now is None:
            return offset in self._fixes  # it becomes a filler
        raw, message = now
        if message.physical_offset != offset:
            return False
        if (message.topic_text, message.queue_id) != (seat.topic, seat.queue_id):
            return False
        new = set_fields(raw, seat, sys_flag=dispatched_flag(message))
        new = with_tags(new, seat.tags_code) if new is not None else None
        if new is None or new == raw or offset in self._placed:
            return new is not None
        self._placed.add(offset)
        why = f"{_MENDED}it belongs to {seat.topic}/{seat.queue_id} at {seat.queue_offset}"
        queues = frozenset({(seat.topic, seat.queue_id)})
        self._add(HeaderFix(log, offset, raw, new, None, why, queues))
        return True

    def _usable(self, message: Message, record: bytes) -> bool:
        """Whether a broker's own topic still finds in a record what it cannot do without."""
        found, _ = parse_message(record)
        if found is None:
            return False
        have = properties.parse_properties(found.properties)
        needed = _NEEDED.get(message.topic_text, ())
        numbers = (properties.REAL_QUEUE_ID, properties.DELAY, properties.TIMER_OUT_MS)
        return all(name in have and (name not in numbers or have[name].isdigit()) for name in needed)

    def _seat(self, record: _Record, message: Message) -> QueueSlot | None:
        """The place that a record truly has; None where its own header is believed or nothing proves another."""
        misfiled = self._misfiled.get(record.start)
        if misfiled is not None:
            return misfiled
        if problem_codes.CL_QUEUE_OFFSET in record.codes:
            expected = record.fact(problem_codes.CL_QUEUE_OFFSET, "expected")
            if isinstance(expected, int) and expected >= 0:
                unit = self._unit(message.topic_text, message.queue_id, expected)
                if unit is None or unit[0] == record.start:
                    code = unit[1] if unit is not None else None
                    return QueueSlot(message.topic_text, message.queue_id, expected, code)
        if not is_sound_topic(message.topic):
            return self._near_topic(record, message)
        return None

    def _near_topic(self, record: _Record, message: Message) -> QueueSlot | None:
        """The only known topic that is one bit away and has the record's queue offset free."""
        found = []
        for (topic, queue_id), part in self.logs.queues.items():
            name = topic.encode()
            if queue_id != message.queue_id or len(name) != len(message.topic):
                continue
            bits = sum((a ^ b).bit_count() for a, b in zip(name, message.topic, strict=True))
            if bits == 1 and fits_queue(part, message.queue_offset, record.start):
                found.append(QueueSlot(topic, queue_id, message.queue_offset))
        return found[0] if len(found) == 1 else None

    def _unit(self, topic: str, queue_id: int, index: int) -> tuple[int, int] | None:
        """(offset, tags code) of a unit that is one."""
        if not consumequeue.is_directory_name(topic.encode("utf-8", "surrogatepass")):
            return None
        raw = self.store.consume_queue(topic, queue_id).queue.pread(UNIT, index * UNIT)
        if len(raw) < UNIT:
            return None
        unit = consumequeue.UNIT.parse(raw)
        size = int(unit["size"])
        if size <= 0 or size == consumequeue.PRE_BLANK_SIZE:
            return None
        return int(unit["commitlog_offset"]), int(unit["tags_code"])

    def _is_zero(self, topic: str, queue_id: int, index: int) -> bool:
        if not consumequeue.is_directory_name(topic.encode("utf-8", "surrogatepass")):
            return False
        return self.store.consume_queue(topic, queue_id).queue.pread(UNIT, index * UNIT) == bytes(UNIT)

    def _tags_code(self, message: Message, at: int) -> int | None:
        """What the record's own unit says of its tags."""
        if message.topic_text == properties.SCHEDULE_TOPIC:
            return None
        unit = self._unit(message.topic_text, message.queue_id, message.queue_offset)
        if unit is None or unit[0] != at or unit[1] <= consumequeue.EXT_MAX_ADDRESS:
            return None
        return unit[1]

    def _unknown(self, record: _Record, message: Message) -> None:
        """No unit and no neighbour says where a record belongs."""
        what = "/".join(sorted(record.codes - {_FLAG, _HOST}))
        self.left.update((record.start - record.log.lead, code) for code in record.codes - {_FLAG, _HOST})
        self.refusals.append(
            f"{what} at {record.start:,}: nothing proves which queue and offset the message has "
            f"({message.topic_text!r}/{message.queue_id} {message.queue_offset}); it is left unchanged"
        )


def _with_sound_ports(raw: bytes, message: Message) -> bytes:
    """A record without the bits that no port has; its record CRC, which fitted them, fits again."""
    new = sound_ports(raw)
    return set_record_crc(new) if carries_crc(message) else new
