"""Annotated hex dump of one record, also of a damaged one: the bytes of each field, its value, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.formats import dledger, message, properties
from rmqstore.formats.layout import Layout
from rmqstore.formats.message import BLANK_MAGIC, HEADS_BY_FLAG, MAGIC_V1, MAGIC_V2, Fault, parse_message
from rmqstore.formats.times import utc
from rmqstore.texts import Text, joined, many

ROW = 16
_BODY_SHOWN = 256
_DAMAGE_SHOWN = 512


@dataclass(frozen=True, slots=True)
class HexPart:
    """The bytes of a field. `at`: their global offset; `text`: the value; `note`: what is wrong, or empty."""

    at: int
    raw: bytes
    name: str
    text: str
    note: str = ""


def annotate(queue: MappedFileQueue, offset: int, body_offset: int, *, body: bool) -> Iterator[HexPart]:
    """Yield the fields of the record, DLedger entry or BLANK at an offset; other bytes are interpreted as a record.

    Units: `offset` is global; with `body_offset`, it is the offset of the DLedger entry.
    """
    file = queue.find(offset)
    if file is None:
        yield HexPart(offset, b"", "nothing", Text("no file holds this offset"))
        return
    left = min(file.length, file.file_size) - (offset - file.start)
    head = queue.pread(min(left, body_offset + HEADS_BY_FLAG[0x30].size), offset)
    if not any(head):
        yield HexPart(offset, head[:ROW], "zeros", Text("zero bytes: unused space or a lost page"))
        return
    if body_offset:
        yield from _entry(head, offset, left)
        if int.from_bytes(head[:4], "big", signed=True) == dledger.BLANK_MAGIC:
            return
        offset, left, head = offset + body_offset, left - body_offset, head[body_offset:]
    magic = int.from_bytes(head[4:8], "big", signed=True)
    if not body_offset and magic == BLANK_MAGIC:
        fits = int.from_bytes(head[:4], "big") == left
        notes = {} if fits else {"size": Text("{left} left in the file", left=many(left, "byte"))}
        yield from _fields(message.BLANK, head, offset, notes)
        return
    yield from _message(queue, head, offset, left, body)


def _entry(head: bytes, offset: int, left: int) -> Iterator[HexPart]:
    if int.from_bytes(head[:4], "big", signed=True) == dledger.BLANK_MAGIC:
        yield from _fields(dledger.BLANK, head, offset, {})
        return
    values = dledger.ENTRY.parse(head.ljust(dledger.ENTRY.size, b"\0"))
    notes: dict[str, str] = {}
    if values["magic"] in (dledger.NOOP, dledger.CONFIG_CHANGE):
        noop, change = Text("NOOP of DLedger 0.4"), Text("CONFIG_CHANGE of DLedger 0.4")
        notes["magic"] = noop if values["magic"] == dledger.NOOP else change
    elif values["magic"] != dledger.MAGIC:
        notes["magic"] = Text("should be {magic}", magic=dledger.MAGIC)
    if values["pos"] != offset:
        notes["pos"] = Text("the entry is at {offset}", offset=offset)
    if values["size"] > left or values["size"] < dledger.ENTRY.size:
        notes["size"] = Text("{left} left in the file", left=many(left, "byte"))
    elif values["size"] != values["body_length"] + dledger.ENTRY.size:
        notes["size"] = Text("should be body length + {size}", size=dledger.ENTRY.size)
    yield from _fields(dledger.ENTRY, head, offset, notes)


def _fields(layout: Layout, raw: bytes, offset: int, notes: Mapping[str, str]) -> Iterator[HexPart]:
    for field in layout:
        at = layout.at(field.name)
        piece = raw[at : at + field.size]
        if len(piece) < field.size:
            yield HexPart(offset + at, piece, field.name, Text("cut off"), Text("the file ends here"))
            return
        yield HexPart(offset + at, piece, field.name, _value(field.name, piece, field.unit), notes.get(field.name, ""))


def _value(name: str, raw: bytes, unit: str) -> str:
    if name in ("born_host", "store_host"):
        return message.host_text(raw)
    number = int.from_bytes(raw, "big", signed=True)
    if name == "magic":
        known = {MAGIC_V1: Text("message V1"), MAGIC_V2: Text("message V2"), BLANK_MAGIC: "BLANK"}
        kind = known.get(number)
        return f"{number & 0xFFFFFFFF:08X}" + (f" ({kind})" if kind else "") if abs(number) > 1 else str(number)
    if name == "sys_flag":
        return f"{number} (0x{number & 0xFFFFFFFF:x})"
    if unit == "ms":
        return f"{number} ms{_time(number)}"
    return f"{number} {unit}".rstrip()


def _time(ms: int) -> str:
    try:
        return f" ({utc(ms).isoformat(timespec='milliseconds')})" if ms > 0 else ""
    except OverflowError:
        return ""


def _message(queue: MappedFileQueue, head: bytes, offset: int, left: int, body: bool) -> Iterator[HexPart]:
    flags = int.from_bytes(head[message.SYS_FLAG_AT : message.SYS_FLAG_AT + 4], "big") & 0x30
    layout = HEADS_BY_FLAG[flags]
    if len(head) < layout.size:
        yield from _fields(layout, head, offset, {})
        return
    values = layout.parse(head)
    size = values["size"]
    whole = queue.pread(min(size, left), offset) if message.MIN_SIZE <= size <= left else b""
    parsed, fault = parse_message(whole) if whole else (None, Fault.SIZE)
    notes: dict[str, str] = {}
    if values["magic"] not in (MAGIC_V1, MAGIC_V2):
        notes["magic"] = Text("neither a message nor a BLANK")
    if not message.MIN_SIZE <= size <= left:
        wrong = Text("impossible: {left} bytes are left in the file, a record has at least {least}")
        notes["size"] = wrong.format(left=left, least=message.MIN_SIZE)
    if values["physical_offset"] != offset:
        notes["physical_offset"] = Text("the record is at {offset}", offset=offset)
    if fault is Fault.LENGTHS:
        notes["body_length"] = Text("the lengths of the parts do not add up to size")
    if parsed is not None and parsed.body_length > 0 and message.body_crc(parsed.body) != parsed.body_crc:
        notes["body_crc"] = Text("the body's CRC is {body_crc}", body_crc=message.body_crc(parsed.body))
    yield from _fields(layout, head, offset, notes)
    at = offset + layout.size
    if parsed is None:
        rest = queue.pread(min(left - layout.size, _DAMAGE_SHOWN), at)
        yield HexPart(
            at,
            rest,
            "rest",
            Text("the next {count}, which cannot be divided into fields", count=many(len(rest), "byte")),
        )
        return
    faults = properties.property_faults(parsed.properties)
    texts = {
        "body": many(len(parsed.body), "byte")
        if body
        else Text("{bytes} (hidden; show with --body hex)", bytes=many(len(parsed.body), "byte")),
        "topic_length": many(len(parsed.topic), "byte"),
        "topic": parsed.topic_text,
        "properties_length": many(len(parsed.properties), "byte"),
        "properties": ", ".join(f"{k}={v}" for k, v in properties.parse_properties(parsed.properties).items()),
    }
    for field, start, stop in message.MESSAGE.spans(whole)[len(layout.fields) :]:
        if field.name == "body":
            stop = min(stop, start + _BODY_SHOWN) if body else start
            if not parsed.body:
                continue
        note = joined(faults, "; ") if field.name == "properties" else ""
        yield HexPart(offset + start, whole[start:stop], field.name, texts[field.name], note)


def hex_lines(parts: Iterator[HexPart]) -> Iterator[str]:
    """Yield lines `offset  bytes  name: value`, with an arrow before what is wrong."""
    for part in parts:
        first, *more = [part.raw[i : i + ROW] for i in range(0, len(part.raw), ROW)] or [b""]
        wrong = f"   <-- {part.note}" if part.note else ""
        text = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in part.text)
        yield f"{part.at:>16}  {first.hex(' '):<{3 * ROW - 1}}  {part.name}: {text}{wrong}"
        for i, row in enumerate(more, 1):
            shown = "".join(chr(b) if 0x20 <= b < 0x7F else "." for b in row)
            yield f"{part.at + i * ROW:>16}  {row.hex(' '):<{3 * ROW - 1}}  {shown}"
