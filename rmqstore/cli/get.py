"""`rmqstore get`."""

from __future__ import annotations

import importlib
import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.lang import AsIs
from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import many, printable, time_text, wrapped
from rmqstore.cli.printing.sentences import (
    detail,
    lost_lines,
    lost_words,
    note_of_another_place,
    queue_place,
    record_words,
)
from rmqstore.cli.shared.options import FILE, command
from rmqstore.errors import UsageError
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.formats.bodies import InnerMessage
    from rmqstore.messages.rows import BodyStyle
    from rmqstore.scan.columns import Repaired
    from rmqstore.views.lookup import Found, Place
    from rmqstore.views.lost import LostFinder, MissingMessage

KNOWN_BY = {"kept": "rmqstore.views.compacted", "lost": "rmqstore.views.lost"}
"""What knows messages that the log does not have: those that compaction keeps, and those that are lost."""
_STYLES = ("auto", "text", "json", "hex", "base64", "none")
_FLAGS = {
    0x1: Text("compressed"),
    0x2: Text("multi tags"),
    0x10: Text("born host IPv6"),
    0x20: Text("store host IPv6"),
    0x80: Text("inner batch"),
}
_SHORT = 200  # characters of base64
_TRANSACTION = {0x4: Text("transaction prepared"), 0x8: Text("transaction commit"), 0xC: Text("transaction rollback")}


@command(
    "get",
    report=True,
    examples=(
        "rmqstore get /data/rocketmq/store 180887",
        "rmqstore get /data/rocketmq/store Order/2/17 --body json",
        "rmqstore get /data/rocketmq/store 7F00000100002A9F000000000002C297 --save-body body.bin",
    ),
)
@click.argument("where", metavar="WHERE")
@click.option(
    "--body",
    type=click.Choice(_STYLES),
    default="auto",
    help="How to show the body (auto, the default: as text; a binary body as base64, shortened).",
)
@click.option("--save-body", type=FILE, metavar="FILE", help="Save the body, decompressed, to FILE.")
def get(out: Output, store: Path, config: BrokerConfig, where: str, body: str, save_body: Path | None) -> int:
    """Show one message completely: header with decoded flags, properties, body.

    WHERE is a log offset, TOPIC/QUEUE/OFFSET, an offset message id, a unique id, or a file in the lost+found of a
    journal. The body is decompressed. Exit code 1: no such message, or it is damaged.
    """
    from rmqstore.cli.shared.reading import open_named
    from rmqstore.messages.repaired import repaired_records
    from rmqstore.scan.columns import NOTHING

    if not where.strip():
        raise UsageError(Text("WHERE is empty"), Text("give a log offset, TOPIC/QUEUE/OFFSET, a message id or a key"))
    opened = open_named(store, config)
    answer: dict[str, Any] = {"schema": "rmqstore.get/1", "store": str(store), "message": None, "messages": []}
    hits = _find(out, opened, where)
    lost = _lost(opened, where, hits)
    found = lost.message.found if lost is not None else hits[0] if hits else None
    if lost is not None:
        answer["lost"] = lost.to_json()
        if not out.as_json:
            headline = Text("{where}: LOST: {lost}", where=printable(where), lost=lost_words(lost))
            out.lines([headline, *lost_lines(store, lost, out.width)])
    elif found is not None and (words := note_of_another_place(where, found)):
        out.note(words)
    elif found is None:
        out.note(Text("no such message: {where}{why}", where=where, why=_why(opened, where)))
    if found is None:
        if out.as_json:
            out.report(answer)
        return 1
    repaired = repaired_records(opened) if lost is None else NOTHING  # a record in lost+found is as it was
    row = _row(found, body, repaired)
    if save_body is not None:
        with Output(path=save_body).keep_out_of(store).stream() as file:
            file.write(_plain_body(out, found))
    if out.as_json:
        rows = [row, *(_row(hit, body, repaired) for hit in hits[1:])] if lost is None else []
        out.report(answer | {"message": row, "messages": rows})
    elif len(hits) > 1 and lost is None:
        out.lines(_list(where, hits, store))
    else:
        out.lines(_text(found, row, short=body == "auto", width=out.terminal_width))
    return 0 if found.sound and lost is None else 1


def _find(out: Output, store: Store, where: str) -> list[Found]:
    """Return the messages that WHERE names, the newest first: one, or all that have a key or unique id."""
    from rmqstore.files.files import LOCAL
    from rmqstore.views import lookup

    if not where.isdigit() and _is_file(Path(where)):
        found = lookup.in_file(LOCAL, Path(where))
        return [] if found is None else [found]
    if (
        lookup.parse_offset(where) is None
        and lookup.parse_queue_offset(where) is None
        and not lookup.by_message_id(store, where)
    ):
        return list(lookup.by_key(store, where)) or list(_scan(out, store, where)) or _kept(out, store, where, None)
    found, offset = lookup.find_one(store, where), lookup.parse_offset(where)
    if found is None and offset is not None:
        found = lookup.with_body(store, offset)
    if found is None and (place := lookup.parsed_place(where)) is not None:
        return _kept(out, store, where, place)
    return [] if found is None else [found]


