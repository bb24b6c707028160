"""`rmqstore compare`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqstore.cli.options import command
from rmqstore.cli.output import Output
from rmqstore.cli.quantities import bytes_text, many, time_text
from rmqstore.errors import CouldNotCheck, UsageError

if TYPE_CHECKING:
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.views.compare.compare import Comparison, OneSided, Place, Side
    from rmqstore.views.compare.fingerprint import Against

_FILE = click.Path(path_type=Path, dir_okay=False)
_QUEUES = 20


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
@click.option("--fingerprint-out", type=_FILE, metavar="FILE", help="Write STORE's fingerprint instead of comparing.")
@click.option("--against", type=_FILE, metavar="FILE", help="Compare STORE with another store's fingerprint.")
def compare(
    out: Output,
    store: Path,
    config: BrokerConfig,
    other: Path | None,
    fingerprint_out: Path | None,
    against: Path | None,
    jobs: int | None,
    max_rate: int | None,
) -> int:
    """Where two replicas part, and which messages are on one side only.

    For nodes of a DLedger group, and for master and slave: the same message stands at the same offset on every one.
    Files that only one of them still has (retention) are no difference. Two hosts are compared by carrying a small
    file from one to the other, best from the one with the shorter log. Exit code 0: equal; 1: they differ.
    """
    from rmqstore.checks.expiring import while_files_expire
    from rmqstore.files.store import open_store

    if sum(value is not None for value in (other, fingerprint_out, against)) != 1:
        raise UsageError("give one of OTHER, --fingerprint-out FILE, --against FILE")
    opened = open_store(store, config)
    if opened.lock_state().held:
        out.note("note: a broker is running on this store; it is compared up to where its log ends now")
    if fingerprint_out is not None:
        return _write(out, opened, fingerprint_out, jobs, max_rate)
    if against is not None:
        from rmqstore.views.compare.fingerprint import compare_with, read_fingerprint

        theirs = read_fingerprint(against)
        found = while_files_expire(opened, lambda s: compare_with(s, theirs, jobs=jobs, max_rate=max_rate or 0))
        if out.as_json:
            out.report(found.to_json())
        else:
            out.lines(_against_lines(found))
        return _exit_code(found.equal, found.store, found.other)
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.views.compare.compare import compare as run

    assert other is not None
    sizes = {k: v for k, v in config.given.items() if k.startswith(("mappedFileSize", "mapperFileSize"))}
    against_it = open_store(other, BrokerConfig(sizes))
    answer = while_files_expire(
        opened,
        lambda s: while_files_expire(against_it, lambda o: run(s, o, jobs=jobs, max_rate=max_rate or 0)),
    )
    if out.as_json:
        out.report(answer.to_json())
    else:
        out.lines(_lines(answer))
    return _exit_code(answer.equal, answer.store, answer.other)


def _exit_code(equal: bool, *sides: Side) -> int:
    """What could not be read is never taken for equal."""
    if not equal:
        return 1
    return CouldNotCheck.exit_code if any(side.unreadable for side in sides) else 0


def _write(out: Output, opened: object, path: Path, jobs: int | None, max_rate: int | None) -> int:
    from rmqstore.checks.expiring import while_files_expire
    from rmqstore.cli.output import json_bytes
    from rmqstore.files.store import Store
    from rmqstore.views.compare.fingerprint import fingerprint

    assert isinstance(opened, Store)
    target = Output(path=path)
    target.keep_out_of(opened.path)
    made = while_files_expire(opened, lambda s: fingerprint(s, jobs=jobs, max_rate=max_rate or 0))
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
        committed = f", committed {d['committed_index']}" if d["committed_index"] >= 0 else ""
        yield f"         index {d['first_index']} to {d['last_index']}, term {d['term']}{committed}"
    if side.unreadable:
        yield "         the disk gave an error: not everything could be read"
    if side.damaged:
        yield f"         {many(side.damaged, 'damaged place')}: see `rmqstore verify {shlex.quote(side.path)}`"


_VERDICT = {
    "equal": "Equal: every message of one is at the same place in the other.",
    "store-is-prefix": "STORE is shorter: all that it has is equal, OTHER goes on.",
    "other-is-prefix": "OTHER is shorter: all that it has is equal, STORE goes on.",
    "moved": "The same messages, at different places.",
    "diverged": "They differ.",
    "undecided": "STORE is shorter; what OTHER has at STORE's end is not in its fingerprint.",
}


def _lines(answer: Comparison) -> Iterator[str]:
    yield _VERDICT[answer.relation]
    yield ""
    yield from _side_lines("STORE", answer.store)
    yield from _side_lines("OTHER", answer.other)
    yield f"  equal  {many(answer.equal_messages, 'message')}, from {answer.common_start:,} to {answer.common_stop:,}"
    where = answer.divergence
    if where is None:
        return
    yield ""
    yield f"First difference: {where.log}, offset {where.offset:,}"
    yield f"  STORE  {_place(where.store)}"
    yield f"  OTHER  {_place(where.other)}"
    if answer.moved:
        yield f"  {many(answer.moved, 'message')} behind it on both sides, at other places"
    yield from _one_sided("STORE", answer.only_store)
    yield from _one_sided("OTHER", answer.only_other)


def _place(place: Place | None) -> str:
    if place is None:
        return "ends here"
    entry = f", index {place.index}, term {place.term}" if place.index >= 0 else ""
    return (
        f"{place.topic}/{place.queue_id} offset {place.queue_offset}{entry}, {place.size} bytes at {place.offset:,},"
        f" stored {time_text(place.store_timestamp)}"
    )


def _one_sided(label: str, side: OneSided) -> Iterator[str]:
    if not side.messages:
        return
    yield ""
    yield f"Only in {label}: {many(side.messages, 'message')} of {many(len(side.queues), 'queue')}"
    rows = sorted(side.queues.items())
    yield from (f"  {name}: {many(n, 'message')}, from queue offset {low} on" for name, (low, n) in rows[:_QUEUES])
    if len(rows) > _QUEUES:
        yield f"  … and {many(len(rows) - _QUEUES, 'more queue')}; --json has all"


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
            yield "  the other log is longer: make STORE's fingerprint and compare with it there, to be exact"
    if found.queues:
        yield f"Queues that differ: {', '.join(found.queues[:_QUEUES])}" + (" …" if len(found.queues) > _QUEUES else "")
