"""`rmqstore lost`; with --stale, the records of earlier logs."""

from __future__ import annotations

import itertools
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.lang import AsIs
from rmqstore.cli.printing.output import Output, refuse_existing, refuse_inside
from rmqstore.cli.printing.quantities import bytes_text, columns, fitted, many, printable, time_text, title
from rmqstore.cli.printing.sentences import BODY_WORDS, queue_place
from rmqstore.cli.printing.table_output import write_rows
from rmqstore.cli.shared.options import BODY, FILE, FOLDER, WorkOptions, broker_option, command, gathered, named_roots
from rmqstore.cli.shared.reading import note_live, open_named, refuse_part, refuse_without_log
from rmqstore.errors import NotAStore, NotReadable, Refused, UsageError
from rmqstore.files.trees import building
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
    from rmqstore.checks.problems.account import Account
    from rmqstore.checks.problems.report import Report
    from rmqstore.checks.verified import Verified
    from rmqstore.documents.journal import Journal
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.views.deleted_topics import DeletedTopic
    from rmqstore.views.dump.old_records import OldRecordFinder
    from rmqstore.views.expected import Verdict
    from rmqstore.views.lost import Losses, LostMessage, LostMessages


Row = tuple["LostMessage", tuple[str, ...]]
_SHOWN = 100
_LISTED = 10_000
_LINES = 8  # numbers of lines that are named
_LARGEST_LIST = 256 << 20
_COLUMNS = ("topic", "queue_id", "queue_offset", "offset", "why", "keys", "unique_key", "store_timestamp")
_WHY = {
    "cut": Text("the log was cut before them, and a broker has not overwritten them yet"),
    "reused": Text("they name another place in the log: from an earlier use of the file or of the write buffer"),
}
_WHERE = {"after-end": Text("after the end of the log"), "after-blank": Text("after the record that closes a file")}
_STATES = {
    "present": Text("in the store"),
    "damaged": Text("damaged"),
    "lost": Text("lost"),
    "nowhere": Text("nowhere"),
}


@dataclass(slots=True)
class _OldKind:
    """Old records that are alike: their number, bytes, and first and last store time (ms)."""

    messages: int
    bytes: int
    first: int
    last: int


class _Summary:
    """Old records by (log, where, why). `listed`: the first rows."""

    def __init__(self, rows: Iterable[dict[str, Any]]) -> None:
        self.kinds: dict[tuple[str, str, str], _OldKind] = {}
        self.listed: list[dict[str, Any]] = []
        for row in rows:
            time = row["store_timestamp"]
            kind = self.kinds.setdefault((row["log"], row["where"], row["why"]), _OldKind(0, 0, time, time))
            kind.messages += 1
            kind.bytes += row["size"]
            kind.first, kind.last = min(kind.first, time), max(kind.last, time)
            if len(self.listed) < _LISTED:
                self.listed.append(row)

    @property
    def messages(self) -> int:
        return sum(kind.messages for kind in self.kinds.values())


def list_old_records(out: Output, store: Path, opened: Store, work: WorkOptions) -> int:
    """List the old records of a store; return the exit code: 0, or 4 if a part of a log cannot be read."""
    from rmqstore.views.dump.old_records import OldRecordFinder

    refuse_without_log(opened)
    live = note_live(out, opened, Text("the end of its log moves on, over old records"))
    with out.progress("lost", opened.log_bytes) as progress:
        options = work.scanning(live)
        finder = OldRecordFinder(opened, jobs=work.jobs, options=options, live=live, progress=progress.add)
    if out.as_json:
        _report_stale(out, store, finder)
    elif out.format == "table":
        _stale_text(out, store, finder)
    else:
        write_rows(out, _stale_rows(finder))
    if finder.unreadable:
        out.note(
            Text("warning: a part of the log cannot be read; what follows it may be called old (see `rmqstore verify`)")
        )
    return 4 if finder.unreadable else 0


def _stale_rows(finder: OldRecordFinder) -> Iterator[dict[str, Any]]:
    from rmqstore.views.dump.old_records import row_of

    for old in finder.found():
        yield from (row_of(old, i) for i in range(len(old.columns)))