def _kept(out: Output, store: Store, where: str, place: Place | None) -> list[Found]:
    """Return what compaction keeps of a message that the log has lost: with its place, or the last ones with a key."""
    if store.part is not None or "compaction" not in store.top:
        return []
    from rmqstore.views.dump.selection import Selection

    compacted = importlib.import_module(KNOWN_BY["kept"])
    selection = Selection(texts=frozenset({where}))
    found = [compacted.kept_at(store, place)] if place is not None else compacted.last_kept(store, selection)
    kept: list[Found] = [one for one in found if one is not None]
    if kept:
        out.note(Text("note: the log has no such message (any more), but compaction keeps it: consumers get it"))
    return sorted(kept, key=lambda one: -one.message.store_timestamp)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # too long for a path: a key
        return False


def _lost(store: Store, where: str, hits: list[Found]) -> MissingMessage | None:
    """Return the lost message that WHERE names, if it names no other message."""
    from rmqstore.views.lookup import parse_offset, parsed_place

    if hits and hits[0].offset is None:
        return None  # a file of lost+found
    finder: LostFinder = importlib.import_module(KNOWN_BY["lost"]).LostFinder(store)
    fillers = [hit for hit in hits if finder.is_filler(hit)]
    if fillers and len(fillers) == len(hits):
        return finder.of_filler(fillers[0])
    hits[:] = [hit for hit in hits if hit not in fillers]
    if hits:
        return None
    offset, place = parse_offset(where), parsed_place(where)
    if offset is not None:
        return finder.in_repair(offset)
    lost = finder.at_place(place) if place is not None else None
    return lost or next((one for one, _ in finder.in_repairs([where])), None)


def _why(store: Store, where: str) -> str:
    """Say what is at a place that has no message: another record, or the end of the log or queue."""
    from rmqstore.views.lookup import QueueUnits, around, parse_offset, parsed_place

    offset, place = parse_offset(where), parsed_place(where)
    if not store.logs:
        return Text(": the store has no log")
    if offset is not None:
        inside, end = around(store, offset)
        if inside is not None:
            at, size, topic = inside.log_offset, inside.message.size, printable(inside.message.topic_text)
            return Text(": it is inside the record at {at:,} ({size:,} bytes, {topic})", at=at, size=size, topic=topic)
        if end is not None and offset >= end:
            return Text(": the log ends at {end:,}", end=end)
        if all(log.find(offset) is None for log, _ in store.logs):
            return Text(": its log file is missing")
        return Text(": no record starts there")
    if place is None:
        return ""
    bounds = QueueUnits(store, *place[:2]).bounds()
    if bounds is None:
        return Text(": there is no queue {topic}/{id}", topic=printable(place[0]), id=place[1])
    first, stop = bounds
    if stop > first:
        return Text(": the queue has the offsets {first:,} to {last:,}", first=first, last=stop - 1)
    return Text(": the queue is empty")


def _list(where: str, hits: list[Found], store: Path) -> Iterator[str]:
    """Several messages: where each of them is."""
    yield Text("{messages} for {where}, the newest first:", messages=many(len(hits), "message"), where=printable(where))
    for hit in hits:
        stored = time_text(hit.message.store_timestamp, exact=True)
        damaged = "" if hit.sound else Text(", damaged")
        if hit.offset is None:
            yield Text(
                "  {file} at {at:,}  {stored}{damaged}", file=hit.file, at=hit.at, stored=stored, damaged=damaged
            )
        else:
            yield Text("  log offset {at:>13,}  {stored}{damaged}", at=hit.log_offset, stored=stored, damaged=damaged)
        yield Placed("             {place}", place=queue_place(*hit.queue_place))
    newest = shlex.quote("/".join(map(str, hits[0].queue_place))) if hits[0].offset is None else hits[0].offset
    yield Text("rmqstore get {store} {offset} shows the newest", store=shlex.quote(str(store)), offset=newest)


def _scan(out: Output, store: Store, text: str) -> Iterator[Found]:
    """Read the log for an id that neither contains its offset nor is in an index file."""
    from itertools import chain

    from rmqstore.views import lookup
    from rmqstore.views.dump.messages import Job, read_records
    from rmqstore.views.dump.selection import Selection

    out.note(Text("note: {text} is in no index file: reading the log", text=text))
    for one in chain.from_iterable(read_records(store, "messages", Job(Selection(msg_ids=frozenset({text}))))):
        found = lookup.by_offset(store, one.offset)
        if found is not None:
            yield found


def _plain_body(out: Output, found: Found) -> bytes:
    from rmqstore.formats.bodies import BodyError, decompress

    try:
        return decompress(found.message.sys_flag, found.message.body)
    except BodyError as error:
        out.note(Text("warning: the body is saved as stored: {error}", error=error))
        return found.message.body


