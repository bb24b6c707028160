"""Room for lost messages that no witness lists: damaged bytes, or the end of the log, beside queues without units.

A broker writes a unit for each message. So damage hides a message only from a queue whose units are missing, too: one
that ends before the damage, or one of which nothing is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from rmqstore.checks.beside.checkpoint import LAST_TIME, read_checkpoint
from rmqstore.checks.log.commitlog import LogResult, is_framed
from rmqstore.checks.log.logs import Logs
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import Area
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.files.config import queue_numbers
from rmqstore.files.store import StoreKind
from rmqstore.formats import properties
from rmqstore.formats.checkpoint import parse_checkpoint
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.message import HEAD, MAGIC_V1, MAGIC_V2, MIN_SIZE
from rmqstore.scan.tiling import Kind
from rmqstore.texts import Text, many

if TYPE_CHECKING:
    from rmqstore.checks.verified import Verified
    from rmqstore.files.store import Store

_UNITS_GONE = (
    codes.CQ_MISSING_UNIT,
    codes.CQ_MISSING_QUEUE,
    codes.CQ_MISSING_FILE,
    codes.CQ_PARTLY_REBUILT,
    codes.CQ_ROCKSDB,
    codes.BCQ_MISSING_UNIT,
)
"""Problems with which messages may have been lost that no unit lists any more."""


class UnknownSpan(NamedTuple):
    """Bytes [start, stop) of one file, or of missing ones, that are no record; `of_file`: False for missing files.

    `at_end`: all of it may have been the BLANK of its file.
    """

    start: int
    stop: int
    of_file: bool
    at_end: bool


@dataclass(frozen=True, slots=True)
class Room:
    """Why more messages may be lost than witnesses list, "" if they cannot; and how many are lost in any case."""

    why: str = ""
    least: int = 0


def units_gone(verified: Verified) -> bool:
    """Return whether queues lack units that would list lost messages."""
    counts = verified.report.findings.counts
    gone = any(counts.get(code) for code in _UNITS_GONE) or verified.damaged_rows
    return gone or bool(verified.logs.witnesses.cut)


def unknown_spans(results: Sequence[LogResult]) -> list[UnknownSpan]:
    """Return the damage before the last good record that does not consist of framed records, which have a header."""
    out: list[UnknownSpan] = []
    ends = (*(r.tiling.start for r in results[1:]), results[-1].wrote if results else 0)
    for result, end in zip(results, ends, strict=True):
        size = result.queue.file_size
        for run in result.tiling:
            if run.start >= end:
                break
            if run.kind not in (Kind.DIRTY, Kind.ZERO, Kind.HOLE) or is_framed(run):
                continue
            stop = min(run.stop, end)
            of_file = run.kind is not Kind.HOLE or result.queue.find(run.start) is not None
            if out and out[-1].stop == run.start and run.start % size and out[-1].of_file:
                out[-1] = out[-1]._replace(stop=stop, at_end=stop % size == 0)
            else:
                out.append(UnknownSpan(run.start, stop, of_file, stop % size == 0))
    out += [
        UnknownSpan(a.tiling.stop, b.tiling.start, False, False)
        for a, b in pairwise(results)
        if a.tiling.stop < b.tiling.start
    ]
    return sorted(out)


def open_queues(logs: Logs, before: int) -> Iterator[QueueName]:
    """Yield the queues of unknown end: no unit after that of their last message, which is before a log offset.

    Also those whose files have lost their last units.
    """
    homes, listed, cut = logs.pointing.homes, logs.witnesses.listed, logs.witnesses.cut
    for name, part in logs.queues.items():
        ends = part.messages and (part.units_end < part.next or name in cut) and part.last_at < before
        if ends and not properties.is_lmq(name[0]) and name not in homes:
            yield from [name] * (name in cut or all(stop <= part.next for _, stop in listed.get(name, ())))
    yield from (name for name in cut - logs.queues.keys() if not properties.is_lmq(name[0]))


def hidden_queues(store: Store, logs: Logs) -> bool:
    """Return whether queues may be missing of which the log has no message any more.

    All consume queues are missing, or all of a topic that has more of them than the log shows.
    """
    found = {topic for topic, _ in store.names_in_files()}
    if not found:
        return True
    numbers = queue_numbers(store.files, store.root)
    known = Counter(topic for topic, _ in logs.queues if topic not in found and not properties.is_lmq(topic))
    return any(numbers is None or count < numbers.get(topic, 0) for topic, count in known.items())


def room(store: Store, verified: Verified, floating: int, indexed: int, after_end: int) -> Room:
    """Return the room for more lost messages. It reads the store only where units are missing beside damage.

    Of lost messages without a unit, `floating` have a place in their queue, and `indexed` others one in the log.
    `after_end`: the number of lost messages after the end of the log.
    """
    if verified.logs.grows or not verified.results:
        return Room()
    least, why = _in_damage(store, verified, floating, indexed)
    return Room(why or _after_the_end(store, verified, after_end), least)


# --- within the log ---------------------------------------------------------------------------------------------------


def _in_damage(store: Store, verified: Verified, floating: int, indexed: int) -> tuple[int, str]:
    """Return how many messages are lost in damage at least that nothing shows, and why there may be more."""
    logs, spans = verified.logs, unknown_spans(verified.results)
    if logs.foreign_from is not None:
        return 0, Text("a file of another log replaced messages of which only units tell")
    if verified.logs.witnesses.begin < logs.min_offset:
        return 0, Text("files of the log are missing after an empty one")
    if not spans:
        return 0, ""
    hidden = _hides_from(store, verified)
    hides = [span for span in spans if hidden is not None and span.stop >= hidden]
    is_open = next(open_queues(logs, spans[-1].start), None) is not None
    if not (hides or is_open or indexed):
        return 0, ""
    taken = _named_bytes(logs, spans)
    roomy = [
        span
        for span in (hides if hides and not is_open else spans)
        if span.stop - span.start - taken[span.start] > MIN_SIZE
    ]
    holes = [span for span in roomy if not span.of_file]
    size = sum(span.stop - span.start - taken[span.start] for span in roomy)
    wide = any(span.stop - span.start - taken[span.start] >= 2 * MIN_SIZE for span in hides)
    more = is_open and size > MIN_SIZE * (floating + indexed) and not _index_is_whole(verified)
    if not (wide or holes or indexed or more or len(roomy) > floating):
        return 0, ""
    starts = {start for start, _ in logs.witnesses.outside.parts}
    without = (span for span in roomy if span.start in starts and not taken[span.start])
    certain = sum(span.of_file and not span.at_end for span in without)
    why = Text("{bytes} may have contained messages that no consume queue lists", bytes=many(size, "damaged byte"))
    return max(0, certain - floating - indexed), why


def _index_is_whole(verified: Verified) -> bool:
    """Return whether the index has no fault: it lists all messages with keys, and clients give each message one."""
    found = (code for code in +verified.report.findings.counts if code != codes.IX_DANGLING_ENTRY)
    return verified.index is not None and not any(PROBLEMS[code].area is Area.INDEX for code in found)


def _named_bytes(logs: Logs, spans: Sequence[UnknownSpan]) -> Mapping[int, int]:
    """Return how many bytes of each span the messages of units take, by its start.

    Spans that follow each other are one part of what is outside of the records: the first ones are filled first.
    """
    out: Counter[int] = Counter()
    parts = logs.witnesses.outside.parts
    n, left = -1, 0
    for span in spans:
        while n + 1 < len(parts) and parts[n + 1][0] <= span.start:
            n += 1
            left = logs.witnesses.bytes_in[parts[n][0]]
        out[span.start] = min(left, span.stop - span.start)
        left -= out[span.start]
    return out


def _hides_from(store: Store, verified: Verified) -> int | None:
    """Return the log offset from which on damage may have contained messages of queues without any unit; None: nowhere.

    Also of queues that are behind the log: they can have been behind it from the damage on, if the record after that is
    the first without a unit.
    """
    counts = verified.report.findings.counts
    if counts.get(codes.CQ_PARTLY_REBUILT) or verified.damaged_rows:
        return 0
    if store.kind is StoreKind.ROCKSDB and counts.get(codes.CQ_MISSING_UNIT):
        return 0
    if counts.get(codes.CQ_MISSING_QUEUE) and hidden_queues(store, verified.logs):
        return 0
    parts = verified.logs.queues.values() if counts.get(codes.CQ_BEHIND) else ()
    after = [m.first_at for part in parts for m in part.missing if m.stop >= part.next]
    return min(after) - verified.results[-1].body_offset if after else None


# --- after the end ----------------------------------------------------------------------------------------------------


def _after_the_end(store: Store, verified: Verified, lost: int) -> str:
    """Return why more messages may have been after the end of the log than are `lost` there; "" if none."""
    logs, log = verified.logs, verified.results[-1]
    floor = logs.wrote
    later = logs.witnesses.unnamed_from(floor)
    gone = (units_gone(verified) or later > 0 or _checkpoint_knows_more(verified)) and (
        next(open_queues(logs, floor + 1), None) is not None
    )
    if log.stale_from is not None:
        if gone and later:
            return Text("no consume queue shows whether a broker had removed the last messages of the index before")
        return ""
    unnamed = _unnamed_bytes(log, floor, logs.witnesses.reach)
    if unnamed and (lost or gone or _only_the_checkpoint_knows(store, verified)):
        return Text(
            "{unnamed} after the log's end at {floor:,} may have contained more messages",
            unnamed=many(unnamed, "byte"),
            floor=floor,
        )
    if lost and logs.lag_is_normal:
        return Text("the broker was killed, and its last messages may not have been in a queue yet")
    if gone and (lost or later or _checkpoint_knows_more(verified)):
        return Text(
            "messages were after the log's end at {floor:,}, and the consume queues with their units are missing too",
            floor=floor,
        )
    if unnamed and not lost and (torn := _torn(log)) is not None:
        return Text(
            "a message begins at {torn:,} and was not written completely; its producer may count it as sent", torn=torn
        )
    return ""


def _unnamed_bytes(log: LogResult, floor: int, reach: int) -> int:
    """Count the damaged bytes after the end of the log, and after the last message that a unit lists there."""
    after = max(floor, reach)
    tail = (run for run in log.tiling.tail() if run.kind is Kind.DIRTY and not is_framed(run))
    return sum(max(0, run.stop - max(run.start, after)) for run in tail)


def _checkpoint_knows_more(verified: Verified) -> bool:
    """Return whether the checkpoint has the time of a message after the log's end, and not one in the future."""
    ahead = (f for f in verified.report.findings.listed if f.code == codes.CK_AHEAD)
    return any(not f.facts.get("in_future") for f in ahead)


def _only_the_checkpoint_knows(store: Store, verified: Verified) -> bool:
    """Return whether the log has no message, and the checkpoint has the time of one: it was flushed."""
    if any(log.messages for log in verified.results):
        return False
    return 0 < parse_checkpoint(read_checkpoint(store) or b"").physic_msg_timestamp <= LAST_TIME


def _torn(log: LogResult) -> int | None:
    """Return the offset after the log's end at which the header of an incomplete record says that it belongs there."""
    for run in log.tiling.tail():
        at = run.start + log.body_offset
        head = log.queue.pread(HEAD.size, at) if run.kind is Kind.DIRTY and not run.count else b""
        values = HEAD.unpack(head) if len(head) == HEAD.size else {}
        if values.get("magic") in (MAGIC_V1, MAGIC_V2) and values["physical_offset"] == at:
            return run.start
    return None
