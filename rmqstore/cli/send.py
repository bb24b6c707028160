"""`rmqstore send`."""

from __future__ import annotations

import csv
import io
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import click
import orjson

from rmqstore.cli.printing.output import Output, refuse_inside
from rmqstore.cli.printing.quantities import many, printable
from rmqstore.cli.shared.acl import access_keys
from rmqstore.cli.shared.filters import FilterOptions
from rmqstore.cli.shared.messages import tell_damage
from rmqstore.cli.shared.options import (
    FILE,
    PATH,
    SOURCE,
    command,
    config_option,
    gathered,
    read_config,
    text_filters,
    topic_map,
)
from rmqstore.cli.shared.reading import note_live, open_named, refuse_without_log
from rmqstore.cli.shared.selections import selection_of
from rmqstore.cli.shared.topics import note_unknown_topics
from rmqstore.errors import BadRow, UsageError
from rmqstore.files.disk import is_snapshot_address
from rmqstore.formats.text import as_written
from rmqstore.texts import Placed, Text

if TYPE_CHECKING:
    from rmqstore.append.sending.client import Cluster, Wishes
    from rmqstore.append.sending.send import Numbered, Sendings, TopicResult
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.views.dump.messages import Skipped
    from rmqstore.views.dump.selection import Selection
    from rmqstore.views.lookup import Place

_LARGEST_LIST = 256 << 20
_SHOWN = 10
_PLACE = ("queue_id", "queue_offset")
_COUNTS = ("messages", "sent", "sent_before", "sent_again", "refused", "unknown", "unsent")


@dataclass(frozen=True, slots=True)
class To:
    """The cluster, and how to reach it."""

    namesrv: str
    rocketmq_home: Path | None
    java: Path | None
    acl: Path | None
    wait: int

    def cluster(self) -> Cluster:
        """Return the cluster, with the keys of --acl or of the installation's conf/tools.yml. Errors: NotReadable."""
        from rmqstore.append.sending.client import Cluster

        if self.rocketmq_home is None:
            raise UsageError(
                Text("--rocketmq-home is missing"), Text("give a RocketMQ installation, or set ROCKETMQ_HOME")
            )
        tools = self.rocketmq_home / "conf" / "tools.yml"
        keys = ("", "")
        if self.acl is not None or tools.is_file():
            keys = access_keys(self.acl or tools, required=self.acl is not None)
        return Cluster(self.namesrv, self.rocketmq_home, self.java, *keys, self.wait)


@dataclass(frozen=True, slots=True)
class What:
    """Which messages to send, beyond the shared filters."""

    limit: int | None
    listed: Path | None
    dead_letters: str | None
    delayed: bool
    timed: bool
    half: bool
    topic_map: tuple[str, ...]

    def selection(self, filters: FilterOptions) -> Selection:
        """Return the messages that all filters together select. Errors: UsageError."""
        from rmqstore.formats.properties import dlq_topic

        if self.dead_letters is not None:
            if filters.topics:
                raise UsageError(Text("--dead-letters and --topic exclude each other"), Text("leave one of them out"))
            filters = replace(filters, topics=(dlq_topic(self.dead_letters),))
        return selection_of(filters)

    def wishes(self, selection: Selection) -> Wishes:
        """Return which kinds of messages are wanted, and where they go."""
        from rmqstore.append.sending.client import DELAYED, HALF, TIMED, Wishes

        kinds = {DELAYED: self.delayed, TIMED: self.timed, HALF: self.half}
        wanted = frozenset(kind for kind, asked in kinds.items() if asked)
        return Wishes(wanted, topic_map(self.topic_map), selection.topics)


@dataclass(frozen=True, slots=True)
class SendOptions:
    """How to send."""

    journal: Path | None
    rate: float | None
    dry_run: bool