def _row(found: Found, body: str, repaired: Repaired) -> dict[str, Any]:
    """Return the fields of `dump`, with decoded flags, the position in the file and the fault."""
    from rmqstore.formats.bodies import messages_in
    from rmqstore.formats.message import Fault
    from rmqstore.messages.rows import BodyStyle, message_row

    style = BodyStyle({"auto": "text", "none": None}.get(body, body), False)
    message = found.message
    offset = found.offset if found.offset is not None else message.physical_offset
    row = message_row(message, offset, found.file, found.sound, style, repaired)
    flags = [text for bit, text in _FLAGS.items() if message.sys_flag & bit]
    transaction = _TRANSACTION.get(message.transaction_type)
    row["flags"] = [*flags, transaction] if transaction else flags
    if inner := messages_in(message):
        row["inner"] = [_inner_row(message.queue_offset + number, one, style) for number, one in enumerate(inner)]
    row["position_in_file"] = found.at
    row["fault"] = None if found.fault is Fault.NONE else found.fault.name.lower()
    return row


def _inner_row(queue_offset: int, one: InnerMessage, style: BodyStyle) -> dict[str, Any]:
    """Return the fields of a message in a batch."""
    from rmqstore.formats import properties
    from rmqstore.messages.rows import body_fields

    known = properties.parse_properties(one.properties)
    row: dict[str, Any] = {
        "queue_offset": queue_offset,
        "flag": one.flag,
        "tags": known.get(properties.TAGS),
        "keys": known.get(properties.KEYS),
        "unique_key": known.get(properties.UNIQ_KEY),
        "properties": known,
        "body_length": len(one.body),
    }
    return row | (dict(body_fields(0, one.body, style)) if style.style else {})


def _inner_lines(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the messages in a batch, one line each, with the body of each if it is text."""
    inner = row.get("inner") or []
    if inner:
        yield Text("  {messages} in this batch", messages=many(len(inner), "message"))
    for one in inner:
        names = [value for value in (one["keys"], one["unique_key"], one["tags"]) if value]
        yield AsIs(f"    {one['queue_offset']:,}  {printable('  '.join(names))}")
        if isinstance(one.get("body"), str):
            yield AsIs(f"      {one['body']}")


def _text(found: Found, row: Mapping[str, Any], *, short: bool, width: int | None) -> Iterator[str]:
    message = found.message
    place = Text("not in a log") if found.offset is None else Text("log offset {offset:,}", offset=found.offset)
    stored = time_text(message.store_timestamp, exact=True)
    where = queue_place(*found.queue_place)
    head = Text("{where}   {place}   stored {stored}", where=where, place=place, stored=stored)
    yield from wrapped(head, width, then="  ") if width is not None else [head]
    born = time_text(message.born_timestamp, exact=True)
    flags = f"0x{message.sys_flag & 0xFFFFFFFF:x}"
    rows: list[tuple[str, str]] = [
        (Text("record"), record_words(row["fault"] or "sound")),
        (Text("file"), Text("{file} at {at:,}, {size:,} bytes", file=found.file, at=found.at, size=message.size)),
        (Text("born"), Text("{time} by {host}", time=born, host=row["born_host"])),
        (Text("store host"), row["store_host"]),
        (Text("message id"), row["msg_id"]),
        (Text("flags"), Placed("{bits} ({names})", bits=flags, names=joined(row["flags"])) if row["flags"] else flags),
        (Text("retries"), f"{message.reconsume_times:,}"),
    ]
    if message.prepared_transaction_offset:
        rows.append((Text("half message"), Text("log offset {at:,}", at=message.prepared_transaction_offset)))
    for name, value in rows:
        line = detail(name, value)
        yield from wrapped(line, width, then=" " * 15) if width is not None else [line]
    yield "  properties"
    yield from (AsIs(f"    {name} = {value}") for name, value in row["properties"].items())
    yield from _inner_lines(row)
    yield from body_lines(row, message.body_length, compressed="compressed" in row["flags"], short=short, width=width)


def body_lines(
    row: Mapping[str, Any], length: int, *, compressed: bool, short: bool = False, width: int | None = None
) -> Iterator[str]:
    """Yield the body of a message's row as lines; `length` is that of the stored body in bytes.

    `short`: only the beginning of a binary body, in lines of `width` columns.
    """
    shown = next((name for name in ("body", "body_base64", "body_hex") if name in row), None)
    packed = Text(" as stored, compressed") if compressed else ""
    yield Text("  body ({length}{packed})", length=many(length, "byte"), packed=packed)
    if "body_error" in row:
        yield Text("    cannot be decompressed: {error}", error=row["body_error"])
    if shown is None:
        return
    if short and shown == "body_base64" and len(row[shown]) > _SHORT:
        start = f"base64: {row[shown][:_SHORT]}…"
        step = len(start) if width is None else width - 4
        yield from (AsIs(f"    {start[at : at + step]}") for at in range(0, len(start), step))
        yield Text("    for all of it: --body base64, --body hex or --save-body FILE")
        return
    value = row[shown]
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    label = {"body_base64": "base64: ", "body_hex": "hex: "}.get(shown, "")
    yield from (AsIs(f"    {label}{line.rstrip()}") for line in text.splitlines() or [""])
