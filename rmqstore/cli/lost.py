"""`rmqstore lost`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.options import FILE, Work, command, gathered
from rmqstore.cli.output import Output, new_directory
from rmqstore.cli.quantities import columns, fitted, many, time_text
from rmqstore.cli.table_output import write_rows
from rmqstore.errors import NotAStore, NotReadable, Refused, UsageError

if TYPE_CHECKING:
    from rmqstore.checks.problems.report import Report
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.repair.journal.folder import JournalFolder
    from rmqstore.views.lost import Losses, LostMessage, LostMessages

_SHOWN = 100
_LARGEST_LIST = 256 << 20
Row = tuple["LostMessage", tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of `lost`."""

    journal: Path | None
    next_start: bool
    bodies: Path | None
    keys: Path | None


@command(
    "lost",
    report=True,
    formats=("table", "ndjson", "csv"),
    work=True,
    broker=True,
    examples=(
        "rmqstore lost /data/rocketmq/store",
        "rmqstore lost /data/rocketmq/store --format csv -o lost.csv --bodies lost-bodies",
        "rmqstore lost /data/rocketmq/store --keys orders.txt --json",
    ),
)
@click.option(
    "--journal",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="What this repair could not keep (default: the newest repair of the store, if there is one).",
)
@click.option("--next-start", is_flag=True, help="What the next broker start would lose, although there is a journal.")
@click.option(
    "--bodies",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Save what is left of the bodies as files in DIR, which is made.",
)
@click.option(
    "--keys",
    type=FILE,
    metavar="FILE",
    help="Only messages that one of these keys belongs to, one key per line; also by the hashes in the index.",
)
@gathered("asked", Asked)
def lost(
    out: Output,
    store: Path,
    config: BrokerConfig,
    asked: Asked,
    work: Work,
) -> int:
    """List every message that is lost or damaged.

    Before a repair: the messages that damage has taken, and those that the next broker start would delete. After one:
    what the repair replaced by fillers or mended, from its journal. Topic, queue, offsets, keys, ids and store time
    come from what is left of the record, else from its queue entry and its index entries. Exit code 0: nothing is lost.
    """
    from rmqstore.files.store import open_store
    from rmqstore.views.lost import LostMessages

    if asked.journal is not None and asked.next_start:
        raise UsageError("--journal and --next-start exclude each other", "leave one of them out")
    opened = open_store(store, config)
    if opened.part is not None:
        raise NotAStore(f"{store} is a part of a store", "name the whole store: queues and index tell what is lost")
    wanted = _read_keys(asked.keys)
    if asked.bodies is not None:
        _check_bodies(asked.bodies, store)
    view = LostMessages(opened)
    folder = None if asked.next_start else _journal(opened, asked.journal)
    if folder is not None:
        report = None
        losses = view.in_repair(folder, folder.load_plan())
        out.note(
            f"note: this is what the repair {folder.name} could not keep; --next-start looks at the store as it is"
        )
    else:
        opened, view, losses, report = _before(out, opened, work)
    rows = _rows(view, losses, wanted)
    if asked.bodies is not None:
        rows = _saved(out, rows, asked.bodies)
    found = _write(out, store, losses, rows, folder, report)
    return _exit_code(losses, found, report)


def _exit_code(losses: Losses, found: int, report: Report | None) -> int:
    if found or losses.unlisted:
        return 1
    if report is not None and losses.at_least:
        return report.exit_code or 4  # what is lost is known to be there, but not message by message
    return 4 if losses.at_least or (report is not None and report.unchecked) else 0


def _journal(opened: Store, path: Path | None) -> JournalFolder | None:
    """The journal that is asked for, or the newest of a repair that was applied and not undone."""
    from rmqstore.errors import CouldNotCheck
    from rmqstore.repair.journal.folder import State
    from rmqstore.repair.journal.journal import list_journals, read_journal

    if path is not None:
        return read_journal(path)
    for info in reversed(list_journals(opened.root)) if opened.part is None else ():
        if info.state is not State.DONE:
            continue
        folder = read_journal(info.path)
        try:
            facts = folder.load_plan().facts
        except CouldNotCheck:
            continue
        if "strategy" in facts:  # the other commands' plans lose nothing of the log
            return folder
    return None