def _report_stale(out: Output, store: Path, finder: OldRecordFinder) -> None:
    summary = _Summary(_stale_rows(finder))
    kinds = [
        {"log": log, "where": where, "why": why, "messages": kind.messages, "bytes": kind.bytes}
        | {"first_timestamp": kind.first, "last_timestamp": kind.last}
        for (log, where, why), kind in summary.kinds.items()
    ]
    logs = [
        {"log": r.name, "end": r.wrote, "last_timestamp": r.max_time if r.messages else None} for r in finder.results
    ]
    out.report(
        {
            "schema": "rmqstore.lost-stale/1",
            "store": str(store),
            "logs": logs,
            "kinds": kinds,
            "copies": finder.copies,
            "messages": summary.listed,
            "more": summary.messages - len(summary.listed),
        }
    )


def _stale_text(out: Output, store: Path, finder: OldRecordFinder) -> None:
    summary = _Summary(_stale_rows(finder))
    out.lines(_words(store, finder, summary), wrap=True)
    if summary.listed:
        write_rows(replace(out, format="table"), summary.listed[:_SHOWN], _COLUMNS)
    left = summary.messages - _SHOWN
    if left > 0:
        out.lines([_more(many(left, "more record"))], wrap=True)


def _more(left: str) -> Text:
    return Text("… and {messages} (--format csv or ndjson lists all)", messages=left)


def _words(store: Path, finder: OldRecordFinder, summary: _Summary) -> Iterator[str]:
    """Yield what was found, and why it is old."""
    if not summary.kinds:
        yield Text("No records of an earlier log are left.")
        return
    size = bytes_text(sum(kind.bytes for kind in summary.kinds.values()))
    records = many(summary.messages, "record")
    yield Text("{records} of an earlier log ({size}). They are no messages of this log.", records=records, size=size)
    for (log, where, why), kind in summary.kinds.items():
        first, last = time_text(kind.first), time_text(kind.last)
        records = many(kind.messages, "record")
        yield Placed("{log}: {records} {where}: {why}", log=log, records=records, where=_WHERE[where], why=_WHY[why])
        yield Text("  stored from {first} to {last}", first=first, last=last)
    for result in finder.results:
        if result.messages:
            time = time_text(result.max_time)
            yield Text("The last message of {log} was stored at {time}.", log=result.name, time=time)
    yield Text(
        "A broker and `rmqstore recover` overwrite them. `rmqstore export {store} --stale -o FILE` saves them.",
        store=shlex.quote(str(store)),
    )
    yield ""


@dataclass(frozen=True, slots=True)
class LostOptions:
    """What to list, and what to save."""

    journal: Path | None
    next_start: bool
    bodies: Path | None
    body: str | None
    keys: Path | None
    expected: Path | None
    stale: bool
    expired: bool


