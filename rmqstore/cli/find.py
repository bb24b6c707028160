"""`rmqstore find`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import columns, fitted, in_words, many, time_text, title
from rmqstore.cli.shared.filters import Filters, note_unknown_topics
from rmqstore.cli.shared.options import Work, command, gathered
from rmqstore.cli.shared.reading import note_live, refuse_without_log, tell_damage
from rmqstore.errors import UsageError
from rmqstore.formats.properties import SCHEDULE_TOPIC, TIMER_TOPIC

if TYPE_CHECKING:
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.messages.rows import BodyStyle
    from rmqstore.views.find.message_status import MessageStatus
    from rmqstore.views.find.related import Lifecycle
    from rmqstore.views.find.search import Answer, Trace
    from rmqstore.views.lookup import Found

_BODIES = ("text", "json", "hex", "base64")
_GROUPS = 8
_TRACES = 20
_STATES = {
    "damaged": "the record there is damaged",
    "expired": "its log file has expired",
    "gone": "the log ends before it",
}
_OUTCOMES = {
    "committed": "committed (see below)",
    "rolled-back": "rolled back: consumers do not get it",
    "undecided": "neither committed nor rolled back",
    "checked-again": "undecided: the broker asked the producer, then stored the message again",
    "checked-too-often": "given up: the producer never decided",
    "not-known": "unknown: there are too many operation messages to search",
    "delivered": "delivered (see below)",
    "waiting": "not delivered yet",
}
_RELATIONS = {
    "half": "half message",
    "op": "end of transaction",
    "checked-too-often": "given up as",
    "delayed": "delayed as",
    "timer": "timed as",
    "retry": "retried as",
    "dlq": "dead letter",
    "original": "original",
    "real": "delivered as",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of `find`."""

    grep: str
    limit: int
    read_log: bool
    index_only: bool
    body: str | None

    @property
    def depth(self) -> str:
        """Whether to read the log."""
        return "always" if self.read_log else "never" if self.index_only else "if-needed"


@command(
    "find",
    report=True,
    filters=True,
    work=True,
    examples=(
        "rmqstore find /data/rocketmq/store ORDER-123",
        "rmqstore find /data/rocketmq/store 7F00000100002A9F000000000002C297 --json",
        "rmqstore find /data/rocketmq/store --grep 'order.?123' --topic Order --since -2h",
    ),
)
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
@click.option("--grep", metavar="REGEX", default="", help="Only messages whose body or properties contain this.")
@click.option(
    "--limit", type=click.IntRange(1), default=1000, metavar="N", help="Show at most N messages (default 1000)."
)
@click.option("--read-log", is_flag=True, help="Read the log even if the index has an answer, which may be incomplete.")
@click.option("--index-only", is_flag=True, help="Never read the log, even if ids and index have no answer.")
@click.option("--body", type=click.Choice(_BODIES), help="Show bodies, in this form (default: not shown).")
@gathered("asked", Asked)
def find(
    out: Output,
    store: Path,
    config: BrokerConfig,
    texts: tuple[str, ...],
    filters: Filters,
    asked: Asked,
    work: Work,
) -> int:
    """Find messages, and show whether consumers get them.

    TEXT is a key, a unique id, an offset message id or TOPIC/QUEUE/OFFSET; several are allowed. Ids and index files
    give an answer at once; for the rest, find reads the log, and says so. It shows for each message: its record, its
    queue entry, its index entries, the groups that have consumed it, and the messages that a delay, a timer, a
    transaction or a retry made of it. Exit code 1: nothing was found.
    """
    from rmqstore.files.store import open_store
    from rmqstore.messages.rows import BodyStyle
    from rmqstore.scan.window import ScanOptions
    from rmqstore.scan.workers import jobs_or_default
    from rmqstore.views.find.search import Means, Question, search

    if asked.read_log and asked.index_only:
        raise UsageError("--read-log and --index-only exclude each other", "leave one of them out")
    if asked.grep and asked.index_only:
        raise UsageError("--grep needs the log, which --index-only leaves out", "leave one of them out")
    if filters.queues:
        raise UsageError("--queue does not apply to find", "use --topic, or TOPIC/QUEUE/OFFSET as TEXT")
    opened = open_store(store, config)
    refuse_without_log(opened)
    live = note_live(out, opened, "messages that it stores from now on are not found")
    note_unknown_topics(out, opened, filters.topics)
    question = Question(
        tuple(dict.fromkeys(texts)),
        frozenset(filters.topics),
        filters.since,
        filters.until,
        asked.grep,
        asked.limit,
        asked.depth,
    )
    scan = ScanOptions(drop_cache=live, max_rate=work.max_rate)
    started = time.monotonic()
    with out.progress("find", opened.log_bytes) as progress:
        means = Means(jobs_or_default(work.jobs), scan, lambda said: out.note(f"note: {said}"), progress.add, live)
        answer = search(opened, question, means)
    found = list(_described(opened, answer))
    style = BodyStyle(asked.body, False)
    if out.as_json:
        rows = [_row(*one, style) for one in found]
        out.report(_report(store, answer, rows, time.monotonic() - started))
    else:
        out.lines(_text(found, answer, style, out.width))
    _tell(out, question.texts, answer)
    return 0 if found else 1


