"""`rmqstore compare`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import bytes_text, many, time_text
from rmqstore.cli.printing.sentences import queue_place
from rmqstore.cli.shared.options import FILE, SOURCE, WorkOptions, command
from rmqstore.cli.shared.reading import note_live, open_named
from rmqstore.errors import CouldNotCheck, UsageError
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.views.compare import ComparedRecord, Comparison, Messages, Side
    from rmqstore.views.fingerprint import Against

_LISTED = 20
_RANGES = 8


@command(
    "compare",
    report=True,
    work=True,
    examples=(
        "rmqstore compare /data/n0/store /data/n1/store",
        "rmqstore compare /data/rocketmq/store --fingerprint-out n0.fingerprint",
        "rmqstore compare /data/rocketmq/store --against n0.fingerprint --json",
    ),
)
@click.argument("other", type=SOURCE, required=False, metavar="[OTHER]")
@click.option(
    "--fingerprint-out", type=FILE, metavar="FILE", help="Write the fingerprint of STORE to FILE instead of comparing."
)
@click.option("--against", type=FILE, metavar="FILE", help="Compare STORE with the fingerprint of another store.")
def compare(
    out: Output,
    store: Path,
    config: BrokerConfig,
    other: Path | None,
    fingerprint_out: Path | None,
    against: Path | None,
    work: WorkOptions,
) -> int:
    """Compare two replicas record by record, at the same offsets: nodes of a DLedger group, or master and slave.

    Shows the first difference, and which messages are damaged, different or missing on one side. Old files that only
    one side still has are not compared. To compare stores of two hosts, write a fingerprint on one (preferably the one
    with the shorter log), copy that small file to the other, and use --against there. Exit code 0: equal; 1: different;
    4: equal as far as they could be read.
    """
    from rmqstore.files.store import while_files_expire

    if sum(value is not None for value in (other, fingerprint_out, against)) != 1:
        raise UsageError(Text("give exactly one of OTHER, --fingerprint-out FILE and --against FILE"))
    opened = open_named(store, config)
    note_live(out, opened, Text("only what its log contains now is compared"))
    if fingerprint_out is not None:
        return _write(out, opened, fingerprint_out, work)
    if against is not None:
        from rmqstore.views.fingerprint import compare_with, read_fingerprint

        theirs = read_fingerprint(against)
        with out.busy(Text("reading the log")):
            found = while_files_expire(opened, lambda s: compare_with(s, theirs, jobs=work.jobs))
        out.answer(found.to_json(), _against_lines(found))
        return _exit_code(found.equal, found.store, found.other)
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.views.compare import compare as run

    assert other is not None
    against_it = open_named(other, BrokerConfig(config.file_sizes()))
    with out.busy(Text("reading both logs")):
        answer = while_files_expire(
            opened,
            lambda s: while_files_expire(against_it, lambda o: run(s, o, jobs=work.jobs)),
        )
    out.answer(answer.to_json(), _lines(answer))
    return _exit_code(answer.equal, answer.store, answer.other)


def _exit_code(equal: bool, *sides: Side) -> int:
    """0 equal, 1 different, 4 if not everything could be read."""
    if not equal:
        return 1
    return CouldNotCheck.exit_code if any(side.unreadable for side in sides) else 0


def _write(out: Output, opened: Store, path: Path, work: WorkOptions) -> int:
    from rmqstore.cli.printing.output import json_bytes
    from rmqstore.files.store import while_files_expire
    from rmqstore.views.fingerprint import fingerprint

    target = Output(path=path).keep_out_of(opened.path)
    with out.busy(Text("reading the log")):
        made = while_files_expire(opened, lambda s: fingerprint(s, jobs=work.jobs))
    data = json_bytes(made.to_json()) + b"\n"
    with target.stream() as file:
        file.write(data)
    ranges, step, size = many(len(made.ranges), "range"), bytes_text(made.step), bytes_text(len(data))
    words = Text("{path}: {ranges} of {step}, {size}", path=path, ranges=ranges, step=step, size=size)
    document = {"schema": "rmqstore.fingerprint/1", "file": str(path), "ranges": len(made.ranges)}
    out.answer(document, [words], wrap=False)
    return 0


def _side_lines(label: str, side: Side) -> Iterator[str]:
    yield Placed("  {label:<7}{path}", label=label, path=side.path)
    count, start, stop = many(side.messages, "message"), side.min_offset, side.wrote
    yield Text("         {messages}, offsets {start:,} to {stop:,}", messages=count, start=start, stop=stop)
    if (d := side.dledger) is not None and d["last_index"] >= 0:
        committed = Text(", committed {index:,}", index=d["committed_index"]) if d["committed_index"] >= 0 else ""
        entries = Text("         index {first:,} to {last:,}, term {term:,}{committed}")
        yield entries.format(first=d["first_index"], last=d["last_index"], term=d["term"], committed=committed)
    if side.unreadable:
        yield Text("         the disk reported an error: not everything was read")
    if side.damaged:
        places, path = many(side.damaged, "damaged place"), shlex.quote(side.path)
        yield Text("         {places}: see `rmqstore verify {path}`", places=places, path=path)


_VERDICT = {
    "equal": Text("Equal: both stores have the same messages at the same offsets."),
    "store-is-prefix": Text("STORE is shorter: all its messages are equal, and OTHER continues."),
    "other-is-prefix": Text("OTHER is shorter: all its messages are equal, and STORE continues."),
    "moved": Text("The same messages, at different offsets."),
    "diverged": Text("The stores differ."),
    "undecided": Text("STORE is shorter; the last messages cannot be compared with the fingerprint of OTHER."),
}


def _verdict(answer: Comparison) -> str:
    """Return the answer in one line."""
    for name, count in zip(("STORE", "OTHER"), answer.earlier, strict=True):
        if count:
            return Text(
                "Equal from offset {start:,} on. Only {name} has {messages} before that.",
                start=answer.common_start,
                name=name,
                messages=many(count, "message"),
            )
    if answer.relation != "diverged":
        return _VERDICT[answer.relation]
    if not answer.equal_messages:
        return Text("These stores are not replicas of each other: no message is equal.")
    counts = (
        (answer.damaged_in_store.messages, Text("damaged in STORE")),
        (answer.damaged_in_other.messages, Text("damaged in OTHER")),
        (answer.changed.messages, Text("with different content")),
        (answer.only_store.messages, Text("only in STORE")),
        (answer.only_other.messages, Text("only in OTHER")),
    )
    words = joined((Placed("{count:,} {what}", count=count, what=what) for count, what in counts if count))
    return Text("The stores differ: {words}.", words=words) if words else _VERDICT[answer.relation]


def _lines(answer: Comparison) -> Iterator[str]:
    yield _verdict(answer)
    yield ""
    yield from _side_lines("STORE", answer.store)
    yield from _side_lines("OTHER", answer.other)
    equal = Text("{messages} at the same offset", messages=many(answer.equal_messages, "message"))
    if answer.divergence is not None and answer.leading_messages < answer.equal_messages:
        leading = answer.leading_messages
        equal = Text("{equal}, of which {leading:,} before the first difference", equal=equal, leading=leading)
    yield Text("  equal  {equal}", equal=equal)
    where = answer.divergence
    if where is not None:
        yield ""
        yield Text("First difference: {log}, offset {offset:,}", log=where.log, offset=where.offset)
        yield Placed("  STORE  {place}", place=_place(where.store, where.store_state))
        yield Placed("  OTHER  {place}", place=_place(where.other, where.other_state))
    yield from _messages(Text("Damaged in STORE, good in OTHER"), answer.damaged_in_store)
    yield from _messages(Text("Damaged in OTHER, good in STORE"), answer.damaged_in_other)
    yield from _messages(Text("Same offset, different content"), answer.changed)
    if answer.equal_messages:  # of stores that are not replicas, all messages are only in one
        yield from _messages(Text("Only in STORE"), answer.only_store)
        yield from _messages(Text("Only in OTHER"), answer.only_other)
    if answer.damaged_in_both:
        yield ""
        yield Text("Damaged in both: {places}", places=many(len(answer.damaged_in_both), "place"))
        for both in answer.damaged_in_both[:_LISTED]:
            how = Text("with the same bytes") if both.same_bytes else Text("with different bytes")
            yield Text("  offset {offset:,} to {until:,}, {how}", offset=both.offset, until=both.until, how=how)
        yield from _more(len(answer.damaged_in_both), "place")
    if answer.moved:
        yield ""
        yield Text("At different offsets on the two sides: {messages}", messages=many(answer.moved, "message"))
    if answer.heal_commands or answer.seed_commands:
        yield ""
        yield from (Text("Next: {words}", words=words) for words in answer.heal_commands)
        yield from _seed_lines(answer.seed_commands)


def _seed_lines(commands: list[str]) -> Iterator[str]:
    """Yield how to end a divergence. `commands`: from STORE, from OTHER; or none."""
    for words, side in zip(commands, ("STORE", "OTHER"), strict=False):
        yield Text("Next, if {side} is right, make the other again from it: {command}", side=side, command=words)


_STATES = {
    "damaged": Text("damaged"),
    "missing-file": Text("the file is missing"),
    "zeros": Text("zero bytes where a record belongs"),
    "blank": Text("a BLANK (end of the file)"),
    "other-record": Text("no record starts here"),
    "ended": Text("the log ends before it"),
}


def _place(place: ComparedRecord | None, state: str) -> str:
    if place is None:
        return _STATES[state]
    entry = Text(", index {index:,}, term {term:,}", index=place.index, term=place.term) if place.index >= 0 else ""
    where = queue_place(place.topic, place.queue_id, place.queue_offset)
    size, time = bytes_text(place.size), time_text(place.store_timestamp)
    return Text("{where}{entry}, {size}, stored {time}", where=where, entry=entry, size=size, time=time)


def _messages(label: str, part: Messages) -> Iterator[str]:
    if not part.messages:
        return
    yield ""
    messages, queues = many(part.messages, "message"), many(len(part.queues), "queue")
    yield Text("{label}: {messages} of {queues}", label=label, messages=messages, queues=queues)
    for name, (count, ranges) in sorted(part.queues.items())[:_LISTED]:
        messages = many(count, "message")
        yield Placed("  {name}: {messages}, {ranges}", name=name, messages=messages, ranges=ranges_text(ranges))
    yield from _more(len(part.queues), "queue")


def _more(count: int, word: str) -> Iterator[str]:
    if count > _LISTED:
        yield Text("  … and {many}; --json lists all", many=many(count - _LISTED, Text("more {word}", word=word)))


def ranges_text(ranges: list[tuple[int, int]]) -> str:
    """Format ranges: `queue offset 17`, `queue offsets 17 and 23`, `queue offsets 24 to 37 and 40`."""
    shown: list[str] = [
        Placed("{low:,}", low=low) if low == high else Text("{low:,} to {high:,}", low=low, high=high)
        for low, high in ranges[:_RANGES]
    ]
    if len(ranges) > _RANGES:
        shown.append(many(len(ranges) - _RANGES, "more range"))
    text = joined(shown, last=" and ")
    single = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return Text("queue offset {text}", text=text) if single else Text("queue offsets {text}", text=text)


def _against_lines(found: Against) -> Iterator[str]:
    yield _VERDICT[found.relation]
    yield ""
    yield from _side_lines("STORE", found.store)
    yield from _side_lines("OTHER", found.other)
    yield Text("  equal  until {at:,}", at=found.equal_until)
    if found.differs is not None:
        yield ""
        yield Text("First difference: between {start:,} and {stop:,}", start=found.differs[0], stop=found.differs[1])
        if found.relation == "undecided":
            yield Text("  The other log is longer. For an exact answer, compare there, with a fingerprint of STORE.")
    if found.relation == "diverged":
        yield ""
        yield from _seed_lines([found.store.seed_command, found.other.seed_command])
    if found.queues:
        more = " …" if len(found.queues) > _LISTED else ""
        yield Text("Queues that differ: {queues}{more}", queues=joined(found.queues[:_LISTED]), more=more)