@command(
    "lost",
    report=True,
    formats=("table", "ndjson", "csv"),
    work=True,
    examples=(
        "rmqstore lost /data/rocketmq/store",
        "rmqstore lost /data/rocketmq/store --format csv -o lost.csv --bodies lost-bodies",
        "rmqstore lost /data/rocketmq/store --expected acknowledged.txt",
    ),
)
@click.option(
    "--journal",
    type=FOLDER,
    metavar="DIR",
    help="List what this repair lost (default: the newest repair of the store, if there is one).",
)
@click.option("--next-start", is_flag=True, help="List what the next broker start would lose, even after a repair.")
@click.option(
    "--bodies",
    type=FOLDER,
    metavar="DIR",
    help="Save what is left of the bodies as files in DIR, which must not exist.",
)
@click.option(
    "--body",
    type=BODY,
    help="Add what is left of the bodies to JSON, NDJSON and CSV, in this form. They may be personal data.",
)
@click.option(
    "--keys",
    type=FILE,
    metavar="FILE",
    help="Only messages with one of these keys (FILE has one per line); lost keys are matched by index hashes.",
)
@click.option(
    "--expected",
    type=FILE,
    metavar="FILE",
    help="What became of each message of FILE: an id or key per line, or NDJSON or CSV as producers log what is"
    " acknowledged.",
)
@click.option(
    "--stale", is_flag=True, help="List records of earlier logs that the log does not contain, instead of messages."
)
@click.option(
    "--expired",
    is_flag=True,
    help="Add the messages before the begin of the log that queue files still list, and who has read them.",
)
@broker_option
@gathered("asked", LostOptions)
@named_roots
def lost(out: Output, store: Path, config: BrokerConfig, asked: LostOptions, work: WorkOptions) -> int:
    """List every message that is lost or damaged.

    Before a repair: the messages that are damaged, and those that the next broker start would delete. After a repair:
    those that it replaced by fillers or mended, from its journal. Topic, queue, offsets, keys, ids and store time come
    from what is left of the record, otherwise from its queue entry and its index entries. Exit code 0: nothing is lost.

    With --stale, lists records in bytes that do not belong to the log: after its end, after the record that closes a
    file, or in files with an earlier use. Their frame and checksums prove them. They are no messages of the log, and no
    repair makes them messages again; `rmqstore export --stale` writes them. Exit code 0, also if there are some.

    In CSV, a text that a spreadsheet would run as a formula has a ' before it.
    """
    from rmqstore.files.config import tier_words
    from rmqstore.files.files import read_given
    from rmqstore.views.lost import LostMessages, with_keys

    if asked.journal is not None and asked.next_start:
        raise UsageError(Text("--journal and --next-start exclude each other"), Text("leave one of them out"))
    opened = open_named(store, config)
    refuse_part(opened, Text("name the whole store: its queues and index show what is lost"))
    narrowed = asked.journal or asked.next_start or asked.bodies or asked.body or asked.keys
    if asked.stale:
        if narrowed or asked.expected:
            raise UsageError(Text("--stale excludes all options that name lost messages"), Text("use it alone"))
        return list_old_records(out, store, opened, work)
    if asked.expected is not None:
        if narrowed:
            raise UsageError(
                Text("--expected excludes --journal, --next-start, --bodies and --keys"), Text("use it alone")
            )
        return _expected(out, store, opened, asked.expected, work)
    wanted = None
    if asked.keys is not None:
        lines = read_given(asked.keys, _LARGEST_LIST).decode("utf-8", "surrogateescape").splitlines()
        wanted = [line for line in lines if line]
    if asked.bodies is not None:
        refuse_inside(asked.bodies, store)
        refuse_existing(asked.bodies)
    view = LostMessages(opened)
    folder = None if asked.next_start else _journal(opened, asked.journal)
    if folder is not None:
        verified = None
        losses = view.in_repair(folder, folder.load_plan())
        out.note(
            Text(
                "note: these are the losses of the repair {name}; --next-start shows those of the next broker start",
                name=folder.name,
            )
        )
    else:
        opened, view, losses, verified = _before(out, opened, work)
    if words := tier_words(opened.files, opened.root):
        out.note(Text("note: {note}", note=words))
    account = losses.account
    held = view.undelivered(verified) if verified is not None else ()
    old = view.expired(account) if account is not None and asked.expired else ()
    rows: Iterator[Row] = ((one, ()) for one in itertools.chain(losses.damaged, view.cut(losses), held, old))
    if wanted is not None:
        rows = with_keys((one for one, _ in rows), wanted)
    if asked.bodies is not None:
        rows = _saved(out, rows, asked.bodies)
    found = _write(out, opened, losses, rows, folder, verified, asked.body)
    gone = 0 if account is None or not asked.expired else sum(len(one.before) for one in account.queues.values())
    return _exit_code(losses, max(0, found - gone), None if verified is None else verified.report)


