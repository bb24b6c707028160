"""`rmqstore compare`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import bytes_text, many, time_text
from rmqstore.cli.shared.options import FILE, WorkOptions, command
from rmqstore.cli.shared.reading import note_live
from rmqstore.errors import CouldNotCheck, UsageError

if TYPE_CHECKING:
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.views.compare.comparison import ComparedRecord, Comparison, Messages, Side
    from rmqstore.views.compare.fingerprint import Against

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
@click.argument("other", type=click.Path(path_type=Path, readable=False), required=False, metavar="[OTHER]")
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
    from rmqstore.checks.expiring import while_files_expire
    from rmqstore.cli.shared.stores import open_named

    if sum(value is not None for value in (other, fingerprint_out, against)) != 1:
        raise UsageError("give exactly one of OTHER, --fingerprint-out FILE and --against FILE")
    opened = open_named(store, config)
    note_live(out, opened, "only what its log contains now is compared")
    if fingerprint_out is not None:
        return _write(out, opened, fingerprint_out, work)
    if against is not None:
        from rmqstore.views.compare.fingerprint import compare_with, read_fingerprint

        theirs = read_fingerprint(against)
        with out.busy("reading the log"):
            found = while_files_expire(
                opened, lambda s: compare_with(s, theirs, jobs=work.jobs, max_rate=work.max_rate)
            )
        if out.as_json:
            out.report(found.to_json())
        else:
            out.lines(_against_lines(found), wrap=True)
        return _exit_code(found.equal, found.store, found.other)
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.views.compare.compare import compare as run

    assert other is not None
    against_it = open_named(other, BrokerConfig(config.file_sizes()))
    with out.busy("reading both logs"):
        answer = while_files_expire(
            opened,
            lambda s: while_files_expire(against_it, lambda o: run(s, o, jobs=work.jobs, max_rate=work.max_rate)),
        )
    if out.as_json:
        out.report(answer.to_json())
    else:
        out.lines(_lines(answer), wrap=True)
    return _exit_code(answer.equal, answer.store, answer.other)


def _exit_code(equal: bool, *sides: Side) -> int:
    """0 equal, 1 different, 4 if not everything could be read."""
    if not equal:
        return 1
    return CouldNotCheck.exit_code if any(side.unreadable for side in sides) else 0


def _write(out: Output, opened: Store, path: Path, work: WorkOptions) -> int:
    from rmqstore.checks.expiring import while_files_expire
    from rmqstore.cli.printing.output import json_bytes
    from rmqstore.views.compare.fingerprint import fingerprint

    target = Output(path=path)
    target.keep_out_of(opened.path)
    with out.busy("reading the log"):
        made = while_files_expire(opened, lambda s: fingerprint(s, jobs=work.jobs, max_rate=work.max_rate))
    data = json_bytes(made.to_json()) + b"\n"
    with target.stream() as file:
        file.write(data)
    if out.as_json:
        out.report({"schema": "rmqstore.fingerprint/1", "file": str(path), "ranges": len(made.ranges)})
    else:
        out.lines([f"{path}: {many(len(made.ranges), 'range')} of {bytes_text(made.step)}, {bytes_text(len(data))}"])
    return 0


def _side_lines(label: str, side: Side) -> Iterator[str]:
    yield f"  {label:<7}{side.path}"
    yield f"         {many(side.messages, 'message')}, offsets {side.min_offset:,} to {side.wrote:,}"
    if side.dledger is not None:
        d = side.dledger
        committed = f", committed {d['committed_index']:,}" if d["committed_index"] >= 0 else ""
        if d["last_index"] >= 0:
            yield f"         index {d['first_index']:,} to {d['last_index']:,}, term {d['term']:,}{committed}"
    if side.unreadable:
        yield "         the disk reported an error: not everything was read"
    if side.damaged:
        yield f"         {many(side.damaged, 'damaged place')}: see `rmqstore verify {shlex.quote(side.path)}`"


_VERDICT = {
    "equal": "Equal: both stores have the same messages at the same offsets.",
    "store-is-prefix": "STORE is shorter: all its messages are equal, and OTHER continues.",
    "other-is-prefix": "OTHER is shorter: all its messages are equal, and STORE continues.",
    "moved": "The same messages, at different offsets.",
    "diverged": "The stores differ.",
    "undecided": "STORE is shorter; the last messages cannot be compared with the fingerprint of OTHER.",
}


def _verdict(answer: Comparison) -> str:
    """Return the answer in one line."""
    if answer.relation != "diverged":
        return _VERDICT[answer.relation]
    if not answer.equal_messages:
        return "These stores are not replicas of each other: no message is equal."
    counts = (
        (answer.damaged_in_store.messages, "damaged in STORE"),
        (answer.damaged_in_other.messages, "damaged in OTHER"),
        (answer.changed.messages, "with different content"),
        (answer.only_store.messages, "only in STORE"),
        (answer.only_other.messages, "only in OTHER"),
    )
    words = ", ".join(f"{count:,} {what}" for count, what in counts if count)
    return f"The stores differ: {words}." if words else _VERDICT[answer.relation]


def _lines(answer: Comparison) -> Iterator[str]:
    yield _verdict(answer)
    yield ""
    yield from _side_lines("STORE", answer.store)
    yield from _side_lines("OTHER", answer.other)
    equal = f"{many(answer.equal_messages, 'message')} at the same offset"
    if answer.divergence is not None and answer.leading_messages < answer.equal_messages:
        equal += f", {answer.leading_messages:,} of them before the first difference"
    yield f"  equal  {equal}"
    where = answer.divergence
    if where is not None:
        yield ""
        yield f"First difference: {where.log}, offset {where.offset:,}"
        yield f"  STORE  {_place(where.store, where.store_state)}"
        yield f"  OTHER  {_place(where.other, where.other_state)}"
    yield from _messages("Damaged in STORE, good in OTHER", answer.damaged_in_store)
    yield from _messages("Damaged in OTHER, good in STORE", answer.damaged_in_other)
    yield from _messages("Same offset, different content", answer.changed)
    if answer.equal_messages:  # of stores that are not replicas, all messages are only in one
        yield from _messages("Only in STORE", answer.only_store)
        yield from _messages("Only in OTHER", answer.only_other)
    if answer.damaged_in_both:
        yield ""
        yield f"Damaged in both: {many(len(answer.damaged_in_both), 'place')}"
        for both in answer.damaged_in_both[:_LISTED]:
            how = "with the same bytes" if both.same_bytes else "with different bytes"
            yield f"  offset {both.offset:,} to {both.until:,}, {how}"
        yield from _more(len(answer.damaged_in_both), "place")
    if answer.moved:
        yield ""
        yield f"At different offsets on the two sides: {many(answer.moved, 'message')}"
    if answer.heal_commands:
        yield ""
        yield from (f"Next: {words}" for words in answer.heal_commands)


_STATES = {
    "damaged": "damaged",
    "missing-file": "the file is missing",
    "zeros": "zero bytes where a record belongs",
    "blank": "a BLANK (end of the file)",
    "other-record": "no record starts here",
    "ended": "the log ends before it",
}


def _place(place: ComparedRecord | None, state: str) -> str:
    if place is None:
        return _STATES[state]
    entry = f", index {place.index:,}, term {place.term:,}" if place.index >= 0 else ""
    return (
        f"{place.topic}/{place.queue_id} offset {place.queue_offset:,}{entry}, {bytes_text(place.size)},"
        f" stored {time_text(place.store_timestamp)}"
    )


def _messages(label: str, part: Messages) -> Iterator[str]:
    if not part.messages:
        return
    yield ""
    yield f"{label}: {many(part.messages, 'message')} of {many(len(part.queues), 'queue')}"
    for name, (count, ranges) in sorted(part.queues.items())[:_LISTED]:
        yield f"  {name}: {many(count, 'message')}, {ranges_text(ranges)}"
    yield from _more(len(part.queues), "queue")


def _more(count: int, word: str) -> Iterator[str]:
    if count > _LISTED:
        yield f"  … and {many(count - _LISTED, f'more {word}')}; --json lists all"


def ranges_text(ranges: list[tuple[int, int]]) -> str:
    """Format ranges: `queue offset 17`, `queue offsets 17 and 23`, `queue offsets 24 to 37 and 40`."""
    shown = [f"{low:,}" if low == high else f"{low:,} to {high:,}" for low, high in ranges[:_RANGES]]
    if len(ranges) > _RANGES:
        shown.append(many(len(ranges) - _RANGES, "more range"))
    text = " and ".join((", ".join(shown[:-1]), shown[-1])) if len(shown) > 1 else shown[0]
    single = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return f"queue {'offset' if single else 'offsets'} {text}"


def _against_lines(found: Against) -> Iterator[str]:
    yield _VERDICT[found.relation]
    yield ""
    yield from _side_lines("STORE", found.store)
    yield from _side_lines("OTHER", found.other)
    yield f"  equal  until {found.equal_until:,}"
    if found.differs is not None:
        yield ""
        yield f"First difference: between {found.differs[0]:,} and {found.differs[1]:,}"
        if found.relation == "undecided":
            yield "  The other log is longer. For an exact answer, compare there, with a fingerprint of STORE."
    if found.queues:
        yield f"Queues that differ: {', '.join(found.queues[:_LISTED])}" + (" …" if len(found.queues) > _LISTED else "")
