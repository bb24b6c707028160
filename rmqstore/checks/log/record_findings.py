"""Findings about single records: the code for a fault, and the facts that identify the record."""

from __future__ import annotations

from collections import Counter

import numpy as np

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding
from rmqstore.formats.message import Fault, body_crc, record_crc
from rmqstore.formats.services import missing_in_text
from rmqstore.scan.columns import Columns
from rmqstore.scan.dispatch import QueueNames
from rmqstore.scan.kernels import I64
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


def damage_finding(run: Run, columns: Columns, file: str) -> Finding:
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
    return Finding(code_of(run.cause, body_offset), _log_name(columns), file, run.start, run.stop - run.start, facts)


def record_finding(code: str, columns: Columns, i: int, file: str, facts: dict[str, Fact]) -> Finding:
    """Return a finding about record i, including the DLedger header before it."""
    start, size = int(columns.offset[i]) - columns.body_offset, int(columns.size[i]) + columns.body_offset
    return Finding(code, _log_name(columns), file, start, size, record_facts(columns, i) | facts)


def text_finding(columns: Columns, i: int, faults: list[str], file: str) -> Finding:
    """Return the finding of a record with damaged properties."""
    return record_finding(
        code_of(Fault.PROPERTIES, columns.body_offset), columns, i, file, {"faults": joined(faults[:4], "; ")}
    )


def topic_finding(columns: Columns, i: int, file: str) -> Finding:
    """Return the finding of a record whose topic is not valid text."""
    return record_finding(code_of(Fault.TOPIC, columns.body_offset), columns, i, file, {})


def _log_name(columns: Columns) -> str:
    return "dledger" if columns.body_offset else "commitlog"


def add_service_faults(columns: Columns, number: I64, queues: QueueNames, faults: dict[int, list[str]]) -> None:
    """Add to `faults`, by record, the properties that a service of the broker needs and does not find.

    `number`: each record's queue.
    """
    if not queues.services:
        return
    rows = np.flatnonzero(np.isin(number, list(queues.services)))
    start, stop = columns.properties_at[rows], (columns.properties_at + columns.properties_length)[rows]
    for i, a, b in zip(rows.tolist(), start.tolist(), stop.tolist(), strict=True):
        missing = missing_in_text(queues.names[int(number[i])][0], columns.raw, a, b)
        if missing:
            faults.setdefault(i, []).append(Text("no valid {missing}", missing=joined(missing)))