def _expected(out: Output, store: Path, opened: Store, path: Path, work: WorkOptions) -> int:
    """Tell for each expected message whether it is in the store, damaged, lost, or nowhere."""
    from rmqstore.files.files import read_given
    from rmqstore.views.expected import NAMES, NOWHERE, PRESENT, read_expected, records_of, verdicts
    from rmqstore.views.lost import LostMessages, applied_repairs

    listed = read_expected(read_given(path, _LARGEST_LIST))
    texts = listed.texts
    if not texts:
        raise UsageError(
            Text("{path} names no message", path=path),
            Text("give an id or key per line; or NDJSON, or CSV with a header, with {names}", names=joined(NAMES)),
        )
    with out.progress("lost", opened.log_bytes) as progress:
        workers = work.workers(opened.log_bytes, progress.add)
        hits = records_of(opened, texts, workers, work.scanning(opened.lock_state().held))
    kept = LostMessages(opened)
    lost = [(folder.name, kept.in_repair(folder, plan).damaged) for folder, plan in applied_repairs(opened)]
    look, view, losses, verified = _before(out, opened, work)
    report = verified.report
    held = view.undelivered(verified)
    now = itertools.chain(losses.damaged, view.cut(losses), held)
    found = list(verdicts(look, texts, hits, [*lost, ("", now)]))
    rows = [one.to_json() for one in found]
    counts = Counter(one.state for one in found)
    nowhere, unlisted = counts[NOWHERE], sum(losses.unlisted.values())
    if out.as_json:
        head = {"schema": "rmqstore.lost-expected/1", "store": str(store), "verdict": report.verdict}
        tail = {"messages": rows, "unlisted": losses.unlisted, "at_least": losses.at_least}
        tail["unread_lines"] = len(listed.unread)
        out.report(head | {"counts": {state: counts[state] for state in _STATES}} | tail)
    elif out.format == "table":
        out.lines(_expected_text(found), wrap=True)
    else:
        write_rows(out, rows)
    if nowhere and (unlisted or losses.at_least or report.unchecked):
        at_least = Text("at least ") if losses.at_least else ""
        out.note(
            Text(
                "note: {at_least}{messages} left no key and no id: they may be among those nowhere",
                at_least=at_least,
                messages=many(unlisted, "lost message"),
            )
        )
    if listed.unread:
        out.note(
            Text(
                "note: {lines} of {path} without {names}: {numbers}",
                lines=many(len(listed.unread), "line"),
                path=path,
                names=joined(NAMES),
                numbers=joined([*map(str, listed.unread[:_LINES]), *(["…"] if len(listed.unread) > _LINES else [])]),
            )
        )
    if counts[PRESENT] < len(found):
        return 1
    return 4 if report.unchecked or listed.unread else 0


def _expected_text(found: list[Verdict]) -> Iterator[str]:
    counts = Counter(one.state for one in found)
    told = joined(Placed("{n:,} {state}", n=counts[one], state=_STATES[one]) for one in _STATES if counts[one])
    yield Text("{messages} expected: {told}", messages=many(len(found), "message"), told=told)
    missing = [one for one in found if one.state != "present"]
    for one in missing[:_SHOWN]:
        yield Placed("  {text}: {fate}", text=printable(one.text), fate=_fate(one))
    if len(missing) > _SHOWN:
        yield _more(many(len(missing) - _SHOWN, "more message"))


def _fate(one: Verdict) -> str:
    """What became of a message that is not in the store as it was sent."""
    place: str = ""
    if one.found is not None:
        place = queue_place(*one.found.queue_place)
    elif one.lost is not None:
        place = queue_place(one.lost.topic, one.lost.queue_id, one.lost.queue_offset)
    if one.state == "damaged":
        return Text("damaged: {place}", place=place)
    if one.state == "nowhere":
        return Text("nowhere in this store")
    if one.repair:
        return Text("LOST: replaced by a filler in repair {repair}: {place}", repair=one.repair, place=place)
    if one.cause == "cut":
        return Text("in the store, but the next start deletes it: {place}", place=place)
    if one.cause in ("no-unit", "same-offset"):
        return Text("in the store, but no consumer gets it: {place}", place=place)
    return Text("LOST to damage: {place}", place=place)


def _exit_code(losses: Losses, found: int, report: Report | None) -> int:
    if found or losses.unlisted:
        return 1
    if report is not None and losses.at_least:
        return report.exit_code or 4  # messages are lost that cannot be listed
    return 4 if losses.at_least or (report is not None and report.unchecked) else 0


def _journal(opened: Store, path: Path | None) -> Journal | None:
    """Return the journal at `path`, or that of the newest repair that is applied and not undone."""
    from rmqstore.documents.journal import open_journal
    from rmqstore.views.lost import applied_repairs

    if path is not None:
        return open_journal(path, named=opened.places)
    return next((folder for folder, _ in applied_repairs(opened)), None)


