"""Findings about single records: what a fault is called, and the facts that help to recognise the record."""

from __future__ import annotations

from collections.abc import Iterator

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding
from rmqstore.formats.message import Fault, body_crc, record_crc
from rmqstore.scan.columns import Columns
from rmqstore.scan.tiling import Run

COMMITLOG_CODE = {
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
DLEDGER_CODE = {
    Fault.SHORT: codes.DL_HEADER,
    Fault.ENTRY_MAGIC: codes.DL_HEADER,
    Fault.ENTRY_SIZE: codes.DL_HEADER,
    Fault.ENTRY_POS: codes.DL_HEADER,
    Fault.ENTRY_INDEX: codes.DL_INDEX_ORDER,
    Fault.ENTRY_TERM: codes.DL_INDEX_ORDER,
    Fault.BLANK: codes.DL_FALSE_BLANK,
}


def code_of(cause: Fault, lead: int) -> str:
    """Problem code of a damaged run in a commitlog (`lead` 0) or in DLedger data."""
    if lead:
        return DLEDGER_CODE.get(cause, codes.DL_BODY)
    return COMMITLOG_CODE.get(cause, codes.CL_MAGIC)


def record_facts(columns: Columns, i: int) -> dict[str, Fact]:
    """Topic, queue and queue offset of a framed record."""
    return {
        "topic": columns.topic(i).decode("utf-8", "backslashreplace"),
        "queue_id": int(columns.queue_id[i]),
        "queue_offset": int(columns.queue_offset[i]),
    }


def damage_finding(run: Run, columns: Columns, file: str) -> Iterator[Finding]:
    """The finding of a framed but wrong record, made while its bytes are at hand."""
    lead = columns.lead
    facts = record_facts(columns, 0)
    at = int(columns.at[0])
    if run.cause is Fault.BODY_CRC:
        start = int(columns.body_at[0])
        facts["stored"] = int(columns.body_crc[0])
        facts["computed"] = body_crc(columns.buf.data[start : start + int(columns.body_length[0])])
    elif run.cause is Fault.RECORD_CRC:
        stored, computed = record_crc(columns.buf.data, at, int(columns.size[0]))
        facts["stored"], facts["computed"] = stored, computed
    elif run.cause is Fault.PHYSICAL_OFFSET:
        facts["physical_offset"] = int(columns.physical_offset[0])
        facts["expected"] = int(columns.offset[0])
    if lead:
        facts["index"] = int(columns.entry_index[0])
        facts["term"] = int(columns.entry_term[0])
        facts["pos"] = int(columns.entry_pos[0])
        facts["entry_size"] = int(columns.entry_size[0])
        facts["fault"] = run.cause.name.lower()
    queue = "dledger" if lead else "commitlog"
    yield Finding(code_of(run.cause, lead), queue, file, run.start, run.stop - run.start, facts)


def record_finding(code: str, columns: Columns, i: int, file: str, facts: dict[str, Fact]) -> Finding:
    """Of one record, with the DLedger header in front of it."""
    queue = "dledger" if columns.lead else "commitlog"
    start, size = int(columns.offset[i]) - columns.lead, int(columns.size[i]) + columns.lead
    return Finding(code, queue, file, start, size, record_facts(columns, i) | facts)


def text_finding(columns: Columns, i: int, faults: list[str], file: str) -> Finding:
    """A record whose property text is damaged."""
    code = codes.DL_BODY if columns.lead else codes.CL_PROPERTIES
    return record_finding(code, columns, i, file, {"faults": "; ".join(faults[:4])})


def topic_finding(columns: Columns, i: int, file: str) -> Finding:
    """A record whose topic is not text."""
    return record_finding(codes.DL_BODY if columns.lead else codes.CL_TOPIC, columns, i, file, {})