def _before(out: Output, opened: Store, work: Work) -> Any:
    """The store as it was examined, and what is lost in it."""
    from rmqstore.checks.expiring import while_files_expire
    from rmqstore.checks.verify import examine_lasting
    from rmqstore.repair.plan.recover_options import SALVAGE, RecoverOptions
    from rmqstore.repair.recover import plan_recovery
    from rmqstore.views.lost import LostMessages

    with out.progress("lost", opened.log_bytes) as progress:
        options = work.verifying(progress.add)
        look, verified = while_files_expire(opened, lambda look: examine_lasting(look, options))
    report = verified.report
    if report.live:
        out.note("note: a broker is running on this store: the list is not final")
    try:
        # every strategy loses what damage has taken; only salvage says message by message what that is
        plan = plan_recovery(look, verified, RecoverOptions(strategy=SALVAGE, accept_fillers=True))
    except (Refused, NotAStore, NotReadable) as error:
        out.note(f"note: damaged messages are not listed here, see `rmqstore verify`: {error.message}")
        plan = None
    view = LostMessages(look)
    return look, view, view.at_next_start(verified, plan), report


def _rows(view: LostMessages, losses: Losses, wanted: list[str] | None) -> Iterator[Row]:
    from rmqstore.views.lost import with_keys

    every = itertools.chain(losses.damaged, view.cut(losses))
    if wanted is not None:
        yield from with_keys(every, wanted)
    else:
        yield from ((one, ()) for one in every)


def _read_keys(path: Path | None) -> list[str] | None:
    if path is None:
        return None
    from rmqstore.files.disk.paths import read_small

    try:
        text = read_small(path, _LARGEST_LIST)
    except OSError as error:
        raise NotReadable(f"{path}: {error.strerror or error}") from error
    return [line for line in text.decode("utf-8", "surrogateescape").splitlines() if line]


# --- bodies ----------------------------------------------------------------------------------------------------------


def _check_bodies(place: Path, store: Path) -> None:
    Output(path=place).keep_out_of(store)
    if place.exists():
        raise Refused(f"{place} exists", "name a directory that does not")


def _saved(out: Output, rows: Iterable[Row], place: Path) -> Iterator[Row]:
    """The rows; what is left of their bodies is saved on the way."""
    new_directory(place)
    count = 0
    for row in rows:
        body = _body_of(row[0])
        if body is not None:
            with Output(path=place / _file_name(row[0])).stream() as file:
                file.write(body)
            count += 1
        yield row
    out.note(f"{many(count, 'body', 'bodies')} saved in {place}")


def _body_of(one: LostMessage) -> bytes | None:
    """The body as the producer sent it, or as it is stored where damage keeps it from being decompressed."""
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


def _json_row(row: Row) -> dict[str, Any]:
    one, fits = row
    return one.to_json() | ({"matched_keys": list(fits)} if fits else {})