@command(
    "send",
    store=False,
    report=True,
    filters=True,
    examples=(
        "rmqstore send /data/rocketmq/store --topic Order --since today --namesrv 10.0.0.1:9876 --dry-run",
        "rmqstore send /backup/store --list lost.csv --namesrv 10.0.0.1:9876 --journal lost.journal --rate 500",
        "rmqstore send /backup/repo::broker-a --topic Order --namesrv 10.0.0.1:9876 --journal order.journal",
    ),
)
@click.argument("source", type=SOURCE, metavar="SOURCE")
@click.option("--namesrv", required=True, metavar="HOST:PORT", help="Name servers of the cluster (several with ';').")
@click.option(
    "--rocketmq-home",
    type=PATH,
    envvar="ROCKETMQ_HOME",
    metavar="DIR",
    help="A RocketMQ installation, 4.3 or later: its lib/ has the client (default: $ROCKETMQ_HOME).",
)
@click.option(
    "--java",
    type=FILE,
    metavar="FILE",
    help="The java of a JDK, 8 or later (default: that of $JAVA_HOME, or the first in PATH).",
)
@click.option(
    "--acl", type=FILE, metavar="FILE", help="File with accessKey and secretKey (default: conf/tools.yml of DIR)."
)
@click.option(
    "--wait",
    type=click.IntRange(0, 86400),
    default=30,
    metavar="SECONDS",
    help="Wait up to this long for a cluster that is not available, or busy (default: 30).",
)
@config_option()
@text_filters
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N messages that the filters select.")
@click.option(
    "--list",
    "listed",
    type=FILE,
    metavar="FILE",
    help="Only the messages in this list of `rmqstore lost` (.ndjson or .csv), as far as SOURCE has them.",
)
@click.option(
    "--dead-letters", metavar="GROUP", help="The dead letters of this group, to the topics that they come from."
)
@click.option(
    "--delayed",
    is_flag=True,
    help="Also messages with a delay level: their delay begins again, even if they were delivered long ago.",
)
@click.option(
    "--timed",
    is_flag=True,
    help="Also timed messages: with their due time; delivered at once if it has passed, or by a 4.x broker.",
)
@click.option(
    "--half",
    is_flag=True,
    help="Also half messages: as ordinary ones, whether their transaction was committed, rolled back or neither.",
)
@click.option("--topic-map", multiple=True, metavar="OLD=NEW", help="Send messages of OLD to NEW (may be repeated).")
@click.option("--journal", type=FILE, metavar="FILE", help="File that notes what was acknowledged; created if missing.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="Send at most N messages a second.")
@click.option(
    "--dry-run", is_flag=True, help="Count messages per topic, and ask the cluster for the topics; send none."
)
@gathered("to", To)
@gathered("what", What)
@gathered("how", SendOptions)
def send(
    out: Output, source: Path, broker_conf: Path | None, filters: FilterOptions, to: To, what: What, how: SendOptions
) -> int:
    """Send messages of a store, of a snapshot, or of a file of `rmqstore export`, to a running cluster.

    RocketMQ's own Java client sends them, in the order of SOURCE; messages of one queue go to one queue. Keys, tags,
    unique id and properties of users are kept; the properties rmqstore_store, rmqstore_queue, rmqstore_offset,
    rmqstore_id and rmqstore_store_time tell where a message was. A topic that does not exist is not created. Fillers,
    retries and system topics are never sent.

    The journal notes every acknowledgement. After an interruption, run the same command again: what was acknowledged is
    not sent again. A message is unknown if no answer came: it may be in the cluster. The next run sends it again, and
    says so. Exit code 0: every message was acknowledged.
    """
    from rmqstore.append.sending.client import Client
    from rmqstore.append.sending.send import Sending, SendJournal, count_rows, send_rows
    from rmqstore.views.dump.messages import Skipped

    if how.journal is None and not how.dry_run:
        raise UsageError(
            Text("--journal is missing"), Text("without it, a second run would send everything again; or --dry-run")
        )
    config = read_config(out, broker_conf)
    selection = what.selection(filters)
    is_store = source.is_dir() or is_snapshot_address(source)
    if source.is_dir():
        out.keep_out_of(source)
        if how.journal is not None:
            refuse_inside(how.journal, source)
    sending = Sending(str(source.absolute()), what.wishes(selection), how.rate or 0)
    wanted = None if what.listed is None else _read_list(what.listed)
    damage = Skipped()
    rows = _of_store(out, source, config, selection, damage) if is_store else _of_file(source, selection)
    if wanted is not None:
        rows = _only(rows, wanted)
    if what.limit is not None:
        rows = itertools.islice(rows, min(what.limit, sys.maxsize))
    journal = None
    try:
        # a source that cannot be read is refused before a journal is created
        rows = itertools.chain(list(itertools.islice(rows, 1)), rows)
        if how.journal is not None:
            about = {"source": sending.source, "cluster": to.namesrv}
            journal = SendJournal(how.journal, about, read_only=how.dry_run)
        with Client(to.cluster()) as client, out.progress("send", unit=Text(" messages")) as progress:
            if how.dry_run:
                found = count_rows(rows, client, journal, sending)
            else:
                assert journal is not None
                found = send_rows(rows, client, journal, sending, progress.add)
            client.quit()
    except BadRow as error:
        raise BadRow(error.message, Text("correct the line, and run the same command again")) from error
    finally:
        if journal is not None:
            journal.close()
    not_there = sum(wanted.values()) if wanted is not None else 0
    _tell(out, source, to, how, found, not_there)
    skipped = tell_damage(out, damage)
    if how.dry_run:
        wrong = found.refused or any(topic.queues == 0 for topic in found.topics.values())
    else:
        wrong = found.refused or found.unknown or (found.unsent and not found.ended)
    if wrong or not_there or skipped:
        return 1
    return 4 if found.ended else 0


# --- the source ------------------------------------------------------------------------------------------------------


def _of_store(
    out: Output, source: Path, config: BrokerConfig, selection: Selection, damage: Skipped
) -> Iterator[Numbered]:
    """Yield the messages of a store or a snapshot, numbered by their log offset.

    Errors: NotAStore, when the first one is taken.
    """
    from rmqstore.append.sending.send import Numbered
    from rmqstore.files.sources import LOG_ONLY
    from rmqstore.scan.window import ScanOptions
    from rmqstore.views.dump.messages import CHUNK, read_messages
    from rmqstore.views.export import ExportOptions

    opened = open_named(source, config, LOG_ONLY)
    refuse_without_log(opened)
    damage.live = note_live(out, opened, Text("what it writes from now on may be missing"))
    note_unknown_topics(out, opened, selection.topics, selection.queues)
    options = ExportOptions(positions=True, scan=ScanOptions(drop_cache=damage.live, chunk=CHUNK))
    for rows in read_messages(opened, "messages", options.job(selection, "text"), damage):
        for row in rows:
            place = Text("{source}: message at {offset}", source=source, offset=row["offset"])
            yield Numbered(int(row["offset"]), place, row)


def _of_file(path: Path, selection: Selection) -> Iterator[Numbered]:
    """Yield the selected rows of an exported file, with messages numbered from 1. Errors: as `rows_of`."""
    from rmqstore.append.exported_files import rows_of
    from rmqstore.append.sending.client import messages_in
    from rmqstore.append.sending.send import Numbered

    number = 1
    for where, row in rows_of(path):
        if _selects(selection, row):
            yield Numbered(number, where, row)
        number += messages_in(row)


def _selects(selection: Selection, row: Any) -> bool:
    """Return whether a row of an export matches; one with a wrong type does, and is refused later, with its line."""
    from rmqstore.messages.fields import rebuilt

    topic, queue_id, stored = row.get("topic"), row.get("queue_id"), row.get("store_timestamp")
    if not isinstance(topic, str) or not isinstance(queue_id, int) or not isinstance(stored, int):
        return True
    if selection.by_queue and not selection.wants_queue(topic, queue_id):
        return False
    if selection.since is not None and stored < selection.since:
        return False
    if selection.until is not None and stored >= selection.until:
        return False
    if not selection.by_text:
        return True
    pairs = {"TAGS": row.get("tags"), "KEYS": row.get("keys")}
    return selection.wants_texts(rebuilt({name: str(value) for name, value in pairs.items() if value}), "")


def _read_list(path: Path) -> dict[Place, bool]:
    """Return the places (topic, queue, queue offset) in a list of `lost`; the values become False when they are found.

    Errors: NotReadable, BadRow.
    """
    from rmqstore.files.files import read_given

    text = read_given(path, _LARGEST_LIST).decode("utf-8", "surrogateescape")
    rows: list[tuple[int, Any]]
    if path.suffix.lower() == ".csv":
        try:
            rows = list(enumerate(csv.DictReader(io.StringIO(text)), 2))
        except csv.Error as error:
            raise BadRow(
                Text("{path} is not CSV: {error}", path=path, error=error), Text("give a list of `rmqstore lost`")
            ) from error
    else:
        rows = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    found: dict[Place, bool] = {}
    for number, row in rows:
        try:
            values = orjson.loads(row) if isinstance(row, str) else row
            queue_id, offset = (-number if values[name] in (None, "") else int(values[name]) for name in _PLACE)
            topic = str(values["topic"])
            found[topic if isinstance(row, str) else as_written(topic), queue_id, offset] = (
                True  # without a place, it is not in the source
            )
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadRow(
                Text("{path}:{number} is not a row of `rmqstore lost`", path=path, number=number),
                Text("give its --format ndjson or csv"),
            ) from error
    return found


def _only(rows: Iterator[Numbered], wanted: dict[Place, bool]) -> Iterator[Numbered]:
    """Yield the rows at wanted places, and mark those as found."""
    for one in rows:
        place = one.row.get("topic"), one.row.get("queue_id"), one.row.get("queue_offset")
        if _is_place(place) and place in wanted:
            wanted[place] = False
            yield one


def _is_place(place: tuple[Any, Any, Any]) -> TypeGuard[Place]:
    topic, queue_id, queue_offset = place
    return isinstance(topic, str) and isinstance(queue_id, int) and isinstance(queue_offset, int)


# --- the answer ------------------------------------------------------------------------------------------------------


def _tell(out: Output, source: Path, to: To, how: SendOptions, found: Sendings, not_there: int) -> None:
    if out.as_json:
        topics = {
            name: {
                "messages": one.messages,
                "sent": one.sent,
                "exists": None if one.queues is None else one.queues > 0,
                "queues": one.queues,
            }
            for name, one in sorted(found.topics.items())
        }
        out.report(
            {
                "schema": "rmqstore.send/1",
                "source": str(source),
                "name_servers": to.namesrv,
                "journal": None if how.journal is None else str(how.journal),
                "dry_run": how.dry_run,
                **{name: getattr(found, name) for name in _COUNTS},
                "not_in_source": not_there,
                "left_out": dict(found.left_out),
                "topics": topics,
                "problems": found.problems,
                "ended": found.ended or None,
            }
        )
        return
    out.lines(_text(to, how, found, not_there), wrap=True)


def _text(to: To, how: SendOptions, found: Sendings, not_there: int) -> Iterator[str]:
    before: str = ""
    if found.sent_before:
        before = Text("; {count:,} were sent by earlier runs", count=found.sent_before)
    if how.dry_run:
        left = many(found.messages - found.sent_before, "message")
        planned = Text("{messages} to send to {servers}{before}. Nothing was sent (--dry-run).")
        yield planned.format(messages=left, servers=to.namesrv, before=before)
        for name, topic in sorted(found.topics.items()):
            messages = many(topic.messages, "message")
            yield Placed("  {name}: {messages}, {state}", name=printable(name), messages=messages, state=_state(topic))
    else:
        sent = many(found.sent, "message")
        yield Text("Sent {messages} to {servers}{before}", messages=sent, servers=to.namesrv, before=before)
    if found.sent_again:
        again = many(found.sent_again, "message")
        yield Text("Sent again: {messages} of unknown fate: the cluster may have two copies", messages=again)
    if found.refused:
        yield Text("Refused: {messages}", messages=many(found.refused, "message"))
        yield from _reasons(found, "refused")
    if found.unknown:
        unknown = many(found.unknown, "message")
        yield Text("Unknown: {messages}: the cluster may have them. The next run sends them again.", messages=unknown)
        yield from _reasons(found, "unknown")
    if found.unsent:
        yield Text("Not sent: {messages}, and what follows", messages=many(found.unsent, "message"))
    if not_there:
        yield Text("Not in the source: {messages} of the list", messages=many(not_there, "message"))
    for kind, count in sorted(found.left_out.items()):
        words, option = _left_out(kind, count)
        left_out = Text("Left out: {words} ({option} sends them)") if option else Text("Left out: {words}")
        yield left_out.format(words=words, option=option)
    if found.ended:
        yield Text("Ended early: {ended}. Run the same command again to go on.", ended=printable(found.ended))


def _left_out(kind: str, count: int) -> tuple[str, str]:
    """Return the words for messages of a kind, and the option that sends them; "" if there is none."""
    return {
        "delayed": (many(count, "delayed message"), "--delayed"),
        "timed": (many(count, "timed message"), "--timed"),
        "half": (many(count, "half message"), "--half"),
        "dead letter": (many(count, "dead letter"), "--dead-letters"),
        "retry": (many(count, "message for a retry", "messages for a retry"), ""),
        "system": (many(count, "message of a system topic", "messages of system topics"), ""),
        "filler": (many(count, "filler"), ""),
    }[kind]


def _state(topic: TopicResult) -> str:
    if topic.queues is None:
        return Text("the cluster did not answer")
    return many(topic.queues, "queue") if topic.queues else Text("NO SUCH TOPIC in the cluster")


def _reasons(found: Sendings, state: str) -> Iterator[str]:
    reasons = [(count, reason) for (of, reason), count in found.reasons.most_common() if of == state]
    for count, reason in reasons[:_SHOWN]:
        yield Placed("  {count:,}: {reason}", count=count, reason=printable(reason))
    if len(reasons) > _SHOWN:
        yield Text("  … and {reasons}", reasons=many(len(reasons) - _SHOWN, "more reason"))
