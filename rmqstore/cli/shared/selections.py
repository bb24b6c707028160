"""What the filters of a command select; errors and notes about them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from rmqstore.cli.shared.filters import FilterOptions
from rmqstore.cli.shared.topics import parse_queues
from rmqstore.errors import UsageError
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
    from rmqstore.cli.printing.output import Output
    from rmqstore.views.dump.messages import Log
    from rmqstore.views.dump.selection import Selection


def selection_of(filters: FilterOptions) -> Selection:
    """Return the records that filters select. Errors: click.BadParameter for an invalid queue."""
    from rmqstore.views.dump.selection import Selection

    ids, pairs = parse_queues(filters.queues)
    texts = frozenset(filters.tags), frozenset(filters.keys)
    return Selection(frozenset(filters.topics), ids, pairs, *texts, since=filters.since, until=filters.until)


def refuse_filters(what: str, selection: Selection, fitting: Collection[str]) -> None:
    """Errors: UsageError for a filter that does not apply to what is dumped."""
    for name in _filters(selection):
        if name not in fitting:
            raise UsageError(
                Text("--{name} does not apply to --what {what}", name=name, what=what),
                Text("leave it out, or dump messages"),
            )
    if what == "index" and (bool(selection.keys) != bool(selection.topics)):
        raise UsageError(Text("an index entry has only a hash of topic and key"), Text("give both --topic and --key"))


def _filters(selection: Selection) -> list[str]:
    """Return the names of the filters that are given."""
    given = {
        "topic": selection.by_queue,
        "tag": bool(selection.tags),
        "key": bool(selection.keys),
        "msg-id": bool(selection.msg_ids),
        "since": selection.since is not None or selection.until is not None,
        "from": selection.start is not None or selection.stop is not None,
    }
    return [name for name, is_given in given.items() if is_given]


def refuse_with_positions(out: Output, selection: Selection) -> None:
    """Errors: UsageError for options that do not apply to --positions, which shows the whole log."""
    others = {"limit": selection.limit is not None, "reverse": selection.reverse, "format hex": out.format == "hex"}
    for name in [*_filters(selection), *(name for name, is_given in others.items() if is_given)]:
        raise UsageError(Text("--{name} does not apply to --positions", name=name), Text("leave it out"))


def note_log_offsets(out: Output, selection: Selection) -> None:
    """Warn if --from or --to, which are log offsets for messages, may be meant as queue offsets."""
    if selection.by_queue and (selection.start is not None or selection.stop is not None):
        words = Text(
            "warning: --from and --to are log offsets here; to use queue offsets, add --what consumequeue, which shows "
            "the log offset of each message as commitlog_offset"
        )
        out.note(words)


def note_no_message(out: Output, selection: Selection, logs: Iterable[Log], word: str = "message") -> None:
    """Write to stderr that no log has a matching message."""
    ends = Text("{log} offsets {start:,} to {stop:,}")
    places = [ends.format(log=one.name, start=one.queue.start, stop=one.queue.stop) for one in logs]
    note_no_match(out, word, selection, places)


def note_no_match(out: Output, word: str, selection: Selection, places: Iterable[str]) -> None:
    """Write to stderr that nothing was found, and what was searched."""
    wanted, where = joined(_words(selection)), joined(places)
    words = Text("note: no {word} found; searched {where}")
    if wanted:
        words = Text("note: no {word} found; searched {where} for {wanted}")
    if not where:
        words = Text("note: no {word} found: the store has no log with any")
    out.note(words.format(word=word, where=where, wanted=wanted))


def _words(selection: Selection) -> Iterator[str]:
    from rmqstore.cli.printing.quantities import time_text

    queues = [*map(str, sorted(selection.queue_ids)), *(f"{topic}/{i}" for topic, i in sorted(selection.queues))]
    for name, values in (
        ("topic", sorted(selection.topics)),
        ("queue", queues),
        ("tag", sorted(selection.tags)),
        ("key", sorted(selection.keys)),
        (Text("message id"), sorted(selection.msg_ids)),
    ):
        if values:
            yield Placed("{name} {values}", name=name, values=joined(values, " or "))
    if selection.since is not None:
        yield Text("stored at or after {since}", since=time_text(selection.since))
    if selection.until is not None:
        yield Text("stored before {until}", until=time_text(selection.until))
    if selection.start is not None:
        yield Text("offset at or after {start:,}", start=selection.start)
    if selection.stop is not None:
        yield Text("offset before {stop:,}", stop=selection.stop)