def _before(out: Output, opened: Store, work: WorkOptions) -> tuple[Store, LostMessages, Losses, Verified]:
    """Return the store that was examined, a view of it, what it loses, and what was verified."""
    from rmqstore.checks.examine import examine_named
    from rmqstore.repair.plan.recover_options import SALVAGE, RecoverOptions
    from rmqstore.repair.recover import plan_recovery
    from rmqstore.repair.replica.own_copies import names_of_copies
    from rmqstore.views.lost import LostMessages

    with out.progress("lost", opened.log_bytes) as progress:
        look, verified = examine_named(opened, work.verifying(progress.add))
    report = verified.report
    if report.live:
        out.note(Text("note: a broker is running on this store; the list is not final"))
    for line in report.unchecked:
        out.note(Text("note: not checked: {part}", part=line))
    try:
        # damage costs the same messages with every strategy; only salvage lists them
        plan = plan_recovery(look, verified, RecoverOptions(strategy=SALVAGE, accept_fillers=True))
    except (Refused, NotAStore, NotReadable) as error:
        out.note(
            Text("note: damaged messages are not listed (see `rmqstore verify`): {message}", message=error.message)
        )
        plan = None
    copied = Text("note: {name} is a copy of a damaged log file: `rmqstore recover` restores messages from it")
    for name in names_of_copies(look, verified):
        out.note(copied.format(name=name))
    view = LostMessages(look, pointing=verified.logs.pointing)
    return look, view, view.at_next_start(verified, plan), verified


# --- bodies ----------------------------------------------------------------------------------------------------------


def _saved(out: Output, rows: Iterable[Row], place: Path) -> Iterator[Row]:
    """Yield the rows, and save what is left of their bodies."""
    refuse_existing(place)
    count = 0
    with building(place, out.note_removed) as folder:
        for row in rows:
            body = _body_of(row[0])
            if body is not None:
                with Output(path=folder / _file_name(row[0])).stream() as file:
                    file.write(body)
                count += 1
            yield row
    out.note(Text("{bodies} saved in {place}", bodies=many(count, "body", "bodies"), place=place))


def _body_of(one: LostMessage) -> bytes | None:
    """Return the body as the producer sent it, or as stored if it cannot be decompressed; None if nothing is left."""
    from rmqstore.formats.bodies import BodyError, decompress

    if one.found is None:
        return None
    try:
        return decompress(one.found.message.sys_flag, one.found.message.body)
    except BodyError:
        return one.found.message.body


def _file_name(one: LostMessage) -> str:
    topic = "".join(c if c.isalnum() or c in "._%-" else "_" for c in one.topic)[:100]
    damaged = ".damaged" if one.body != "intact" else ""
    return f"{topic}-{one.queue_id}-{one.queue_offset}-{one.offset}{damaged}.body"


# --- output ----------------------------------------------------------------------------------------------------------


def _json_row(row: Row, body: str | None) -> dict[str, Any]:
    one, fits = row
    out = one.to_json() | ({"matched_keys": list(fits)} if fits else {})
    if body is not None:
        out |= _left_of_body(one, body)
    return out


def _left_of_body(one: LostMessage, style: str) -> dict[str, Any]:
    """Return the fields for what is left of a body; of each message the same ones, because CSV has columns."""
    from rmqstore.messages.rows import BodyStyle, body_fields

    names = {"text": ("text", "base64"), "json": ("json", "text", "base64"), "hex": ("hex",), "base64": ("base64",)}
    out: dict[str, Any] = {f"body_{name}": None for name in names[style]}
    if one.found is None:
        return out
    found = dict(body_fields(one.found.message.sys_flag, one.found.message.body, BodyStyle(style)))
    for name in ("body_base64", "body_hex"):
        if name in found:
            out[name] = found[name]
    if "body" in found:
        whole = "body_text" if isinstance(found["body"], str) and style != "json" else "body_json"
        out[whole if whole in out else "body_text"] = found["body"]
    return out


