"""`rmqstore du`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqstore.cli.filters import Filters, note_no_message, note_unknown_topics
from rmqstore.cli.metrics import Metrics, metrics_option, of_usage
from rmqstore.cli.options import command
from rmqstore.cli.output import Output
from rmqstore.cli.quantities import bytes_text, columns, fitted, many
from rmqstore.errors import NotAStore

if TYPE_CHECKING:
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.views.usage import Usage

DIMENSIONS = ("topic", "queue", "tag", "host", "day")
_TOP = 10
_TITLES = {"topic": "topic", "queue": "queue", "tag": "tag", "host": "producer host", "day": "day (UTC)"}


@command(
    "du",
    report=True,
    filters=True,
    work=True,
    examples=(
        "rmqstore du /data/rocketmq/store --by topic --top 20",
        "rmqstore du /data/rocketmq/store --by day --topic Order",
        "rmqstore du /data/rocketmq/store --since today --json | jq '.by.host'",
    ),
)
@click.option(
    "--by", multiple=True, type=click.Choice(DIMENSIONS), help="Count by this (may be repeated; default: by each)."
)
@click.option(
    "--top",
    type=click.IntRange(1),
    metavar="N",
    help="Show only the N largest rows, but all days (default: 10 in text, all in JSON).",
)
@metrics_option
def du(
    out: Output,
    store: Path,
    config: BrokerConfig,
    by: tuple[str, ...],
    top: int | None,
    metrics: Path | None,
    filters: Filters,
    jobs: int | None,
    max_rate: int | None,
) -> int:
    """Count messages and bytes per topic, queue, tag, producer host and day (UTC).

    Counts every message of the log whose record is valid, also those that consumers no longer see. Bytes include the
    whole record. Bodies are not checked: `rmqstore verify` finds damaged ones. Damaged parts and missing files are
    skipped and named on stderr; the exit code is then 1.
    """
    from rmqstore.cli.dump import tell_damage
    from rmqstore.files.store import open_store
    from rmqstore.scan.window import ScanOptions
    from rmqstore.scan.workers import jobs_or_default
    from rmqstore.views.dump.messages import Damage, logs_of
    from rmqstore.views.usage import usage

    opened = open_store(store, config)
    logs = logs_of(opened)
    if not logs and not (opened.commitlog or opened.dledger):
        raise NotAStore(f"{store} has no log", "name a store, or its commitlog/")
    live = opened.lock_state().held
    measured = Metrics(out, metrics, "du", store)
    if live:
        out.note("note: a broker is running on this store; the numbers change")
    selection = filters.selection()
    note_unknown_topics(out, opened, filters.topics, selection.queues)
    wanted = tuple(d for d in DIMENSIONS if not by or d in by)
    damage = Damage(live=live)
    options = ScanOptions(crc=False, drop_cache=live, max_rate=max_rate or 0)
    with out.progress("du", sum(log.queue.bytes_on_disk for log in logs)) as progress:
        found = usage(
            opened,
            wanted,
            selection,
            jobs=jobs_or_default(jobs),
            options=options,
            damage=damage,
            progress=progress.add,
        )
    measured.write(of_usage(found), 1 if damage else 0)
    if out.as_json:
        out.report(found.to_json(str(store), top))
    else:
        out.lines(_text(found, str(store), wanted, top or _TOP, out.width))
    if not found.messages:
        note_no_message(out, selection, logs)
    return tell_damage(out, damage)


def _text(found: Usage, store: str, dimensions: tuple[str, ...], top: int, width: int) -> Iterator[str]:
    yield f"{store}: {many(found.messages, 'message')}, {bytes_text(found.bytes)}"
    for dimension in dimensions:
        rows = found.rows(dimension)
        shown = rows if dimension == "day" else rows[:top]
        yield ""
        if not rows:
            yield f"by {dimension}: no messages"
            continue
        labels = ["(none)" if r[dimension] is None else _printable(str(r[dimension])) for r in shown]
        name = max(len(_TITLES[dimension]) + 3, min(max(map(columns, labels)), width - 46, 48))
        bar = max(0, min(30, width - name - 37))
        biggest = max(r["bytes"] for r in rows) or 1
        yield f"{'by ' + _TITLES[dimension]:<{name}} {'messages':>12} {'bytes':>11} {'share':>6}"
        for label, row in zip(labels, shown, strict=True):
            share = row["bytes"] / found.bytes if found.bytes else 0
            line = f"{fitted(label, name)} {row['messages']:>12,} {bytes_text(row['bytes']):>11} {share:>6.1%}"
            yield f"{line}  {_bar(row['bytes'] / biggest, bar)}".rstrip()
        if len(shown) < len(rows):
            rest = many(len(rows) - len(shown), f"more {_TITLES[dimension]}")
            yield f"… and {rest} (--top {len(rows)} shows all)"


_EIGHTHS = " ▏▎▍▌▋▊▉"


def _bar(share: float, width: int) -> str:
    eighths = round(share * width * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "·" for c in text)