def _described(opened: Store, answer: Answer) -> Iterator[tuple[Found, MessageStatus, Lifecycle]]:
    from rmqstore.views.find.message_status import MessageStatuses
    from rmqstore.views.find.related import Lifecycles

    found = answer.sorted()
    if not found:
        return
    statuses = MessageStatuses(opened)
    lifecycles = Lifecycles(opened, statuses.index)
    for one in found:
        yield one, statuses.of(one), lifecycles.of(one, found)


def _tell(out: Output, texts: tuple[str, ...], answer: Answer) -> None:
    if not answer.found:
        out.note(f"nothing found{' for ' + ', '.join(texts) if texts else ''}")
    if answer.more:
        out.note(
            f"note: only the first {len(answer.found):,} messages: --limit shows more, --topic and --since narrow it"
        )
    if answer.open_texts:
        out.note(f"note: the log was not searched for {', '.join(answer.open_texts)}")
    if answer.searched == "time":
        out.note("note: found by the time in the id; --read-log also finds copies that were stored much later")
    tell_damage(out, answer.damage)


# --- JSON ------------------------------------------------------------------------------------------------------------


def _report(store: Path, answer: Answer, rows: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    return {
        "schema": "rmqstore.find/1",
        "store": str(store),
        "messages": rows,
        "traces": [_trace_row(trace) for _, trace in sorted(answer.traces.items())],
        "searched": answer.searched,
        "log_read": [{"start": start, "stop": stop} for start, stop in answer.read],
        "more": answer.more,
        "not_searched": list(answer.open_texts),
        "damaged_spans": answer.damage.count,
        "seconds": round(seconds, 3),
    }


def _trace_row(trace: Trace) -> dict[str, Any]:
    return {"offset": trace.offset, "topic": trace.topic, "key": trace.key, "state": trace.state}


def _row(found: Found, status: MessageStatus, lifecycle: Lifecycle, body: BodyStyle) -> dict[str, Any]:
    from rmqstore.messages.rows import message_row

    assert found.offset is not None
    row = message_row(found.message, found.offset, found.file, found.sound, body)
    consumers = None
    if status.consumers is not None:
        consumers = [
            {"group": p.group, "offset": p.offset, "consumed": p.has_consumed(found.message.queue_offset)}
            for p in status.consumers
        ]
    entry, index = status.queue_entry, status.index
    return row | {
        "record": status.record,
        "queue_entry": {"state": entry.state, "offset": entry.offset, "tag_matches": entry.tag_matches},
        "index": {"state": index.state, "present": list(index.present), "missing": list(index.missing)},
        "consumers": consumers,
        "outcome": lifecycle.outcome or None,
        "due": lifecycle.due,
        "related": [
            {
                "relation": r.relation,
                "topic": r.found.message.topic_text,
                "queue_id": r.found.message.queue_id,
                "queue_offset": r.found.message.queue_offset,
                "offset": r.found.offset,
                "store_timestamp": r.found.message.store_timestamp,
            }
            for r in lifecycle.related
        ],
    }


# --- text ------------------------------------------------------------------------------------------------------------


def _text(
    found: list[tuple[Found, MessageStatus, Lifecycle]], answer: Answer, body: BodyStyle, width: int
) -> Iterator[str]:
    for number, (one, status, lifecycle) in enumerate(found):
        if number:
            yield ""
        yield from _place(one, "", width)
        yield f"  record       {_record(status)}"
        yield f"  queue entry  {_queue_entry(one, status)}"
        yield f"  index        {_index(one, status)}"
        yield from _consumers(one, status)
        if lifecycle.outcome:
            due = f" (due {time_text(lifecycle.due)})" if lifecycle.due else ""
            label = title("transaction") if lifecycle.due is None else title("delay")
            yield f"  {fitted(label, 13)}{_OUTCOMES[lifecycle.outcome]}{due}"
        for related in lifecycle.related:
            yield from _place(related.found, f"    {_RELATIONS[related.relation]:<19}", width)
        if body.style:
            yield from _body(one, body)
    traces = [trace for offset, trace in sorted(answer.traces.items()) if offset not in answer.found]
    if traces and found:
        yield ""
    for trace in traces[:_TRACES]:
        yield f"{trace.topic}   log offset {trace.offset:,}   {_STATES[trace.state]}"
        yield f"  index        has an entry for {trace.key} here"
    if len(traces) > _TRACES:
        yield f"… and {many(len(traces) - _TRACES, 'more index entry', 'more index entries')} (--json)"


def _place(found: Found, label: str, width: int) -> Iterator[str]:
    """Where a message is, in one line if it fits, else in two."""
    message = found.message
    queue = f"{label}{message.topic_text}/{message.queue_id} offset {message.queue_offset:,}"
    log = f"log offset {found.offset:,}   stored {time_text(message.store_timestamp)}"
    if columns(queue) + 3 + len(log) <= width:
        yield f"{queue}   {log}"
    else:
        yield queue
        yield f"{' ' * max(2, len(label))}{log}"


def _record(status: MessageStatus) -> str:
    return "sound (body CRC matches)" if status.record == "sound" else f"damaged: {in_words(status.record)}"


def _queue_entry(found: Found, status: MessageStatus) -> str:
    entry = status.queue_entry
    if entry.state == "present":
        tag = {True: ", tag matches", False: ", but with another tag", None: ""}[entry.tag_matches]
        return f"present{tag}"
    return {
        "missing": "missing: consumers do not get this message",
        "wrong": f"wrong: it points to log offset {entry.offset or 0:,}",
        "not-wanted": "none: prepared and rolled back messages have none",
        "unreadable": "unknown: the RocksDB of the queues cannot be read",
        "not-here": "unknown: only a part of the store is here",
    }[entry.state]


def _index(found: Found, status: MessageStatus) -> str:
    index = status.index
    if index.state == "present":
        return f"present ({_keys(found, index.present)})"
    if index.state == "partly":
        return f"incomplete: {_keys(found, index.missing)} missing"
    return {
        "missing": "missing: queries by key or id do not find this message",
        "not-wanted": "none: the message has no key",
        "no-index": "no index files",
        "not-here": "unknown: only a part of the store is here",
    }[index.state]


def _keys(found: Found, keys: tuple[str, ...]) -> str:
    """Keys in words: `key`, `2 keys`, `unique id`."""
    from rmqstore.formats import properties

    unique = properties.parse_properties(found.message.properties).get(properties.UNIQ_KEY)
    own = [key for key in keys if key != unique]
    words = [many(len(own), "key") if len(own) > 1 else "key"] if own else []
    return ", ".join([*words, *(["unique id"] if unique in keys else [])])


def _consumers(found: Found, status: MessageStatus) -> Iterator[str]:
    if status.consumers is None:
        yield "  consumers    unknown: the progress of consumer groups cannot be read"
        return
    if found.message.topic_text in (SCHEDULE_TOPIC, TIMER_TOPIC):
        return  # only the broker reads it
    if not status.consumers:
        yield "  consumers    no group has consumed this topic"
        return
    offset = found.message.queue_offset
    for number, progress in enumerate(status.consumers[:_GROUPS]):
        name = "" if number else title("consumers")
        if progress.has_consumed(offset):
            yield f"  {fitted(name, 13)}{progress.group} has consumed it (at {progress.offset:,})"
        else:
            yield f"  {fitted(name, 13)}{progress.group} has not consumed it (at {progress.offset:,})"
    if len(status.consumers) > _GROUPS:
        yield f"  {'':<13}… and {many(len(status.consumers) - _GROUPS, 'more group')} (--json)"


def _body(found: Found, style: BodyStyle) -> Iterator[str]:
    from rmqstore.cli.get import body_lines
    from rmqstore.messages.rows import message_row

    row = message_row(found.message, found.offset or 0, found.file, found.sound, style)
    compressed = bool(found.message.sys_flag & 1)
    yield from body_lines(row, found.message.body_length, compressed=compressed)