def _write(
    out: Output,
    store: Store,
    losses: Losses,
    rows: Iterator[Row],
    folder: Journal | None,
    verified: Verified | None,
    body: str | None,
) -> int:
    """Write the list; return the number of messages in it."""
    from rmqstore.views.deleted_topics import deleted_topics

    report = None if verified is None else verified.report
    deleted = [] if verified is None else deleted_topics(store, verified)
    if out.as_json:
        listed = [_json_row(row, body) for row in rows]
        out.report(
            {
                "schema": "rmqstore.lost/1",
                "store": str(store.path),
                "when": losses.when,
                "journal": None if folder is None else str(folder.path),
                "verdict": None if report is None else report.verdict,
                "cut_from": losses.cut_from,
                "at_least": losses.at_least,
                "account": None if losses.account is None else losses.account.to_json(),
                "messages": listed,
                "unlisted": losses.unlisted,
                "deleted_topics": [one.to_json() for one in deleted],
            }
        )
        return len(listed)
    if out.format == "table":
        kept = list(rows)
        out.lines(
            itertools.chain(_text(losses, kept, report, out.name_width), _deleted(store.path, deleted)), wrap=True
        )
        return len(kept)
    made = (_json_row(row, body) for row in rows)
    count = write_rows(out, map(_flat, made) if out.format == "csv" else made)
    for line in _unlisted(losses):
        out.note(Text("note: {note}", note=line))
    for one in deleted:
        out.note(Text("note: {note}", note=_still_there(one)))
        path, topic = shlex.quote(str(store.path)), shlex.quote(printable(one.topic))
        out.note(Text("`rmqstore export {path} --topic {topic} -o FILE` saves them", path=path, topic=topic))
    return count


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with lists as words, for CSV."""
    return {k: " ".join(map(str, v)) if isinstance(v, list) else v for k, v in row.items()}


def _text(losses: Losses, rows: list[Row], report: Report | None, width: int) -> Iterator[str]:
    if report is not None and report.verdict:
        yield report.verdict
    damaged = [one for one, _ in rows if one.cause == "damage" and not one.mended]
    mended = [one for one, _ in rows if one.mended]
    cut = [one for one, _ in rows if one.cause == "cut"]
    held, taken, expired = (
        sum(one.cause == cause for one, _ in rows) for cause in ("no-unit", "same-offset", "expired")
    )
    unlisted = sum(losses.unlisted.values())
    if not rows and not unlisted:
        none, maybe = Text("No messages are lost."), Text("No lost messages are known, but there may be some.")
        yield maybe if losses.at_least else none
        yield from _gone_before(losses.account, expired)
        return
    if damaged or unlisted:
        saved: str = ""
        if left := sum(one.body != "gone" for one in damaged):
            bodies = many(
                left,
                "body left, at least in part (--bodies DIR saves it)",
                "bodies left, at least in part (--bodies DIR saves them)",
            )
            saved = Placed("; {bodies}", bodies=bodies)
        count, at_least = many(len(damaged) + unlisted, "message"), Text("at least ") if losses.at_least else ""
        words = Text("Lost to damage: {at_least}{count}{saved}")
        if losses.expired:
            words = Text("Deleted for ever by `rmqstore expire STORE --delete`: {at_least}{count}{saved}")
        yield words.format(at_least=at_least, count=count, saved=saved)
    if mended:
        by = Text("mended by the repair") if losses.when == "repair" else Text("`rmqstore recover` mends them")
        yield Text("Damaged, but {by}: {messages}", by=by, messages=many(len(mended), "message"))
        if lacking := sum(one.incomplete for one in mended):
            yield Text("  {messages} without properties that nothing proves", messages=many(lacking, "message"))
    if cut:
        count = many(len(cut), "message")
        yield Text("Good, but the next start would delete them: {count} (`rmqstore recover` keeps them)", count=count)
    if held:
        count = many(held, "message")
        yield Text(
            "In the log, but no consumer gets them: {count} (`rmqstore recover` rebuilds their queues)", count=count
        )
    if taken:
        count = many(taken, "message")
        yield Text(
            "In the log, but another message has their queue offset, and consumers get that: {count}", count=count
        )
    if expired:
        yield Text("Before the begin of the log, and gone with its files: {count}", count=many(expired, "message"))
    yield from _gone_before(losses.account, expired)
    yield ""
    yield from _table(rows[:_SHOWN], width, losses.when)
    if len(rows) > _SHOWN:
        yield _more(many(len(rows) - _SHOWN, "more message"))
    yield from _unlisted(losses)


def _gone_before(account: Account | None, listed: int) -> Iterator[str]:
    """Yield how many messages before the begin of the log are not in the list; `listed`: how many are."""
    if account is None or account.gone_before_begin <= listed:
        return
    left, begin = many(account.gone_before_begin - listed, "message"), account.begin_at
    if listed or not any(one.before for one in account.queues.values()):
        yield Text("Before the begin of the log at {begin:,}, {left} that only the index lists", begin=begin, left=left)
    else:
        yield Text("Before the begin of the log at {begin:,}, {left} (--expired lists them)", begin=begin, left=left)


def _still_there(one: DeletedTopic) -> str:
    topic, count = printable(one.topic), many(one.messages, "message")
    return Text(
        "topics.json does not have the topic {topic}: {count} in the log until they expire", topic=topic, count=count
    )


def _deleted(store: Path, topics: list[DeletedTopic]) -> Iterator[str]:
    """Yield the topics that topics.json does not have, and what saves their messages or brings them back."""
    name = shlex.quote(str(store))
    for one in topics:
        what, (first, last) = _still_there(one), (one.first_offset, one.last_offset)
        yield Text("{what}, at log offsets {first:,} to {last:,}", what=what, first=first, last=last)
        topic = shlex.quote(printable(one.topic))
        yield Text("  `rmqstore export {store} --topic {topic} -o FILE` saves them", store=name, topic=topic)
    if topics:
        yield Text(
            "To serve them again, stop the broker, and add these entries to topicConfigTable in config/topics.json:"
        )
        for one in topics:
            config = dumps(one.to_json()["topic_config"], sort_keys=True)
            yield AsIs(f"  {dumps(one.topic)}: {config}")
        if any(not one.has_queues for one in topics):
            yield Text("Then `rmqstore recover {store} --apply` makes their queues.", store=name)


def _unlisted(losses: Losses) -> Iterator[str]:
    for queue, missing in losses.unlisted.items():
        where, count = Text(" of {queue}", queue=queue) if queue else "", many(missing, "more message")
        if queue in losses.expired:
            first, last = losses.expired[queue]
            deleted = Text("{messages} of {queue} deleted for ever, queue offsets {first:,} to {last:,}")
            yield deleted.format(messages=many(missing, "message"), queue=queue, first=first, last=last)
            continue
        yield Text("{count}{where} lost, of which only the number is known", count=count, where=where)


def _table(rows: list[Row], width: int, when: str) -> Iterator[str]:
    """Yield the rows as columns; store time and consumers only if there is room for them."""
    cells = [_cells(one, fits, when) for one, fits in rows]
    words = (
        Text("queue"),
        Text("offset"),
        Text("log offset"),
        Text("body"),
        "key",
        Text("stored"),
        Text("consumed by"),
    )
    titles = [title(word) for word in words]
    right = {1, 2}
    wide = [max([columns(title), *(columns(row[i]) for row in cells)]) for i, title in enumerate(titles)]
    for i in (0, 4, 6):
        wide[i] = min(wide[i], max(34, width // 3))
    shown = [0, 1, 2, 3, 4]
    for i in (5, 6):
        if sum(wide[j] + 2 for j in [*shown, i]) - 2 <= width:
            shown.append(i)
    spare = width - sum(wide[j] + 2 for j in shown) + 2
    if spare < 0:
        wide[4] = max(8, wide[4] + spare)
    for row in [titles, *cells]:
        pads = [" " * max(0, wide[i] - columns(row[i])) for i in range(len(row))]
        parts = [pads[i] + row[i] if i in right else fitted(row[i], wide[i]) for i in shown]
        yield AsIs("  ".join(parts).rstrip())


def _cells(one: LostMessage, fits: tuple[str, ...], when: str) -> list[str]:
    hashes = title(many(len(one.key_hashes), "hash", "hashes")) if one.key_hashes else ""
    key = one.keys or one.unique_key or " ".join(fits) or hashes
    state = "mended" if one.mended and when == "repair" else one.body
    return [
        printable(f"{one.topic}/{one.queue_id}"),
        f"{one.queue_offset:,}",
        "" if one.offset is None else f"{one.offset:,}",
        title(BODY_WORDS[state]),
        printable(key),
        "" if one.time is None else time_text(one.time),
        title(Text("unknown")) if one.consumed_by is None else printable(", ".join(one.consumed_by)),
    ]
