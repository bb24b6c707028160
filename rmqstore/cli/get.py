"""`rmqstore get`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.lang import AsIs
from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import fitted, time_text, title
from rmqstore.cli.shared.options import FILE, command

if TYPE_CHECKING:
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.views.lookup import Found

_FAULTS = {
    "body_crc": "the body does not match its CRC",
    "physical_offset": "its field PHYSICALOFFSET has another log offset",
    "topic": "it has no valid topic",
}
_STYLES = ("auto", "text", "json", "hex", "base64", "none")
_FLAGS = {0x1: "compressed", 0x2: "multi tags", 0x10: "born host IPv6", 0x20: "store host IPv6", 0x80: "inner batch"}
_SHORT = 200  # characters of base64
_TRANSACTION = {0x4: "transaction prepared", 0x8: "transaction commit", 0xC: "transaction rollback"}


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
    from rmqstore.files.store import open_store

    opened = open_store(store, config)
    found = _find(out, opened, where)
    if found is None:
        out.note(f"no such message: {where}")
        if out.as_json:
            out.report({"schema": "rmqstore.get/1", "store": str(store), "message": None})
        return 1
    row = _row(found, body)
    if save_body is not None:
        saver = Output(path=save_body)
        saver.keep_out_of(store)
        with saver.stream() as file:
            file.write(_plain_body(out, found))
    if out.as_json:
        out.report({"schema": "rmqstore.get/1", "store": str(store), "message": row})
    else:
        out.lines(_text(found, row, short=body == "auto", width=out.terminal_width))
    return 0 if found.sound else 1


def _find(out: Output, store: Store, where: str) -> Found | None:
    from rmqstore.views import lookup

    if Path(where).is_file() and not where.isdigit():
        return lookup.in_file(Path(where))
    found = lookup.find_one(store, where)
    direct = where.replace(",", "").replace("_", "").isdigit() or lookup.parse_queue_offset(where) is not None
    return found if found is not None or direct else _scan(out, store, where)


def _scan(out: Output, store: Store, text: str) -> Found | None:
    """Read the log for an id that neither contains its offset nor is in an index file."""
    from rmqstore.views import lookup
    from rmqstore.views.dump.messages import dump_messages
    from rmqstore.views.dump.selection import Selection

    out.note(f"note: {text} is in no index file: reading the log")
    for row in dump_messages(store, Selection(msg_ids=frozenset({text}))):
        return lookup.by_offset(store, int(row["offset"]))
    return None


def _plain_body(out: Output, found: Found) -> bytes:
    from rmqstore.formats.bodies import BodyError, decompress

    try:
        return decompress(found.message.sys_flag, found.message.body)
    except BodyError as error:
        out.note(f"warning: the body is saved as stored: {error}")
        return found.message.body


def _row(found: Found, body: str) -> dict[str, Any]:
    """Return the fields of `dump`, with decoded flags, the position in the file and the fault."""
    from rmqstore.formats.message import Fault
    from rmqstore.messages.rows import BodyStyle, message_row

    style = BodyStyle({"auto": "text", "none": None}.get(body, body), False)
    message = found.message
    row = message_row(
        message, found.offset if found.offset is not None else message.physical_offset, found.file, found.sound, style
    )
    flags = [text for bit, text in _FLAGS.items() if message.sys_flag & bit]
    transaction = _TRANSACTION.get(message.transaction_type)
    row["flags"] = [*flags, transaction] if transaction else flags
    row["position_in_file"] = found.at
    row["fault"] = None if found.fault is Fault.NONE else found.fault.name.lower()
    return row


def _text(found: Found, row: Mapping[str, Any], *, short: bool, width: int | None) -> Iterator[str]:
    message = found.message
    place = "not in a log" if found.offset is None else f"log offset {found.offset:,}"
    stored = time_text(message.store_timestamp)
    yield f"{message.topic_text}/{message.queue_id} offset {message.queue_offset:,}   {place}   stored {stored}"
    sound = "sound (body CRC matches)" if found.sound else f"damaged: {_FAULTS.get(row['fault'], row['fault'])}"
    rows = {
        title("record"): sound,
        title("file"): f"{found.file} at {found.at:,}, {message.size:,} bytes",
        title("born"): f"{time_text(message.born_timestamp)} by {row['born_host']}",
        title("store host"): row["store_host"],
        title("message id"): row["msg_id"],
        title("flags"): f"0x{message.sys_flag & 0xFFFFFFFF:x}"
        + (f" ({', '.join(row['flags'])})" if row["flags"] else ""),
        title("retries"): f"{message.reconsume_times:,}",
    }
    if message.prepared_transaction_offset:
        rows[title("half message")] = f"log offset {message.prepared_transaction_offset:,}"
    yield from (f"  {fitted(name, 13)}{text}" for name, text in rows.items())
    yield "  properties"
    yield from (AsIs(f"    {name} = {value}") for name, value in row["properties"].items())
    yield from body_lines(row, message.body_length, compressed="compressed" in row["flags"], short=short, width=width)


def body_lines(
    row: Mapping[str, Any], length: int, *, compressed: bool, short: bool = False, width: int | None = None
) -> Iterator[str]:
    """Yield the body of a message's row as lines; `length` is that of the stored body in bytes.

    `short`: only the beginning of a binary body, in lines of `width` columns.
    """
    shown = next((name for name in ("body", "body_base64", "body_hex") if name in row), None)
    packed = " as stored, compressed" if compressed else ""
    yield f"  body ({length:,} bytes{packed})"
    if "body_error" in row:
        yield f"    cannot be decompressed: {row['body_error']}"
    if shown is None:
        return
    if short and shown == "body_base64" and len(row[shown]) > _SHORT:
        start = f"base64: {row[shown][:_SHORT]}…"
        step = len(start) if width is None else width - 4
        yield from (AsIs(f"    {start[at : at + step]}") for at in range(0, len(start), step))
        yield "    for all of it: --body base64, --body hex or --save-body FILE"
        return
    value = row[shown]
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    label = {"body_base64": "base64: ", "body_hex": "hex: "}.get(shown, "")
    yield from (AsIs(f"    {label}{line.rstrip()}") for line in text.splitlines() or [""])