def _write(
    out: Output, store: Path, losses: Losses, rows: Iterator[Row], folder: JournalFolder | None, report: Report | None
) -> int:
    """Writes the list; how many messages are in it."""
    if out.as_json:
        listed = [_json_row(row) for row in rows]
        out.report(
            {
                "schema": "rmqstore.lost/1",
                "store": str(store),
                "when": losses.when,
                "journal": None if folder is None else str(folder.path),
                "verdict": None if report is None else report.verdict,
                "cut_from": losses.cut_from,
                "at_least": losses.at_least,
                "messages": listed,
                "unlisted": losses.unlisted,
            }
        )
        return len(listed)
    if out.format == "table":
        kept = list(rows)
        out.lines(_text(losses, kept, report, out.width), wrap=True)
        return len(kept)
    count = write_rows(out, (_flat(_json_row(row)) if out.format == "csv" else _json_row(row) for row in rows))
    for queue, missing in losses.unlisted.items():
        out.note(f"note: {many(missing, 'more message')}{f' of {queue}' if queue else ''} lost without a trace")
    return count


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose lists are words, as people write them in a table."""
    return {k: " ".join(map(str, v)) if isinstance(v, list) else v for k, v in row.items()}


def _text(losses: Losses, rows: list[Row], report: Report | None, width: int) -> Iterator[str]:
    if report is not None and report.verdict:
        yield report.verdict
    damaged = [one for one, _ in rows if one.cause == "damage" and not one.mended]
    mended = [one for one, _ in rows if one.mended]
    cut = [one for one, _ in rows if one.cause == "cut"]
    unlisted = sum(losses.unlisted.values())
    if not rows and not unlisted:
        yield "No message is lost." if not losses.at_least else "No lost message is known."
        return
    if damaged or unlisted:
        left = sum(one.body != "gone" for one in damaged)
        them = "it" if left == 1 else "them"
        saved = f"; {many(left, 'body', 'bodies')} left, perhaps in part (--bodies DIR saves {them})" if left else ""
        at_least = "at least " if losses.at_least else ""
        yield f"lost to damage: {at_least}{many(len(damaged) + unlisted, 'message')}{saved}"
    if mended:
        by = "the repair mended" if losses.when == "repair" else "`rmqstore recover` mends"
        yield f"damaged, but {by}: {many(len(mended), 'message')}"
    if cut:
        yield f"sound, and deleted by the next start: {many(len(cut), 'message')}; `rmqstore recover` keeps them"
    yield ""
    yield from _table(rows[:_SHOWN], width, losses.when)
    if len(rows) > _SHOWN:
        yield f"… and {many(len(rows) - _SHOWN, 'more message')} (--format csv or ndjson lists all)"
    for queue, missing in losses.unlisted.items():
        yield f"{many(missing, 'message')}{f' of {queue}' if queue else ''} more: nothing but the number is known"


def _table(rows: list[Row], width: int, when: str) -> Iterator[str]:
    """Columns by priority: at 80 columns the store time and the consumers are left out."""
    cells = [_cells(one, fits, when) for one, fits in rows]
    titles = ["queue", "offset", "log offset", "body", "key", "stored", "consumed by"]
    right = {1, 2}
    wide = [max([columns(title), *(columns(row[i]) for row in cells)]) for i, title in enumerate(titles)]
    wide[0], wide[4], wide[6] = min(wide[0], 34), min(wide[4], 34), min(wide[6], 34)
    shown = [0, 1, 2, 3, 4]
    for i in (5, 6):
        if sum(wide[j] + 2 for j in [*shown, i]) - 2 <= width:
            shown.append(i)
    spare = width - sum(wide[j] + 2 for j in shown) + 2
    if spare < 0:
        wide[4] = max(8, wide[4] + spare)
    for row in [titles, *cells]:
        parts = [
            " " * max(0, wide[i] - columns(row[i])) + row[i] if i in right else fitted(row[i], wide[i]) for i in shown
        ]
        yield "  ".join(parts).rstrip()


def _cells(one: LostMessage, fits: tuple[str, ...], when: str) -> list[str]:
    key = one.keys or one.unique_key or " ".join(fits) or (f"{many(len(one.key_hashes), 'hash', 'hashes')}")
    time = one.indexed_time if one.store_timestamp is None else one.store_timestamp
    state = "mended" if one.mended and when == "repair" else one.body
    return [
        f"{one.topic}/{one.queue_id}".translate(_CONTROLS),
        f"{one.queue_offset:,}",
        "" if one.offset is None else f"{one.offset:,}",
        state,
        key.translate(_CONTROLS),
        "" if time is None else time_text(time),
        "not known" if one.consumed_by is None else ", ".join(one.consumed_by).translate(_CONTROLS),
    ]


_CONTROLS = dict.fromkeys((*range(32), *range(127, 160)), "·")
