"""`rmqstore dump`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from rmqstore.cli.options import command, parse_queues
from rmqstore.cli.output import Output, json_bytes, quote_wide
from rmqstore.cli.quantities import columns as columns_of
from rmqstore.cli.quantities import many, time_text
from rmqstore.errors import NotAStore, UsageError

if TYPE_CHECKING:
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.views.message_lines import BodyStyle
    from rmqstore.views.messages import Damage
    from rmqstore.views.selection import Selection

MESSAGES = ("messages", "commitlog", "dledger")
UNITS = ("consumequeue", "batchconsumequeue", "index", "dledger-index", "timerlog", "timerwheel")
SMALL = ("checkpoint", "config")
_FITTING = {  # filters that say something about each kind; --topic stands for --topic and --queue
    "consumequeue": {"topic", "from", "tag"},
    "batchconsumequeue": {"topic", "from", "tag", "since"},
    "index": {"from", "since", "topic", "key"},
    "dledger-index": {"from"},
    "timerlog": {"from", "since"},
    "timerwheel": set(),
    "checkpoint": set(),
    "config": set(),
}
_OF_PART = {
    "commitlog": "messages",
    "dledger": "messages",
    "dledger-group": "messages",
    "consumequeue": "consumequeue",
    "consumequeue-tree": "consumequeue",
    "topic": "consumequeue",
    "batchconsumequeue": "batchconsumequeue",
    "batchconsumequeue-tree": "batchconsumequeue",
    "index": "index",
    "dledger-index": "dledger-index",
    "timerlog": "timerlog",
    "timerwheel": "timerwheel",
    "config": "config",
}


@command(
    "dump",
    formats=("table", "ndjson", "csv", "hex"),
    filters=True,
    work=True,
    examples=(
        "rmqstore dump /data/rocketmq/store --topic Order --since -2h --body text",
        "rmqstore dump /data/rocketmq/store --what consumequeue --topic Order --queue 0 --limit 20",
        "rmqstore dump /data/rocketmq/store --from 40960 --limit 1 --format hex",
    ),
)
@click.option("--what", type=click.Choice([*MESSAGES, *UNITS, *SMALL]), help="What to show (default: messages).")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only messages with these TAGS (may be repeated).")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="Only messages with this key (may be repeated).")
@click.option("--msg-id", "msg_ids", multiple=True, metavar="ID", help="Offset message id or unique key (repeatable).")
@click.option("--from", "start", type=click.IntRange(0), metavar="OFFSET", help="From this offset on.")
@click.option("--to", "stop", type=click.IntRange(0), metavar="OFFSET", help="Up to this offset, without it.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most so many records.")
@click.option("--reverse", is_flag=True, help="Newest first.")
@click.option("--positions", is_flag=True, help="What every span of the log is; its real end and the broker's.")
@click.option("--body", type=click.Choice(["text", "json", "hex", "base64"]), help="Show bodies (personal data!).")
@click.option("--raw-body", is_flag=True, help="Bodies as stored, not decompressed (base64 unless --body says else).")
@click.option("--broker", metavar="VERSION", help="Whose stop --positions shows (4.3 … 5.4; default: the newest).")
def dump(
    out: Output,
    store: Path,
    config: BrokerConfig,
    what: str | None,
    topics: tuple[str, ...],
    queues: tuple[str, ...],
    tags: tuple[str, ...],
    keys: tuple[str, ...],
    msg_ids: tuple[str, ...],
    since: int | None,
    until: int | None,
    start: int | None,
    stop: int | None,
    limit: int | None,
    reverse: bool,
    positions: bool,
    body: str | None,
    raw_body: bool,
    broker: str | None,
    jobs: int | None,
    max_rate: int | None,
) -> int:
    """The records of a store: messages, consume queue units, index entries, checkpoints, configuration.

    OFFSETs are global positions in the log, for consume queues queue offsets, for the DLedger index entry numbers.
    Damaged spans are passed over, said on stderr, and make the exit code 1; messages that can be read though their CRC
    is wrong are shown with crc_ok false. --format hex shows the bytes of each record with its fields beside them, and
    with --from also those of a damaged spot.
    """
    from rmqstore.files.store import open_store
    from rmqstore.views.message_lines import BodyStyle
    from rmqstore.views.selection import Selection

    opened = open_store(store, config)
    if what is None:
        what = _OF_PART.get(opened.part or "commitlog", "checkpoint")
    ids, pairs = parse_queues(queues)
    selection = Selection(
        topics=frozenset(topics),
        queue_ids=ids,
        queues=pairs,
        tags=frozenset(tags),
        keys=frozenset(keys),
        msg_ids=frozenset(i.upper() if len(i) in (32, 56) else i for i in msg_ids),
        since=since,
        until=until,
        start=start,
        stop=stop,
        limit=limit,
        reverse=reverse,
    )
    _refuse_filters(what, selection)
    live = opened.lock_state().held
    if live:
        out.note("note: a broker is running on this store; what it writes meanwhile may or may not be shown")
    style = BodyStyle(body or ("base64" if raw_body else None), raw_body)
    if positions:
        return _positions(out, opened, what, broker, jobs)
    if what in MESSAGES:
        if out.format == "hex":
            return _hex(out, opened, what, selection, style)
        return _messages(out, opened, what, selection, style, jobs, max_rate or 0, live)
    if what in UNITS:
        return _units(out, opened, what, selection)
    return _small(out, opened, what, limit)


def _refuse_filters(what: str, selection: Selection) -> None:
    """Errors: UsageError for a filter that says nothing about what is dumped."""
    if what in MESSAGES:
        return
    fitting = _FITTING[what]
    given = {
        "topic": selection.by_queue,
        "tag": bool(selection.tags),
        "key": bool(selection.keys),
        "msg-id": bool(selection.msg_ids),
        "since": selection.since is not None or selection.until is not None,
        "from": selection.start is not None or selection.stop is not None,
    }
    for name, is_given in given.items():
        if is_given and name not in fitting:
            raise UsageError(f"--{name} says nothing about --what {what}", "leave it out, or dump messages")
    if what == "index" and (bool(selection.keys) != bool(selection.topics)):
        raise UsageError("an index entry has only a hash of topic and key", "give both --topic and --key")


# --- messages --------------------------------------------------------------------------------------------------------


def _messages(
    out: Output,
    store: Store,
    what: str,
    selection: Selection,
    body: BodyStyle,
    jobs: int | None,
    max_rate: int,
    live: bool,
) -> int:
    from rmqstore.scan.records import ScanOptions
    from rmqstore.scan.workers import jobs_or_default
    from rmqstore.views.messages import Damage, Job, logs_of, read_messages

    logs = logs_of(store, what)
    if not logs and not (store.commitlog or store.dledger):
        raise NotAStore(f"{store.path} has no log", "see `rmqstore info`, or name another part with --what")
    damage = Damage(live=live)
    total = sum(log.queue.bytes_on_disk for log in logs)
    entry = "entry-" if what == "dledger" else ""
    as_text = out.format == "ndjson" and not out.string_ints
    whole = selection.limit is None and not selection.reverse
    form = ("text" if whole else "line") if as_text else "row"
    scan = ScanOptions(drop_cache=live, max_rate=max_rate)
    job = Job(selection, entry + form, body, foreign=what == "commitlog", scan=scan)
    count = jobs_or_default(jobs) if total > 32 << 20 and not max_rate else 1
    records = read_messages(store, what, job, damage, jobs=count)
    if as_text:
        with out.stream() as file, out.progress("dump", unit=" records") as progress:
            done = 0
            for part in records:
                if whole:
                    file.writelines(part)
                    done += sum(text.count(b"\n") for text in part)
                else:
                    file.write(("\n".join(part) + "\n").encode("utf-8", "backslashreplace"))
                    done += len(part)
                progress(done)
    else:
        _write_rows(out, (row for rows in records for row in rows), _MESSAGE_COLUMNS if not entry else _ENTRY_COLUMNS)
    return tell_damage(out, damage)


def tell_damage(out: Output, damage: Damage) -> int:
    """What was passed over, on stderr; the exit code."""
    if not damage:
        return 0
    if damage.count:
        out.note(f"warning: {many(damage.count, 'damaged span')} ({damage.bytes:,} bytes) passed over:")
        for queue, start, stop, why in damage.spans[: 100 if out.verbose else 5]:
            out.note(f"  {queue} {start} to {stop}: {why}")
        if damage.count > 5 and not out.verbose:
            out.note(f"  … and {damage.count - 5:,} more (-v)")
    if damage.shown:
        out.note(f"warning: {many(damage.shown, 'damaged message')} shown")
    return 1


# --- rows ------------------------------------------------------------------------------------------------------------

_MESSAGE_COLUMNS = (
    "offset",
    "store_timestamp",
    "topic",
    "queue_id",
    "queue_offset",
    "tags",
    "keys",
    "body_length",
    "crc_ok",
)
_ENTRY_COLUMNS = ("offset", "index", "term", "size", "body_length")
Rows = Iterable[dict[str, Any]]


def _write_rows(out: Output, rows: Rows, columns: tuple[str, ...] = ()) -> None:
    """Rows in the format asked for; `columns` are those of a table (default: all but nested ones)."""
    if out.string_ints:
        rows = (quote_wide(row) for row in rows)
    if out.format == "table":
        _table(out, rows, columns)
        return
    with out.stream() as file:
        if out.format == "csv":
            _csv(file, rows)
            return
        for row in rows:
            file.write(json_bytes(row) + b"\n")


def _csv(file: BinaryIO, rows: Rows) -> None:
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names: list[str] = []
    for row in rows:
        flat = _flat(row)
        if list(flat) != names and not (names and set(flat) <= set(names)):  # another kind of row: its own header
            names = list(flat)
            writer.writerow(names)
        writer.writerow(["" if (v := flat.get(name)) is None else _cell(v) for name in names])
        if text.tell() > 1 << 16:
            file.write(text.getvalue().encode("utf-8", "backslashreplace"))
            text.seek(0)
            text.truncate()
    file.write(text.getvalue().encode("utf-8", "backslashreplace"))


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    message = row.get("message")
    if not isinstance(message, dict):
        return row
    return {k: v for k, v in row.items() if k != "message"} | {f"message.{k}": v for k, v in message.items()}


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        return json_bytes(value).decode("utf-8", "replace")
    return value


def _table(out: Output, rows: Rows, columns: tuple[str, ...]) -> None:
    """A plain table, printed in pieces so that it begins at once: columns are as wide as the first rows need."""
    from itertools import islice

    rows = iter(rows)
    widths: dict[str, int] = {}
    with out.stream() as file:
        while block := list(islice(rows, 500)):
            for row in block:
                flat = _flat(row)
                names = columns or tuple(k for k, v in flat.items() if not isinstance(v, (dict, list)))
                cells = {name: _table_cell(name, flat.get(name)) for name in names}
                if tuple(widths) != names:
                    same = [r for r in block if columns or tuple(r) == tuple(row)]
                    widths = {
                        n: max(len(n), *(columns_of(_table_cell(n, _flat(r).get(n))) for r in same)) for n in names
                    }
                    file.write(_line({n: n for n in names}, widths, row) + b"\n")
                file.write(_line(cells, widths, row) + b"\n")


def _line(cells: dict[str, str], widths: dict[str, int], row: dict[str, Any]) -> bytes:
    parts = []
    for name, cell in cells.items():
        right = isinstance(row.get(name), int) and not isinstance(row.get(name), bool) and name not in _AS_TIME
        pad = " " * (widths[name] - columns_of(cell))
        parts.append(pad + cell if right else cell + pad)
    return "  ".join(parts).rstrip().encode("utf-8", "backslashreplace")


_AS_TIME = frozenset(
    {"store_timestamp", "born_timestamp", "begin_timestamp", "end_timestamp", "timestamp", "write_time"}
)


def _table_cell(name: str, value: Any) -> str:

    if value is None:
        return "-"
    if name in _AS_TIME and isinstance(value, int):
        return time_text(value)
    text = _cell(value) if not isinstance(value, int) or isinstance(value, bool) else str(value)
    text = str(text)
    return "".join(c if c.isprintable() else "·" for c in text[:120])


# --- units and small files -------------------------------------------------------------------------------------------


def _units(out: Output, store: Store, what: str, selection: Selection) -> int:
    from rmqstore.files.rocksdb import MISSING_EXTRA, CannotRead, is_readable
    from rmqstore.views.units import READERS, batch_length, batch_lines, batch_rows

    rows = store.rocksdb_consume_queue and what == "consumequeue"
    if rows and not is_readable():
        out.note(f"warning: consumequeue/ is a RocksDB: its queues cannot be read here: that {MISSING_EXTRA}")
        return 4
    problem = ""
    left = selection.limit

    def batches() -> Iterator[Any]:
        nonlocal problem
        try:
            yield from READERS[what](store, selection)
        except CannotRead as e:
            problem = str(e)

    def limited() -> Iterator[Any]:
        nonlocal left
        for batch in batches():
            if left is None:
                yield batch
                continue
            yield {k: v if isinstance(v, (str, int)) else v[:left] for k, v in batch.items()}
            left -= min(left, batch_length(batch))
            if left == 0:
                return

    if out.format == "hex":
        raise UsageError(f"--format hex does not know --what {what}", "it shows messages, commitlog and dledger")
    if out.format == "ndjson" and not out.string_ints:
        with out.stream() as file:
            for batch in limited():
                file.write(("\n".join(batch_lines(batch)) + "\n").encode())
    else:
        _write_rows(out, (row for batch in limited() for row in batch_rows(batch)))
    if problem:
        out.note(f"warning: the RocksDB in consumequeue/ cannot be read, or not all of it: {problem}")
    return 4 if problem else 0


def _small(out: Output, store: Store, what: str, limit: int | None) -> int:
    from itertools import islice

    from rmqstore.views.small_files import checkpoint_rows, config_rows

    if out.format == "hex":
        raise UsageError(f"--format hex does not know --what {what}", "it shows messages, commitlog and dledger")
    rows = checkpoint_rows(store) if what == "checkpoint" else config_rows(store)
    bad = 0

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal bad
        for row in islice(rows, limit):
            bad += row.get("condition", "sound") != "sound" or bool(row.get("faults"))
            yield row

    _write_rows(out, counted())
    if bad:
        out.note(f"warning: {many(bad, 'file')} could not be read as what it should be")
    return 1 if bad else 0


# --- positions and hex -----------------------------------------------------------------------------------------------


def _positions(out: Output, store: Store, what: str, broker: str | None, jobs: int | None) -> int:
    from rmqstore.scan.workers import jobs_or_default
    from rmqstore.views.messages import logs_of
    from rmqstore.views.positions import positions

    if what not in MESSAGES:
        raise UsageError(f"--positions does not know --what {what}", "it shows messages, commitlog and dledger")
    if not logs_of(store, what):
        raise NotAStore(f"{store.path} has no log", "see `rmqstore info`")
    found = list(positions(store, what, jobs=jobs_or_default(jobs)))
    stop = _broker_stop(out, store, broker)
    _write_rows(out, _position_rows(found, stop))
    dirty = any(p.tiling.first_bad() for p in found)
    return 1 if dirty else 0


def _position_rows(found: list[Any], stop: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for one in found:
        yield from one.rows()
    for one in found:
        yield one.summary() | stop


def _broker_stop(out: Output, store: Store, broker: str | None) -> dict[str, Any]:
    """Where the recovery of a broker would stop; nothing for a part of a store."""
    if store.part is not None:
        return {}
    from rmqstore.brokers.simulate import simulate_start

    forecast = simulate_start(store, version=broker, thorough=False).to_json()
    if not forecast["starts"]:
        out.note(f"note: RocketMQ {forecast['version']} would not start: {forecast['reason']}")
    return {"broker": forecast["version"], "broker_stop": forecast["commitlog_stop"]}


def _hex(out: Output, store: Store, what: str, selection: Selection, body: BodyStyle) -> int:
    from rmqstore.views.hexdump import annotate, hex_lines
    from rmqstore.views.messages import Damage, Job, logs_of, read_messages

    logs = logs_of(store, what)
    damage = Damage()
    shown = body.style is not None
    with out.stream() as file:

        def show(lines: Iterator[str]) -> None:
            file.write(("\n".join(lines) + "\n\n").encode("utf-8", "backslashreplace"))

        if selection.start is not None and selection.stop is None and (selection.limit or 1) == 1:
            for log in logs:
                if log.queue.start <= selection.start < log.queue.stop:
                    at = selection.start
                    if log.lead and log.queue.pread(8, at)[4:8] == b"":
                        continue
                    show(hex_lines(annotate(log.queue, _entry_start(log, at), log.lead, body=shown)))
                    return 0
            raise UsageError(f"no log has the offset {selection.start}", "see `rmqstore info` for its range")
        form = "entry-row" if what == "dledger" else "row"
        for rows in read_messages(store, what, Job(selection, form, foreign=what == "commitlog"), damage):
            for row in rows:
                at = int(row["offset"])
                log = next(one for one in logs if one.queue.start <= at < one.queue.stop)
                show(hex_lines(annotate(log.queue, at - (log.lead if form == "row" else 0), log.lead, body=shown)))
    return tell_damage(out, damage)


def _entry_start(log: Any, at: int) -> int:
    """In DLedger data an offset may be that of the entry or of the message in it, 48 bytes further on."""
    if not log.lead:
        return at
    head = log.queue.pread(8, at)
    from rmqstore.formats.message import MAGIC_V1, MAGIC_V2

    is_message = int.from_bytes(head[4:8], "big", signed=True) in (MAGIC_V1, MAGIC_V2)
    return at - log.lead if is_message and at - log.lead >= log.queue.start else at
