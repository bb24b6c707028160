"""Findings about single records: faults, and header fields that no checksum covers in records without `__CRC32#`.

Hosts: a port has 4 bytes where 2 would do. One flipped bit in the upper two makes `new InetSocketAddress` throw:
MessageDecoder returns null and a pull ends there, so that clients also lose the good messages after it. Damage in the
lower two bytes cannot be detected, and no reader depends on them.

SYSFLAG: a flipped compression bit makes clients fail to decompress the body, or deliver it compressed. Only certain
cases are reported: a body that does not begin like its compression type cannot be decompressed; if only the COMPRESSED
bit is missing, the whole body must decompress by the type that the other bits name. The transaction bits of a prepared
or rolled back message keep it out of its queue. Brokers write queue offset 0 into such a record, so a record with
another queue offset has a flipped bit, and consumers never get it. So has one with queue offset 0 whose queue begins
with 1 in a log that begins at 0 (`queue_findings.check_queue_offsets`).

STORETIMESTAMP: a broker appends records in the order of time, to within seconds. One flipped bit changes the time by
years, so that it contradicts both neighbours and BORNTIMESTAMP. Brokers use it to select the file where recovery
begins, to search queues by time, and to compute when a delayed message is due.

Control characters in property values are counted: they are allowed, but an overwritten page looks the same.

Source: MessageDecoder#decode, MessageDecoder#decodes, CommitLog#isMappedFileMatchedRecover,
ConsumeQueue#getOffsetInQueueByTime (RocketMQ 4.9.7 to 5.4.0), MessageSysFlag, CompressorFactory (5.4.0);
CommitLog.DefaultAppendMessageCallback#doAppend, DLedgerCommitLog#getQueueOffsetByKey (4.9.7 to 5.5.1)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.formats import properties
from rmqstore.formats.bodies import LZ4_MAGIC, TYPE_SHIFT, ZSTD_MAGIC, Compression, compression_words, proved_sys_flag
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.message import (
    COMPRESSED,
    COMPRESSION_TYPE_MASK,
    MAX_PORT,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    Fault,
    body_crc,
    is_dispatched,
    record_crc,
)
from rmqstore.formats.ranges import Ranges
from rmqstore.formats.services import missing_in_text
from rmqstore.scan.columns import Columns
from rmqstore.scan.dispatch import QueueNames
from rmqstore.scan.kernels import I64, Bool
from rmqstore.scan.tiling import Run
from rmqstore.texts import Placed, Text, joined

_COMMITLOG_CODES = {
    Fault.SHORT: codes.CL_MAGIC,
    Fault.MAGIC: codes.CL_MAGIC,
    Fault.SIZE: codes.CL_SIZE,
    Fault.LENGTHS: codes.CL_HALF_MESSAGE,
    Fault.PHYSICAL_OFFSET: codes.CL_PHYSICAL_OFFSET,
    Fault.BODY_CRC: codes.CL_BODY_CRC,
    Fault.RECORD_CRC: codes.CL_RECORD_CRC,
    Fault.TOPIC: codes.CL_TOPIC,
    Fault.PROPERTIES: codes.CL_PROPERTIES,
    Fault.BLANK: codes.CL_FALSE_BLANK,
}
_DLEDGER_CODES = {
    Fault.SHORT: codes.DL_HEADER,
    Fault.ENTRY_MAGIC: codes.DL_HEADER,
    Fault.ENTRY_SIZE: codes.DL_HEADER,
    Fault.ENTRY_POS: codes.DL_HEADER,
    Fault.ENTRY_INDEX: codes.DL_INDEX_ORDER,
    Fault.ENTRY_TERM: codes.DL_INDEX_ORDER,
    Fault.BLANK: codes.DL_FALSE_BLANK,
}


_NAMED_TOPICS = 5


def code_of(cause: Fault, body_offset: int) -> str:
    """Return the problem code of a damaged run in a commitlog (`body_offset` 0) or in DLedger data."""
    if body_offset:
        return _DLEDGER_CODES.get(cause, codes.DL_BODY)
    return _COMMITLOG_CODES.get(cause, codes.CL_MAGIC)


def topics_text(counts: Counter[str]) -> str:
    """Return the topics with the most messages and their counts, for example "Orders 1,200, Logs 3"."""
    most = joined(
        (Placed("{topic} {count:,}", topic=topic, count=count) for topic, count in counts.most_common(_NAMED_TOPICS))
    )
    return most + (", …" if len(counts) > _NAMED_TOPICS else "")


def record_facts(columns: Columns, i: int) -> dict[str, Fact]:
    """Return topic, queue and queue offset of a framed record."""
    return {
        "topic": columns.topic(i).decode("utf-8", "backslashreplace"),
        "queue_id": int(columns.queue_id[i]),
        "queue_offset": int(columns.queue_offset[i]),
    }


_PAGE = 4096  # bytes that an operating system writes at once
_MOST_READ = 1 << 22  # bytes of a damaged run that are searched


def lost_pages(file: MappedFile, start: int, stop: int) -> dict[str, Fact]:
    """Say which pages of damaged bytes [start, stop) are zero, as pages that were never written are; empty without any.

    A page counts as a whole, also if a part of it belongs to neighbours. Only pages that follow each other from the
    first such page on are counted.
    """
    first = (start - file.start) // _PAGE * _PAGE
    data = np.frombuffer(file.read_at(min(stop - file.start - first + _PAGE, _MOST_READ), first), dtype=np.uint8)
    pages = data[: min(len(data), -(-(stop - file.start - first) // _PAGE) * _PAGE) // _PAGE * _PAGE].reshape(-1, _PAGE)
    zero: Bool = np.logical_not(pages.any(axis=1))
    if not zero.any():
        return {}
    at = int(zero.argmax())
    count = int((~zero[at:]).argmax()) if not zero[at:].all() else len(zero) - at
    size, begin = count * _PAGE, file.start + first + at * _PAGE
    one, more = Text("{size:,} from {at:,} on: a lost page"), Text("{size:,} from {at:,} on: lost pages")
    return {"zero_bytes": (one if count == 1 else more).format(size=size, at=begin)}


def damage_finding(run: Run, columns: Columns, file: MappedFile) -> Finding:
    """Return the finding of a framed but damaged record, the only one in `columns`."""
    body_offset = columns.body_offset
    facts = record_facts(columns, 0)
    if run.cause is Fault.BODY_CRC:
        start = int(columns.body_at[0])
        facts["stored"] = int(columns.body_crc[0])
        facts["computed"] = body_crc(columns.buf.data[start : start + int(columns.body_length[0])])
    elif run.cause is Fault.RECORD_CRC:
        facts["stored"], facts["computed"] = record_crc(columns.buf.data, int(columns.at[0]), int(columns.size[0]))
    elif run.cause is Fault.PHYSICAL_OFFSET:
        facts["physical_offset"] = int(columns.physical_offset[0])
        facts["expected"] = int(columns.offset[0])
    if body_offset:
        facts["index"] = int(columns.entry_index[0])
        facts["term"] = int(columns.entry_term[0])
        facts["pos"] = int(columns.entry_pos[0])
        facts["entry_size"] = int(columns.entry_size[0])
        facts["fault"] = run.cause.name.lower()
    facts |= lost_pages(file, run.start, run.stop)
    code = code_of(run.cause, body_offset)
    return Finding(code, _log_name(columns), file.name, run.start, run.stop - run.start, facts)


def record_finding(code: str, columns: Columns, i: int, file: str, facts: dict[str, Fact]) -> Finding:
    """Return a finding about record i, including the DLedger header before it."""
    start, size = int(columns.offset[i]) - columns.body_offset, int(columns.size[i]) + columns.body_offset
    return Finding(code, _log_name(columns), file, start, size, record_facts(columns, i) | facts)


def _log_name(columns: Columns) -> str:
    return "dledger" if columns.body_offset else "commitlog"


def add_service_faults(
    columns: Columns, number: I64, queues: QueueNames, faults: dict[int, list[str]]
) -> dict[int, Ranges]:
    """Add to `faults`, by record, the properties that a service of the broker needs and does not find.

    `number`: each record's queue. Return the queue offsets of these records, by queue.
    """
    if not queues.services:
        return {}
    found: dict[int, list[int]] = {}
    rows = np.flatnonzero(np.isin(number, list(queues.services)))
    start, stop = columns.properties_at[rows], (columns.properties_at + columns.properties_length)[rows]
    for i, a, b in zip(rows.tolist(), start.tolist(), stop.tolist(), strict=True):
        missing = missing_in_text(queues.names[int(number[i])][0], columns.raw, a, b)
        if missing:
            faults.setdefault(i, []).append(Text("no valid {missing}", missing=joined(missing)))
            found.setdefault(int(number[i]), []).append(int(columns.queue_offset[i]))
    return {queue: Ranges.points(numbers) for queue, numbers in found.items()}


PREPARED, ROLLED_BACK = "prepared", Text("rolled back")
"""What the transaction bits say about a message that is in no queue."""
_BITS = COMPRESSED | COMPRESSION_TYPE_MASK


def host_findings(columns: Columns, file: str) -> Iterator[Finding]:
    """Yield a finding for each record of a chunk with an invalid port."""
    if not columns.port_tops.any():
        return
    for i in np.flatnonzero(columns.port_tops).tolist():
        ports = {"born_port": int(columns.born_port[i]), "store_port": int(columns.store_port[i])}
        facts: dict[str, Fact] = {name: port for name, port in ports.items() if port & ~MAX_PORT}
        yield record_finding(codes.CL_HOST, columns, i, file, facts)


def flag_findings(columns: Columns, file: str) -> Iterator[Finding]:
    """Yield a finding for each record of a chunk whose SYSFLAG contradicts its queue offset or its body."""
    for i in np.flatnonzero(~is_dispatched(columns.sys_flag) & (columns.queue_offset > 0)).tolist():
        yield record_finding(codes.CL_SYSFLAG, columns, i, file, transaction_facts(int(columns.sys_flag[i])))
    yield from _compression_findings(columns, file)


def transaction_facts(flag: int) -> dict[str, Fact]:
    """Return what a finding says about a SYSFLAG whose transaction bits keep a message out of its queue."""
    says = PREPARED if flag & TRANSACTION_MASK == TRANSACTION_PREPARED else ROLLED_BACK
    return {"sys_flag": f"0x{flag:X}", "says": says}


def withheld(columns: Columns, number: I64, queues: QueueNames) -> dict[QueueName, int]:
    """Return the first record of each queue with queue offset 0 whose transaction bits keep it out of the queue.

    `number`: each record's queue.
    """
    rows = np.flatnonzero(~is_dispatched(columns.sys_flag) & (columns.queue_offset == 0))
    if not len(rows):
        return {}
    found, first = np.unique(number[rows], return_index=True)
    offsets = columns.offset[rows[first]].tolist()
    return {queues.names[n]: at for n, at in zip(found.tolist(), offsets, strict=True)}


def _compression_findings(columns: Columns, file: str) -> Iterator[Finding]:
    """Yield a finding for each record of a chunk whose compression bits contradict its body."""
    bits = columns.sys_flag & _BITS
    if not bits.any():
        return
    rows = np.flatnonzero((bits != 0) & (columns.body_length > 0))
    bits, at = bits[rows], columns.body_at[rows]
    fits = _begins(columns.i32(at) & 0xFFFFFFFF, bits >> TYPE_SHIFT)
    packed = (bits & COMPRESSED) != 0
    for i in np.flatnonzero(packed != fits).tolist():
        row, start = int(rows[i]), int(at[i])
        body = bytes(columns.buf[start : start + int(columns.body_length[row])])
        flag = int(columns.sys_flag[row])
        proved = proved_sys_flag(flag, body)
        if proved is None and not packed[i]:
            continue  # the producer's own compression, and a type bit that no reader uses
        facts: dict[str, Fact] = {"sys_flag": f"0x{flag:X}", "says": compression_words(flag)}
        if proved is not None:
            facts |= {"expected": f"0x{proved:X}", "body": compression_words(proved)}
        yield record_finding(codes.CL_SYSFLAG, columns, row, file, facts)


def _begins(word: I64, kind: I64) -> Bool:
    """Return which bodies begin like their compression type (0 to 7); `word` are their first four bytes."""
    method, check, block = word >> 24, word >> 16 & 0xFF, word >> 8 & 0xFF
    zlib: Bool = (method & 15 == 8) & (method >> 4 < 8) & (((method << 8) + check) % 31 == 0)
    zlib &= (check & 0x20 == 0) & (block & 6 != 6)  # no dictionary; block type 3 does not exist
    lz4: Bool = (kind == Compression.LZ4) & (word == LZ4_MAGIC)
    zstd: Bool = (kind == Compression.ZSTD) & (word == ZSTD_MAGIC)
    return lz4 | zstd | (((kind == 0) | (kind == Compression.ZLIB)) & zlib)


_NEAR_MS = 60_000
"""Greatest normal difference between the clocks of producers and brokers, and between neighbouring records."""
_LONGEST_PAUSE_MS = 40 * 86_400_000
"""Longest pause of a broker, after which it delivers delayed messages."""

_NONE: I64 = np.empty(0, dtype=np.int64)


def wrong_times(columns: Columns) -> I64:
    """Return the numbers of the records of a chunk whose store time contradicts the neighbours and the born time."""
    times = columns.store_timestamp
    if len(times) < 3 or not bool(_far(times[1:], times[:-1]).any()):
        return _NONE
    # compare with the records before and after; at the ends of a chunk with the two nearest
    n = len(times)
    at = np.arange(n)
    one, two = np.where(at == 0, 1, at - 1), np.where(at == n - 1, n - 3, at + 1)
    two[0] = 2
    one[n - 1] = n - 2
    low, high = np.minimum(times[one], times[two]), np.maximum(times[one], times[two])
    wrong = ~_far(low, high) & _outside(times, low, high) & ~_outside(columns.born_timestamp, low, high)
    # nothing follows the last record: it may be a delayed message, born long ago and stored after a pause
    last = float(times[n - 1]) - float(high[n - 1])
    wrong[n - 1] &= not 0 < last < _LONGEST_PAUSE_MS
    return np.flatnonzero(wrong)


def time_findings(columns: Columns, wrong: I64, file: str) -> Iterator[Finding]:
    """Yield a finding for each record in `wrong`."""
    for i in wrong.tolist():
        facts: dict[str, Fact] = {
            "store_timestamp": int(columns.store_timestamp[i]),
            "born_timestamp": int(columns.born_timestamp[i]),
        }
        yield record_finding(codes.CL_STORE_TIME, columns, i, file, facts)


def _far(a: I64, b: I64) -> Bool:
    """Return whether times differ by more than `_NEAR_MS`, as floats: damaged times may differ by over 64 bits."""
    return np.abs(a.astype(np.float64) - b.astype(np.float64)) > _NEAR_MS


def _outside(times: I64, low: I64, high: I64) -> Bool:
    return (times.astype(np.float64) < low - float(_NEAR_MS)) | (times.astype(np.float64) > high + float(_NEAR_MS))


@dataclass(slots=True)
class ControlTally:
    """The number of these messages in a log or a part of it, and their extent. Parts are merged in address order.

    `first` and `last` are offsets (bytes), `facts` identify the first message, `begin` and `end` are store times (ms).
    """

    messages: int = 0
    first: int = -1
    last: int = -1
    size: int = 0  # of the first one, bytes
    begin: int = 1 << 62
    end: int = -1
    facts: dict[str, Fact] = field(default_factory=dict)
    topics: Counter[str] = field(default_factory=Counter)

    def add(self, columns: Columns, rows: Sequence[int]) -> None:
        """Count the records `rows` of a chunk."""
        for i in rows:
            if not self.messages:
                self.first = int(columns.offset[i]) - columns.body_offset
                self.size = int(columns.size[i]) + columns.body_offset
                found = properties.parse_properties(columns.properties(i))
                self.facts = record_facts(columns, i)
                self.facts |= {"unique_key": found.get(properties.UNIQ_KEY), "keys": found.get(properties.KEYS)}
            self.messages += 1
            self.last = int(columns.offset[i]) - columns.body_offset
            time = int(columns.store_timestamp[i])
            self.begin, self.end = min(self.begin, time), max(self.end, time)
            self.topics[columns.topic(i).decode("utf-8", "backslashreplace")] += 1

    def merge(self, other: ControlTally) -> None:
        """Append the next part."""
        if not self.messages:
            self.first, self.size, self.facts = other.first, other.size, dict(other.facts)
        if other.messages:
            self.messages += other.messages
            self.last = other.last
            self.begin, self.end = min(self.begin, other.begin), max(self.end, other.end)
            self.topics.update(other.topics)

    def finding(self, queue: str, file: str) -> Finding:
        """Return the note about a log; `file` holds the first message."""
        facts: dict[str, Fact] = {"messages": self.messages, **self.facts}
        if self.messages > 1:
            facts |= {"topics": topics_text(self.topics), "last_offset": self.last}
        facts |= {"first_timestamp": self.begin, "last_timestamp": self.end}
        return Finding(codes.CL_CONTROL_CHARACTERS, queue, file, self.first, self.size, facts)
