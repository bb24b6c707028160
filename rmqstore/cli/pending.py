"""`rmqstore pending`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.lang import AsIs
from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import many, printable, time_text
from rmqstore.cli.shared.metrics import Metrics, Sample, metrics_option
from rmqstore.cli.shared.options import command
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.views.pending import Pending, Waiting

_SHOWN = 8  # rows of a kind, without -v
_WORDS = {
    "delayed": Text("Delayed, until the time of their level"),
    "timed": Text("Timed, until the time that their producer has set"),
    "half": Text("Half messages, until their producer commits or rolls back"),
    "pop": Text("Received by POP consumers, until they acknowledge or that time is over"),
    "retry": Text("In retry topics, until their group reads them again"),
    "unread": Text("Not read by their group"),
}


@command(
    "pending",
    report=True,
    examples=(
        "rmqstore pending /data/rocketmq/store",
        "rmqstore pending /data/rocketmq/store --group CG_orders --topic Order",
        "rmqstore pending /data/rocketmq/store --metrics /var/lib/node_exporter/rmqstore-pending.prom",
    ),
)
@click.option("--group", "groups", multiple=True, metavar="NAME", help="Only this group (may be repeated).")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Only this topic (may be repeated).")
@metrics_option
def pending(
    out: Output,
    store: Path,
    config: BrokerConfig,
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    metrics: Path | None,
) -> int:
    """Show which messages wait, for whom and until when.

    Delayed and timed messages, half messages without a decision, messages that POP consumers have received and not
    acknowledged, retries, and what each group has not read; of each the number, the store time of the oldest, and when
    the next is due. The topic is the one in which consumers will read the messages. Reads queues and positions, not the
    whole log. A group that has no offset in a topic is not known to read it. Exit code 4: a part could not be read.
    """
    from rmqstore.cli.shared.reading import note_live, open_named, refuse_part
    from rmqstore.views.pending import pending as look

    opened = open_named(store, config)
    refuse_part(opened, Text("name the whole store: its config/ has the offsets"))
    measured = Metrics(out, metrics, "pending", store)
    note_live(out, opened, Text("the numbers are changing"))
    with out.busy(Text("reading queues")):
        found = look(opened, frozenset(groups), frozenset(topics))
    code = 4 if found.unread else 0
    measured.write(_samples(found), code)
    out.answer(_document(store, found), _text(found, out.verbose), wrap=True)
    return code


def _document(store: Path, found: Pending) -> dict[str, Any]:
    return {
        "schema": "rmqstore.pending/1",
        "store": str(store),
        "totals": {row.kind.value: _times(row) for row in found.totals()},
        "waiting": [asdict(row) for row in found.listed()],
        "unread": found.unread,
    }


def _times(row: Waiting) -> dict[str, Any]:
    return {"messages": row.messages, "oldest": row.oldest, "next_due": row.next_due}


def _samples(found: Pending) -> Iterator[Sample]:
    for row in found.listed():
        labels = {"kind": row.kind.value, "topic": row.topic or "", "group": row.group or ""}
        yield Sample("rmqstore_pending_messages", row.messages, labels)
    for row in found.totals():
        yield Sample("rmqstore_pending_messages_total", row.messages, {"kind": row.kind.value})
        if row.oldest is not None:
            yield Sample("rmqstore_pending_oldest_timestamp_seconds", row.oldest / 1000, {"kind": row.kind.value})
        if row.next_due is not None:
            yield Sample("rmqstore_pending_next_due_timestamp_seconds", row.next_due / 1000, {"kind": row.kind.value})


def _text(found: Pending, verbose: int) -> Iterator[str]:
    rows = found.listed()
    if not rows:
        yield Text("Nothing waits.")
    for total in found.totals():
        own = [row for row in rows if row.kind is total.kind]
        if not own:
            continue
        what = _WORDS[total.kind.value]
        yield Placed(
            "{messages} {what}{times}", messages=many(total.messages, "message"), what=what, times=_when(total)
        )
        shown = own if verbose else own[:_SHOWN]
        yield from (_row(row) for row in shown)
        if len(shown) < len(own):
            yield Text("  … and {rows} (-v)", rows=many(len(own) - len(shown), "more row"))
    yield from (Text("not read: {why}", why=why) for why in found.unread)


def _row(row: Waiting) -> str:
    name: str = Text("topic not read one by one") if row.topic is None else AsIs(printable(row.topic))
    if row.group is not None:
        name = Text("{group} in {topic}", group=AsIs(printable(row.group)), topic=name)
    return Placed("  {name}: {count:,}{times}", name=name, count=row.messages, times=_when(row))


def _when(row: Waiting) -> str:
    words = []
    if row.oldest is not None:
        words.append(Text("oldest {time}", time=time_text(row.oldest)))
    if row.next_due is not None:
        words.append(Text("next due {time}", time=time_text(row.next_due)))
    return Placed(" ({words})", words=joined(words)) if words else ""
